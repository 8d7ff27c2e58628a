//! Exports as Arrow and Parquet.

use crate::columnar::{ColumnarFormat, ColumnarWriter};
use headwater::{FieldType, ScanChunk, StreamName};
use headwater_columnar::{EventBatches, Format, TimeText, Writer};
use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Formats that programs with SQL export in addition.
pub(in crate::components) static FORMATS: [ColumnarFormat; 2] = [
    ColumnarFormat {
        name: "arrow",
        content_type: Format::Arrow.content_type(),
        disposition: "attachment; filename=\"export.arrows\"",
        open: |tags, fields| open(Format::Arrow, tags, fields),
    },
    ColumnarFormat {
        name: "parquet",
        content_type: Format::Parquet.content_type(),
        disposition: "attachment; filename=\"export.parquet\"",
        open: |tags, fields| open(Format::Parquet, tags, fields),
    },
];

/// Rows of an export, in batches.
struct Batches {
    events: EventBatches,
    writer: Writer,
}

fn open(
    format: Format,
    tags: &[String],
    fields: &[(String, FieldType)],
) -> Result<Box<dyn ColumnarWriter>> {
    let events = EventBatches::new(tags, fields);
    let writer = Writer::new(format, events.schema(), TimeText::default())?;
    Ok(Box::new(Batches { events, writer }))
}

impl ColumnarWriter for Batches {
    fn write(&mut self, stream: &StreamName, chunk: &ScanChunk, out: &mut Vec<u8>) -> Result<()> {
        self.events.push(stream, chunk);
        if let Some(batch) = self.events.full()? {
            self.writer.write(&batch, out)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, out: &mut Vec<u8>) -> Result<()> {
        let rest = self.events.take()?;
        if rest.num_rows() > 0 {
            self.writer.write(&rest, out)?;
        }
        Ok(self.writer.finish(out)?)
    }
}
