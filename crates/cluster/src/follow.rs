//! A copy from its first state on: until there is one, a whole state is requested; then a planner
//! requests missing ranges.
//!
//! Invariants: a copy is created from a whole state; the database of a copy never changes.
//! Concurrency: plain data with one owner; calls wait for the device. Failure: an error of the
//! device ends it, and it is to be created again.

use crate::prefetch::Prefetch;
use headwater_engine::{Error, RemoteCopy, State};
use headwater_protocol::replication::{Message, Now, Planner, PlannerLimits, Verified};
use std::time::Duration;

/// Wait for a first state, before it is requested again.
const FIRST_STATE_WITHIN: Duration = Duration::from_secs(60);

/// A copy that grows.
#[derive(Debug)]
pub(crate) struct Follower {
    first_request: u64,
    migration: Prefetch,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Without a state yet; the time of the next request for one, `None` = now.
    Beginning {
        request: u64,
        next_at: Option<Duration>,
    },
    Planning(Box<Planner>),
}

impl Follower {
    /// Follows a copy, or requests its first state. Requests are numbered from a random number.
    pub(crate) fn new(copy: Option<RemoteCopy>, first_request: u64) -> Follower {
        let stage = match copy {
            None => Stage::Beginning {
                request: first_request,
                next_at: None,
            },
            Some(copy) => Stage::Planning(Box::new(Planner::new(
                copy,
                PlannerLimits::default(),
                first_request,
            ))),
        };
        Follower {
            first_request,
            migration: Prefetch::default(),
            stage,
        }
    }

    /// Sets the prefetch policy.
    pub(crate) fn migrate(&mut self, migration: Prefetch) {
        let has_changed = self.migration != migration;
        self.migration = migration;
        if let Some(planner) = self.planner().filter(|_| has_changed) {
            planner.set_policy(migration.policy.into());
            planner.set_score(migration.score.into());
        }
    }

    /// The planner, once there is a copy.
    pub(crate) fn planner(&mut self) -> Option<&mut Planner> {
        match &mut self.stage {
            Stage::Beginning { .. } => None,
            Stage::Planning(planner) => Some(planner),
        }
    }

    /// Whether there may be messages to send although no message was received.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.stage {
            Stage::Beginning { .. } => true,
            Stage::Planning(planner) => !planner.is_idle(),
        }
    }

    /// Result of the last comparison.
    pub(crate) fn verified(&self) -> Option<Verified> {
        match &self.stage {
            Stage::Beginning { .. } => None,
            Stage::Planning(planner) => planner.verified(),
        }
    }

    /// Reason why no requests are sent any more.
    pub(crate) fn refused(&self) -> Option<&str> {
        match &self.stage {
            Stage::Beginning { .. } => None,
            Stage::Planning(planner) => planner.refused(),
        }
    }

    /// Processes a received message. Returns a first state, of which the caller
    /// [creates](Follower::plan) a copy.
    pub(crate) fn take(&mut self, now: Now, message: Message) -> Result<Option<State>, Error> {
        match &mut self.stage {
            Stage::Planning(planner) => planner.receive(now, message).map(|()| None),
            Stage::Beginning { request, next_at } => {
                match message {
                    Message::State {
                        request: answered,
                        bytes,
                    } if answered == *request => {
                        // Bytes that are not a state are requested again after the timeout.
                        return Ok(State::decode(&bytes, None).ok());
                    }
                    Message::Wait {
                        request: answered,
                        millis,
                    } if answered == *request => {
                        let wait = Duration::from_millis(millis);
                        *next_at = Some(now.monotonic + wait.min(FIRST_STATE_WITHIN));
                    }
                    _ => {}
                }
                Ok(None)
            }
        }
    }

    /// Continues with the created copy.
    pub(crate) fn plan(&mut self, copy: RemoteCopy) {
        // Late answers to earlier requests are recognised by their numbers.
        let first = self.first_request.wrapping_add(1 << 32);
        let migration = self.migration;
        *self = Follower::new(Some(copy), first);
        self.migrate(migration);
    }

    /// The next message to send, if any.
    pub(crate) fn next(&mut self, now: Now) -> Option<Message> {
        match &mut self.stage {
            Stage::Planning(planner) => planner.next(now),
            Stage::Beginning { request, next_at } => {
                let is_due = next_at.is_none_or(|at| now.monotonic >= at);
                is_due.then(|| {
                    *next_at = Some(now.monotonic + FIRST_STATE_WITHIN);
                    *request = request.wrapping_add(1);
                    Message::AskState {
                        request: *request,
                        known_state: None,
                    }
                })
            }
        }
    }
}
