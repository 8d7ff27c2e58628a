//! Source side of replication: the data that is sent, the budget of sending, and the agent that
//! answers requests. A source is a database, or a copy that passes on its ranges.
//!
//! Concurrency and failure: as in the database or the copy.

mod agent;
mod challenge;
mod missing_reports;
mod read_rate;
mod reading;
mod send_budget;
mod send_queue;
mod sent;
mod spent;
mod tail_sender;

pub use agent::{Agent, Confirmed};
pub use challenge::ChallengeStats;
pub(crate) use read_rate::Allowance;
pub use send_budget::{Budget, BudgetLimits, Pause, PauseCause, QuietHours};
pub use send_queue::SendQueue;
pub use spent::{Period, Spent};
pub use tail_sender::LiveTimes;

use headwater_engine::{
    Database, LogLocation, PinnedState, RemoteCopy, ReplicationRules, Result, State, StateName,
    Tail, TailRequest,
};
use headwater_types::ByteRange;

/// Data that an [`Agent`](crate::replication::Agent) sends.
pub trait Source {
    /// Pins the current state, as far as the rules let it leave. With the state of an earlier call,
    /// unchanged parts are not read again.
    ///
    /// # Errors
    /// The database's own.
    fn pin(&self, before: Option<&State>, rules: &ReplicationRules) -> Result<PinnedState>;

    /// The number of the state that it is in: where that has changed, so has the state.
    ///
    /// # Errors
    /// The database's own.
    fn number(&self) -> Result<u64>;

    /// Whether it was in a state of this name once, or is.
    ///
    /// # Errors
    /// The database's own.
    fn was_in(&self, name: &StateName) -> Result<bool>;

    /// Records that the copy of this name has a state on its device.
    fn confirm(&self, copy: &str, state: &StateName);

    /// Hashes a part of the data without hashes; true if no such data is left.
    ///
    /// # Errors
    /// The database's own.
    fn complete_ledger(&self, bytes_max: u64) -> Result<bool>;

    /// Counter that changes when a missing range has arrived, or the subscription changes.
    fn changes(&self) -> u64;

    /// Missing ranges of a segment to which the source subscribes, sorted; `None` if not known yet.
    fn subscribed_missing(&self, segment: u64) -> Option<Vec<ByteRange>>;

    /// Subscribes to the missing part of a range; false if the source refuses it, or cannot accept
    /// it now.
    fn wish(&self, segment: u64, range: ByteRange) -> bool;

    /// Newest events, which no state contains yet, as far as the rules let them leave; with the
    /// location returned by an earlier call, no event is read twice. `None` if the source has no
    /// events to send.
    ///
    /// # Errors
    /// The database's own.
    fn tail(
        &self,
        ask: &TailRequest,
        rules: &ReplicationRules,
        place: &mut Option<LogLocation>,
    ) -> Result<Option<Tail>>;
}

impl Source for Database {
    fn pin(&self, before: Option<&State>, rules: &ReplicationRules) -> Result<PinnedState> {
        self.hold_state_of(before, rules)
    }

    fn number(&self) -> Result<u64> {
        self.state_number()
    }

    fn was_in(&self, name: &StateName) -> Result<bool> {
        Database::was_in(self, name)
    }

    fn confirm(&self, copy: &str, state: &StateName) {
        self.confirm_copy(copy, state);
    }

    fn complete_ledger(&self, bytes_max: u64) -> Result<bool> {
        Database::complete_ledger(self, bytes_max)
    }

    fn changes(&self) -> u64 {
        // A database does not have missing ranges.
        0
    }

    fn subscribed_missing(&self, _: u64) -> Option<Vec<ByteRange>> {
        Some(Vec::new())
    }

    fn wish(&self, _: u64, _: ByteRange) -> bool {
        false
    }

    fn tail(
        &self,
        ask: &TailRequest,
        rules: &ReplicationRules,
        place: &mut Option<LogLocation>,
    ) -> Result<Option<Tail>> {
        Database::tail(self, ask, rules, place).map(Some)
    }
}

impl Source for RemoteCopy {
    fn pin(&self, _: Option<&State>, rules: &ReplicationRules) -> Result<PinnedState> {
        Ok(self.hold_state_of(rules))
    }

    fn number(&self) -> Result<u64> {
        Ok(self.state().name().number)
    }

    fn was_in(&self, name: &StateName) -> Result<bool> {
        Ok(self.state().descends_from(name))
    }

    fn confirm(&self, copy: &str, state: &StateName) {
        self.confirm_further(copy, state);
    }

    fn complete_ledger(&self, _: u64) -> Result<bool> {
        // Only where something is written is it hashed.
        Ok(true)
    }

    fn changes(&self) -> u64 {
        RemoteCopy::changes(self)
    }

    fn subscribed_missing(&self, segment: u64) -> Option<Vec<ByteRange>> {
        self.missing_of(segment)
    }

    fn wish(&self, segment: u64, range: ByteRange) -> bool {
        self.request_range(segment, range.start(), range.len())
    }

    fn tail(
        &self,
        _: &TailRequest,
        _: &ReplicationRules,
        _: &mut Option<LogLocation>,
    ) -> Result<Option<Tail>> {
        // A copy does not store newest events on its device, so it does not pass them on.
        Ok(None)
    }
}
