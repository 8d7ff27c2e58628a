//! Fetching of ranges that readers of copies missed, within the budgets of the readers.
//!
//! Invariants: only ranges that this reader missed are requested for it; they are counted before
//! they are requested. Concurrency: the locks of copies are acquired one after another; devices are
//! read on threads that may wait. Failure: where no data arrives, the range stays missing.

use super::EdgeCopies;
use crate::edge_copy::EdgeCopy;
use crate::error::ClusterError;
use crate::fetch_budget::{FetchReader, Fetched};
use crate::status::FetchStatus;
use crate::waiting::blocking;
use headwater_engine::{MissedRange, RemoteCopy};
use headwater_shell::access::tokens::FetchLimit;
use std::sync::Arc;
use std::time::Duration;

/// Interval of checks for fetched ranges.
const FETCH_LOOK: Duration = Duration::from_millis(20);

/// A range of a copy that a reader missed.
struct MissedOfCopy {
    held: Arc<EdgeCopy>,
    copy: RemoteCopy,
    range: MissedRange,
}

impl MissedOfCopy {
    /// Whether the range arrived; `None` while it may still arrive.
    fn outcome(&self) -> Option<bool> {
        let MissedRange {
            segment,
            offset,
            bytes,
        } = self.range;
        // The length of a requested range is bounded.
        let read_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.copy.read(segment, offset, read_bytes).is_ok() {
            self.held.has_changed();
            return Some(true);
        }
        // Unavailable ranges do not arrive, and without a connection none does.
        let is_asked = self.copy.is_requested(segment, offset, bytes);
        let may_arrive = is_asked && self.held.live.lock().session != 0;
        (!may_arrive).then_some(false)
    }
}

/// Ranges that were requested for a reader, or the reason why none was.
enum Requested {
    Ranges(Vec<MissedOfCopy>),
    Refused(Fetched),
}

impl EdgeCopies {
    /// Sets the bytes a day that a token may have fetched, unless it has a budget of its own.
    pub fn set_fetch_limit(&self, per_day: FetchLimit) {
        self.fetch_budgets.set_limit(per_day);
    }

    /// A reader on behalf of a token.
    #[must_use]
    pub fn fetch_reader(&self, token: &str, limit: Option<FetchLimit>) -> FetchReader {
        FetchReader {
            number: self.fetch_budgets.next_reader(),
            token: token.to_owned(),
            limit,
        }
    }

    /// Counts of what was fetched for readers on this day.
    #[must_use]
    pub fn fetch_status(&self) -> FetchStatus {
        self.fetch_budgets.status(self.env().clock.now())
    }

    /// Stores the exact counts of what was fetched, for an orderly stop.
    ///
    /// # Errors
    /// `io`.
    pub fn settle_fetched(&self) -> Result<(), ClusterError> {
        self.fetch_budgets.settle()
    }

    /// Fetches ranges that a reader has missed, and waits for them, for so long at most.
    ///
    /// # Errors
    /// An error of this node's device.
    pub async fn fetch_missed(
        self: &Arc<Self>,
        reader: &FetchReader,
        most: Duration,
    ) -> Result<Fetched, ClusterError> {
        let until = tokio::time::Instant::now() + most;
        let (fleet, asking) = (Arc::clone(self), reader.clone());
        let mut asked = match blocking(move || fleet.request_missed(&asking)).await?? {
            Requested::Ranges(asked) => asked,
            Requested::Refused(why) => return Ok(why),
        };
        let mut has_come = false;
        while !asked.is_empty() && tokio::time::Instant::now() < until {
            tokio::time::sleep(FETCH_LOOK).await;
            (asked, has_come) = blocking(move || {
                asked.retain(|missed| {
                    let outcome = missed.outcome();
                    has_come |= outcome == Some(true);
                    outcome.is_none()
                });
                (asked, has_come)
            })
            .await?;
        }
        Ok(if has_come {
            Fetched::Arrived
        } else {
            Fetched::Nothing
        })
    }

    /// Requests the ranges that a reader has missed, all or none.
    fn request_missed(&self, reader: &FetchReader) -> Result<Requested, ClusterError> {
        let mut missed = self.take_missed(reader.number);
        let bytes = missed.iter().map(|missed| {
            let MissedRange {
                segment,
                offset,
                bytes,
            } = missed.range;
            missed.copy.bytes_to_request(segment, offset, bytes)
        });
        let bytes: u64 = bytes.sum();
        if bytes > 0 {
            let now = self.env().clock.now();
            if let Some(over) = self.fetch_budgets.take(reader, bytes, now)? {
                return Ok(Requested::Refused(Fetched::OverBudget(over)));
            }
        }
        missed.retain(|missed| {
            let MissedRange {
                segment,
                offset,
                bytes,
            } = missed.range;
            let is_requested = missed.copy.request_range(segment, offset, bytes);
            missed.held.wake.notify_one();
            is_requested
        });
        Ok(Requested::Ranges(missed))
    }

    /// Ranges of connected edges that a reader has missed.
    fn take_missed(&self, reader: u64) -> Vec<MissedOfCopy> {
        let held: Vec<Arc<EdgeCopy>> = self.edge_copies.lock().values().cloned().collect();
        let mut all = Vec::new();
        // A closed copy has no missed ranges.
        let open = held
            .into_iter()
            .filter_map(|held| Some((held.open_copy()?, held)));
        for (copy, held) in open {
            let missed = copy.take_missed_of(reader);
            if held.live.lock().session != 0 {
                all.extend(missed.into_iter().map(|range| MissedOfCopy {
                    held: Arc::clone(&held),
                    copy: copy.clone(),
                    range,
                }));
            }
        }
        all
    }
}
