//! Field types and single values.

use std::fmt;

/// The type of a field. The numbers are part of the file formats and never change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum FieldType {
    /// IEEE 754 double, every bit pattern preserved.
    F64 = 1,
    /// Signed 64-bit integer.
    I64 = 2,
    /// Unsigned 64-bit integer.
    U64 = 3,
    /// A boolean value.
    Bool = 4,
    /// UTF-8 text.
    String = 5,
    /// Bytes of any content.
    Bytes = 6,
}

impl FieldType {
    /// All types, in the order of their numbers.
    pub const ALL: [FieldType; 6] = [
        FieldType::F64,
        FieldType::I64,
        FieldType::U64,
        FieldType::Bool,
        FieldType::String,
        FieldType::Bytes,
    ];

    /// Number of the type in every format.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The type with this number, if any.
    #[must_use]
    pub fn from_number(number: u8) -> Option<FieldType> {
        FieldType::ALL.into_iter().find(|t| t.number() == number)
    }

    /// `f64 i64 u64 bool string bytes`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FieldType::F64 => "f64",
            FieldType::I64 => "i64",
            FieldType::U64 => "u64",
            FieldType::Bool => "bool",
            FieldType::String => "string",
            FieldType::Bytes => "bytes",
        }
    }

    /// The type with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<FieldType> {
        FieldType::ALL.into_iter().find(|t| t.name() == name)
    }

    /// True for types with a mean: `f64 i64 u64 bool`.
    #[must_use]
    pub fn is_numeric(self) -> bool {
        !matches!(self, FieldType::String | FieldType::Bytes)
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of a field inside its table. Dense, from 0, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FieldId(pub u32);

/// One value, owned.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant is the type it is named for")]
pub enum Value {
    F64(f64),
    I64(i64),
    U64(u64),
    Bool(bool),
    String(String),
    Bytes(Vec<u8>),
}

/// One value, borrowed from a column.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant is the type it is named for")]
pub enum ValueRef<'a> {
    F64(f64),
    I64(i64),
    U64(u64),
    Bool(bool),
    String(&'a str),
    Bytes(&'a [u8]),
}

impl Value {
    /// The value, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::F64(v) => ValueRef::F64(*v),
            Value::I64(v) => ValueRef::I64(*v),
            Value::U64(v) => ValueRef::U64(*v),
            Value::Bool(v) => ValueRef::Bool(*v),
            Value::String(v) => ValueRef::String(v),
            Value::Bytes(v) => ValueRef::Bytes(v),
        }
    }
}

impl ValueRef<'_> {
    /// The type of the value.
    #[must_use]
    pub fn field_type(&self) -> FieldType {
        match self {
            ValueRef::F64(_) => FieldType::F64,
            ValueRef::I64(_) => FieldType::I64,
            ValueRef::U64(_) => FieldType::U64,
            ValueRef::Bool(_) => FieldType::Bool,
            ValueRef::String(_) => FieldType::String,
            ValueRef::Bytes(_) => FieldType::Bytes,
        }
    }

    /// An owned copy.
    #[must_use]
    pub fn to_owned(&self) -> Value {
        match self {
            ValueRef::F64(v) => Value::F64(*v),
            ValueRef::I64(v) => Value::I64(*v),
            ValueRef::U64(v) => Value::U64(*v),
            ValueRef::Bool(v) => Value::Bool(*v),
            ValueRef::String(v) => Value::String((*v).to_owned()),
            ValueRef::Bytes(v) => Value::Bytes((*v).to_vec()),
        }
    }

    /// Whether two values are equal bit for bit (`NaN` equals itself, `-0.0` differs from `0.0`).
    #[must_use]
    pub fn same_bits(&self, other: &ValueRef<'_>) -> bool {
        match (self, other) {
            (ValueRef::F64(a), ValueRef::F64(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        }
    }
}

impl From<f64> for Value {
    fn from(v: f64) -> Self {
        Value::F64(v)
    }
}
impl From<i64> for Value {
    fn from(v: i64) -> Self {
        Value::I64(v)
    }
}
impl From<u64> for Value {
    fn from(v: u64) -> Self {
        Value::U64(v)
    }
}
impl From<bool> for Value {
    fn from(v: bool) -> Self {
        Value::Bool(v)
    }
}
impl From<&str> for Value {
    fn from(v: &str) -> Self {
        Value::String(v.to_owned())
    }
}
impl From<String> for Value {
    fn from(v: String) -> Self {
        Value::String(v)
    }
}
impl From<Vec<u8>> for Value {
    fn from(v: Vec<u8>) -> Self {
        Value::Bytes(v)
    }
}
