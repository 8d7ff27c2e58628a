//! What a grouped query asks of the pyramid.

use super::exec::PyramidExec;
use crate::table::{Conditions, view_of};
use crate::view::TableView;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use headwater::Bins;
use headwater_ask::{EndOf, Fold};
use std::sync::Arc;

/// A column by which rows are grouped.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Key {
    /// The beginning of the row's bin.
    Bin,
    /// What an expression over tags gives.
    Tags(Expr),
}

/// What is computed of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Count,
    Min,
    Max,
    Mean,
    Sum,
    /// Sum of floats, also of a field of integers.
    SumOfFloats,
    Variance {
        sample: bool,
    },
    Deviation {
        sample: bool,
    },
}

/// What is wanted of an end of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The instant.
    Time,
    /// The present value of a field, by its place among the table's.
    Field(usize),
    /// What the row has of a field, by its place among the table's.
    InRow(usize),
    /// What the row has of a tag, by its place among the table's.
    Tag(usize),
}

/// The earliest or the latest row, or present value, or what that row has, of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) last: bool,
    pub(super) of: Of,
}

/// A column that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Computed {
    /// Rows of the group.
    Rows,
    /// Something of a field, by its place in [`Grouped::fields`].
    Of(Function, usize),
    /// An end, by its place in [`Grouped::ends`].
    End(usize),
}

/// A grouped query.
#[derive(Clone, Debug)]
pub(super) struct Grouped {
    pub(super) table: Arc<TableView>,
    /// Conditions on time and tags.
    pub(super) filters: Vec<Expr>,
    pub(super) bins: Bins,
    pub(super) keys: Vec<Key>,
    pub(super) computed: Vec<Computed>,
    /// Fields that are aggregated, under their names in the table.
    pub(super) fields: Vec<String>,
    /// Ends of time; only where bins are whole, since aggregates do not know when they begin and
    /// end.
    pub(super) ends: Vec<End>,
    /// A column per key, then one per computed column.
    pub(super) schema: SchemaRef,
}

impl Grouped {
    /// What is folded of each stream; `keeps` = the table keeps rows of equal instants.
    pub(super) fn fold(&self, keeps: bool) -> Fold {
        let name = |at: &usize| self.table.fields.get(*at).map(|(name, _)| name.clone());
        let tag = |at: &usize| self.table.keys.get(*at).cloned();
        let ends = self.ends.iter().map(|end| headwater_ask::End {
            last: end.last,
            of: match &end.of {
                Of::Time => EndOf::Time,
                // A field that is not there has no end.
                Of::Field(at) => EndOf::Field(name(at).unwrap_or_default()),
                Of::InRow(at) => EndOf::InRow(name(at).unwrap_or_default()),
                Of::Tag(at) => EndOf::Tag(tag(at).unwrap_or_default()),
            },
        });
        Fold {
            fields: self.fields.clone(),
            rows: self.needs_aggregates(),
            ends: ends.collect(),
            // All NaN are one here, whatever their signs: nobody has to look at the rows.
            nan: Vec::new(),
            keeps,
        }
    }

    /// Whether the pyramid is asked at all.
    pub(super) fn needs_aggregates(&self) -> bool {
        self.ends.is_empty() || self.computed.iter().any(|c| !matches!(c, Computed::End(_)))
    }
}

/// A grouped query as a table of its answer.
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
        // Planned without a view would be a defect: say so here, not when it runs.
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
