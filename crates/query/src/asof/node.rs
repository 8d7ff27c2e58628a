//! An `ASOF JOIN` as part of a plan.

use datafusion::common::{DFSchemaRef, JoinType, Result, internal_err};
use datafusion::logical_expr::builder::build_join_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The logical node of an `ASOF JOIN`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AsOf {
    pub(super) left: Arc<LogicalPlan>,
    pub(super) right: Arc<LogicalPlan>,
    pub(super) schema: DFSchemaRef,
    /// Keys of either side, compared for equality; the last one is the nearness key.
    pub(super) left_by: Vec<Expr>,
    pub(super) right_by: Vec<Expr>,
    /// True: the nearest row that is not earlier; false: not later.
    pub(super) forward: bool,
    /// Excludes rows of equal time.
    pub(super) strict: bool,
    /// Rows of the left side without a match stay.
    pub(super) outer: bool,
}

impl PartialOrd for AsOf {
    fn partial_cmp(&self, _: &AsOf) -> Option<Ordering> {
        None
    }
}

impl AsOf {
    pub(super) fn join_type(outer: bool) -> JoinType {
        if outer {
            JoinType::Left
        } else {
            JoinType::Inner
        }
    }
}

impl UserDefinedLogicalNodeCore for AsOf {
    fn name(&self) -> &str {
        "AsOfJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.left_by.iter().chain(&self.right_by).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.outer { "left" } else { "inner" };
        write!(f, "AsOfJoin: {kind}, {}", self.comparison())
    }

    fn with_exprs_and_inputs(
        &self,
        mut exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<AsOf> {
        let (Some(right), Some(left)) = (inputs.pop(), inputs.pop()) else {
            return internal_err!("an ASOF JOIN without its sides");
        };
        if exprs.len() != self.left_by.len() + self.right_by.len() {
            return internal_err!("an ASOF JOIN without its condition");
        }
        let right_by = exprs.split_off(self.left_by.len());
        let schema =
            build_join_schema(left.schema(), right.schema(), &AsOf::join_type(self.outer))?;
        Ok(AsOf {
            left: Arc::new(left),
            right: Arc::new(right),
            schema: Arc::new(schema),
            left_by: exprs,
            right_by,
            ..self.clone()
        })
    }

    fn necessary_children_exprs(&self, output: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.left.schema().fields().len();
        let mut needs = [BTreeSet::new(), BTreeSet::new()];
        let [left, right] = &mut needs;
        for at in output {
            match at.checked_sub(width) {
                None => left.insert(*at),
                Some(at) => right.insert(at),
            };
        }
        for (exprs, plan, needed) in [
            (&self.left_by, &self.left, left),
            (&self.right_by, &self.right, right),
        ] {
            for column in exprs.iter().flat_map(Expr::column_refs) {
                needed.insert(plan.schema().maybe_index_of_column(column)?);
            }
        }
        Some(needs.map(|needed| needed.into_iter().collect()).to_vec())
    }
}

impl AsOf {
    /// The comparison that finds the nearest row, as text.
    pub(super) fn comparison(&self) -> String {
        let sign = match (self.forward, self.strict) {
            (false, false) => ">=",
            (false, true) => ">",
            (true, false) => "<=",
            (true, true) => "<",
        };
        let last = |exprs: &[Expr]| exprs.last().map_or_else(String::new, ToString::to_string);
        let mut parts: Vec<String> = self
            .left_by
            .iter()
            .zip(&self.right_by)
            .take(self.left_by.len().saturating_sub(1))
            .map(|(left, right)| format!("{left} = {right}"))
            .collect();
        parts.push(format!(
            "{} {sign} {}",
            last(&self.left_by),
            last(&self.right_by)
        ));
        parts.join(" AND ")
    }
}
