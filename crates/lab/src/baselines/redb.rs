//! redb: a B+-tree file that syncs on every commit, kin of bbolt.

use super::{Points, Store, Survival, Window};
use crate::harness::Failure;
use redb::backends::FileBackend;
use redb::{Builder, Database, Durability, ReadableDatabase, StorageBackend, TableDefinition};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const POINTS: TableDefinition<'static, (u32, i64), f64> = TableDefinition::new("points");

pub(crate) struct Redb {
    db: Database,
    durability: Durability,
    syncs: Arc<AtomicU64>,
}

impl Redb {
    pub(crate) fn open(dir: &Path, survives: Survival) -> Result<Redb, Failure> {
        std::fs::create_dir_all(dir)?;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("points.redb"))?;
        let syncs = Arc::new(AtomicU64::new(0));
        let backend = Counting {
            inner: FileBackend::new(file)?,
            syncs: Arc::clone(&syncs),
        };
        let db = Builder::new()
            .set_cache_size(64 << 20)
            .create_with_backend(backend)?;
        let durability = match survives {
            Survival::PowerCut => Durability::Immediate,
            Survival::Process => Durability::None,
        };
        let new = Redb {
            db,
            durability,
            syncs,
        };
        let transaction = new.db.begin_write()?;
        drop(transaction.open_table(POINTS)?);
        transaction.commit()?;
        Ok(new)
    }
}

impl Store for Redb {
    fn write(&mut self, window: &Window<'_>) -> Result<(), Failure> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(self.durability)?;
        {
            let mut table = transaction.open_table(POINTS)?;
            for (tag, second, value) in window.points() {
                table.insert((tag as u32, second), value)?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn read(
        &mut self,
        tags: &[usize],
        first: i64,
        last: i64,
        out: &mut Points,
    ) -> Result<(), Failure> {
        let transaction = self.db.begin_read()?;
        let table = transaction.open_table(POINTS)?;
        for tag in tags {
            let tag = *tag as u32;
            for entry in table.range((tag, first)..=(tag, last))? {
                let (key, value) = entry?;
                out.push(key.value().1, value.value());
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        // An empty synced commit makes the earlier ones durable.
        Ok(self.db.begin_write()?.commit()?)
    }

    fn syncs(&self) -> Result<Option<u64>, Failure> {
        Ok(Some(self.syncs.load(Ordering::Relaxed)))
    }
}

/// The file, with its syncs counted.
#[derive(Debug)]
struct Counting {
    inner: FileBackend,
    syncs: Arc<AtomicU64>,
}

impl StorageBackend for Counting {
    fn len(&self) -> Result<u64, io::Error> {
        self.inner.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.inner.read(offset, out)
    }
    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.inner.set_len(len)
    }
    fn sync_data(&self) -> Result<(), io::Error> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.inner.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.inner.write(offset, data)
    }
    fn close(&self) -> Result<(), io::Error> {
        self.inner.close()
    }
}
