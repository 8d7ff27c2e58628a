//! The items that a node publishes next: the newest of each stream, a bounded number at a time.
//!
//! Invariants: at most one item of a stream, and [`PublisherLimits::in_flight`] items in all, wait
//! for an answer. A newer item replaces an older one of its stream that was not sent yet, and is
//! counted. Streams beyond [`PublisherLimits::streams`] are not published, and are counted. After a
//! new connection the newest of each stream is published again. Concurrency: plain data, one owner.
//! Failure: a stream that the bus refuses is tried again after growing pauses, with its newest
//! values.

use crate::live::item::{FieldValue, NewestValues};
use headwater_types::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Limits of a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublisherLimits {
    /// Most streams.
    pub streams: usize,
    /// Most requests that wait for an answer.
    pub in_flight: usize,
    /// Pause after a refusal, for the refused stream; each further refusal doubles it.
    pub retry: Duration,
    /// Longest pause.
    pub retry_max: Duration,
}

impl Default for PublisherLimits {
    fn default() -> PublisherLimits {
        PublisherLimits {
            streams: 1_024,
            in_flight: 16,
            retry: Duration::from_secs(2),
            retry_max: Duration::from_secs(60),
        }
    }
}

/// A request to the bus.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueRequest {
    /// Publish an item.
    Publish(NewestValues),
    /// Remove the retained item of this stream.
    Retract(String),
}

impl ValueRequest {
    /// The stream of the request.
    #[must_use]
    pub fn stream(&self) -> &str {
        match self {
            ValueRequest::Publish(item) => &item.stream,
            ValueRequest::Retract(stream) => stream,
        }
    }
}

/// Answer of the bus to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishAnswer {
    /// The bus has carried it out.
    Done,
    /// The topic does not exist (yet).
    NoTopic,
    /// The bus refuses it.
    Refused,
}

/// Counts of a publisher since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishCounts {
    /// Items that the bus has taken.
    pub published: u64,
    /// Items that a newer one of the same stream replaced before they were sent.
    pub replaced: u64,
    /// Requests that the bus refused, or that had no topic.
    pub refused: u64,
    /// Streams that are published.
    pub streams: usize,
    /// Selected streams beyond the limit.
    pub beyond: usize,
}

#[derive(Debug, Default)]
struct PublishedStream {
    epoch: u64,
    newest: Vec<FieldValue>,
    /// Number of the newest values; 0 = none yet.
    number: u64,
    /// Number of the item that was sent last.
    sent: u64,
    /// The newest values were not sent over this connection.
    is_due: bool,
    is_in_flight: bool,
    /// The newest values wait in the queue.
    is_queued: bool,
    not_before: Duration,
    /// Pause after the next refusal; zero = [`PublisherLimits::retry`].
    pause: Duration,
}

/// The publisher of a node's newest values.
#[derive(Debug)]
pub struct ValuePublisher {
    limits: PublisherLimits,
    source: u64,
    /// The epoch of streams that are selected next.
    epoch: u64,
    streams: BTreeMap<String, PublishedStream>,
    /// Streams whose retained items are removed, once for each connection: still to do, in flight,
    /// done.
    withdrawn: BTreeMap<String, RetractState>,
    queue: VecDeque<String>,
    is_connected: bool,
    in_flight: usize,
    counts: PublishCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetractState {
    Due,
    InFlight,
    Done,
}

impl ValuePublisher {
    /// Creates a publisher without streams of the database `source`, in an epoch that no other
    /// start of it has.
    #[must_use]
    pub fn new(limits: PublisherLimits, source: u64, epoch: u64) -> ValuePublisher {
        ValuePublisher {
            limits,
            source,
            epoch,
            streams: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            queue: VecDeque::new(),
            is_connected: false,
            in_flight: 0,
            counts: PublishCounts::default(),
        }
    }

    /// Records that a connection begins, or has ended: requests in flight have no answer then.
    pub fn set_connected(&mut self, is_connected: bool) {
        self.is_connected = is_connected;
        self.in_flight = 0;
        self.queue.clear();
        for (name, stream) in &mut self.streams {
            (stream.is_in_flight, stream.is_due) = (false, stream.number > 0);
            stream.not_before = Duration::ZERO;
            stream.is_queued = is_connected && stream.is_due;
            if stream.is_queued {
                self.queue.push_back(name.clone());
            }
        }
        for state in self.withdrawn.values_mut() {
            *state = RetractState::Due;
        }
    }

