//! The time of a row, as statements name it.
//!
//! Invariant: `time` is the first column of every answer and nothing else; it never means a field
//! or tag.

use super::invalid;
use crate::error::Error;
use headwater_wire::influxql::{Expression, Select};
use std::collections::BTreeSet;

/// Whether an expression is exactly the time of a row.
pub(super) fn is_time(expression: &Expression) -> bool {
    matches!(expression, Expression::Reference { name, .. } if name.eq_ignore_ascii_case("time"))
}

/// Whether an expression contains the time of a row.
pub(super) fn mentions_time(expression: &Expression) -> bool {
    match expression {
        Expression::Binary { left, right, .. } => mentions_time(left) || mentions_time(right),
        Expression::All(parts) | Expression::Any(parts) => parts.iter().any(mentions_time),
        Expression::Call { arguments, .. } => arguments.iter().any(mentions_time),
        other => is_time(other),
    }
}

/// Refuses an invalid column of times: in a computation, repeated, alone, or with the name of
/// another column.
pub(super) fn check_times(select: &Select) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    let mut is_alone = true;
    for field in &select.fields {
        if is_time(&field.expression) {
            let own = || "time".to_owned();
            names.insert(field.alias.clone().unwrap_or_else(own));
            continue;
        }
        is_alone = false;
        if mentions_time(&field.expression) {
            return Err(invalid(format!(
                "{}: time is the first column of every answer and cannot be used in arithmetic; elapsed(\"v\", 1s) tells the time between values",
                field.expression
            )));
        }
        let called = field.alias.as_ref();
        if let Some(alias) = called.filter(|a| a.eq_ignore_ascii_case("time")) {
            return Err(invalid(format!(
                "{} AS \"{alias}\": this is the name of the first column of every answer; use another name, such as AS \"v_time\"",
                field.expression
            )));
        }
    }
    if is_alone {
        return Err(invalid(
            "at least 1 non-time field must be queried: add a field beside time",
        ));
    }
    if names.len() > 1 {
        return Err(invalid(format!(
            "time is one column, which cannot have several names: {}",
            Vec::from_iter(names).join(", ")
        )));
    }
    Ok(())
}
