//! Tables, deletes, reports, backup.

use crate::common::{Db, fails, get, list, ok, release, s, text};
use headwater_ffi::*;
use std::ptr::{null, null_mut};

/// A text that a call gives, as JSON.
fn json(call: impl FnOnce(*mut hw_text, *mut hw_error) -> i32) -> serde_json::Value {
    let made = get(call);
    let value = serde_json::from_str(&text(made.text)).unwrap();
    release(made.handle);
    value
}

#[test]
fn tables_are_declared_changed_listed_and_dropped() {
    let db = Db::new();
    let fields = [
        hw_field {
            name: s("count"),
            value_type: HW_I64,
        },
        hw_field {
            name: s("note"),
            value_type: HW_STRING,
        },
    ];
    let mut spec = hw_table {
        duplicates: HW_DUPLICATES_KEEP,
        leaf_events: 64,
        retention_ns: 0,
        raw_for_ns: 0,
        fields: fields.as_ptr(),
        field_count: 2,
    };
    // SAFETY: lists are as long as said.
    unsafe {
        ok(|e| hw_table_create(db.db, s("log"), &raw const spec, e));
        let again = fails(|e| hw_table_create(db.db, s("log"), null(), e));
        assert!(
            again.0 == HW_INVALID && again.1.contains("exists"),
            "{again:?}"
        );
        let widened = [hw_field {
            name: s("count"),
            value_type: HW_F64,
        }];
        spec = hw_table {
            duplicates: 0,
            leaf_events: 0,
            retention_ns: 86_400_000_000_000,
            raw_for_ns: HW_FOR_EVER,
            fields: widened.as_ptr(),
            field_count: 1,
        };
        ok(|e| hw_table_alter(db.db, s("log"), &raw const spec, e));
        let mut tables = json(|out, e| hw_tables(db.db, out, e));
        // The retention is in force when the call returns: an eighth of it at most is kept on top.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let oldest = now.unwrap().as_nanos() as i64 - 86_400_000_000_000;
        let cut = tables[0]["cut_ns"].take().as_i64().unwrap();
        assert!(
            cut <= oldest && cut > oldest - 86_400_000_000_000 / 8,
            "{cut}"
        );
        let expected = serde_json::json!([{
            "name": "log", "duplicates": "keep", "leaf_events": 64, "tags": [],
            "fields": [{"name": "count", "type": "f64"}, {"name": "note", "type": "string"}],
            "streams": 0, "retention_ns": 86_400_000_000_000u64, "raw_for_ns": null,
            "cut_ns": null, "aged_to_ns": null,
        }]);
        assert_eq!(tables, expected);
        spec.retention_ns = -5;
        let bad = fails(|e| hw_table_alter(db.db, s("log"), &raw const spec, e));
        assert!(
            bad.0 == HW_INVALID && bad.1.contains("HW_FOR_EVER"),
            "{bad:?}"
        );
        let none = fails(|e| hw_table_alter(db.db, s("nolog"), null(), e));
        assert_eq!(none.0, HW_NOT_FOUND);
        ok(|e| hw_table_drop(db.db, s("log"), e));
        assert_eq!(
            json(|out, e| hw_tables(db.db, out, e)),
            serde_json::json!([])
        );
    }
    db.close();
}

#[test]
fn what_is_deleted_dropped_or_expired_is_not_found() {
    let db = Db::new();
    let (a, b) = (db.stream("t,d=1"), db.stream("t,d=2"));
    let rows: Vec<(i64, f64)> = (0..10).map(|i| (i, 0.5)).collect();
    for stream in [a, b] {
        db.write(stream, "v", &rows);
    }
    let tag = hw_tag {
        key: s("d"),
        value: s("1"),
    };
    // SAFETY: lists are as long as said.
    unsafe {
        let times = |stream| {
            let query = db.query(stream, &[]);
            let rows = get(|out, e| hw_read(query, 0, i64::MIN, i64::MAX, out, e));
            let times = list(rows.times_ns, rows.row_count).to_vec();
            release(rows.handle);
            release(query);
            times
        };
        let count = get(|out, e| hw_delete(db.db, s("t"), &raw const tag, 1, 2, 7, out, e));
        assert_eq!((count, times(a)), (1, vec![0, 1, 8, 9]));
        ok(|e| hw_delete(db.db, s("t"), null(), 0, 9, 9, null_mut(), e));
        assert_eq!((times(a), times(b).len()), (vec![0, 1, 8], 9));
        let empty = fails(|e| hw_delete(db.db, s("t"), null(), 0, 5, 4, null_mut(), e));
        assert_eq!(empty.0, HW_INVALID);
        assert_eq!(
            get(|out, e| hw_drop_streams(db.db, s("t"), &raw const tag, 1, out, e)),
            1
        );
        let query = db.query(a, &[]);
        let mut gone = std::mem::zeroed::<hw_rows>();
        assert_eq!(
            fails(|e| hw_read(query, 0, 0, 9, &raw mut gone, e)).0,
            HW_NOT_FOUND
        );
        // A stream that comes again is found by the old handle.
        db.write(a, "v", &[(77, 1.0)]);
        assert_eq!(times(a), [77]);

        let batch = get(|out, e| hw_batch_new(out, e));
        ok(|e| hw_batch_rows(batch, b, [100i64].as_ptr(), 1, e));
        ok(|e| hw_batch_f64(batch, s("v"), [1.0].as_ptr(), null(), e));
        ok(|e| hw_batch_expire_at(batch, 1_000, e)); // long ago
        ok(|e| hw_write(db.db, batch, null_mut(), e));
        assert_eq!(times(b).last(), Some(&8));
        release(batch);
    }
    db.close();
}

