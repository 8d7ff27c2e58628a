//! `ORDER BY` without duplicate keys, and with column numbers replaced by their expressions.
//!
//! A repeated key does not affect the order, but the SQL library treats it as different: it panics
//! if a query has `DISTINCT ON` too. The library treats a number that refers to an expression of
//! aggregates (`round(avg(x))`) as a column that is not in `GROUP BY`.

use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value,
    VisitMut, VisitorMut, visit_expressions,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Removes duplicate keys, and replaces numbers of columns by expressions of aggregates.
pub(super) fn plain_keys(statement: &mut Parse) {
    let parsed = match statement {
        Parse::Statement(parsed) => parsed,
        Parse::Explain(explain) => return plain_keys(&mut explain.statement),
        _ => return,
    };
    // The visitor never stops early.
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
            // A random key has a different value each time.
            keys.retain(|key| {
                matches!(key.expr, Expr::Function(_)) || known.insert(key.expr.clone())
            });
        }
        ControlFlow::Continue(())
    }
}

/// The expression of a column number, if it is computed from aggregates.
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
        // A wildcard has any number of columns, with any names.
        _ => true,
    };
    if select.distinct.is_some() && !is_grouped(select) {
        // The library resolves this column correctly.
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

/// Whether an expression may differ between two uses, or has a subquery or a window.
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
