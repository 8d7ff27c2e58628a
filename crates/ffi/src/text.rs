//! Text and lists as callers hand them in, and text as they get it.
//!
//! Invariants: nothing is read before its pointer and length have been checked as far as that is
//! possible.
//! Failure: `HW_INVALID` with what was expected.

use crate::handles::{self, Handled};
use crate::status::{Outcome, invalid};
use std::ffi::c_char;
use std::path::PathBuf;

/// Text: a pointer and a number of bytes. No NUL is needed, and one would be part of the text. NULL
/// with length 0 is the empty text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_str {
    /// UTF-8; bytes of any content where a function takes bytes, and for paths on Unix.
    pub data: *const c_char,
    /// The number of bytes.
    pub length: usize,
}

impl hw_str {
    /// Text that Rust owns; as long as that lives.
    pub(crate) fn of(text: &str) -> hw_str {
        hw_str::of_bytes(text.as_bytes())
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> hw_str {
        hw_str {
            data: pointer(bytes).cast(),
            length: bytes.len(),
        }
    }

    /// The empty text.
    pub const EMPTY: hw_str = hw_str {
        data: std::ptr::null(),
        length: 0,
    };

    /// The text, for as long as the call lasts.
    pub(crate) fn read<'a>(self, what: &str) -> Outcome<&'a str> {
        std::str::from_utf8(self.bytes(what)?)
            .map_err(|e| invalid(format!("{what}: expected UTF-8: {e}")))
    }

    pub(crate) fn bytes<'a>(self, what: &str) -> Outcome<&'a [u8]> {
        slice(self.data.cast::<u8>(), self.length, what)
    }

    /// A path of this machine. On Unix it may be any bytes, elsewhere it is UTF-8.
    pub(crate) fn path(self, what: &str) -> Outcome<PathBuf> {
        #[cfg(unix)]
        let path = {
            use std::os::unix::ffi::OsStrExt;
            PathBuf::from(std::ffi::OsStr::from_bytes(self.bytes(what)?))
        };
        #[cfg(not(unix))]
        let path = PathBuf::from(self.read(what)?);
        if path.as_os_str().is_empty() {
            return Err(invalid(format!("{what}: expected a path, found nothing")));
        }
        Ok(path)
    }
}

/// A list as callers get it: NULL when it is empty, since the dangling pointer of an empty list is
/// no pointer to others. (The garbage collector of Go ends the process when it finds one.)
pub(crate) fn pointer<T>(list: &[T]) -> *const T {
    if list.is_empty() {
        std::ptr::null()
    } else {
        list.as_ptr()
    }
}

/// A list of the caller's, for as long as the call lasts.
pub(crate) fn slice<'a, T>(data: *const T, count: usize, what: &str) -> Outcome<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(invalid(format!("{what}: expected {count}, found NULL")));
    }
    if !data.is_aligned() {
        return Err(invalid(format!("{what}: the pointer is not aligned")));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(invalid(format!(
            "{what}: {count} elements do not fit into memory"
        )));
    }
    // SAFETY: not NULL, aligned, and not larger than memory can be, as just checked; that there are
    // so many, and that they do not change during the call, is the caller's part of the contract.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// A tag: key and value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_tag {
    /// The key.
    pub key: hw_str,
    /// The value.
    pub value: hw_str,
}

/// Tags as the engine takes them.
pub(crate) fn tags(tags: *const hw_tag, count: usize) -> Outcome<Vec<(String, String)>> {
    slice(tags, count, "tags")?
        .iter()
        .map(|tag| {
            let key = tag.key.read("tag key")?;
            let value = tag.value.read("tag value")?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

/// The values that each key may have, keys in the order in which they came first.
pub(crate) fn by_key(tags: Vec<(String, String)>) -> Vec<(String, Vec<String>)> {
    let mut grouped: Vec<(String, Vec<String>)> = Vec::new();
    for (key, value) in tags {
        match grouped.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => grouped.push((key, vec![value])),
        }
    }
    grouped
}

/// A list of names.
pub(crate) fn names(names: *const hw_str, count: usize, what: &str) -> Outcome<Vec<String>> {
    slice(names, count, what)?
        .iter()
        .map(|name| Ok(name.read(what)?.to_owned()))
        .collect()
}

/// Text that a call made. Release the handle when it has been read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_text {
    /// To release.
    pub handle: u64,
    /// The text, until then.
    pub text: hw_str,
}

/// A text behind a handle.
pub(crate) struct Text(String);

impl Handled for Text {
    const KIND: &'static str = "a text";
}

impl hw_text {
    pub(crate) fn make(text: String) -> hw_text {
        let (handle, kept) = handles::register(Text(text));
        hw_text {
            handle,
            text: hw_str::of(&kept.0),
        }
    }
}
