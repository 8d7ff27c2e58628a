//! An open database that several Python objects share, and its end.
//!
//! Invariants: a reader or writer holds `open` for reading meanwhile, never while Python code runs;
//! after [`Shared::close`] returns, no engine object is alive, so the directory can be opened
//! again: open results and tickets are registered, and closing ends them. Fork: threads do not
//! survive a fork, so in a child process no lock, write or drop is allowed. [`OfProcess`] refuses
//! access there and leaks instead of dropping.

use crate::errors::{Outcome, Problem};
use headwater::{Database, Reader, Snapshot, TableInfo};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// A value that belongs to the process that made it.
pub(crate) struct OfProcess<T> {
    process: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess {
            process: std::process::id(),
            value: Some(value),
        }
    }

    /// The value, in the process that made it.
    pub(crate) fn get(&self) -> Outcome<&T> {
        match &self.value {
            Some(value) if self.process == std::process::id() => Ok(value),
            _ => Err(Problem::Own(
                "forked",
                format!(
                    "the database was opened by process {}, and this one ({}) was forked from it: open it after the fork, in one process, \
                     or read_only=True in the others",
                    self.process,
                    std::process::id()
                ),
            )),
        }
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

/// Owner of something of the engine that must be released when the database is closed.
pub(crate) trait Ends: Send + Sync {
    /// Waits for operations in progress, and releases the engine object.
    fn end(&self);
}

/// An engine object that closing removes.
pub(crate) struct Slot<T>(Mutex<Option<T>>);

impl<T> Slot<T> {
    pub(crate) fn new(value: T) -> Slot<T> {
        Slot(Mutex::new(Some(value)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Ends for Slot<T> {
    fn end(&self) {
        drop(self.lock().take());
    }
}

/// Mode in which the database was opened.
pub(crate) enum Opened {
    /// Opened by its owner.
    Owner(Database),
    /// To read only.
    Reader(Reader),
}

impl Opened {
    pub(crate) fn owner(&self) -> Outcome<&Database> {
        match self {
            Opened::Owner(db) => Ok(db),
            Opened::Reader(_) => Err(Problem::Own(
                "read_only",
                "the database is read-only: it was opened with read_only=True".to_owned(),
            )),
        }
    }

    /// The state of a named snapshot; without a name the current state.
    pub(crate) fn snapshot(&self, name: Option<&str>) -> Outcome<Snapshot> {
        Ok(match (self, name) {
            (Opened::Owner(db), None) => db.snapshot()?,
            (Opened::Owner(db), Some(name)) => db.snapshot_named(name)?,
            (Opened::Reader(reader), None) => reader.snapshot(),
            (Opened::Reader(reader), Some(name)) => reader.snapshot_named(name)?,
        })
    }

    pub(crate) fn tables(&self) -> Vec<TableInfo> {
        match self {
            Opened::Owner(db) => db.tables(),
            Opened::Reader(reader) => reader.tables(),
        }
    }
}

struct Cell {
    open: RwLock<Option<Opened>>,
    registered: Mutex<Vec<Weak<dyn Ends>>>,
}

/// An open database.
pub(crate) struct Shared {
    cell: OfProcess<Cell>,
    /// The directory.
    pub(crate) path: PathBuf,
    /// Opened to read only.
    pub(crate) read_only: bool,
    /// Most bytes of a batch.
    pub(crate) batch_bytes_max: usize,
}

impl Shared {
    pub(crate) fn new(opened: Opened, path: PathBuf, batch_bytes_max: usize) -> Shared {
        Shared {
            read_only: matches!(opened, Opened::Reader(_)),
            cell: OfProcess::new(Cell {
                open: RwLock::new(Some(opened)),
                registered: Mutex::new(Vec::new()),
            }),
            path,
            batch_bytes_max,
        }
    }

    /// Does something with the open database. Must not be nested, and Python code must not run
    /// inside.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&Opened) -> Outcome<R>) -> Outcome<R> {
        let cell = self.cell.get()?;
        let open = cell.open.read().unwrap_or_else(PoisonError::into_inner);
        f(open.as_ref().ok_or_else(Problem::closed)?)
    }

    /// Notes something that closing must end; to be called inside [`Shared::with`].
    pub(crate) fn register(&self, what: Weak<dyn Ends>) -> Outcome<()> {
        let cell = self.cell.get()?;
        let mut registered = cell
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if registered.len() == registered.capacity() {
            registered.retain(|w| w.strong_count() > 0);
        }
        registered.push(what);
        Ok(())
    }

    /// A slot that closing empties; to be called inside [`Shared::with`].
    pub(crate) fn slot<T: Send + 'static>(&self, value: T) -> Outcome<Arc<Slot<T>>> {
        let slot = Arc::new(Slot::new(value));
        let weak = Arc::downgrade(&slot);
        self.register(weak)?;
        Ok(slot)
    }

    /// True after closing. Fails in a forked process.
    pub(crate) fn is_closed(&self) -> Outcome<bool> {
        let cell = self.cell.get()?;
        let open = cell.open.read().unwrap_or_else(PoisonError::into_inner);
        Ok(open.is_none())
    }

    /// Waits for calls in progress, ends registered objects, and closes. Closing again is a no-op.
    pub(crate) fn close(&self) -> Outcome<()> {
        let cell = self.cell.get()?;
        let opened = cell
            .open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let registered = std::mem::take(
            &mut *cell
                .registered
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for one in registered.iter().filter_map(Weak::upgrade) {
            one.end();
        }
        match opened {
            Some(Opened::Owner(db)) => Ok(db.close()?),
            Some(Opened::Reader(_)) | None => Ok(()),
        }
    }
}
