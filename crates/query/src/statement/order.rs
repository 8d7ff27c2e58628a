//! `ORDER BY` with each key once.
//!
//! A key that stands there a second time orders nothing any more, and the SQL library takes it for
//! another one: it panics where a query has `DISTINCT ON` too.

use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{Expr, OrderByKind, Query, VisitMut, VisitorMut};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Takes keys away that come again.
pub(super) fn each_once(statement: &mut Parse) {
    let parsed = match statement {
        Parse::Statement(parsed) => parsed,
        Parse::Explain(explain) => return each_once(&mut explain.statement),
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
            && keys.len() > 1
        {
            let mut known: HashSet<Expr> = HashSet::new();
            // What is random is another value each time.
            keys.retain(|key| {
                matches!(key.expr, Expr::Function(_)) || known.insert(key.expr.clone())
            });
        }
        ControlFlow::Continue(())
    }
}
