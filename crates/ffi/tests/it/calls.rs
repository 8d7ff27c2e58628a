//! Writing and reading through the interface.

use crate::common::{Db, bytes, fails, get, list, ok, open, release, s, text};
use headwater_ffi::*;
use std::ptr::{null, null_mut};

/// All rows of a question for doubles.
fn read(query: hw_query) -> Vec<(i64, f64)> {
    // SAFETY: the handle is checked, the place is valid.
    let rows = get(|out, e| unsafe { hw_read(query, 0, i64::MIN, i64::MAX, out, e) });
    let times = list(rows.times_ns, rows.row_count);
    let [column] = list(rows.columns, rows.column_count) else {
        panic!("{} columns", rows.column_count);
    };
    assert_eq!((column.value_type, column.absent_count), (HW_F64, 0));
    let values = list(column.values.cast::<f64>(), rows.row_count);
    let pairs = times.iter().copied().zip(values.iter().copied()).collect();
    release(rows.handle);
    pairs
}

#[test]
fn rows_come_back_also_after_closing() {
    let db = Db::new();
    let rows: Vec<(i64, f64)> = (0..5_000)
        .map(|i| (i * 1_000_000, i as f64 / 8.0))
        .collect();
    let stream = db.stream("pump,id=p1");
    db.write(stream, "pressure", &rows);
    let query = db.query(stream, &["pressure"]);
    assert_eq!(read(query), rows);
    let dir = db.dir;
    // SAFETY: handles are checked.
    unsafe {
        ok(|e| hw_flush(db.db, e));
        assert_eq!(read(query), rows, "several chunks become one");
        ok(|e| hw_close(db.db, e));
        let (code, message) =
            fails(|e| hw_read(query, 0, 0, 1, std::mem::zeroed::<*mut hw_rows>(), e));
        assert_eq!(code, HW_INVALID, "{message}");
        let mut out = std::mem::zeroed::<hw_rows>();
        assert_eq!(
            fails(|e| hw_read(query, 0, 0, 1, &raw mut out, e)).0,
            HW_CLOSED
        );
        release(query);
        release(stream);
        let again = Db {
            db: open(&dir, |options| options.must_exist = 1),
            dir,
        };
        let stream = again.stream("pump,id=p1");
        assert_eq!(read(again.query(stream, &["pressure"])), rows);
        again.close();
    }
}

/// A dangling pointer ends a program in Go, whose garbage collector looks at all that look like
/// pointers.
#[test]
fn what_is_empty_is_null() {
    let db = Db::new();
    let stream = db.stream("t");
    db.write(stream, "v", &[(1, 1.0)]);
    let query = db.query(stream, &["v"]);
    // SAFETY: handles are checked, the places are valid.
    unsafe {
        let rows = get(|out, e| hw_read(query, 0, 5, 9, out, e));
        assert!(list(rows.times_ns, rows.row_count).is_empty());
        assert!(list(rows.stream.tags, rows.stream.tag_count).is_empty());
        for column in list(rows.columns, rows.column_count) {
            assert!(list(column.values.cast::<f64>(), rows.row_count).is_empty());
            assert!(column.validity.is_null() && column.offsets.is_null());
            assert!(column.bytes.is_null());
        }
        release(rows.handle);
        let bins = get(|out, e| hw_tile(stream, 0, s("v"), 0, 99, out, e));
        assert!(list(bins.bins, bins.count).is_empty());
        assert!(bins.firsts.is_null() && bins.lasts.is_null());
        release(bins.handle);
        let none = get(|out, e| hw_streams_list(db.db, 0, s("t"), null(), 0, s("t"), 9, out, e));
        assert!(list(none.streams, none.count).is_empty());
        release(none.handle);
        let tags = hw_tag {
            key: s("id"),
            value: s("none"),
        };
        let last = get(|out, e| hw_last_table(db.db, 0, s("t"), &raw const tags, 1, out, e));
        assert!(list(last.values, last.count).is_empty());
        assert!(list(last.streams, last.stream_count).is_empty());
        release(last.handle);
    }
}

