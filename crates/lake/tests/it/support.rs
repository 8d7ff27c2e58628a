//! A database, a lake beside it, and reading the lake back from its Parquet files alone.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use headwater::{
    Batch, Database, ErrorKind, Options, ScanSpec, Snapshot, StreamName, Value, ValueRef,
};
use headwater_lake::{WriteOptions, Written};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first instant of a day: 2026-11-20.
pub(crate) const START: i64 = 1_795_132_800_000_000_000;
pub(crate) const DAY: i64 = 86_400_000_000_000;

/// A database and a folder for its lake.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    db: Option<Database>,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench { dir, db: None };
        bench.reopen();
        bench
    }

    pub(crate) fn reopen(&mut self) {
        if let Some(db) = self.db.take() {
            db.close().unwrap();
        }
        let mut options = Options::new(self.dir.path().join("db"));
        options.memory_budget_bytes = 4 << 20;
        options.reserve_bytes = 0;
        options.shards = 2;
        self.db = Some(Database::open(options).unwrap());
    }

    pub(crate) fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    pub(crate) fn lake(&self) -> PathBuf {
        self.dir.path().join("lake")
    }

    pub(crate) fn row(&self, stream: &StreamName, time: i64, fields: &[(&str, Value)]) {
        let mut batch = Batch::new();
        let fields = fields.iter().map(|(name, value)| (*name, value.clone()));
        batch.stream(stream).row(time, fields).unwrap();
        self.db().commit(batch).unwrap();
    }

    /// Writes, and removes at once what nothing names.
    pub(crate) fn write(&self) -> Written {
        self.write_with(&options()).unwrap()
    }

    pub(crate) fn write_with(&self, options: &WriteOptions) -> headwater_lake::Result<Written> {
        headwater_lake::write(&|| self.db().snapshot(), &self.lake(), options)
    }

    /// The lake has exactly what the database has, read from its files; so says every check.
    pub(crate) fn assert_equal(&self, why: &str) {
        let snapshot = self.db().snapshot().unwrap();
        for table in snapshot.table_names() {
            let held = rows_of_lake(&self.lake(), &table);
            assert_eq!(held, rows_of_database(&snapshot, &table), "{why}: {table}");
            let (newest, told) = (metadata(&self.lake(), &table), hinted(&self.lake(), &table));
            assert_eq!(newest, told, "{why}: {table}");
        }
        let verified = headwater_lake::verify(&snapshot, &self.lake(), true).unwrap();
        assert!(verified.is_sound(), "{why}: {verified:?}");
        for table in &verified.tables {
            assert_eq!(table.days_behind, 0, "{why}: {verified:?}");
        }
    }
}

/// Options of writes in tests.
pub(crate) fn options() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.orphan_age = Duration::ZERO;
    options.keep_snapshots = Duration::ZERO;
    options
}

/// A row by the names of tags and fields of the database; times in nanoseconds.
pub(crate) type Row = BTreeMap<String, String>;

fn text_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::F64(v) => format!("{:016x}", v.to_bits()),
        other => format!("{other:?}"),
    }
}

/// The rows of a table, sorted.
pub(crate) fn rows_of_database(snapshot: &Snapshot, table: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for stream in snapshot.streams(table, &[]).unwrap() {
        let scan = match snapshot.scan(&stream, &ScanSpec::default()) {
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            scan => scan.unwrap(),
        };
        let fields = scan.fields().to_vec();
        for chunk in scan {
            let chunk = chunk.unwrap();
            for (at, time) in chunk.times.iter().enumerate() {
                let mut row = Row::from([("time".into(), time.to_string())]);
                for (tag, value) in stream.tags() {
                    row.insert(format!("tag {tag}"), text_of(ValueRef::String(value)));
                }
                for ((name, _), column) in fields.iter().zip(&chunk.columns) {
                    if let Some(value) = column.get(at) {
                        row.insert(format!("field {name}"), text_of(value));
                    }
                }
                rows.push(row);
            }
        }
    }
    rows.sort();
    rows
}

