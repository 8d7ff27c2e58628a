//! Parquet files and Arrow streams as a sequence of parsed batches.
//!
//! Invariants: a column becomes a field of one type, chosen from the schema before anything is
//! read; a value that does not fit its type exactly refuses its row, by number, and no other;
//! batches hold about as many bytes as those of text.

use super::Import;
use crate::failure::Failure;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchReader};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, Schema, TimeUnit, TimestampNanosecondType, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use headwater::{Column, FieldType, StreamName, StreamRows, ValueRef};
use headwater_columnar::{Cells, TimeText, field_data_type, type_name};
use headwater_wire::csv::TimeFormat;
use headwater_wire::{Fault, ParsedBatch, RefusalCode};
use indicatif::ProgressBar;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows read together at most.
const ROWS_MAX: usize = 16_384;
/// Rows read together at least, however wide they are.
const ROWS_MIN: usize = 64;

/// Reads one file.
pub(super) struct Batches {
    reader: Box<dyn RecordBatchReader + Send>,
    file: String,
    layout: Layout,
    /// A batch that was too large to be handed on at once, and the row it goes on at.
    remainder: Option<(RecordBatch, usize)>,
    batch_bytes: usize,
    /// Rows read before the next one.
    rows: u64,
    /// Moves the bar: for rows of a file whose length is known.
    progress: Option<Progress>,
}

struct Progress {
    bar: ProgressBar,
    file_bytes: u64,
    rows: u64,
    read: Arc<AtomicU64>,
}

/// Roles of the columns.
struct Layout {
    table: String,
    time: TimeColumn,
    tags: Vec<(usize, String)>,
    fields: Vec<FieldColumn>,
}

struct TimeColumn {
    index: usize,
    name: String,
    /// `None`: the column holds timestamps or dates.
    format: Option<TimeFormat>,
}

struct FieldColumn {
    index: usize,
    name: String,
    field_type: FieldType,
}

impl Batches {
    pub(super) fn parquet(
        import: &Import,
        path: &Path,
        bar: ProgressBar,
        read: Arc<AtomicU64>,
        batch_bytes: usize,
    ) -> Result<Batches, Failure> {
        if path == Path::new("-") {
            return Err(Failure::usage(
                "Parquet is read from its end: name a file instead of -",
            ));
        }
        let file = path.display().to_string();
        let failed =
            |error: &dyn std::fmt::Display| Failure::failed(format!("cannot read {file}: {error}"));
        let opened = File::open(path).map_err(|e| failed(&e))?;
        let file_bytes = opened.metadata().map_err(|e| failed(&e))?.len();
        let builder = ParquetRecordBatchReaderBuilder::try_new(opened).map_err(|e| failed(&e))?;
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let width = builder.schema().fields().len().max(1);
        let at_once = (batch_bytes / (16 * width)).clamp(ROWS_MIN, ROWS_MAX);
        let reader = builder
            .with_batch_size(at_once)
            .build()
            .map_err(|e| failed(&e))?;
        let mut batches = Batches::new(import, file, Box::new(reader), batch_bytes)?;
        batches.progress = Some(Progress {
            bar,
            file_bytes,
            rows,
            read,
        });
        Ok(batches)
    }

    pub(super) fn arrow(
        import: &Import,
        file: String,
        input: Box<dyn Read + Send>,
        batch_bytes: usize,
    ) -> Result<Batches, Failure> {
        let reader = StreamReader::try_new(input, None)
            .map_err(|error| Failure::failed(format!("cannot read {file}: {error}")))?;
        Batches::new(import, file, Box::new(reader), batch_bytes)
    }

    fn new(
        import: &Import,
        file: String,
        reader: Box<dyn RecordBatchReader + Send>,
        batch_bytes: usize,
    ) -> Result<Batches, Failure> {
        let layout = Layout::new(import, &reader.schema())
            .map_err(|reason| Failure::usage(format!("{file}: {reason}")))?;
        Ok(Batches {
            reader,
            file,
            layout,
            remainder: None,
            batch_bytes,
            rows: 0,
            progress: None,
        })
    }

