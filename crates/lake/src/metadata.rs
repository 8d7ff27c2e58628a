//! The metadata of a table: Iceberg's JSON, version 2, and our properties in it.
//!
//! Invariants: parts that are read and not understood are written back as they were. Snapshots,
//! schemas and sort orders are only added, but for snapshots that expire because of their age.
//! Format: docs/format/lake.md.

use crate::columns::Columns;
use crate::day::Day;
use crate::error::{LakeError, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The version of Iceberg's format that is written.
const FORMAT_VERSION: u8 = 2;
/// The number of the field by which tables are divided.
pub(crate) const DAY_FIELD_ID: i32 = 1000;
/// Versions of the metadata that are remembered.
const METADATA_LOG_MAX: usize = 100;

// Properties that only we write.
const VERSION: &str = "headwater.version";
const DATABASE: &str = "headwater.database";
const TABLE: &str = "headwater.table";
const ROLLUP: &str = "headwater.rollup";
const COLUMNS: &str = "headwater.columns";
const SNAPSHOT: &str = "headwater.snapshot";
const DAYS: &str = "headwater.days.";

/// The metadata of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Metadata {
    format_version: u8,
    table_uuid: String,
    pub(crate) location: String,
    pub(crate) last_sequence_number: i64,
    last_updated_ms: i64,
    last_column_id: i32,
    schemas: Vec<Value>,
    current_schema_id: i32,
    partition_specs: Vec<Value>,
    default_spec_id: i32,
    last_partition_id: i32,
    #[serde(default)]
    properties: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    pub(crate) snapshots: Vec<Snapshot>,
    #[serde(default)]
    snapshot_log: Vec<SnapshotLogEntry>,
    #[serde(default)]
    metadata_log: Vec<MetadataLogEntry>,
    sort_orders: Vec<Value>,
    default_sort_order_id: i32,
    #[serde(default)]
    refs: Map<String, Value>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// A snapshot of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Snapshot {
    pub(crate) snapshot_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_snapshot_id: Option<i64>,
    pub(crate) sequence_number: i64,
    pub(crate) timestamp_ms: i64,
    pub(crate) summary: BTreeMap<String, String>,
    pub(crate) manifest_list: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schema_id: Option<i32>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SnapshotLogEntry {
    timestamp_ms: i64,
    snapshot_id: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MetadataLogEntry {
    timestamp_ms: i64,
    metadata_file: String,
}

/// Source of a day of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    /// The database's version of the day; `None` = no lasting version.
    pub(crate) version: Option<String>,
    pub(crate) rows: u64,
    /// The sum over the rows.
    pub(crate) sum: String,
}

/// Properties of a new snapshot.
pub(crate) struct NewSnapshot {
    pub(crate) id: i64,
    pub(crate) manifest_list: String,
    pub(crate) summary: BTreeMap<String, String>,
}

impl Metadata {
    /// A table without rows.
    pub(crate) fn new(location: &str, uuid: String, now_ms: i64) -> Metadata {
        let columns = Columns::new();
        let spec = json!({"spec-id": 0, "fields": [day_field()]});
        Metadata {
            format_version: FORMAT_VERSION,
            table_uuid: uuid,
            location: location.to_owned(),
            last_sequence_number: 0,
            last_updated_ms: now_ms,
            last_column_id: columns.last_id,
            schemas: vec![columns.iceberg(0)],
            current_schema_id: 0,
            partition_specs: vec![spec],
            default_spec_id: 0,
            last_partition_id: DAY_FIELD_ID,
            properties: BTreeMap::new(),
            current_snapshot_id: None,
            snapshots: Vec::new(),
            snapshot_log: Vec::new(),
            metadata_log: Vec::new(),
            sort_orders: vec![json!({"order-id": 0, "fields": []}), columns.sort_order(1)],
            default_sort_order_id: 1,
            refs: Map::new(),
            other: Map::new(),
        }
    }

    /// Reads the metadata of a table that we have written.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Metadata> {
        let metadata: Metadata = serde_json::from_slice(bytes)
            .map_err(|e| LakeError::format(path, "metadata of an Iceberg table", e))?;
        let version = metadata.format_version;
        if version != FORMAT_VERSION {
            return Err(LakeError::format(
                path,
                "version 2 of Iceberg's format",
                version,
            ));
        }
        match metadata.properties.get(VERSION).map(String::as_str) {
            Some("1") => Ok(metadata),
            Some(other) => {
                let expected = "a table of a version that this Headwater supports (1)";
                Err(LakeError::format(path, expected, other))
            }
            None => Err(LakeError::Foreign {
                path: path.to_owned(),
                found: "a table that Headwater did not create".into(),
            }),
        }
    }

    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|e| LakeError::internal(e.to_string()))
    }

    /// Current snapshot of the table; `None` = the table never had rows.
    pub(crate) fn current(&self) -> Option<&Snapshot> {
        let id = self.current_snapshot_id?;
        self.snapshots.iter().find(|s| s.snapshot_id == id)
    }

    pub(crate) fn schema(&self) -> Option<&Value> {
        let id = i64::from(self.current_schema_id);
        let mut all = self.schemas.iter();
        all.find(|s| s.get("schema-id").and_then(Value::as_i64) == Some(id))
    }

    pub(crate) fn schema_id(&self) -> i32 {
        self.current_schema_id
    }

    /// The number that the order of rows will have with these columns.
    pub(crate) fn sort_order_of(&self, columns: &Columns) -> Result<i32> {
        let mut next = self.clone();
        next.set_columns(columns)?;
        Ok(next.default_sort_order_id)
    }

    fn parsed<T: serde::de::DeserializeOwned>(&self, path: &Path, key: &str) -> Result<Option<T>> {
        let Some(text) = self.properties.get(key) else {
            return Ok(None);
        };
        let parsed = serde_json::from_str(text);
        parsed
            .map(Some)
            .map_err(|e| LakeError::format(path, format!("JSON in `{key}`"), e))
    }

    /// The columns of the table.
    pub(crate) fn columns(&self, path: &Path) -> Result<Columns> {
        Ok(self.parsed(path, COLUMNS)?.unwrap_or_else(Columns::new))
    }

    /// The database from which the table was created.
    pub(crate) fn database(&self) -> Option<u64> {
        u64::from_str_radix(self.properties.get(DATABASE)?, 16).ok()
    }

    /// The name of the table in that database.
    pub(crate) fn table(&self) -> Option<&str> {
        self.properties.get(TABLE).map(String::as_str)
    }

    /// The table is the rollup of that table.
    pub(crate) fn is_rollup(&self) -> bool {
        self.properties.contains_key(ROLLUP)
    }

    /// Whether this is the table of `table`, or of its rollup; true also if the source is not
    /// recorded yet.
    pub(crate) fn is_of(&self, table: &str, is_rollup: bool) -> bool {
        self.table()
            .is_none_or(|found| found == table && self.is_rollup() == is_rollup)
    }

    /// Description of the source, for messages.
    pub(crate) fn of(&self) -> String {
        let what = if self.is_rollup() {
            "the rollup of "
        } else {
            ""
        };
        format!("{what}the table `{}`", self.table().unwrap_or(""))
    }

    /// Sources of the days of the table.
    pub(crate) fn days(&self, path: &Path) -> Result<BTreeMap<Day, Recorded>> {
        let mut days = BTreeMap::new();
        for key in self.properties.keys().filter(|key| key.starts_with(DAYS)) {
            let month = key.strip_prefix(DAYS).unwrap_or(key);
            let of_month: BTreeMap<String, Recorded> =
                self.parsed(path, key)?.unwrap_or_else(BTreeMap::new);
            for (number, recorded) in of_month {
                let text = format!("{month}-{number}");
                let day = Day::parse(&text)
                    .ok_or_else(|| LakeError::format(path, format!("days in `{key}`"), &text))?;
                days.insert(day, recorded);
            }
        }
        Ok(days)
    }

    /// Refuses a table that others have changed otherwise than by putting the same rows into other
    /// files.
    pub(crate) fn check_unchanged(&self, path: &Path) -> Result<()> {
        let foreign = |found: String| LakeError::Foreign {
            path: path.to_owned(),
            found,
        };
        let ours: Option<i64> = self.properties.get(SNAPSHOT).and_then(|id| id.parse().ok());
        let mut at = self.current_snapshot_id.filter(|id| *id >= 0);
        while at != ours {
            let snapshot = at.and_then(|id| self.snapshots.iter().find(|s| s.snapshot_id == id));
            let operation = snapshot.and_then(|s| s.summary.get("operation"));
            match (snapshot, operation.map(String::as_str)) {
                (Some(snapshot), Some("replace")) => at = snapshot.parent_snapshot_id,
                (Some(snapshot), operation) => {
                    let what = operation.unwrap_or("unknown");
                    let id = snapshot.snapshot_id;
                    return Err(foreign(format!(
                        "snapshot {id}, written by others ({what})"
                    )));
                }
                (None, _) => return Err(foreign("no snapshot written by Headwater".into())),
            }
        }
        let columns = self.columns(path)?;
        if self.schema() != Some(&columns.iceberg(self.current_schema_id)) {
            return Err(foreign("a schema changed by others".into()));
        }
        if self.default_spec_id != 0 {
            return Err(foreign("partitions changed by others".into()));
        }
        Ok(())
    }

    /// Records the source: database, table, and whether this is its rollup.
    pub(crate) fn set_source(&mut self, database: u64, table: &str, is_rollup: bool) {
        let properties = &mut self.properties;
        if is_rollup {
            properties.insert(ROLLUP.into(), "true".into());
        }
        properties.insert(VERSION.into(), "1".into());
        properties.insert(DATABASE.into(), format!("{database:016x}"));
        properties.insert(TABLE.into(), table.into());
        properties.insert("write.format.default".into(), "parquet".into());
        properties.insert("write.parquet.compression-codec".into(), "zstd".into());
    }

    /// Sets the columns of the table.
    pub(crate) fn set_columns(&mut self, columns: &Columns) -> Result<()> {
        let text = serde_json::to_string(columns);
        let text = text.map_err(|e| LakeError::internal(e.to_string()))?;
        self.properties.insert(COLUMNS.into(), text);
        self.last_column_id = self.last_column_id.max(columns.last_id);
        if self.schema() != Some(&columns.iceberg(self.current_schema_id)) {
            self.current_schema_id = next_id(&self.schemas, "schema-id");
            self.schemas.push(columns.iceberg(self.current_schema_id));
        }
        let known = columns.sort_order(self.default_sort_order_id);
        if !self.sort_orders.contains(&known) {
            self.default_sort_order_id = next_id(&self.sort_orders, "order-id");
            self.sort_orders
                .push(columns.sort_order(self.default_sort_order_id));
        }
        Ok(())
    }

    /// Records the sources of the table's days.
    pub(crate) fn set_days(&mut self, days: &BTreeMap<Day, Recorded>) -> Result<()> {
        self.properties.retain(|key, _| !key.starts_with(DAYS));
        let mut months: BTreeMap<String, BTreeMap<String, &Recorded>> = BTreeMap::new();
        for (day, recorded) in days {
            let text = day.to_string();
            let (month, number) = text.rsplit_once('-').unwrap_or((&text, ""));
            let of_month = months.entry(month.to_owned()).or_default();
            of_month.insert(number.to_owned(), recorded);
        }
        for (month, of_month) in months {
            let text = serde_json::to_string(&of_month);
            let text = text.map_err(|e| LakeError::internal(e.to_string()))?;
            self.properties.insert(format!("{DAYS}{month}"), text);
        }
        Ok(())
    }

    /// Makes a new snapshot the current one, and expires those older than `keep_from_ms`.
    pub(crate) fn add_snapshot(&mut self, new: NewSnapshot, now_ms: i64, keep_from_ms: i64) {
        self.last_sequence_number += 1;
        let snapshot = Snapshot {
            snapshot_id: new.id,
            parent_snapshot_id: self.current_snapshot_id.filter(|id| *id >= 0),
            sequence_number: self.last_sequence_number,
            timestamp_ms: now_ms.max(self.last_updated_ms),
            summary: new.summary,
            manifest_list: new.manifest_list,
            schema_id: Some(self.current_schema_id),
            other: Map::new(),
        };
        self.properties.insert(SNAPSHOT.into(), new.id.to_string());
        self.current_snapshot_id = Some(new.id);
        self.snapshot_log.push(SnapshotLogEntry {
            timestamp_ms: snapshot.timestamp_ms,
            snapshot_id: new.id,
        });
        self.snapshots.push(snapshot);
        let main = json!({"snapshot-id": new.id, "type": "branch"});
        self.refs.insert("main".into(), main);
        self.let_go(keep_from_ms);
    }

    /// Expires old snapshots, except those with a name.
    fn let_go(&mut self, keep_from_ms: i64) {
        let id_of = |named: &Value| named.get("snapshot-id").and_then(Value::as_i64);
        let named: Vec<i64> = self.refs.values().filter_map(id_of).collect();
        self.snapshots
            .retain(|s| s.timestamp_ms >= keep_from_ms || named.contains(&s.snapshot_id));
        let kept: Vec<i64> = self.snapshots.iter().map(|s| s.snapshot_id).collect();
        // The log must be contiguous: entries before the last missing snapshot are removed.
        let gone = self
            .snapshot_log
            .iter()
            .rposition(|e| !kept.contains(&e.snapshot_id));
        if let Some(gone) = gone {
            self.snapshot_log.drain(..=gone);
        }
    }

    /// The metadata that follow those in a file.
    pub(crate) fn following(&self, file: String, now_ms: i64) -> Metadata {
        let mut next = self.clone();
        next.metadata_log.push(MetadataLogEntry {
            timestamp_ms: self.last_updated_ms,
            metadata_file: file,
        });
        let beyond = next.metadata_log.len().saturating_sub(METADATA_LOG_MAX);
        next.metadata_log.drain(..beyond);
        next.last_updated_ms = now_ms.max(self.last_updated_ms);
        next
    }

    /// Files of metadata that are remembered.
    pub(crate) fn remembered(&self) -> impl Iterator<Item = &str> {
        self.metadata_log
            .iter()
            .map(|entry| entry.metadata_file.as_str())
    }
}

