//! Top rows of a table for each row of another: `LATERAL (SELECT … ORDER BY … LIMIT n)`, and
//! `(SELECT x … ORDER BY … LIMIT 1)` as a value.
//!
//! The SQL library converts such queries to joins, without a limit for each row. If they are
//! correlated by equality of columns, the rows of each group are numbered in the requested order,
//! or their first value is computed, and the join uses the number.
//!
//! Invariant: a query with any unsupported part is unchanged.

use super::called::folded;
use super::{call, value};
use crate::aggregates::is_aggregate;
use crate::rewrites::lookups::{binary, empty_query, empty_select};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, FunctionArgumentClause, FunctionArguments,
    GroupByExpr, Ident, LimitClause, ObjectName, ObjectNamePart, OrderByExpr, OrderByKind, Query,
    Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Value,
    WildcardAdditionalOptions, WindowSpec, WindowType, visit_expressions,
};
use std::ops::ControlFlow;

/// The column that numbers rows; a typed name cannot contain this character.
const NUMBER: &str = "row\u{1}number";

/// A query over one table, correlated by equal columns.
struct Belonging {
    /// Name of the table within the query.
    name: String,
    /// Columns of the table that are equal to outer expressions.
    keys: Vec<Expr>,
    /// These equality conditions, and then the other conditions.
    to_others: Vec<Expr>,
    own: Vec<Expr>,
    order: Vec<OrderByExpr>,
    limit: Option<Expr>,
}

/// The operands of a conjunction.
pub(super) fn conjuncts(condition: &Expr, out: &mut Vec<Expr>) {
    match condition {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            conjuncts(left, out);
            conjuncts(right, out);
        }
        Expr::Nested(inner) => conjuncts(inner, out),
        other => out.push(other.clone()),
    }
}

fn all_of(conditions: Vec<Expr>) -> Option<Expr> {
    conditions
        .into_iter()
        .reduce(|all, next| binary(all, BinaryOperator::And, next))
}

/// Whether an expression names columns of this table, and of others. An unqualified name counts as
/// one of this table.
fn names(expr: &Expr, table: &str) -> (bool, bool) {
    let (mut own, mut others) = (false, false);
    let walked: ControlFlow<()> = visit_expressions(expr, |part| {
        match part {
            Expr::Identifier(_) => own = true,
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [of, _] if folded(of) == table => own = true,
                _ => others = true,
            },
            // The meaning of nested names is unknown here.
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                (own, others) = (true, true);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_continue());
    (own, others)
}

fn plain_select(select: &Select) -> bool {
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(keys, more) => !keys.is_empty() || !more.is_empty(),
        GroupByExpr::All(_) => true,
    };
    select.distinct.is_none()
        && select.top.is_none()
        && select.into.is_none()
        && select.lateral_views.is_empty()
        && !grouped
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none()
        && select.selection.is_some()
}

fn belonging(query: &Query) -> Option<Belonging> {
    if query.with.is_some() || query.fetch.is_some() || !query.pipe_operators.is_empty() {
        return None;
    }
    let limit = match &query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset {
            limit,
            offset: None,
            limit_by,
        }) if limit_by.is_empty() => limit.clone(),
        Some(_) => return None,
    };
    let order = match &query.order_by {
        None => Vec::new(),
        Some(by) => match &by.kind {
            OrderByKind::Expressions(keys) if by.interpolate.is_none() => keys.clone(),
            _ => return None,
        },
    };
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let [TableWithJoins { relation, joins }] = select.from.as_slice() else {
        return None;
    };
    let TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = relation
    else {
        return None;
    };
    if !joins.is_empty() || !plain_select(select) {
        return None;
    }
    let called = match alias {
        Some(alias) if alias.columns.is_empty() => folded(&alias.name),
        Some(_) => return None,
        None => folded(name.0.last()?.as_ident()?),
    };
    let Conditions {
        keys,
        to_others,
        own,
    } = conditions(select.selection.as_ref()?, &called)?;
    let all = order.iter().all(|key| is_expression(key, select, &called));
    (!keys.is_empty() && all).then_some(Belonging {
        name: called,
        keys,
        to_others,
        own,
        order,
        limit,
    })
}

/// The conditions of a query over one table, by the tables that they name.
struct Conditions {
    /// Columns of the table that are equal to expressions of other tables.
    keys: Vec<Expr>,
    to_others: Vec<Expr>,
    own: Vec<Expr>,
}

