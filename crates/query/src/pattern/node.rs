//! `MATCH_RECOGNIZE` as part of a plan.

use super::program::Program;
use super::regex::Regex;
use super::slots::{Of, Tally};
use super::tracking::Tracked;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A slot, with its column or value by index among the expressions over rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    Value {
        column: usize,
        of: Of,
        first: bool,
        steps: usize,
        shift: i64,
        whole: bool,
    },
    Tally {
        tally: Tally,
        of: Of,
        value: Option<usize>,
        whole: bool,
    },
    Classifier,
    Number,
}

/// Row at which the search continues after a match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Skip {
    PastLastRow,
    ToNextRow,
    ToFirst(Vec<usize>, String),
    ToLast(Vec<usize>, String),
}

/// Output rows of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Answers {
    /// True: every row of a match; false: one row per match.
    pub(super) rows: bool,
    /// True if matches without rows are output.
    pub(super) empty: bool,
    /// True if rows without a match are output.
    pub(super) unmatched: bool,
}

/// An expression over slots, with its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Computed {
    pub(super) expr: Expr,
    pub(super) of: DataType,
}

/// The compiled pattern with its conditions and measures, independent of its input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PatternSpec {
    pub(super) program: Program,
    pub(super) regex: Regex,
    pub(super) symbols: Vec<String>,
    /// Condition of each symbol; every row matches a symbol without one.
    pub(super) conditions: Vec<Option<Computed>>,
    pub(super) measures: Vec<Computed>,
    pub(super) slots: Vec<Slot>,
    pub(super) slot_schema: DFSchemaRef,
    pub(super) skip: Skip,
    pub(super) answers: Answers,
    /// Maximum length of a match, in nanoseconds of the first sort key.
    pub(super) within: Option<i64>,
    /// Number of output columns before the measures.
    pub(super) before: usize,
}

impl PatternSpec {
    /// Expressions over slots with parameters, part of the plan until the parameters have values.
    fn with_parameters(&self) -> impl Iterator<Item = &Expr> {
        let conditions = self.conditions.iter().flatten();
        let all = conditions.chain(&self.measures).map(|all| &all.expr);
        all.filter(|expr| has_parameter(expr))
    }

    /// The pattern with these expressions in place of those with parameters.
    fn with_values(&self, given: Vec<Expr>) -> PatternSpec {
        let mut spec = self.clone();
        let mut given = given.into_iter();
        let conditions = spec.conditions.iter_mut().flatten();
        for computed in conditions.chain(&mut spec.measures) {
            if has_parameter(&computed.expr)
                && let Some(expr) = given.next()
            {
                computed.expr = expr;
            }
        }
        spec
    }

    /// Numbers of rows before and after a match that the expressions need.
    pub(super) fn rows_around(&self) -> (usize, usize) {
        let shifts = self.slots.iter().map(|slot| match slot {
            Slot::Value { shift, .. } => *shift,
            _ => 0,
        });
        let rows = |shift: i64| usize::try_from(shift).unwrap_or(usize::MAX);
        let (mut before, mut behind) = (0, 0);
        for shift in shifts {
            before = before.max(rows(shift.saturating_neg().max(0)));
            behind = behind.max(rows(shift.max(0)));
        }
        (before, behind)
    }
}

fn has_parameter(expr: &Expr) -> bool {
    // The closure never fails.
    expr.exists(|part| Ok(matches!(part, Expr::Placeholder(_))))
        .unwrap_or(false)
}

/// The node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    pub(super) input: Arc<LogicalPlan>,
    pub(super) schema: DFSchemaRef,
    pub(super) partition: Vec<Expr>,
    pub(super) order: Vec<SortExpr>,
    /// Expressions over each row.
    pub(super) rows: Vec<Expr>,
    /// The output columns of the input.
    pub(super) output_columns: Vec<Expr>,
    pub(super) spec: Arc<PatternSpec>,
    /// The beginning of the search for a watch, and the positions that it reports.
    pub(super) tracked: Option<Tracked>,
}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, _: &Pattern) -> Option<Ordering> {
        None
    }
}

impl UserDefinedLogicalNodeCore for Pattern {
    fn name(&self) -> &str {
        "MatchRecognize"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let order = self.order.iter().map(|sort| &sort.expr);
        let all = self
            .partition
            .iter()
            .chain(order)
            .chain(&self.rows)
            .chain(&self.output_columns)
            .chain(self.spec.with_parameters());
        all.cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbols = self.spec.symbols.join(", ");
        write!(f, "MatchRecognize: symbols=[{symbols}]")
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Pattern> {
        let counts = [
            self.partition.len(),
            self.order.len(),
            self.rows.len(),
            self.output_columns.len(),
            self.spec.with_parameters().count(),
        ];
        let (Some(input), true) = (inputs.pop(), exprs.len() == counts.iter().sum::<usize>())
        else {
            return internal_err!("MATCH_RECOGNIZE without its parts");
        };
        let mut exprs = exprs.into_iter();
        let mut next = |count: usize| exprs.by_ref().take(count).collect::<Vec<Expr>>();
        let partition = next(self.partition.len());
        let order = next(self.order.len()).into_iter().zip(&self.order);
        let order = order.map(|(expr, sort)| SortExpr {
            expr,
            ..sort.clone()
        });
        let order = order.collect();
        let (rows, output_columns) = (next(self.rows.len()), next(self.output_columns.len()));
        let spec = match next(self.spec.with_parameters().count()) {
            none if none.is_empty() => Arc::clone(&self.spec),
            given => Arc::new(self.spec.with_values(given)),
        };
        Ok(Pattern {
            input: Arc::new(input),
            schema: Arc::clone(&self.schema),
            partition,
            order,
            rows,
            output_columns,
            spec,
            tracked: self.tracked.clone(),
        })
    }

    fn necessary_children_exprs(&self, _: &[usize]) -> Option<Vec<Vec<usize>>> {
        let mut needed = BTreeSet::new();
        for expr in self.expressions() {
            for column in expr.column_refs() {
                needed.insert(self.input.schema().maybe_index_of_column(column)?);
            }
        }
        Some(vec![needed.into_iter().collect()])
    }
}
