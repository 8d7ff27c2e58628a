//! Queries over tables that never have rows: their results are determined without running them.
//!
//! The planner accepts few correlated subqueries, and tools write many over such tables.

use super::catalog_name;
use crate::catalog::columns;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, Ident, JoinOperator, Query, Select, SelectItem, SetExpr, TableFactor,
    TableWithJoins, Value, Visit, Visitor, visit_expressions,
};
use headwater_query::is_aggregate;
use std::ops::ControlFlow;

/// Aggregates of PostgreSQL that SQL here does not have: over no rows they return one all the same.
const ONLY_POSTGRES: [&str; 4] = ["every", "json_agg", "jsonb_agg", "variance"];

/// The constant value of an expression that reads an empty table, if it is constant.
pub(super) fn instead_of(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Subquery(query) if is_always_empty(query) => Some(Expr::Value(Value::Null.into())),
        Expr::Exists { subquery, negated } if is_always_empty(subquery) => {
            Some(Expr::Value(Value::Boolean(*negated).into()))
        }
        Expr::Function(function) => match (&function.args, catalog_name(&function.name)) {
            (FunctionArguments::Subquery(query), Some(name))
                if name == "array" && is_always_empty(query) =>
            {
                super::expression_of("CAST(make_array() AS TEXT[])")
            }
            _ => None,
        },
        _ => None,
    }
}

/// Simplifies a query without rows: removes its condition, and replaces its complex columns. True
/// when the query was one.
pub(super) fn simplify(select: &mut Select) -> bool {
    if !reads_empty_table(&select.from) || aggregates(select) {
        return false;
    }
    select.selection = Some(Expr::Value(Value::Boolean(false).into()));
    for (index, item) in select.projection.iter_mut().enumerate() {
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.clone())),
            _ => continue,
        };
        // Literals stay: their type is determined by the other side of the union.
        let (made, name) = if matches!(expr, Expr::Value(_)) {
            (expr.clone(), format!("?column? {}", index + 1))
        } else if is_hard(expr) {
            (no_value(expr), headwater_query::column_name(expr))
        } else {
            continue;
        };
        *item = SelectItem::ExprWithAlias {
            expr: made,
            alias: alias.unwrap_or_else(|| Ident::with_quote('"', name)),
        };
    }
    true
}

/// `NULL` instead of an expression, with the expression's type if it is explicit: a column without
/// rows adopts the type of the other side of the union.
fn no_value(expr: &Expr) -> Expr {
    let null = || Box::new(Expr::Value(Value::Null.into()));
    match expr {
        Expr::Nested(inner) => no_value(inner),
        Expr::Cast {
            kind,
            data_type,
            array,
            ..
        } => Expr::Cast {
            kind: kind.clone(),
            expr: null(),
            data_type: data_type.clone(),
            array: *array,
            format: None,
        },
        Expr::Exists { .. } | Expr::InSubquery { .. } | Expr::AnyOp { .. } | Expr::AllOp { .. } => {
            Expr::Cast {
                kind: CastKind::Cast,
                expr: null(),
                data_type: DataType::Boolean,
                array: false,
                format: None,
            }
        }
        _ => *null(),
    }
}

/// True when a query never has a row: it reads an empty table, and does not aggregate.
fn is_always_empty(query: &Query) -> bool {
    if query.with.is_some() {
        return false;
    }
    match query.body.as_ref() {
        SetExpr::Select(select) => reads_empty_table(&select.from) && !aggregates(select),
        _ => false,
    }
}

fn reads_empty_table(from: &[TableWithJoins]) -> bool {
    from.iter().any(|tables| {
        let inner = tables.joins.iter().any(|join| {
            matches!(
                join.join_operator,
                JoinOperator::Join(_) | JoinOperator::Inner(_)
            ) && is_empty(&join.relation)
        });
        (inner || is_empty(&tables.relation))
            && tables
                .joins
                .iter()
                .all(|join| keeps_left(&join.join_operator))
    })
}

