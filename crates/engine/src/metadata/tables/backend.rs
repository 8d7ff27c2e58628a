//! redb's storage on our files, so that fault injection sees every byte.

use headwater_io::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Statistics of the file while redb uses it.
#[derive(Debug, Default)]
pub(crate) struct FileStats {
    /// Bytes written since the file was opened.
    pub(crate) written: AtomicU64,
    /// Length of the file in bytes.
    pub(crate) len: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Backend {
    file: Arc<dyn File>,
    stats: Arc<FileStats>,
}

impl Backend {
    pub(crate) fn new(file: Arc<dyn File>, stats: Arc<FileStats>) -> Backend {
        Backend { file, stats }
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> Result<u64, io::Error> {
        let len = self.file.len()?;
        self.stats.len.store(len, Ordering::Relaxed);
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read_exact_at(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)?;
        self.stats.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let len = data.len() as u64;
        self.stats.written.fetch_add(len, Ordering::Relaxed);
        self.file.write_all_at(offset, data)?;
        let end = offset.saturating_add(len);
        self.stats.len.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }
}
