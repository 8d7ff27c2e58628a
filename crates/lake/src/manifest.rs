//! Manifests and lists of them: the files of a snapshot, and statistics of each.
//!
//! Invariants: an entry that is copied to another manifest retains its original snapshot and
//! sequence. Manifests that name deletes of rows, or files partitioned otherwise than by day, are
//! refused: we write neither.

use crate::avro::{self, Record, Value, optional, record};
use crate::columns::Columns;
use crate::day::Day;
use crate::error::{LakeError, Result};
use crate::lengths::{signed, small};
use crate::metadata::{DAY_FIELD_ID, day_field};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// A file of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DataFile {
    pub(crate) path: String,
    /// The day, by its number.
    pub(crate) day: i32,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Statistics by column: bytes, values, absent values, NaN, bounds.
    pub(crate) column_sizes: BTreeMap<i32, i64>,
    pub(crate) value_counts: BTreeMap<i32, i64>,
    pub(crate) null_counts: BTreeMap<i32, i64>,
    pub(crate) nan_counts: BTreeMap<i32, i64>,
    pub(crate) lower: BTreeMap<i32, Vec<u8>>,
    pub(crate) upper: BTreeMap<i32, Vec<u8>>,
    /// Offsets of the row groups.
    pub(crate) split_offsets: Vec<i64>,
    pub(crate) sort_order_id: Option<i32>,
}

impl DataFile {
    pub(crate) fn day(&self) -> Day {
        Day::from_number(self.day)
    }
}

/// Status of a file in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Existing,
    Added,
    Deleted,
}

/// A file in a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) status: Status,
    pub(crate) snapshot_id: i64,
    /// Sequence of the entry; `None` = the sequence of the manifest.
    pub(crate) sequence: Option<i64>,
    pub(crate) file_sequence: Option<i64>,
    pub(crate) file: DataFile,
}

/// A manifest, as lists of manifests name it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) sequence: i64,
    pub(crate) least_sequence: i64,
    pub(crate) snapshot_id: i64,
    /// Files and rows: added, existing, deleted.
    pub(crate) files: [i32; 3],
    pub(crate) rows: [i64; 3],
    /// First and last day of its files; `None` = unknown, or no files.
    pub(crate) days: Option<(i32, i32)>,
}

impl Manifest {
    /// Entry for a list, of a manifest with these entries.
    pub(crate) fn of(
        entries: &[Entry],
        (path, bytes): (String, u64),
        (snapshot_id, sequence): (i64, i64),
    ) -> Manifest {
        let place = |status: Status| match status {
            Status::Added => 0,
            Status::Existing => 1,
            Status::Deleted => 2,
        };
        let of = |at: usize| entries.iter().filter(move |e| place(e.status) == at);
        let rows = |at| signed(of(at).map(|e| e.file.rows).sum());
        let live = entries.iter().filter(|e| e.status != Status::Deleted);
        let days = || entries.iter().map(|e| e.file.day);
        Manifest {
            path,
            bytes,
            sequence,
            least_sequence: live
                .map(|e| e.sequence.unwrap_or(sequence))
                .min()
                .unwrap_or(sequence),
            snapshot_id,
            files: [0, 1, 2].map(|at| small(of(at).count())),
            rows: [0, 1, 2].map(rows),
            days: days().min().zip(days().max()),
        }
    }

    /// Whether a file that is live may be among its entries.
    pub(crate) fn has_live(&self) -> bool {
        let [added, existing, _] = self.files;
        added > 0 || existing > 0
    }

    fn value(&self) -> Value {
        let bound = |day: i32| Value::Bytes(day.to_le_bytes().to_vec());
        let days = self.days.map(|(first, last)| {
            Value::Array(vec![record(vec![
                ("contains_null", Value::Boolean(false)),
                ("contains_nan", optional(Some(Value::Boolean(false)))),
                ("lower_bound", optional(Some(bound(first)))),
                ("upper_bound", optional(Some(bound(last)))),
            ])])
        });
        let [added, existing, deleted] = self.files.map(|count| Value::Number(i64::from(count)));
        let [added_rows, existing_rows, deleted_rows] = self.rows.map(Value::Number);
        record(vec![
            ("manifest_path", Value::Text(self.path.clone())),
            ("manifest_length", Value::Number(signed(self.bytes))),
            ("partition_spec_id", Value::Number(0)),
            ("content", Value::Number(0)),
            ("sequence_number", Value::Number(self.sequence)),
            ("min_sequence_number", Value::Number(self.least_sequence)),
            ("added_snapshot_id", Value::Number(self.snapshot_id)),
            ("added_files_count", added),
            ("existing_files_count", existing),
            ("deleted_files_count", deleted),
            ("added_rows_count", added_rows),
            ("existing_rows_count", existing_rows),
            ("deleted_rows_count", deleted_rows),
            ("partitions", optional(days)),
        ])
    }
}