#[test]
fn every_type_and_absent_values_come_back_bit_by_bit() {
    let db = Db::new();
    let stream = db.stream("mixed,site=a\\ b,rack=2");
    let times = [30i64, 10, 20];
    let floats = [f64::from_bits(0x7ff8_dead_beef_0001), -0.0, 1.5];
    let signed = [i64::MIN, -1, i64::MAX];
    let unsigned = [u64::MAX, 0, 1 << 63];
    let flags = [1u8, 0, 7];
    let offsets = [0u32, 3, 3, 8];
    let words = "abc\u{e4}\u{f6}x";
    let raw = [0u8, 255, 1, 9, 9, 9, 9, 9];
    let validity = [0b101u8];
    // SAFETY: every list has three rows, or four offsets.
    unsafe {
        let batch = get(|out, e| hw_batch_new(out, e));
        ok(|e| hw_batch_rows(batch, stream, times.as_ptr(), 3, e));
        ok(|e| hw_batch_f64(batch, s("f"), floats.as_ptr(), null(), e));
        ok(|e| hw_batch_i64(batch, s("i"), signed.as_ptr(), null(), e));
        ok(|e| hw_batch_u64(batch, s("u"), unsigned.as_ptr(), validity.as_ptr(), e));
        ok(|e| hw_batch_bool(batch, s("b"), flags.as_ptr(), null(), e));
        ok(|e| {
            hw_batch_text(
                batch,
                s("s"),
                HW_STRING,
                offsets.as_ptr(),
                words.as_ptr(),
                null(),
                e,
            )
        });
        let column = hw_column {
            name: s("y"),
            value_type: HW_BYTES,
            absent_count: 0,
            validity: validity.as_ptr(),
            values: null(),
            offsets: offsets.as_ptr(),
            bytes: raw.as_ptr(),
        };
        ok(|e| hw_batch_column(batch, &raw const column, e));
        let twice = fails(|e| hw_batch_f64(batch, s("f"), floats.as_ptr(), null(), e));
        assert!(
            twice.0 == HW_INVALID && twice.1.contains("more than once"),
            "{twice:?}"
        );
        let written = get(|out, e| hw_write(db.db, batch, out, e));
        assert_eq!(written.accepted, 3);
        release(batch);

        for flushed in [false, true] {
            if flushed {
                ok(|e| hw_flush(db.db, e));
            }
            let query = db.query(stream, &[]);
            let rows = get(|out, e| hw_read(query, 0, i64::MIN, i64::MAX, out, e));
            assert_eq!(list(rows.times_ns, rows.row_count), [10, 20, 30]);
            assert_eq!(text(rows.stream.text), "mixed,rack=2,site=a\\ b");
            assert_eq!(text(rows.stream.table), "mixed");
            let tags: Vec<(String, String)> = list(rows.stream.tags, rows.stream.tag_count)
                .iter()
                .map(|t| (text(t.key), text(t.value)))
                .collect();
            assert_eq!(
                tags,
                [("rack".into(), "2".into()), ("site".into(), "a b".into())]
            );
            let columns = list(rows.columns, rows.column_count);
            let names: Vec<String> = columns.iter().map(|c| text(c.name)).collect();
            assert_eq!(names, ["f", "i", "u", "b", "s", "y"]);
            let [f, i, u, b, t, y] = columns else {
                panic!()
            };
            let bits: Vec<u64> = list(f.values.cast::<f64>(), 3)
                .iter()
                .map(|v| v.to_bits())
                .collect();
            assert_eq!(bits, [floats[1], floats[2], floats[0]].map(f64::to_bits));
            assert_eq!(list(i.values.cast::<i64>(), 3), [-1, i64::MAX, i64::MIN]);
            assert_eq!((u.absent_count, list(u.validity, 1)), (1, &[0b110u8][..]));
            assert_eq!(list(u.values.cast::<u64>(), 3), [0, 1 << 63, u64::MAX]);
            assert_eq!(list(b.values.cast::<u8>(), 3), [0, 1, 1]);
            assert!(b.validity.is_null());
            assert_eq!(list(t.offsets, 4), [0, 0, 5, 8]);
            assert_eq!(list(t.bytes, 8), "\u{e4}\u{f6}xabc".as_bytes());
            assert_eq!((y.value_type, y.absent_count), (HW_BYTES, 1));
            assert_eq!(list(y.offsets, 4), [0, 0, 5, 8]);
            assert_eq!(list(y.bytes, 8), [9, 9, 9, 9, 9, 0, 255, 1]);
            release(rows.handle);
            release(query);
        }
    }
    db.close();
}

