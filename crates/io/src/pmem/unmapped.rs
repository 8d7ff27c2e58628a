//! Stub of a window for systems on which files are not mapped.
//!
//! Invariants: no value of [`Window`] exists; all writes are calls. Concurrency: none. Failure:
//! none.

use std::fs;
use std::io;
use std::path::Path;

use super::Standing;
use super::lines::Lines;

/// Bytes of a window.
pub(super) const WINDOW_BYTES: u64 = 2 << 20;

/// A mapped part of a file; never exists on this system.
#[derive(Debug)]
pub(super) enum Window {}

impl Window {
    pub(super) fn map(_file: &fs::File, _start: u64, _standing: Standing) -> io::Result<Window> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn ready(&self) -> usize {
        match *self {}
    }

    pub(super) fn make_ready(
        &mut self,
        _file: &fs::File,
        _start: u64,
        _len: usize,
    ) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn cut(&mut self, _len: usize) {
        match *self {}
    }

    pub(super) fn write(&self, _lines: &dyn Lines, _at: usize, _data: &[u8]) {
        match *self {}
    }
}

/// Guarantee of stores to mappings of this file.
pub(super) fn standing_of(_file: &fs::File) -> io::Result<Standing> {
    Ok(Standing::Calls)
}

/// Guarantee of writes to new files in a directory.
pub(super) fn standing_in(_dir: &Path) -> io::Result<Standing> {
    Ok(Standing::Calls)
}
