//! Compiled conditions on tags and fields of rows.
//!
//! Invariants: conditions on tags are evaluated once per stream, so that the remainder for its rows
//! concerns fields only; a missing tag is an empty text; every comparison with a missing field is
//! false.

use super::arithmetic::{is_true, operate};
use super::field::ReadField;
use headwater::{
    ClosedRange, Comparison, FieldType, Filter, StreamName, Timestamp, Value, ValueRef,
};
use headwater_wire::influxql::Operator;
use regex::Regex;

/// A constant, or a value that depends on the row or stream.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    Value(Value),
    /// An index in the list of fields to read.
    Field(usize),
    Tag(String),
    Operation(Operator, Box<Operand>, Box<Operand>),
}

#[derive(Clone, Debug)]
pub(super) enum Predicate {
    Constant(bool),
    All(Vec<Predicate>),
    Any(Vec<Predicate>),
    Compare(Operator, Operand, Operand),
    /// True if the row is within the range.
    During(ClosedRange),
    /// True if the pattern matches; inverted by the flag.
    Matches(Operand, Regex, bool),
}

/// Stands for the row's time, an integer of ns, in place of a field's index.
pub(super) const TIME: usize = usize::MAX;

/// The value of a field in a row, by its index in the list of fields to read, or [`TIME`].
pub(super) type Row<'a> = &'a dyn Fn(usize) -> Option<ValueRef<'a>>;

impl Operand {
    fn with_tags(&self, stream: &StreamName) -> Operand {
        match self {
            Operand::Tag(key) => {
                Operand::Value(Value::String(stream.tag(key).unwrap_or("").to_owned()))
            }
            Operand::Operation(operator, left, right) => {
                let (left, right) = (left.with_tags(stream), right.with_tags(stream));
                Operand::Operation(*operator, Box::new(left), Box::new(right))
            }
            other => other.clone(),
        }
    }

    fn reads_fields(&self) -> bool {
        match self {
            Operand::Value(_) | Operand::Tag(_) => false,
            Operand::Field(_) => true,
            Operand::Operation(_, left, right) => left.reads_fields() || right.reads_fields(),
        }
    }

    fn on<'a>(&'a self, row: Row<'a>) -> Option<OperandValue<'a>> {
        match self {
            Operand::Value(value) => Some(OperandValue::Borrowed(value.as_ref())),
            Operand::Field(index) => row(*index).map(OperandValue::Borrowed),
            Operand::Tag(_) => None,
            Operand::Operation(operator, left, right) => {
                let (left, right) = (left.on(row)?, right.on(row)?);
                operate(*operator, left.get(), right.get()).map(OperandValue::Owned)
            }
        }
    }
}

/// A value of a row or a statement, or computed from them.
enum OperandValue<'a> {
    Borrowed(ValueRef<'a>),
    Owned(Value),
}

impl OperandValue<'_> {
    fn get(&self) -> ValueRef<'_> {
        match self {
            OperandValue::Borrowed(value) => *value,
            OperandValue::Owned(value) => value.as_ref(),
        }
    }
}

impl Predicate {
    /// The part of the condition that remains for the rows of a stream.
    pub(super) fn on_stream(&self, stream: &StreamName) -> Predicate {
        let decided = |predicate: Predicate, reads_fields: bool| {
            if reads_fields {
                predicate
            } else {
                Predicate::Constant(predicate.is_satisfied_by(&|_| None))
            }
        };
        match self {
            Predicate::Constant(value) => Predicate::Constant(*value),
            Predicate::During(range) => Predicate::During(*range),
            Predicate::Compare(operator, left, right) => {
                let reads = left.reads_fields() || right.reads_fields();
                let (left, right) = (left.with_tags(stream), right.with_tags(stream));
                decided(Predicate::Compare(*operator, left, right), reads)
            }
            Predicate::Matches(operand, regex, wanted) => {
                let reads = operand.reads_fields();
                let operand = operand.with_tags(stream);
                decided(Predicate::Matches(operand, regex.clone(), *wanted), reads)
            }
            Predicate::All(parts) => join(parts, stream, false, Predicate::All),
            Predicate::Any(parts) => join(parts, stream, true, Predicate::Any),
        }
    }

