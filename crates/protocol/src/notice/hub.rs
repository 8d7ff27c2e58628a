//! The bus inside a process: the newest notice of each topic, and the subscribers that wait for
//! newer ones.
//!
//! Invariants: a hub stores one notice for each topic, of at most [`TOPICS_MAX`] topics and
//! [`NOTICE_BYTES_MAX`] bytes; other notices are dropped. A slow subscriber misses notices that
//! newer ones have replaced, never the newest. Concurrency: one lock, taken only to access the
//! list. Subscribers are woken after its release.

use crate::notice::content::NOTICE_BYTES_MAX;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// An event of a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The bus is linked to its publishers from now on, or not any more. Notices between two of
    /// these may be lost.
    Link(bool),
    /// A notice, or bytes that a client sent as one.
    Notice {
        /// Topic of the notice.
        topic: Arc<str>,
        /// The bytes, as they were received.
        bytes: Arc<[u8]>,
    },
}

/// Most topics of a hub.
pub const TOPICS_MAX: usize = 4_096;

#[derive(Debug)]
struct Inner {
    /// The newest of each topic, with its place in the order of all.
    newest: BTreeMap<Arc<str>, (u64, Arc<[u8]>)>,
    /// The place of the newest of all.
    position: u64,
    is_linked: bool,
    /// Number of changes of the link, so that a short loss is reported too.
    links: u64,
    waiting: Vec<Waker>,
}

/// The bus inside a process. Clones are the same hub.
#[derive(Clone, Debug)]
pub struct Hub {
    inner: Arc<Mutex<Inner>>,
}

/// The events that a subscriber has still to receive.
#[derive(Debug)]
pub struct Subscription {
    inner: Arc<Mutex<Inner>>,
    /// Position of the last received notice.
    position: u64,
    /// Number of changes of the link, and its state, when it was last reported.
    reported_link: Option<(u64, bool)>,
}

impl Hub {
    /// A hub without notices.
    #[must_use]
    pub fn new(is_linked: bool) -> Hub {
        Hub {
            inner: Arc::new(Mutex::new(Inner {
                newest: BTreeMap::new(),
                position: 0,
                is_linked,
                links: 0,
                waiting: Vec::new(),
            })),
        }
    }

    /// Sets whether the bus is linked to all publishers.
    pub fn set_linked(&self, is_linked: bool) {
        let waiting = {
            let mut inner = self.inner.lock();
            if inner.is_linked == is_linked {
                return;
            }
            inner.is_linked = is_linked;
            inner.links += 1;
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Publishes a notice, replacing older ones of its topic. A notice that is too long, or whose
    /// topic would exceed the limit, is dropped.
    pub fn publish(&self, topic: &str, notice: &[u8]) {
        if notice.len() > NOTICE_BYTES_MAX {
            return;
        }
        let waiting = {
            let mut inner = self.inner.lock();
            if inner.newest.len() >= TOPICS_MAX && !inner.newest.contains_key(topic) {
                return;
            }
            inner.position += 1;
            let place = inner.position;
            inner.newest.insert(topic.into(), (place, notice.into()));
            assert!(inner.newest.len() <= TOPICS_MAX, "too many topics");
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Subscribes to later notices, preceded by the newest of each topic and the state of the link.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        Subscription {
            inner: Arc::clone(&self.inner),
            position: 0,
            reported_link: None,
        }
    }

    /// Whether it does.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.inner.lock().is_linked
    }
}

impl Subscription {
    /// The next event, if there is one: first the state of the link, then notices in the order of
    /// their arrival. A link that was lost and made again is reported as lost first.
    pub fn next_now(&mut self) -> Option<Event> {
        let inner = self.inner.lock();
        Self::next_of(&mut self.position, &mut self.reported_link, &inner)
    }

    /// As [`Subscription::next_now`]; without an event, the caller is woken when there may be one.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let mut inner = self.inner.lock();
        if let Some(event) = Self::next_of(&mut self.position, &mut self.reported_link, &inner) {
            return Poll::Ready(event);
        }
        let is_known = |waker: &Waker| waker.will_wake(context.waker());
        if !inner.waiting.iter().any(is_known) {
            inner.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn next_of(seen: &mut u64, told: &mut Option<(u64, bool)>, inner: &Inner) -> Option<Event> {
        match *told {
            Some((links, _)) if links == inner.links => {}
            // The link was lost, and is up again.
            Some((_, true)) if inner.is_linked => {
                *told = Some((inner.links, false));
                return Some(Event::Link(false));
            }
            Some((_, before)) if before == inner.is_linked => *told = Some((inner.links, before)),
            _ => {
                *told = Some((inner.links, inner.is_linked));
                return Some(Event::Link(inner.is_linked));
            }
        }
        if let Some((links, false)) = *told
            && inner.is_linked
        {
            *told = Some((links, true));
            return Some(Event::Link(true));
        }
        let newer = inner.newest.iter().filter(|(_, (place, _))| place > seen);
        let (topic, (place, bytes)) = newer.min_by_key(|(_, (place, _))| *place)?;
        *seen = *place;
        Some(Event::Notice {
            topic: Arc::clone(topic),
            bytes: Arc::clone(bytes),
        })
    }
}
