//! Keeps several value lists for one column in one condition separate.
//!
//! The SQL library merges two lists into one: `x IN (1, 2) AND x IN (3)` becomes `false`, and `x
//! NOT IN (1) OR x NOT IN (2)` becomes `true`. That is wrong for rows where `x` is NULL, for which
//! both are unknown, and for values that are equal but written differently. Lists that it would
//! merge are changed to have different operands.
//!
//! Invariants: the meaning of a condition, and names and types of columns, are unchanged.
//! Conjunctions in a filter, of constants without NULL, may be merged: there, unknown and false are
//! equivalent.

use crate::functions::numbers::apart;
use crate::rules::keep_names::{has_part, map_expressions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::collections::BTreeSet;

/// The rule; runs before each simplification by the SQL library.
#[derive(Debug)]
pub(crate) struct ListsApart;

impl OptimizerRule for ListsApart {
    fn name(&self) -> &str {
        "lists_apart"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !has_part(&plan, may_join)? {
            return Ok(Transformed::no(plan));
        }
        let is_filter = matches!(plan, LogicalPlan::Filter(_));
        map_expressions(plan, &mut |expr| lists_apart(expr, is_filter))
    }
}

/// The expression with separate lists; `takes_rows` = a row is selected only if it is true.
pub(crate) fn lists_apart(expr: Expr, takes_rows: bool) -> Result<Transformed<Expr>> {
    let mut numbers = 0;
    match &expr {
        Expr::BinaryExpr(binary) if binary.op == Operator::And => {
            chain(expr, Operator::And, takes_rows, &mut numbers)
        }
        _ => within(expr, &mut numbers),
    }
}

/// Whether an expression may have two lists, judged without its context.
fn may_join(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(binary) => binary.op == Operator::Or,
        expr => matches!(expr, Expr::InList(_)),
    }
}

fn within(expr: Expr, numbers: &mut i64) -> Result<Transformed<Expr>> {
    expr.transform_down(|part| match &part {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
            let op = binary.op;
            let made = chain(part, op, false, numbers)?;
            Ok(Transformed::new(
                made.data,
                made.transformed,
                TreeNodeRecursion::Jump,
            ))
        }
        _ => Ok(Transformed::no(part)),
    })
}

/// Operands of one operator.
fn chain(
    expr: Expr,
    op: Operator,
    takes_rows: bool,
    numbers: &mut i64,
) -> Result<Transformed<Expr>> {
    let mut changed = false;
    let mut conditions = Vec::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for condition in operands(expr, op) {
        let condition = within(condition, numbers)?;
        changed |= condition.transformed;
        let looked = Looked::of(&condition.data, op)?;
        // Alternatives are a single list, as long as none of them is negated.
        let joins = match op {
            Operator::Or => !looked.negates,
            _ => takes_rows && is_plain(&condition.data),
        };
        if joins {
            taken.extend(looked.columns.iter().cloned());
        }
        conditions.push((condition.data, looked.columns, joins));
    }
    let mut made: Option<Expr> = None;
    for (mut condition, columns, joins) in conditions {
        if !joins {
            let shared: BTreeSet<String> = columns.intersection(&taken).cloned().collect();
            if !shared.is_empty() {
                *numbers += 1;
                condition = separate_lists(condition, &shared, *numbers)?;
                changed = true;
            }
            taken.extend(columns);
        }
        made = Some(match made {
            None => condition,
            Some(left) => {
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(condition)))
            }
        });
    }
    let made = made.unwrap_or_else(|| lit(op == Operator::And));
    Ok(Transformed::new(made, changed, TreeNodeRecursion::Continue))
}

/// The operands of a chain, in order.
fn operands(expr: Expr, op: Operator) -> Vec<Expr> {
    let mut open = vec![expr];
    let mut out = Vec::new();
    while let Some(next) = open.pop() {
        match next {
            Expr::BinaryExpr(binary) if binary.op == op => {
                open.push(*binary.right);
                open.push(*binary.left);
            }
            other => out.push(other),
        }
    }
    out
}

/// Columns that a condition compares with lists.
#[derive(Default)]
struct Looked {
    columns: BTreeSet<String>,
    /// True if a part negates another part.
    negates: bool,
}

impl Looked {
    /// Columns of an operand of an operator.
    fn of(condition: &Expr, op: Operator) -> Result<Looked> {
        let mut looked = Looked::default();
        // A single value becomes a list only as an alternative to others.
        if op == Operator::And && column_of(condition).is_some() {
            return Ok(looked);
        }
        condition.apply(|part| {
            let column = match part {
                Expr::InList(list) => {
                    looked.negates |= list.negated;
                    Some(&*list.expr)
                }
                Expr::Not(_) => {
                    looked.negates = true;
                    None
                }
                part => column_of(part),
            };
            looked.columns.extend(column.map(ToString::to_string));
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(looked)
    }
}

/// The column of `x = 1` and of `1 = x`.
fn column_of(condition: &Expr) -> Option<&Expr> {
    let Expr::BinaryExpr(binary) = condition else {
        return None;
    };
    match (&*binary.left, &*binary.right) {
        _ if binary.op != Operator::Eq => None,
        (column @ Expr::Column(_), Expr::Literal(..))
        | (Expr::Literal(..), column @ Expr::Column(_)) => Some(column),
        _ => None,
    }
}

/// Whether an item of a list is a constant that is equal only to itself.
fn is_constant(item: &Expr) -> bool {
    match item {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => *value != 0.0 && !value.is_nan(),
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => *value != 0.0 && !value.is_nan(),
        Expr::Literal(value, _) => !value.is_null(),
        _ => false,
    }
}

/// Whether a condition is a list of constants without NULL.
fn is_plain(condition: &Expr) -> bool {
    match condition {
        Expr::InList(list) => list.list.iter().all(is_constant),
        Expr::BinaryExpr(binary) if binary.op == Operator::Or => {
            let mut open = vec![&*binary.left, &*binary.right];
            while let Some(next) = open.pop() {
                match next {
                    Expr::BinaryExpr(binary) if binary.op == Operator::Or => {
                        open.extend([&*binary.left, &*binary.right]);
                    }
                    Expr::InList(list) if !list.negated && list.list.iter().all(is_constant) => {}
                    Expr::BinaryExpr(binary) if column_of(next).is_some() => {
                        let sides = [&binary.left, &binary.right];
                        if !sides.into_iter().any(|side| is_constant(side)) {
                            return false;
                        }
                    }
                    _ => return false,
                }
            }
            true
        }
        _ => false,
    }
}

/// The condition with its own list operands.
fn separate_lists(condition: Expr, shared: &BTreeSet<String>, number: i64) -> Result<Expr> {
    let is_shared = |expr: &Expr| shared.contains(&expr.to_string());
    let own = |expr: Box<Expr>| Box::new(apart(*expr, lit(number)));
    let made = condition.transform_down(|part| {
        let value_of = column_of(&part).is_some_and(is_shared);
        let made = match part {
            Expr::InList(list) if is_shared(&list.expr) => Expr::InList(InList {
                expr: own(list.expr),
                ..list
            }),
            Expr::BinaryExpr(binary) if value_of => {
                let side = |side: Box<Expr>| match &*side {
                    Expr::Column(_) => own(side),
                    _ => side,
                };
                let (left, right) = (side(binary.left), side(binary.right));
                Expr::BinaryExpr(BinaryExpr::new(left, binary.op, right))
            }
            other => return Ok(Transformed::no(other)),
        };
        Ok(Transformed::new(made, true, TreeNodeRecursion::Jump))
    })?;
    Ok(made.data)
}
