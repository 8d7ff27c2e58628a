//! Turns records into columns per stream.
//!
//! Invariants: a row is staged as a whole before any column changes; the type of a column changes
//! only from unknown to a type, and from inferred i64 to f64.

use super::error::CsvError;
use super::infer::{ColumnType, Votes};
use super::layout::Layout;
use super::options::CsvOptions;
use super::records::{Next, Records};
use super::streams::Streams;
use super::time::TimeFormat;
use crate::column_builder::{ParsedValue, is_base16};
use crate::number::{self, Shape, shape_of};
use crate::parsed_batch::ParsedBatch;
use crate::refusal::{Fault, RefusalCode, shown};
use csv::ByteRecord;
use headwater_types::{FieldType, StreamName};
use memchr::memchr;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::Read;

/// Maximum memory of the rows inspected for types.
const INSPECTED_BYTES_MAX: usize = 8 << 20;

/// Reads a CSV file batch by batch.
///
/// ```
/// use headwater_wire::csv::{CsvOptions, CsvParser};
/// let file = "time,station,temp\n2013-01-01T06:00:00Z,EWR,39.02\n2013-01-01T07:00:00Z,EWR,cold\n";
/// let mut options = CsvOptions::new("weather", "time");
/// options.tags = vec!["station".into()];
/// options.types = vec!["temp:f64".into()];
/// let mut parser = CsvParser::new(file.as_bytes(), options)?;
/// let parsed = parser.next_batch(1_000)?.unwrap();
/// assert_eq!(parsed.batch.row_count(), 1);
/// assert_eq!(parsed.refused[0].line, 3);
/// # Ok::<(), headwater_wire::csv::CsvError>(())
/// ```
pub struct CsvParser<R> {
    records: Records<R>,
    options: CsvOptions,
    layout: Layout,
    time_format: TimeFormat,
    kinds: Vec<ColumnType>,
    streams: Streams,
    /// Read to infer types, not yet parsed.
    inspected: VecDeque<(Next, ByteRecord)>,
    record: ByteRecord,
    scratch: Vec<u8>,
    suspects: Vec<(String, String)>,
    lines_reported: u64,
    is_at_end: bool,
}

impl<R: Read> CsvParser<R> {
    /// Reads the header and the first rows, and determines the role of each column.
    ///
    /// # Errors
    /// When the input cannot be read, the header is malformed, or the options do not match it.
    pub fn new(input: R, options: CsvOptions) -> Result<CsvParser<R>, CsvError> {
        if options.decimal_comma && options.delimiter == b',' {
            return Err(CsvError::CommaTwice);
        }
        let mut records = Records::new(
            input,
            options.delimiter,
            options.record_bytes_max,
            options.skip_lines,
        )?;
        let headers = match &options.names {
            Some(names) => names.clone(),
            None => read_header(&mut records, options.record_bytes_max)?,
        };
        let mut layout = Layout::new(&headers, &options)?;
        let mut parser = CsvParser {
            records,
            kinds: layout
                .fields
                .iter()
                .map(|f| f.declared.map_or(ColumnType::Unknown, ColumnType::Declared))
                .collect(),
            time_format: layout.time_format.take().unwrap_or(TimeFormat::Rfc3339),
            streams: Streams::default(),
            inspected: VecDeque::new(),
            record: ByteRecord::new(),
            scratch: Vec::new(),
            suspects: Vec::new(),
            lines_reported: 0,
            is_at_end: false,
            layout,
            options,
        };
        let names_format = parser.names_time_format();
        if !names_format || parser.kinds.contains(&ColumnType::Unknown) {
            parser.inspect()?;
            parser.infer_kinds();
        }
        if !names_format {
            parser.infer_time_format()?;
        }
        Ok(parser)
    }

    /// Names and types of the fields, where already determined.
    pub fn fields(&self) -> impl Iterator<Item = (&str, Option<FieldType>)> {
        self.layout
            .fields
            .iter()
            .zip(&self.kinds)
            .map(|(field, kind)| match kind {
                ColumnType::Declared(t) | ColumnType::Inferred(t) | ColumnType::Existing(t) => {
                    (field.name.as_str(), Some(*t))
                }
                ColumnType::Unknown => (field.name.as_str(), None),
            })
    }

    /// Columns that would be numeric except for one text, which then probably means absent: column
    /// and text.
    pub fn suspects(&self) -> impl Iterator<Item = (&str, &str)> {
        self.suspects
            .iter()
            .map(|(column, text)| (column.as_str(), text.as_str()))
    }