/// True when a join has no rows if its left side has none.
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
    let (name, args) = match factor {
        TableFactor::Table {
            name, args: None, ..
        } => (name, None),
        TableFactor::Table {
            name,
            args: Some(args),
            ..
        } => (name, Some(&args.args)),
        TableFactor::Function { name, args, .. } => (name, Some(args)),
        _ => return false,
    };
    let qualified = name.0.len() == 2;
    let Some(called) = catalog_name(name) else {
        return false;
    };
    match args {
        None => {
            // Without a schema it may be a table of the user, whose names seldom begin with `pg_`.
            (qualified || called.starts_with("pg_"))
                && columns::find(None, &called).is_some_and(|(_, table)| table.empty)
        }
        // Rights and options, which do not exist here: their columns are always null.
        Some(args) => {
            qualified
                && called == "unnest"
                && args.iter().all(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => is_unset(expr),
                    _ => false,
                })
        }
    }
}

fn is_unset(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(parts) => match parts.last() {
            Some(name) => name,
            None => return false,
        },
        _ => return false,
    };
    ["acl", "options", "evttags", "rolconfig"]
        .iter()
        .any(|end| name.value.ends_with(end))
}

/// True when a query returns a row without input rows.
pub(super) fn aggregates(select: &Select) -> bool {
    let grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    };
    !grouped
        && select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                let found = expr.visit(&mut Aggregates { depth: 0 });
                found.is_break()
            }
            _ => false,
        })
}

/// Looks for a function that aggregates, outside of subqueries.
struct Aggregates {
    depth: u32,
}

impl Visitor for Aggregates {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function)
                if self.depth == 0
                    && function.over.is_none()
                    && catalog_name(&function.name).is_some_and(|name| {
                        is_aggregate(&name) || ONLY_POSTGRES.contains(&name.as_str())
                    }) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// True when the planner may not accept an expression: it contains a query, a choice, a comparison
/// with the elements of an array or an unknown function.
fn is_hard(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Subquery(_)
        | Expr::InSubquery { .. }
        | Expr::Exists { .. }
        | Expr::Case { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. } => ControlFlow::Break(()),
        Expr::Function(function)
            if matches!(function.args, FunctionArguments::Subquery(_))
                || catalog_name(&function.name).is_some_and(|name| name == "format") =>
        {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Removes the branches of a `CASE` for types that do not exist here: domains, composite types,
/// enumerations and ranges. Drivers look up the parts of these types with queries that the planner
/// does not accept.
pub(super) fn without_rare_types(case: &mut Expr) -> bool {
    let Expr::Case { conditions, .. } = case else {
        return false;
    };
    let is_kind = |side: &Expr| match side {
        Expr::Identifier(name) => super::small(name) == "typtype",
        Expr::CompoundIdentifier(parts) => parts
            .last()
            .is_some_and(|name| super::small(name) == "typtype"),
        _ => false,
    };
    let is_rare = |side: &Expr| match side {
        Expr::Value(value) => matches!(
            &value.value,
            Value::SingleQuotedString(kind) if ["d", "c", "e", "r", "m"].contains(&kind.as_str())
        ),
        _ => false,
    };
    let mut changed = false;
    for when in conditions {
        let never = match &when.condition {
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Eq,
                right,
            } => is_kind(left) && is_rare(right),
            _ => false,
        };
        if never && is_hard(&when.result) {
            when.result = Expr::Value(Value::Null.into());
            changed = true;
        }
    }
    changed
}

/// True when a query reads one value from tables of the catalog, from at most one row, and is not
/// yet in the form that the planner accepts for a query that depends on its outer query.
pub(super) fn may_be_aggregated(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let of_catalog = |factor: &TableFactor| match factor {
        TableFactor::Table {
            name, args: None, ..
        } => {
            name.0.len() == 2 && catalog_name(name).is_some()
                || catalog_name(name).is_some_and(|name| name.starts_with("pg_"))
        }
        _ => false,
    };
    let plain = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && plain
        && select.having.is_none()
        && select.distinct.is_none()
        && select.projection.len() == 1
        && !select.from.is_empty()
        && select.from.iter().all(|tables| {
            of_catalog(&tables.relation)
                && tables.joins.iter().all(|join| of_catalog(&join.relation))
        })
        && !aggregates(select)
}
