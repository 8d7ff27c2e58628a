//! Results of calls: a code, and in the caller's `hw_error` a message.
//!
//! Invariants: codes never change their meaning. A panic of the engine or of this crate becomes
//! [`HW_PANIC`]; it never unwinds into the caller.
//! Failure: none of its own.

use headwater::ErrorKind;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The call succeeded.
pub const HW_OK: i32 = 0;
/// The request itself is wrong: change it.
pub const HW_INVALID: i32 = 1;
/// There is no such database, table, stream or field.
pub const HW_NOT_FOUND: i32 = 2;
/// Too much at once: try again later.
pub const HW_BUSY: i32 = 3;
/// The database was closed, or stopped writing after a failed write: open it again.
pub const HW_CLOSED: i32 = 4;
/// Bytes on disk are not what was written: run `headwater check`.
pub const HW_CORRUPT: i32 = 5;
/// No space left: free some, or delete data.
pub const HW_FULL: i32 = 6;
/// The operating system refused.
pub const HW_IO: i32 = 7;
/// Another process owns the folder.
pub const HW_LOCKED: i32 = 8;
/// The database was opened read-only.
pub const HW_READ_ONLY: i32 = 9;
/// An internal error of Headwater.
pub const HW_INTERNAL: i32 = 10;
/// An internal error of Headwater that ended the call; the database goes on, or is closed.
pub const HW_PANIC: i32 = 11;
/// A handle that is 0, was released, or is of another kind than the function takes.
pub const HW_HANDLE: i32 = 12;
/// The database was opened by the process that this one was forked from: open it after the fork.
pub const HW_FORKED: i32 = 13;
/// The fast tier of the database is missing, or belongs to another database or an older state.
pub const HW_TIER: i32 = 14;
/// The object no longer exists, such as a named snapshot that was dropped automatically.
pub const HW_GONE: i32 = 15;

/// The error of a call. Begin with one that is all zeros. A call that fails writes to it, one that
/// succeeds does not. Give the message back with hw_error_free before the next call gets the same
/// one.
#[repr(C)]
#[derive(Debug)]
pub struct hw_error {
    /// The code the call returned too.
    pub code: i32,
    /// Bytes of the message, without the NUL behind them.
    pub length: usize,
    /// UTF-8, with a NUL behind it: what was expected, what was found, what to do. NULL = none.
    pub message: *mut c_char,
}

impl hw_error {
    /// No error.
    pub const NONE: hw_error = hw_error {
        code: HW_OK,
        length: 0,
        message: std::ptr::null_mut(),
    };
}

/// Gives the message of an error back and makes the error all zeros. NULL, and an error without a
/// message, are fine, so that freeing twice is harmless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_error_free(error: *mut hw_error) {
    // SAFETY: the caller gives NULL or an error of its own that no other thread uses meanwhile.
    let Some(error) = (unsafe { error.as_mut() }) else {
        return;
    };
    let old = std::mem::replace(error, hw_error::NONE);
    if !old.message.is_null() {
        let bytes = std::ptr::slice_from_raw_parts_mut(old.message.cast::<u8>(), old.length + 1);
        // SAFETY: `into_c` made the message of a boxed slice of this length, and nobody else freed
        // it, since freeing leaves NULL.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

/// Names a code: "ok", "invalid", "not_found", … The text is valid for ever and has a NUL behind
/// it. NULL for a number that is no code.
#[unsafe(no_mangle)]
pub extern "C" fn hw_code_name(code: i32) -> *const c_char {
    let name = match code {
        HW_OK => c"ok",
        HW_INVALID => c"invalid",
        HW_NOT_FOUND => c"not_found",
        HW_BUSY => c"busy",
        HW_CLOSED => c"closed",
        HW_CORRUPT => c"corrupt",
        HW_FULL => c"full",
        HW_IO => c"io",
        HW_LOCKED => c"locked",
        HW_READ_ONLY => c"read_only",
        HW_INTERNAL => c"internal",
        HW_PANIC => c"panic",
        HW_HANDLE => c"handle",
        HW_FORKED => c"forked",
        HW_TIER => c"tier",
        HW_GONE => c"gone",
        _ => return std::ptr::null(),
    };
    name.as_ptr()
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i32,
    message: String,
}

/// Result inside this crate.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
        }
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(HW_INVALID, message)
}