    /// Format of the time column, declared or inferred.
    #[must_use]
    pub fn time_format(&self) -> &TimeFormat {
        &self.time_format
    }

    /// Parses up to `rows_max` rows; `None` at the end of the input.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub fn next_batch(&mut self, rows_max: usize) -> Result<Option<ParsedBatch>, CsvError> {
        if self.is_at_end {
            return Ok(None);
        }
        let mut parsed = ParsedBatch::default();
        let mut record = std::mem::take(&mut self.record);
        let mut bytes_read = 0;
        let mut rows = 0;
        while rows < rows_max.max(1) && bytes_read < self.options.batch_bytes_max {
            let next = match self.inspected.pop_front() {
                Some((next, inspected)) => {
                    record = inspected;
                    next
                }
                None => self
                    .records
                    .next(&mut record, Some(self.layout.cell_count))?,
            };
            match next {
                Next::Record { line, bytes } => {
                    bytes_read += bytes;
                    rows += 1;
                    match self.row(&record, line) {
                        Ok(true) => {}
                        Ok(false) => parsed.empty_rows += 1,
                        Err(fault) => {
                            parsed.refuse(line, fault, &joined(&record, self.options.delimiter));
                        }
                    }
                }
                Next::Refused {
                    line,
                    fault,
                    original,
                } => {
                    bytes_read += original.len();
                    parsed.refuse(line, fault, &original);
                }
                Next::End => {
                    self.is_at_end = true;
                    break;
                }
            }
        }
        self.record = record;
        let fields = &self.layout.fields;
        self.streams.take_rows(
            |field| fields.get(field).map_or("", |f| f.name.as_str()),
            self.options.cached_name_bytes_max,
            &mut parsed,
        );
        let passed = self.records.lines_passed();
        parsed.line_count = passed - self.lines_reported;
        self.lines_reported = passed;
        if self.is_at_end && parsed.is_empty() {
            return Ok(None);
        }
        Ok(Some(parsed))
    }

    fn names_time_format(&self) -> bool {
        self.options.time.len() > self.layout.time.name.len()
    }

    /// Reads the first rows without parsing them.
    fn inspect(&mut self) -> Result<(), CsvError> {
        let mut bytes_held = 0;
        while self.inspected.len() < self.options.rows_inspected && bytes_held < INSPECTED_BYTES_MAX
        {
            let mut record = ByteRecord::new();
            let next = self
                .records
                .next(&mut record, Some(self.layout.cell_count))?;
            let is_end = matches!(next, Next::End);
            bytes_held += record.as_slice().len() + record.len() * 16 + 100;
            self.inspected.push_back((next, record));
            if is_end {
                break;
            }
        }
        Ok(())
    }

    fn infer_kinds(&mut self) {
        let mut votes: Vec<Votes> = self
            .layout
            .fields
            .iter()
            .map(|_| Votes::default())
            .collect();
        for (_, record) in self
            .inspected
            .iter()
            .filter(|(next, _)| matches!(next, Next::Record { .. }))
        {
            for (field, votes) in self.layout.fields.iter().zip(&mut votes) {
                let cell = record.get(field.cell).unwrap_or_default();
                if !cell.is_empty() && !self.is_null_text(cell) {
                    match self.number_of(cell) {
                        Some(number) => votes.add(&number),
                        None => votes.add_text(cell),
                    }
                }
            }
        }
        for ((kind, field), votes) in self.kinds.iter_mut().zip(&self.layout.fields).zip(votes) {
            if *kind == ColumnType::Unknown {
                *kind = votes.kind();
                let mut known = self.options.known_types.iter();
                if let Some((_, known)) = known.find(|(name, _)| *name == field.name) {
                    *kind = kind.in_table(*known);
                }
                let text = votes.lone_text().map(str::to_owned);
                if *kind == ColumnType::Inferred(FieldType::String) {
                    self.suspects
                        .extend(text.map(|text| (field.name.clone(), text)));
                }
            }
        }
    }

    fn infer_time_format(&mut self) -> Result<(), CsvError> {
        let cells = || {
            self.inspected
                .iter()
                .filter(|(next, _)| matches!(next, Next::Record { .. }))
                .filter_map(|(_, record)| record.get(self.layout.time.cell))
                .filter(|cell| !cell.trim_ascii().is_empty())
        };
        let found = cells()
            .find_map(|cell| TimeFormat::of_value(std::str::from_utf8(cell).ok()?.trim_ascii()));
        match (found, cells().next()) {
            (Some(format), _) => self.time_format = format,
            (None, None) => {}
            (None, Some(first)) => {
                return Err(CsvError::TimeUnclear {
                    column: self.layout.time.name.clone(),
                    example: shown(first),
                });
            }
        }
        Ok(())
    }

    fn is_null_text(&self, cell: &[u8]) -> bool {
        self.options
            .null_texts
            .iter()
            .any(|text| text.as_bytes() == cell)
    }

    /// Stores a row, or refuses it without a change. False when the row has no value.
    fn row(&mut self, record: &ByteRecord, line: u64) -> Result<bool, Fault> {
        let time_cell = record.get(self.layout.time.cell).unwrap_or_default();
        let time_text = std::str::from_utf8(time_cell)
            .map_err(|_| not_utf8(&self.layout.time.name, time_cell))?;
        let time_ns = self.time_format.read(time_text)?.as_nanos();
        let mut values: Vec<(usize, ParsedValue<'_>)> = Vec::with_capacity(self.kinds.len());
        let mut widened = Vec::new();
        for (index, (field, kind)) in self.layout.fields.iter().zip(&self.kinds).enumerate() {
            let cell = record.get(field.cell).unwrap_or_default();
            if self.is_null_text(cell) {
                continue;
            }
            if cell.is_empty() && !self.empty_is_a_value(*kind) {
                continue;
            }
            let found = self.value(*kind, cell, &field.name)?;
            if *kind == ColumnType::Inferred(FieldType::I64) && found.field_type() == FieldType::F64
            {
                widened.push(index);
            }
            values.push((index, found));
        }
        for index in &widened {
            if !self.streams.is_exact_in_f64(*index) {
                return Err(self.cannot_widen(*index));
            }
        }
        let stream = self.stream(record)?;
        if values.is_empty() {
            return Ok(false);
        }
        for index in widened {
            self.streams.widen_to_f64(index);
            if let Some(kind) = self.kinds.get_mut(index) {
                *kind = ColumnType::Inferred(FieldType::F64);
            }
        }
        for (index, found) in &values {
            if let Some(kind) = self.kinds.get_mut(*index)
                && *kind == ColumnType::Unknown
            {
                *kind = ColumnType::Inferred(found.field_type());
            }
        }
        self.streams
            .add_row(stream, time_ns, line, &values, &mut self.scratch);
        Ok(true)
    }

    /// A cell as a value of its column, or as a float where previous cells were integers.
    fn value<'r>(
        &self,
        kind: ColumnType,
        cell: &'r [u8],
        name: &str,
    ) -> Result<ParsedValue<'r>, Fault> {
        match kind {
            ColumnType::Inferred(FieldType::String)
            | ColumnType::Declared(FieldType::String)
            | ColumnType::Existing(FieldType::String) => return self.string(cell, name),
            ColumnType::Declared(FieldType::Bytes) | ColumnType::Existing(FieldType::Bytes) => {
                return declared_bytes(cell, name);
            }
            _ => {}
        }
        let Some(number) = self.number_of(cell) else {
            // A number with the other decimal separator is not a number.
            return match kind {
                ColumnType::Unknown => self.string(cell, name),
                _ => Err(with_a_point(name, cell)),
            };
        };
        match kind {
            ColumnType::Inferred(FieldType::I64) => match inferred_i64(&number) {
                Some(found) => Ok(found),
                None => inferred(FieldType::F64, &number, name, FieldType::I64),
            },
            ColumnType::Inferred(field_type) => inferred(field_type, &number, name, field_type),
            ColumnType::Declared(field_type) => number_of_type(field_type, &number, name),
            ColumnType::Existing(field_type) => number_of_type(field_type, &number, name)
                .map_err(|fault| in_table(fault, field_type, &number, name)),
            ColumnType::Unknown => match first_of_column(&number) {
                Some(found) => Ok(found),
                None => self.string(cell, name),
            },
        }
    }

    /// A cell with a decimal point in place of its comma, where the file has commas. `None` for a
    /// number that is written with a point though the file has commas.
    fn number_of<'r>(&self, cell: &'r [u8]) -> Option<Cow<'r, [u8]>> {
        if !self.options.decimal_comma {
            return Some(Cow::Borrowed(cell));
        }
        let is_number =
            |cell: &[u8]| !matches!(shape_of(cell.trim_ascii()), Shape::Text | Shape::Bool(_));
        let Some(comma) = memchr(b',', cell) else {
            let has_point = memchr(b'.', cell).is_some();
            return (!has_point || !is_number(cell)).then_some(Cow::Borrowed(cell));
        };
        let mut number = cell.to_vec();
        if let Some(mark) = number.get_mut(comma) {
            *mark = b'.';
        }
        match is_number(&number) {
            true => Some(Cow::Owned(number)),
            false => Some(Cow::Borrowed(cell)),
        }
    }

    fn empty_is_a_value(&self, kind: ColumnType) -> bool {
        !self.options.null_texts.is_empty()
            && matches!(
                kind,
                ColumnType::Inferred(FieldType::String) | ColumnType::Declared(FieldType::String)
            )
    }

    fn string<'r>(&self, cell: &'r [u8], name: &str) -> Result<ParsedValue<'r>, Fault> {
        if cell.len() > self.options.string_bytes_max {
            return Err(Fault::new(
                RefusalCode::LimitString,
                format!(
                    "column `{name}` has a string of {} bytes; at most {} are allowed",
                    cell.len(),
                    self.options.string_bytes_max
                ),
            ));
        }
        let text = std::str::from_utf8(cell).map_err(|_| not_utf8(name, cell))?;
        Ok(ParsedValue::text(text, false))
    }

    fn stream(&mut self, record: &ByteRecord) -> Result<usize, Fault> {
        let tags = &self.layout.tags;
        let options = &self.options;
        self.streams.find(record, tags.iter().map(|t| t.cell), || {
            let mut named = Vec::with_capacity(tags.len());
            for tag in tags {
                let cell = record.get(tag.cell).unwrap_or_default();
                let value = std::str::from_utf8(cell).map_err(|_| not_utf8(&tag.name, cell))?;
                if !value.is_empty() && !options.null_texts.iter().any(|t| t == value) {
                    named.push((tag.name.clone(), value.to_owned()));
                }
            }
            Ok(StreamName::new(options.table.clone(), named))
        })
    }

    fn cannot_widen(&self, index: usize) -> Fault {
        let name = self
            .layout
            .fields
            .get(index)
            .map_or("", |f| f.name.as_str());
        Fault::new(
            RefusalCode::Type,
            format!(
                "column `{name}` had integers with too many digits for an f64, found a number with a decimal point; declare it with --field '{name}:string' or --field '{name}:f64'"
            ),
        )
    }
}

