//! `ORDER BY` with each key once, and with the expressions that its numbers mean.
//!
//! A repeated key orders nothing any more, and the SQL library takes it for another one: it panics
//! where a query has `DISTINCT ON` too. The library takes a number that refers to an expression of
//! aggregates (`round(avg(x))`) for a column that is not in `GROUP BY`.

use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value,
    VisitMut, VisitorMut, visit_expressions,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Takes keys away that come again, and writes for numbers of columns what aggregates give.
pub(super) fn plain_keys(statement: &mut Parse) {
    let parsed = match statement {
        Parse::Statement(parsed) => parsed,
        Parse::Explain(explain) => return plain_keys(&mut explain.statement),
        _ => return,
    };
    // It never breaks off.
    let _ = parsed.visit(&mut Keys);
}

struct Keys;

impl VisitorMut for Keys {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            if let SetExpr::Select(select) = &*query.body {
                for key in keys.iter_mut() {
                    if let Some(computed) = computed(&key.expr, select) {
                        key.expr = computed.clone();
                    }
                }
            }
            let mut known: HashSet<Expr> = HashSet::new();
            // A random key is another value each time.
            keys.retain(|key| {
                matches!(key.expr, Expr::Function(_)) || known.insert(key.expr.clone())
            });
        }
        ControlFlow::Continue(())
    }
}

/// The expression that the number of a column refers to, if it is computed of aggregates.
fn computed<'a>(key: &Expr, select: &'a Select) -> Option<&'a Expr> {
    let at = number(key)?.checked_sub(1)?;
    let SelectItem::UnnamedExpr(expr) = select.projection.get(at)? else {
        return None;
    };
    let names = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => has(
            expr,
            |part| matches!(part, Expr::Identifier(name) if name.value == alias.value),
        ),
        SelectItem::UnnamedExpr(_) => false,
        // It stands for any number of columns, of any names.
        _ => true,
    };
    if select.distinct.is_some() && !is_grouped(select) {
        // The library looks for the very column.
        return None;
    }
    let is_key = match &select.group_by {
        GroupByExpr::All(_) => false,
        GroupByExpr::Expressions(keys, _) => keys
            .iter()
            .any(|key| key == expr || number(key) == Some(at + 1)),
    };
    let is_computed = match expr {
        Expr::Function(function) => {
            let outer = Expr::Function(function.clone());
            has(expr, |part| {
                matches!(part, Expr::Function(_)) && *part != outer
            })
        }
        _ => has(expr, |part| matches!(part, Expr::Function(_))),
    };
    let stays = is_key || !is_computed || select.projection.iter().any(names);
    (!stays && !has(expr, is_of_its_own)).then_some(expr)
}

fn is_grouped(select: &Select) -> bool {
    match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    }
}

/// The number of a column.
fn number(key: &Expr) -> Option<usize> {
    match key {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Whether it may have another value where it is written a second time, or stands for rows.
fn is_of_its_own(part: &Expr) -> bool {
    match part {
        Expr::Function(function) => {
            let has_none = match &function.args {
                FunctionArguments::None => true,
                FunctionArguments::Subquery(_) => true,
                FunctionArguments::List(list) => list.args.is_empty(),
            };
            has_none || function.over.is_some()
        }
        part => matches!(
            part,
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. }
        ),
    }
}

fn has(expr: &Expr, wanted: impl Fn(&Expr) -> bool) -> bool {
    let found = visit_expressions(expr, |part| match wanted(part) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    found.is_break()
}
