//! Cancelling the statement of another connection: PostgreSQL's clients open a second connection
//! that names the first.

use crate::host::Host;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use subtle::ConstantTimeEq;
use tokio::sync::Notify;

/// Signal to end the statement of one connection.
#[derive(Debug, Default)]
pub(super) struct Cancel {
    requested: AtomicBool,
    notify: Notify,
}

impl Cancel {
    /// Clears a request against the statement before.
    pub(super) fn begin(&self) {
        self.requested.store(false, Ordering::Release);
    }

    /// Ends when the statement is to end.
    pub(super) async fn requested(&self) {
        loop {
            let told = self.notify.notified();
            if self.requested.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }

    fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }
}

#[derive(Debug)]
struct Entry {
    secret: [u8; 4],
    cancel: Arc<Cancel>,
}

/// All connections, by number.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    entries: Mutex<BTreeMap<u32, Entry>>,
}

/// Registration of one connection among them; removed when dropped.
#[derive(Debug)]
pub(super) struct Registered {
    registry: Arc<Cancels>,
    pub(super) process: u32,
    pub(super) secret: [u8; 4],
    pub(super) cancel: Arc<Cancel>,
}

impl Cancels {
    /// Gives a connection a number and a secret.
    pub(super) fn register(self: &Arc<Self>, host: &dyn Host) -> io::Result<Registered> {
        let random = || {
            let mut bytes = [0; 4];
            host.random_bytes(&mut bytes).map(|()| bytes)
        };
        let secret = random()?;
        let cancel = Arc::new(Cancel::default());
        let mut entries = self.entries.lock();
        let process = loop {
            // Drivers interpret the number as signed and positive.
            let process = u32::from_be_bytes(random()?) >> 1;
            if process != 0 && !entries.contains_key(&process) {
                break process;
            }
        };
        let entry = Entry {
            secret,
            cancel: Arc::clone(&cancel),
        };
        entries.insert(process, entry);
        drop(entries);
        Ok(Registered {
            registry: Arc::clone(self),
            process,
            secret,
            cancel,
        })
    }

    /// Cancels the statement of a connection, if the secret is right. The requesting client does
    /// not receive an answer in either case.
    pub(super) fn cancel(&self, process: u32, secret: &[u8]) {
        let entries = self.entries.lock();
        if let Some(entry) = entries.get(&process)
            && bool::from(entry.secret.as_slice().ct_eq(secret))
        {
            entry.cancel.request();
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.entries.lock().remove(&self.process);
    }
}
