//! Requests in flight, their greatest number, and their greatest number of bytes: as many requests
//! as are answered soon, and as many bytes as the link carries soon ([`Pace`]).
//!
//! Invariants: at least one request, at most the configured number. The window grows by one for
//! each request that was answered quickly while the window was full, is halved after a slow answer,
//! and is one after a failure, or after the source has stopped granting: then its budget is the
//! limit. Concurrency: plain data.

use crate::replication::copy::pace::Pace;
use crate::replication::copy::request_order::stats::RequestedRange;
use crate::replication::message::{Digest, SegmentRange};
use headwater_types::invariant::wide;
use std::time::Duration;

/// A request that is answered within this was answered soon.
const SOON: Duration = Duration::from_secs(2);
/// Time after which an answer counts as slow.
const LONG: Duration = Duration::from_secs(10);

/// Subject of a request.
#[derive(Debug)]
pub(crate) enum RequestKind {
    State,
    Ranges(Vec<RequestedRange>),
    Digests(Vec<SegmentRange>),
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) request: u64,
    pub(crate) since: Duration,
    pub(crate) until: Duration,
    pub(crate) kind: RequestKind,
    /// A requested range or state has arrived.
    pub(crate) has_progressed: bool,
    /// The source has reported missing ranges of it.
    pub(crate) is_missing_reported: bool,
}

impl InFlight {
    pub(crate) fn ranges(&self) -> &[RequestedRange] {
        match &self.kind {
            RequestKind::Ranges(asking) => asking,
            RequestKind::State | RequestKind::Digests(_) => &[],
        }
    }

    /// Bytes of the answer that have not arrived; `state_bytes` = those of a state.
    pub(crate) fn left(&self, state_bytes: u64) -> u64 {
        match &self.kind {
            RequestKind::State if self.has_progressed => 0,
            RequestKind::State => state_bytes,
            RequestKind::Ranges(asking) => asking.iter().map(RequestedRange::left).sum(),
            RequestKind::Digests(these) => wide(size_of::<Digest>()) * wide(these.len()),
        }
    }
}

/// Limit of the requests in flight.
#[derive(Debug)]
pub(crate) struct Window {
    size: usize,
    most: usize,
    bytes_max: u64,
    pub(crate) pace: Pace,
}

impl Window {
    /// Creates the window of at most so many requests, of about `request_bytes` each.
    pub(crate) fn new(most: usize, request_bytes: u64) -> Window {
        let most = most.max(1);
        Window {
            size: 1,
            most,
            bytes_max: wide(most).saturating_mul(request_bytes),
            pace: Pace::default(),
        }
    }

    /// Bytes that may be on their way.
    pub(crate) fn bytes(&self) -> u64 {
        self.pace.bytes(self.bytes_max)
    }

    /// Bytes that may be requested while `on_their_way` are: none before a quarter of those that
    /// may be has arrived.
    pub(crate) fn room(&self, on_their_way: u64) -> u64 {
        let bytes = self.bytes();
        match on_their_way > bytes - bytes / 4 {
            true => 0,
            false => bytes - on_their_way,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// A request brought something, after so long.
    pub(crate) fn answered(&mut self, took: Duration, was_full: bool) {
        if took <= SOON && was_full {
            self.size = (self.size + 1).min(self.most);
        } else if took > LONG {
            self.size = (self.size / 2).max(1);
        }
        let (size, most) = (self.size, self.most);
        assert!(
            (1..=most).contains(&size),
            "a window of {size}, at most {most}"
        );
    }

    pub(crate) fn reset(&mut self) {
        self.size = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_while_answers_come_soon_and_shrinks_when_they_do_not() {
        let mut window = Window::new(4, 1 << 20);
        let (soon, late) = (Duration::from_millis(80), Duration::from_secs(11));
        for expected in [2, 3, 4, 4] {
            window.answered(soon, true);
            assert_eq!(window.size(), expected);
        }
        window.answered(Duration::from_secs(5), true);
        assert_eq!(window.size(), 4);
        for expected in [2, 1, 1] {
            window.answered(late, true);
            assert_eq!(window.size(), expected);
        }
        window.answered(soon, false);
        assert_eq!(window.size(), 1, "it was not what kept others waiting");
        window.answered(soon, true);
        window.reset();
        assert_eq!(window.size(), 1);
        assert_eq!(Window::new(0, 1 << 20).size(), 1);
    }
}
