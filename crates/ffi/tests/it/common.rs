//! A caller of the C interface.

use headwater_ffi::*;
use std::mem::MaybeUninit;

/// Text as a caller passes it.
pub(crate) fn s(text: &str) -> hw_str {
    hw_str {
        data: text.as_ptr().cast(),
        length: text.len(),
    }
}

/// Text as a caller gets it.
pub(crate) fn text(str: hw_str) -> String {
    String::from_utf8(bytes(str)).unwrap()
}

pub(crate) fn bytes(str: hw_str) -> Vec<u8> {
    list(str.data.cast::<u8>(), str.length).to_vec()
}

/// A list of a result.
pub(crate) fn list<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        assert!(data.is_null(), "an empty list is not NULL but {data:?}");
        return &[];
    }
    // SAFETY: the library gave pointer and count together, and the tests look before they release.
    unsafe { std::slice::from_raw_parts(data, count) }
}

/// Makes a call that fails; gives code and message.
pub(crate) fn fails(call: impl FnOnce(*mut hw_error) -> i32) -> (i32, String) {
    let mut error = hw_error::NONE;
    let code = call(&raw mut error);
    assert_ne!(code, HW_OK, "it was to fail");
    assert_eq!(error.code, code);
    let message = bytes(hw_str {
        data: error.message,
        length: error.length,
    });
    // SAFETY: the error is ours.
    unsafe { hw_error_free(&raw mut error) };
    // SAFETY: as above; freeing twice is allowed.
    unsafe { hw_error_free(&raw mut error) };
    assert!(error.message.is_null());
    (code, String::from_utf8(message).unwrap())
}

/// Makes a call that succeeds.
pub(crate) fn ok(call: impl FnOnce(*mut hw_error) -> i32) {
    let mut error = hw_error::NONE;
    let code = call(&raw mut error);
    assert_eq!(
        code,
        HW_OK,
        "{}",
        text(hw_str {
            data: error.message,
            length: error.length,
        })
    );
}

/// Makes a call that gives something.
pub(crate) fn get<T>(call: impl FnOnce(*mut T, *mut hw_error) -> i32) -> T {
    let mut result = MaybeUninit::<T>::uninit();
    ok(|error| call(result.as_mut_ptr(), error));
    // SAFETY: a call that succeeds writes its result.
    unsafe { result.assume_init() }
}

pub(crate) fn release(handle: u64) {
    // SAFETY: releasing is always allowed.
    ok(|e| unsafe { hw_release(handle, e) });
}

/// A database in a folder that goes with the test.
pub(crate) struct Db {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) db: hw_db,
}

impl Db {
    pub(crate) fn new() -> Db {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir, |options| options.durability = HW_WRITTEN);
        Db { dir, db }
    }

    pub(crate) fn stream(&self, name: &str) -> hw_stream {
        // SAFETY: text and place are valid.
        get(|out, e| unsafe { hw_stream_parse(self.db, s(name), out, e) })
    }

    /// Writes rows of one field of doubles.
    pub(crate) fn write(&self, stream: hw_stream, field: &str, rows: &[(i64, f64)]) {
        let times: Vec<i64> = rows.iter().map(|r| r.0).collect();
        let values: Vec<f64> = rows.iter().map(|r| r.1).collect();
        // SAFETY: times and values are as long as said.
        unsafe {
            let batch = get(|out, e| hw_batch_new(out, e));
            ok(|e| hw_batch_rows(batch, stream, times.as_ptr(), times.len(), e));
            ok(|e| hw_batch_f64(batch, s(field), values.as_ptr(), std::ptr::null(), e));
            let written = get(|out, e| hw_write(self.db, batch, out, e));
            assert_eq!((written.accepted, written.handle), (rows.len() as u64, 0));
            release(batch);
        }
    }

    /// A question for some fields of a stream.
    pub(crate) fn query(&self, stream: hw_stream, fields: &[&str]) -> hw_query {
        let fields: Vec<hw_str> = fields.iter().map(|f| s(f)).collect();
        // SAFETY: the list is as long as said.
        get(|out, e| unsafe {
            hw_query_stream(
                stream,
                fields.as_ptr(),
                fields.len(),
                std::ptr::null(),
                0,
                out,
                e,
            )
        })
    }

    pub(crate) fn close(self) {
        // SAFETY: closing is always allowed.
        ok(|e| unsafe { hw_close(self.db, e) });
    }
}

pub(crate) fn open(dir: &tempfile::TempDir, change: impl FnOnce(&mut hw_options)) -> hw_db {
    let path = dir.path().join("db");
    // SAFETY: options and text are valid.
    unsafe {
        let mut options = get(|out, e| hw_options_init(out, size_of::<hw_options>(), e));
        options.memory_budget_bytes = 4 << 20;
        change(&mut options);
        get(|out, e| hw_open(s(path.to_str().unwrap()), &raw const options, out, e))
    }
}
