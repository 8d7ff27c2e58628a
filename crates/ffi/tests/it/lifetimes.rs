//! Handles, wrong arguments, threads and panics: what must never crash.

use crate::common::{Db, fails, get, list, ok, open, release, s, text};
use headwater_ffi::*;
use std::ptr::{null, null_mut};

#[test]
fn a_handle_is_known_as_released_however_often_its_place_was_taken() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    // SAFETY: handles are checked.
    unsafe {
        let old = get(|out, e| hw_batch_new(out, e));
        release(old);
        for _ in 0..100 {
            let batch = get(|out, e| hw_batch_new(out, e));
            assert_ne!(batch, old);
            let (code, message) = fails(|e| hw_release(old, e));
            assert!(
                code == HW_HANDLE && message.contains("released"),
                "{message}"
            );
            release(batch);
        }
        let used = fails(|e| hw_batch_rows(old, stream, null(), 0, e));
        assert_eq!(used.0, HW_HANDLE);
        let zero = fails(|e| hw_release(0, e));
        assert!(
            zero.0 == HW_HANDLE && zero.1.contains("not a handle"),
            "{zero:?}"
        );
        for never in [1, u64::MAX, 1 << 32, u64::from(u32::MAX)] {
            assert_eq!(fails(|e| hw_release(never, e)).0, HW_HANDLE);
        }
        // One of another kind.
        let other = fails(|e| hw_flush(stream, e));
        assert!(
            other.0 == HW_HANDLE && other.1.contains("expected a database, found a stream"),
            "{other:?}"
        );
        let other = fails(|e| hw_release(db.db, e));
        assert!(
            other.0 == HW_HANDLE && other.1.contains("hw_close"),
            "{other:?}"
        );
        let handle = db.db;
        db.close();
        assert_eq!(fails(|e| hw_close(handle, e)).0, HW_HANDLE);
        let mut info = std::mem::zeroed();
        let closed = fails(|e| hw_stream_describe(stream, 0, &raw mut info, e));
        assert_eq!(closed, (HW_CLOSED, "the database is closed".into()));
        release(stream);
    }
}

