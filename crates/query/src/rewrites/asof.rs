//! `ASOF JOIN`: supported by the parser, but not by the planner. The join becomes a plain one whose
//! condition marks the comparison that finds the nearest row; a rule converts it into a node.

use super::call;
use crate::error::{Error, Result};
use crate::syntax::{INNER, LEFT};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, Spanned, TableWithJoins,
};

/// The function that marks the comparison.
pub(crate) const NEAREST: &str = "asof_nearest";

/// Rewrites the joins of an item of `FROM`.
pub(super) fn joins(from: &mut TableWithJoins) -> Result<()> {
    for join in &mut from.joins {
        if let JoinOperator::AsOf {
            match_condition,
            constraint,
        } = &join.join_operator
        {
            join.join_operator = join_of(match_condition, constraint)?;
        }
    }
    Ok(())
}

fn wrong(message: &str, at: &Expr) -> Error {
    let start = at.span().start;
    let number = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
    Error::unsupported(message.to_owned())
        .with_hint("ASOF JOIN b ON a.id = b.id AND a.time >= b.time")
        .located(number(start.line).zip(number(start.column)))
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    }
}

fn join_of(matched: &Expr, constraint: &JoinConstraint) -> Result<JoinOperator> {
    let condition = match constraint {
        JoinConstraint::On(condition) => Some(condition),
        JoinConstraint::None => None,
        _ => {
            return Err(wrong(
                "ASOF JOIN with USING or NATURAL is not supported",
                matched,
            ));
        }
    };
    let own = match matched {
        Expr::Identifier(ident) if ident.value == INNER || ident.value == LEFT => Some(ident),
        _ => None,
    };
    let Some(kind) = own else {
        // Snowflake's form: the comparison is separate, and rows without a match stay.
        if !is_comparison(matched) {
            return Err(wrong(
                "MATCH_CONDITION must be one comparison by >=, >, <= or <",
                matched,
            ));
        }
        let mut all = call(NEAREST, vec![matched.clone()]);
        if let Some(condition) = condition {
            all = and(all, Expr::Nested(Box::new(condition.clone())));
        }
        return Ok(JoinOperator::LeftOuter(JoinConstraint::On(all)));
    };
    let Some(condition) = condition else {
        return Err(wrong("ASOF JOIN without a condition", matched));
    };
    let mut parts = Vec::new();
    super::lateral::conjuncts(condition, &mut parts);
    let (compared, mut equal): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(is_comparison);
    let [compared] = compared.as_slice() else {
        return Err(wrong(
            "ASOF JOIN needs exactly one comparison by >=, >, <= or <",
            condition,
        ));
    };
    let mut all = call(NEAREST, vec![compared.clone()]);
    while let Some(part) = equal.pop() {
        all = and(all, part);
    }
    let all = JoinConstraint::On(all);
    Ok(match kind.value == LEFT {
        true => JoinOperator::LeftOuter(all),
        false => JoinOperator::Inner(all),
    })
}

fn is_comparison(expr: &Expr) -> bool {
    use BinaryOperator::{Gt, GtEq, Lt, LtEq};
    match expr {
        Expr::BinaryOp { op, .. } => matches!(op, Gt | GtEq | Lt | LtEq),
        Expr::Nested(inner) => is_comparison(inner),
        _ => false,
    }
}
