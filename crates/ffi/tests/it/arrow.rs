//! Rows out to Arrow and in again.

use crate::common::{Db, fails, get, list, ok, release, s};
use headwater_ffi::*;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// A struct array with its schema.
struct Batch {
    schema: ArrowSchema,
    array: ArrowArray,
}

impl Batch {
    fn of_rows(rows: u64) -> Batch {
        let mut schema = MaybeUninit::uninit();
        let mut array = MaybeUninit::uninit();
        // SAFETY: places are valid, and written when the call succeeds.
        unsafe {
            ok(|e| hw_rows_arrow(rows, schema.as_mut_ptr(), array.as_mut_ptr(), e));
            Batch {
                schema: schema.assume_init(),
                array: array.assume_init(),
            }
        }
    }

    /// Names and formats of the columns.
    fn columns(&self) -> Vec<(String, String)> {
        columns(&self.schema)
    }

    fn child(&self, index: usize) -> &ArrowArray {
        child(&self.array, index)
    }

    fn release(mut self) {
        // SAFETY: each is released once, by its callback.
        unsafe {
            (self.schema.release.unwrap())(&raw mut self.schema);
            (self.array.release.unwrap())(&raw mut self.array);
        }
        assert!(self.schema.release.is_none() && self.array.release.is_none());
    }
}

fn columns(schema: &ArrowSchema) -> Vec<(String, String)> {
    let text = |data| {
        // SAFETY: texts of a schema end with a NUL.
        let text = unsafe { CStr::from_ptr(data) };
        text.to_str().unwrap().to_owned()
    };
    list(schema.children, schema.n_children as usize)
        .iter()
        // SAFETY: children are valid until the schema is released.
        .map(|child| unsafe { (text((**child).name), text((**child).format)) })
        .collect()
}

fn child(array: &ArrowArray, index: usize) -> &ArrowArray {
    // SAFETY: children are valid until the array is released.
    unsafe { &*list(array.children, array.n_children as usize)[index] }
}

fn buffer<T>(array: &ArrowArray, index: usize, count: usize) -> &[T] {
    list(
        list(array.buffers, array.n_buffers as usize)[index].cast(),
        count,
    )
}

