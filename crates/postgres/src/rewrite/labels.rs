//! The names of a result's columns.
//!
//! PostgreSQL names a column after its function or source column, and allows equal names; the
//! planner names it by its whole text, and requires distinct names.

use datafusion::sql::sqlparser::ast::{Ident, SelectItem, SetExpr, Statement};
use headwater_query::{column_name, first_select};
use std::collections::BTreeMap;

/// PostgreSQL's names of the columns; `None` where the planner's names are the same.
pub(super) fn of(statement: &Statement) -> Option<Vec<Option<String>>> {
    let Statement::Query(query) = statement else {
        return None;
    };
    let select = first_select(query)?;
    select
        .projection
        .iter()
        .map(|item| match item {
            SelectItem::UnnamedExpr(expr) => Some(Some(column_name(expr))),
            SelectItem::ExprWithAlias { .. } => Some(None),
            _ => None,
        })
        .collect()
}

/// Sets distinct names for unnamed columns that occur more than once in a query.
pub(super) fn distinguish(statement: &mut Statement) -> bool {
    let Statement::Query(query) = statement else {
        return false;
    };
    let SetExpr::Select(select) = query.body.as_mut() else {
        return false;
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let key = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => Some(expr.to_string()),
        _ => None,
    };
    for text in select.projection.iter().filter_map(key) {
        *counts.entry(text).or_default() += 1;
    }
    let mut changed = false;
    for (index, item) in select.projection.iter_mut().enumerate() {
        if key(item).is_none_or(|text| counts.get(&text).is_none_or(|count| *count < 2)) {
            continue;
        }
        if let SelectItem::UnnamedExpr(expr) = item {
            *item = SelectItem::ExprWithAlias {
                alias: Ident::with_quote('"', format!("{} {}", column_name(expr), index + 1)),
                expr: expr.clone(),
            };
            changed = true;
        }
    }
    changed
}