/// The bytes of a list of manifests.
pub(crate) fn list_file(
    manifests: &[Manifest],
    snapshot_id: i64,
    parent: Option<i64>,
    sequence: i64,
) -> Result<Vec<u8>> {
    let parent = parent.map_or_else(|| "null".to_owned(), |id| id.to_string());
    let head = [
        ("snapshot-id", snapshot_id.to_string()),
        ("parent-snapshot-id", parent),
        ("sequence-number", sequence.to_string()),
        ("format-version", "2".to_owned()),
    ];
    avro::file(
        LIST_SCHEMA,
        &head,
        &manifests.iter().map(Manifest::value).collect::<Vec<_>>(),
    )
}

/// The manifests of a list.
pub(crate) fn list(path: &Path, bytes: &[u8]) -> Result<Vec<Manifest>> {
    avro::records(path, bytes)?
        .iter()
        .map(|of| {
            let content = of.int("content").unwrap_or(0);
            let spec = of.int("partition_spec_id").unwrap_or(0);
            if content != 0 || spec != 0 {
                return Err(LakeError::Foreign {
                    path: path.to_owned(),
                    found: "row deletes, or other partitions, written by others".into(),
                });
            }
            manifest(of).ok_or_else(|| {
                LakeError::format(path, "a list of manifests, version 2", format!("{of:?}"))
            })
        })
        .collect()
}

fn manifest(of: &Record) -> Option<Manifest> {
    // Manifests of other programs may omit counts: then all kinds of entries may exist.
    let count = |name: &str| of.int(name).unwrap_or(1);
    let rows = |name: &str| of.long(name).unwrap_or(0);
    Some(Manifest {
        path: of.text("manifest_path")?.to_owned(),
        bytes: u64::try_from(of.long("manifest_length")?).ok()?,
        sequence: of.long("sequence_number")?,
        least_sequence: of.long("min_sequence_number")?,
        snapshot_id: of.long("added_snapshot_id")?,
        files: [
            "added_files_count",
            "existing_files_count",
            "deleted_files_count",
        ]
        .map(count),
        rows: [
            "added_rows_count",
            "existing_rows_count",
            "deleted_rows_count",
        ]
        .map(rows),
        days: days(of),
    })
}

/// Days of a manifest, from its entry in a list.
fn days(of: &Record) -> Option<(i32, i32)> {
    let summary = of.first("partitions")?;
    let bound = |name: &str| {
        let bytes = summary.bytes(name)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    };
    Some((bound("lower_bound")?, bound("upper_bound")?))
}

/// The bytes of a manifest.
pub(crate) fn file(entries: &[Entry], columns: &Columns, schema_id: i32) -> Result<Vec<u8>> {
    let head = [
        ("schema", columns.iceberg(schema_id).to_string()),
        ("schema-id", schema_id.to_string()),
        ("partition-spec", json!([day_field()]).to_string()),
        ("partition-spec-id", "0".to_owned()),
        ("format-version", "2".to_owned()),
        ("content", "data".to_owned()),
    ];
    avro::file(
        &entry_schema(),
        &head,
        &entries.iter().map(entry_value).collect::<Vec<_>>(),
    )
}

/// The entries of a manifest, except deleted files.
pub(crate) fn live_entries(path: &Path, bytes: &[u8], of: &Manifest) -> Result<Vec<Entry>> {
    let mut out = Vec::new();
    for read in avro::records(path, bytes)? {
        let found = entry(&read, of).ok_or_else(|| {
            LakeError::format(
                path,
                "entries of a manifest, version 2",
                format!("{read:?}"),
            )
        })?;
        if found.status != Status::Deleted {
            out.push(found);
        }
    }
    Ok(out)
}

