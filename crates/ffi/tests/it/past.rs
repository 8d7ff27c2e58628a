//! Named snapshots, and replay of many streams.

use crate::common::{Db, fails, get, list, ok, open, release, s, text};
use headwater_ffi::*;
use std::ptr::{null, null_mut};

const ALL: (i64, i64) = (i64::MIN, i64::MAX);

/// What a call writes as JSON.
fn json_of(call: impl FnOnce(*mut hw_text, *mut hw_error) -> i32) -> serde_json::Value {
    let found = get(call);
    let json = serde_json::from_str(&text(found.text)).unwrap();
    release(found.handle);
    json
}

fn create(db: hw_db, name: &str) -> serde_json::Value {
    // SAFETY: handles are checked, the text and the place are valid.
    json_of(|out, e| unsafe { hw_snapshot_create(db, s(name), out, e) })
}

fn listed(db: hw_db) -> serde_json::Value {
    // SAFETY: the handle is checked, the place is valid.
    json_of(|out, e| unsafe { hw_snapshots(db, out, e) })
}

fn named(db: hw_db, name: &str) -> hw_snapshot {
    // SAFETY: the handle is checked, the place is valid.
    get(|out, e| unsafe { hw_snapshot_named(db, s(name), out, e) })
}

/// A question for a table, for streams with these tags.
fn question(db: hw_db, table: &str, tags: &[(&str, &str)], fields: &[&str]) -> hw_query {
    let tag = |(key, value): &(&str, &str)| hw_tag {
        key: s(key),
        value: s(value),
    };
    let tags: Vec<hw_tag> = tags.iter().map(tag).collect();
    let fields: Vec<hw_str> = fields.iter().map(|f| s(f)).collect();
    let (tag_list, field_list) = (tags.as_ptr(), fields.as_ptr());
    // SAFETY: the lists are as long as said.
    get(|out, e| unsafe {
        let (tag_count, field_count) = (tags.len(), fields.len());
        hw_query_table(
            db,
            s(table),
            tag_list,
            tag_count,
            field_list,
            field_count,
            null(),
            0,
            out,
            e,
        )
    })
}

type Row = (i64, u64, String, f64);

/// Rows of a replay of one field of doubles, at most so many, and whether it came to its end.
fn played(replay: hw_replay, most: usize) -> (Vec<Row>, bool) {
    let mut out = Vec::new();
    while out.len() < most {
        // SAFETY: the handle is checked, the place is valid.
        let rows = get(|out, e| unsafe { hw_replay_next(replay, out, e) });
        if rows.handle == 0 {
            assert!(rows.times_ns.is_null() && rows.streams.is_null());
            return (out, true);
        }
        assert!(rows.row_count > 0);
        let [column] = list(rows.columns, rows.column_count) else {
            panic!("{} columns", rows.column_count);
        };
        let times = list(rows.times_ns, rows.row_count);
        let places = list(rows.places, rows.row_count);
        let numbers = list(rows.numbers, rows.row_count);
        let values = list(column.values.cast::<f64>(), rows.row_count);
        let streams = list(rows.streams, rows.stream_count);
        for at in 0..rows.row_count {
            let stream = streams[places[at] as usize];
            out.push((times[at], numbers[at], text(stream.text), values[at]));
        }
        release(rows.handle);
    }
    (out, false)
}

fn replay(query: hw_query, view: hw_snapshot, range: (i64, i64), after: Option<&Row>) -> hw_replay {
    let cursor = after.map(|(time_ns, number, stream, _)| hw_replay_cursor {
        time_ns: *time_ns,
        number: *number,
        stream: s(stream),
    });
    let after = cursor.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: the handles are checked, cursor and place are valid.
    get(|out, e| unsafe { hw_replay_open(query, view, range.0, range.1, after, 0, out, e) })
}

#[test]
fn a_named_snapshot_is_read_also_after_closing_until_it_is_dropped() {
    let db = Db::new();
    let stream = db.stream("pump,id=p1");
    db.write(stream, "pressure", &[(1, 4.0), (2, 4.5)]);
    assert_eq!(listed(db.db)["snapshots"], serde_json::json!([]));
    let made = create(db.db, "before");
    assert_eq!(
        (&made["name"], &made["events"], &made["streams"]),
        (&"before".into(), &2.into(), &1.into())
    );
    db.write(stream, "pressure", &[(2, 9.0), (3, 9.5)]);
    let dir = db.dir;
    // SAFETY: handles are checked.
    ok(|e| unsafe { hw_close(db.db, e) });
    let again = Db {
        db: open(&dir, |_| {}),
        dir,
    };
    let all = listed(again.db);
    assert_eq!(all["snapshots"][0]["name"], "before");
    assert_eq!(all["snapshots"][0]["created_ns"], made["created_ns"]);
    let stream = again.stream("pump,id=p1");
    let query = again.query(stream, &["pressure"]);
    // The stream is looked up in the present first, and then in the past.
    assert_eq!(values(query, 0), [(1, 4.0), (2, 9.0), (3, 9.5)]);
    let before = named(again.db, "before");
    assert_eq!(values(query, before), [(1, 4.0), (2, 4.5)]);
    // SAFETY: handles are checked, places are valid.
    unsafe {
        let info = get(|out, e| hw_stream_describe(stream, before, out, e));
        assert_eq!((info.rows, info.last_ns), (2, 2));
        // Dropping takes nothing from who reads it.
        ok(|e| hw_snapshot_drop(again.db, s("before"), e));
        assert_eq!(values(query, before), [(1, 4.0), (2, 4.5)]);
        release(before);
        let mut out = 0;
        let open = |e: *mut hw_error| hw_snapshot_named(again.db, s("before"), &raw mut out, e);
        assert_eq!(fails(open).0, HW_NOT_FOUND);
        assert_eq!(
            fails(|e| hw_snapshot_drop(again.db, s("before"), e)).0,
            HW_NOT_FOUND
        );
    }
    assert_eq!(listed(again.db)["snapshots"], serde_json::json!([]));
    release(query);
    release(stream);
    again.close();
}

