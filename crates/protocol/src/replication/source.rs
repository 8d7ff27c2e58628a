//! What a source is made of: a database, or a copy of one that passes on what it has.
//!
//! Concurrency and failure: those of the database or the copy.

use headwater_engine::{
    Database, HeldState, RemoteCopy, Result, Rules, State, StateName, Tail, TailAsk, TailPlace,
};

/// What an [`Agent`](crate::replication::Agent) answers for.
pub trait Source {
    /// The state that it is in, as far as the rules let it leave, held. With the one of an earlier
    /// call, what has not changed since is not read again.
    ///
    /// # Errors
    /// The database's own.
    fn hold(&self, before: Option<&State>, rules: &Rules) -> Result<HeldState>;

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

    /// The copy of this name has a state on its medium.
    fn confirm(&self, copy: &str, state: &StateName);

    /// Hashes a part of what has no hashes yet; true when there is nothing left to hash.
    ///
    /// # Errors
    /// The database's own.
    fn complete_ledger(&self, bytes_max: u64) -> Result<bool>;

    /// Changes where something has come that it lacked, or it wants something else.
    fn changes(&self) -> u64;

    /// What it lacks of a segment and wants itself: offset and length of each, rising; `None` when
    /// that is not known yet.
    fn wants(&self, segment: u64) -> Option<Vec<(u64, u64)>>;

    /// Wants what it lacks of a range itself; false where it does not, or not now.
    fn wish(&self, segment: u64, offset: u64, bytes: u64) -> bool;

    /// Its newest events, which no state holds yet, as far as the rules let them leave; with the
    /// place that an earlier call left nothing is read twice. `None` where it has none to send.
    ///
    /// # Errors
    /// The database's own.
    fn tail(
        &self,
        ask: &TailAsk,
        rules: &Rules,
        place: &mut Option<TailPlace>,
    ) -> Result<Option<Tail>>;
}

impl Source for Database {
    fn hold(&self, before: Option<&State>, rules: &Rules) -> Result<HeldState> {
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
        // It lacks nothing.
        0
    }

    fn wants(&self, _: u64) -> Option<Vec<(u64, u64)>> {
        Some(Vec::new())
    }

    fn wish(&self, _: u64, _: u64, _: u64) -> bool {
        false
    }

    fn tail(
        &self,
        ask: &TailAsk,
        rules: &Rules,
        place: &mut Option<TailPlace>,
    ) -> Result<Option<Tail>> {
        Database::tail(self, ask, rules, place).map(Some)
    }
}

impl Source for RemoteCopy {
    fn hold(&self, _: Option<&State>, rules: &Rules) -> Result<HeldState> {
        Ok(self.hold_state_of(rules))
    }

    fn number(&self) -> Result<u64> {
        Ok(self.state().name().number)
    }

    fn was_in(&self, name: &StateName) -> Result<bool> {
        Ok(self.state().goes_on_from(name))
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

    fn wants(&self, segment: u64) -> Option<Vec<(u64, u64)>> {
        self.missing_of(segment)
    }

    fn wish(&self, segment: u64, offset: u64, bytes: u64) -> bool {
        self.ask_for(segment, offset, bytes)
    }

    fn tail(&self, _: &TailAsk, _: &Rules, _: &mut Option<TailPlace>) -> Result<Option<Tail>> {
        // What it knows of them is on no medium here, so it passes on none.
        Ok(None)
    }
}
