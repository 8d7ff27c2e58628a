//! Contents of a database, in the model's form.

use super::cell::Cell;
use super::model::{Rows, State, Table};
use headwater::{Database, Options, ScanSpec, Snapshot, StreamName, TableInfo, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Everything that a closed database holds, by an opening of its own.
pub fn contents_of(dir: &Path) -> State {
    let db = Database::open(Options::new(dir)).unwrap();
    let snapshot = db.snapshot().unwrap();
    let table = |info: TableInfo| {
        let fields = info.fields.iter();
        let fields = fields.map(|f| (f.name.clone(), f.field_type.name().to_owned()));
        let streams = snapshot.streams(&info.name, &[]).unwrap();
        let streams = streams.iter().map(|stream| {
            let tags = stream.tags().iter().map(|(k, v)| format!("{k}={v}"));
            let tags = tags.collect::<Vec<_>>().join(",");
            (tags, rows(&snapshot, stream))
        });
        let table = Table {
            fields: fields.collect(),
            streams: streams.collect(),
        };
        (info.name, table)
    };
    db.tables().into_iter().map(table).collect()
}

fn rows(snapshot: &Snapshot, stream: &StreamName) -> Rows {
    let scan = snapshot.scan(stream, &ScanSpec::default()).unwrap();
    let names: Vec<String> = scan.fields().iter().map(|(name, _)| name.clone()).collect();
    let mut rows = Rows::new();
    for chunk in scan {
        let chunk = chunk.unwrap();
        for (at, time) in chunk.times.iter().enumerate() {
            let mut row = BTreeMap::new();
            for (name, column) in names.iter().zip(&chunk.columns) {
                if let Some(value) = column.get(at) {
                    row.insert(name.clone(), cell(&value.to_owned()));
                }
            }
            assert!(rows.insert(*time, row).is_none(), "{stream} at {time}");
        }
    }
    rows
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::F64(value) => Cell::F64(*value),
        Value::I64(value) => Cell::I64(*value),
        Value::U64(value) => Cell::U64(*value),
        Value::Bool(value) => Cell::Bool(*value),
        Value::String(value) => Cell::Text(value.clone()),
        other => panic!("{other:?}"),
    }
}
