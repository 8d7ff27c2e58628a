//! Paths and bytes as the two file systems in memory treat them.
//!
//! Invariants: a normal path has no `.`, no `..` and no doubled separators; bytes between two
//! writes are zeros. Concurrency: plain functions on plain values. Failure: lengths past
//! [`FILE_BYTES_MAX`] are refused before memory is allocated.

use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

/// Maximum length of a file in memory, so that a wrong offset is an error and does not exhaust the
/// machine.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 32;

/// The path without `.`, `..` and doubled separators. This file system has no links, so `..` may be
/// resolved as text.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(component),
        }
    }
    out
}

/// Copies the bytes of `content` from `offset` on to the front of `buf`; returns their number.
pub(crate) fn read(content: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let rest = usize::try_from(offset)
        .ok()
        .and_then(|start| content.get(start..))
        .unwrap_or_default();
    rest.iter()
        .zip(buf.iter_mut())
        .map(|(from, to)| *to = *from)
        .count()
}

/// Writes `data` at `offset`, filling a gap with zeros.
pub(crate) fn write(content: &mut Vec<u8>, offset: u64, data: &[u8]) -> io::Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let end = end_of(offset, data)?;
    let end = checked_len(end)?;
    let start = end - data.len();
    if content.len() < end {
        grow(content, end)?;
    }
    if let Some(target) = content.get_mut(start..end) {
        target.copy_from_slice(data);
    }
    Ok(())
}

/// Cuts or grows (with zeros) to `len`.
pub(crate) fn set_len(content: &mut Vec<u8>, len: u64) -> io::Result<()> {
    let len = checked_len(len)?;
    if len <= content.len() {
        content.truncate(len);
        Ok(())
    } else {
        grow(content, len)
    }
}

/// The offset after `data` written at `offset`.
pub(crate) fn end_of(offset: u64, data: &[u8]) -> io::Result<u64> {
    offset
        .checked_add(data.len() as u64)
        .ok_or_else(|| Errno::FBIG.into())
}

/// A length as an index, if it is within [`FILE_BYTES_MAX`].
pub(crate) fn checked_len(len: u64) -> io::Result<usize> {
    if len > FILE_BYTES_MAX {
        return Err(Errno::FBIG.into());
    }
    usize::try_from(len).map_err(|_| Errno::FBIG.into())
}

fn grow(content: &mut Vec<u8>, len: usize) -> io::Result<()> {
    content
        .try_reserve(len.saturating_sub(content.len()))
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    content.resize(len, 0);
    Ok(())
}