#[test]
fn rows_go_out_and_in_again_unchanged() {
    let db = Db::new();
    let from = db.stream("t,d=1");
    let to = db.stream("t,d=2");
    let validity = [0b1011u8];
    // SAFETY: lists are as long as said.
    unsafe {
        let batch = get(|out, e| hw_batch_new(out, e));
        ok(|e| hw_batch_rows(batch, from, [1i64, 2, 3, 4].as_ptr(), 4, e));
        ok(|e| {
            hw_batch_f64(
                batch,
                s("f"),
                [1.5, -0.0, f64::NAN, 4.0].as_ptr(),
                validity.as_ptr(),
                e,
            )
        });
        ok(|e| hw_batch_i64(batch, s("i"), [i64::MIN, 2, 3, 4].as_ptr(), null(), e));
        ok(|e| hw_batch_u64(batch, s("u"), [u64::MAX, 2, 3, 4].as_ptr(), null(), e));
        ok(|e| hw_batch_bool(batch, s("b"), [1u8, 0, 1, 1].as_ptr(), validity.as_ptr(), e));
        let offsets = [0u32, 2, 2, 4, 5];
        ok(|e| {
            hw_batch_text(
                batch,
                s("s"),
                HW_STRING,
                offsets.as_ptr(),
                "\u{e4}bcd".as_ptr(),
                null(),
                e,
            )
        });
        ok(|e| {
            hw_batch_text(
                batch,
                s("y"),
                HW_BYTES,
                offsets.as_ptr(),
                [0, 255, 7, 8, 9].as_ptr(),
                validity.as_ptr(),
                e,
            )
        });
        ok(|e| hw_write(db.db, batch, null_mut(), e));
        let query = db.query(from, &[]);
        let rows = get(|out, e| hw_read(query, 0, 0, 9, out, e));
        let arrow = Batch::of_rows(rows.handle);
        release(rows.handle); // what was exported lives on
        let expected = [
            ("time", "tsn:UTC"),
            ("f", "g"),
            ("i", "l"),
            ("u", "L"),
            ("b", "b"),
            ("s", "u"),
            ("y", "z"),
        ];
        assert_eq!(
            arrow.columns(),
            expected.map(|(n, f)| (n.to_owned(), f.to_owned()))
        );
        assert_eq!(buffer::<i64>(arrow.child(0), 1, 4), [1, 2, 3, 4]);
        assert_eq!(arrow.child(1).null_count, 1);
        assert_eq!(buffer::<u8>(arrow.child(1), 0, 1), validity);
        assert_eq!(buffer::<u8>(arrow.child(4), 1, 1)[0] & 0b1011, 0b1001);
        assert_eq!(buffer::<i32>(arrow.child(5), 1, 5), [0, 2, 2, 4, 5]);

        ok(|e| {
            hw_batch_arrow(
                batch,
                to,
                s("time"),
                &raw const arrow.schema,
                &raw const arrow.array,
                e,
            )
        });
        let written = get(|out, e| hw_write(db.db, batch, out, e));
        assert_eq!(written.accepted, 4);
        let query_to = db.query(to, &[]);
        let again = get(|out, e| hw_read(query_to, 0, 0, 9, out, e));
        let second = Batch::of_rows(again.handle);
        release(again.handle);
        for index in 0..7 {
            let (a, b) = (arrow.child(index), second.child(index));
            assert_eq!(
                (a.length, a.null_count),
                (b.length, b.null_count),
                "column {index}"
            );
            for part in 0..a.n_buffers as usize {
                let bytes = match (index, part) {
                    (_, 0) => usize::from(a.null_count > 0),
                    (4, 1) => 1,
                    (5 | 6, 1) => 20,
                    (5 | 6, 2) => buffer::<i32>(a, 1, 5)[4] as usize,
                    _ => 32,
                };
                assert_eq!(
                    buffer::<u8>(a, part, bytes),
                    buffer::<u8>(b, part, bytes),
                    "column {index} buffer {part}"
                );
            }
        }

        // A child that was moved out is released by itself, the others with their parent.
        let children = std::slice::from_raw_parts(second.array.children, 7);
        let mut moved = std::ptr::read(children[5]);
        (*children[5]).release = None;
        second.release();
        assert_eq!(buffer::<i32>(&moved, 1, 5), [0, 2, 2, 4, 5]);
        (moved.release.unwrap())(&raw mut moved);
        arrow.release();
        for handle in [batch, query, query_to] {
            release(handle);
        }
    }
    db.close();
}

