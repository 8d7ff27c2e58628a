//! Numbers and texts as InfluxQL compares and computes them.
//!
//! Invariants: integers stay exact as long as both operands are integers, and a result out of their
//! range becomes a float; division gives a float, and zero for a division by zero, as in InfluxDB;
//! a result that is not finite is a missing value.

use super::invalid;
use crate::error::Error;
use crate::values::integer;
pub(super) use crate::values::{compare, number};
use headwater::{FieldType, Value, ValueRef};
use headwater_wire::influxql::{Expression, Literal, Operator};
use std::cmp::Ordering;

/// Value of a literal. Durations are integers of nanoseconds; a regular expression does not have a
/// value.
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

/// Whether a comparison of two present values is true.
pub(super) fn is_true(operator: Operator, a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
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

/// An integer if one of the types can represent it, else a float.
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

/// The result type of an operation on operands of these types; `None` if it depends on values.
pub(super) fn type_of_operation(
    operator: Operator,
    a: Option<FieldType>,
    b: Option<FieldType>,
) -> Option<FieldType> {
    match operator {
        Operator::Divide => Some(FieldType::F64),
        operator if operator.is_bitwise() => a.filter(|a| Some(*a) == b),
        // A result out of the range of its type has another type.
        _ => (a == Some(FieldType::F64) || b == Some(FieldType::F64)).then_some(FieldType::F64),
    }
}

/// Bit operators require two integers, or two booleans.
///
/// # Errors
/// When the types are known and are different.
pub(super) fn check_bits(
    expression: &Expression,
    operator: Operator,
    (a, b): (Option<FieldType>, Option<FieldType>),
) -> Result<(), Error> {
    let whole = |t: FieldType| matches!(t, FieldType::I64 | FieldType::U64);
    let fits = |t: Option<FieldType>| t.is_none_or(|t| whole(t) || t == FieldType::Bool);
    let fit = fits(a) && fits(b) && a.zip(b).is_none_or(|(a, b)| whole(a) == whole(b));
    if !operator.is_bitwise() || fit {
        return Ok(());
    }
    let name = |t: Option<FieldType>| t.map_or("a value", type_name);
    Err(invalid(format!(
        "type error: {expression}: {} takes two integers or two booleans, found {} and {}; a float becomes an integer by a cast, such as \"v\"::integer",
        operator.text(),
        name(a),
        name(b),
    )))
}

/// The name of a type in InfluxDB. Bytes are shown as text.
pub(super) fn type_name(field_type: FieldType) -> &'static str {
    match field_type {
        FieldType::F64 => "float",
        FieldType::I64 => "integer",
        FieldType::U64 => "unsigned",
        FieldType::Bool => "boolean",
        FieldType::String | FieldType::Bytes => "string",
    }
}

/// The result of an operation; `None` if there is no result.
pub(super) fn operate(operator: Operator, a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Value> {
    if operator.is_bitwise() {
        return of_bits(operator, a, b);
    }
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
            return Some(Value::I64(0));
        }
    }
    let (a, b) = (number(a)?, number(b)?);
    finite(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide if b == 0.0 => 0.0,
        Operator::Divide => a / b,
        Operator::Modulo => a % b,
        _ => return None,
    })
}

/// Bit operation on two integers, or on two booleans; other types are not supported.
fn of_bits(operator: Operator, a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Value> {
    if let (ValueRef::Bool(a), ValueRef::Bool(b)) = (a, b) {
        return Some(Value::Bool(match operator {
            Operator::BitAnd => a & b,
            Operator::BitOr => a | b,
            _ => a ^ b,
        }));
    }
    let (a, b) = (integer(a)?, integer(b)?);
    Some(from_wide(match operator {
        Operator::BitAnd => a & b,
        Operator::BitOr => a | b,
        _ => a ^ b,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_of_integers_and_booleans() {
        let op = |operator, a: Value, b: Value| operate(operator, a.as_ref(), b.as_ref());
        let (i, b) = (Value::I64, Value::Bool);
        assert_eq!(op(Operator::BitAnd, i(6), i(3)), Some(i(2)));
        assert_eq!(op(Operator::BitOr, i(6), i(3)), Some(i(7)));
        assert_eq!(op(Operator::BitXor, i(6), i(3)), Some(i(5)));
        assert_eq!(op(Operator::BitAnd, i(-1), i(i64::MAX)), Some(i(i64::MAX)));
        let most = Value::U64(u64::MAX);
        assert_eq!(op(Operator::BitAnd, most.clone(), i(-1)), Some(most));
        assert_eq!(op(Operator::BitXor, b(true), b(true)), Some(b(false)));
        assert_eq!(op(Operator::BitOr, b(true), b(false)), Some(b(true)));
        for (a, b) in [
            (Value::F64(6.0), i(3)),
            (b(true), i(1)),
            (Value::String("6".to_owned()), i(3)),
        ] {
            assert_eq!(op(Operator::BitAnd, a, b), None);
        }
    }

    #[test]
    fn integers_stay_exact_and_floats_finite() {
        let op = |operator, a: Value, b: Value| operate(operator, a.as_ref(), b.as_ref());
        let (i, f) = (Value::I64, Value::F64);
        assert_eq!(op(Operator::Add, i(1), i(2)), Some(i(3)));
        assert_eq!(op(Operator::Divide, i(1), i(2)), Some(f(0.5)));
        assert_eq!(op(Operator::Divide, i(1), i(0)), Some(f(0.0)));
        assert_eq!(op(Operator::Divide, f(0.0), f(-0.0)), Some(f(0.0)));
        assert_eq!(op(Operator::Modulo, i(7), i(0)), Some(i(0)));
        assert_eq!(op(Operator::Modulo, f(7.0), f(0.0)), None);
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
        let check = |operator, a: Value, b: Value| is_true(operator, a.as_ref(), b.as_ref());
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
