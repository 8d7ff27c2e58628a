//! The outside world of one database, in one value.
//!
//! Invariants: all input and output of the engine passes through these parts. Concurrency: cheap to
//! clone; clones share the parts. Failure: none of its own.

use std::sync::Arc;

use headwater_types::Timestamp;

use crate::chance::{Chance, SeededChance, SystemChance};
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::files::Files;
use crate::media::Media;
use crate::memory::MemoryFiles;
use crate::pmem::PmemFiles;
use crate::system::SystemFiles;
use crate::threads::{NoThreads, SystemThreads, Threads};

/// Files, clock, randomness and threads.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files of the data, but for the parts that have a medium of their own.
    pub files: Arc<dyn Files>,
    /// Media of parts of a database; by default all use `files`.
    pub media: Media,
    /// Time, monotonic and of the wall.
    pub clock: Arc<dyn Clock>,
    /// Source of identities.
    pub chance: Arc<dyn Chance>,
    /// Threads for background work.
    pub threads: Arc<dyn Threads>,
}

impl Env {
    /// The wall time at which [`Env::memory`] starts: 2024-01-01T00:00:00Z.
    pub const MEMORY_START: Timestamp = Timestamp::from_nanos(1_704_067_200_000_000_000);

    /// The real world: files, clock, randomness and threads of the operating system. A fast tier on
    /// persistent memory is written as such.
    ///
    /// ```
    /// let env = headwater_io::Env::system();
    /// assert!(env.files.exists(std::path::Path::new("/")).unwrap());
    /// ```
    #[must_use]
    pub fn system() -> Env {
        Env {
            files: Arc::new(SystemFiles::new()),
            media: Media {
                fast: Some(Arc::new(PmemFiles::new())),
                ..Media::default()
            },
            clock: Arc::new(SystemClock::new()),
            chance: Arc::new(SystemChance::new()),
            threads: Arc::new(SystemThreads),
        }
    }

    /// A world in memory that is the same on every run: empty files, a clock that starts at
    /// [`Env::MEMORY_START`], randomness from a fixed seed, no threads.
    ///
    /// ```
    /// let env = headwater_io::Env::memory();
    /// assert_eq!(env.clock.now(), headwater_io::Env::MEMORY_START);
    /// ```
    #[must_use]
    pub fn memory() -> Env {
        Env {
            files: Arc::new(MemoryFiles::new()),
            media: Media::default(),
            clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
            chance: Arc::new(SeededChance::new(0)),
            threads: Arc::new(NoThreads),
        }
    }
}

impl Env {
    /// The files of the commit log.
    #[must_use]
    pub fn log_files(&self) -> &Arc<dyn Files> {
        self.media.log.as_ref().unwrap_or(&self.files)
    }

    /// The files of rows that do not fit into memory.
    #[must_use]
    pub fn pins_files(&self) -> &Arc<dyn Files> {
        self.media.pins.as_ref().unwrap_or(&self.files)
    }

    /// The files of the metadata.
    #[must_use]
    pub fn index_files(&self) -> &Arc<dyn Files> {
        self.media.index.as_ref().unwrap_or(&self.files)
    }

    /// The files of segments.
    #[must_use]
    pub fn segment_files(&self) -> &Arc<dyn Files> {
        self.media.segments.as_ref().unwrap_or(&self.files)
    }

    /// The files of a fast tier's folder.
    #[must_use]
    pub fn fast_files(&self) -> &Arc<dyn Files> {
        self.media.fast.as_ref().unwrap_or(&self.files)
    }

    /// Every medium once, [`Env::files`] first.
    #[must_use]
    pub fn all_files(&self) -> Vec<&Arc<dyn Files>> {
        let mut all = vec![&self.files];
        let parts = [
            self.log_files(),
            self.pins_files(),
            self.index_files(),
            self.segment_files(),
            self.fast_files(),
        ];
        for files in parts {
            if !all.iter().any(|known| Arc::ptr_eq(known, files)) {
                all.push(files);
            }
        }
        all
    }

    /// The same world with other files: `wrap` is called once for each medium. Parts on one medium
    /// still share it.
    #[must_use]
    pub fn map_files(&self, mut wrap: impl FnMut(&Arc<dyn Files>) -> Arc<dyn Files>) -> Env {
        let before = self.all_files();
        let after: Vec<Arc<dyn Files>> = before.iter().map(|files| wrap(files)).collect();
        let wrapped = |files: &Arc<dyn Files>| {
            let at = before.iter().position(|known| Arc::ptr_eq(known, files));
            // Every one of them was wrapped.
            let wrapped = at.and_then(|at| after.get(at));
            Arc::clone(wrapped.unwrap_or(files))
        };
        Env {
            files: wrapped(&self.files),
            media: Media {
                log: self.media.log.as_ref().map(wrapped),
                pins: self.media.pins.as_ref().map(wrapped),
                index: self.media.index.as_ref().map(wrapped),
                segments: self.media.segments.as_ref().map(wrapped),
                fast: self.media.fast.as_ref().map(wrapped),
                ..self.media.clone()
            },
            ..self.clone()
        }
    }
}
