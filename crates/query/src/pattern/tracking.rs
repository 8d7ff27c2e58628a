//! Start positions of a search for a watch, and the positions of its matches.
//!
//! Invariant: a written position is read back unchanged.

use headwater_watch::{Begin, Key, Match, Position};
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The column with the positions of matches for a watch. No name in a statement contains the last
/// character.
pub(crate) const TRACK: &str = "watch\u{1f}";

/// Start positions of searches, and additional results of a search.
#[derive(Debug)]
pub(crate) struct Tracking {
    pub(crate) begin: Begin,
    /// Rows before this time are not read.
    pub(crate) lower_ns: i64,
    /// Partitions that may need rows before the first row that was read, with the time of that row.
    pub(crate) short: Mutex<Vec<(String, i64)>>,
}

/// [`Tracking`] as part of a node; equal only to itself.
#[derive(Clone, Debug)]
pub(super) struct Tracked(Arc<Tracking>);

impl Tracked {
    pub(super) fn new(tracking: &Arc<Tracking>) -> Tracked {
        Tracked(Arc::clone(tracking))
    }

    pub(super) fn tracking(&self) -> &Tracking {
        &self.0
    }
}

impl PartialEq for Tracked {
    fn eq(&self, other: &Tracked) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tracked {}

impl Hash for Tracked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Parses the column [`TRACK`] of a match, with the output row.
pub(crate) fn read_track(track: &str, row: String) -> Option<Match> {
    let mut parts = track.splitn(7, ' ');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (first, skip, last) = (number()?, number()?, number()?);
    let (decided, next, next_skip) = (number()?, number()?, number()?);
    Some(Match {
        key: Key {
            partition: parts.next()?.to_owned(),
            first: Position {
                time_ns: first,
                skip: u32::try_from(skip).ok()?,
            },
        },
        last_ns: last,
        decided_ns: decided,
        next: Position {
            time_ns: next,
            skip: u32::try_from(next_skip).ok()?,
        },
        row,
    })
}
