//! Casts within calls. The SQL library omits them from the names of expressions, so that `min(a)`
//! and `min(CAST(a AS BIGINT))` of one select have the same name, and it refuses both.
//!
//! Invariant: if two different calls of a select would have the same name, every cast within a call
//! of that select is wrapped in an equivalent call with another name; selects without such calls
//! are unchanged.

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr,
    VisitMut, VisitorMut,
};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// If more text than this would have to be compared, calls with one name count as different.
const COMPARED_MAX: usize = 1 << 20;

/// Removes everything that the names of the SQL library omit: casts, brackets, contents of
/// subqueries.
struct Bare;

impl VisitorMut for Bare {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        while let Expr::Nested(inner) | Expr::Cast { expr: inner, .. } = expr {
            *expr = std::mem::replace(inner.as_mut(), named(""));
        }
        // All of these have the same name, and so have expressions over them.
        match expr {
            Expr::Subquery(_) | Expr::Exists { .. } => *expr = named("<subquery>"),
            Expr::InSubquery {
                expr: of, negated, ..
            } => *expr = named(&format!("{of} in <subquery> {negated}")),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn named(text: &str) -> Expr {
    Expr::Identifier(Ident::new(text))
}

/// The SQL library's name of an expression, approximately.
pub(super) fn bare(expr: &Expr) -> String {
    let mut bare = expr.clone();
    // The visitor never stops early.
    let _ = VisitMut::visit(&mut bare, &mut Bare);
    bare.to_string().to_lowercase()
}

/// The selects of a body, without those of nested queries.
pub(super) fn each_select(body: &mut SetExpr, work: &mut dyn FnMut(&mut Select)) {
    match body {
        SetExpr::Select(select) => work(select),
        SetExpr::SetOperation { left, right, .. } => {
            each_select(left, work);
            each_select(right, work);
        }
        _ => {}
    }
}

/// Renames calls of a query's selects whose names differ only in their casts.
pub(super) fn keep_apart(query: &mut Query) {
    if let SetExpr::Select(select) = query.body.as_mut() {
        in_select(select, query.order_by.as_mut());
    } else {
        each_select(&mut query.body, &mut |select| in_select(select, None));
    }
}

fn in_select(select: &mut Select, mut order: Option<&mut OrderBy>) {
    let mut found = false;
    each_cast(select, order.as_deref_mut(), &mut |_| found = true);
    if !found {
        return;
    }
    let mut calls = Calls::default();
    each_expr(select, order.as_deref_mut(), &mut |expr| {
        let _ = VisitMut::visit(expr, &mut calls);
    });
    if calls.clash {
        // A call of one argument gives the same value with another name.
        each_cast(select, order, &mut |expr| {
            *expr = super::call("coalesce", vec![expr.clone()]);
        });
    }
}

/// The expressions of a select, except those of `FROM`.
fn each_expr(select: &mut Select, order: Option<&mut OrderBy>, work: &mut dyn FnMut(&mut Expr)) {
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        keys.iter_mut().for_each(&mut *work);
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            work(expr);
        }
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        keys.iter_mut().for_each(&mut *work);
    }
    for expr in [&mut select.having, &mut select.qualify]
        .into_iter()
        .flatten()
    {
        work(expr);
    }
    if let Some(order) = order
        && let OrderByKind::Expressions(keys) = &mut order.kind
    {
        keys.iter_mut().for_each(|key| work(&mut key.expr));
    }
}

/// Visits the casts within calls. Sub-queries are visited separately.
struct AtCasts<'a> {
    calls: usize,
    queries: usize,
    work: &'a mut dyn FnMut(&mut Expr),
}

impl VisitorMut for AtCasts<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.calls += usize::from(matches!(expr, Expr::Function(_)));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.calls -= usize::from(matches!(expr, Expr::Function(_)));
        if self.calls > 0 && self.queries == 0 && matches!(expr, Expr::Cast { .. }) {
            (self.work)(expr);
        }
        ControlFlow::Continue(())
    }
}

/// Visits the casts within calls of a select's own expressions.
fn each_cast(select: &mut Select, order: Option<&mut OrderBy>, work: &mut dyn FnMut(&mut Expr)) {
    let mut casts = AtCasts {
        calls: 0,
        queries: 0,
        work,
    };
    // The visitor never stops early.
    each_expr(select, order, &mut |expr| {
        let _ = VisitMut::visit(expr, &mut casts);
    });
}

/// Finds different calls with the same name.
#[derive(Default)]
struct Calls {
    queries: usize,
    /// Texts of calls, by the SQL library's names.
    call_texts: HashMap<String, String>,
    compared: usize,
    clash: bool,
}

impl VisitorMut for Calls {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.clash || self.queries > 0 || !matches!(expr, Expr::Function(_)) {
            return ControlFlow::Continue(());
        }
        let written = expr.to_string().to_lowercase();
        self.compared += written.len();
        self.clash = self.compared > COMPARED_MAX;
        let first = self.call_texts.entry(bare(expr));
        let first = first.or_insert_with(|| written.clone());
        self.clash |= *first != written;
        ControlFlow::Continue(())
    }
}