#[test]
fn refused_rows_are_told_with_their_place() {
    let db = Db::new();
    let (a, b) = (db.stream("t,d=1"), db.stream("t,d=2"));
    db.write(a, "v", &[(1, 1.0)]);
    // SAFETY: lists are as long as said.
    unsafe {
        let batch = get(|out, e| hw_batch_new(out, e));
        ok(|e| hw_batch_rows(batch, b, [1i64, 2].as_ptr(), 2, e));
        ok(|e| hw_batch_f64(batch, s("v"), [1.0, 2.0].as_ptr(), null(), e));
        ok(|e| hw_batch_rows(batch, a, [5i64, 6].as_ptr(), 2, e));
        ok(|e| hw_batch_bool(batch, s("v"), [1u8, 0].as_ptr(), [0b10u8].as_ptr(), e));
        let copy = get(|out, e| hw_batch_copy(batch, out, e));
        let written = get(|out, e| hw_write(db.db, batch, out, e));
        assert_eq!((written.accepted, written.refused_count), (3, 1));
        let [refused] = list(written.refused, written.refused_count) else {
            panic!()
        };
        assert_eq!(
            (refused.part, refused.row, text(refused.code)),
            (1, 1, "E_TYPE".into())
        );
        assert!(text(refused.message).contains('v'));
        release(written.handle);
        // Nobody looks: then it is an error.
        let (code, message) = fails(|e| hw_write(db.db, copy, null_mut(), e));
        assert!(
            code == HW_INVALID && message.contains("E_TYPE"),
            "{message}"
        );
        release(copy);
        release(batch);
    }
    db.close();
}

#[test]
fn aggregates_tiles_and_newest_values_agree_with_the_rows() {
    let db = Db::new();
    let stream = db.stream("pump,id=p1");
    let rows: Vec<(i64, f64)> = (0..10_000)
        .map(|i| (i * 1_000_000_000, f64::from(i as i32 % 100)))
        .collect();
    db.write(stream, "v", &rows);
    // SAFETY: handles are checked, places are valid.
    unsafe {
        ok(|e| hw_flush(db.db, e));
        let mut spec = std::mem::zeroed::<hw_aggregate_spec>();
        (spec.first_ns, spec.last_ns) = (i64::MIN, i64::MAX);
        (spec.bins, spec.width_ns, spec.first_last) = (HW_EVERY_WIDTH, 1_000_000_000_000, 1);
        let bins = get(|out, e| hw_aggregate(stream, 0, s("v"), &raw const spec, out, e));
        assert_eq!(bins.count, 10);
        let list_of_bins = list(bins.bins, bins.count);
        for (index, bin) in list_of_bins.iter().enumerate() {
            assert_eq!(bin.start_ns, index as i64 * 1_000_000_000_000);
            assert_eq!((bin.count, bin.min, bin.max), (1000, 0.0, 99.0));
            assert!((bin.mean - 49.5).abs() <= 99.0 * 1e-12);
            assert_eq!(bin.extremes_type, HW_F64);
            assert!((bin.stddev - 833.25f64.sqrt()).abs() < 1e-9);
            assert_eq!(f64::from_bits(bin.max_bits), 99.0);
            assert!((hw_bin_sum(bin) - 49_500.0).abs() < 1e-6);
            assert_eq!(hw_bin_spread(bin), 99.0);
            let of_a_sample = (833.25f64 * 1000.0 / 999.0).sqrt();
            assert!((hw_bin_sample_stddev(bin) - of_a_sample).abs() < 1e-9);
        }
        let first = &list(bins.firsts, bins.count)[3];
        assert_eq!((first.time_ns, first.value.f64), (3_000_000_000_000, 0.0));
        let last = &list(bins.lasts, bins.count)[3];
        assert_eq!(
            (last.time_ns, last.value.value_type),
            (3_999_000_000_000, HW_F64)
        );
        assert_eq!(last.value.f64, 99.0);
        release(bins.handle);

        let tile = get(|out, e| hw_tile(stream, 0, s("v"), 4, 0, out, e));
        assert!(tile.firsts.is_null());
        let buckets = list(tile.bins, tile.count);
        assert_eq!(buckets.len(), 512);
        assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), 512 * 16);
        assert!(
            buckets
                .iter()
                .enumerate()
                .all(|(i, b)| b.bucket == i as i64 && b.start_ns == i as i64 * 16_000_000_000)
        );
        release(tile.handle);

        let newest = get(|out, e| hw_last(stream, 0, out, e));
        let [value] = list(newest.values, newest.count) else {
            panic!()
        };
        assert_eq!((value.time_ns, value.value.f64), (9_999_000_000_000, 99.0));
        assert_eq!(text(value.field), "v");
        release(newest.handle);

        let mut out = std::mem::zeroed::<hw_bins>();
        let unknown = fails(|e| hw_tile(stream, 0, s("w"), 4, 0, &raw mut out, e));
        assert!(
            unknown.0 == HW_NOT_FOUND && unknown.1.contains('w'),
            "{unknown:?}"
        );
        let level = fails(|e| hw_tile(stream, 0, s("v"), 41, 0, &raw mut out, e));
        assert!(
            level.0 == HW_INVALID && level.1.contains("-20 to 40"),
            "{level:?}"
        );
    }
    release(stream);
    db.close();
}