    /// Sets the streams that are published: of these, the known ones and as many others as there is
    /// room for. Streams that are not among them any more are withdrawn: their retained items are
    /// removed from the bus.
    pub fn select(&mut self, streams: &BTreeSet<String>) {
        let gone = self.streams.keys().filter(|name| !streams.contains(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            self.withdraw(&name);
        }
        for name in streams {
            if self.streams.len() >= self.limits.streams {
                break;
            }
            let epoch = self.epoch;
            let added = self.streams.entry(name.clone());
            added.or_insert_with(|| PublishedStream {
                epoch,
                ..PublishedStream::default()
            });
            self.withdrawn.remove(name);
        }
        self.counts.beyond = streams.len() - self.streams.len();
    }

    /// Removes the retained item of a stream from the bus, once for each connection.
    pub fn withdraw(&mut self, stream: &str) {
        // The numbers of a stream that is selected again begin anew.
        self.epoch = self.epoch.wrapping_add(1);
        if let Some(of) = self.streams.remove(stream)
            && of.is_in_flight
        {
            // Its answer finds no stream.
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if self.withdrawn.len() < self.limits.streams {
            let state = self.withdrawn.entry(stream.to_owned());
            state.or_insert(RetractState::Due);
        }
    }

    /// Records the newest values of a selected stream. Values that equal the known ones change
    /// nothing.
    pub fn offer(&mut self, stream: &str, values: Vec<FieldValue>) {
        let Some(of) = self.streams.get_mut(stream) else {
            return;
        };
        if of.number > 0 && is_same(&of.newest, &values) {
            return;
        }
        if of.number > of.sent {
            self.counts.replaced += 1;
        }
        of.number += 1;
        (of.newest, of.is_due) = (values, true);
        if self.is_connected && !of.is_queued && !of.is_in_flight {
            of.is_queued = true;
            self.queue.push_back(stream.to_owned());
        }
    }

    /// Streams that are published.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.streams.keys().map(String::as_str)
    }

    /// The next request; `None` while nothing is due, or enough requests wait for answers.
    pub fn next(&mut self, now: Duration) -> Option<ValueRequest> {
        if !self.is_connected || self.in_flight >= self.limits.in_flight {
            return None;
        }
        let due = self.withdrawn.iter_mut();
        let mut due = due.filter(|(_, state)| **state == RetractState::Due);
        if let Some((stream, state)) = due.next() {
            *state = RetractState::InFlight;
            self.in_flight += 1;
            return Some(ValueRequest::Retract(stream.clone()));
        }
        // Streams that were withdrawn meanwhile are in the queue until here.
        self.queue.retain(|name| self.streams.contains_key(name));
        for _ in 0..self.queue.len() {
            let name = self.queue.pop_front()?;
            let of = self.streams.get_mut(&name)?;
            if of.not_before > now {
                self.queue.push_back(name);
                continue;
            }
            (of.is_queued, of.is_due, of.is_in_flight) = (false, false, true);
            of.sent = of.number;
            self.in_flight += 1;
            assert!(self.in_flight <= self.limits.in_flight, "too many requests");
            let item = NewestValues {
                stream: name,
                source: self.source,
                epoch: of.epoch,
                number: of.number,
                omitted: 0,
                values: of.newest.clone(),
            };
            return Some(ValueRequest::Publish(item.bounded()));
        }
        None
    }

    /// The instant of the next attempt after refusals; `None` without one, or while answers are
    /// awaited first.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        if !self.is_connected || self.in_flight >= self.limits.in_flight {
            return None;
        }
        let queued = self.queue.iter().filter_map(|name| self.streams.get(name));
        queued.map(|of| of.not_before).min()
    }

    /// Processes the answer to the request of a stream.
    pub fn answered(
        &mut self,
        now: Duration,
        stream: &str,
        is_retract: bool,
        answer: PublishAnswer,
    ) {
        let is_done = answer == PublishAnswer::Done;
        if is_retract {
            if let Some(state) = self.withdrawn.get_mut(stream)
                && *state == RetractState::InFlight
            {
                // Without a topic, or the right to it, nothing of this node is retained.
                *state = RetractState::Done;
            }
            self.in_flight = self.in_flight.saturating_sub(1);
            return;
        }
        match is_done {
            true => self.counts.published += 1,
            false => self.counts.refused += 1,
        }
        let Some(of) = self.streams.get_mut(stream) else {
            return;
        };
        if !std::mem::take(&mut of.is_in_flight) {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        if is_done {
            of.pause = Duration::ZERO;
        } else {
            let pause = of.pause.max(self.limits.retry).min(self.limits.retry_max);
            (of.is_due, of.not_before, of.pause) = (true, now + pause, pause * 2);
        }
        if of.is_due && !of.is_queued {
            of.is_queued = true;
            self.queue.push_back(stream.to_owned());
        }
    }

    /// The counts.
    #[must_use]
    pub fn counts(&self) -> PublishCounts {
        PublishCounts {
            streams: self.streams.len(),
            ..self.counts
        }
    }
}

/// Equality of values in which NaN equals NaN.
fn is_same(known: &[FieldValue], values: &[FieldValue]) -> bool {
    known.len() == values.len()
        && known.iter().zip(values).all(|(a, b)| {
            let is_value = match (&a.value, &b.value) {
                (Value::F64(x), Value::F64(y)) => x.to_bits() == y.to_bits(),
                (x, y) => x == y,
            };
            a.field == b.field && a.time == b.time && is_value
        })
}
