//! `headwater scan`: the rows of streams.

use crate::address::Address;
use crate::arguments::RangeArgs;
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{Format, Output};
use crate::store::DbArgs;
use crate::values::{JsonValue, text_of};
use clap::Args;
use headwater::{
    ErrorKind, FieldType, Filter, ScanChunk, ScanSpec, Snapshot, StreamName, Timestamp,
};
use headwater_wire::csv::{CsvWriter, CsvWriterOptions};
use headwater_wire::instant::format_instant;
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

/// Rows of a block of aligned columns.
const BLOCK_ROWS: usize = 1_000;

/// Print the rows of streams, by time
#[derive(Debug, Args)]
#[command(after_help = "\
JSON is one object per line. Absent values are left out of JSON and empty elsewhere.

Example:
  headwater scan --db ./data weather,origin=EWR --from 2013-07-04 --to 2013-07-05 --filter 'temp >= 90' --field temp")]
pub(crate) struct Scan {
    #[command(flatten)]
    db: DbArgs,

    /// A table, a stream or a field: TABLE[,TAG=VALUE][.FIELD]
    #[arg(value_name = "ADDRESS")]
    address: String,

    #[command(flatten)]
    range: RangeArgs,

    /// Only this field; may be repeated
    #[arg(long = "field", value_name = "NAME")]
    fields: Vec<String>,

    /// Only rows that match a comparison with = != < <= > or >=; may be repeated
    #[arg(long = "filter", value_name = "FIELD OP VALUE")]
    filters: Vec<String>,

    /// Most rows to print
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl Scan {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_to_read()?;
        let snapshot = db.snapshot();
        let address = Address::of_streams(&snapshot, &self.address)?;
        let spec = self.spec(&snapshot, &address)?;
        let mut out = Output::new();
        let mut printer = self.printer(&snapshot, &address.streams, &spec, &mut out)?;
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut damages = 0u64;
        for stream in &address.streams {
            let scan = snapshot.scan(stream, &spec)?;
            printer.start(stream, scan.fields());
            for chunk in scan {
                match chunk {
                    Ok(chunk) => printer.write(&mut out.buffer, &chunk, &mut left),
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        eprintln!("headwater: {stream}: {error}");
                        damages += 1;
                    }
                    Err(error) => return Err(error.into()),
                }
                out.pass_on()?;
                if left == 0 {
                    break;
                }
            }
            printer.end(&mut out.buffer);
            if left == 0 {
                break;
            }
        }
        out.finish()?;
        if damages > 0 {
            return Err(Failure::failed(format!(
                "{damages} damaged parts are missing; `headwater check` lists them"
            )));
        }
        Ok(())
    }

    fn spec(&self, snapshot: &Snapshot, address: &Address) -> Result<ScanSpec, Failure> {
        let table = address.streams.first().map_or("", StreamName::table);
        let known = snapshot.fields(table)?;
        let mut fields = self.fields.clone();
        if let Some((field, _)) = &address.field {
            fields.insert(0, field.clone());
        }
        Ok(ScanSpec {
            range: self.range.range(),
            fields: (!fields.is_empty()).then_some(fields),
            filters: self
                .filters
                .iter()
                .map(|text| Filter::parse(text, &known))
                .collect::<Result<_, _>>()
                .map_err(|e| Failure::usage(format!("--{e}")))?,
            any_of: Vec::new(),
        })
    }

    fn printer(
        &self,
        snapshot: &Snapshot,
        streams: &[StreamName],
        spec: &ScanSpec,
        out: &mut Output,
    ) -> Result<Printer, Failure> {
        let table = streams.first().map_or("", StreamName::table);
        Ok(match self.format {
            Format::Json => Printer::Json {
                stream: String::new(),
                fields: Vec::new(),
            },
            Format::Table => Printer::Table {
                headings: Vec::new(),
                rows: Vec::new(),
                stream: None,
                is_named: streams.len() > 1,
            },
            Format::Csv => {
                let fields = match &spec.fields {
                    Some(fields) => fields.clone(),
                    None => snapshot
                        .fields(table)?
                        .into_iter()
                        .map(|(name, _)| name)
                        .collect(),
                };
                let mut tags: Vec<String> = streams
                    .iter()
                    .flat_map(|s| s.tags().iter().map(|(tag, _)| tag.clone()))
                    .collect();
                tags.sort();
                tags.dedup();
                let writer = CsvWriter::new(&tags, &fields, CsvWriterOptions::default());
                writer.write_header(&mut out.buffer);
                Printer::Csv(Box::new(writer))
            }
        })
    }
}

