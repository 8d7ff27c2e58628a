//! Handling of notices about one node: when the node is to be queried, and why.
//!
//! Invariants: the state of the node is taken from the node's answers alone; a notice only triggers
//! a query. A notice that the node has not signed, or that announces a known version, triggers no
//! query. Without notices the node is queried every `check`, which bounds the cost of a lost
//! notice. If the bus has no link, or the node does not publish there, the follower uses waiting
//! queries at the node instead. Concurrency: plain data, one owner.

use crate::notice::content::{Notice, NoticeKind};
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
pub enum NoticeOutcome {
    /// The notice announces a new version.
    News {
        /// Number of notices missed between this notice and the previous one.
        missed: u64,
    },
    /// The notice was repeated, or announces a known version.
    AlreadyKnown,
    /// A newer one arrived before it, or its epoch has ended.
    Late,
    /// The node has not signed it.
    Forged,
    /// The notice is not about this node, by the current state.
    NotThisNode,
}

/// Reason to query the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryReason {
    /// No version is known yet, or the last query was not answered.
    Unknown,
    /// A notice announced a new version.
    News,
    /// The broker reported that the node's connection ended.
    Disconnected,
    /// The link was down for a while.
    Gap,
    /// No notice arrived for `check`.
    Check,
}

/// Time of the next query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Query now; the node answers at once.
    Now(QueryReason),
    /// Query now; without notices, the node may delay the answer until its version changes.
    Waiting,
    /// Then, unless something is heard before.
    At(Duration),
}

/// Follows one node.
#[derive(Debug)]
pub struct Follower {
    check: Duration,
    reported: Option<NodeVersion>,
    is_linked: bool,
    /// Reason to query the node, if any.
    query_reason: Option<QueryReason>,
    /// When it answered last.
    answered: Duration,
    /// Number of the last notice of this epoch.
    number: u64,
    /// Number of the last notice that the node has disconnected.
    last_disconnect: u64,
    /// The newest version that was heard of, with its epoch.
    noticed: Option<(u64, u64)>,
    /// The version announced before the current query.
    announced_before_query: Option<(u64, u64)>,
    /// Epochs that have ended.
    old: VecDeque<u64>,
}

impl Follower {
    /// Creates a follower of an unknown node. Without notices it is queried every `check`.
    #[must_use]
    pub fn new(check: Duration) -> Follower {
        Follower {
            check,
            reported: None,
            is_linked: false,
            query_reason: Some(QueryReason::Unknown),
            answered: Duration::ZERO,
            number: 0,
            last_disconnect: 0,
            noticed: None,
            announced_before_query: None,
            old: VecDeque::new(),
        }
    }

    fn set_query_reason(&mut self, why: QueryReason) {
        self.query_reason = Some(self.query_reason.map_or(why, |before| before.min(why)));
    }

    /// Records whether the bus has a link.
    pub fn link(&mut self, is_linked: bool) {
        if self.is_linked != is_linked {
            self.is_linked = is_linked;
            // Either way a change may have happened without a notice.
            self.set_query_reason(QueryReason::Gap);
        }
    }

    /// Whether the follower waits for notices of the node. If not, it waits at the node.
    #[must_use]
    pub fn goes_by_notices(&self) -> bool {
        self.is_linked && self.reported.is_some_and(|told| told.key.is_some())
    }

    /// Time of the next query.
    #[must_use]
    pub fn due(&self, now: Duration) -> Due {
        let next = self.answered.saturating_add(self.check);
        match self.query_reason {
            Some(why) => Due::Now(why),
            None if !self.goes_by_notices() => Due::Waiting,
            None if now >= next => Due::Now(QueryReason::Check),
            None => Due::At(next),
        }
    }

    /// Records that a query is sent: notices received from now on may be newer than its answer.
    pub fn begin_query(&mut self) {
        self.announced_before_query = self.noticed;
        self.query_reason = None;
    }

    /// The node has not answered.
    pub fn failed(&mut self) {
        self.set_query_reason(QueryReason::Unknown);
    }

    /// The node has answered.
    pub fn answered(&mut self, now: Duration, told: NodeVersion) {
        self.answered = now;
        let before = self.reported.replace(told);
        if before.is_none_or(|b| (b.identity, b.epoch) != (told.identity, told.epoch)) {
            (self.number, self.last_disconnect) = (0, 0);
            if let Some(before) = before {
                self.has_ended(before.epoch);
            }
        }
        // An epoch that was announced before the query, and differs from the answer's epoch, has
        // ended.
        if let Some((epoch, _)) = self.announced_before_query.take()
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
            self.set_query_reason(QueryReason::News);
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
    pub fn receive(&mut self, sealed: &Sealed) -> NoticeOutcome {
        let Some(told) = self.reported else {
            return NoticeOutcome::NotThisNode;
        };
        if sealed.claims_identity() != told.identity {
            return NoticeOutcome::NotThisNode;
        }
        let Some(key) = told.key else {
            return NoticeOutcome::NotThisNode;
        };
        let Some(notice) = sealed.proven_by(&key) else {
            return NoticeOutcome::Forged;
        };
        if notice.epoch != told.epoch {
            return self.receive_other_epoch(*notice);
        }
        match notice.kind {
            NoticeKind::Changed => self.receive_change(*notice, told),
            NoticeKind::Disconnected => {
                let heard = order(self.last_disconnect, notice.number);
                if heard.is_some() {
                    return heard.unwrap_or(NoticeOutcome::Late);
                }
                self.last_disconnect = notice.number;
                self.set_query_reason(QueryReason::Disconnected);
                NoticeOutcome::News { missed: 0 }
            }
        }
    }

    fn receive_change(&mut self, notice: Notice, told: NodeVersion) -> NoticeOutcome {
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
            return NoticeOutcome::AlreadyKnown;
        }
        self.noticed = Some((notice.epoch, notice.version));
        self.set_query_reason(QueryReason::News);
        NoticeOutcome::News { missed }
    }

    /// The node has restarted, or the notice is older than its state.
    fn receive_other_epoch(&mut self, notice: Notice) -> NoticeOutcome {
        if self.old.contains(&notice.epoch) {
            return NoticeOutcome::Late;
        }
        if self.noticed.is_some_and(|(epoch, _)| epoch == notice.epoch) {
            return NoticeOutcome::AlreadyKnown;
        }
        self.noticed = Some((notice.epoch, notice.version));
        self.set_query_reason(QueryReason::News);
        NoticeOutcome::News { missed: 0 }
    }
}

/// Classifies a notice by its number, where it is not the newest.
fn order(last: u64, number: u64) -> Option<NoticeOutcome> {
    match number.cmp(&last) {
        std::cmp::Ordering::Equal => Some(NoticeOutcome::AlreadyKnown),
        std::cmp::Ordering::Less => Some(NoticeOutcome::Late),
        std::cmp::Ordering::Greater => None,
    }
}