#[test]
fn missing_and_wrong_arguments_are_told() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    let invalid = |call: &dyn Fn(*mut hw_error) -> i32, word: &str| {
        let (code, message) = fails(call);
        assert_eq!(code, HW_INVALID, "{message}");
        assert!(message.contains(word), "{message}: no {word}");
    };
    let none = hw_str {
        data: null(),
        length: 3,
    };
    let latin1 = hw_str {
        data: b"\xff".as_ptr().cast(),
        length: 1,
    };
    // SAFETY: what is not NULL is valid.
    unsafe {
        let mut db_out = 0;
        invalid(&|e| hw_open(s("x"), null(), null_mut(), e), "NULL");
        invalid(
            &|e| hw_open(none, null(), &raw const db_out as *mut _, e),
            "NULL",
        );
        invalid(
            &|e| hw_open(s(""), null(), &raw const db_out as *mut _, e),
            "path",
        );
        invalid(
            &|e| hw_stream_parse(db.db, latin1, &raw const db_out as *mut _, e),
            "UTF-8",
        );
        invalid(
            &|e| hw_stream_parse(db.db, s("t,x"), &raw const db_out as *mut _, e),
            "table,tag",
        );
        let mut options = get(|out, e| hw_options_init(out, size_of::<hw_options>(), e));
        options.struct_size += 8;
        invalid(
            &|e| hw_open(s("x"), &raw const options, &raw const db_out as *mut _, e),
            "hw_options_init",
        );
        options.struct_size -= 8;
        options.durability = 7;
        invalid(
            &|e| hw_open(s("x"), &raw const options, &raw const db_out as *mut _, e),
            "HW_SYNCED",
        );
        options.durability = HW_SYNCED;
        options.late_policy = s("whatever");
        invalid(
            &|e| hw_open(s("x"), &raw const options, &raw const db_out as *mut _, e),
            "whatever",
        );
        // Without a place for the error there is still the code.
        assert_eq!(hw_open(s("x"), null(), null_mut(), null_mut()), HW_INVALID);
        db_out = get(|out, e| hw_batch_new(out, e));
        let batch = db_out;
        invalid(
            &|e| hw_batch_f64(batch, s("v"), null(), null(), e),
            "hw_batch_rows",
        );
        invalid(&|e| hw_batch_rows(batch, stream, null(), 2, e), "NULL");
        invalid(
            &|e| hw_batch_rows(batch, stream, std::ptr::without_provenance(12_345), 2, e),
            "aligned",
        );
        invalid(
            &|e| hw_batch_rows(batch, stream, [0i64].as_ptr(), usize::MAX, e),
            "memory",
        );
        ok(|e| hw_batch_rows(batch, stream, [1i64, 2].as_ptr(), 2, e));
        invalid(&|e| hw_batch_f64(batch, s("v"), null(), null(), e), "NULL");
        let falling = [0u32, 5, 3];
        invalid(
            &|e| {
                hw_batch_text(
                    batch,
                    s("v"),
                    HW_STRING,
                    falling.as_ptr(),
                    c"hello".as_ptr().cast(),
                    null(),
                    e,
                )
            },
            "decrease",
        );
        let halves = [0u32, 1, 2];
        invalid(
            &|e| {
                hw_batch_text(
                    batch,
                    s("v"),
                    HW_STRING,
                    halves.as_ptr(),
                    "\u{e4}".as_ptr(),
                    null(),
                    e,
                )
            },
            "UTF-8",
        );
        invalid(
            &|e| {
                hw_batch_text(
                    batch,
                    s("v"),
                    HW_F64,
                    halves.as_ptr(),
                    "ab".as_ptr(),
                    null(),
                    e,
                )
            },
            "HW_STRING",
        );
        let mut bins = std::mem::zeroed::<hw_bins>();
        let mut spec = std::mem::zeroed::<hw_aggregate_spec>();
        spec.bins = 9;
        invalid(
            &|e| {
                hw_aggregate(
                    stream,
                    0,
                    s("v"),
                    &raw const spec,
                    &raw const bins as *mut _,
                    e,
                )
            },
            "HW_LEVEL",
        );
        bins = std::mem::zeroed();
        invalid(
            &|e| hw_aggregate(stream, 0, s("v"), null(), &raw const bins as *mut _, e),
            "NULL",
        );
        release(batch);
    }
    db.close();
}

#[test]
fn options_of_an_older_header_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    // What an older struct might have been: the size and a few of the first fields.
    let old = std::mem::offset_of!(hw_options, memory_budget_bytes);
    // SAFETY: the struct is larger than what is said of it.
    unsafe {
        let mut options = std::mem::MaybeUninit::<hw_options>::zeroed();
        ok(|e| hw_options_init(options.as_mut_ptr(), old, e));
        let mut options = options.assume_init();
        assert_eq!((options.struct_size, options.memory_budget_bytes), (old, 0));
        options.durability = HW_WRITTEN;
        let db = get(|out, e| hw_open(s(path.to_str().unwrap()), &raw const options, out, e));
        ok(|e| hw_close(db, e));
    }
}

#[test]
fn a_folder_has_one_owner_and_many_readers() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    db.write(stream, "v", &[(1, 1.0)]);
    let path = db.dir.path().join("db");
    // SAFETY: handles are checked.
    unsafe {
        let mut other = 0;
        let locked = fails(|e| hw_open(s(path.to_str().unwrap()), null(), &raw mut other, e));
        assert_eq!(locked.0, HW_LOCKED, "{locked:?}");
        let reader = open(&db.dir, |options| options.read_only = 1);
        let seen = get(|out, e| hw_stream_parse(reader, s("t,d=1"), out, e));
        let info = get(|out, e| hw_stream_describe(seen, 0, out, e));
        assert_eq!((info.rows, info.has_events, info.last_ns), (1, 1, 1));
        db.write(stream, "v", &[(2, 2.0)]);
        assert_eq!(get(|out, e| hw_stream_describe(seen, 0, out, e)).rows, 1);
        ok(|e| hw_refresh(reader, e));
        assert_eq!(get(|out, e| hw_stream_describe(seen, 0, out, e)).rows, 2);
        let batch = get(|out, e| hw_batch_new(out, e));
        let refused = fails(|e| hw_write(reader, batch, null_mut(), e));
        assert_eq!(refused.0, HW_READ_ONLY);
        // A snapshot of the one is none of the other.
        let snapshot = get(|out, e| hw_snapshot_open(db.db, out, e));
        let mut info = std::mem::zeroed();
        let foreign = fails(|e| hw_stream_describe(seen, snapshot, &raw mut info, e));
        assert!(foreign.1.contains("another database"), "{foreign:?}");
        for handle in [batch, seen, snapshot] {
            release(handle);
        }
        ok(|e| hw_close(reader, e));
    }
    db.close();
}

