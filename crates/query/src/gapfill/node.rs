//! Logical node that adds missing buckets.

use arrow::datatypes::{Field, IntervalMonthDayNano};
use datafusion::common::{DFSchema, DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Value of a column in a missing bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fill {
    /// The value NULL.
    Absent,
    /// The value of the bucket's group.
    Key,
    /// The bucket's beginning.
    Bucket,
    /// The previous value; with `over`, NULL values are skipped, and replaced too.
    Last { over: bool },
    /// Linear interpolation between the neighbours.
    Line,
}

/// The node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GapFill {
    pub(super) input: Arc<LogicalPlan>,
    pub(super) schema: DFSchemaRef,
    /// Fill of each input column.
    pub(super) fills: Vec<Fill>,
    pub(super) width: IntervalMonthDayNano,
    pub(super) zone: Option<String>,
    /// The beginnings of the buckets that contain the lower bounds; the latest is used.
    pub(super) begins: Vec<Expr>,
    /// The exclusive upper bounds; the earliest is used.
    pub(super) ends: Vec<Expr>,
}

impl PartialOrd for GapFill {
    fn partial_cmp(&self, _: &GapFill) -> Option<Ordering> {
        None
    }
}

impl GapFill {
    /// The node over another input, with other fills.
    pub(super) fn over(&self, input: LogicalPlan, fills: Vec<Fill>) -> Result<GapFill> {
        let columns = input.schema().iter().zip(&fills);
        let columns = columns.map(|((qualifier, field), fill)| {
            let may_miss = !matches!(fill, Fill::Key | Fill::Bucket);
            let field = Field::clone(field).with_nullable(field.is_nullable() || may_miss);
            (qualifier.cloned(), Arc::new(field))
        });
        let metadata = input.schema().metadata().clone();
        let schema = DFSchema::new_with_metadata(columns.collect(), metadata)?;
        Ok(GapFill {
            input: Arc::new(input),
            schema: Arc::new(schema),
            fills,
            ..self.clone()
        })
    }

    /// Index of the buckets' column.
    pub(super) fn bucket(&self) -> Option<usize> {
        self.fills.iter().position(|fill| *fill == Fill::Bucket)
    }

    /// Indexes of the columns that distinguish groups.
    pub(super) fn keys(&self) -> Vec<usize> {
        let places = self.fills.iter().enumerate();
        let keys = places.filter(|(_, fill)| **fill == Fill::Key);
        keys.map(|(place, _)| place).collect()
    }
}

impl UserDefinedLogicalNodeCore for GapFill {
    fn name(&self) -> &str {
        "GapFill"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.begins.iter().chain(&self.ends).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds = |exprs: &[Expr]| {
            let texts: Vec<String> = exprs.iter().map(ToString::to_string).collect();
            texts.join(", ")
        };
        let (begins, ends) = (bounds(&self.begins), bounds(&self.ends));
        write!(f, "GapFill: from=[{begins}], to=[{ends}]")
    }

    fn with_exprs_and_inputs(
        &self,
        mut exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<GapFill> {
        let (Some(input), true) = (inputs.pop(), exprs.len() >= self.begins.len()) else {
            return internal_err!("a node that fills gaps without its parts");
        };
        let ends = exprs.split_off(self.begins.len());
        let made = self.over(input, self.fills.clone())?;
        Ok(GapFill {
            begins: exprs,
            ends,
            ..made
        })
    }
}
