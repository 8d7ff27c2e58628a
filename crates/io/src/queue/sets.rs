//! Sets with their owners: threads before schedules.
//!
//! Two kinds of items wait in a set: work, which its owner carries out, and callers, which get a
//! turn ([`Sets::take_turn`]) in which they act themselves. Waking a sleeping caller costs one
//! switch between threads, having work done for it costs two.
//!
//! Invariants: submitted work is carried out or refused exactly once. Work that waits when the sets
//! are shut down is carried out first. With threads, a set has at most one work or turn in
//! progress; without them (`NoThreads`) callers carry all work out themselves, at once. The end of
//! an item starts the next, so no item waits in an idle set. Concurrency: one lock for each set,
//! over its schedule, and one over the placements; no lock is held while work is carried out or
//! refused, or in a turn. Submitting work to a full set blocks. Failure: after [`Sets::shut_down`],
//! and in a set whose owner panicked, work is refused, and turns are granted without waiting.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::{Joiner, Threads};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::queue::order::Order;
use crate::queue::placement::{PlacementRule, Placements};
use crate::queue::request::{Request, Work};
use crate::queue::schedule::Schedule;

/// Number of sets, and their rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetOptions {
    /// Number of sets, each with an owner thread; at least one.
    pub sets: usize,
    /// Order in which waiting requests are started.
    pub order: Order,
    /// Rule by which a stream is assigned to a set.
    pub rule: PlacementRule,
    /// Maximum number of starts by which a request may be later than in the order of arrival.
    pub passes_max: u64,
    /// Most requests that may wait in one set; further callers block until there is space.
    pub capacity: usize,
    /// Maximum bytes of a request that the caller carries out itself when the set is idle. Handing
    /// a request over costs two switches between threads, which is too much for a small request on
    /// a fast medium.
    pub small_bytes_max: u64,
}

impl Default for SetOptions {
    fn default() -> SetOptions {
        SetOptions {
            sets: 4,
            order: Order::default(),
            rule: PlacementRule::default(),
            passes_max: 32,
            capacity: 256,
            small_bytes_max: 64 << 10,
        }
    }
}

/// Queue sets over some medium; `W` defines how a request is carried out.
pub struct Sets<W: Work> {
    sets: Vec<Arc<Set<W>>>,
    placements: Mutex<Placements>,
    owners: Mutex<Vec<Box<dyn Joiner>>>,
    small_bytes_max: u64,
    /// Longest time that a caller waits for his turn.
    patience: Option<Duration>,
    /// True without threads: callers carry out all work.
    is_direct: bool,
}

impl<W: Work> fmt::Debug for Sets<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sets")
            .field("sets", &self.sets.len())
            .field("is_direct", &self.is_direct)
            .finish_non_exhaustive()
    }
}

struct Set<W> {
    state: Mutex<State<W>>,
    /// Signalled when an item waits and none is in progress, or the set was closed.
    to_do: Condvar,
    /// Signalled when the queues have space, or the set was closed.
    room: Condvar,
}

struct State<W> {
    schedule: Schedule<Waiting<W>>,
    /// Started work that the owner is to carry out.
    begun: Option<W>,
    is_closed: bool,
}

/// An item that waits in a set.
enum Waiting<W> {
    Work(W),
    /// A caller that acts itself in its turn.
    Caller(Arc<Caller>),
}

/// A caller that waits for a turn.
#[derive(Default)]
struct Caller {
    state: Mutex<TurnState>,
    changed: Condvar,
}

/// State of a caller's turn.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum TurnState {
    #[default]
    Waiting,
    /// The caller has its turn.
    Turn,
    /// The caller gets no turn.
    Refused,
    /// The caller stopped waiting.
    Abandoned,
}

impl Caller {
    /// Sets the state; false when the caller has stopped waiting.
    fn decide(&self, decided: TurnState) -> bool {
        let mut state = self.state.lock();
        if *state == TurnState::Abandoned {
            return false;
        }
        *state = decided;
        self.changed.notify_all();
        true
    }