impl From<headwater::Error> for Failure {
    fn from(error: headwater::Error) -> Failure {
        let code = match error.kind() {
            ErrorKind::Invalid => HW_INVALID,
            ErrorKind::NotFound => HW_NOT_FOUND,
            ErrorKind::Busy => HW_BUSY,
            ErrorKind::Closed => HW_CLOSED,
            ErrorKind::Corrupt => HW_CORRUPT,
            ErrorKind::Full => HW_FULL,
            ErrorKind::Io => HW_IO,
            ErrorKind::Locked => HW_LOCKED,
            ErrorKind::ReadOnly => HW_READ_ONLY,
            ErrorKind::Forked => HW_FORKED,
            ErrorKind::Tier => HW_TIER,
            ErrorKind::Gone => HW_GONE,
            _ => HW_INTERNAL,
        };
        Failure::new(code, error.to_string())
    }
}

/// Runs the body of a call: what it fails with, panics included, becomes a code and a message.
pub(crate) fn guard(error: *mut hw_error, body: impl FnOnce() -> Outcome<()>) -> i32 {
    // State that a panic may have left half changed is behind locks that say so (`lock`), or is the
    // engine's, which latches.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return HW_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            Failure::new(
                HW_PANIC,
                format!(
                    "internal error of Headwater, please report it: {}",
                    text.as_deref().unwrap_or("panic")
                ),
            )
        }
    };
    // SAFETY: the caller gives NULL or an error of its own that no other thread uses meanwhile.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = into_c(&failure);
    }
    failure.code
}

/// A failure as the caller holds it.
fn into_c(failure: &Failure) -> hw_error {
    let mut bytes: Vec<u8> = failure.message.bytes().filter(|b| *b != 0).collect();
    let length = bytes.len();
    bytes.push(0);
    hw_error {
        code: failure.code,
        length,
        message: Box::into_raw(bytes.into_boxed_slice()).cast::<c_char>(),
    }
}

/// Locks a mutex, unless an earlier call panicked while it changed the contents.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> Outcome<std::sync::MutexGuard<'_, T>> {
    mutex.lock().map_err(|_| {
        Failure::new(
            HW_PANIC,
            "an earlier call with this handle failed with an internal error: release it",
        )
    })
}

/// Writes a result to where the caller wants it.
pub(crate) fn write_result<T>(to: *mut T, value: T, what: &str) -> Outcome<()> {
    out(to, what)?;
    // SAFETY: not NULL and aligned, as just checked; the caller gives memory for one value.
    unsafe { to.write(value) };
    Ok(())
}

/// Checks that there is memory for a result, before anything is done for it.
pub(crate) fn out<T>(to: *mut T, what: &str) -> Outcome<()> {
    if to.is_null() {
        return Err(invalid(format!(
            "{what}: expected a pointer to write to, found NULL"
        )));
    }
    if !to.is_aligned() {
        return Err(invalid(format!("{what}: the pointer is not aligned")));
    }
    Ok(())
}

/// Does nothing, successfully: to measure what crossing the border costs.
#[unsafe(no_mangle)]
pub extern "C" fn hw_nothing() -> i32 {
    HW_OK
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::ffi::CStr;

    fn run(body: impl FnOnce() -> Outcome<()>) -> (i32, String) {
        let mut error = hw_error::NONE;
        let code = guard(&raw mut error, body);
        assert_eq!(error.code, code);
        // SAFETY: a call that failed filled the message in.
        let message = unsafe { CStr::from_ptr(error.message) }.to_owned();
        assert_eq!(message.to_bytes().len(), error.length);
        // SAFETY: the error is ours.
        unsafe { hw_error_free(&raw mut error) };
        (code, message.into_string().unwrap())
    }

    #[test]
    fn a_panic_stops_at_the_border() {
        let (code, message) = run(|| panic!("in the middle: {}", 7));
        assert_eq!(code, HW_PANIC);
        assert!(message.ends_with("in the middle: 7"), "{message}");
        assert_eq!(run(|| panic!("plain")).0, HW_PANIC);
        // Without memory for the error too.
        assert_eq!(guard(std::ptr::null_mut(), || panic!("unseen")), HW_PANIC);
        assert_eq!(guard(std::ptr::null_mut(), || Ok(())), HW_OK);
    }

    #[test]
    fn what_a_panic_left_half_done_is_not_used_again() {
        let shared = std::sync::Mutex::new(1);
        let (code, _) = run(|| {
            let _held = lock(&shared)?;
            panic!("while it is held")
        });
        assert_eq!(code, HW_PANIC);
        let (code, message) = run(|| lock(&shared).map(|_| ()));
        assert!(
            code == HW_PANIC && message.contains("release it"),
            "{message}"
        );
    }

    #[test]
    fn a_nul_in_a_message_does_not_cut_it() {
        assert_eq!(run(|| Err(invalid("a\0b"))), (HW_INVALID, "ab".to_owned()));
    }
}
