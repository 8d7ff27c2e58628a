//! Files of rows: Parquet, several for a day where one would be too large.
//!
//! Invariants: a file is on the device, complete, before it is reported; until then no metadata
//! name it. Rows are in the order of arrival; row groups and pages have statistics, except for
//! columns with NaN. Memory: one row group.

use crate::bounds::Bounds;
use crate::columns::{ColumnKind, Columns};
use crate::day::Day;
use crate::error::{LakeError, Result};
use crate::lengths::{signed, small};
use crate::location::LakeLocation;
use crate::manifest::DataFile;
use arrow::array::RecordBatch;
use headwater_columnar::nan::{self, NanRows};
use headwater_types::invariant::wide;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData, SortingColumn};
use parquet::file::properties::WriterProperties;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Effort of zstd: a file that is written once and read often may cost a little.
const ZSTD_LEVEL: i32 = 3;

/// Writes the files of one day.
pub(crate) struct DayWriter<'a> {
    location: &'a LakeLocation,
    columns: &'a Columns,
    day: Day,
    folder: PathBuf,
    /// Prefix of the names of all files of a write.
    prefix: &'a str,
    sort_order_id: i32,
    file_bytes: u64,
    row_group_bytes: usize,
    open: Option<Open>,
    files: Vec<DataFile>,
}

struct Open {
    path: PathBuf,
    writer: ArrowWriter<File>,
    rows: u64,
    bounds: Vec<Bounds>,
    nans: NanRows,
}

/// Where files of rows go, and how large they become.
pub(crate) struct DataFileTarget<'a> {
    pub(crate) location: &'a LakeLocation,
    /// The folder of the table.
    pub(crate) table: &'a Path,
    pub(crate) prefix: &'a str,
    pub(crate) sort_order_id: i32,
    /// A file is closed when it has about this many bytes.
    pub(crate) file_bytes: u64,
    /// A row group is closed at about this many bytes.
    pub(crate) row_group_bytes: usize,
}

impl<'a> DayWriter<'a> {
    pub(crate) fn new(
        target: &DataFileTarget<'a>,
        columns: &'a Columns,
        day: Day,
    ) -> DayWriter<'a> {
        DayWriter {
            location: target.location,
            columns,
            day,
            folder: target.table.join("data").join(format!("time_day={day}")),
            prefix: target.prefix,
            sort_order_id: target.sort_order_id,
            file_bytes: target.file_bytes,
            row_group_bytes: target.row_group_bytes,
            open: None,
            files: Vec::new(),
        }
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.open.is_none() {
            self.open = Some(self.begin()?);
        }
        let Some(open) = &mut self.open else {
            return Err(LakeError::internal("a new file is not open"));
        };
        for (bounds, array) in open.bounds.iter_mut().zip(batch.columns()) {
            bounds.take(array)?;
        }
        open.nans.add(batch);
        open.rows += wide(batch.num_rows());
        let written = open
            .write(batch, self.row_group_bytes)
            .map_err(|e| LakeError::parquet(&open.path, e))?;
        if written >= self.file_bytes {
            self.end()?;
        }
        Ok(())
    }

    fn begin(&self) -> Result<Open> {
        let name = format!(
            "{}-{}-{:05}.parquet",
            self.prefix,
            self.day,
            self.files.len()
        );
        let path = self.folder.join(name);
        let file = self.location.begin(&path)?;
        let writer = self
            .writer(file)
            .map_err(|e| LakeError::parquet(&path, e))?;
        Ok(Open {
            path,
            writer,
            rows: 0,
            nans: NanRows::default(),
            bounds: vec![Bounds::default(); self.columns.written().count()],
        })
    }

    fn writer(&self, file: File) -> std::result::Result<ArrowWriter<File>, ParquetError> {
        let all = self.columns.written().enumerate();
        let of_kind = |kind: ColumnKind| {
            let all = all.clone();
            all.filter(move |(_, column)| column.kind == kind)
        };
        let sorted = of_kind(ColumnKind::Tag).chain(of_kind(ColumnKind::Time));
        let sorted = sorted.map(|(at, _)| SortingColumn {
            column_idx: small(at),
            descending: false,
            nulls_first: true,
        });
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_sorting_columns(Some(sorted.collect()))
            .set_created_by(concat!("headwater ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        // Other readers use the types of Parquet's schema; Arrow's would include dictionaries.
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true)
            .with_schema_root("table".to_owned());
        ArrowWriter::try_new_with_options(file, self.columns.arrow(), options)
    }

    fn end(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        let failed = |e| LakeError::parquet(&open.path, e);
        let metadata = open.writer.finish().map_err(failed)?;
        if let Some(end) = open.nans.end(&metadata).map_err(failed)? {
            replace_end(open.writer.inner(), &end).map_err(failed)?;
        }
        let bytes = self.location.keep(&open.path, open.writer.inner())?;
        let path = open.path.to_str().map(str::to_owned);
        let path =
            path.ok_or_else(|| LakeError::format(&open.path, "a path in UTF-8", "other bytes"))?;
        let told = describe(self.columns, &open.bounds, &metadata);
        self.files.push(DataFile {
            path,
            day: self.day.number(),
            rows: open.rows,
            bytes,
            sort_order_id: Some(self.sort_order_id),
            ..told
        });
        Ok(())
    }

    /// The files of the day, all on the device.
    pub(crate) fn finish(mut self) -> Result<Vec<DataFile>> {
        self.end()?;
        if !self.files.is_empty() {
            // Up to the folder of the table: each may be new.
            self.location.sync(&self.folder, 3)?;
        }
        Ok(self.files)
    }

    /// Removes the file written so far.
    pub(crate) fn give_up(self) -> Result<()> {
        for file in &self.files {
            self.location.remove(Path::new(&file.path))?;
        }
        match self.open {
            Some(open) => self.location.give_up(&open.path),
            None => Ok(()),
        }
    }
}