/// The field by which tables are divided, as Iceberg writes it.
pub(crate) fn day_field() -> Value {
    json!({"source-id": 1, "field-id": DAY_FIELD_ID, "name": "time_day", "transform": "day"})
}

/// A number that none of `all` has.
fn next_id(all: &[Value], key: &str) -> i32 {
    let most = all.iter().filter_map(|v| v.get(key)?.as_i64()).max();
    most.and_then(|most| i32::try_from(most + 1).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]
    use super::*;
    use headwater::FieldType;

    fn recorded(rows: u64) -> Recorded {
        Recorded {
            version: (rows > 1).then(|| "00112233445566778899aabbccddeeff".into()),
            rows,
            sum: format!("{rows:032x}"),
        }
    }

    fn sample() -> (Metadata, Columns, BTreeMap<Day, Recorded>) {
        let uuid = "01234567-89ab-4cde-8f01-23456789abcd".to_owned();
        let mut first = Metadata::new("/lake/t", uuid, 1_000);
        first.set_source(7, "t", false);
        let fields = [
            ("v".to_owned(), FieldType::I64),
            ("w".to_owned(), FieldType::U64),
        ];
        let columns = Columns::new().grown(&["id".to_owned()], &fields).columns;
        first.set_columns(&columns).unwrap();
        let mut second = first.following("/lake/t/metadata/v1.metadata.json".into(), 3_000);
        let fields = [
            ("v".to_owned(), FieldType::F64),
            ("w".to_owned(), FieldType::U64),
        ];
        let columns = columns
            .grown(&["id".to_owned()], &fields)
            .columns
            .with_rest();
        second.set_columns(&columns).unwrap();
        let days = BTreeMap::from([
            (Day::from_number(-1), recorded(1)),
            (Day::from_number(20_777), recorded(2)),
            (Day::from_number(20_778), recorded(3)),
        ]);
        second.set_days(&days).unwrap();
        let new = NewSnapshot {
            id: 5,
            manifest_list: "/lake/t/metadata/0123456789abcdef-list.avro".into(),
            summary: BTreeMap::from([("operation".to_owned(), "append".to_owned())]),
        };
        second.add_snapshot(new, 3_000, 0);
        (second, columns, days)
    }

    #[test]
    fn metadata_have_the_bytes_they_had_and_say_what_they_said() {
        let (metadata, columns, days) = sample();
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v2.metadata.json");
        if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
            std::fs::write(golden, metadata.bytes().unwrap()).unwrap();
        }
        let bytes = std::fs::read(golden).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(text(metadata.bytes().unwrap()), text(bytes.clone()));
        let path = Path::new("/lake/t");
        let read = Metadata::parse(path, &bytes).unwrap();
        read.check_unchanged(path).unwrap();
        assert_eq!((read.database(), read.table()), (Some(7), Some("t")));
        assert_eq!(read.columns(path).unwrap(), columns);
        assert_eq!(read.days(path).unwrap(), days);
        assert_eq!(read.current().map(|s| s.snapshot_id), Some(5));
    }

    #[test]
    fn what_others_have_put_there_is_written_back() {
        let (metadata, ..) = sample();
        let mut json: Value = serde_json::from_slice(&metadata.bytes().unwrap()).unwrap();
        let top = json.as_object_mut().unwrap();
        top.insert("statistics".into(), json!([{"snapshot-id": 5}]));
        let path = Path::new("/lake/t");
        let read = Metadata::parse(path, json.to_string().as_bytes()).unwrap();
        let again: Value = serde_json::from_slice(&read.bytes().unwrap()).unwrap();
        assert_eq!(again, json);
    }

    #[test]
    fn old_snapshots_are_let_go_and_those_with_names_stay() {
        let (mut metadata, ..) = sample();
        metadata
            .refs
            .insert("kept".into(), json!({"snapshot-id": 5, "type": "tag"}));
        for id in 6..9 {
            let new = NewSnapshot {
                id,
                manifest_list: String::new(),
                summary: BTreeMap::new(),
            };
            metadata.add_snapshot(new, 3_000 + id, 3_008);
        }
        let ids: Vec<i64> = metadata.snapshots.iter().map(|s| s.snapshot_id).collect();
        assert_eq!(ids, [5, 8]);
        assert_eq!(metadata.snapshot_log.len(), 1);
    }
}
