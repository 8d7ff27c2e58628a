//! `headwater export`: the rows of a table as CSV, line protocol, Arrow or Parquet.

use crate::arguments::{RangeArgs, parse_delimiter, parse_tag};
use crate::failure::Failure;
use crate::grid::grouped;
use crate::output::{Output, RowFormat};
use crate::store::DbArgs;
use clap::{Args, ValueEnum};
use headwater::{ErrorKind, FieldType, ScanChunk, ScanSpec, Snapshot, StreamName, Timestamp};
use headwater_wire::csv::{CsvWriter, CsvWriterOptions, TimeFormat, TimeUnit};
use headwater_wire::lineprotocol::LineWriter;

/// Export a table, by stream and time
#[derive(Debug, Args)]
#[command(after_help = "\
CSV has the columns time, the tags, the fields. Numbers are written with all their digits; empty cells are absent
values. Line protocol cannot represent NaN, infinities and bytes: they are left out and counted on stderr. Arrow (the
stream format) and Parquet have the same columns with their types; times are instants in nanoseconds.

Example:
  headwater export --db ./data --table weather --format parquet > weather.parquet")]
pub(crate) struct Export {
    #[command(flatten)]
    db: DbArgs,

    /// Table to export
    #[arg(long, value_name = "NAME")]
    table: String,

    /// Only streams with this tag; may be repeated
    #[arg(long = "where", value_name = "TAG=VALUE", value_parser = parse_tag)]
    filters: Vec<(String, String)>,

    /// Only this field; may be repeated
    #[arg(long = "field", value_name = "NAME")]
    fields: Vec<String>,

    #[command(flatten)]
    range: RangeArgs,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = RowFormat::Csv)]
    format: RowFormat,

    /// Format of times (CSV)
    #[arg(long, value_enum, default_value_t = TimeText::Rfc3339)]
    time_format: TimeText,

    /// Text for absent values (CSV)
    #[arg(long = "null", value_name = "TEXT", default_value = "")]
    null_text: String,

    /// Character between cells, or tab (CSV)
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter, default_value = ",")]
    delimiter: u8,
}

/// Format of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeText {
    // 2013-07-04T12:00:00Z
    Rfc3339,
    // Nanoseconds since 1970
    Ns,
    // Microseconds since 1970
    Us,
    // Milliseconds since 1970
    Ms,
    // Seconds since 1970
    S,
}

impl TimeText {
    fn format(self) -> TimeFormat {
        match self {
            TimeText::Rfc3339 => TimeFormat::Rfc3339,
            TimeText::Ns => TimeFormat::Unit(TimeUnit::Nanoseconds),
            TimeText::Us => TimeFormat::Unit(TimeUnit::Microseconds),
            TimeText::Ms => TimeFormat::Unit(TimeUnit::Milliseconds),
            TimeText::S => TimeFormat::Unit(TimeUnit::Seconds),
        }
    }
}

/// A format for rows, one stream after another.
trait RowWriter {
    fn start_stream(&mut self, name: &StreamName, fields: &[(String, FieldType)]);
    fn write_chunk(&mut self, out: &mut Vec<u8>, chunk: &ScanChunk) -> Result<(), Failure>;
    /// Writes the rows that are held back.
    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }
    /// Reports on stderr the rows that could not be written.
    fn report(&self) {}
}

impl Export {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let db = self.db.open_to_read()?;
        let snapshot = db.snapshot();
        let mut out = Output::new();
        let mut writer = self.writer(&snapshot, &mut out)?;
        let mut streams = snapshot.streams(&self.table, &self.filters)?;
        streams.sort();
        let spec = ScanSpec {
            range: self.range.range(),
            fields: (!self.fields.is_empty()).then(|| self.fields.clone()),
            ..ScanSpec::default()
        };
        let mut damages = 0u64;
        for name in &streams {
            let scan = snapshot.scan(name, &spec)?;
            writer.start_stream(name, scan.fields());
            for chunk in scan {
                match chunk {
                    Ok(chunk) => writer.write_chunk(&mut out.buffer, &chunk)?,
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        eprintln!("headwater: {name}: {error}");
                        damages += 1;
                    }
                    Err(error) => return Err(error.into()),
                }
                out.pass_on()?;
            }
        }
        writer.finish(&mut out.buffer)?;
        out.finish()?;
        writer.report();
        if damages > 0 {
            return Err(Failure::failed(format!(
                "{damages} damaged parts are missing from the export; `headwater check` lists them"
            )));
        }
        Ok(())
    }

    fn writer(&self, snapshot: &Snapshot, out: &mut Output) -> Result<Box<dyn RowWriter>, Failure> {
        if self.format == RowFormat::Lp {
            return Ok(Box::new(Lines::default()));
        }
        let known = snapshot.fields(&self.table)?;
        let fields: Vec<(String, FieldType)> = if self.fields.is_empty() {
            known
        } else {
            let find = |name: &String| known.iter().find(|(n, _)| n == name).cloned();
            let unknown =
                |name| Failure::failed(format!("table `{}` has no field `{name}`", self.table));
            let named = self.fields.iter();
            named
                .map(|name| find(name).ok_or_else(|| unknown(name)))
                .collect::<Result<_, _>>()?
        };
        let mut tags: Vec<String> = snapshot
            .streams(&self.table, &[])?
            .iter()
            .flat_map(|s| s.tags().iter().map(|(tag, _)| tag.clone()))
            .collect();
        tags.sort();
        tags.dedup();
        if self.format != RowFormat::Csv {
            return batches(self.format, &tags, &fields);
        }
        let fields: Vec<String> = fields.into_iter().map(|(name, _)| name).collect();
        let options = CsvWriterOptions {
            null_text: self.null_text.clone(),
            delimiter: self.delimiter,
            time: self.time_format.format(),
        };
        let writer = CsvWriter::new(&tags, &fields, options);
        writer.write_header(&mut out.buffer);
        Ok(Box::new(Csv(writer)))
    }
}

