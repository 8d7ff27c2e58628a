//! Handling of notices about one node: when the node is to be queried, and why.
//!
//! Invariants: the state of the node is taken from the node's answers alone; a notice only triggers
//! a query. A notice that the node has not signed, or that announces a known version, triggers no
//! query. Without notices the node is queried every `check`, which bounds the cost of a lost
//! notice. If the bus has no link, or the node does not publish there, the follower uses waiting
//! queries at the node instead. Concurrency: plain data, one owner.

use crate::notice::content::{Kind, Notice};
use crate::notice::seal::Sealed;
use crate::signature::PublicKey;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of epochs before the known one whose notices may still arrive.
const OLD_EPOCHS: usize = 16;

/// State of the node, as of its last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeVersion {
    /// Identity of its database.
    pub identity: u64,
    /// Changes when the database is restored or repaired.
    pub incarnation: u64,
    /// Changes with each start.
    pub epoch: u64,
    /// The newest known version.
    pub version: u64,
    /// Public key of the node's notices; `None` = the node publishes no notices.
    pub key: Option<PublicKey>,
}

/// Result of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The notice announces a new version.
    News {
        /// Number of notices missed between this notice and the previous one.
        missed: u64,
    },
    /// The notice was repeated, or announces a known version.
    Known,
    /// A newer one arrived before it, or its epoch has ended.
    Late,
    /// The node has not signed it.
    Forged,
    /// The notice is not about this node, by the current state.
    Other,
}

/// Reason to query the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// No version is known yet, or the last query was not answered.
    Unknown,
    /// A notice announced a new version.
    News,
    /// The broker reported that the node's connection ended.
    Gone,
    /// The link was down for a while.
    Gap,
    /// No notice arrived for `check`.
    Check,
}

/// Time of the next query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Query now; the node answers at once.
    Now(Why),
    /// Query now; without notices, the node may delay the answer until its version changes.
    Waiting,
    /// Then, unless something is heard before.
    At(Duration),
}

/// Follows one node.
#[derive(Debug)]
pub struct Follower {
    check: Duration,
    told: Option<NodeVersion>,
    is_linked: bool,
    /// Reason to query the node, if any.
    wants: Option<Why>,
    /// When it answered last.
    answered: Duration,
    /// Number of the last notice of this epoch.
    number: u64,
    /// Number of the last notice that the node has disconnected.
    gone: u64,
    /// The newest version that was heard of, with its epoch.
    noticed: Option<(u64, u64)>,
    /// The version announced before the current query.
    asked_after: Option<(u64, u64)>,
    /// Epochs that have ended.
    old: VecDeque<u64>,
}

impl Follower {
    /// Creates a follower of an unknown node. Without notices it is queried every `check`.
    #[must_use]
    pub fn new(check: Duration) -> Follower {
        Follower {
            check,
            told: None,
            is_linked: false,
            wants: Some(Why::Unknown),
            answered: Duration::ZERO,
            number: 0,
            gone: 0,
            noticed: None,
            asked_after: None,
            old: VecDeque::new(),
        }
    }

    fn want(&mut self, why: Why) {
        self.wants = Some(self.wants.map_or(why, |before| before.min(why)));
    }

    /// Records whether the bus has a link.
    pub fn link(&mut self, is_linked: bool) {
        if self.is_linked != is_linked {
            self.is_linked = is_linked;
            // Either way a change may have happened without a notice.
            self.want(Why::Gap);
        }
    }

    /// Whether the follower waits for notices of the node. If not, it waits at the node.
    #[must_use]
    pub fn goes_by_notices(&self) -> bool {
        self.is_linked && self.told.is_some_and(|told| told.key.is_some())
    }

    /// Time of the next query.
    #[must_use]
    pub fn due(&self, now: Duration) -> Due {
        let next = self.answered.saturating_add(self.check);
        match self.wants {
            Some(why) => Due::Now(why),
            None if !self.goes_by_notices() => Due::Waiting,
            None if now >= next => Due::Now(Why::Check),
            None => Due::At(next),
        }
    }

