//! Media: on which files the parts of a database lie, where they do not all lie on the same.
//!
//! Invariants: by default all parts lie on [`Env::files`](crate::Env::files), and every part has
//! exactly one medium; the same paths are used on each. A database is opened with the media with
//! which it was made, or what lies on the others is not found.
//! Concurrency: cheap to clone; clones share the files.
//! Failure: none of its own.

use std::sync::Arc;

use crate::files::Files;

/// Where parts of a database lie. `None` = on [`Env::files`](crate::Env::files), where its lock
/// lies in any case.
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
    /// The commit log (`DIR/log`): what makes writes durable. Small, written and synced all the
    /// time, read at an opening.
    pub log: Option<Arc<dyn Files>>,
    /// Rows that memory has no room for (`DIR/pins`). They end with the process, and are never
    /// synced.
    pub buffers: Option<Arc<dyn Files>>,
    /// The metadata (`DIR/meta.redb`): which tables, streams and partitions there are. Small,
    /// written with every step.
    pub index: Option<Arc<dyn Files>>,
    /// Rows and their aggregates (`DIR/segment`): nearly all bytes of a database.
    pub segments: Option<Arc<dyn Files>>,
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
