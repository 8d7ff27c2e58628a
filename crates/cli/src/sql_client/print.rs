//! Rows on stdout.

use super::Rows;
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{Output, not_for_terminals};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use headwater_columnar::{Cells, Format, TimeText, Writer, is_number};

/// Rows of a block of aligned columns.
const BLOCK_ROWS: usize = 1_000;

/// Format of printed rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    // Aligned columns, for reading
    Table,
    // One JSON object with columns and rows
    Json,
    // CSV with a header line
    Csv,
    // Arrow's stream format
    Arrow,
    // A Parquet file
    Parquet,
}

impl Shape {
    fn format(self) -> Option<Format> {
        match self {
            Shape::Table => None,
            Shape::Json => Some(Format::Json),
            Shape::Csv => Some(Format::Csv),
            Shape::Arrow => Some(Format::Arrow),
            Shape::Parquet => Some(Format::Parquet),
        }
    }
}

/// Prints rows as they come, and returns their number. Rows that came before a failure are printed.
pub(crate) fn print_rows(rows: Rows<'_>, shape: Shape) -> Result<u64, Failure> {
    if matches!(shape, Shape::Arrow | Shape::Parquet) {
        not_for_terminals(shape.format().map_or("", Format::name))?;
    }
    let mut out = Output::new();
    let mut writer = match shape.format() {
        None => None,
        Some(format) => {
            let writer = Writer::new(format, &rows.schema, TimeText::Rfc3339);
            Some(writer.map_err(Failure::failed)?)
        }
    };
    let mut table = Table::new(&rows.schema);
    let mut count = 0;
    let mut failed = None;
    for batch in rows.batches {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        count += batch.num_rows() as u64;
        match &mut writer {
            Some(writer) => writer
                .write(&batch, &mut out.buffer)
                .map_err(Failure::failed)?,
            None => table
                .add(&batch, &mut out.buffer)
                .map_err(Failure::failed)?,
        }
        out.pass_on()?;
    }
    match (writer, &failed) {
        (Some(writer), None) => writer.finish(&mut out.buffer).map_err(Failure::failed)?,
        // Without its end nobody takes it for whole.
        (Some(_), Some(_)) => {}
        (None, _) => table.finish(&mut out.buffer),
    }
    out.finish()?;
    match failed {
        Some(error) => Err(Failure::failed(format!("after {count} rows: {error}"))),
        None => Ok(count),
    }
}

/// Aligned columns, a block at a time.
struct Table {
    headings: Vec<Heading>,
    rows: Vec<Vec<String>>,
    /// True when a block was printed.
    has_printed: bool,
}

impl Table {
    fn new(schema: &Schema) -> Table {
        let headings = schema.fields().iter().map(|field| {
            if is_number(field.data_type()) {
                Heading::number(field.name().clone())
            } else {
                Heading::text(field.name().clone())
            }
        });
        Table {
            headings: headings.collect(),
            rows: Vec::new(),
            has_printed: false,
        }
    }

    fn add(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        let columns: Vec<Cells> = batch
            .columns()
            .iter()
            .map(Cells::of)
            .collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            let texts: Vec<String> = columns
                .iter()
                .map(|cells| cells.text(row, TimeText::Rfc3339))
                .collect();
            // A text of several lines, a plan above all, goes on below itself.
            let height = texts.iter().map(|t| t.lines().count()).max().unwrap_or(1);
            for line in 0..height.max(1) {
                let cells = texts.iter();
                let cells = cells.map(|t| printable(t.lines().nth(line).unwrap_or_default()));
                self.rows.push(cells.collect());
            }
            if self.rows.len() >= BLOCK_ROWS {
                self.print(out);
            }
        }
        Ok(())
    }

    fn print(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(render(&self.headings, &self.rows).as_bytes());
        self.rows.clear();
        self.has_printed = true;
    }

    fn finish(mut self, out: &mut Vec<u8>) {
        if !self.headings.is_empty() && (!self.rows.is_empty() || !self.has_printed) {
            self.print(out);
        }
    }
}

/// Without what could upset a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{FFFD}' } else { c })
        .collect()
}