impl Open {
    /// Writes a batch; returns the bytes of the file, the open row group included.
    fn write(
        &mut self,
        batch: &RecordBatch,
        row_group_bytes: usize,
    ) -> std::result::Result<u64, ParquetError> {
        self.writer.write(batch)?;
        if self.writer.in_progress_size() >= row_group_bytes {
            self.writer.flush()?;
        }
        Ok(wide(
            self.writer.bytes_written() + self.writer.in_progress_size(),
        ))
    }
}

/// Rewrites the metadata at the end of a file.
fn replace_end(mut file: &File, end: &[u8]) -> std::result::Result<(), ParquetError> {
    let mut last = [0; nan::END_BYTES];
    let len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(len.saturating_sub(wide(last.len()))))?;
    file.read_exact(&mut last)?;
    let kept = len.checked_sub(wide(nan::end_len(&last)?));
    let kept = kept.ok_or_else(|| ParquetError::General("the metadata is missing".to_owned()))?;
    file.set_len(kept)?;
    file.seek(SeekFrom::Start(kept))?;
    file.write_all(end)?;
    Ok(())
}

/// Description of a file's columns for a manifest.
fn describe(columns: &Columns, bounds: &[Bounds], metadata: &ParquetMetaData) -> DataFile {
    let mut file = DataFile::default();
    for (at, (column, bounds)) in columns.written().zip(bounds).enumerate() {
        let sizes = metadata
            .row_groups()
            .iter()
            .filter_map(|group| group.columns().get(at));
        let size = sizes.map(|chunk| chunk.compressed_size()).sum();
        file.column_sizes.insert(column.id, size);
        file.value_counts.insert(column.id, signed(bounds.values));
        file.null_counts.insert(column.id, signed(bounds.nulls));
        if let Some(nans) = bounds.nans {
            file.nan_counts.insert(column.id, signed(nans));
        }
        // Readers assume that the bounds cover all values, but NaN is outside of them.
        if bounds.nans.unwrap_or(0) == 0 {
            put(&mut file.lower, column.id, bounds.lower());
            put(&mut file.upper, column.id, bounds.upper());
        }
    }
    let begin = |group: &RowGroupMetaData| {
        let first = group.columns().first()?;
        let data = first.data_page_offset();
        Some(
            first
                .dictionary_page_offset()
                .map_or(data, |at| at.min(data)),
        )
    };
    file.split_offsets = metadata.row_groups().iter().filter_map(begin).collect();
    file
}

fn put(into: &mut BTreeMap<i32, Vec<u8>>, id: i32, bound: Option<Vec<u8>>) {
    if let Some(bound) = bound {
        into.insert(id, bound);
    }
}
