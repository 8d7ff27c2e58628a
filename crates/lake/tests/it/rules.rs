//! Rules of the lake, one by one.

use crate::support::{Bench, DAY, START, files_below, metadata, options, rows_of_lake};
use headwater::{Batch, ClosedRange, Database, DeleteSpec, Options, StreamName, Timestamp};
use headwater_lake::{Day, LakeError, data_files};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::{self, File};
use std::time::Duration;

fn pump() -> StreamName {
    StreamName::new("pumps", [("id", "1")])
}

#[test]
fn unchanged_days_are_neither_read_nor_written_again_also_after_reopening() {
    let mut bench = Bench::new();
    for day in 0..5 {
        bench.row(&pump(), START + day * DAY, &[("rpm", (day as f64).into())]);
    }
    let first = bench.write();
    assert_eq!(first.tables[0].days_written, 5);
    // What was in memory is stored now: the days are read once more, and their versions kept.
    bench.db().flush().unwrap();
    let second = bench.write();
    let table = &second.tables[0];
    assert_eq!(
        (table.days_unchanged, table.days_equal, table.commits),
        (0, 5, 1),
        "{table:?}"
    );
    bench.reopen();
    let again = bench.write();
    let table = &again.tables[0];
    assert_eq!(
        (table.days_unchanged, table.days_equal, table.commits),
        (5, 0, 0),
        "{table:?}"
    );
    // Other files of the same rows are read, and found to be the same.
    bench.row(&pump(), START + 9 * DAY, &[("rpm", 9.0.into())]);
    bench.db().flush().unwrap();
    bench.db().compact().unwrap();
    let compacted = bench.write();
    assert_eq!(compacted.tables[0].days_written, 1, "{compacted:?}");
    bench.assert_equal("after a compaction");
}

