//! Values as text and as JSON.

use headwater::{Aggregate, Sum, Value, ValueRef};
use serde::{Serialize, Serializer};

/// A value for people: bytes in base 16, floats with all their digits.
pub(crate) fn text_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::F64(v) => format!("{v:?}"),
        ValueRef::I64(v) => v.to_string(),
        ValueRef::U64(v) => v.to_string(),
        ValueRef::Bool(v) => v.to_string(),
        ValueRef::String(v) => v.to_owned(),
        ValueRef::Bytes(v) => base16(v),
    }
}

fn base16(bytes: &[u8]) -> String {
    let mut out = String::from("0x");
    for byte in bytes {
        out.push_str(&format!("{byte:02x}"));
    }
    out
}

/// A value as JSON: numbers with all their digits, `null` for NaN and infinities, bytes in base 16.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonValue<'a>(pub(crate) ValueRef<'a>);

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ValueRef::F64(v) if v.is_finite() => serializer.serialize_f64(v),
            ValueRef::F64(_) => serializer.serialize_unit(),
            ValueRef::I64(v) => serializer.serialize_i64(v),
            ValueRef::U64(v) => serializer.serialize_u64(v),
            ValueRef::Bool(v) => serializer.serialize_bool(v),
            ValueRef::String(v) => serializer.serialize_str(v),
            ValueRef::Bytes(v) => serializer.serialize_str(&base16(v)),
        }
    }
}

/// A number of one of several types, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    None,
    F64(f64),
    I64(i64),
    U64(u64),
    I128(i128),
}

impl Number {
    pub(crate) fn of(value: Option<f64>) -> Number {
        value.map_or(Number::None, Number::F64)
    }

    pub(crate) fn min(aggregate: &Aggregate) -> Number {
        Number::extreme(aggregate.extremes.min())
    }

    pub(crate) fn max(aggregate: &Aggregate) -> Number {
        Number::extreme(aggregate.extremes.max())
    }

    fn extreme(value: Option<Value>) -> Number {
        match value {
            Some(Value::F64(v)) => Number::F64(v),
            Some(Value::I64(v)) => Number::I64(v),
            Some(Value::U64(v)) => Number::U64(v),
            // Extremes are numbers.
            _ => Number::None,
        }
    }

    pub(crate) fn sum(aggregate: &Aggregate) -> Number {
        match aggregate.sum() {
            None => Number::None,
            Some(Sum::Float(sum)) => Number::F64(sum),
            Some(Sum::Integer(sum)) => Number::I128(sum),
        }
    }

    /// As `f64`, for drawing.
    pub(crate) fn approximate(self) -> Option<f64> {
        match self {
            Number::None => None,
            Number::F64(v) => Some(v),
            Number::I64(v) => Some(v as f64),
            Number::U64(v) => Some(v as f64),
            Number::I128(v) => Some(v as f64),
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::None => Ok(()),
            Number::F64(v) => write!(f, "{v:?}"),
            Number::I64(v) => write!(f, "{v}"),
            Number::U64(v) => write!(f, "{v}"),
            Number::I128(v) => write!(f, "{v}"),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Number::F64(v) if v.is_finite() => serializer.serialize_f64(*v),
            Number::None | Number::F64(_) => serializer.serialize_unit(),
            Number::I64(v) => serializer.serialize_i64(*v),
            Number::U64(v) => serializer.serialize_u64(*v),
            Number::I128(v) => serializer.serialize_i128(*v),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_digit() {
        let json = |number: Number| serde_json::to_string(&number).unwrap_or_default();
        assert_eq!(json(Number::I128(i128::MAX)), i128::MAX.to_string());
        assert_eq!(json(Number::F64(f64::NAN)), "null");
        assert_eq!(json(Number::F64(0.1)), "0.1");
        let value = JsonValue(ValueRef::Bytes(&[0xAB, 0]));
        assert_eq!(
            serde_json::to_string(&value).unwrap_or_default(),
            "\"0xab00\""
        );
    }
}
