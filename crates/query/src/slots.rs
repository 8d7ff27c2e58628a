//! Admission of statements: slots for those that run, with a fair share for each owner.
//!
//! Purpose: the number of running statements bounds their memory and their use of the processor. An
//! owner cannot take all slots: an owner with some slots gets another one only while twice as many
//! slots are free, so that slots remain for other owners, and for owners after them. A client that
//! does not read its answer keeps its slot only until another statement needs it.
//!
//! Invariants: a slot is released when it is dropped; there are never more slots than the setting
//! allows. Concurrency: one short lock; every released slot wakes the waiting statements. Failure:
//! a statement without a slot in time gets [`NoSlot`]: all slots are taken, or its own owner has
//! too many.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time after which a client that does not read its answer loses its slot to a waiting statement.
const STALLED: Duration = Duration::from_millis(500);
/// Interval of the checks for stalled statements, while a statement waits.
const LOOK: Duration = Duration::from_millis(50);

/// Owner of statements that share a quota.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The statements of a token.
    Token(String),
    /// Without tokens, the statements of a front end.
    FrontEnd(&'static str),
}

/// State of a statement that has a slot.
#[derive(Debug)]
pub struct Holder {
    owner: Owner,
    /// Instant since which no rows of its answer have been read.
    stalled: Mutex<Option<Instant>>,
    over: AtomicBool,
    notify: Notify,
}

impl Holder {
    /// Marks the statement as waiting for its client to read.
    pub fn stalls(&self) {
        *self.stalled.lock() = Some(Instant::now());
    }

    /// Records that rows of its answer were read.
    pub fn goes_on(&self) {
        *self.stalled.lock() = None;
    }

    /// Completes when another statement needs the slot.
    pub async fn over(&self) {
        loop {
            let ended = self.notify.notified();
            if self.over.load(Ordering::Acquire) {
                return;
            }
            ended.await;
        }
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }
}

/// Reason for which a slot is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// All slots are taken; the number is the maximum.
    Full(usize),
    /// The number of running statements of the same owner, and the maximum of all owners.
    OwnerLimit(usize, usize),
}

impl std::fmt::Display for NoSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoSlot::Full(max) => write!(
                f,
                "{max} statements are running, the most that the setting sql.statements_max allows"
            ),
            NoSlot::OwnerLimit(own, max) => write!(
                f,
                "{own} statements of this token or front end are running: the rest of the {max} that the setting sql.statements_max allows is reserved for others"
            ),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    by_owner: HashMap<Owner, usize>,
    holders: Vec<Arc<Holder>>,
}

/// The slots of a server.
#[derive(Debug)]
pub struct Slots {
    max: usize,
    state: Mutex<State>,
    freed: Notify,
}

/// A slot of a running statement; released on drop.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    /// State of the statement.
    pub holder: Arc<Holder>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        state
            .holders
            .retain(|holder| !Arc::ptr_eq(holder, &self.holder));
        if let Some(held) = state.by_owner.get_mut(&self.holder.owner) {
            *held -= 1;
            if *held == 0 {
                state.by_owner.remove(&self.holder.owner);
            }
        }
        drop(state);
        self.slots.freed.notify_waiters();
    }
}

impl Slots {
    /// Creates `max` slots.
    #[must_use]
    pub fn new(max: usize) -> Arc<Slots> {
        Arc::new(Slots {
            max,
            state: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Takes a slot; waits for one at most `wait`.
    ///
    /// # Errors
    /// [`NoSlot`] when a slot does not become available in time.
    pub async fn acquire(self: &Arc<Self>, owner: &Owner, wait: Duration) -> Result<Slot, NoSlot> {
        let end = Instant::now() + wait;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Slots released from now on wake this task.
            freed.as_mut().enable();
            let taken = match self.try_take(owner) {
                Ok(place) => return Ok(place),
                Err(taken) => taken,
            };
            let now = Instant::now();
            if now >= end {
                return Err(taken);
            }
            self.end_stalled(owner, taken, now);
            let look = (now + LOOK).min(end);
            // Both a released slot and the end of the interval lead to the next attempt.
            let _ = tokio::time::timeout_at(look, freed).await;
        }
    }

    fn try_take(self: &Arc<Self>, owner: &Owner) -> Result<Slot, NoSlot> {
        let mut state = self.state.lock();
        let free = self.max.saturating_sub(state.holders.len());
        if free == 0 {
            return Err(NoSlot::Full(self.max));
        }
        let own = state.by_owner.get(owner).copied().unwrap_or(0);
        if own >= 2 * free {
            return Err(NoSlot::OwnerLimit(own, self.max));
        }
        *state.by_owner.entry(owner.clone()).or_default() += 1;
        let holder = Arc::new(Holder {
            owner: owner.clone(),
            stalled: Mutex::new(None),
            over: AtomicBool::new(false),
            notify: Notify::new(),
        });
        state.holders.push(Arc::clone(&holder));
        Ok(Slot {
            slots: Arc::clone(self),
            holder,
        })
    }

    /// Ends the statement whose client has not read for the longest time.
    fn end_stalled(&self, owner: &Owner, taken: NoSlot, now: Instant) {
        let state = self.state.lock();
        let stalled = state.holders.iter().filter_map(|holder| {
            let since = (*holder.stalled.lock())?;
            let is_his = matches!(taken, NoSlot::Full(_)) || holder.owner == *owner;
            let is_over = holder.over.load(Ordering::Relaxed);
            (is_his && !is_over && now >= since + STALLED).then_some((since, holder))
        });
        if let Some((_, holder)) = stalled.min_by_key(|(since, _)| *since) {
            holder.end();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn token(id: &str) -> Owner {
        Owner::Token(id.to_owned())
    }

    #[tokio::test]
    async fn one_owner_leaves_places_for_others_and_they_for_others_again() {
        let places = Slots::new(16);
        let mut held = Vec::new();
        for (owner, wanted) in [("a", 11), ("b", 4), ("c", 1)] {
            let mut got = 0;
            while let Ok(place) = places.acquire(&token(owner), Duration::ZERO).await {
                held.push(place);
                got += 1;
            }
            assert_eq!(got, wanted, "{owner}");
        }
        let none = places.acquire(&token("d"), Duration::ZERO).await;
        assert_eq!(none.unwrap_err(), NoSlot::Full(16));
        held.truncate(11);
        let own = places.acquire(&token("a"), Duration::ZERO).await;
        assert_eq!(own.unwrap_err(), NoSlot::OwnerLimit(11, 16));
        held.clear();
        assert!(places.state.lock().by_owner.is_empty());
        let only = Slots::new(1);
        assert!(only.acquire(&token("a"), Duration::ZERO).await.is_ok());
    }

    #[tokio::test]
    async fn who_waits_gets_the_place_of_who_does_not_read() {
        let places = Slots::new(1);
        let place = places.acquire(&token("a"), Duration::ZERO).await.unwrap();
        place.holder.stalls();
        let holder = Arc::clone(&place.holder);
        let gives_back = tokio::spawn(async move {
            place.holder.over().await;
            drop(place);
        });
        let got = places.acquire(&token("b"), Duration::from_secs(60)).await;
        assert!(got.is_ok());
        gives_back.await.unwrap();
        // A late call completes at once.
        holder.over().await;
        // A statement whose rows are read keeps its slot.
        let own = got.unwrap();
        own.holder.stalls();
        own.holder.goes_on();
        let refused = places.acquire(&token("b"), 2 * STALLED).await;
        assert_eq!(refused.unwrap_err(), NoSlot::Full(1));
    }
}
