//! A table of the database as the SQL planner reads it.
//!
//! Pushed down are: the projection; comparisons of `time` with an instant; any condition on tags
//! alone, which is evaluated once per stream before rows are read; comparisons of a field with a
//! value, with which the pyramid skips rows that cannot match; a limit. The output declares its
//! order: by tags and time, or by time for a single stream.

mod filter;
mod newest;
mod ranges;
mod read;
mod request;
mod scan;
mod skipping;

pub(crate) use filter::{Condition, Conditions, is_about_tags};
pub(crate) use newest::NewestOfMany;
pub(crate) use read::ReadMetrics;
pub(crate) use scan::ScanExec;
pub(crate) use skipping::{Anchor, Bounds, Near, Reach, Skipping};

use crate::error::external;
use crate::view::{Role, TableView, View};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use request::FieldConditions;
use scan::Work;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    view: Arc<TableView>,
}

impl Table {
    pub(crate) fn new(view: Arc<TableView>) -> Table {
        Table { view }
    }

    pub(crate) fn view(&self) -> &Arc<TableView> {
        &self.view
    }
}

/// The view of the statement that is planned or run.
pub(crate) fn view_of(config: &datafusion::prelude::SessionConfig) -> Result<Arc<View>> {
    config.get_extension::<View>().ok_or_else(|| {
        DataFusionError::Internal("a statement is planned without its view".to_owned())
    })
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.view.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        static NOW: std::sync::OnceLock<Expr> = std::sync::OnceLock::new();
        (self.view.role(column) == Some(Role::Time))
            .then(|| NOW.get_or_init(datafusion::functions::datetime::expr_fn::now))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let exact = |filter: &&Expr| match Condition::of(filter, &self.view) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(exact).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let conditions = Conditions::of(filters, &self.view)?;
        let view = view_of(state.config())?.of(&self.view)?;
        let chosen = conditions.choose(&view, &self.view, state.execution_props())?;
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.view.schema.fields().len()).collect(),
        };
        let parallel = state.config().target_partitions();
        let work = Work::divide(&view, chosen, conditions.range, parallel)?;
        let of_fields = FieldConditions {
            filters: conditions.filters,
            any_of: conditions.any_of,
        };
        let indexes = of_fields.indexes(view.snapshot(), &self.view.name);
        let indexes = indexes.map_err(external)?;
        let plan = ScanExec::new(
            Arc::clone(&self.view),
            projection,
            of_fields,
            conditions.range,
            work,
            limit,
        )?;
        Ok(Arc::new(plan.with_indexes(indexes)))
    }
}
