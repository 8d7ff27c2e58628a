//! Rewrites `EXISTS (…)` and `x IN (SELECT …)` in select lists to scalar queries, which the SQL
//! library supports there.

use super::{call, value};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, Query, Select, SelectFlavor, SelectItem, SetExpr, TableAlias, TableAliasColumnDef,
    TableFactor, TableWithJoins, Value, VisitorMut,
};
use std::ops::ControlFlow;

/// Replaces `EXISTS (…)` and `x IN (SELECT …)` in select lists by expressions that the SQL library
/// supports: it supports the originals only in conditions.
pub(super) struct Lookups {
    within: usize,
    /// Depth of calls that may aggregate: their arguments must not contain queries correlated by
    /// row values.
    calls: usize,
}

impl Lookups {
    pub(super) fn new() -> Lookups {
        Lookups {
            within: 0,
            calls: 0,
        }
    }
}

impl VisitorMut for Lookups {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.calls += usize::from(may_aggregate(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.calls -= usize::from(may_aggregate(expr));
        if self.within == 0 {
            let made = match expr {
                Expr::Exists { subquery, negated } => exists(subquery, *negated),
                Expr::InSubquery {
                    expr: value,
                    subquery,
                    negated,
                } if self.calls == 0 => Some(is_in(value, subquery, *negated)),
                _ => None,
            };
            if let Some(made) = made {
                *expr = made;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether an expression is a call that may aggregate.
fn may_aggregate(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else {
        return false;
    };
    let name = function.name.0.last().and_then(|part| part.as_ident());
    let scalar = ["coalesce", "nullif", "concat", "not", "greatest", "least"];
    name.is_none_or(|name| !scalar.contains(&name.value.to_lowercase().as_str()))
}

/// Whether a query has rows, as a scalar subquery; `None` = not a plain select.
fn exists(query: &Query, negated: bool) -> Option<Expr> {
    let mut query = query.clone();
    let plain = query.limit_clause.is_none() && query.fetch.is_none();
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    let groups = match &select.group_by {
        GroupByExpr::Expressions(by, _) => !by.is_empty(),
        GroupByExpr::All(_) => true,
    };
    if !plain || groups || select.having.is_some() || aggregates(select) {
        return None;
    }
    query.order_by = None;
    select.distinct = None;
    let op = match negated {
        true => BinaryOperator::Eq,
        false => BinaryOperator::Gt,
    };
    select.projection = vec![SelectItem::UnnamedExpr(binary(count(), op, number(0)))];
    Some(Expr::Subquery(Box::new(query)))
}

fn number(value_of: u64) -> Expr {
    value(Value::Number(value_of.to_string(), false))
}

pub(crate) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

/// The call `count(*)`.
fn count() -> Expr {
    let mut count = call("count", Vec::new());
    if let Expr::Function(function) = &mut count
        && let FunctionArguments::List(list) = &mut function.args
    {
        list.args
            .push(FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
    }
    count
}

/// Alias and column of the wrapped query: no statement has this name.
const ROWS: &str = "rows\u{1}in";
const COLUMN: &str = "value\u{1}in";

/// `SELECT count(*) FROM (query) WHERE condition`, as a value.
fn counted(query: &Query, condition: Option<Expr>) -> Expr {
    let of = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query.clone()),
        alias: Some(TableAlias {
            explicit: true,
            name: Ident::with_quote('"', ROWS),
            columns: vec![TableAliasColumnDef {
                name: Ident::with_quote('"', COLUMN),
                data_type: None,
            }],
            at: None,
        }),
        sample: None,
    };
    Expr::Subquery(Box::new(select_of(count(), of, condition)))
}

/// Whether a value is among the values of a query. NULL if unknown, since the value or one of the
/// others is NULL.
fn is_in(value_of: &Expr, query: &Query, negated: bool) -> Expr {
    let column = || {
        Expr::CompoundIdentifier(vec![
            Ident::with_quote('"', ROWS),
            Ident::with_quote('"', COLUMN),
        ])
    };
    let some = |condition| {
        binary(
            counted(query, Some(condition)),
            BinaryOperator::Gt,
            number(0),
        )
    };
    let known = |truth| value(Value::Boolean(truth));
    let when = |condition, result| CaseWhen { condition, result };
    let equal = binary(column(), BinaryOperator::Eq, value_of.clone());
    let none = binary(counted(query, None), BinaryOperator::Eq, number(0));
    let is_null = |of: Expr| Expr::IsNull(Box::new(of));
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![
            when(some(equal), known(!negated)),
            when(none, known(negated)),
            when(is_null(value_of.clone()), value(Value::Null)),
            when(some(is_null(column())), value(Value::Null)),
        ],
        else_result: Some(Box::new(known(negated))),
    }
}

/// `SELECT what FROM of WHERE condition`
fn select_of(what: Expr, of: TableFactor, condition: Option<Expr>) -> Query {
    let select = Select {
        projection: vec![SelectItem::UnnamedExpr(what)],
        from: vec![TableWithJoins {
            relation: of,
            joins: Vec::new(),
        }],
        selection: condition,
        ..empty_select()
    };
    Query {
        body: Box::new(SetExpr::Select(Box::new(select))),
        ..empty_query()
    }
}

/// An empty select.
pub(super) fn empty_select() -> Select {
    Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: Vec::new(),
        exclude: None,
        into: None,
        from: Vec::new(),
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    }
}

/// An empty query.
pub(super) fn empty_query() -> Query {
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(empty_select()))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// Whether a select may always have exactly one row, since it aggregates all rows.
fn aggregates(select: &Select) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => !matches!(
            expr,
            Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)
        ),
        _ => false,
    })
}