    /// The fields and their types.
    pub(super) fn fields(&self) -> Vec<(String, Option<FieldType>)> {
        let fields = self.layout.fields.iter();
        fields
            .map(|f| (f.name.clone(), Some(f.field_type)))
            .collect()
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<ParsedBatch>, Failure> {
        let (batch, from) = match self.remainder.take() {
            Some(rest) => rest,
            None => match self.reader.next() {
                None => return Ok(None),
                Some(Ok(batch)) => (batch, 0),
                Some(Err(error)) => return Err(self.failed(&error)),
            },
        };
        // As many rows as fit, going by the bytes of all of them.
        let bytes = batch.get_array_memory_size().max(1);
        let fitting =
            (batch.num_rows() as u128 * self.batch_bytes as u128 / bytes as u128) as usize;
        let count = fitting.max(1).min(batch.num_rows() - from);
        let part = batch.slice(from, count);
        let before = self.rows;
        self.rows += count as u64;
        if from + count < batch.num_rows() {
            self.remainder = Some((batch, from + count));
        }
        if let Some(progress) = &self.progress
            && progress.rows > 0
        {
            let share = |rows: u64| {
                (u128::from(progress.file_bytes) * u128::from(rows) / u128::from(progress.rows))
                    as u64
            };
            let more = share(self.rows) - share(before);
            progress.bar.inc(more);
            progress.read.fetch_add(more, Ordering::Relaxed);
        }
        let parsed = self.layout.parse(&part, before);
        parsed.map(Some).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &ArrowError) -> Failure {
        Failure::failed(format!("cannot read {}: {error}", self.file))
    }
}

impl Layout {
    /// Reads the mapping, written as for CSV; the error says what is wrong with it.
    fn new(import: &Import, schema: &Schema) -> Result<Layout, String> {
        let time = TimeColumn::new(import.time.as_deref().unwrap_or_default(), schema)?;
        let tags = tags(import, schema)?;
        let mut types = DeclaredTypes::of(import, schema)?;
        let mut chosen = types.chosen(import, schema)?;
        if import.fields.is_empty() {
            let is_taken =
                |column: usize| column == time.index || tags.iter().any(|(c, _)| *c == column);
            chosen = (0..schema.fields().len())
                .filter(|c| !is_taken(*c))
                .collect();
        }
        let fields = types.fields(&chosen, schema)?;
        if fields.is_empty() {
            return Err(format!(
                "no column is left to store; there are: {}",
                names(schema)
            ));
        }
        Ok(Layout {
            table: import.table.clone().unwrap_or_default(),
            time,
            tags,
            fields,
        })
    }

    /// The rows of a batch by stream. `before` is the number of rows before the first.
    fn parse(&self, batch: &RecordBatch, before: u64) -> Result<ParsedBatch, ArrowError> {
        let mut parsed = ParsedBatch {
            line_count: batch.num_rows() as u64,
            ..ParsedBatch::default()
        };
        let times = self.time.read(batch.column(self.time.index))?;
        let tags: Vec<ArrayRef> = self
            .tags
            .iter()
            .map(|(column, _)| cast(batch.column(*column), &DataType::Utf8))
            .collect::<Result<_, _>>()?;
        let fields: Vec<(ArrayRef, &ArrayRef)> = self
            .fields
            .iter()
            .map(|field| {
                let given = batch.column(field.index);
                Ok((cast_to(given, field.field_type)?, given))
            })
            .collect::<Result<_, ArrowError>>()?;
        let mut names: HashMap<Vec<Option<&str>>, usize> = HashMap::new();
        let mut key: Vec<Option<&str>> = Vec::new();
        let mut rows: Vec<(StreamRows, Vec<u64>)> = Vec::new();
        let mut last: Option<(Vec<Option<&str>>, usize)> = None;
        for (row, time) in times.into_iter().enumerate() {
            let number = before + row as u64 + 1;
            let time = match time {
                Ok(time) => time,
                Err(fault) => {
                    parsed.refuse(number, fault, b"");
                    continue;
                }
            };
            // Arrow's cast leaves out what does not fit.
            let lost = fields
                .iter()
                .zip(&self.fields)
                .find(|((read, given), _)| read.is_null(row) && !given.is_null(row));
            if let Some(((_, given), field)) = lost {
                let shown = Cells::of(given)?.text(row, TimeText::Rfc3339);
                let message = format!(
                    "`{shown}` in column `{}` is not of type {}",
                    field.name, field.field_type
                );
                let code = RefusalCode::Type;
                parsed.refuse(number, Fault { code, message }, b"");
                continue;
            }
            if fields.iter().all(|(read, _)| read.is_null(row)) {
                parsed.empty_rows += 1;
                continue;
            }
            key.clear();
            key.extend(tags.iter().map(|tag| {
                let tag = tag.as_string::<i32>();
                (!tag.is_null(row))
                    .then(|| tag.value(row))
                    .filter(|text| !text.is_empty())
            }));
            let at = match &last {
                Some((known, at)) if *known == key => *at,
                _ => {
                    let at = *names.entry(key.clone()).or_insert_with(|| {
                        rows.push((self.stream(&key), Vec::new()));
                        rows.len() - 1
                    });
                    last = Some((key.clone(), at));
                    at
                }
            };
            let Some((stream, numbers)) = rows.get_mut(at) else {
                continue;
            };
            stream.times.push(time);
            numbers.push(number);
            for ((_, column), (read, _)) in stream.fields.iter_mut().zip(&fields) {
                push(column, read, row);
            }
        }
        for (stream, numbers) in rows {
            parsed.batch.push(stream);
            parsed.lines.push(numbers);
        }
        Ok(parsed)
    }

