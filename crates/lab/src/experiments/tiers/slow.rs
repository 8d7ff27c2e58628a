//! A large medium on which every read has a delay and is counted.

use headwater_io::{Env, File, Files, OpenMode, pass_on_files};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Files with delayed reads.
#[derive(Debug)]
pub(super) struct Slow {
    below: Arc<dyn Files>,
    reading: Arc<Reading>,
}

#[derive(Debug, Default)]
pub(super) struct Reading {
    latency: Duration,
    reads: AtomicU64,
}

impl Reading {
    /// Reads so far.
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn wait(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        // Shorter than the minimum sleep of a thread.
        let begun = Instant::now();
        while begun.elapsed() < self.latency {
            std::hint::spin_loop();
        }
    }
}

impl Slow {
    /// The environment with its data on such a medium; the fast tier is unchanged.
    pub(super) fn env(latency: Duration) -> (Env, Arc<Reading>) {
        let mut env = Env::system();
        let reading = Arc::new(Reading {
            latency,
            ..Reading::default()
        });
        env.files = Arc::new(Slow {
            below: Arc::clone(&env.files),
            reading: Arc::clone(&reading),
        });
        (env, reading)
    }
}

#[derive(Debug)]
struct SlowFile {
    below: Arc<dyn File>,
    reading: Arc<Reading>,
}

impl Files for Slow {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(SlowFile {
            below: self.below.open(path, mode)?,
            reading: Arc::clone(&self.reading),
        }))
    }

    pass_on_files!(below; remove list create_dir_all sync_dir exists is_same_dir lock lock_file);
}

impl File for SlowFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.reading.wait();
        self.below.read_at(offset, buf)
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.below.write_all_at(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.below.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below.set_len(len)
    }
}
