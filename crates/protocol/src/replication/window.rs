//! Requests in flight, and their greatest number: as many as are answered soon.
//!
//! Invariants: at least one request, at most the configured number. The window grows by one for
//! each request that was answered quickly while the window was full, is halved after a slow answer,
//! and is one after a failure, or after the source has stopped granting: then its budget is the
//! limit. Concurrency: plain data.

use crate::replication::message::SegmentRange;
use crate::replication::stats::Asking;
use std::time::Duration;

/// A request that is answered within this was answered soon.
const SOON: Duration = Duration::from_secs(2);
/// Time after which an answer counts as slow.
const LONG: Duration = Duration::from_secs(10);

/// Subject of a request.
#[derive(Debug)]
pub(crate) enum RequestKind {
    State,
    Pieces(Vec<Asking>),
    Digests(Vec<SegmentRange>),
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) request: u64,
    pub(crate) since: Duration,
    pub(crate) until: Duration,
    pub(crate) asked: RequestKind,
    /// A requested range or state has arrived.
    pub(crate) has_brought: bool,
    /// The source has reported missing ranges of it.
    pub(crate) was_told: bool,
}

impl InFlight {
    pub(crate) fn pieces(&self) -> &[Asking] {
        match &self.asked {
            RequestKind::Pieces(asking) => asking,
            RequestKind::State | RequestKind::Digests(_) => &[],
        }
    }
}

/// Limit of the requests in flight.
#[derive(Debug)]
pub(crate) struct Window {
    size: usize,
    most: usize,
}

impl Window {
    pub(crate) fn new(most: usize) -> Window {
        Window {
            size: 1,
            most: most.max(1),
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
        let mut window = Window::new(4);
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
        assert_eq!(Window::new(0).size(), 1);
    }
}