fn entry(read: &Record, of: &Manifest) -> Option<Entry> {
    let status = match read.int("status")? {
        0 => Status::Existing,
        1 => Status::Added,
        2 => Status::Deleted,
        _ => return None,
    };
    let file = read.record("data_file")?;
    let numbers = |name: &str| file.pairs(name, avro::number).into_iter().collect();
    let bounds = |name: &str| file.pairs(name, avro::bytes).into_iter().collect();
    Some(Entry {
        status,
        snapshot_id: read.long("snapshot_id").unwrap_or(of.snapshot_id),
        sequence: Some(read.long("sequence_number").unwrap_or(of.sequence)),
        file_sequence: Some(read.long("file_sequence_number").unwrap_or(of.sequence)),
        file: DataFile {
            path: file.text("file_path")?.to_owned(),
            day: file.record("partition")?.int("time_day")?,
            rows: u64::try_from(file.long("record_count")?).ok()?,
            bytes: u64::try_from(file.long("file_size_in_bytes")?).ok()?,
            column_sizes: numbers("column_sizes"),
            value_counts: numbers("value_counts"),
            null_counts: numbers("null_value_counts"),
            nan_counts: numbers("nan_value_counts"),
            lower: bounds("lower_bounds"),
            upper: bounds("upper_bounds"),
            split_offsets: file.longs("split_offsets"),
            sort_order_id: file.int("sort_order_id"),
        },
    })
}

fn entry_value(entry: &Entry) -> Value {
    let status = match entry.status {
        Status::Existing => 0,
        Status::Added => 1,
        Status::Deleted => 2,
    };
    record(vec![
        ("status", Value::Number(status)),
        ("snapshot_id", Value::Number(entry.snapshot_id)),
        ("sequence_number", sequence(entry.sequence)),
        ("file_sequence_number", sequence(entry.file_sequence)),
        ("data_file", file_value(&entry.file)),
    ])
}

fn sequence(of: Option<i64>) -> Value {
    optional(of.map(Value::Number))
}

fn file_value(file: &DataFile) -> Value {
    let numbers = |of: &BTreeMap<i32, i64>| pairs(of, |v| Value::Number(*v));
    let bounds = |of: &BTreeMap<i32, Vec<u8>>| pairs(of, |v| Value::Bytes(v.clone()));
    let offsets = file.split_offsets.iter().copied().map(Value::Number);
    let day = Value::Number(i64::from(file.day));
    let order = file.sort_order_id.map(|id| Value::Number(i64::from(id)));
    record(vec![
        ("content", Value::Number(0)),
        ("file_path", Value::Text(file.path.clone())),
        ("file_format", Value::Text("PARQUET".into())),
        ("partition", record(vec![("time_day", day)])),
        ("record_count", Value::Number(signed(file.rows))),
        ("file_size_in_bytes", Value::Number(signed(file.bytes))),
        ("column_sizes", numbers(&file.column_sizes)),
        ("value_counts", numbers(&file.value_counts)),
        ("null_value_counts", numbers(&file.null_counts)),
        ("nan_value_counts", numbers(&file.nan_counts)),
        ("lower_bounds", bounds(&file.lower)),
        ("upper_bounds", bounds(&file.upper)),
        ("key_metadata", optional(None)),
        ("split_offsets", Value::Array(offsets.collect())),
        ("sort_order_id", optional(order)),
    ])
}

fn pairs<T>(of: &BTreeMap<i32, T>, value: impl Fn(&T) -> Value) -> Value {
    let pair = |(key, v): (&i32, &T)| {
        record(vec![
            ("key", Value::Number(i64::from(*key))),
            ("value", value(v)),
        ])
    };
    optional(Some(Value::Array(of.iter().map(pair).collect())))
}

/// The schema of a map from columns to something, as Iceberg has it in Avro.
fn map_field(name: &str, ids: [i32; 3], value: &str) -> String {
    let [id, key, of] = ids;
    format!(
        r#"{{"name":"{name}","field-id":{id},"default":null,"type":["null",{{"type":"array",
        "logicalType":"map","items":{{"type":"record","name":"k{key}_v{of}","fields":[
        {{"name":"key","type":"int","field-id":{key}}},
        {{"name":"value","type":"{value}","field-id":{of}}}]}}}}]}}"#
    )
}

