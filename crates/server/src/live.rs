//! Subscriptions to new values, and their delivery.
//!
//! The write route selects the watched values of a batch ([`Hub::select`]) before it passes the
//! batch to the engine, and delivers them ([`Hub::publish`]) when the write is durable. So no
//! client receives a value that a crash could undo.
//!
//! Invariants: without listeners a write costs one atomic load; a listener's queue has at most
//! [`VALUES_MAX`] values and [`BYTES_MAX`] bytes, and reports the number of dropped values to a
//! client that was too slow; writers never wait for listeners. Concurrency: one lock over the
//! watched streams, locked for writing only when a listener is added or removed; one short lock for
//! each listener's queue.

use axum::body::Bytes;
use headwater::{Column, Refused, StreamName, StreamRows};
use headwater_wire::channel::Channel;
use headwater_wire::json::{push_integer_text, push_str, push_u64, push_value};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Values that wait for a listener.
const VALUES_MAX: usize = 65_536;
/// Bytes of text that wait for a listener.
const BYTES_MAX: usize = 4 << 20;

/// Registry of listeners, and entry point for news.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    listeners: AtomicUsize,
    watched: RwLock<HashMap<StreamName, Vec<Watch>>>,
}

#[derive(Debug)]
struct Watch {
    field: String,
    listener: Arc<Listener>,
    /// The channel as the listener wrote it, as JSON.
    name: Arc<[u8]>,
}

/// Watched values of a batch.
#[derive(Debug)]
pub(crate) struct News {
    parts: Vec<WatchedValues>,
}

#[derive(Debug)]
struct WatchedValues {
    stream: StreamName,
    field: String,
    /// Index of the entry in the batch.
    entry: usize,
    times: Vec<i64>,
    values: Column,
}

impl Hub {
    /// Number of listeners.
    #[cfg(test)]
    pub(crate) fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Relaxed)
    }

    /// Fields of each watched stream.
    pub(crate) fn watched(&self) -> HashMap<StreamName, BTreeSet<String>> {
        if self.listeners.load(Ordering::Acquire) == 0 {
            return HashMap::new();
        }
        let watched = self.watched.read();
        let watched = watched.iter().map(|(stream, watches)| {
            let fields = watches.iter().map(|watch| watch.field.clone());
            (stream.clone(), fields.collect())
        });
        watched.collect()
    }

    /// Selects the watched values of a batch; `None` when the batch has no watched values.
    pub(crate) fn select(&self, entries: &[StreamRows]) -> Option<News> {
        if self.listeners.load(Ordering::Acquire) == 0 {
            return None;
        }
        let watched = self.watched.read();
        let mut parts = Vec::new();
        for (entry, rows) in entries.iter().enumerate() {
            let Some(watches) = watched.get(&rows.name) else {
                continue;
            };
            for (field, column) in &rows.fields {
                if watches.iter().any(|w| w.field == *field) {
                    parts.push(WatchedValues {
                        stream: rows.name.clone(),
                        field: field.clone(),
                        entry,
                        times: rows.times.clone(),
                        values: column.clone(),
                    });
                }
            }
        }
        (!parts.is_empty()).then_some(News { parts })
    }

    /// Delivers the values that [`Hub::select`] took, without the refused rows. To be called when
    /// the write is durable.
    pub(crate) fn publish(&self, news: Option<News>, refused: &[Refused]) {
        let Some(news) = news else { return };
        let refused: HashSet<(usize, usize)> = refused.iter().map(|r| (r.entry, r.row)).collect();
        for part in news.parts {
            let Some((text, values)) = part.text(&refused) else {
                continue;
            };
            let watched = self.watched.read();
            for watch in watched.get(&part.stream).into_iter().flatten() {
                if watch.field == part.field {
                    watch.listener.send_text(&watch.name, &text, values);
                }
            }
        }
    }

    /// Subscribes to channels, until the subscription is dropped. `None` when `max` subscriptions
    /// exist.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        channels: &[(String, Channel)],
        max: usize,
    ) -> Option<Subscription> {
        let listener = Arc::new(Listener::default());
        let mut watched = self.watched.write();
        if self.listeners.load(Ordering::Relaxed) >= max {
            return None;
        }
        for (text, channel) in channels {
            let mut name = Vec::new();
            push_str(&mut name, text);
            watched
                .entry(channel.stream.clone())
                .or_default()
                .push(Watch {
                    field: channel.field.clone(),
                    listener: Arc::clone(&listener),
                    name: name.into(),
                });
        }
        self.listeners.fetch_add(1, Ordering::Release);
        Some(Subscription {
            hub: Arc::clone(self),
            listener,
            streams: channels.iter().map(|(_, c)| c.stream.clone()).collect(),
        })
    }
}

impl WatchedValues {
    /// `"time":[…],"value":[…]` and the number of values; `None` when no values remain.
    fn text(&self, refused: &HashSet<(usize, usize)>) -> Option<(Bytes, usize)> {
        let mut times = b"\"time\":[".to_vec();
        let mut values = b"],\"value\":[".to_vec();
        let mut count = 0;
        for (row, time) in self.times.iter().enumerate() {
            let Some(value) = self.values.get(row) else {
                continue;
            };
            if !refused.is_empty() && refused.contains(&(self.entry, row)) {
                continue;
            }
            if count > 0 {
                times.push(b',');
                values.push(b',');
            }
            push_integer_text(&mut times, *time);
            push_value(&mut values, value);
            count += 1;
        }
        values.push(b']');
        times.extend_from_slice(&values);
        (count > 0).then(|| (times.into(), count))
    }
}