fn read_header<R: Read>(
    records: &mut Records<R>,
    record_bytes_max: usize,
) -> Result<Vec<String>, CsvError> {
    let mut record = ByteRecord::new();
    match records.next(&mut record, None)? {
        Next::End => Err(CsvError::Empty),
        Next::Refused { .. } => Err(CsvError::HeaderTooLong(record_bytes_max)),
        Next::Record { .. } => record
            .iter()
            .map(|cell| String::from_utf8(cell.to_vec()).map_err(|_| CsvError::HeaderNotUtf8))
            .collect(),
    }
}

#[cold]
fn with_a_point(name: &str, cell: &[u8]) -> Fault {
    Fault::new(
        RefusalCode::Type,
        format!(
            "column `{name}` has {}, with a point; numbers of this file are declared to have decimal commas, and a point may separate thousands: correct the row or declare the column string",
            shown(cell)
        ),
    )
}

/// A cell of a column that was declared with a type other than text.
fn number_of_type(
    field_type: FieldType,
    cell: &[u8],
    name: &str,
) -> Result<ParsedValue<'static>, Fault> {
    let bits = declared_bits(field_type, cell);
    bits.map(|bits| ParsedValue::plain(field_type, bits))
        .ok_or_else(|| not_of_type(field_type, cell, name))
}

