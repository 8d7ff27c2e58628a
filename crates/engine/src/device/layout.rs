//! Locations of the parts of a database: paths below its directory, and the medium of each.
//!
//! Invariants: the same paths on every medium; by default all media are one.

use headwater_io::{Env, Files};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The metadata, on [`Env::index_files`].
pub(crate) fn meta_path(dir: &Path) -> PathBuf {
    dir.join("meta.redb")
}

/// The folder of the commit log, on [`Env::log_files`].
pub(crate) fn log_dir(env: &Env, dir: &Path) -> PathBuf {
    env.media.log_root(dir).join("log")
}

/// The folder of the commit log of a database without a fast tier; with one, of its copy.
pub(crate) fn bulk_log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// The folder of segments, on [`Env::segment_files`].
pub(crate) fn segment_dir(dir: &Path) -> PathBuf {
    dir.join("segment")
}

/// Every folder that a database requires, parents first.
pub(crate) fn folders<'e>(env: &'e Env, dir: &Path) -> Vec<(&'e Arc<dyn Files>, PathBuf)> {
    let mut folders = durable_roots(env, dir);
    folders.push((env.log_files(), log_dir(env, dir)));
    folders.push((env.segment_files(), segment_dir(dir)));
    folders
}

/// Every medium with data that outlives the process, once, with its folder for `dir`;
/// [`Env::files`] first.
pub(crate) fn durable_roots<'e>(env: &'e Env, dir: &Path) -> Vec<(&'e Arc<dyn Files>, PathBuf)> {
    let mut all = vec![(&env.files, dir.to_owned())];
    let parts = [
        (env.index_files(), dir),
        (env.log_files(), env.media.log_root(dir)),
        (env.segment_files(), dir),
    ];
    for (files, root) in parts {
        if !all.iter().any(|(known, _)| Arc::ptr_eq(known, files)) {
            all.push((files, root.to_owned()));
        }
    }
    all
}

/// The medium of a file of the database.
pub(crate) fn files_of<'e>(env: &'e Env, dir: &Path, path: &Path) -> &'e Arc<dyn Files> {
    if path.starts_with(log_dir(env, dir)) {
        env.log_files()
    } else if path.starts_with(segment_dir(dir)) {
        env.segment_files()
    } else if path == meta_path(dir) {
        env.index_files()
    } else {
        &env.files
    }
}