#[test]
fn a_batch_of_a_producer_is_stored_once() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    // SAFETY: lists are as long as said.
    unsafe {
        let keep = KEEP;
        ok(|e| hw_table_create(db.db, s("t"), &raw const keep, e));
        let batch = get(|out, e| hw_batch_new(out, e));
        ok(|e| hw_batch_set_producer(batch, s("gateway"), 5, e));
        ok(|e| hw_batch_require_all(batch, e));
        ok(|e| hw_batch_rows(batch, stream, [1i64].as_ptr(), 1, e));
        ok(|e| hw_batch_i64(batch, s("v"), [7].as_ptr(), null(), e));
        let again = get(|out, e| hw_batch_copy(batch, out, e));
        let first = get(|out, e| hw_write(db.db, batch, out, e));
        let second = get(|out, e| hw_write(db.db, again, out, e));
        assert_eq!((first.accepted, first.repeated), (1, 0));
        assert_eq!((second.accepted, second.repeated), (0, 1));
        assert_eq!(get(|out, e| hw_stream_describe(stream, 0, out, e)).rows, 1);
        // One row is of another type, so none is stored.
        ok(|e| hw_batch_rows(batch, stream, [2i64, 3].as_ptr(), 2, e));
        ok(|e| hw_batch_bool(batch, s("v"), [1u8, 1].as_ptr(), [1u8].as_ptr(), e));
        ok(|e| hw_batch_require_all(batch, e));
        let refused = get(|out, e| hw_write(db.db, batch, out, e));
        assert_eq!((refused.accepted, refused.refused_count), (0, 1));
        release(refused.handle);
        release(batch);
        release(again);
    }
    db.close();
}

const KEEP: hw_table = hw_table {
    duplicates: HW_DUPLICATES_KEEP,
    leaf_events: 0,
    retention_ns: 0,
    raw_for_ns: 0,
    fields: null(),
    field_count: 0,
};

#[test]
fn a_database_is_checked_backed_up_and_restored() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    let rows: Vec<(i64, f64)> = (0..5000).map(|i| (i, i as f64)).collect();
    db.write(stream, "v", &rows);
    let backup = db.dir.path().join("backup");
    let restored = db.dir.path().join("restored");
    let (backup, restored) = (backup.to_str().unwrap(), restored.to_str().unwrap());
    // SAFETY: handles are checked.
    unsafe {
        ok(|e| hw_compact(db.db, e));
        let stats = json(|out, e| hw_stats(db.db, out, e));
        assert_eq!(
            (&stats["events"], &stats["streams"]),
            (&5000.into(), &1.into())
        );
        ok(|e| hw_set_late_policy(db.db, s("separate:0.25"), e));
        let late = json(|out, e| hw_late(db.db, out, e));
        assert_eq!(late["choice"], "separate:0.25");
        assert!(!late["shards"].as_array().unwrap().is_empty());
        let mut sound = 9u8;
        let report = json(|out, e| hw_check(db.db, &raw mut sound, out, e));
        assert_eq!((sound, &report["rows"]), (1, &5000.into()));
        let done = json(|out, e| hw_backup(db.db, s(backup), out, e));
        assert_eq!(done["number"], 1);
        let report = json(|out, e| hw_verify_backup(s(backup), &raw mut sound, out, e));
        assert_eq!((sound, &report["is_sound"]), (1, &true.into()));
        ok(|e| hw_restore(s(backup), s(restored), &raw mut sound, null_mut(), e));
        assert_eq!(sound, 1);
        let copy = get(|out, e| hw_open(s(restored), null(), out, e));
        let same = get(|out, e| hw_stream_parse(copy, s("t,d=1"), out, e));
        assert_eq!(get(|out, e| hw_stream_describe(same, 0, out, e)).rows, 5000);
        let open = fails(|e| hw_repair(s(restored), 1, std::mem::zeroed::<*mut hw_text>(), e));
        assert_eq!(open.0, HW_INVALID);
        release(same);
        ok(|e| hw_close(copy, e));
        let report = json(|out, e| hw_repair(s(restored), 1, out, e));
        assert_eq!(report["findings"], serde_json::json!([]));
        // A byte turned over is found, and where.
        let segment = std::fs::read_dir(format!("{restored}/segment"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .next()
            .unwrap();
        let mut bytes = std::fs::read(&segment).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        std::fs::write(&segment, bytes).unwrap();
        let copy = get(|out, e| hw_open(s(restored), null(), out, e));
        let report = json(|out, e| hw_check(copy, &raw mut sound, out, e));
        assert_eq!(sound, 0);
        assert!(
            report["damages"][0]["file"]
                .as_str()
                .unwrap()
                .ends_with(".seg")
        );
        ok(|e| hw_close(copy, e));
    }
    db.close();
}