#[test]
fn a_snapshot_stays_as_it_is() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    db.write(stream, "v", &[(1, 1.0)]);
    let query = db.query(stream, &[]);
    // SAFETY: handles are checked.
    unsafe {
        let snapshot = get(|out, e| hw_snapshot_open(db.db, out, e));
        let before = get(|out, e| hw_snapshot_sequence(snapshot, out, e));
        db.write(stream, "v", &[(2, 2.0)]);
        let rows = |snapshot| {
            let rows = get(|out, e| hw_read(query, snapshot, 0, 9, out, e));
            release(rows.handle);
            rows.row_count
        };
        assert_eq!((rows(snapshot), rows(0)), (1, 2));
        let newer = get(|out, e| hw_snapshot_open(db.db, out, e));
        assert!(get(|out, e| hw_snapshot_sequence(newer, out, e)) > before);
        let handle = db.db;
        ok(|e| hw_close(handle, e));
        assert_eq!(rows(snapshot), 1, "also after closing");
        release(newer);
        release(snapshot);
    }
}

#[test]
fn threads_share_handles_while_others_release_them() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    let rows: Vec<(i64, f64)> = (0..3000).map(|i| (i, i as f64)).collect();
    db.write(stream, "v", &rows);
    let query = db.query(stream, &["v"]);
    std::thread::scope(|scope| {
        for thread in 0..4i64 {
            let db = &db;
            scope.spawn(move || {
                let own = db.stream(&format!("t,d={}", thread + 2));
                for round in 0..50 {
                    db.write(own, "v", &[(round, 1.0)]);
                    // SAFETY: handles are checked.
                    let rows = get(|out, e| unsafe { hw_read(query, 0, 0, 2999, out, e) });
                    assert_eq!(list(rows.times_ns, rows.row_count).len(), 3000);
                    release(rows.handle);
                }
                release(own);
            });
        }
        scope.spawn(|| {
            // SAFETY: handles are checked.
            unsafe {
                let scan = get(|out, e| hw_scan_open(query, 0, 0, 2999, out, e));
                let racing = std::thread::spawn(move || {
                    let mut rows = std::mem::zeroed::<hw_rows>();
                    loop {
                        let code = hw_scan_next(scan, &raw mut rows, null_mut());
                        if code == HW_HANDLE || rows.handle == 0 {
                            break code;
                        }
                        release(rows.handle);
                    }
                });
                release(scan);
                assert!([HW_OK, HW_HANDLE].contains(&racing.join().unwrap()));
            }
        });
    });
    release(query);
    release(stream);
    db.close();
}

#[test]
fn codes_and_versions_have_names() {
    // SAFETY: the names have a NUL behind them.
    let name = |code| unsafe { std::ffi::CStr::from_ptr(hw_code_name(code)) };
    assert_eq!((name(HW_OK), name(HW_HANDLE)), (c"ok", c"handle"));
    assert!((0..=15).all(|code| !hw_code_name(code).is_null()));
    assert!(hw_code_name(16).is_null() && hw_code_name(-1).is_null());
    assert_eq!(text(hw_version()), env!("CARGO_PKG_VERSION"));
    assert_eq!((hw_abi_version(), hw_nothing()), (HW_ABI_VERSION, HW_OK));
}

#[test]
#[cfg(unix)]
fn a_path_is_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.db"));
    let bytes = path.as_os_str().as_bytes();
    let name = hw_str {
        data: bytes.as_ptr().cast(),
        length: bytes.len(),
    };
    // SAFETY: the path is as long as said.
    unsafe {
        let db = get(|out, e| hw_open(name, null(), out, e));
        ok(|e| hw_close(db, e));
    }
    assert!(path.join("meta.redb").is_file());
}
