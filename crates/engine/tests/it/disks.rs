//! A large medium and a small fast one: how often segments are read on the large one is counted,
//! and such reads can be made to stall.

use headwater_engine::{Database, Error, Options};
use headwater_io::{Env, FaultyFiles, File, Files, ManualClock, Media, OpenMode, SeededChance};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Reads of segments in bulk, which can be made to stall.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    reads: AtomicU64,
    stalls: Mutex<bool>,
    changed: Condvar,
}

impl Looks {
    fn look(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut stalls = self.stalls.lock().unwrap();
        while *stalls {
            stalls = self.changed.wait(stalls).unwrap();
        }
    }

    pub(crate) fn stall(&self, stalls: bool) {
        *self.stalls.lock().unwrap() = stalls;
        self.changed.notify_all();
    }

    /// How many reads a piece of work makes.
    pub(crate) fn of<T>(&self, work: impl FnOnce() -> T) -> (u64, T) {
        let before = self.reads.load(Ordering::Relaxed);
        let done = work();
        (self.reads.load(Ordering::Relaxed) - before, done)
    }
}

#[derive(Debug)]
struct Bulk {
    disk: FaultyFiles,
    looks: Arc<Looks>,
}

#[derive(Debug)]
struct BulkFile {
    file: Arc<dyn File>,
    looks: Option<Arc<Looks>>,
}

impl File for BulkFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.looks.iter().for_each(|looks| looks.look());
        self.file.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

impl Files for Bulk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let is_segment = path.extension().is_some_and(|e| e == "seg");
        Ok(Arc::new(BulkFile {
            file: self.disk.open(path, mode)?,
            looks: is_segment.then(|| Arc::clone(&self.looks)),
        }))
    }

    headwater_io::pass_on_files!(disk; remove list create_dir_all sync_dir exists lock lock_file);
}

/// A large medium and a small fast one.
pub(crate) struct Disks {
    pub(crate) bulk: FaultyFiles,
    pub(crate) fast: FaultyFiles,
    pub(crate) looks: Arc<Looks>,
    pub(crate) clock: Arc<ManualClock>,
}

impl Disks {
    pub(crate) fn new(seed: u64) -> Disks {
        Disks::of(FaultyFiles::new(seed), FaultyFiles::new(seed + 1))
    }

    pub(crate) fn of(bulk: FaultyFiles, fast: FaultyFiles) -> Disks {
        Disks {
            bulk,
            fast,
            looks: Arc::default(),
            clock: Arc::new(ManualClock::new(Env::MEMORY_START)),
        }
    }

    pub(crate) fn env(&self) -> Env {
        Env {
            files: Arc::new(Bulk {
                disk: self.bulk.clone(),
                looks: Arc::clone(&self.looks),
            }),
            media: Media {
                fast: Some(Arc::new(self.fast.clone())),
                ..Media::default()
            },
            clock: Arc::<ManualClock>::clone(&self.clock),
            chance: Arc::new(SeededChance::new(
                self.bulk.operations() + self.fast.operations() + 1,
            )),
            ..Env::memory()
        }
    }

    /// Opens the database in `/db`, or what the options say.
    pub(crate) fn open(&self, options: Options) -> Result<Database, Error> {
        Database::open_in(self.env(), options)
    }

    /// The files below a folder of the tier.
    pub(crate) fn in_fast(&self, folder: &str) -> Vec<PathBuf> {
        let files = self.fast.files().into_iter().map(|(path, _)| path);
        let folder = Path::new("/fast").join(folder);
        files.filter(|path| path.starts_with(&folder)).collect()
    }

    /// How many segments there are.
    pub(crate) fn segments(&self) -> usize {
        let files = self.bulk.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.starts_with("/db/segment")).count()
    }

    /// Bytes of all files of the fast medium.
    pub(crate) fn fast_bytes(&self) -> u64 {
        self.fast.files().into_iter().map(|(_, len)| len).sum()
    }
}
