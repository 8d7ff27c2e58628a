//! Texts that are compared with booleans: `ok = 'true'`, `ok IN ('t', 'f')`. A text literal without
//! a type has the type of the other operand, as in PostgreSQL.
//!
//! Invariant: only a text literal is converted; a text that was cast, or is from a column, stays a
//! text. Failure: an invalid boolean is refused with the valid words.

use crate::error::Error;
use crate::rules::keep_names::map_expressions;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// The rule for comparisons; runs before type coercion by the library.
#[derive(Debug)]
pub(crate) struct ComparedTruths;

impl ExprPlanner for ComparedTruths {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or, Spaceship};
        let truths = matches!(expr.op, And | Or);
        if !truths && !matches!(expr.op, Eq | NotEq | Lt | LtEq | Gt | GtEq | Spaceship) {
            return Ok(PlannerResult::Original(expr));
        }
        let right_is = truths || is_truth(&expr.right, schema);
        if let Some(text) = text_of(&expr.left).filter(|_| right_is) {
            expr.left = truth(text)?;
        }
        let left_is = truths || is_truth(&expr.left, schema);
        if let Some(text) = text_of(&expr.right).filter(|_| left_is) {
            expr.right = truth(text)?;
        }
        Ok(PlannerResult::Original(expr))
    }
}

/// The rule for booleans compared with several texts, and results of a `CASE`; runs before type
/// coercion.
#[derive(Debug)]
pub(crate) struct Truths;

impl AnalyzerRule for Truths {
    fn name(&self) -> &str {
        "texts_beside_truths"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let mut any = false;
            plan.apply_expressions(|expr| {
                any = any || expr.exists(|part| Ok(has_texts_beside_booleans(part, &schema)))?;
                Ok(match any {
                    true => TreeNodeRecursion::Stop,
                    false => TreeNodeRecursion::Continue,
                })
            })?;
            match any {
                false => Ok(Transformed::no(plan)),
                true => map_expressions(plan, &mut |expr| {
                    expr.transform_up(|part| rewrite(part, &schema))
                }),
            }
        })?;
        Ok(plan.data)
    }
}

/// Whether an expression has texts beside booleans.
fn has_texts_beside_booleans(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::InList(list) => {
            list.list.iter().any(|one| text_of(one).is_some()) && is_truth(&list.expr, schema)
        }
        Expr::Between(between) => {
            let texts = [&between.low, &between.high];
            texts.iter().any(|one| text_of(one).is_some()) && is_truth(&between.expr, schema)
        }
        Expr::Case(case) => {
            let results = || {
                let when = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
                when.chain(case.else_expr.as_deref())
            };
            let whens = || case.when_then_expr.iter().map(|(when, _)| when.as_ref());
            let some_text = |mut all: Box<dyn Iterator<Item = &Expr> + '_>| {
                all.any(|one| text_of(one).is_some())
            };
            let of_truth = case.expr.as_ref().is_some_and(|of| is_truth(of, schema));
            (of_truth && some_text(Box::new(whens())))
                || (some_text(Box::new(results())) && results().any(|one| is_truth(one, schema)))
        }
        _ => false,
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !has_texts_beside_booleans(&expr, schema) {
        return Ok(Transformed::no(expr));
    }
    let read = |one: &mut Expr| -> Result<()> {
        if let Some(text) = text_of(one) {
            *one = truth(text)?;
        }
        Ok(())
    };
    match expr {
        Expr::InList(mut list) => {
            list.list.iter_mut().try_for_each(read)?;
            Ok(Transformed::yes(Expr::InList(list)))
        }
        Expr::Between(mut between) => {
            read(&mut between.low)?;
            read(&mut between.high)?;
            Ok(Transformed::yes(Expr::Between(between)))
        }
        Expr::Case(mut case) => {
            let of_truth = case.expr.as_ref().is_some_and(|of| is_truth(of, schema));
            let results = case.when_then_expr.iter().map(|(_, then)| then);
            let gives_truth = results
                .chain(&case.else_expr)
                .any(|one| is_truth(one, schema));
            for (when, then) in &mut case.when_then_expr {
                if of_truth {
                    read(when)?;
                }
                if gives_truth {
                    read(then)?;
                }
            }
            if let Some(other) = case.else_expr.as_mut().filter(|_| gives_truth) {
                read(other)?;
            }
            Ok(Transformed::yes(Expr::Case(case)))
        }
        other => Ok(Transformed::no(other)),
    }
}

fn is_truth(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Boolean))
}

/// The text of a literal.
fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(
            ScalarValue::Utf8(Some(text))
            | ScalarValue::LargeUtf8(Some(text))
            | ScalarValue::Utf8View(Some(text)),
            _,
        ) => Some(text),
        _ => None,
    }
}

/// Parses a boolean: words, their prefixes, and digits.
fn truth(text: &str) -> Result<Expr> {
    let word = text.trim().to_ascii_lowercase();
    let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
    let value = if begins("true", 1) || begins("yes", 1) || word == "on" || word == "1" {
        true
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        false
    } else {
        let cut: String = text.chars().take(80).collect();
        let message = format!("'{cut}' is compared with a boolean: expected 'true' or 'false'");
        return Err(Error::new("invalid_value", "22P02", message)
            .with_hint("also: t, f, yes, no, on, off, 1, 0")
            .into());
    };
    Ok(Expr::Literal(ScalarValue::Boolean(Some(value)), None))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn truth_values_are_spelled_as_in_postgresql() {
        for (text, wanted) in [
            ("t", true),
            (" TRUE ", true),
            ("tr", true),
            ("y", true),
            ("on", true),
            ("1", true),
            ("f", false),
            ("fals", false),
            ("n", false),
            ("of", false),
            ("0", false),
        ] {
            let Expr::Literal(value, _) = truth(text).unwrap() else {
                unreachable!("a truth value is a literal");
            };
            assert_eq!(value, ScalarValue::Boolean(Some(wanted)), "{text}");
        }
        for text in ["", "o", "truer", "2", "vrai", "ja"] {
            assert!(truth(text).is_err(), "{text}");
        }
    }
}