    /// Waits for a decision; true when it is the caller's turn.
    fn wait(&self, patience: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        while *state == TurnState::Waiting {
            let Some(patience) = patience else {
                self.changed.wait(&mut state);
                continue;
            };
            if self.changed.wait_for(&mut state, patience).timed_out()
                && *state == TurnState::Waiting
            {
                *state = TurnState::Abandoned;
            }
        }
        *state == TurnState::Turn
    }
}

impl<W: Work> Waiting<W> {
    fn refuse(self, why: &str) {
        match self {
            Waiting::Work(work) => work.refuse(io::Error::other(why.to_owned())),
            Waiting::Caller(caller) => {
                caller.decide(TurnState::Refused);
            }
        }
    }
}

impl<W: Work> Sets<W> {
    /// Creates sets with an owner thread each, or without owners if there are no threads.
    ///
    /// # Errors
    /// If a thread cannot be started; then none is left running.
    pub fn start(options: &SetOptions, threads: &dyn Threads) -> io::Result<Sets<W>> {
        let count = options.sets.max(1);
        let sets: Vec<Arc<Set<W>>> = std::iter::repeat_with(|| {
            Arc::new(Set {
                state: Mutex::new(State {
                    schedule: Schedule::new(options.order, options.passes_max, options.capacity),
                    begun: None,
                    is_closed: false,
                }),
                to_do: Condvar::new(),
                room: Condvar::new(),
            })
        })
        .take(count)
        .collect();
        let mut out = Sets {
            sets,
            placements: Mutex::new(Placements::new(count, options.rule)),
            owners: Mutex::new(Vec::new()),
            small_bytes_max: options.small_bytes_max,
            patience: None,
            is_direct: false,
        };
        let mut owners = Vec::with_capacity(count);
        for (number, set) in out.sets.iter().enumerate() {
            let owned = Arc::clone(set);
            // Created by the thread itself: without threads, no owner ends either.
            let body = Box::new(move || Owner(owned).run());
            match threads.spawn(&format!("queue-set-{number}"), body) {
                Ok(Some(owner)) => owners.push(owner),
                Ok(None) => break,
                Err(error) => {
                    *out.owners.lock() = owners;
                    out.shut_down();
                    return Err(error);
                }
            }
        }
        out.is_direct = owners.len() < count;
        assert!(
            !out.is_direct || owners.is_empty(),
            "a runtime has threads or none"
        );
        *out.owners.lock() = owners;
        Ok(out)
    }

