//! Subqueries over tables that never have rows: what they give is known without running them.
//!
//! The planner takes few correlated subqueries, and tools write many over such tables.

use crate::postgres::columns;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, JoinOperator, Query, Select, SelectItem, SetExpr,
    TableFactor, TableWithJoins, Value,
};

/// What an expression always gives because it asks an empty table, if that is so.
pub(super) fn instead_of(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Subquery(query) if gives_no_row(query) => Some(Expr::Value(Value::Null.into())),
        Expr::Exists { subquery, negated } if gives_no_row(subquery) => {
            Some(Expr::Value(Value::Boolean(*negated).into()))
        }
        Expr::Function(function) => match (&function.args, super::catalog_name(&function.name)) {
            (FunctionArguments::Subquery(query), Some(name))
                if name == "array" && gives_no_row(query) =>
            {
                Some(Expr::Array(datafusion::sql::sqlparser::ast::Array {
                    elem: Vec::new(),
                    named: true,
                }))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether a query never has a row: it takes from an empty table, and does not aggregate.
fn gives_no_row(query: &Query) -> bool {
    if query.with.is_some() {
        return false;
    }
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    takes_from_nothing(&select.from) && !may_aggregate(select)
}

fn takes_from_nothing(from: &[TableWithJoins]) -> bool {
    from.iter().any(|tables| {
        is_empty(&tables.relation)
            && tables
                .joins
                .iter()
                .all(|join| keeps_left(&join.join_operator))
            || tables.joins.iter().any(|join| {
                matches!(
                    join.join_operator,
                    JoinOperator::Join(_) | JoinOperator::Inner(_)
                ) && is_empty(&join.relation)
                    && tables
                        .joins
                        .iter()
                        .all(|join| keeps_left(&join.join_operator))
            })
    })
}

/// Whether a join has no rows when there are none at its left.
fn keeps_left(join: &JoinOperator) -> bool {
    matches!(
        join,
        JoinOperator::Join(_)
            | JoinOperator::Inner(_)
            | JoinOperator::Left(_)
            | JoinOperator::LeftOuter(_)
            | JoinOperator::CrossJoin(_)
    )
}

fn is_empty(factor: &TableFactor) -> bool {
    let TableFactor::Table {
        name, args: None, ..
    } = factor
    else {
        return false;
    };
    let qualified = name.0.len() == 2;
    super::catalog_name(name)
        .filter(|name| qualified || name.starts_with("pg_"))
        .and_then(|name| columns::find(None, &name))
        .is_some_and(|(_, table)| table.empty)
}

/// Whether a row comes out although none goes in. Functions that are none of the catalog may aggregate.
fn may_aggregate(select: &Select) -> bool {
    let grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    };
    !grouped
        && select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                let mut found = false;
                let _ = datafusion::sql::sqlparser::ast::visit_expressions(expr, |part| {
                    if let Expr::Function(function) = part {
                        let name = function.name.to_string().to_lowercase();
                        found |= !name.contains("pg_")
                            && !name.contains("format_type")
                            && !name.contains("quote_");
                    }
                    std::ops::ControlFlow::<()>::Continue(())
                });
                found
            }
            _ => false,
        })
}