/// Times and values of a question.
fn values(query: hw_query, snapshot: hw_snapshot) -> Vec<(i64, f64)> {
    // SAFETY: handles are checked, the place is valid.
    let rows = get(|out, e| unsafe { hw_read(query, snapshot, ALL.0, ALL.1, out, e) });
    let [column] = list(rows.columns, rows.column_count) else {
        panic!("{} columns", rows.column_count);
    };
    let values = list(column.values.cast::<f64>(), rows.row_count);
    let times = list(rows.times_ns, rows.row_count);
    let pairs = times.iter().copied().zip(values.iter().copied()).collect();
    release(rows.handle);
    pairs
}

#[test]
fn what_is_wrong_with_a_named_snapshot_is_told() {
    let db = Db::new();
    create(db.db, "taken");
    // SAFETY: handles are checked; NULL is allowed where the report is not wanted.
    unsafe {
        for (name, reason) in [
            ("taken", "already exists"),
            ("now", "current state"),
            ("", "name"),
        ] {
            let (code, message) = fails(|e| hw_snapshot_create(db.db, s(name), null_mut(), e));
            assert_eq!(code, HW_INVALID, "{name}");
            assert!(message.contains(reason), "{name}: {message}");
        }
        let (code, message) = fails(|e| hw_snapshot_named(db.db, s("taken"), null_mut(), e));
        assert_eq!(code, HW_INVALID, "{message}");
    }
    let reader = open(&db.dir, |options| options.read_only = 1);
    assert_eq!(listed(reader)["snapshots"][0]["name"], "taken");
    release(named(reader, "taken"));
    // SAFETY: handles are checked.
    unsafe {
        let (code, _) = fails(|e| hw_snapshot_create(reader, s("more"), null_mut(), e));
        assert_eq!(code, HW_READ_ONLY);
        assert_eq!(
            fails(|e| hw_snapshot_drop(reader, s("taken"), e)).0,
            HW_READ_ONLY
        );
        ok(|e| hw_close(reader, e));
    }
    db.close();
}

#[test]
fn one_that_ended_by_itself_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir, |options| options.snapshot_age_max_ns = 1_000_000_000);
    create(db, "old");
    // The next one finds that the one before is due.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    create(db, "new");
    let ended = listed(db);
    assert_eq!(ended["ended"][0]["name"], "old", "{ended}");
    assert!(
        ended["ended"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("age_max")
    );
    // SAFETY: the handle is checked, the place is valid.
    unsafe {
        let mut out = 0;
        let (code, message) = fails(|e| hw_snapshot_named(db, s("old"), &raw mut out, e));
        assert_eq!(code, HW_GONE, "{message}");
        let name = std::ffi::CStr::from_ptr(hw_code_name(code));
        assert_eq!(name.to_str(), Ok("gone"));
        ok(|e| hw_close(db, e));
    }
}