#[test]
fn streams_of_a_table_are_scanned_one_after_the_other() {
    let db = Db::new();
    for id in 0..300 {
        let stream = db.stream(&format!("m,id={id},parity={}", id % 2));
        db.write(stream, "v", &[(id, id as f64), (id + 1000, 0.5)]);
        release(stream);
    }
    let tag = hw_tag {
        key: s("parity"),
        value: s("1"),
    };
    let filter = hw_filter {
        field: s("v"),
        comparison: HW_GREATER_OR_EQUAL,
        value: hw_value {
            value_type: HW_I64,
            i64: 100,
            // SAFETY: zeros are an empty value.
            ..unsafe { std::mem::zeroed() }
        },
    };
    // SAFETY: lists are as long as said.
    unsafe {
        let query = get(|out, e| {
            hw_query_table(
                db.db,
                s("m"),
                &raw const tag,
                1,
                null(),
                0,
                &raw const filter,
                1,
                out,
                e,
            )
        });
        let scan = get(|out, e| hw_scan_open(query, 0, i64::MIN, i64::MAX, out, e));
        let mut seen = Vec::new();
        loop {
            let rows = get(|out, e| hw_scan_next(scan, out, e));
            if rows.handle == 0 {
                break;
            }
            let id = text(list(rows.stream.tags, rows.stream.tag_count)[0].value);
            let times = list(rows.times_ns, rows.row_count);
            assert_eq!(times, [id.parse::<i64>().unwrap()]);
            seen.push(times[0]);
            release(rows.handle);
        }
        seen.sort_unstable();
        assert_eq!(seen, (101..300).step_by(2).collect::<Vec<i64>>());
        release(scan);
        let mut out = std::mem::zeroed::<hw_rows>();
        let one = fails(|e| hw_read(query, 0, 0, 1, &raw mut out, e));
        assert!(
            one.0 == HW_INVALID && one.1.contains("hw_scan_open"),
            "{one:?}"
        );
        release(query);

        let page = get(|out, e| hw_streams_list(db.db, 0, s("m"), null(), 0, s(""), 7, out, e));
        let names = list(page.streams, page.count);
        assert_eq!(names.len(), 7);
        let after = text(names[6].text);
        release(page.handle);
        let page =
            get(|out, e| hw_streams_list(db.db, 0, s("m"), null(), 0, s(&after), 1000, out, e));
        assert_eq!(page.count, 293);
        release(page.handle);
        let newest = get(|out, e| hw_last_table(db.db, 0, s("m"), &raw const tag, 1, out, e));
        assert_eq!((newest.count, newest.stream_count), (150, 150));
        let value = &list(newest.values, newest.count)[149];
        assert_eq!((value.stream, value.value.f64), (149, 0.5));
        release(newest.handle);
    }
    db.close();
}

