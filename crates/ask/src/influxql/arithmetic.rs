//! Numbers and texts as InfluxQL compares and computes them.
//!
//! Invariants: integers stay exact as long as both sides are integers, and what leaves their range
//! becomes a float; division gives a float; a result that is not finite is no value.

use crate::values::integer;
pub(super) use crate::values::{compare, number};
use headwater::{Value, ValueRef};
use headwater_wire::influxql::{Literal, Operator};
use std::cmp::Ordering;

/// A value written in a statement. Lengths of time are integers of nanoseconds; a regular
/// expression is none.
pub(super) fn literal(literal: &Literal) -> Option<Value> {
    Some(match literal {
        Literal::Integer(number) => Value::I64(*number),
        Literal::Unsigned(number) => Value::U64(*number),
        Literal::Float(number) => Value::F64(*number),
        Literal::Text(text) => Value::String(text.clone()),
        Literal::Boolean(value) => Value::Bool(*value),
        Literal::Duration(ns) => Value::I64(*ns),
        Literal::Regex(_) => return None,
    })
}

/// Whether a comparison holds between two values that are there.
pub(super) fn holds(operator: Operator, a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    let ordering = compare(a, b);
    match operator {
        Operator::Equal => ordering == Some(Ordering::Equal),
        Operator::NotEqual => ordering != Some(Ordering::Equal),
        Operator::Less => ordering == Some(Ordering::Less),
        Operator::LessOrEqual => ordering.is_some_and(Ordering::is_le),
        Operator::Greater => ordering == Some(Ordering::Greater),
        Operator::GreaterOrEqual => ordering.is_some_and(Ordering::is_ge),
        _ => false,
    }
}

/// An integer if it fits into one of the types, else a float.
pub(super) fn from_wide(wide: i128) -> Value {
    match (i64::try_from(wide), u64::try_from(wide)) {
        (Ok(v), _) => Value::I64(v),
        (_, Ok(v)) => Value::U64(v),
        _ => Value::F64(wide as f64),
    }
}

/// A float, if it is finite.
pub(super) fn finite(value: f64) -> Option<Value> {
    value.is_finite().then_some(Value::F64(value))
}

/// The result of an operation; `None` when there is none, as for a division by zero.
pub(super) fn operate(operator: Operator, a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Value> {
    if let (Some(a), Some(b)) = (integer(a), integer(b)) {
        let wide = match operator {
            Operator::Add => a.checked_add(b),
            Operator::Subtract => a.checked_sub(b),
            Operator::Multiply => a.checked_mul(b),
            Operator::Modulo => a.checked_rem(b),
            _ => None,
        };
        if let Some(wide) = wide {
            return Some(from_wide(wide));
        }
        if operator == Operator::Modulo {
            return None;
        }
    }
    let (a, b) = (number(a)?, number(b)?);
    finite(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::Modulo => a % b,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_stay_exact_and_floats_finite() {
        let op = |operator, a: Value, b: Value| operate(operator, a.as_ref(), b.as_ref());
        let (i, f) = (Value::I64, Value::F64);
        assert_eq!(op(Operator::Add, i(1), i(2)), Some(i(3)));
        assert_eq!(op(Operator::Divide, i(1), i(2)), Some(f(0.5)));
        assert_eq!(op(Operator::Divide, i(1), i(0)), None);
        assert_eq!(op(Operator::Modulo, i(7), i(0)), None);
        assert_eq!(
            op(Operator::Add, i(i64::MAX), i(1)),
            Some(Value::U64(1 << 63))
        );
        assert_eq!(op(Operator::Add, i(1), f(0.5)), Some(f(1.5)));
        assert_eq!(op(Operator::Add, Value::Bool(true), i(1)), None);
        assert_eq!(
            op(Operator::Multiply, Value::String("1.5".to_owned()), i(2)),
            Some(f(3.0))
        );
    }

    #[test]
    fn comparisons_do_not_mix_texts_and_numbers() {
        let check = |operator, a: Value, b: Value| holds(operator, a.as_ref(), b.as_ref());
        let text = |text: &str| Value::String(text.to_owned());
        assert!(check(Operator::Less, Value::I64(1), Value::F64(1.5)));
        assert!(check(
            Operator::Greater,
            Value::U64(u64::MAX),
            Value::I64(-1)
        ));
        assert!(!check(Operator::Equal, text("1"), Value::I64(1)));
        assert!(check(Operator::NotEqual, text("1"), Value::I64(1)));
        assert!(!check(
            Operator::LessOrEqual,
            Value::F64(f64::NAN),
            Value::I64(1)
        ));
    }
}
