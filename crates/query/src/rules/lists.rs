//! Lists of values of one column in one condition, kept apart.
//!
//! The SQL library makes one list of two: `x IN (1, 2) AND x IN (3)` becomes `false`, and
//! `x NOT IN (1) OR x NOT IN (2)` becomes `true`. That forgets rows where `x` is NULL, for which
//! neither is known, and values that are the same without being written the same. Lists that it
//! would take for one are given something of their own to look in.
//!
//! Invariants: what a condition is stays, and so do names and types of columns. Conditions that
//! hold together for a row to be taken, of constants without NULL, are no worse for becoming one:
//! there, not known is as good as not.

use crate::functions::numbers::apart;
use crate::rules::keep_names::{has_part, map_expressions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::collections::BTreeSet;

/// The rule; before each time that the SQL library simplifies.
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

/// The expression with its lists apart; `takes_rows` = a row is taken where it is true.
pub(crate) fn lists_apart(expr: Expr, takes_rows: bool) -> Result<Transformed<Expr>> {
    let mut numbers = 0;
    match &expr {
        Expr::BinaryExpr(binary) if binary.op == Operator::And => {
            chain(expr, Operator::And, takes_rows, &mut numbers)
        }
        _ => within(expr, &mut numbers),
    }
}

/// Whether an expression may have two lists, as far as it shows by itself.
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

/// Conditions that one operator joins.
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
        // Values of which any may be met are one list, as long as none is the opposite of one.
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
                condition = put_apart(condition, &shared, *numbers)?;
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

/// The conditions of a chain, in their order.
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
    /// Something in it is the opposite of something else.
    negates: bool,
}

impl Looked {
    /// Of a condition that an operator joins with others.
    fn of(condition: &Expr, op: Operator) -> Result<Looked> {
        let mut looked = Looked::default();
        // One value becomes a list only where it is an alternative to others.
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

/// Whether an item of a list is a constant that is the same only as itself.
fn is_constant(item: &Expr) -> bool {
    match item {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => *value != 0.0 && !value.is_nan(),
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => *value != 0.0 && !value.is_nan(),
        Expr::Literal(value, _) => !value.is_null(),
        _ => false,
    }
}

/// Whether a condition is a list of constants, none of them NULL.
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

/// The condition with lists of its own.
fn put_apart(condition: Expr, shared: &BTreeSet<String>, number: i64) -> Result<Expr> {
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
