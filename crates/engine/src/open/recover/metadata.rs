//! Opens the metadata of a database for its owner.

use crate::common::error::{Damage, Error, ErrorKind};
use crate::device::layout::{log_dir, meta_path, segment_dir};
use crate::metadata::owner::{Owner, lock_meta};
use crate::metadata::tables::Meta;
use crate::{Options, Result};
use headwater_io::{Env, Files, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Opens the metadata, or creates them. A database whose creation was interrupted has neither a log
/// nor segments: it is created again.
pub(super) fn open_meta(env: &Env, options: &Options, mut owner: Owner) -> Result<(Meta, Owner)> {
    let dir = options.dir.as_path();
    let path = &meta_path(dir);
    let files = env.index_files();
    let is_empty = |files: &Arc<dyn Files>, dir: &Path| {
        let names = files.list(dir).map_err(|e| Error::io("list", dir, e));
        names.map(|names| names.is_empty())
    };
    let empty = is_empty(env.log_files(), &log_dir(env, dir))?
        && is_empty(env.segment_files(), &segment_dir(dir))?;
    if let Some(lock) = owner.meta_lock.take() {
        let file = files
            .open(path, OpenMode::Write)
            .map_err(|e| Error::io("open", path, e))?;
        if !lock
            .is_current()
            .map_err(|e| Error::io("look for", path, e))?
        {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "{} was replaced while it was opened: try again",
                    path.display()
                ),
            ));
        }
        match Meta::open(path, file) {
            Ok(Some(meta)) => return Ok((meta.owned(lock, &env.chance), owner)),
            Err(error)
                if !empty
                    || matches!(
                        error.kind(),
                        ErrorKind::Io | ErrorKind::Invalid | ErrorKind::Full
                    ) =>
            {
                return Err(error);
            }
            Ok(None) if !empty => {
                return Err(Error::damage(Damage {
                    file: path.to_owned(),
                    offset: 0,
                    expected:
                        "metadata with a format version, since there are log or segment files"
                            .into(),
                    found: "metadata without one".into(),
                }));
            }
            Ok(None) | Err(_) => {
                tracing::info!(path = %path.display(), "the creation of the database was interrupted; creating it again");
                files
                    .remove(path)
                    .map_err(|e| Error::io("remove", path, e))?;
            }
        }
    } else if !empty {
        return Err(Error::damage(Damage {
            file: path.to_owned(),
            offset: 0,
            expected: "metadata, since there are log or segment files".into(),
            found: "no file".into(),
        }));
    }
    let file = files
        .open(path, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", path, e))?;
    let Some(lock) = lock_meta(env, dir)? else {
        return Err(Error::io("lock", path, std::io::ErrorKind::NotFound.into()));
    };
    // The name first: a file with contents has a durable name. If this sync fails, the next opening
    // finds an empty file, and creates it again.
    files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    let meta = Meta::create(path, file, options.shards, env.chance.next_u64())?;
    Ok((meta.owned(lock, &env.chance), owner))
}