#[test]
fn numbers_are_read_into_the_memory_of_the_caller() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    db.write(stream, "v", &[(1, 1.0), (2, 2.0), (4, 4.0)]);
    db.write(stream, "other", &[(3, 9.0)]);
    let query = db.query(stream, &["v"]);
    let (mut times, mut values, mut count) = ([0i64; 4], [0f64; 4], 0usize);
    // SAFETY: four places each.
    unsafe {
        let mut read = |capacity: usize| {
            ok(|e| {
                hw_read_f64(
                    query,
                    0,
                    1,
                    4,
                    times.as_mut_ptr(),
                    values.as_mut_ptr(),
                    capacity,
                    &raw mut count,
                    e,
                )
            });
            (count, times, values)
        };
        assert_eq!(read(2), (3, [1, 2, 0, 0], [1.0, 2.0, 0.0, 0.0]));
        assert_eq!(read(4), (3, [1, 2, 4, 0], [1.0, 2.0, 4.0, 0.0]));
        assert_eq!(read(0).0, 3);
        let mut wrong = [0i64; 4];
        let wrong = fails(|e| {
            hw_read_i64(
                query,
                0,
                1,
                4,
                times.as_mut_ptr(),
                wrong.as_mut_ptr(),
                4,
                &raw mut count,
                e,
            )
        });
        assert!(
            wrong.0 == HW_INVALID && wrong.1.contains("f64"),
            "{wrong:?}"
        );
    }
    db.close();
}

#[test]
fn many_questions_are_read_at_once_into_the_memory_of_the_caller() {
    let db = Db::new();
    let streams = [db.stream("t,d=1"), db.stream("t,d=2"), db.stream("t,d=3")];
    db.write(streams[0], "v", &[(1, 1.0), (2, 2.0)]);
    db.write(streams[1], "v", &[(7, 7.0)]);
    db.write(streams[2], "v", &[(1, 10.0), (3, 30.0), (4, 40.0)]);
    let queries = streams.map(|stream| db.query(stream, &["v"]));
    let (mut times, mut values, mut counts) = ([0i64; 5], [0f64; 5], [9usize; 3]);
    // SAFETY: five places each, and one for each question.
    unsafe {
        let mut read = |snapshot: u64, capacity: usize| {
            ok(|e| {
                hw_read_many_f64(
                    queries.as_ptr(),
                    3,
                    snapshot,
                    1,
                    4,
                    times.as_mut_ptr(),
                    values.as_mut_ptr(),
                    capacity,
                    counts.as_mut_ptr(),
                    e,
                )
            });
            (counts, times, values)
        };
        let short = ([2, 0, 3], [1, 2, 1, 0, 0], [1.0, 2.0, 10.0, 0.0, 0.0]);
        assert_eq!(read(0, 3), short);
        let all = ([2, 0, 3], [1, 2, 1, 3, 4], [1.0, 2.0, 10.0, 30.0, 40.0]);
        assert_eq!(read(0, 5), all);
        // One snapshot for all of them.
        let snapshot = get(|out, e| hw_snapshot_open(db.db, out, e));
        db.write(streams[1], "v", &[(2, 20.0)]);
        assert_eq!(read(snapshot, 5), all);
        assert_eq!(read(0, 5).0, [2, 1, 3]);
        release(snapshot);

        let ask = |queries: *const hw_query, count: usize, counts: *mut usize| {
            let (mut times, mut values) = ([0i64; 5], [0f64; 5]);
            let (times, values) = (times.as_mut_ptr(), values.as_mut_ptr());
            fails(|e| hw_read_many_f64(queries, count, 0, 1, 4, times, values, 5, counts, e))
        };
        let mut counts = [0usize; 3];
        let counts = counts.as_mut_ptr();
        let other = Db::new();
        let elsewhere = other.stream("t,d=1");
        other.write(elsewhere, "v", &[(1, 1.0)]);
        let mixed = [queries[0], other.query(elsewhere, &["v"])];
        let mixed = ask(mixed.as_ptr(), 2, counts);
        assert!(
            mixed.0 == HW_INVALID && mixed.1.contains("different databases"),
            "{mixed:?}"
        );
        let unknown = [queries[0], db.query(db.stream("t,d=4"), &["v"])];
        assert_eq!(ask(unknown.as_ptr(), 2, counts).0, HW_NOT_FOUND);
        assert_eq!(ask(queries.as_ptr(), 3, null_mut()).0, HW_INVALID);
        assert_eq!(ask([0].as_ptr(), 1, counts).0, HW_HANDLE);
        other.close();
        // None is nothing.
        ok(|e| {
            let (times, values) = (null_mut(), null_mut());
            hw_read_many_f64(null(), 0, 0, 1, 4, times, values, 0, null_mut(), e)
        });
    }
    db.close();
}