/// Rows in one of the formats.
enum Printer {
    Csv(Box<CsvWriter>),
    Json {
        stream: String,
        fields: Vec<String>,
    },
    Table {
        headings: Vec<Heading>,
        rows: Vec<Vec<String>>,
        stream: Option<String>,
        /// Each stream's rows stand below its name.
        is_named: bool,
    },
}

impl Printer {
    fn start(&mut self, name: &StreamName, scanned: &[(String, FieldType)]) {
        match self {
            Printer::Csv(writer) => writer.start_stream(name),
            Printer::Json { stream, fields } => {
                *stream = name.to_string();
                *fields = scanned.iter().map(|(name, _)| name.clone()).collect();
            }
            Printer::Table {
                headings,
                stream,
                is_named,
                ..
            } => {
                *headings = vec![Heading::text("time")];
                headings.extend(scanned.iter().map(|(name, field_type)| {
                    if field_type.is_numeric() {
                        Heading::number(name.clone())
                    } else {
                        Heading::text(name.clone())
                    }
                }));
                *stream = is_named.then(|| name.to_string());
            }
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, chunk: &ScanChunk, left: &mut u64) {
        for (row, time) in chunk.times.iter().enumerate() {
            if *left == 0 {
                return;
            }
            if !chunk.columns.iter().any(|c| c.is_present(row)) {
                continue;
            }
            *left -= 1;
            let at = Timestamp::from_nanos(*time);
            match self {
                Printer::Csv(writer) => {
                    writer.write_row(out, at, chunk.columns.iter().map(|c| c.get(row)));
                }
                Printer::Json { stream, fields } => {
                    let shown = JsonRow {
                        stream,
                        at,
                        fields,
                        chunk,
                        row,
                    };
                    // Writing to a vector cannot fail.
                    let _ = serde_json::to_writer(&mut *out, &shown);
                    out.push(b'\n');
                }
                Printer::Table { rows, .. } => {
                    let mut cells = vec![format_instant(at)];
                    cells.extend(
                        chunk
                            .columns
                            .iter()
                            .map(|c| c.get(row).map_or_else(String::new, text_of)),
                    );
                    rows.push(cells);
                    if rows.len() >= BLOCK_ROWS {
                        self.end(out);
                    }
                }
            }
        }
    }

    /// Prints the rows of a stream that are held back.
    fn end(&mut self, out: &mut Vec<u8>) {
        if let Printer::Table {
            headings,
            rows,
            stream,
            ..
        } = self
            && !rows.is_empty()
        {
            if let Some(stream) = stream.take() {
                out.extend_from_slice(format!("{stream}\n").as_bytes());
            }
            out.extend_from_slice(render(headings, rows).as_bytes());
            rows.clear();
        }
    }
}

/// A row as an object: `{"stream":…,"time":…,"time_ns":…,"fields":{…}}`.
struct JsonRow<'a> {
    stream: &'a str,
    at: Timestamp,
    fields: &'a [String],
    chunk: &'a ScanChunk,
    row: usize,
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("row", 4)?;
        out.serialize_field("stream", self.stream)?;
        out.serialize_field("time", &format_instant(self.at))?;
        out.serialize_field("time_ns", &self.at.as_nanos())?;
        out.serialize_field("fields", &JsonFields(self))?;
        out.end()
    }
}

struct JsonFields<'a>(&'a JsonRow<'a>);

impl Serialize for JsonFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(None)?;
        for (name, column) in self.0.fields.iter().zip(&self.0.chunk.columns) {
            if let Some(value) = column.get(self.0.row) {
                out.serialize_entry(name, &JsonValue(value))?;
            }
        }
        out.end()
    }
}
