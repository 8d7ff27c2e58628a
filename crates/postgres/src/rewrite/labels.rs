//! The names of a result's columns.
//!
//! PostgreSQL calls a column by the function or column it is made of, and lets two have the same
//! name; the planner calls it by its whole text, and does not.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Ident, Query, Select, SelectItem, SetExpr, Statement,
};
use std::collections::BTreeMap;

/// The names PostgreSQL would give; `None` where the planner's are the same.
pub(super) fn of(statement: &Statement) -> Option<Vec<Option<String>>> {
    let Statement::Query(query) = statement else {
        return None;
    };
    let select = select(query)?;
    select
        .projection
        .iter()
        .map(|item| match item {
            SelectItem::UnnamedExpr(expr) => Some(Some(name(expr))),
            SelectItem::ExprWithAlias { .. } => Some(None),
            _ => None,
        })
        .collect()
}

/// Gives columns without a name, of which another one of the same query is the same, names of their
/// own.
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
                alias: Ident::with_quote('"', format!("{} {}", name(expr), index + 1)),
                expr: expr.clone(),
            };
            changed = true;
        }
    }
    changed
}

/// The select whose columns are the result's.
fn select(query: &Query) -> Option<&Select> {
    let mut body = query.body.as_ref();
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(query) => query.body.as_ref(),
            SetExpr::SetOperation { left, .. } => left,
            _ => return None,
        };
    }
}

fn name(expr: &Expr) -> String {
    found(expr).unwrap_or_else(|| "?column?".to_owned())
}

fn found(expr: &Expr) -> Option<String> {
    Some(match expr {
        Expr::Identifier(ident) => super::small(ident),
        Expr::CompoundIdentifier(parts) => super::small(parts.last()?),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => found(inner)?,
        Expr::Cast {
            expr: inner,
            data_type,
            ..
        } => found(inner).unwrap_or_else(|| {
            let text = data_type.to_string().to_lowercase();
            let last = text.rsplit('.').next().unwrap_or_default();
            match last {
                "int" | "integer" => "int4",
                "bigint" => "int8",
                "smallint" => "int2",
                "boolean" => "bool",
                "double precision" | "double" => "float8",
                "real" => "float4",
                other => other,
            }
            .to_owned()
        }),
        Expr::Function(function) => super::small(function.name.0.last()?.as_ident()?),
        Expr::Case { .. } => "case".to_owned(),
        Expr::Extract { .. } => "extract".to_owned(),
        Expr::AtTimeZone { .. } => "timezone".to_owned(),
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Array(_) => "array".to_owned(),
        Expr::Interval(_) => "interval".to_owned(),
        Expr::Ceil { .. } => "ceil".to_owned(),
        Expr::Floor { .. } => "floor".to_owned(),
        Expr::Substring { .. } => "substring".to_owned(),
        Expr::Position { .. } => "position".to_owned(),
        Expr::Trim { .. } => "btrim".to_owned(),
        Expr::TypedString(typed) => typed.data_type.to_string().to_lowercase(),
        Expr::Subquery(query) => match select(query)?.projection.first()? {
            SelectItem::UnnamedExpr(expr) => found(expr)?,
            SelectItem::ExprWithAlias { alias, .. } => super::small(alias),
            _ => return None,
        },
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last()? {
            AccessExpr::Dot(Expr::Identifier(ident)) => super::small(ident),
            _ => found(root)?,
        },
        _ => return None,
    })
}