    /// No rows yet of the stream with these values of the tags.
    fn stream(&self, values: &[Option<&str>]) -> StreamRows {
        let tags = self
            .tags
            .iter()
            .zip(values)
            .filter_map(|((_, tag), value)| Some((tag.clone(), (*value)?.to_owned())));
        let mut rows = StreamRows::new(StreamName::new(self.table.clone(), tags));
        let fields = self.fields.iter();
        rows.fields = fields
            .map(|f| (f.name.clone(), Column::new(f.field_type)))
            .collect();
        rows
    }
}

/// Finds the columns that name devices.
fn tags(import: &Import, schema: &Schema) -> Result<Vec<(usize, String)>, String> {
    let mut tags = Vec::new();
    for tag in &import.tags {
        let (column, None) = find(schema, "--tag", tag)? else {
            return Err(missing(schema, "--tag", tag));
        };
        let data_type = schema.field(column).data_type();
        if !["string", "i64", "u64", "bool"].contains(&type_name(data_type)) {
            return Err(format!(
                "--tag {tag}: a column of type {data_type} cannot be a tag"
            ));
        }
        tags.push((column, tag.clone()));
    }
    Ok(tags)
}

/// Types of fields that are given, by column.
#[derive(Default)]
struct DeclaredTypes(HashMap<usize, FieldType>);

impl DeclaredTypes {
    /// Reads the types given by `--type`.
    fn of(import: &Import, schema: &Schema) -> Result<DeclaredTypes, String> {
        let mut types = DeclaredTypes::default();
        for text in &import.types {
            match find(schema, "--type", text)? {
                (column, Some(given)) => types.declare(column, text, given)?,
                (_, None) => return Err(format!("--type {text}: expected COLUMN:TYPE")),
            }
        }
        Ok(types)
    }

    /// Gives a column the type of this name.
    fn declare(&mut self, column: usize, text: &str, given: &str) -> Result<(), String> {
        let known = FieldType::from_name(given);
        let wrong = || {
            format!("{text}: `{given}` is not a type; there are f64, i64, u64, bool, string, bytes")
        };
        self.0.insert(column, known.ok_or_else(wrong)?);
        Ok(())
    }

    /// Reads the columns chosen by `--field`, and the types given with them.
    fn chosen(&mut self, import: &Import, schema: &Schema) -> Result<Vec<usize>, String> {
        let mut chosen = Vec::new();
        for text in &import.fields {
            let (column, given) = find(schema, "--field", text)?;
            if chosen.contains(&column) {
                return Err(format!("--field {text}: the column is given twice"));
            }
            if let Some(given) = given {
                self.declare(column, text, given)?;
            }
            chosen.push(column);
        }
        Ok(chosen)
    }

    /// Makes fields of columns, each of its given type or of its own.
    fn fields(&self, chosen: &[usize], schema: &Schema) -> Result<Vec<FieldColumn>, String> {
        let mut fields = Vec::new();
        for column in chosen {
            let field = schema.field(*column);
            let declared = self.0.get(column).copied();
            let field_type = match declared.or_else(|| own_type(field.data_type())) {
                Some(field_type) => field_type,
                // A column without any value has none to store.
                None if matches!(field.data_type(), DataType::Null) => continue,
                None => {
                    return Err(format!(
                        "values of type {} cannot be stored as they are: choose a type with --type '{}:string' (or i64, f64), or choose the columns with --field",
                        field.data_type(),
                        field.name()
                    ));
                }
            };
            fields.push(FieldColumn {
                index: *column,
                name: field.name().clone(),
                field_type,
            });
        }
        Ok(fields)
    }
}

impl TimeColumn {
    /// Reads the column of times and their format, as `--time` gives them.
    fn new(time: &str, schema: &Schema) -> Result<TimeColumn, String> {
        let (index, format) = find(schema, "--time", time)?;
        let format = match (schema.field(index).data_type(), format) {
            (DataType::Timestamp(..) | DataType::Date32 | DataType::Date64, None) => None,
            (DataType::Timestamp(..) | DataType::Date32 | DataType::Date64, Some(format)) => {
                return Err(format!(
                    "--time {time}: the column has timestamps, which need no format `{format}`"
                ));
            }
            (data_type, None) if type_name(data_type) == "string" => Some(TimeFormat::Rfc3339),
            (data_type, Some(format))
                if ["string", "i64", "u64", "f64"].contains(&type_name(data_type)) =>
            {
                Some(TimeFormat::parse(format).map_err(|error| error.to_string())?)
            }
            (data_type, None) if ["i64", "u64", "f64"].contains(&type_name(data_type)) => {
                return Err(format!(
                    "--time {time}: the column has numbers: give their unit, as in --time {time}:ms"
                ));
            }
            (data_type, _) => {
                return Err(format!(
                    "--time {time}: a column of type {data_type} cannot be the time"
                ));
            }
        };
        Ok(TimeColumn {
            index,
            name: schema.field(index).name().clone(),
            format,
        })
    }

