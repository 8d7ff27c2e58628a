//! redb's storage on our files, so that fault injection sees every byte of it.

use headwater_io::File;
use std::io;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Backend {
    file: Arc<dyn File>,
    written: Arc<std::sync::atomic::AtomicU64>,
}

impl Backend {
    pub(crate) fn new(file: Arc<dyn File>, written: Arc<std::sync::atomic::AtomicU64>) -> Backend {
        Backend { file, written }
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read_exact_at(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.written
            .fetch_add(data.len() as u64, std::sync::atomic::Ordering::Relaxed);
        self.file.write_all_at(offset, data)
    }
}
