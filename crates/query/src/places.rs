//! Places for statements: how many run at once, whose they are, and who must give one back.
//!
//! Purpose: what a statement takes of memory and of the processor is bounded by how many run.
//! Nobody may take all places: who holds some gets another one only while twice as many are free as
//! he holds, so that some are left for others, and for others after them. Who sends what he is not
//! reading keeps his place for as long as nobody else needs it, but no longer.
//!
//! Invariants: a place is given back when it is dropped; there are never more than the setting
//! allows.
//! Concurrency: one short lock; whoever waits is told of every place that becomes free.
//! Failure: who gets no place in time is told whether they are all taken, or how many are his own.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long whoever reads nothing of an answer keeps his place when others wait for one.
const STALLED: Duration = Duration::from_millis(500);
/// How often it is looked whether somebody has stalled, while somebody waits.
const LOOK: Duration = Duration::from_millis(50);

/// Whose statements count together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Those of a token.
    Token(String),
    /// Without tokens, those that come through one door.
    Door(&'static str),
}

/// What is known of a statement that has a place.
#[derive(Debug)]
pub struct Holder {
    owner: Owner,
    /// Since when nothing of its answer has been taken.
    stalled: Mutex<Option<Instant>>,
    over: AtomicBool,
    told: Notify,
}

impl Holder {
    /// From now on it waits for whoever is to take its answer.
    pub fn stalls(&self) {
        *self.stalled.lock() = Some(Instant::now());
    }

    /// A part of its answer was taken.
    pub fn goes_on(&self) {
        *self.stalled.lock() = None;
    }

    /// Ends when the place is needed for another statement.
    pub async fn over(&self) {
        loop {
            let told = self.told.notified();
            if self.over.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// So many statements run.
    All(usize),
    /// So many of so many are of the same owner.
    Own(usize, usize),
}

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Taken::All(max) => write!(
                f,
                "{max} statements are running, the most that the setting sql.statements_max allows"
            ),
            Taken::Own(own, max) => write!(
                f,
                "{own} statements of this token or door are running: of the {max} that the setting sql.statements_max allows, the rest is kept for others"
            ),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<Owner, usize>,
    holders: Vec<Arc<Holder>>,
}

/// The places there are.
#[derive(Debug)]
pub struct Places {
    max: usize,
    state: Mutex<State>,
    freed: Notify,
}

/// A place among the statements that run.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    /// What is known of the statement that has it.
    pub holder: Arc<Holder>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        state
            .holders
            .retain(|holder| !Arc::ptr_eq(holder, &self.holder));
        if let Some(held) = state.held.get_mut(&self.holder.owner) {
            *held -= 1;
            if *held == 0 {
                state.held.remove(&self.holder.owner);
            }
        }
        drop(state);
        self.places.freed.notify_waiters();
    }
}

impl Places {
    /// So many places.
    #[must_use]
    pub fn new(max: usize) -> Arc<Places> {
        Arc::new(Places {
            max,
            state: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// A place, waited for so long.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn take(self: &Arc<Self>, owner: &Owner, wait: Duration) -> Result<Place, Taken> {
        let end = Instant::now() + wait;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // What becomes free from now on is heard of.
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
            // It is looked again whether a place became free or not.
            let _ = tokio::time::timeout_at(look, freed).await;
        }
    }

    fn try_take(self: &Arc<Self>, owner: &Owner) -> Result<Place, Taken> {
        let mut state = self.state.lock();
        let free = self.max.saturating_sub(state.holders.len());
        if free == 0 {
            return Err(Taken::All(self.max));
        }
        let own = state.held.get(owner).copied().unwrap_or(0);
        if own >= 2 * free {
            return Err(Taken::Own(own, self.max));
        }
        *state.held.entry(owner.clone()).or_default() += 1;
        let holder = Arc::new(Holder {
            owner: owner.clone(),
            stalled: Mutex::new(None),
            over: AtomicBool::new(false),
            told: Notify::new(),
        });
        state.holders.push(Arc::clone(&holder));
        Ok(Place {
            places: Arc::clone(self),
            holder,
        })
    }

    /// Ends the statement of which nothing has been taken for longest.
    fn end_stalled(&self, owner: &Owner, taken: Taken, now: Instant) {
        let state = self.state.lock();
        let stalled = state.holders.iter().filter_map(|holder| {
            let since = (*holder.stalled.lock())?;
            let is_his = matches!(taken, Taken::All(_)) || holder.owner == *owner;
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
        let places = Places::new(16);
        let mut held = Vec::new();
        for (owner, wanted) in [("a", 11), ("b", 4), ("c", 1)] {
            let mut got = 0;
            while let Ok(place) = places.take(&token(owner), Duration::ZERO).await {
                held.push(place);
                got += 1;
            }
            assert_eq!(got, wanted, "{owner}");
        }
        let none = places.take(&token("d"), Duration::ZERO).await;
        assert_eq!(none.unwrap_err(), Taken::All(16));
        held.truncate(11);
        let own = places.take(&token("a"), Duration::ZERO).await;
        assert_eq!(own.unwrap_err(), Taken::Own(11, 16));
        held.clear();
        assert!(places.state.lock().held.is_empty());
        let only = Places::new(1);
        assert!(only.take(&token("a"), Duration::ZERO).await.is_ok());
    }

    #[tokio::test]
    async fn who_waits_gets_the_place_of_who_does_not_read() {
        let places = Places::new(1);
        let place = places.take(&token("a"), Duration::ZERO).await.unwrap();
        place.holder.stalls();
        let holder = Arc::clone(&place.holder);
        let gives_back = tokio::spawn(async move {
            place.holder.over().await;
            drop(place);
        });
        let got = places.take(&token("b"), Duration::from_secs(60)).await;
        assert!(got.is_ok());
        gives_back.await.unwrap();
        // It is still over for whoever looks late.
        holder.over().await;
        // One that is read from keeps its place.
        let own = got.unwrap();
        own.holder.stalls();
        own.holder.goes_on();
        let refused = places.take(&token("b"), 2 * STALLED).await;
        assert_eq!(refused.unwrap_err(), Taken::All(1));
    }
}