/// The newest metadata of a table, found by their names.
pub(crate) fn metadata(lake: &Path, table: &str) -> Option<Json> {
    let folder = lake.join(headwater_lake::folder_of(table)).join("metadata");
    let files = files_below(&folder).into_iter();
    let version = |path: &PathBuf| -> Option<u64> {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix('v')?
            .strip_suffix(".metadata.json")?
            .parse()
            .ok()
    };
    let newest = files
        .filter_map(|path| Some((version(&path)?, path)))
        .max()?;
    Some(serde_json::from_slice(&fs::read(newest.1).unwrap()).unwrap())
}

/// The metadata that readers take which do not look: those that the hint names.
pub(crate) fn hinted(lake: &Path, table: &str) -> Option<Json> {
    let folder = lake.join(headwater_lake::folder_of(table)).join("metadata");
    let hint = fs::read_to_string(folder.join("version-hint.text")).ok()?;
    let path = folder.join(format!("v{}.metadata.json", hint.trim()));
    Some(serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
}

/// The rows of a table as its files have them, sorted; columns by their numbers.
pub(crate) fn rows_of_lake(lake: &Path, table: &str) -> Vec<Row> {
    let Some(metadata) = metadata(lake, table) else {
        return Vec::new();
    };
    rows_of_files(&metadata, &headwater_lake::data_files(lake, table).unwrap())
}

/// The rows of files of a table, sorted; columns by their numbers.
pub(crate) fn rows_of_files(metadata: &Json, files: &[PathBuf]) -> Vec<Row> {
    let columns: Json = serde_json::from_str(
        metadata["properties"]["headwater.columns"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    let mut by_id = BTreeMap::new();
    for column in columns["all"].as_array().unwrap() {
        let kind = column["kind"].as_str().unwrap().to_owned();
        let name = format!("{kind} {}", column["source"].as_str().unwrap());
        by_id.insert(column["id"].as_i64().unwrap(), (kind, name));
    }
    let mut rows = Vec::new();
    for path in files {
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        let leaves = builder.parquet_schema().columns().to_vec();
        let ids = leaves
            .iter()
            .map(|l| i64::from(l.self_type().get_basic_info().id()));
        let known: Vec<(String, String)> = ids.map(|id| by_id[&id].clone()).collect();
        for batch in builder.build().unwrap() {
            take(&batch.unwrap(), &known, &mut rows);
        }
    }
    rows.sort();
    rows
}

fn take(batch: &RecordBatch, known: &[(String, String)], rows: &mut Vec<Row>) {
    for at in 0..batch.num_rows() {
        let mut row = Row::new();
        let mut time = 0;
        for ((kind, name), column) in known.iter().zip(batch.columns()) {
            if column.is_null(at) {
                continue;
            }
            match kind.as_str() {
                "time" => {
                    time += column.as_primitive::<TimestampMicrosecondType>().value(at) * 1_000;
                }
                "rest" => time += i64::from(column.as_primitive::<Int32Type>().value(at)),
                _ => {
                    row.insert(name.clone(), cell(column, at));
                }
            }
        }
        row.insert("time".into(), time.to_string());
        rows.push(row);
    }
}

fn cell(column: &ArrayRef, at: usize) -> String {
    match column.data_type() {
        DataType::Utf8 => text_of(ValueRef::String(column.as_string::<i32>().value(at))),
        DataType::Binary => text_of(ValueRef::Bytes(column.as_binary::<i32>().value(at))),
        DataType::Boolean => text_of(ValueRef::Bool(column.as_boolean().value(at))),
        DataType::Int64 => text_of(ValueRef::I64(column.as_primitive::<Int64Type>().value(at))),
        DataType::Float64 => text_of(ValueRef::F64(
            column.as_primitive::<Float64Type>().value(at),
        )),
        DataType::Decimal128(20, 0) => {
            let value = column.as_primitive::<Decimal128Type>().value(at);
            text_of(ValueRef::U64(u64::try_from(value).unwrap()))
        }
        other => panic!("a column of {other}"),
    }
}

/// All files below a folder.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return files;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}