    /// Limits the wait of callers for a turn, after which they continue without one, so that work
    /// that does not end cannot block them longer. By default they wait without a limit.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Sets<W> {
        let mut sets = self;
        sets.patience = Some(patience);
        sets
    }

    /// Number of sets.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sets.len()
    }

    /// Number of items that wait in a set (counted round, if there are fewer).
    #[must_use]
    pub fn waiting(&self, set: usize) -> usize {
        let set = self.set(set);
        set.map_or(0, |set| set.state.lock().schedule.waiting())
    }

    /// The set of a stream, by the placement rule; it is the same until [`Sets::release_stream`].
    pub fn set_of(&self, stream: u64, interval: Option<Duration>) -> usize {
        self.placements.lock().set_of(stream, interval)
    }

    /// Removes the placement of a stream; false if it had none.
    pub fn release_stream(&self, stream: u64) -> bool {
        self.placements.lock().release(stream)
    }

    /// Hands a request in, to the set of its stream. Waits while that is full.
    pub fn submit(&self, request: &Request, work: W) {
        self.submit_to(self.set_of(request.stream, request.interval), request, work);
    }

    /// Hands a request in, to this set (counted round, if there are fewer). Waits while it is full;
    /// a small request of an idle set has been carried out when this returns.
    pub fn submit_to(&self, set: usize, request: &Request, work: W) {
        let mut work = work;
        let Some(set) = self.set(set) else {
            return work.refuse(closed());
        };
        let mut state = set.state.lock();
        loop {
            match self.offer(set, state, request, work) {
                Offered::Accepted => return,
                Offered::Full(still, back) => {
                    state = still;
                    work = back;
                }
            }
            set.room.wait(&mut state);
        }
    }

    /// As [`Sets::submit_to`], but never waits for space.
    ///
    /// # Errors
    /// The work itself, if the set is full.
    pub fn try_submit_to(&self, set: usize, request: &Request, work: W) -> Result<(), W> {
        let Some(set) = self.set(set) else {
            work.refuse(closed());
            return Ok(());
        };
        let state = set.state.lock();
        match self.offer(set, state, request, work) {
            Offered::Accepted => Ok(()),
            Offered::Full(_, back) => Err(back),
        }
    }

    /// Submits a request to this set, for its owner: the caller neither waits nor carries it out,
    /// except without threads.
    ///
    /// # Errors
    /// The work itself, if the set is full or was shut down.
    pub fn hand_over(&self, set: usize, request: &Request, work: W) -> Result<(), W> {
        if self.is_direct {
            work.carry_out();
            return Ok(());
        }
        let Some(set) = self.set(set) else {
            return Err(work);
        };
        let mut state = set.state.lock();
        if state.is_closed {
            return Err(work);
        }
        let pushed = state.schedule.push(request, Waiting::Work(work));
        set.begin(state);
        match pushed {
            Err(Waiting::Work(work)) => Err(work),
            Ok(()) | Err(Waiting::Caller(_)) => Ok(()),
        }
    }

    /// Waits for the caller's turn in this set (modulo the number of sets), by the rank of its
    /// request. Dropping the result ends the turn; a caller that has one must not request another
    /// meanwhile. Without a reason to wait (no threads, sets that were shut down) the turn is
    /// granted at once, and so it is when waiting takes too long ([`Sets::with_patience`]).
    pub fn take_turn(&self, set: usize, request: &Request) -> CallersTurn<'_, W> {
        let Some(set) = self.set(set).filter(|_| !self.is_direct) else {
            return CallersTurn(None);
        };
        let caller = Arc::new(Caller::default());
        let mut state = set.state.lock();
        loop {
            if state.is_closed {
                return CallersTurn(None);
            }
            if state.schedule.begin_if_idle() {
                return CallersTurn(Some(Turn(set)));
            }
            let waiting = Waiting::Caller(Arc::clone(&caller));
            if state.schedule.push(request, waiting).is_ok() {
                break;
            }
            match self.patience {
                None => set.room.wait(&mut state),
                Some(patience) if set.room.wait_for(&mut state, patience).timed_out() => {
                    return CallersTurn(None);
                }
                Some(_) => {}
            }
        }
        // There may be only older items waiting, and none in progress.
        set.begin(state);
        // Order is not worth more than an answer.
        CallersTurn(caller.wait(self.patience).then(|| Turn(set)))
    }

    /// Refuses waiting and future work, and does not wait for work in progress, so that a medium
    /// that does not answer blocks no caller. An owner at work ends by itself after it.
    pub fn abandon(&self) {
        for set in &self.sets {
            set.close();
            set.refuse_all("the queue sets were shut down");
        }
        let is_busy = |set: &Arc<Set<W>>| set.state.lock().schedule.is_busy();
        let owners = std::mem::take(&mut *self.owners.lock());
        for (owner, set) in owners.into_iter().zip(&self.sets) {
            if !is_busy(set) {
                // The owner has no work any more, and ends at once. If it panicked, it refused its
                // work.
                let _ = owner.join();
            }
        }
    }

    /// Refuses future work, carries out waiting work, and ends the owners. True if no owner
    /// panicked. Must not be called by work: it waits for all work.
    pub fn shut_down(&self) -> bool {
        for set in &self.sets {
            set.close();
        }
        let owners = std::mem::take(&mut *self.owners.lock());
        let mut all_ended_well = true;
        for owner in owners {
            all_ended_well &= owner.join();
        }
        all_ended_well
    }

    fn set(&self, number: usize) -> Option<&Arc<Set<W>>> {
        let wrapped = number.checked_rem(self.sets.len())?;
        self.sets.get(wrapped)
    }

    fn offer<'a>(
        &self,
        set: &'a Arc<Set<W>>,
        mut state: MutexGuard<'a, State<W>>,
        request: &Request,
        work: W,
    ) -> Offered<'a, W> {
        if state.is_closed {
            drop(state);
            work.refuse(closed());
            return Offered::Accepted;
        }
        if self.is_direct {
            drop(state);
            work.carry_out();
            return Offered::Accepted;
        }
        if request.is_small(self.small_bytes_max) && state.schedule.begin_if_idle() {
            drop(state);
            let turn = Turn(set);
            work.carry_out();
            drop(turn);
            return Offered::Accepted;
        }
        match state.schedule.push(request, Waiting::Work(work)) {
            Ok(()) => {
                set.begin(state);
                Offered::Accepted
            }
            Err(Waiting::Work(back)) => Offered::Full(state, back),
            // Only work was submitted, so only work is returned.
            Err(Waiting::Caller(_)) => Offered::Accepted,
        }
    }
}

