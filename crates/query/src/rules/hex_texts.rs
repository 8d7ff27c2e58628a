//! Texts that encode bytes: `'\x00ff'` for a parameter of bytes is two bytes, as in PostgreSQL.
//!
//! The SQL library uses the characters themselves as the bytes, so that a statement of a PostgreSQL
//! client would store other bytes than intended.
//!
//! Invariant: only a text literal is decoded, and only if it is cast to bytes; a text without the
//! prefix `\x` gives its own bytes. Failure: invalid digits, or an odd number of them, are an error
//! of the statement.

use crate::error::Error;
use crate::rules::keep_names::map_expressions;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// The rule; runs after type coercion of comparisons.
#[derive(Debug)]
pub(crate) struct HexTexts;

impl AnalyzerRule for HexTexts {
    fn name(&self) -> &str {
        "texts_that_spell_bytes"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|plan| {
            let mut any = false;
            plan.apply_expressions(|expr| {
                any = expr.exists(|part| Ok(spelled(part).is_some()))?;
                Ok(if any {
                    TreeNodeRecursion::Stop
                } else {
                    TreeNodeRecursion::Continue
                })
            })?;
            if !any {
                return Ok(Transformed::no(plan));
            }
            map_expressions(plan, &mut |expr| expr.transform_up(rewrite))
        })?;
        Ok(plan.data)
    }
}

fn rewrite(expr: Expr) -> Result<Transformed<Expr>> {
    let Some(text) = spelled(&expr) else {
        return Ok(Transformed::no(expr));
    };
    let bytes = bytes(text)?;
    Ok(Transformed::yes(Expr::Literal(
        ScalarValue::Binary(Some(bytes)),
        None,
    )))
}

/// The digits of a text that is cast to bytes.
fn spelled(expr: &Expr) -> Option<&str> {
    let Expr::Cast(cast) = expr else {
        return None;
    };
    let Expr::Literal(
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)),
        _,
    ) = &*cast.expr
    else {
        return None;
    };
    if *cast.field.data_type() != DataType::Binary {
        return None;
    }
    text.strip_prefix("\\x")
        .or_else(|| text.strip_prefix("\\X"))
}

fn bytes(digits: &str) -> Result<Vec<u8>> {
    let wrong = || {
        Error::invalid_value(format!(
            "'\\x{digits}' is not a hexadecimal string: expected two digits of 0-9 and a-f for each byte"
        ))
    };
    let mut values = Vec::with_capacity(digits.len());
    for digit in digits.chars().filter(|c| !c.is_ascii_whitespace()) {
        let value = digit.to_digit(16).and_then(|v| u8::try_from(v).ok());
        values.push(value.ok_or_else(wrong)?);
    }
    let mut out = Vec::with_capacity(values.len() / 2);
    for pair in values.chunks(2) {
        let [high, low] = pair else {
            return Err(wrong().into());
        };
        out.push(high << 4 | low);
    }
    Ok(out)
}