    /// The instants of a column, in nanoseconds.
    fn read(&self, array: &ArrayRef) -> Result<Vec<Result<i64, Fault>>, ArrowError> {
        let fault = |message: String| Fault {
            code: RefusalCode::Time,
            message,
        };
        let absent = || fault(format!("column `{}` has no time", self.name));
        let Some(format) = &self.format else {
            let zone = match array.data_type() {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            };
            let times = cast(array, &DataType::Timestamp(TimeUnit::Nanosecond, zone))?;
            let times = times.as_primitive::<TimestampNanosecondType>();
            return Ok((0..array.len())
                .map(|row| match (array.is_null(row), times.is_null(row)) {
                    (true, _) => Err(absent()),
                    (false, true) => Err(fault(format!(
                        "the time in column `{}` is outside the years 1677 to 2262",
                        self.name
                    ))),
                    (false, false) => Ok(times.value(row)),
                })
                .collect());
        };
        let cells = Cells::of(array)?;
        Ok((0..array.len())
            .map(|row| {
                if cells.is_null(row) {
                    return Err(absent());
                }
                let text = cells.text(row, TimeText::Nanoseconds);
                format.read(&text).map(|time| time.as_nanos())
            })
            .collect())
    }
}

/// The column with the longest name that a text begins with, and what comes behind a colon.
fn find<'t>(
    schema: &Schema,
    role: &str,
    text: &'t str,
) -> Result<(usize, Option<&'t str>), String> {
    schema
        .fields()
        .iter()
        .enumerate()
        .filter_map(
            |(index, field)| match text.strip_prefix(field.name().as_str())? {
                "" => Some((index, field.name().len(), None)),
                rest => Some((index, field.name().len(), Some(rest.strip_prefix(':')?))),
            },
        )
        .max_by_key(|(_, length, _)| *length)
        .map(|(index, _, rest)| (index, rest))
        .ok_or_else(|| missing(schema, role, text))
}

fn missing(schema: &Schema, role: &str, text: &str) -> String {
    format!(
        "{role} {text}: the column does not exist; there are: {}",
        names(schema)
    )
}

fn names(schema: &Schema) -> String {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    names.join(", ")
}

/// The type of a field that stores a column's values as they are.
fn own_type(data_type: &DataType) -> Option<FieldType> {
    match type_name(data_type) {
        "i64" => Some(FieldType::I64),
        "u64" => Some(FieldType::U64),
        "f64" => Some(FieldType::F64),
        "bool" => Some(FieldType::Bool),
        "string" => Some(FieldType::String),
        "bytes" => Some(FieldType::Bytes),
        _ => None,
    }
}

/// A column in the type of a field; what does not fit is absent.
fn cast_to(array: &ArrayRef, field_type: FieldType) -> Result<ArrayRef, ArrowError> {
    let data_type = field_data_type(field_type);
    if let DataType::Timestamp(_, zone) = array.data_type()
        && field_type == FieldType::I64
    {
        // Nanoseconds, as every time here; not whatever unit the file has.
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
        return cast(&cast(array, &nanos)?, &DataType::Int64);
    }
    let read = cast_with_options(array, &data_type, &CastOptions::default())?;
    // Fractions are not cut off silently.
    let from_float = type_name(array.data_type()) == "f64";
    if from_float && matches!(field_type, FieldType::I64 | FieldType::U64) {
        let floats = cast(array, &DataType::Float64)?;
        let floats = floats.as_primitive::<Float64Type>();
        let is_whole = |v: f64| v.fract() == 0.0;
        let whole: arrow::array::BooleanArray =
            floats.iter().map(|v| v.map(|v| !is_whole(v))).collect();
        return arrow::compute::nullif(&read, &whole);
    }
    Ok(read)
}

/// Appends the value of a row to a column of the same type.
fn push(column: &mut Column, array: &ArrayRef, row: usize) {
    if array.is_null(row) {
        column.push_absent(1);
        return;
    }
    let value = match array.data_type() {
        DataType::Float64 => ValueRef::F64(array.as_primitive::<Float64Type>().value(row)),
        DataType::Int64 => ValueRef::I64(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt64 => ValueRef::U64(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Boolean => ValueRef::Bool(array.as_boolean().value(row)),
        DataType::Utf8 => ValueRef::String(array.as_string::<i32>().value(row)),
        _ => ValueRef::Bytes(array.as_binary::<i32>().value(row)),
    };
    column.push(value);
}