impl<W: Work> Drop for Sets<W> {
    fn drop(&mut self) {
        // Owners that panicked have refused their work; there is no caller left to notify.
        let _ = self.shut_down();
    }
}

enum Offered<'a, W> {
    Accepted,
    Full(MutexGuard<'a, State<W>>, W),
}

impl<W> Set<W> {
    fn close(&self) {
        self.state.lock().is_closed = true;
        self.to_do.notify_all();
        self.room.notify_all();
    }

    /// Starts the next item, if none is in progress.
    fn begin(&self, mut state: MutexGuard<'_, State<W>>) {
        while let Some(next) = state.schedule.begin_next() {
            self.room.notify_one();
            match next {
                Waiting::Work(work) => {
                    assert!(
                        state.begun.is_none(),
                        "one work of a set is begun at a time"
                    );
                    state.begun = Some(work);
                    self.to_do.notify_one();
                    return;
                }
                Waiting::Caller(caller) if caller.decide(TurnState::Turn) => return,
                // The caller stopped waiting.
                Waiting::Caller(_) => state.schedule.done(),
            }
        }
        if state.is_closed {
            self.to_do.notify_all();
        }
    }
}

impl<W: Work> Set<W> {
    /// Refuses work that was not started, and started work that no thread carries out.
    fn refuse_all(&self, why: &str) {
        let mut state = self.state.lock();
        let mut left = state.schedule.take_all();
        if let Some(work) = state.begun.take() {
            state.schedule.done();
            left.push(Waiting::Work(work));
        }
        drop(state);
        for one in left {
            one.refuse(why);
        }
        self.to_do.notify_all();
    }
}

/// The right to carry out work of a set; it ends also when the work panics.
struct Turn<'a, W>(&'a Set<W>);

impl<W> Drop for Turn<'_, W> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.schedule.done();
        self.0.begin(state);
    }
}

/// A turn of a caller, from [`Sets::take_turn`]: until it is dropped, no other item of the set is
/// started.
#[must_use = "a turn is over when it is dropped"]
pub struct CallersTurn<'a, W>(Option<Turn<'a, W>>);

impl<W> fmt::Debug for CallersTurn<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallersTurn")
            .field(&self.0.is_some())
            .finish()
    }
}

/// The thread of a set. When it ends, also by a panic, all its work has been answered.
struct Owner<W: Work>(Arc<Set<W>>);

impl<W: Work> Owner<W> {
    fn run(self) {
        while let Some(work) = self.next() {
            let turn = Turn(&self.0);
            work.carry_out();
            drop(turn);
        }
    }

    /// Waits for work; `None` = the set was closed, and no item waits.
    fn next(&self) -> Option<W> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(work) = state.begun.take() {
                return Some(work);
            }
            if state.is_closed && state.schedule.waiting() == 0 {
                return None;
            }
            self.0.to_do.wait(&mut state);
        }
    }
}

impl<W: Work> Drop for Owner<W> {
    fn drop(&mut self) {
        self.0.close();
        self.0
            .refuse_all("the thread that carries out requests panicked");
    }
}

fn closed() -> io::Error {
    io::Error::other("the queue sets were shut down")
}