    /// Whether a row satisfies it; tags must be evaluated before.
    pub(super) fn is_satisfied_by<'a>(&'a self, row: Row<'a>) -> bool {
        match self {
            Predicate::Constant(value) => *value,
            Predicate::All(parts) => parts.iter().all(|p| p.is_satisfied_by(row)),
            Predicate::Any(parts) => parts.iter().any(|p| p.is_satisfied_by(row)),
            Predicate::Compare(operator, left, right) => match (left.on(row), right.on(row)) {
                (Some(left), Some(right)) => is_true(*operator, left.get(), right.get()),
                _ => false,
            },
            Predicate::During(range) => match row(TIME) {
                Some(ValueRef::I64(at)) => range.contains(Timestamp::from_nanos(at)),
                _ => false,
            },
            Predicate::Matches(operand, regex, wanted) => match operand.on(row) {
                Some(found) => match found.get() {
                    ValueRef::String(text) => regex.is_match(text) == *wanted,
                    _ => false,
                },
                None => false,
            },
        }
    }

    /// The part of it by which the engine can skip whole leaves. `fields` are the fields to read.
    pub(super) fn filters(&self, fields: &[ReadField]) -> Vec<Filter> {
        match self {
            Predicate::All(parts) => parts.iter().flat_map(|p| p.filters(fields)).collect(),
            Predicate::Compare(operator, Operand::Field(field), Operand::Value(value)) => {
                filter(*operator, *field, value, fields)
                    .into_iter()
                    .collect()
            }
            Predicate::Compare(operator, Operand::Value(value), Operand::Field(field)) => {
                filter(operator.mirrored(), *field, value, fields)
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Joins the parts by `AND` or `OR`; a part equal to `deciding` decides.
fn join(
    parts: &[Predicate],
    stream: &StreamName,
    deciding: bool,
    many: fn(Vec<Predicate>) -> Predicate,
) -> Predicate {
    let mut left = Vec::new();
    for part in parts {
        match part.on_stream(stream) {
            Predicate::Constant(value) if value == deciding => {
                return Predicate::Constant(deciding);
            }
            Predicate::Constant(_) => {}
            part => left.push(part),
        }
    }
    if left.len() == 1
        && let Some(part) = left.pop()
    {
        return part;
    }
    if left.is_empty() {
        return Predicate::Constant(!deciding);
    }
    many(left)
}

/// The same condition for the engine, if it has the same meaning there.
fn filter(operator: Operator, field: usize, value: &Value, fields: &[ReadField]) -> Option<Filter> {
    let field = fields.get(field).filter(|field| !field.is_cast())?;
    let is_same = match (field.stored, value) {
        (FieldType::F64, Value::F64(_))
        | (FieldType::I64, Value::I64(_))
        | (FieldType::U64, Value::U64(_))
        | (FieldType::Bool, Value::Bool(_))
        | (FieldType::String, Value::String(_)) => true,
        // Exactly representable as a float.
        (FieldType::F64, Value::I64(v)) => v.unsigned_abs() < 1 << 53,
        (FieldType::U64, Value::I64(v)) => *v >= 0,
        _ => false,
    };
    let comparison = match operator {
        Operator::Equal => Comparison::Equal,
        Operator::NotEqual => Comparison::NotEqual,
        Operator::Less => Comparison::Less,
        Operator::LessOrEqual => Comparison::LessOrEqual,
        Operator::Greater => Comparison::Greater,
        Operator::GreaterOrEqual => Comparison::GreaterOrEqual,
        _ => return None,
    };
    is_same.then(|| Filter {
        field: field.name.clone(),
        comparison,
        value: value.clone(),
    })
}
