//! What is made of notices about one node: when it is to be asked, and why.
//!
//! Invariants: what is known of the node comes from its own answers alone; a notice only says when
//! to ask. One that it has not signed, or that says what is known, makes nobody ask. Without any
//! notice the node is asked every `check`, so that a lost one costs that at most. Where the bus
//! has no link, or the node tells nothing there, who follows waits at the node instead.
//! Concurrency: plain data, one owner.

use crate::notice::notice::{Kind, Notice};
use crate::notice::seal::{PublicKey, Sealed};
use std::collections::VecDeque;
use std::time::Duration;

/// Epochs before the one that is known, of which notices may still come.
const OLD_EPOCHS: usize = 16;

/// What the node said of itself in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its database.
    pub identity: u64,
    /// Begun anew when it is restored or repaired.
    pub incarnation: u64,
    /// Begun anew with each start.
    pub epoch: u64,
    /// The version that is known now.
    pub version: u64,
    /// What its notices are signed with; `None` = it tells none over a bus.
    pub key: Option<PublicKey>,
}

/// What a notice was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It says something new; so many before it did not come.
    News {
        /// Notices between this one and the one before it.
        missed: u64,
    },
    /// It came before, or says what is known.
    Known,
    /// A newer one came before it, or it is of an epoch that has ended.
    Late,
    /// The node has not signed it.
    Forged,
    /// It is not about this node, as far as is known.
    Other,
}

/// Why the node is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Nothing is known yet, or the last question was not answered.
    Unknown,
    /// A notice says something new.
    News,
    /// The broker says that the node's connection has ended.
    Gone,
    /// There was no link for a while.
    Gap,
    /// Nothing was heard for long.
    Check,
}

/// When the node is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Now, and the answer is to come at once.
    Now(Why),
    /// Now, and the answer may wait at the node until something changes: there are no notices.
    Waiting,
    /// Then, unless something is heard before.
    At(Duration),
}

/// Follows one node.
#[derive(Debug)]
pub struct Follower {
    check: Duration,
    told: Option<Told>,
    is_linked: bool,
    /// Why it is to be asked.
    wants: Option<Why>,
    /// When it answered last.
    answered: Duration,
    /// Notices of this epoch that came: the number of the last one.
    number: u64,
    /// The same of those that say that it is gone.
    gone: u64,
    /// The newest version that was heard of, with its epoch.
    noticed: Option<(u64, u64)>,
    /// What of that was heard before the question that is under way.
    asked_after: Option<(u64, u64)>,
    /// Epochs that have ended.
    old: VecDeque<u64>,
}

impl Follower {
    /// Of a node of which nothing is known. Without notices it is asked every `check`.
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

    /// The bus has a link, or none.
    pub fn link(&mut self, is_linked: bool) {
        if self.is_linked != is_linked {
            self.is_linked = is_linked;
            // Either way something may have happened that nobody was told of.
            self.want(Why::Gap);
        }
    }

    /// Whether notices of the node are waited for. If not, who follows waits at the node.
    #[must_use]
    pub fn goes_by_notices(&self) -> bool {
        self.is_linked && self.told.is_some_and(|told| told.key.is_some())
    }

    /// When the node is to be asked.
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

    /// A question is sent: what is heard from now on may be newer than its answer.
    pub fn asks(&mut self) {
        self.asked_after = self.noticed;
        self.wants = None;
    }

    /// The node has not answered.
    pub fn failed(&mut self) {
        self.want(Why::Unknown);
    }

    /// The node has answered.
    pub fn answered(&mut self, now: Duration, told: Told) {
        self.answered = now;
        let before = self.told.replace(told);
        if before.is_none_or(|b| (b.identity, b.epoch) != (told.identity, told.epoch)) {
            (self.number, self.gone) = (0, 0);
            if let Some(before) = before {
                self.has_ended(before.epoch);
            }
        }
        // Of an epoch that was heard of before the question, and is not that of the answer, no more
        // is to be had.
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

    /// A notice has come.
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

    fn hear_of_change(&mut self, notice: Notice, told: Told) -> Heard {
        if let Some(heard) = order(self.number, notice.number) {
            return heard;
        }
        // Before the first one nothing was missed: the answer had it.
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

    /// The node was started anew, or was before what is known.
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

/// What a notice is by its number, where it is not the newest.
fn order(last: u64, number: u64) -> Option<Heard> {
    match number.cmp(&last) {
        std::cmp::Ordering::Equal => Some(Heard::Known),
        std::cmp::Ordering::Less => Some(Heard::Late),
        std::cmp::Ordering::Greater => None,
    }
}