#[inline]
fn inferred_i64(cell: &[u8]) -> Option<ParsedValue<'static>> {
    match shape_of(cell.trim_ascii()) {
        Shape::I64(value) => Some(ParsedValue::plain(FieldType::I64, value as u64)),
        _ => None,
    }
}

/// A cell as a value of `wanted`, for a column that looked like `seen` so far.
#[inline]
fn inferred(
    wanted: FieldType,
    cell: &[u8],
    name: &str,
    seen: FieldType,
) -> Result<ParsedValue<'static>, Fault> {
    let text = cell.trim_ascii();
    let bits = match (wanted, shape_of(text)) {
        (FieldType::F64, Shape::F64(v) | Shape::NotFinite(v)) => v.to_bits(),
        (FieldType::F64, Shape::I64(v)) if seen == FieldType::F64 => (v as f64).to_bits(),
        (FieldType::F64, Shape::U64(v)) if seen == FieldType::F64 => (v as f64).to_bits(),
        (FieldType::U64, Shape::U64(v)) => v,
        (FieldType::U64, Shape::I64(v)) if v >= 0 => v.unsigned_abs(),
        (FieldType::Bool, Shape::Bool(v)) => u64::from(v),
        _ => {
            return Err(Fault::new(
                RefusalCode::Type,
                format!(
                    "column `{name}` looked like {seen} in the rows before, found {}; declare its type with --field '{name}:string', or --type '{name}:string' to keep all other columns too",
                    shown(cell)
                ),
            ));
        }
    };
    Ok(ParsedValue::plain(wanted, bits))
}