/// The conditions, if every one that names other tables is an equality of columns.
fn conditions(selection: &Expr, called: &str) -> Option<Conditions> {
    let mut conditions = Vec::new();
    conjuncts(selection, &mut conditions);
    let (mut keys, mut to_others, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for condition in conditions {
        if !names(&condition, called).1 {
            own.push(condition);
            continue;
        }
        let Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } = &condition
        else {
            return None;
        };
        let is_column = |side: &Expr| {
            matches!(side, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
                && names(side, called) == (true, false)
        };
        let is_other = |side: &Expr| names(side, called) == (false, true);
        keys.push(match (left.as_ref(), right.as_ref()) {
            (key, other) if is_column(key) && is_other(other) => key.clone(),
            (other, key) if is_column(key) && is_other(other) => key.clone(),
            _ => return None,
        });
        to_others.push(condition);
    }
    Some(Conditions {
        keys,
        to_others,
        own,
    })
}

/// Whether a sort key is an expression over the table, and not an index or the name of an output
/// column.
fn is_expression(key: &OrderByExpr, select: &Select, called: &str) -> bool {
    let is_called = |item: &SelectItem, name: &Ident| match item {
        SelectItem::ExprWithAlias { alias, .. } => folded(alias) == folded(name),
        _ => false,
    };
    let alias = |name: &Ident| {
        let mut items = select.projection.iter();
        items.any(|item| is_called(item, name))
    };
    !names(&key.expr, called).1
        && match &key.expr {
            Expr::Value(_) => false,
            Expr::Identifier(name) => !alias(name),
            _ => true,
        }
}

fn number_column() -> Ident {
    Ident::with_quote('"', NUMBER)
}

/// A `LATERAL` query without its limit: it selects the first of the numbered rows of each group.
pub(super) fn limited(query: &Query) -> Option<Query> {
    let of = belonging(query)?;
    let limit = of.limit?;
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let table = select.from.first()?.relation.clone();
    let mut number = call("row_number", Vec::new());
    if let Expr::Function(function) = &mut number {
        function.over = Some(WindowType::WindowSpec(WindowSpec {
            window_name: None,
            partition_by: of.keys,
            order_by: of.order,
            window_frame: None,
        }));
    }
    let numbered = Select {
        projection: vec![
            SelectItem::Wildcard(WildcardAdditionalOptions::default()),
            SelectItem::ExprWithAlias {
                expr: number,
                alias: number_column(),
            },
        ],
        from: vec![TableWithJoins {
            relation: table,
            joins: Vec::new(),
        }],
        selection: all_of(of.own),
        ..empty_select()
    };
    let name = Ident::with_quote('"', of.name);
    let number = Expr::CompoundIdentifier(vec![name.clone(), number_column()]);
    let first = binary(number, BinaryOperator::LtEq, limit);
    let mut select = select.as_ref().clone();
    for item in &mut select.projection {
        if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
            if *options != WildcardAdditionalOptions::default() {
                return None;
            }
            let number = ObjectName(vec![ObjectNamePart::Identifier(number_column())]);
            options.opt_exclude = Some(ExcludeSelectItem::Single(number));
        }
    }
    select.from = vec![TableWithJoins {
        relation: TableFactor::Derived {
            lateral: false,
            subquery: Box::new(Query {
                body: Box::new(SetExpr::Select(Box::new(numbered))),
                ..empty_query()
            }),
            alias: Some(TableAlias {
                explicit: true,
                name,
                columns: Vec::new(),
                at: None,
            }),
            sample: None,
        },
        joins: Vec::new(),
    }];
    let mut conditions = of.to_others;
    conditions.push(first);
    select.selection = all_of(conditions);
    Some(Query {
        body: Box::new(SetExpr::Select(Box::new(select))),
        ..empty_query()
    })
}

/// Rewrites a query of one value that takes the first row: to the first value of all rows.
pub(super) fn first_value(query: &Query) -> Option<Query> {
    let of = belonging(query)?;
    let is_one = |limit: &Expr| *limit == value(Value::Number("1".to_owned(), false));
    if of.order.is_empty() || !of.limit.as_ref().is_some_and(is_one) {
        return None;
    }
    let mut made = query.clone();
    made.order_by = None;
    made.limit_clause = None;
    let SetExpr::Select(select) = made.body.as_mut() else {
        return None;
    };
    let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_mut_slice()
    else {
        return None;
    };
    let mut first = call("first_value", vec![expr.clone()]);
    if let Expr::Function(function) = &mut first
        && let FunctionArguments::List(list) = &mut function.args
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(of.order));
    }
    *expr = first;
    Some(made)
}

/// Removes the limit of a query of one value that always has one row, since it aggregates all rows:
/// the SQL library does not support a limit there.
pub(super) fn one_row(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return;
    };
    let some = match &query.limit_clause {
        Some(LimitClause::LimitOffset {
            limit: Some(Expr::Value(limit)),
            offset: None,
            limit_by,
        }) => limit_by.is_empty() && limit.value != Value::Number("0".to_owned(), false),
        _ => false,
    };
    let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_slice()
    else {
        return;
    };
    let plain = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
        && select.having.is_none();
    if some && plain && aggregates(expr) {
        query.limit_clause = None;
        query.order_by = None;
    }
}

/// Whether an expression is a call of an aggregate that tools use with a limit.
fn aggregates(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else {
        return false;
    };
    let name = function.name.0.last().and_then(|part| part.as_ident());
    function.over.is_none() && name.is_some_and(|name| is_aggregate(&folded(name)))
}
