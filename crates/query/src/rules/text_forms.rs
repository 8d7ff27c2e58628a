//! Casts to text in PostgreSQL's formats.
//!
//! Invariant: only instants, spans and floats are formatted differently from the SQL library, and
//! booleans where texts are concatenated. Instants in a session's zone are formatted by `zones`.

use crate::functions::{has_text_form, text_form};
use crate::rules::keep_names::{has_part, map_expressions, named_columns};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// The rule; runs after that of zones, which formats instants in local time.
#[derive(Debug)]
pub(crate) struct TextForms;

impl AnalyzerRule for TextForms {
    fn name(&self) -> &str {
        "text_forms"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            if !has_part(&plan, may_be)? {
                return Ok(Transformed::no(plan));
            }
            let schema = named_columns(&plan)?;
            map_expressions(plan, &mut |expr| {
                expr.transform_up(|part| Ok(rewrite(part, &schema)))
            })
        })?;
        Ok(plan.data)
    }
}

fn may_be(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => cast.field.data_type().is_string(),
        Expr::TryCast(cast) => cast.field.data_type().is_string(),
        Expr::ScalarFunction(call) => gathers(call.func.name()),
        _ => false,
    }
}

/// Functions that concatenate the texts of values, and write booleans as letters.
fn gathers(name: &str) -> bool {
    matches!(name, "concat" | "concat_ws")
}

/// A value as text, if its format differs; `flags` = booleans too.
fn written(expr: &Expr, schema: &DFSchema, flags: bool) -> Option<Expr> {
    let (inner, of) = match expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type()),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type()),
        _ => return None,
    };
    let from = inner.get_type(schema).ok()?;
    let is_other = has_text_form(&from) && (flags || from != DataType::Boolean);
    (of.is_string() && is_other).then(|| {
        let made = text_form(inner.as_ref().clone());
        Expr::Cast(Cast::new(Box::new(made), of.clone()))
    })
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(mut call) if gathers(call.func.name()) => {
            let mut any = false;
            for arg in &mut call.args {
                if let Some(made) = written(arg, schema, true) {
                    *arg = made;
                    any = true;
                }
            }
            Transformed::new_transformed(Expr::ScalarFunction(call), any)
        }
        other => match written(&other, schema, false) {
            Some(made) => Transformed::yes(made),
            None => Transformed::no(other),
        },
    }
}
