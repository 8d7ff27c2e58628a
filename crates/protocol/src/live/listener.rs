//! Live values that a node has heard: the newest item of each stream.
//!
//! Invariants: an item under the topic of another stream is refused. Of one source and epoch the
//! item with the highest number stays. At most [`HEARD_STREAMS_MAX`] streams and
//! [`HEARD_BYTES_MAX`] bytes are stored; others are counted. Concurrency: plain data, one owner.
//! Failure: a malformed item is counted, and changes nothing.

use crate::live::item::NewestValues;
use crate::live::topics::topic_of;
use crate::xmpp::Element;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most streams of a listener.
pub const HEARD_STREAMS_MAX: usize = 2_048;
/// Most bytes of names and values of a listener.
pub const HEARD_BYTES_MAX: usize = 8 << 20;

/// Result of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeardOutcome {
    /// The item has newer values.
    News {
        /// Number of changes between this item and the one before that were not published.
        missed: u64,
    },
    /// The item was repeated.
    AlreadyKnown,
    /// A newer one arrived before it.
    Late,
    /// Not a valid item, or under the topic of another stream.
    Garbled,
    /// There is no room for its stream.
    Full,
}

/// The newest heard values of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct HeardValues {
    /// The item.
    pub item: NewestValues,
    /// Time at which it arrived.
    pub heard: Duration,
    /// Number of changes that were not published, since the stream was first heard.
    pub missed: u64,
}

/// The newest item of each stream that was heard.
#[derive(Debug, Default)]
pub struct ValueListener {
    streams: BTreeMap<String, HeardValues>,
    bytes: usize,
}

impl ValueListener {
    /// Processes an item that arrived under a topic with this prefix.
    pub fn receive(
        &mut self,
        now: Duration,
        (prefix, topic): (&str, &str),
        item: &Element,
    ) -> HeardOutcome {
        let item = match NewestValues::read(item) {
            Ok(item) if topic_of(prefix, &item.stream) == topic => item,
            _ => return HeardOutcome::Garbled,
        };
        let stream = item.stream.clone();
        let stream = stream.as_str();
        let known = self.streams.get(stream);
        let mut missed = 0;
        if let Some(known) = known {
            let of = &known.item;
            if (of.source, of.epoch) == (item.source, item.epoch) {
                match item.number.cmp(&of.number) {
                    std::cmp::Ordering::Less => return HeardOutcome::Late,
                    std::cmp::Ordering::Equal => return HeardOutcome::AlreadyKnown,
                    std::cmp::Ordering::Greater => missed = item.number - of.number - 1,
                }
            }
        } else if self.streams.len() >= HEARD_STREAMS_MAX {
            return HeardOutcome::Full;
        }
        let before = known.map_or(0, |known| known.item.size());
        let bytes = self.bytes - before + item.size();
        if bytes > HEARD_BYTES_MAX {
            return HeardOutcome::Full;
        }
        let all = known.map_or(0, |known| known.missed).saturating_add(missed);
        self.bytes = bytes;
        self.streams.insert(
            stream.to_owned(),
            HeardValues {
                item,
                heard: now,
                missed: all,
            },
        );
        assert!(self.streams.len() <= HEARD_STREAMS_MAX, "too many streams");
        HeardOutcome::News { missed }
    }

    /// Forgets every stream for which the test is false: its topic is gone, or may not be heard any
    /// more.
    pub fn retain(&mut self, mut test: impl FnMut(&str) -> bool) {
        let bytes = &mut self.bytes;
        self.streams.retain(|stream, heard| {
            let stays = test(stream);
            if !stays {
                *bytes -= heard.item.size();
            }
            stays
        });
    }

    /// The newest heard values of a stream.
    #[must_use]
    pub fn get(&self, stream: &str) -> Option<&HeardValues> {
        self.streams.get(stream)
    }

    /// All streams, by name.
    pub fn all(&self) -> impl Iterator<Item = &HeardValues> {
        self.streams.values()
    }

    /// Number of streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// True without a stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}