fn entry_schema() -> String {
    let maps = [
        map_field("column_sizes", [108, 117, 118], "long"),
        map_field("value_counts", [109, 119, 120], "long"),
        map_field("null_value_counts", [110, 121, 122], "long"),
        map_field("nan_value_counts", [137, 138, 139], "long"),
        map_field("lower_bounds", [125, 126, 127], "bytes"),
        map_field("upper_bounds", [128, 129, 130], "bytes"),
    ]
    .join(",");
    format!(
        r#"{{"type":"record","name":"manifest_entry","fields":[
        {{"name":"status","type":"int","field-id":0}},
        {{"name":"snapshot_id","type":["null","long"],"default":null,"field-id":1}},
        {{"name":"sequence_number","type":["null","long"],"default":null,"field-id":3}},
        {{"name":"file_sequence_number","type":["null","long"],"default":null,"field-id":4}},
        {{"name":"data_file","field-id":2,"type":{{"type":"record","name":"r2","fields":[
        {{"name":"content","type":"int","field-id":134}},
        {{"name":"file_path","type":"string","field-id":100}},
        {{"name":"file_format","type":"string","field-id":101}},
        {{"name":"partition","field-id":102,"type":{{"type":"record","name":"r102","fields":[
        {{"name":"time_day","type":["null",{{"type":"int","logicalType":"date"}}],
        "default":null,"field-id":{DAY_FIELD_ID}}}]}}}},
        {{"name":"record_count","type":"long","field-id":103}},
        {{"name":"file_size_in_bytes","type":"long","field-id":104}},
        {maps},
        {{"name":"key_metadata","type":["null","bytes"],"default":null,"field-id":131}},
        {{"name":"split_offsets","default":null,"field-id":132,
        "type":["null",{{"type":"array","items":"long","element-id":133}}]}},
        {{"name":"sort_order_id","type":["null","int"],"default":null,"field-id":140}}
        ]}}}}]}}"#
    )
}

const LIST_SCHEMA: &str = r#"{"type":"record","name":"manifest_file","fields":[
    {"name":"manifest_path","type":"string","field-id":500},
    {"name":"manifest_length","type":"long","field-id":501},
    {"name":"partition_spec_id","type":"int","field-id":502},
    {"name":"content","type":"int","field-id":517},
    {"name":"sequence_number","type":"long","field-id":515},
    {"name":"min_sequence_number","type":"long","field-id":516},
    {"name":"added_snapshot_id","type":"long","field-id":503},
    {"name":"added_files_count","type":"int","field-id":504},
    {"name":"existing_files_count","type":"int","field-id":505},
    {"name":"deleted_files_count","type":"int","field-id":506},
    {"name":"added_rows_count","type":"long","field-id":512},
    {"name":"existing_rows_count","type":"long","field-id":513},
    {"name":"deleted_rows_count","type":"long","field-id":514},
    {"name":"partitions","default":null,"field-id":507,"type":["null",{"type":"array",
    "element-id":508,"items":{"type":"record","name":"r508","fields":[
    {"name":"contains_null","type":"boolean","field-id":509},
    {"name":"contains_nan","type":["null","boolean"],"default":null,"field-id":518},
    {"name":"lower_bound","type":["null","bytes"],"default":null,"field-id":510},
    {"name":"upper_bound","type":["null","bytes"],"default":null,"field-id":511}]}}]}
    ]}"#;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn manifests_and_their_lists_read_back_as_they_were_written() {
        let file_of = DataFile {
            path: "/lake/t/data/a.parquet".into(),
            day: -3,
            rows: 7,
            bytes: 900,
            column_sizes: BTreeMap::from([(1, 50), (2, 60)]),
            value_counts: BTreeMap::from([(1, 7), (2, 7)]),
            null_counts: BTreeMap::from([(1, 0), (2, 3)]),
            nan_counts: BTreeMap::from([(2, 1)]),
            lower: BTreeMap::from([(1, vec![1, 2])]),
            upper: BTreeMap::from([(1, vec![3])]),
            split_offsets: vec![4, 800],
            sort_order_id: Some(1),
        };
        let entry = Entry {
            status: Status::Added,
            snapshot_id: 11,
            sequence: None,
            file_sequence: None,
            file: file_of,
        };
        let bytes = file(std::slice::from_ref(&entry), &Columns::new(), 0).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        for wanted in [
            "\"field-id\":1000",
            "\"logicalType\":\"map\"",
            "\"element-id\":133",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
        let known = Manifest::of(std::slice::from_ref(&entry), ("/m".into(), 5), (11, 3));
        let path = Path::new("/m");
        let read = live_entries(path, &bytes, &known).unwrap();
        let expected = Entry {
            sequence: Some(3),
            file_sequence: Some(3),
            ..entry
        };
        assert_eq!(read, [expected]);
        let bytes = list_file(std::slice::from_ref(&known), 11, None, 3).unwrap();
        let read = list(path, &bytes).unwrap();
        assert_eq!(read, [known]);
    }
}