    /// Records that a query is sent: notices received from now on may be newer than its answer.
    pub fn asks(&mut self) {
        self.asked_after = self.noticed;
        self.wants = None;
    }

    /// The node has not answered.
    pub fn failed(&mut self) {
        self.want(Why::Unknown);
    }

    /// The node has answered.
    pub fn answered(&mut self, now: Duration, told: NodeVersion) {
        self.answered = now;
        let before = self.told.replace(told);
        if before.is_none_or(|b| (b.identity, b.epoch) != (told.identity, told.epoch)) {
            (self.number, self.gone) = (0, 0);
            if let Some(before) = before {
                self.has_ended(before.epoch);
            }
        }
        // An epoch that was announced before the query, and differs from the answer's epoch, has
        // ended.
        if let Some((epoch, _)) = self.asked_after.take()
            && epoch != told.epoch
        {
            self.has_ended(epoch);
        }
        self.old.retain(|epoch| *epoch != told.epoch);
        let is_open = |(epoch, version): (u64, u64)| match epoch == told.epoch {
            true => version > told.version,
            false => !self.old.contains(&epoch),
        };
        self.noticed = self.noticed.filter(|noticed| is_open(*noticed));
        if self.noticed.is_some() {
            self.want(Why::News);
        }
    }

    fn has_ended(&mut self, epoch: u64) {
        if !self.old.contains(&epoch) {
            if self.old.len() >= OLD_EPOCHS {
                self.old.pop_front();
            }
            self.old.push_back(epoch);
        }
    }

    /// Processes a received notice.
    pub fn hear(&mut self, sealed: &Sealed) -> Heard {
        let Some(told) = self.told else {
            return Heard::Other;
        };
        if sealed.claims_identity() != told.identity {
            return Heard::Other;
        }
        let Some(key) = told.key else {
            return Heard::Other;
        };
        let Some(notice) = sealed.proven_by(&key) else {
            return Heard::Forged;
        };
        if notice.epoch != told.epoch {
            return self.hear_of_other_epoch(*notice);
        }
        match notice.kind {
            Kind::Changed => self.hear_of_change(*notice, told),
            Kind::Gone => {
                let heard = order(self.gone, notice.number);
                if heard.is_some() {
                    return heard.unwrap_or(Heard::Late);
                }
                self.gone = notice.number;
                self.want(Why::Gone);
                Heard::News { missed: 0 }
            }
        }
    }

    fn hear_of_change(&mut self, notice: Notice, told: NodeVersion) -> Heard {
        if let Some(heard) = order(self.number, notice.number) {
            return heard;
        }
        assert!(self.number < notice.number, "a notice out of order");
        // Before the first notice, no notice was missed: the answer includes all versions before
        // it.
        let missed = match self.number {
            0 => 0,
            last => notice.number - last - 1,
        };
        self.number = notice.number;
        let noticed = match self.noticed {
            Some((epoch, version)) if epoch == told.epoch => version.max(told.version),
            _ => told.version,
        };
        if notice.version <= noticed {
            return Heard::Known;
        }
        self.noticed = Some((notice.epoch, notice.version));
        self.want(Why::News);
        Heard::News { missed }
    }

    /// The node has restarted, or the notice is older than its state.
    fn hear_of_other_epoch(&mut self, notice: Notice) -> Heard {
        if self.old.contains(&notice.epoch) {
            return Heard::Late;
        }
        if self.noticed.is_some_and(|(epoch, _)| epoch == notice.epoch) {
            return Heard::Known;
        }
        self.noticed = Some((notice.epoch, notice.version));
        self.want(Why::News);
        Heard::News { missed: 0 }
    }
}

/// Classifies a notice by its number, where it is not the newest.
fn order(last: u64, number: u64) -> Option<Heard> {
    match number.cmp(&last) {
        std::cmp::Ordering::Equal => Some(Heard::Known),
        std::cmp::Ordering::Less => Some(Heard::Late),
        std::cmp::Ordering::Greater => None,
    }
}