#[test]
fn a_scan_over_a_table_is_a_stream_with_its_tags() {
    let db = Db::new();
    for id in ["1", "2", "3"] {
        let tags = if id == "3" {
            String::new()
        } else {
            format!(",site=s{id}")
        };
        let stream = db.stream(&format!("m,id={id}{tags}"));
        db.write(stream, "v", &[(1, 1.0), (2, 2.0)]);
        release(stream);
    }
    // SAFETY: handles are checked, callbacks are called as specified.
    unsafe {
        let query =
            get(|out, e| hw_query_table(db.db, s("m"), null(), 0, null(), 0, null(), 0, out, e));
        let scan = get(|out, e| hw_scan_open(query, 0, 0, 9, out, e));
        let mut stream: ArrowArrayStream = get(|out, e| hw_scan_arrow(scan, out, e));
        release(scan);
        release(query);
        let mut schema = MaybeUninit::<ArrowSchema>::uninit();
        assert_eq!(
            (stream.get_schema.unwrap())(&raw mut stream, schema.as_mut_ptr()),
            0
        );
        let mut schema = schema.assume_init();
        let names: Vec<String> = columns(&schema).into_iter().map(|(n, _)| n).collect();
        assert_eq!(names, ["time", "id", "site", "v"]);
        (schema.release.unwrap())(&raw mut schema);
        let mut seen = Vec::new();
        loop {
            let mut array = MaybeUninit::<ArrowArray>::uninit();
            assert_eq!(
                (stream.get_next.unwrap())(&raw mut stream, array.as_mut_ptr()),
                0
            );
            let mut array = array.assume_init();
            let Some(release) = array.release else { break };
            let id = buffer::<u8>(child(&array, 1), 2, 1)[0];
            let site = child(&array, 2);
            let value = if site.null_count == 2 {
                assert_eq!(buffer::<u8>(site, 0, 1), [0]);
                None
            } else {
                assert_eq!(buffer::<i32>(site, 1, 3), [0, 2, 4]);
                Some(buffer::<u8>(site, 2, 4).to_vec())
            };
            seen.push((id, value, buffer::<f64>(child(&array, 3), 1, 2).to_vec()));
            release(&raw mut array);
        }
        seen.sort_by_key(|row| row.0);
        let values = vec![1.0, 2.0];
        assert_eq!(
            seen,
            [
                (b'1', Some(b"s1s1".to_vec()), values.clone()),
                (b'2', Some(b"s2s2".to_vec()), values.clone()),
                (b'3', None, values),
            ]
        );
        assert!((stream.get_last_error.unwrap())(&raw mut stream).is_null());
        (stream.release.unwrap())(&raw mut stream);
    }
    db.close();
}

/// A column of a caller, whose memory is kept.
fn column(
    name: &CStr,
    format: &CStr,
    length: i64,
    offset: i64,
    buffers: &mut [*const std::ffi::c_void],
) -> (ArrowSchema, ArrowArray) {
    unsafe extern "C" fn schema_released(schema: *mut ArrowSchema) {
        // SAFETY: the caller of the callback gives a schema.
        unsafe { (*schema).release = None };
    }
    unsafe extern "C" fn array_released(array: *mut ArrowArray) {
        // SAFETY: the caller of the callback gives an array.
        unsafe { (*array).release = None };
    }
    let schema = ArrowSchema {
        format: format.as_ptr(),
        name: name.as_ptr(),
        metadata: null(),
        flags: 2,
        n_children: 0,
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(schema_released),
        private_data: null_mut(),
    };
    let array = ArrowArray {
        length,
        null_count: -1,
        offset,
        n_buffers: buffers.len() as i64,
        n_children: 0,
        buffers: buffers.as_mut_ptr(),
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(array_released),
        private_data: null_mut(),
    };
    (schema, array)
}

