//! Stub of a region for systems on which files are not mapped.
//!
//! Invariants: no value of [`MappedRegion`] exists; all writes are calls. Concurrency: none.
//! Failure: none.

use std::fs;
use std::io;
use std::path::Path;

use super::Standing;
use super::lines::Lines;

/// Bytes of a region.
pub(super) const REGION_BYTES: u64 = 2 << 20;

/// A mapped part of a file; never exists on this system.
#[derive(Debug)]
pub(super) enum MappedRegion {}

impl MappedRegion {
    pub(super) fn map(
        _file: &fs::File,
        _start: u64,
        _standing: Standing,
    ) -> io::Result<MappedRegion> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn populated(&self) -> usize {
        match *self {}
    }

    pub(super) fn populate(
        &mut self,
        _file: &fs::File,
        _start: u64,
        _len: usize,
    ) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn truncate(&mut self, _len: usize) {
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
