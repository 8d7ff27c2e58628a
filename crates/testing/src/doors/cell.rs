//! Values of fields.

/// A value.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A float.
    F64(f64),
    /// An integer.
    I64(i64),
    /// An integer without a sign.
    U64(u64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
}

impl Cell {
    pub(super) fn read(text: &str) -> Cell {
        let (kind, value) = text.split_once(':').unwrap();
        match kind {
            "f" => Cell::F64(value.parse().unwrap()),
            "i" => Cell::I64(value.parse().unwrap()),
            "u" => Cell::U64(value.parse().unwrap()),
            "b" => Cell::Bool(value.parse().unwrap()),
            "s" => Cell::Text(value.to_owned()),
            _ => panic!("tests/doors/cases.json: no value begins with `{kind}:`"),
        }
    }

    /// The name of the type of a field of such values.
    pub fn type_name(&self) -> &'static str {
        match self {
            Cell::F64(_) => "f64",
            Cell::I64(_) => "i64",
            Cell::U64(_) => "u64",
            Cell::Bool(_) => "bool",
            Cell::Text(_) => "string",
        }
    }

    /// The value to the last bit, with its type.
    pub(super) fn exact(&self) -> String {
        match self {
            Cell::F64(value) => format!("f64 {value:?} {:016x}", value.to_bits()),
            Cell::I64(value) => format!("i64 {value}"),
            Cell::U64(value) => format!("u64 {value}"),
            Cell::Bool(value) => format!("bool {value}"),
            Cell::Text(value) => format!("string {value:?}"),
        }
    }
}
