//! One consistent copy of the files of a database that its owner may be changing.
//!
//! The metadata are copied into memory while their header stays the same. redb writes the header
//! last in a commit and never overwrites pages of the newest commit before the next one, so a copy
//! under an unchanged header is that commit. Segment files are append-only and stay open; log files
//! are recycled only when a later commit no longer names them, which is visible in their headers
//! and in a gap of their generations. Files that fit together are one state of the database;
//! otherwise they are read again.
//!
//! Failure: `busy` when the owner commits faster than the metadata can be copied; apparent damage
//! that is the same three times in a row is damage.

use crate::common::error::Damage;
use crate::device::layout::{log_dir, meta_path, segment_dir};
use crate::metadata::tables::Meta;
use crate::{Error, ErrorKind, Result};
use headwater_io::{Env, File, Files, MemoryFiles, OpenMode};
use headwater_types::invariant::first_mut;
use std::path::Path;
use std::sync::Arc;

/// Maximum attempts.
const LOOKS_MAX: usize = 64;
/// Number of equal failures in a row that are reported as damage.
const SAME_MAX: usize = 3;
/// redb's header with both commit slots, part of its file format.
const HEADER_BYTES: usize = 320;
const COPY_BYTES: usize = 1 << 20;

/// A copy of `meta.redb` in memory, as of one commit.
pub(crate) struct MetaCopy {
    header: Vec<u8>,
    file: Arc<dyn File>,
}

impl MetaCopy {
    pub(crate) fn take(files: &dyn Files, path: &Path) -> Result<MetaCopy> {
        let source = open(files, path)?;
        let header = header(&*source, path)?;
        let len = source.len().map_err(|e| Error::io("read", path, e))?;
        let copy = copy_to_memory(&*source, len).map_err(|e| Error::io("copy", path, e))?;
        let copied = MetaCopy { header, file: copy };
        let mut start = vec![0; copied.header.len()];
        copied
            .file
            .read_exact_at(0, &mut start)
            .map_err(|e| Error::io("copy", path, e))?;
        if start != copied.header {
            return Err(moving(path));
        }
        copied.check_current(files, path)?;
        Ok(copied)
    }

    /// Fails with `busy` when there was a commit since the copy was taken.
    pub(crate) fn check_current(&self, files: &dyn Files, path: &Path) -> Result<()> {
        if header(&*open(files, path)?, path)? == self.header {
            Ok(())
        } else {
            Err(moving(path))
        }
    }

    /// The file in memory; opening it as metadata repairs it in memory.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }
}

fn open(files: &dyn Files, path: &Path) -> Result<Arc<dyn File>> {
    files
        .open(path, OpenMode::Read)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(format!(
                "{}: no database here (no meta.redb)",
                path.parent().unwrap_or(path).display()
            )),
            _ => Error::io("open", path, error),
        })
}

fn header(file: &dyn File, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; HEADER_BYTES];
    match file.read_exact_at(0, &mut bytes) {
        Ok(()) => Ok(bytes),
        // The file is being created, or its creation was interrupted.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

fn copy_to_memory(source: &dyn File, len: u64) -> std::io::Result<Arc<dyn File>> {
    let memory = MemoryFiles::new();
    let copy = memory.open(Path::new("/meta.redb"), OpenMode::CreateNew)?;
    let mut buffer = vec![0u8; COPY_BYTES];
    let mut offset = 0;
    while offset < len {
        let count = usize::try_from(len - offset)
            .unwrap_or(COPY_BYTES)
            .min(COPY_BYTES);
        let part = first_mut(&mut buffer, count, "bytes to copy");
        source.read_exact_at(offset, part)?;
        copy.write_all_at(offset, part)?;
        offset += count as u64;
    }
    Ok(copy)
}

fn moving(path: &Path) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!(
            "{} changes faster than it can be read: try again when its owner writes less",
            path.display()
        ),
    )
}

fn is_empty(files: &dyn Files, dir: &Path) -> Result<bool> {
    match files.list(dir) {
        Ok(names) => Ok(names.is_empty()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io("list", dir, error)),
    }
}

/// True for an error that a change by the owner during the read can cause.
fn may_pass(error: &Error) -> bool {
    let is_missing = || {
        std::error::Error::source(error)
            .and_then(|s| s.downcast_ref::<std::io::Error>())
            .is_some_and(|e| {
                matches!(
                    e.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof
                )
            })
    };
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Busy) || is_missing()
}

/// Passes a copy of the metadata in `dir` to `build` until the result is consistent.
pub(crate) fn look<T>(
    env: &Env,
    dir: &Path,
    mut build: impl FnMut(Meta, &MetaCopy) -> Result<T>,
) -> Result<T> {
    let path = meta_path(dir);
    let files = &**env.index_files();
    let mut before = String::new();
    let mut same = 0;
    let mut looks = 0;
    loop {
        looks += 1;
        let built = MetaCopy::take(files, &path).and_then(|copy| {
            match Meta::open(&path, Arc::clone(copy.file())) {
                Ok(Some(meta)) => build(meta, &copy),
                Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
                // During its creation a database has neither log nor segments.
                _ if is_empty(&**env.log_files(), &log_dir(env, dir))?
                    && is_empty(&**env.segment_files(), &segment_dir(dir))? =>
                {
                    Err(Error::not_found(format!(
                        "{}: no database here yet (its meta.redb is empty)",
                        dir.display()
                    )))
                }
                Err(error) => Err(error),
                Ok(None) => Err(Error::damage(Damage {
                    file: path.clone(),
                    offset: 0,
                    expected:
                        "metadata with a format version, since there are log or segment files"
                            .into(),
                    found: "metadata without one".into(),
                })),
            }
        });
        let error = match built {
            Err(error) if may_pass(&error) && looks < LOOKS_MAX => error,
            other => return other,
        };
        let text = error.to_string();
        same = if text == before { same + 1 } else { 1 };
        before = text;
        if error.kind() != ErrorKind::Busy && same >= SAME_MAX {
            return Err(error);
        }
        tracing::debug!(%error, "the database changed while it was read; reading it again");
    }
}
