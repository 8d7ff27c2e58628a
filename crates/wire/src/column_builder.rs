//! Columns during parsing, and the values that are appended to them.

use crate::escapes::unescape_string;
use crate::number;
use headwater_types::{Bitmap, Column, FieldType, Values};

/// A parsed value. A flat struct rather than an enum: copying an enum whose variants differ in
/// layout stalled the processor for half of the parsing time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParsedValue<'a> {
    field_type: FieldType,
    has_escapes: bool,
    /// The bits of a number or a boolean.
    bits: u64,
    /// A string, or bytes in base 16.
    raw: &'a str,
}

impl<'a> ParsedValue<'a> {
    /// A number or a boolean by its bits: the bits of the float or of the integer, or 0 and 1.
    #[inline]
    pub(crate) fn plain(field_type: FieldType, bits: u64) -> ParsedValue<'static> {
        ParsedValue {
            field_type,
            has_escapes: false,
            bits,
            raw: "",
        }
    }

    /// A string; `has_escapes` when backslashes of line protocol are in it.
    pub(crate) fn text(raw: &'a str, has_escapes: bool) -> ParsedValue<'a> {
        ParsedValue {
            field_type: FieldType::String,
            has_escapes,
            bits: 0,
            raw,
        }
    }

    /// Bytes as base-16 digits, which the caller has checked with [`is_base16`].
    pub(crate) fn base16(digits: &'a str) -> ParsedValue<'a> {
        ParsedValue {
            field_type: FieldType::Bytes,
            has_escapes: false,
            bits: 0,
            raw: digits,
        }
    }

    #[inline]
    pub(crate) fn field_type(self) -> FieldType {
        self.field_type
    }

    #[inline]
    fn as_i64(self) -> i64 {
        self.bits as i64
    }

    /// True for an integer that `f64` represents exactly.
    pub(crate) fn is_exact_in_f64(self) -> bool {
        self.field_type == FieldType::I64 && number::is_exact_in_f64(self.as_i64())
    }
}

/// A column being filled. Like [`Column`], with its hot paths in sight of the compiler.
///
/// Invariant: `presence`, when there, has as many bits as `values` has slots.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    values: Values,
    presence: Option<Bitmap>,
}

impl ColumnBuilder {
    pub(crate) fn new(field_type: FieldType, rows: usize) -> ColumnBuilder {
        let values = match field_type {
            FieldType::F64 => Values::F64(Vec::with_capacity(rows)),
            FieldType::I64 => Values::I64(Vec::with_capacity(rows)),
            FieldType::U64 => Values::U64(Vec::with_capacity(rows)),
            FieldType::Bool => Values::Bool(Vec::with_capacity(rows)),
            other => Values::new(other),
        };
        ColumnBuilder {
            values,
            presence: None,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match &self.values {
            Values::F64(v) => v.len(),
            Values::I64(v) => v.len(),
            Values::U64(v) => v.len(),
            Values::Bool(v) => v.len(),
            Values::String(v) | Values::Bytes(v) => v.len(),
        }
    }

    #[inline]
    pub(crate) fn field_type(&self) -> FieldType {
        match self.values {
            Values::F64(_) => FieldType::F64,
            Values::I64(_) => FieldType::I64,
            Values::U64(_) => FieldType::U64,
            Values::Bool(_) => FieldType::Bool,
            Values::String(_) => FieldType::String,
            Values::Bytes(_) => FieldType::Bytes,
        }
    }

    /// Fills up with absent rows until there are `rows`.
    #[inline]
    pub(crate) fn pad_to(&mut self, rows: usize) {
        if self.len() < rows {
            self.pad(rows);
        }
    }

    #[cold]
    fn pad(&mut self, rows: usize) {
        let len = self.len();
        self.presence
            .get_or_insert_with(|| Bitmap::filled(true, len))
            .push_many(false, rows - len);
        match &mut self.values {
            Values::F64(v) => v.resize(rows, 0.0),
            Values::I64(v) => v.resize(rows, 0),
            Values::U64(v) => v.resize(rows, 0),
            Values::Bool(v) => v.resize(rows, false),
            Values::String(v) | Values::Bytes(v) => (len..rows).for_each(|_| v.push(b"")),
        }
    }

    /// Appends a value of the column's type, or an integer to floats; the caller has checked that.
    #[inline]
    pub(crate) fn push(&mut self, found: ParsedValue<'_>, scratch: &mut Vec<u8>) {
        match &mut self.values {
            Values::F64(v) if found.field_type == FieldType::I64 => v.push(found.as_i64() as f64),
            Values::F64(v) => v.push(f64::from_bits(found.bits)),
            Values::I64(v) => v.push(found.as_i64()),
            Values::U64(v) => v.push(found.bits),
            Values::Bool(v) => v.push(found.bits != 0),
            Values::String(v) if found.has_escapes => {
                unescape_string(found.raw, scratch);
                v.push(scratch);
            }
            Values::String(v) => v.push(found.raw.as_bytes()),
            Values::Bytes(v) => {
                from_base16(found.raw, scratch);
                v.push(scratch);
            }
        }
        if let Some(bits) = &mut self.presence {
            bits.push(true);
        }
    }

    /// True when `f64` represents every integer exactly.
    pub(crate) fn is_exact_in_f64(&self) -> bool {
        match &self.values {
            Values::I64(values) => values.iter().all(|v| number::is_exact_in_f64(*v)),
            _ => false,
        }
    }

    /// Turns integers into floats.
    #[cold]
    pub(crate) fn widen_to_f64(&mut self) {
        if let Values::I64(v) = &self.values {
            self.values = Values::F64(v.iter().map(|x| *x as f64).collect());
        }
    }

    pub(crate) fn into_column(self) -> Column {
        // Only `str`s were pushed and the lengths agree, so this cannot fail.
        let field_type = self.field_type();
        Column::from_parts(self.values, self.presence).unwrap_or_else(|| Column::new(field_type))
    }
}

/// True for an even number of base-16 digits.
pub(crate) fn is_base16(digits: &str) -> bool {
    digits.len().is_multiple_of(2) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn from_base16(digits: &str, out: &mut Vec<u8>) {
    let digit = |b: u8| char::from(b).to_digit(16).unwrap_or(0) as u8;
    out.clear();
    for pair in digits.as_bytes().chunks_exact(2) {
        if let [high, low] = pair {
            out.push(digit(*high) << 4 | digit(*low));
        }
    }
}
