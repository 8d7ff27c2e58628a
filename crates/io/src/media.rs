//! Media: files of the parts of a database, if they are not all on the same.
//!
//! Invariants: by default all parts are on [`Env::files`](crate::Env::files), and every part has
//! exactly one medium. The same paths are used on each, except for parts that have a folder of
//! their own. A database must be opened with the media with which it was created: data on other
//! media is not found. Concurrency: cheap to clone; clones share the files. Failure: none of its
//! own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::Files;

/// Media of the parts of a database. `None` = on [`Env::files`](crate::Env::files), which always
/// has the lock.
///
/// ```
/// use headwater_io::{Env, Media, MemoryFiles};
/// use std::sync::Arc;
/// let mut env = Env::memory();
/// env.media.log = Some(Arc::new(MemoryFiles::new()));
/// assert!(!Arc::ptr_eq(env.log_files(), env.segment_files()));
/// assert!(Arc::ptr_eq(env.segment_files(), &env.files));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Media {
    /// The commit log (`DIR/log`), which makes writes durable. Small, written and synced all the
    /// time, read at each opening.
    pub log: Option<Arc<dyn Files>>,
    /// The folder that replaces `DIR` there; `None` = the same path.
    pub log_root: Option<PathBuf>,
    /// Rows that do not fit into memory (`DIR/pins`). Their files end with the process, and are
    /// never synced.
    pub pins: Option<Arc<dyn Files>>,
    /// The folder that replaces `DIR` there; `None` = the same path.
    pub pins_root: Option<PathBuf>,
    /// The metadata (`DIR/meta.redb`): which tables, streams and partitions there are. Small,
    /// written with every step.
    pub index: Option<Arc<dyn Files>>,
    /// Rows and their aggregates (`DIR/segment`): nearly all bytes of a database.
    pub segments: Option<Arc<dyn Files>>,
    /// Files of the fast tier's folder, if the database has one.
    pub fast: Option<Arc<dyn Files>>,
}

impl Media {
    /// The folder of the log of the database in `dir`.
    #[must_use]
    pub fn log_root<'a>(&'a self, dir: &'a Path) -> &'a Path {
        self.log_root.as_deref().unwrap_or(dir)
    }

    /// The folder of rows that do not fit into memory, of the database in `dir`.
    #[must_use]
    pub fn pins_root<'a>(&'a self, dir: &'a Path) -> &'a Path {
        self.pins_root.as_deref().unwrap_or(dir)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::env::Env;
    use crate::memory::MemoryFiles;

    #[test]
    fn parts_on_one_medium_stay_on_one_when_files_are_wrapped() {
        let fast: Arc<dyn Files> = Arc::new(MemoryFiles::new());
        let mut env = Env::memory();
        env.media.log = Some(Arc::clone(&fast));
        env.media.index = Some(fast);
        assert_eq!(env.all_files().len(), 2);
        let mut asked = 0;
        let wrapped = env.map_files(|_| {
            asked += 1;
            Arc::new(MemoryFiles::new())
        });
        assert_eq!(asked, 2);
        assert!(Arc::ptr_eq(wrapped.log_files(), wrapped.index_files()));
        assert!(Arc::ptr_eq(wrapped.segment_files(), &wrapped.files));
        assert!(!Arc::ptr_eq(wrapped.log_files(), &wrapped.files));
        assert!(!Arc::ptr_eq(wrapped.log_files(), env.log_files()));
    }
}