/// Fault of a cell whose type differs from the type of its field in the table.
fn in_table(fault: Fault, known: FieldType, cell: &[u8], name: &str) -> Fault {
    match shape_of(cell.trim_ascii()) {
        Shape::Text => Fault::new(
            RefusalCode::Type,
            format!(
                "column `{name}` is {known} in the table, found {}; give --null with this text if it stands for an absent value, or store the column under another name with --names",
                shown(cell)
            ),
        ),
        _ => fault,
    }
}

/// A value of a column without any so far; `None` for text.
fn first_of_column(cell: &[u8]) -> Option<ParsedValue<'static>> {
    Some(match shape_of(cell.trim_ascii()) {
        Shape::I64(v) => ParsedValue::plain(FieldType::I64, v as u64),
        Shape::U64(v) => ParsedValue::plain(FieldType::U64, v),
        Shape::F64(v) | Shape::NotFinite(v) => ParsedValue::plain(FieldType::F64, v.to_bits()),
        Shape::Bool(v) => ParsedValue::plain(FieldType::Bool, u64::from(v)),
        Shape::Text => return None,
    })
}

/// A cell of a column that was declared as bytes.
fn declared_bytes<'r>(cell: &'r [u8], name: &str) -> Result<ParsedValue<'r>, Fault> {
    let digits = std::str::from_utf8(cell.trim_ascii())
        .ok()
        .and_then(|t| t.strip_prefix("0x").or_else(|| t.strip_prefix("0X")));
    match digits.filter(|digits| is_base16(digits)) {
        Some(digits) => Ok(ParsedValue::base16(digits)),
        None => Err(not_of_type(FieldType::Bytes, cell, name)),
    }
}

/// A cell of a column with a declared type other than text: more spellings are accepted.
fn declared_bits(field_type: FieldType, cell: &[u8]) -> Option<u64> {
    let text = cell.trim_ascii();
    let whole = || match number::scan(text) {
        Some((number, [])) => Some(number),
        _ => None,
    };
    match field_type {
        FieldType::F64 => whole()
            .and_then(number::Scanned::to_f64)
            .or_else(|| number::not_finite(text))
            .map(f64::to_bits),
        FieldType::I64 => whole().and_then(number::Scanned::to_i64).map(|v| v as u64),
        FieldType::U64 => whole().and_then(number::Scanned::to_u64),
        FieldType::Bool => match text {
            b"true" | b"True" | b"TRUE" | b"t" | b"T" | b"1" => Some(1),
            b"false" | b"False" | b"FALSE" | b"f" | b"F" | b"0" => Some(0),
            _ => None,
        },
        FieldType::String | FieldType::Bytes => None,
    }
}

#[cold]
fn not_of_type(field_type: FieldType, cell: &[u8], name: &str) -> Fault {
    let expected = match field_type {
        FieldType::F64 => "a number",
        FieldType::I64 => "an integer from -9223372036854775808 to 9223372036854775807",
        FieldType::U64 => "an integer from 0 to 18446744073709551615",
        FieldType::Bool => "true or false",
        FieldType::String => "text",
        FieldType::Bytes => "0x and an even number of base-16 digits",
    };
    let advice = match shape_of(cell.trim_ascii()) {
        Shape::F64(_) if field_type == FieldType::I64 => FieldType::F64,
        _ => FieldType::String,
    };
    Fault::new(
        RefusalCode::Type,
        format!(
            "column `{name}` is declared {field_type}: expected {expected}, found {}; correct the row or declare it {advice}",
            shown(cell)
        ),
    )
}

#[cold]
fn not_utf8(name: &str, cell: &[u8]) -> Fault {
    Fault::new(
        RefusalCode::Utf8,
        format!(
            "column `{name}` is not UTF-8: {}; convert the file to UTF-8",
            shown(cell)
        ),
    )
}

/// The record as text again, without its quotes.
fn joined(record: &ByteRecord, delimiter: u8) -> Vec<u8> {
    let cells: Vec<&[u8]> = record.iter().collect();
    cells.join(&delimiter)
}
