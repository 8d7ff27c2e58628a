//! Fields as a statement reads them: with their stored type, or cast, `v::integer`.
//!
//! Invariant: only numbers are cast to other numeric types; values that cannot be cast are missing.

use super::arithmetic::number;
use headwater::{Column, FieldType, Value, ValueRef};
use headwater_wire::influxql::Cast;

/// A field to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadField {
    pub(super) name: String,
    pub(super) stored: FieldType,
    /// Target type, if the field is cast.
    cast: Option<FieldType>,
    /// The field is a tag of a subquery's answer.
    pub(super) is_tag: bool,
}

impl ReadField {
    pub(super) fn new(name: &str, stored: FieldType, cast: Option<Cast>) -> ReadField {
        let cast = match cast {
            Some(Cast::Float) => Some(FieldType::F64),
            Some(Cast::Integer) => Some(FieldType::I64),
            Some(Cast::Unsigned) => Some(FieldType::U64),
            Some(Cast::Text) => Some(FieldType::String),
            Some(Cast::Boolean) => Some(FieldType::Bool),
            Some(Cast::Field | Cast::Tag) | None => None,
        };
        ReadField {
            name: name.to_owned(),
            stored,
            cast: cast.filter(|cast| *cast != stored),
            is_tag: false,
        }
    }

    /// A tag, read as a text.
    pub(super) fn of_tag(name: &str) -> ReadField {
        ReadField {
            name: name.to_owned(),
            stored: FieldType::String,
            cast: None,
            is_tag: true,
        }
    }

    pub(super) fn is_cast(&self) -> bool {
        self.cast.is_some()
    }

    /// The type after the cast.
    pub(super) fn field_type(&self) -> FieldType {
        self.cast.unwrap_or(self.stored)
    }

    /// Casts a stored column to the type of this field.
    pub(super) fn read(&self, column: &Column) -> Column {
        let Some(wanted) = self.cast else {
            return column.clone();
        };
        let mut out = Column::with_capacity(wanted, column.len());
        for row in 0..column.len() {
            match column.get(row).and_then(|value| as_type(value, wanted)) {
                Some(value) => {
                    out.push(value.as_ref());
                }
                None => out.push_absent(1),
            }
        }
        out
    }
}

/// A number cast to another type; the fraction is truncated.
fn as_type(value: ValueRef<'_>, wanted: FieldType) -> Option<Value> {
    // Values out of the range of `i128` do not fit the types below either.
    let cut = |v: f64| v.is_finite().then_some(v as i128);
    Some(match (value, wanted) {
        (ValueRef::I64(_) | ValueRef::U64(_), FieldType::F64) => Value::F64(number(value)?),
        (ValueRef::F64(v), FieldType::I64) => Value::I64(i64::try_from(cut(v)?).ok()?),
        (ValueRef::U64(v), FieldType::I64) => Value::I64(i64::try_from(v).ok()?),
        (ValueRef::F64(v), FieldType::U64) => Value::U64(u64::try_from(cut(v)?).ok()?),
        (ValueRef::I64(v), FieldType::U64) => Value::U64(u64::try_from(v).ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_other_numbers_and_nothing_else_does() {
        let as_wanted = |value: Value, wanted| as_type(value.as_ref(), wanted);
        let (i, u) = (FieldType::I64, FieldType::U64);
        assert_eq!(as_wanted(Value::F64(23.9), i), Some(Value::I64(23)));
        assert_eq!(as_wanted(Value::F64(-23.9), i), Some(Value::I64(-23)));
        assert_eq!(as_wanted(Value::F64(1e19), i), None);
        assert_eq!(
            as_wanted(Value::F64(1e19), u),
            Some(Value::U64(10_u64.pow(19)))
        );
        assert_eq!(as_wanted(Value::F64(f64::NAN), i), None);
        assert_eq!(as_wanted(Value::I64(-1), u), None);
        assert_eq!(
            as_wanted(Value::I64(-1), FieldType::F64),
            Some(Value::F64(-1.0))
        );
        assert_eq!(as_wanted(Value::Bool(true), i), None);
        assert_eq!(as_wanted(Value::String("5".to_owned()), i), None);
    }
}
