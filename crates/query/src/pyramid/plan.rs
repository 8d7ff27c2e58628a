//! Description of a grouped query for the pyramid.

use crate::view::TableView;
use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::Expr;
use headwater::Bins;
use headwater_ask::{EndOf, Fold};
use std::sync::Arc;

/// A grouping key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Key {
    /// The beginning of the row's bin.
    Bin,
    /// The value of an expression over tags.
    Tags(Expr),
}

/// Aggregates of a group.
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

/// Value at an end of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The instant.
    Time,
    /// The nearest present value of a field, by its index in the table.
    Field(usize),
    /// A field of the row, by its index in the table.
    InRow(usize),
    /// A tag of the row, by its index in the table.
    Tag(usize),
}

/// The earliest or the latest row or present value of a group, or a value of that row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) last: bool,
    pub(super) of: Of,
}

/// A computed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Computed {
    /// Rows of the group.
    Rows,
    /// An aggregate of a field, by its index in [`Grouped::fields`].
    Of(Function, usize),
    /// An end, by its index in [`Grouped::ends`].
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
    /// Fields that are aggregated, by their names in the table.
    pub(super) fields: Vec<String>,
    /// Ends of time; only if bins are whole, since aggregates do not include their first and last
    /// instants.
    pub(super) ends: Vec<End>,
    /// A column per key, then one per computed column.
    pub(super) schema: SchemaRef,
}

impl Grouped {
    /// The fold of each stream; `keeps` = the table keeps rows of equal instants.
    pub(super) fn fold(&self, retains_duplicates: bool) -> Fold {
        let name = |at: &usize| self.table.fields.get(*at).map(|(name, _)| name.clone());
        let tag = |at: &usize| self.table.keys.get(*at).cloned();
        let ends = self.ends.iter().map(|end| headwater_ask::End {
            last: end.last,
            of: match &end.of {
                Of::Time => EndOf::Time,
                // A field that does not exist has no end.
                Of::Field(at) => EndOf::Field(name(at).unwrap_or_default()),
                Of::InRow(at) => EndOf::InRow(name(at).unwrap_or_default()),
                Of::Tag(at) => EndOf::Tag(tag(at).unwrap_or_default()),
            },
        });
        Fold {
            fields: self.fields.clone(),
            rows: self.needs_aggregates(),
            ends: ends.collect(),
            // All NaN are equal here, whatever their signs, so that rows need not be read for them.
            nan: Vec::new(),
            retains_duplicates,
        }
    }

    /// Whether the query needs aggregates of the pyramid.
    pub(super) fn needs_aggregates(&self) -> bool {
        self.ends.is_empty() || self.computed.iter().any(|c| !matches!(c, Computed::End(_)))
    }
}