#[test]
fn integers_are_read_into_the_memory_of_the_caller_also_of_many_questions() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    // SAFETY: lists are as long as said.
    unsafe {
        let batch = get(|out, e| hw_batch_new(out, e));
        let (times, signed, unsigned) = ([1i64, 2], [-5i64, 6], [7u64, u64::MAX]);
        ok(|e| hw_batch_rows(batch, stream, times.as_ptr(), 2, e));
        ok(|e| hw_batch_i64(batch, s("i"), signed.as_ptr(), null(), e));
        ok(|e| hw_batch_u64(batch, s("u"), unsigned.as_ptr(), null(), e));
        ok(|e| hw_write(db.db, batch, null_mut(), e));
        release(batch);
        let queries = [db.query(stream, &["i"]), db.query(stream, &["u"])];
        let (mut at, mut i, mut u, mut count) = ([0i64; 2], [0i64; 2], [0u64; 2], 0usize);
        let (at, i_to, u_to) = (at.as_mut_ptr(), i.as_mut_ptr(), u.as_mut_ptr());
        for flushed in [false, true] {
            if flushed {
                ok(|e| hw_flush(db.db, e));
            }
            ok(|e| {
                hw_read_many_i64(
                    &raw const queries[0],
                    1,
                    0,
                    0,
                    9,
                    at,
                    i_to,
                    2,
                    &raw mut count,
                    e,
                )
            });
            assert_eq!((count, i), (2, signed));
            ok(|e| {
                hw_read_many_u64(
                    &raw const queries[1],
                    1,
                    0,
                    0,
                    9,
                    at,
                    u_to,
                    2,
                    &raw mut count,
                    e,
                )
            });
            assert_eq!((count, u), (2, unsigned));
            ok(|e| hw_read_u64(queries[1], 0, 2, 9, at, u_to, 2, &raw mut count, e));
            assert_eq!((count, u[0]), (1, u64::MAX));
            ok(|e| hw_read_i64(queries[0], 0, 2, 9, at, i_to, 2, &raw mut count, e));
            assert_eq!((count, i[0]), (1, 6));
            let wrong = fails(|e| {
                hw_read_many_i64(
                    &raw const queries[1],
                    1,
                    0,
                    0,
                    9,
                    at,
                    i_to,
                    2,
                    &raw mut count,
                    e,
                )
            });
            assert!(
                wrong.0 == HW_INVALID && wrong.1.contains("u64"),
                "{wrong:?}"
            );
        }
    }
    db.close();
}

