//! A grouped query as a table provider, which plans its computation.

use super::exec::PyramidExec;
use super::plan::Grouped;
use crate::table::{Conditions, view_of};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

/// The answer of a grouped query as a table.
#[derive(Debug)]
pub(super) struct PyramidTable {
    grouped: Arc<Grouped>,
}

impl PyramidTable {
    pub(super) fn new(grouped: Grouped) -> PyramidTable {
        PyramidTable {
            grouped: Arc::new(grouped),
        }
    }
}

#[async_trait]
impl TableProvider for PyramidTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.grouped.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // A missing view would be a bug: report it here, not when the plan runs.
        let grouped = &self.grouped;
        let view = view_of(state.config())?.of(&grouped.table)?;
        let conditions = Conditions::of(&grouped.filters, &grouped.table)?;
        let chosen = conditions.choose(&view, &grouped.table, state.execution_props())?;
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..grouped.schema.fields().len()).collect(),
        };
        let plan = PyramidExec::new(
            Arc::clone(grouped),
            projection,
            conditions.range,
            chosen,
            state.config().target_partitions(),
            state.execution_props(),
        )?;
        Ok(Arc::new(plan))
    }
}