#[test]
fn a_day_without_rows_goes_and_comes_back() {
    let bench = Bench::new();
    bench.row(&pump(), START, &[("rpm", 1.0.into())]);
    bench.row(&pump(), START + DAY, &[("rpm", 2.0.into())]);
    bench.write();
    let spec = DeleteSpec {
        table: "pumps".into(),
        tags: Vec::new(),
        range: ClosedRange::nanos(START, START),
    };
    bench.db().delete(&spec).unwrap();
    let told = bench.write();
    assert_eq!(told.tables[0].days_removed, 1, "{told:?}");
    let held = metadata(&bench.lake(), "pumps").unwrap();
    let snapshots = held["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.last().unwrap()["summary"]["operation"], "delete");
    bench.assert_equal("after a delete");
    bench.row(&pump(), START, &[("rpm", 3.0.into())]);
    bench.write();
    bench.assert_equal("after it came back");
}

#[test]
fn an_empty_table_is_there_with_its_columns() {
    let bench = Bench::new();
    let mut spec = headwater::TableSpec::new("empty");
    spec.tags = vec!["id".into()];
    spec.fields = vec![headwater::FieldSpec {
        name: "v".into(),
        field_type: headwater::FieldType::U64,
    }];
    bench.db().create_table(&spec).unwrap();
    bench.write();
    let held = metadata(&bench.lake(), "empty").unwrap();
    let schema = held["schemas"].as_array().unwrap().last().unwrap();
    let fields: Vec<(&str, &str)> = schema["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["name"].as_str().unwrap(), f["type"].as_str().unwrap()))
        .collect();
    let expected = [
        ("time", "timestamptz"),
        ("id", "string"),
        ("v", "decimal(20, 0)"),
    ];
    assert_eq!(fields, expected);
    assert_eq!(held["current-snapshot-id"], serde_json::Value::Null);
    bench.assert_equal("an empty table");
}

#[test]
fn rows_of_a_day_are_sorted_divided_into_files_and_have_statistics() {
    let bench = Bench::new();
    let mut batch = Batch::new();
    for id in (0..20).rev() {
        let stream = StreamName::new("pumps", [("id", format!("{id:02}"))]);
        for at in 0..5_000i64 {
            let value = (at * 7919 % 1_000) as f64;
            let at = at * 1_000 + id;
            batch
                .stream(&stream)
                .row(START + at * 1_000, [("rpm", value.into())])
                .unwrap();
        }
    }
    bench.db().commit(batch).unwrap();
    let mut options = options();
    options.file_bytes = 200_000;
    bench.write_with(&options).unwrap();
    bench.assert_equal("several files");
    let files = data_files(&bench.lake(), "pumps").unwrap();
    assert!(files.len() > 2, "{}", files.len());
    let mut last = (String::new(), 0);
    for path in files {
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        for group in builder.metadata().row_groups() {
            assert_eq!(group.sorting_columns().map(Vec::len), Some(2));
            for column in group.columns() {
                assert!(column.statistics().is_some() && column.column_index_offset().is_some());
                assert!(matches!(
                    column.compression(),
                    parquet::basic::Compression::ZSTD(_)
                ));
            }
        }
        for batch in builder.build().unwrap() {
            use arrow::array::AsArray;
            let batch = batch.unwrap();
            let times = batch
                .column(0)
                .as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
            let ids = batch.column(1).as_string::<i32>();
            for at in 0..batch.num_rows() {
                let now = (ids.value(at).to_owned(), times.value(at));
                assert!(last < now, "{last:?} before {now:?}");
                last = now;
            }
        }
    }
}

#[test]
fn a_table_of_another_database_or_changed_by_others_is_refused() {
    let bench = Bench::new();
    bench.row(&pump(), START, &[("rpm", 1.0.into())]);
    bench.write();
    let other = Bench::new();
    other.row(&pump(), START, &[("rpm", 1.0.into())]);
    let look = || other.db().snapshot();
    let error = headwater_lake::write(&look, &bench.lake(), &options()).unwrap_err();
    assert_eq!(error.code(), "lake.database", "{error}");
    // Somebody else adds a snapshot.
    let folder = bench.lake().join("pumps/metadata");
    let path = folder.join("v1.metadata.json");
    let mut held: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut snapshot = held["snapshots"][0].clone();
    snapshot["parent-snapshot-id"] = held["current-snapshot-id"].clone();
    snapshot["snapshot-id"] = 5.into();
    for (operation, code) in [("replace", None), ("append", Some("lake.foreign"))] {
        snapshot["summary"]["operation"] = operation.into();
        let mut changed = held.clone();
        changed["snapshots"]
            .as_array_mut()
            .unwrap()
            .push(snapshot.clone());
        changed["current-snapshot-id"] = 5.into();
        fs::write(folder.join("v2.metadata.json"), changed.to_string()).unwrap();
        let refused = bench.write_with(&options()).err().map(|e| e.code());
        assert_eq!(refused, code, "{operation}");
        fs::remove_file(folder.join("v2.metadata.json")).unwrap();
        let _ = fs::remove_file(folder.join("v3.metadata.json"));
    }
    held["properties"]
        .as_object_mut()
        .unwrap()
        .remove("headwater.version");
    fs::write(folder.join("v2.metadata.json"), held.to_string()).unwrap();
    let error = bench.write_with(&options()).unwrap_err();
    assert_eq!(error.code(), "lake.foreign", "{error}");
}

#[test]
fn a_moved_lake_is_read_and_not_written() {
    let bench = Bench::new();
    bench.row(&pump(), START, &[("rpm", 1.0.into())]);
    bench.write();
    let moved = bench.lake().with_file_name("moved");
    fs::rename(bench.lake(), &moved).unwrap();
    let error = headwater_lake::write(&|| bench.db().snapshot(), &moved, &options()).unwrap_err();
    assert!(matches!(error, LakeError::Moved { .. }), "{error}");
}

#[test]
fn status_and_verify_tell_what_is_missing_and_what_is_wrong() {
    let bench = Bench::new();
    for day in 0..3 {
        bench.row(&pump(), START + day * DAY, &[("rpm", (day as f64).into())]);
    }
    bench.db().flush().unwrap();
    fs::create_dir_all(bench.lake()).unwrap();
    let snapshot = bench.db().snapshot().unwrap();
    let status = headwater_lake::status(&snapshot, &bench.lake()).unwrap();
    let missing = &status.tables[0].missing;
    assert_eq!(
        (status.tables[0].version, missing.len()),
        (0, 1),
        "{status:?}"
    );
    assert_eq!(missing[0].why, "not written yet");
    assert_eq!(missing[0].first, Day::of(Timestamp::from_nanos(START)));
    assert_eq!(
        missing[0].last,
        Day::of(Timestamp::from_nanos(START + 2 * DAY))
    );
    bench.write();
    bench.row(&pump(), START + DAY, &[("rpm", 9.0.into())]);
    let snapshot = bench.db().snapshot().unwrap();
    let status = headwater_lake::status(&snapshot, &bench.lake()).unwrap();
    let table = &status.tables[0];
    assert_eq!(
        (table.days, table.rows, table.missing.len()),
        (3, 3, 1),
        "{status:?}"
    );
    assert!(table.missing[0].why.starts_with("changed"), "{status:?}");
    let verified = headwater_lake::verify(&snapshot, &bench.lake(), true).unwrap();
    assert!(verified.is_sound(), "{verified:?}");
    assert_eq!(
        (verified.tables[0].days, verified.tables[0].days_behind),
        (2, 1),
        "{verified:?}"
    );
    // A file that is cut, one that is another's, and one that is gone.
    let files = data_files(&bench.lake(), "pumps").unwrap();
    let whole = fs::read(&files[0]).unwrap();
    fs::write(&files[0], &whole[..whole.len() / 2]).unwrap();
    fs::copy(&files[2], &files[1]).unwrap();
    fs::remove_file(&files[2]).unwrap();
    let verified = headwater_lake::verify(&snapshot, &bench.lake(), true).unwrap();
    assert_eq!(verified.tables[0].differences.len(), 3, "{verified:?}");
    assert!(!verified.is_sound());
}

#[test]
fn names_that_paths_and_engines_do_not_take_have_others() {
    let bench = Bench::new();
    let long = "long".repeat(60);
    for table in ["a/b", "..", "_x", "ümlaut 1", &long] {
        let stream = StreamName::new(table, [("Time", "t"), ("time", "u")]);
        let fields = [
            ("time", 1.0.into()),
            ("TIME", 2.0.into()),
            ("a.b", 3.0.into()),
        ];
        bench.row(&stream, START, &fields);
    }
    bench.write();
    bench.assert_equal("odd names");
    let mut folders: Vec<String> = fs::read_dir(bench.lake())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(folders.len(), 5, "{folders:?}");
    assert!(
        folders
            .iter()
            .all(|f| f.len() <= 200 && !f.starts_with(['.', '_'])),
        "{folders:?}"
    );
    assert!(folders.contains(&"a~2fb".to_owned()), "{folders:?}");
}

#[test]
fn days_that_are_not_over_are_left_for_later() {
    let bench = Bench::new();
    bench.row(&pump(), START, &[("rpm", 1.0.into())]);
    bench.row(&pump(), START + DAY, &[("rpm", 2.0.into())]);
    let mut until = options();
    until.until = Some(Timestamp::from_nanos(START + DAY + 5));
    let told = bench.write_with(&until).unwrap();
    let table = &told.tables[0];
    assert_eq!((table.days_written, table.days_open), (1, 1), "{told:?}");
    assert_eq!(rows_of_lake(&bench.lake(), "pumps").len(), 1);
}

#[test]
fn what_goes_because_of_its_age_stays_in_the_lake() {
    let bench = Bench::new();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = i64::try_from(now.as_nanos()).unwrap();
    let old = now - 20 * DAY;
    bench.row(&pump(), old, &[("rpm", 1.0.into())]);
    bench.row(&pump(), now, &[("rpm", 2.0.into())]);
    bench.write();
    let change = headwater::TableChange {
        retention: Some(Some(Duration::from_secs(5 * 86_400))),
        ..headwater::TableChange::default()
    };
    bench.db().alter_table("pumps", &change).unwrap();
    bench.db().compact().unwrap();
    assert_eq!(
        bench
            .db()
            .snapshot()
            .unwrap()
            .stream_info(&pump())
            .unwrap()
            .rows,
        1
    );
    let told = bench.write();
    assert_eq!(
        (told.tables[0].days_kept, told.tables[0].days_removed),
        (1, 0),
        "{told:?}"
    );
    assert_eq!(rows_of_lake(&bench.lake(), "pumps").len(), 2);
    let snapshot = bench.db().snapshot().unwrap();
    let verified = headwater_lake::verify(&snapshot, &bench.lake(), true).unwrap();
    assert!(verified.is_sound(), "{verified:?}");
    assert_eq!(
        (verified.tables[0].days, verified.tables[0].days_kept),
        (1, 1),
        "{verified:?}"
    );
}

#[test]
fn older_snapshots_stay_readable_for_as_long_as_they_are_kept() {
    let bench = Bench::new();
    let mut keeping = options();
    keeping.keep_snapshots = Duration::from_secs(3_600);
    for round in 0..4 {
        bench.row(&pump(), START, &[("rpm", (round as f64).into())]);
        bench.write_with(&keeping).unwrap();
    }
    let held = metadata(&bench.lake(), "pumps").unwrap();
    assert_eq!(held["snapshots"].as_array().unwrap().len(), 4);
    let data = bench.lake().canonicalize().unwrap().join("pumps/data");
    assert_eq!(files_below(&data).len(), 4);
    bench.row(&pump(), START, &[("rpm", 9.0.into())]);
    let told = bench.write();
    assert!(told.tables[0].swept.files >= 4, "{told:?}");
    assert_eq!(files_below(&data).len(), 1);
    bench.assert_equal("after old snapshots went");
}

#[test]
fn a_lake_is_written_beside_the_process_that_owns_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(Options::new(dir.path().join("db"))).unwrap();
    let reader_options = || Options::new(dir.path().join("db"));
    let reader = headwater::Reader::open(reader_options()).unwrap();
    let lake = dir.path().join("lake");
    for round in 0..3i64 {
        let mut batch = Batch::new();
        batch
            .stream(&pump())
            .row(START + round, [("rpm", 1.0.into())])
            .unwrap();
        db.commit(batch).unwrap();
        let look = || {
            reader.refresh()?;
            Ok(reader.snapshot())
        };
        headwater_lake::write(&look, &lake, &options()).unwrap();
        assert_eq!(rows_of_lake(&lake, "pumps").len(), round as usize + 1);
    }
}
