//! The bus inside a process: the newest notice of each topic, and who waits for newer ones.
//!
//! Invariants: it holds one notice for each topic, of at most [`TOPICS_MAX`] topics and
//! [`NOTICE_BYTES_MAX`] bytes; what is beyond that is not taken. A subscriber that is slow misses
//! notices that newer ones have replaced, never the newest.
//! Concurrency: one lock, held for a look at the list. Who waits is woken after it was let go.

use crate::notice::notice::NOTICE_BYTES_MAX;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// What comes from a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It carries notices from now on, or does so no more. What was told between two of these may
    /// be lost.
    Link(bool),
    /// A notice, or what somebody sent as one.
    Notice {
        /// Where it was told.
        topic: Arc<str>,
        /// Its bytes, as they came.
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
    place: u64,
    is_linked: bool,
    /// How often that has changed, so that a short loss is told too.
    links: u64,
    waiting: Vec<Waker>,
}

/// The bus inside a process. Clones are the same hub.
#[derive(Clone, Debug)]
pub struct Hub {
    inner: Arc<Mutex<Inner>>,
}

/// What one subscriber has still to hear.
#[derive(Debug)]
pub struct Subscription {
    inner: Arc<Mutex<Inner>>,
    /// The place of the last notice that it was told.
    seen: u64,
    /// How often the link had changed when it was told, and how it was.
    told: Option<(u64, bool)>,
}

impl Hub {
    /// A hub without notices.
    #[must_use]
    pub fn new(is_linked: bool) -> Hub {
        Hub {
            inner: Arc::new(Mutex::new(Inner {
                newest: BTreeMap::new(),
                place: 0,
                is_linked,
                links: 0,
                waiting: Vec::new(),
            })),
        }
    }

    /// Says whether what is told here comes from all who tell.
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

    /// Has a notice heard instead of those before it. What is too long, or of one topic too many,
    /// is not taken.
    pub fn publish(&self, topic: &str, notice: &[u8]) {
        if notice.len() > NOTICE_BYTES_MAX {
            return;
        }
        let waiting = {
            let mut inner = self.inner.lock();
            if inner.newest.len() >= TOPICS_MAX && !inner.newest.contains_key(topic) {
                return;
            }
            inner.place += 1;
            let place = inner.place;
            inner.newest.insert(topic.into(), (place, notice.into()));
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// What comes from now on, the newest of each topic and how the link is before that.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        Subscription {
            inner: Arc::clone(&self.inner),
            seen: 0,
            told: None,
        }
    }

    /// Whether it does.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.inner.lock().is_linked
    }
}

impl Subscription {
    /// What comes next, if it is there: first how the link is, then notices in the order in which
    /// they came. A link that was lost and made again is told as lost first.
    pub fn next_now(&mut self) -> Option<Event> {
        let inner = self.inner.lock();
        Self::next_of(&mut self.seen, &mut self.told, &inner)
    }

    /// As [`Subscription::next_now`]; where nothing is there, who asks is woken when something may
    /// be.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let mut inner = self.inner.lock();
        if let Some(event) = Self::next_of(&mut self.seen, &mut self.told, &inner) {
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
            // It was lost, and is there again.
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
