//! Active watch with its file and its listeners.
//!
//! Invariant: events that [`ActiveWatch::behind`] returns are in the file. Concurrency: one lock,
//! locked while the file is written; listeners wait without it.

use headwater::Timestamp;
use headwater_io::Files;
use headwater_query::Watch;
use headwater_watch::{Behind, Change, Dead, Event, Failure, Next, Persisted, Store};
use headwater_wire::instant::format_instant;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Active watch.
#[derive(Debug)]
pub(crate) struct ActiveWatch {
    watch: Watch,
    inner: Mutex<Inner>,
    /// Number of the newest event.
    newest: watch::Sender<u64>,
    /// True while an event is in transit to the hook.
    sending: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    persisted: Persisted,
    /// `None` after the watch was removed.
    store: Option<Store>,
    stopped: Option<Stopped>,
}

/// Reason why a watch is not evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl ActiveWatch {
    /// Opens the file of a watch.
    pub(crate) fn open(watch: Watch, files: Arc<dyn Files>, dir: &Path) -> io::Result<ActiveWatch> {
        let definition = watch.definition();
        // Numbers of a lost file are void: the new epoch shows that.
        let epoch = u64::from_le_bytes(random()?);
        let new = || Persisted::new(epoch, definition.since_ns);
        let opened = Store::open(files, dir, definition.id, new)?;
        if let Some(damage) = &opened.damage {
            tracing::error!(watch = definition.name, %damage, "the file of a watch is damaged; the watch continues from the last valid record");
        }
        Ok(ActiveWatch {
            newest: watch::Sender::new(opened.state.state.sequence()),
            inner: Mutex::new(Inner {
                persisted: opened.state,
                store: Some(opened.store),
                stopped: None,
            }),
            watch,
            sending: AtomicBool::new(false),
        })
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Signals newer events.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.inner.lock().persisted.epoch
    }

    pub(crate) fn behind(&self, after: u64, most: usize) -> Behind {
        self.inner.lock().persisted.journal.behind(after, most)
    }

    /// Reads the stored state.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&Persisted) -> T) -> T {
        look(&self.inner.lock().persisted)
    }

    /// Changes state that need not be persisted.
    pub(crate) fn moved(&self, work: impl FnOnce(&mut Persisted)) {
        work(&mut self.inner.lock().persisted);
    }

    /// Persists a change, and applies it. May wait for the disk.
    pub(crate) fn change(&self, change: &Change) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(store) = &mut inner.store else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the watch was dropped",
            ));
        };
        store.append(&inner.persisted, change)?;
        inner.persisted.apply(change);
        self.newest.send_replace(inner.persisted.state.sequence());
        Ok(())
    }

    /// Drops the watch: removes its file and ends its listeners.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let store = self.inner.lock().store.take();
        self.newest.send_modify(|_| {});
        store.map_or(Ok(()), Store::remove)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.inner.lock().store.is_none()
    }

    pub(crate) fn stop(&self, stopped: Option<Stopped>) {
        let mut inner = self.inner.lock();
        if inner.stopped != stopped {
            let name = &self.watch.definition().name;
            match &stopped {
                Some(why) => tracing::warn!(watch = name, code = why.code, "{}", why.message),
                None => tracing::info!(watch = name, "the watch is evaluated again"),
            }
            inner.stopped = stopped;
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.lock().stopped.is_some()
    }

    /// Reserves the only slot for sending to the hook; false when the slot is occupied.
    pub(crate) fn begin_sending(&self) -> bool {
        !self.sending.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_sending(&self) {
        self.sending.store(false, Ordering::Release);
    }

    /// Next step of the delivery to the hook.
    pub(crate) fn next(&self, now_ns: i64) -> Next {
        let inner = self.inner.lock();
        inner
            .persisted
            .delivery
            .next(&inner.persisted.journal, now_ns)
    }

    /// Handles a refused event: returns the change to persist if the event is abandoned.
    pub(crate) fn failed(&self, event: &Event, failure: &Failure, now_ns: i64) -> Option<Change> {
        let delivery = &mut self.inner.lock().persisted.delivery;
        let given_up = delivery.failed(failure, now_ns);
        let attempts = delivery.attempts();
        let dead = headwater_watch::Delivery::dead_of(event.clone(), attempts, &failure.reason);
        given_up.then_some(Change::Died(dead))
    }

    /// Dead letters.
    pub(crate) fn dead(&self) -> Vec<Dead> {
        self.inner
            .lock()
            .persisted
            .delivery
            .dead()
            .values()
            .cloned()
            .collect()
    }

    /// Status of the watch, as routes report it.
    pub(crate) fn status(&self) -> Value {
        let inner = self.inner.lock();
        let (kept, definition) = (&inner.persisted, self.watch.definition());
        let instant = |ns: i64| format_instant(Timestamp::from_nanos(ns));
        let mut told = json!({
            "name": definition.name,
            "table": definition.table,
            "created": instant(definition.created_ns),
            "state": if inner.stopped.is_some() { "stopped" } else { "running" },
            "epoch": format!("{:016x}", kept.epoch),
            "sequence": kept.state.sequence(),
            "kept": kept.journal.len(),
            "live": kept.state.live(),
            "definition": definition.statement,
        });
        let mut put = |name: &str, value: Value| {
            if let Some(told) = told.as_object_mut() {
                told.insert(name.to_owned(), value);
            }
        };
        if kept.state.watermark_ns() != i64::MIN {
            put("watermark", instant(kept.state.watermark_ns()).into());
        }
        if let Some(why) = &inner.stopped {
            put(
                "stopped",
                json!({ "code": why.code, "message": why.message }),
            );
        }
        if let Some(hook) = self.watch.hook() {
            let delivery = &kept.delivery;
            put(
                "hook",
                json!({
                    "url": hook,
                    "delivered": delivery.delivered_up_to(),
                    "dead": delivery.dead().len(),
                    "lost": delivery.lost(),
                    "failure": delivery.reason(),
                }),
            );
        }
        if let Some(topic) = self.watch.topic() {
            put(
                "topic",
                json!({ "name": topic, "delivered": kept.delivery.delivered_up_to() }),
            );
        }
        told
    }
}

fn random() -> io::Result<[u8; 8]> {
    let mut bytes = [0; 8];
    crate::access::token::fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Event as clients receive it.
pub(crate) fn event_json(watch: &Watch, event: &Event) -> String {
    let definition = watch.definition();
    let instant = |ns: i64| Value::from(format_instant(Timestamp::from_nanos(ns))).to_string();
    // The partition and the row are JSON already.
    format!(
        "{{\"watch\":{},\"sequence\":{},\"kind\":\"{}\",\"id\":\"{}\",\"version\":{},\"partition\":{},\"first\":{},\"last\":{},\"told\":{},\"row\":{}}}",
        Value::from(definition.name.as_str()),
        event.sequence,
        event.kind.name(),
        event.id(definition.id),
        event.version,
        event.key.partition,
        instant(event.key.first.time_ns),
        instant(event.last_ns),
        instant(event.reported_ns),
        event.row,
    )
}
