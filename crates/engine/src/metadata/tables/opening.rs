//! Opening redb on our files, also after a crash and on damaged bytes.
//!
//! Failure: a file that redb cannot read is damage, also where it panics.

use super::backend::{Backend, FileStats};
use crate::{Error, ErrorKind, Result};
use headwater_io::File;
use redb::Database;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

const CACHE_BYTES: usize = 1 << 20;
/// redb's page size, part of its file format.
const PAGE_BYTES: u64 = 4096;

/// Rewrites a file unchanged, and syncs it.
pub(crate) fn write_again(file: &dyn File) -> io::Result<()> {
    let len = file.len()?;
    let mut buffer = vec![0u8; usize::try_from(len.min(1 << 20)).unwrap_or(1 << 20)];
    let mut offset = 0;
    while offset < len {
        let count = (len - offset).min(buffer.len() as u64);
        let part = buffer
            .get_mut(..usize::try_from(count).unwrap_or(0))
            .unwrap_or_default();
        file.read_exact_at(offset, part)?;
        file.write_all_at(offset, part)?;
        offset += count;
    }
    file.sync_data()
}

/// Creates a new database in an empty file. Its writes are counted in `stats`.
pub(crate) fn new_database(file: Arc<dyn File>, stats: &Arc<FileStats>) -> Result<Database> {
    redb::Builder::new()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(Backend::new(file, Arc::clone(stats)))
        .map_err(Error::meta)
}

/// The database in a file of this length, at least one byte.
pub(crate) fn open_database(
    path: &Path,
    file: Arc<dyn File>,
    len: u64,
    stats: &Arc<FileStats>,
) -> Result<Database> {
    if !len.is_multiple_of(PAGE_BYTES) {
        // Power failed while the file grew, which redb does before it writes there: it accepts
        // whole pages only.
        file.set_len(len - len % PAGE_BYTES)
            .map_err(|e| Error::io("truncate", path, e))?;
    }
    // A process that did not close the file may have had a failed sync, after which the system
    // shows bytes that it will never write. redb is about to rely on the bytes it reads, so they
    // are rewritten.
    let rewritten = Rc::new(RefCell::new(None));
    let (outcome, again) = (Rc::clone(&rewritten), Arc::clone(&file));
    let mut builder = redb::Builder::new();
    builder
        .set_cache_size(CACHE_BYTES)
        .set_repair_callback(move |session| {
            let mut outcome = outcome.borrow_mut();
            if outcome.get_or_insert_with(|| write_again(&*again)).is_err() {
                session.abort();
            }
        });
    let backend = Backend::new(file, Arc::clone(stats));
    // redb trusts a file that was closed, and panics on some effects of a flipped bit: so its
    // checksums are verified, and a panic meanwhile means damage.
    let opening = || -> std::result::Result<Database, redb::DatabaseError> {
        let mut db = builder.create_with_backend(backend)?;
        if rewritten.borrow().is_none() {
            db.check_integrity()?;
        }
        Ok(db)
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(opening));
    if let Some(Err(error)) = rewritten.take() {
        return Err(Error::io("rewrite", path, error));
    }
    let damaged = |found: String| {
        Error::damage(crate::common::error::Damage {
            file: path.to_owned(),
            offset: 0,
            expected: "valid metadata".to_owned(),
            found,
        })
    };
    match result {
        Ok(Ok(db)) => Ok(db),
        Ok(Err(error)) => {
            let text = error.to_string();
            let error = Error::meta(error);
            let corrupt = error.kind() == ErrorKind::Corrupt;
            Err(if corrupt { damaged(text) } else { error })
        }
        Err(_) => Err(damaged("pages that redb cannot read".to_owned())),
    }
}