#[test]
fn a_ticket_is_waited_for_once() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    // SAFETY: lists are as long as said.
    unsafe {
        let batch = get(|out, e| hw_batch_new(out, e));
        let mut tickets = Vec::new();
        for time in 0..10i64 {
            let value = hw_field_value {
                field: s("text"),
                value: hw_value {
                    value_type: HW_STRING,
                    text: s("hello"),
                    ..std::mem::zeroed()
                },
            };
            ok(|e| hw_batch_row(batch, stream, time, &raw const value, 1, e));
            tickets.push(get(|out, e| hw_submit(db.db, batch, out, e)));
        }
        release(batch);
        for (index, ticket) in tickets.into_iter().enumerate() {
            let timeout = if index % 2 == 0 { -1 } else { 30_000_000_000 };
            let (mut done, mut written) = (9u8, std::mem::zeroed::<hw_written>());
            ok(|e| hw_ticket_wait(ticket, timeout, &raw mut done, &raw mut written, e));
            assert_eq!((done, written.accepted), (1, 1));
            let again = fails(|e| hw_ticket_wait(ticket, -1, &raw mut done, &raw mut written, e));
            assert_eq!(again.0, HW_HANDLE);
        }
        let query = db.query(stream, &["text"]);
        let rows = get(|out, e| hw_read(query, 0, 0, 9, out, e));
        let column = &list(rows.columns, 1)[0];
        assert_eq!(rows.row_count, 10);
        assert_eq!(
            bytes(hw_str {
                data: column.bytes.cast(),
                length: 50
            }),
            b"hello".repeat(10)
        );
        release(rows.handle);
    }
    db.close();
}

#[test]
fn integers_that_were_stored_before_their_field_was_widened_are_read_as_doubles() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    // SAFETY: lists are as long as said.
    unsafe {
        let batch = get(|out, e| hw_batch_new(out, e));
        ok(|e| hw_batch_rows(batch, stream, [1i64, 2].as_ptr(), 2, e));
        ok(|e| hw_batch_i64(batch, s("v"), [10, 20].as_ptr(), null(), e));
        ok(|e| hw_write(db.db, batch, null_mut(), e));
        release(batch);
        ok(|e| hw_flush(db.db, e));
    }
    db.write(stream, "v", &[(3, 0.5)]);
    let query = db.query(stream, &["v"]);
    assert_eq!(read(query), [(1, 10.0), (2, 20.0), (3, 0.5)]);
    // Rows that are all of the older kind are of the field's type too.
    // SAFETY: handles are checked.
    unsafe {
        let old = get(|out, e| hw_read(query, 0, 1, 2, out, e));
        assert_eq!(list(old.columns, 1)[0].value_type, HW_F64);
        release(old.handle);
        let scan = get(|out, e| hw_scan_open(query, 0, 1, 2, out, e));
        let old = get(|out, e| hw_scan_next(scan, out, e));
        assert_eq!(list(old.columns, 1)[0].value_type, HW_F64);
        release(old.handle);
        release(scan);
    }
    db.close();
}

#[test]
fn a_small_scan_is_one_call_and_a_large_one_goes_on() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    let query = db.query(stream, &["v"]);
    let rows: Vec<(i64, f64)> = (0..9_000).map(|i| (i, i as f64)).collect();
    db.write(stream, "v", &rows);
    // SAFETY: handles are checked.
    unsafe {
        let begin = |first, last| {
            let mut scan = u64::MAX;
            let rows = get(|out, e| hw_scan_begin(query, 0, first, last, out, &raw mut scan, e));
            (rows, scan)
        };
        ok(|e| hw_flush(db.db, e));
        let (none, scan) = begin(9_000, i64::MAX);
        assert_eq!((none.handle, none.row_count, scan), (0, 0, 0));
        let (few, scan) = begin(10, 20);
        assert_eq!((few.row_count, scan), (11, 0));
        release(few.handle);
        let (first, scan) = begin(0, i64::MAX);
        assert_ne!(scan, 0);
        let mut times = list(first.times_ns, first.row_count).to_vec();
        release(first.handle);
        loop {
            let rows = get(|out, e| hw_scan_next(scan, out, e));
            if rows.handle == 0 {
                break;
            }
            times.extend_from_slice(list(rows.times_ns, rows.row_count));
            release(rows.handle);
        }
        assert_eq!(times, (0..9_000).collect::<Vec<i64>>());
        release(scan);
    }
    db.close();
}