#[test]
fn a_replay_gives_all_streams_by_time_and_goes_on_behind_any_row() {
    let db = Db::new();
    let pumps = ["p1", "p2", "p3"].map(|id| db.stream(&format!("pump,id={id}")));
    // Late rows too: the later write of a stream has earlier times.
    for (at, pump) in (0i64..).zip(pumps) {
        let late = (0..3_000).map(|i| (i * 10 + at % 2, i as f64));
        let rows: Vec<(i64, f64)> = late.collect();
        let (early, later) = rows.split_at(1_000);
        db.write(pump, "v", later);
        db.write(pump, "v", early);
    }
    let query = question(db.db, "pump", &[], &["v"]);
    let mut wanted: Vec<Row> = Vec::new();
    for (at, id) in (0i64..).zip(["p1", "p2", "p3"]) {
        let row = |i: i64| (i * 10 + at % 2, 1, format!("pump,id={id}"), i as f64);
        wanted.extend((0..3_000).map(row));
    }
    wanted.sort_by(|a, b| (a.0, &a.2).cmp(&(b.0, &b.2)));
    // SAFETY: handles are checked.
    let view = get(|out, e| unsafe { hw_snapshot_open(db.db, out, e) });
    let whole = replay(query, view, ALL, None);
    let (rows, ended) = played(whole, usize::MAX);
    assert!(ended && rows == wanted);
    assert_eq!(played(whole, 1), (Vec::new(), true), "it stays at its end");
    release(whole);
    for place in [0, 1, 2, 4_499, 8_998, 8_999] {
        let rest = replay(query, view, ALL, Some(&wanted[place]));
        let (rows, _) = played(rest, usize::MAX);
        assert!(rows == wanted[place + 1..], "behind row {place}");
        release(rest);
    }
    let some = replay(query, view, (100, 120), None);
    let (rows, _) = played(some, usize::MAX);
    let within = wanted.iter().filter(|row| (100..=120).contains(&row.0));
    assert!(rows.iter().eq(within) && rows.len() == 8, "{rows:?}");
    release(some);
    // What is written later is not in it, though the snapshot was let go of.
    let held = replay(query, view, ALL, None);
    release(view);
    db.write(pumps[0], "v", &[(5, 0.5)]);
    assert_eq!(played(held, usize::MAX).0.len(), wanted.len());
    release(held);
    release(query);
    // Of one tag any of the values.
    let two = question(db.db, "pump", &[("id", "p3"), ("id", "p1")], &["v"]);
    let few = replay(two, 0, (0, 5), None);
    let names: Vec<String> = played(few, usize::MAX).0.into_iter().map(|r| r.2).collect();
    assert_eq!(names, ["pump,id=p1", "pump,id=p3", "pump,id=p1"]);
    release(few);
    release(two);
    for pump in pumps {
        release(pump);
    }
    db.close();
}

#[test]
fn rows_of_one_time_are_numbered_and_a_replay_is_of_a_named_snapshot_too() {
    let db = Db::new();
    let keep = hw_table {
        duplicates: HW_DUPLICATES_KEEP,
        leaf_events: 0,
        retention_ns: 0,
        raw_for_ns: 0,
        fields: null(),
        field_count: 0,
    };
    // SAFETY: the table is valid.
    ok(|e| unsafe { hw_table_create(db.db, s("t"), &raw const keep, e) });
    let stream = db.stream("t,id=1");
    db.write(stream, "v", &[(7, 1.0), (7, 2.0), (7, 3.0)]);
    create(db.db, "three");
    db.write(stream, "v", &[(7, 4.0), (1, 0.0)]);
    let query = question(db.db, "t", &[], &["v"]);
    let of = |n: u64| (7, n, "t,id=1".to_owned(), n as f64);
    let view = named(db.db, "three");
    let past = replay(query, view, ALL, None);
    assert_eq!(played(past, usize::MAX).0, [of(1), of(2), of(3)]);
    release(past);
    // From the past on into the present: what came before the cursor since is not shown.
    let on = replay(query, 0, ALL, Some(&of(2)));
    assert_eq!(played(on, usize::MAX).0, [of(3), of(4)]);
    for handle in [on, view, query, stream] {
        release(handle);
    }
    db.close();
}

#[test]
fn what_is_wrong_with_a_replay_is_told() {
    let db = Db::new();
    let stream = db.stream("t,id=1");
    db.write(stream, "v", &[(1, 1.0)]);
    let one = db.query(stream, &[]);
    let query = question(db.db, "t", &[], &[]);
    let unknown = question(db.db, "t", &[], &["w"]);
    let refused = |query, number, name: &str| {
        let after = hw_replay_cursor {
            time_ns: 1,
            number,
            stream: s(name),
        };
        let mut out = 0;
        // SAFETY: handles are checked, cursor and place are valid.
        fails(|e| unsafe {
            hw_replay_open(query, 0, ALL.0, ALL.1, &raw const after, 0, &raw mut out, e)
        })
    };
    for (query, number, name, code, reason) in [
        (one, 1, "t,id=1", HW_INVALID, "hw_query_table"),
        (query, 0, "t,id=1", HW_INVALID, "from 1 on"),
        (query, 1, "t,id", HW_INVALID, "after.stream"),
        (query, 1, "other,id=1", HW_INVALID, "`other`"),
        (unknown, 1, "t,id=1", HW_NOT_FOUND, "`w`"),
        (0, 1, "t,id=1", HW_HANDLE, "a query"),
    ] {
        let (found, message) = refused(query, number, name);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(reason), "{message}");
    }
    // SAFETY: the handle is checked, the place is valid.
    unsafe {
        let mut rows = std::mem::zeroed::<hw_replay_rows>();
        let (code, message) = fails(|e| hw_replay_next(query, &raw mut rows, e));
        assert_eq!(code, HW_HANDLE, "{message}");
    }
    for handle in [one, query, unknown, stream] {
        release(handle);
    }
    db.close();
}
