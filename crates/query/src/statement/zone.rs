//! Rewrites `time AT TIME ZONE 'zone'` to the equivalent call `timezone('zone', time)`.
//!
//! The SQL library treats it as a cast, which keeps the instant and only changes how its time is
//! shown.

use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Replaces every such expression of a statement by the call.
pub(super) fn call_by_name(statement: &mut Parse) {
    let parsed = match statement {
        Parse::Statement(parsed) => parsed,
        Parse::Explain(explain) => return call_by_name(&mut explain.statement),
        _ => return,
    };
    // The visitor never stops early.
    let _ = parsed.visit(&mut Calls);
}

struct Calls;

impl VisitorMut for Calls {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::AtTimeZone {
            timestamp,
            time_zone,
        } = expr
        {
            let argument = |expr: &Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr.clone()));
            *expr = Expr::Function(Function {
                name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new("timezone"))]),
                uses_odbc_syntax: false,
                parameters: FunctionArguments::None,
                args: FunctionArguments::List(FunctionArgumentList {
                    duplicate_treatment: None,
                    args: vec![argument(time_zone), argument(timestamp)],
                    clauses: Vec::new(),
                }),
                filter: None,
                null_treatment: None,
                over: None,
                within_group: Vec::new(),
            });
        }
        ControlFlow::Continue(())
    }
}