#[test]
fn offsets_units_and_narrow_types_of_others_are_understood() {
    let db = Db::new();
    let stream = db.stream("t,d=1");
    // Six rows, of which the parent means the last three; children have offsets of their own.
    let millis = [0i64, 0, 0, 5, 6, 7];
    let floats = [0f32, 0.0, 0.0, 0.0, 0.25, 0.5, 0.75];
    let small = [0i8, 0, 0, -5, -6, -7];
    let valid = [0b0010_1000u8];
    let flags = [0b0011_0000u8];
    let offsets = [0i64, 0, 0, 0, 1, 3, 6];
    let run = |time_format: &CStr, text_format: &CStr| {
        let mut parts = [
            (
                c"when",
                time_format,
                0,
                vec![null(), millis.as_ptr().cast()],
            ),
            (c"f", c"f", 1, vec![null(), floats.as_ptr().cast()]),
            (
                c"i",
                c"c",
                0,
                vec![valid.as_ptr().cast(), small.as_ptr().cast()],
            ),
            (c"b", c"b", 0, vec![null(), flags.as_ptr().cast()]),
            (
                c"s",
                text_format,
                0,
                vec![null(), offsets.as_ptr().cast(), c"abbccc".as_ptr().cast()],
            ),
        ];
        let (mut schemas, mut arrays): (Vec<ArrowSchema>, Vec<ArrowArray>) = parts
            .iter_mut()
            .map(|(name, format, offset, buffers)| column(name, format, 6, *offset, buffers))
            .unzip();
        let mut schema_pointers: Vec<*mut ArrowSchema> =
            schemas.iter_mut().map(|c| &raw mut *c).collect();
        let mut array_pointers: Vec<*mut ArrowArray> =
            arrays.iter_mut().map(|c| &raw mut *c).collect();
        let mut no_validity = [null()];
        let (mut schema, mut array) = column(c"", c"+s", 3, 3, &mut no_validity);
        (schema.n_children, schema.children) = (5, schema_pointers.as_mut_ptr());
        (array.n_children, array.children) = (5, array_pointers.as_mut_ptr());
        // SAFETY: the structs are as specified, their buffers as long as said.
        unsafe {
            let batch = get(|out, e| hw_batch_new(out, e));
            let mut error = hw_error::NONE;
            let code = hw_batch_arrow(
                batch,
                stream,
                s("when"),
                &raw const schema,
                &raw const array,
                &raw mut error,
            );
            let message = if code == HW_OK {
                ok(|e| hw_write(db.db, batch, null_mut(), e));
                String::new()
            } else {
                CStr::from_ptr(error.message).to_str().unwrap().to_owned()
            };
            hw_error_free(&raw mut error);
            release(batch);
            (code, message)
        }
    };
    assert_eq!(run(c"tsm:Europe/Zurich", c"U"), (HW_OK, String::new()));
    let (code, message) = run(c"tdD", c"U");
    assert!(code == HW_INVALID && message.contains("tdD"), "{message}");
    let (code, message) = run(c"tsn:", c"vu");
    assert!(
        code == HW_INVALID && message.contains("`s`") && message.contains("vu"),
        "{message}"
    );

    let query = db.query(stream, &[]);
    // SAFETY: handles are checked.
    let rows = get(|out, e| unsafe { hw_read(query, 0, i64::MIN, i64::MAX, out, e) });
    assert_eq!(
        list(rows.times_ns, rows.row_count),
        [5_000_000, 6_000_000, 7_000_000]
    );
    let columns = list(rows.columns, rows.column_count);
    assert_eq!(list(columns[0].values.cast::<f64>(), 3), [0.25, 0.5, 0.75]);
    assert_eq!(list(columns[1].values.cast::<i64>(), 3), [-5, 0, -7]);
    assert_eq!(list(columns[1].validity, 1), [0b101]);
    assert_eq!(list(columns[2].values.cast::<u8>(), 3), [0, 1, 1]);
    assert_eq!(list(columns[3].offsets, 4), [0, 1, 3, 6]);
    assert_eq!(list(columns[3].bytes, 6), b"abbccc");
    release(rows.handle);
    release(query);
    db.close();
}

#[test]
fn names_with_a_nul_do_not_come_in() {
    // Texts of a schema end with a NUL, so that a name that holds one could not be told.
    let db = Db::new();
    let stream = db.stream("t,d=1");
    // SAFETY: lists are as long as said.
    unsafe {
        let batch = get(|out, e| hw_batch_new(out, e));
        ok(|e| hw_batch_rows(batch, stream, [1i64].as_ptr(), 1, e));
        ok(|e| hw_batch_f64(batch, s("a\0b"), [1.0].as_ptr(), null(), e));
        let written = get(|out, e| hw_write(db.db, batch, out, e));
        assert_eq!((written.accepted, written.refused_count), (0, 1));
        release(written.handle);
        release(batch);
        let mut out = MaybeUninit::<ArrowArrayStream>::uninit();
        assert_eq!(
            fails(|e| hw_scan_arrow(stream, out.as_mut_ptr(), e)).0,
            HW_HANDLE
        );
    }
    db.close();
}