#[cfg(not(feature = "sql"))]
fn batches(
    _: RowFormat,
    _: &[String],
    _: &[(String, FieldType)],
) -> Result<Box<dyn RowWriter>, Failure> {
    Err(crate::output::built_without("--format arrow|parquet"))
}

#[cfg(feature = "sql")]
use batches::batches;

#[cfg(feature = "sql")]
mod batches {
    use super::RowWriter;
    use crate::failure::Failure;
    use crate::output::{RowFormat, not_for_terminals};
    use headwater::{FieldType, ScanChunk, StreamName};
    use headwater_columnar::{EventBatches, Format, TimeText, Writer};

    /// Rows in batches of several thousand.
    struct Batches {
        stream: Option<StreamName>,
        events: EventBatches,
        /// Taken when it is finished.
        writer: Option<Writer>,
    }

    pub(super) fn batches(
        format: RowFormat,
        tags: &[String],
        fields: &[(String, FieldType)],
    ) -> Result<Box<dyn RowWriter>, Failure> {
        let format = match format {
            RowFormat::Parquet => Format::Parquet,
            _ => Format::Arrow,
        };
        not_for_terminals(format.name())?;
        let events = EventBatches::new(tags, fields);
        let writer = Writer::new(format, events.schema(), TimeText::default());
        Ok(Box::new(Batches {
            stream: None,
            writer: Some(writer.map_err(Failure::failed)?),
            events,
        }))
    }

    impl RowWriter for Batches {
        fn start_stream(&mut self, name: &StreamName, _: &[(String, FieldType)]) {
            self.stream = Some(name.clone());
        }

        fn write_chunk(&mut self, out: &mut Vec<u8>, chunk: &ScanChunk) -> Result<(), Failure> {
            let (Some(stream), Some(writer)) = (&self.stream, &mut self.writer) else {
                return Ok(());
            };
            self.events.push(stream, chunk);
            if let Some(batch) = self.events.full().map_err(Failure::failed)? {
                writer.write(&batch, out).map_err(Failure::failed)?;
            }
            Ok(())
        }

        fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
            let Some(mut writer) = self.writer.take() else {
                return Ok(());
            };
            let rest = self.events.take().map_err(Failure::failed)?;
            if rest.num_rows() > 0 {
                writer.write(&rest, out).map_err(Failure::failed)?;
            }
            writer.finish(out).map_err(Failure::failed)
        }
    }
}

/// Times and numbers of the rows that have a value.
fn rows(chunk: &ScanChunk) -> impl Iterator<Item = (Timestamp, usize)> {
    let rows = chunk.times.iter().enumerate();
    rows.filter(|(row, _)| chunk.columns.iter().any(|c| c.is_present(*row)))
        .map(|(row, time)| (Timestamp::from_nanos(*time), row))
}

struct Csv(CsvWriter);

impl RowWriter for Csv {
    fn start_stream(&mut self, name: &StreamName, _: &[(String, FieldType)]) {
        self.0.start_stream(name);
    }

    fn write_chunk(&mut self, out: &mut Vec<u8>, chunk: &ScanChunk) -> Result<(), Failure> {
        for (time, row) in rows(chunk) {
            let values = chunk.columns.iter().map(|c| c.get(row));
            self.0.write_row(out, time, values);
        }
        Ok(())
    }

    fn report(&self) {
        if self.0.ambiguous_values() > 0 {
            eprintln!(
                "headwater: {} strings equal the text for absent values and will read back as absent; choose another with --null",
                grouped(self.0.ambiguous_values())
            );
        }
    }
}

#[derive(Default)]
struct Lines(LineWriter);

impl RowWriter for Lines {
    fn start_stream(&mut self, name: &StreamName, fields: &[(String, FieldType)]) {
        let fields = fields.iter().map(|(name, _)| name.as_str());
        if let Err(error) = self.0.start_stream(name, fields) {
            eprintln!("headwater: {name} is left out: {error}");
        }
    }

    fn write_chunk(&mut self, out: &mut Vec<u8>, chunk: &ScanChunk) -> Result<(), Failure> {
        for (time, row) in rows(chunk) {
            let values = chunk.columns.iter().map(|c| c.get(row));
            self.0.write_row(out, time, values);
        }
        Ok(())
    }

    fn report(&self) {
        let skipped = self.0.skipped();
        for (count, what) in [
            (skipped.not_finite, "values that are NaN or infinite"),
            (skipped.bytes, "values of type bytes"),
            (skipped.rows, "rows without any other value"),
        ] {
            if count > 0 {
                eprintln!(
                    "headwater: line protocol cannot represent {} {what}; they are left out",
                    grouped(count)
                );
            }
        }
    }
}