#[derive(Debug, Default)]
struct Listener {
    queue: Mutex<Queue>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<(Arc<[u8]>, Bytes)>,
    values: usize,
    bytes: usize,
    missed: u64,
}

impl Listener {
    fn send_text(&self, name: &Arc<[u8]>, text: &Bytes, values: usize) {
        let mut queue = self.queue.lock();
        queue.values += values;
        queue.bytes += text.len();
        if queue.values > VALUES_MAX || queue.bytes > BYTES_MAX {
            queue.missed += queue.values as u64;
            queue.events.clear();
            (queue.values, queue.bytes) = (0, 0);
        } else {
            queue
                .events
                .push_back((Arc::clone(name), Bytes::clone(text)));
        }
        drop(queue);
        self.woken.notify_one();
    }
}

/// Listener of a client.
#[derive(Debug)]
pub(crate) struct Subscription {
    hub: Arc<Hub>,
    listener: Arc<Listener>,
    streams: HashSet<StreamName>,
}

impl Subscription {
    /// Waits until values may have arrived.
    pub(crate) async fn woken(&self) {
        self.listener.woken.notified().await;
    }

    /// All pending values, as server-sent events; `None` when no values are pending.
    pub(crate) fn take_pending(&self) -> Option<Vec<u8>> {
        let queue = std::mem::take(&mut *self.listener.queue.lock());
        if queue.events.is_empty() && queue.missed == 0 {
            return None;
        }
        let mut out = Vec::with_capacity(queue.bytes + 64 * (queue.events.len() + 1));
        if queue.missed > 0 {
            out.extend_from_slice(b"event: lagged\ndata: {\"missed\":");
            push_u64(&mut out, queue.missed);
            out.extend_from_slice(b"}\n\n");
        }
        for (name, text) in &queue.events {
            out.extend_from_slice(b"event: data\ndata: {\"channel\":");
            out.extend_from_slice(name);
            out.push(b',');
            out.extend_from_slice(text);
            out.extend_from_slice(b"}\n\n");
        }
        Some(out)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut watched = self.hub.watched.write();
        for stream in &self.streams {
            if let Some(watches) = watched.get_mut(stream) {
                watches.retain(|w| !Arc::ptr_eq(&w.listener, &self.listener));
                if watches.is_empty() {
                    watched.remove(stream);
                }
            }
        }
        self.hub.listeners.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater::Batch;

    fn channel(text: &str) -> (String, Channel) {
        (text.to_owned(), Channel::parse(text).unwrap())
    }

    fn batch(stream: &str, times: std::ops::Range<i64>) -> Batch {
        let mut batch = Batch::new();
        let rows = batch.stream(&StreamName::parse(stream).unwrap());
        for time in times {
            rows.row(time, [("a", (time as f64).into()), ("b", true.into())])
                .unwrap();
        }
        batch
    }

    fn text(subscription: &Subscription) -> String {
        String::from_utf8(subscription.take_pending().unwrap_or_default()).unwrap()
    }

    #[test]
    fn listeners_receive_watched_values_only() {
        let hub = Arc::new(Hub::default());
        assert!(hub.select(batch("t,x=1", 0..3).entries()).is_none());
        let one = hub.subscribe(&[channel("t,x=1.a")], 2).unwrap();
        let two = hub
            .subscribe(&[channel("t,x=1.b"), channel("t,x=2.a")], 2)
            .unwrap();
        assert!(hub.subscribe(&[channel("t,x=1.a")], 2).is_none());
        assert!(hub.select(batch("t,x=3", 0..3).entries()).is_none());
        let news = hub.select(batch("t,x=1", 0..3).entries());
        let refused = Refused {
            entry: 0,
            row: 1,
            code: "E_TYPE",
            message: String::new(),
        };
        hub.publish(news, &[refused]);
        assert_eq!(
            text(&one),
            "event: data\ndata: {\"channel\":\"t,x=1.a\",\"time\":[\"0\",\"2\"],\"value\":[0.0,2.0]}\n\n"
        );
        assert_eq!(
            text(&two),
            "event: data\ndata: {\"channel\":\"t,x=1.b\",\"time\":[\"0\",\"2\"],\"value\":[true,true]}\n\n"
        );
        assert_eq!(text(&one), "");
        // A closed subscription receives no values, and frees its slot.
        let news = hub.select(batch("t,x=1", 3..4).entries());
        drop(one);
        hub.publish(news, &[]);
        assert_eq!(hub.listeners(), 1);
        let again = hub.subscribe(&[channel("t,x=1.a")], 2).unwrap();
        assert_eq!(text(&again), "");
        drop((two, again));
        assert_eq!(hub.watched.read().len(), 0);
        assert!(hub.select(batch("t,x=1", 0..3).entries()).is_none());
    }

    #[test]
    fn a_slow_listener_learns_how_much_was_missed() {
        let hub = Arc::new(Hub::default());
        let slow = hub.subscribe(&[channel("t,x=1.a")], 8).unwrap();
        let mut written = 0;
        for _ in 0..40 {
            let batch = batch("t,x=1", 0..2_000);
            hub.publish(hub.select(batch.entries()), &[]);
            written += 2_000;
            assert!(slow.listener.queue.lock().bytes <= BYTES_MAX);
        }
        let text = text(&slow);
        let missed: u64 = text
            .strip_prefix("event: lagged\ndata: {\"missed\":")
            .and_then(|rest| rest.split_once('}'))
            .unwrap()
            .0
            .parse()
            .unwrap();
        let told = text.matches("\"time\"").count() as u64 * 2_000;
        assert!(missed > 0);
        assert_eq!(missed + told, written);
    }
}
