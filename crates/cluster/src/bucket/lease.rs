//! Lease of the group of copies that a node owns in a bucket: acquired before anything is opened,
//! renewed as long as the node runs.
//!
//! Invariants: one request for the head is in flight at a time, and at most one pack at the same
//! time, so that the lease is renewed however long a pack takes. No other code drives the state
//! machine. Concurrency: two tasks; the machine is under a lock that is never held across a
//! request. Failure: reported by [`Bucket::ended`].

use crate::settings::BucketSettings;
use crate::start_error::StartError;
use headwater_bucket::{
    Address, Answer, BucketError, Counted, DayCounts, Holder, Member, Now, ObjectStore, Request,
    carry_out, open_store,
};
use headwater_io::Env;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Interval of polling the state machine for a request.
const LOOK: Duration = Duration::from_millis(20);
/// Interval of log lines while a node waits for its group.
const SAY: Duration = Duration::from_secs(30);

/// Bucket, and this node's lease in it.
#[derive(Debug)]
pub struct Bucket {
    pub(crate) store: Counted<Arc<dyn ObjectStore>>,
    pub(crate) env: Env,
    pub(crate) group: u32,
    pub(crate) holder: Mutex<Holder>,
    /// Set when the lease is lost: the reason.
    ended: watch::Sender<Option<String>>,
}

impl Bucket {
    /// Opens the bucket of the settings; `None` when the settings have no bucket. `name` is the
    /// node's name in its lease, for messages.
    ///
    /// # Errors
    /// When the bucket's address or credentials cannot be used.
    pub fn open(
        settings: &BucketSettings,
        name: String,
        env: &Env,
    ) -> Result<Option<Arc<Bucket>>, StartError> {
        let Some(address) = &settings.bucket else {
            return Ok(None);
        };
        let address: Address = address.parse().map_err(|e| failed(&e))?;
        let clock = Arc::clone(&env.clock);
        let store = open_store(&address, &|name| std::env::var(name).ok(), clock);
        let me = Member {
            node: env.chance.next_u64(),
            name,
            // Settings limit the lease to an hour.
            lease_millis: u32::try_from(settings.lease.as_millis()).unwrap_or(u32::MAX),
        };
        let group = settings.group;
        Ok(Some(Arc::new(Bucket {
            store: Counted::new(store.map_err(|e| failed(&e))?, Arc::clone(&env.clock)),
            group,
            holder: Mutex::new(Holder::new(me, group, Arc::clone(&env.chance))),
            env: env.clone(),
            ended: watch::Sender::new(None),
        })))
    }

    /// Both clocks of the node.
    pub fn now(&self) -> Now {
        Now {
            monotonic: self.env.clock.monotonic(),
            wall: self.env.clock.now(),
        }
    }

    /// Requests to the bucket since the start.
    pub fn counts(&self) -> DayCounts {
        self.store.total()
    }

    /// Set when the lease is lost without being released.
    pub fn ended(&self) -> watch::Receiver<Option<String>> {
        self.ended.subscribe()
    }

    /// Acquires the group, however long that takes, and has a task renew its lease.
    pub async fn take(self: &Arc<Self>) -> Result<(), StartError> {
        tokio::spawn(Arc::clone(self).run_requests());
        tokio::spawn(Arc::clone(self).upload());
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut ended = self.ended();
        let mut said = self.now().monotonic;
        loop {
            if self.holder.lock().is_ready(self.now()) {
                return Ok(());
            }
            if let Some(why) = ended.borrow_and_update().clone() {
                return Err(StartError::Bucket(why));
            }
            let now = self.now().monotonic;
            if now >= said {
                said = now + SAY;
                let trouble = self.holder.lock().trouble().map(str::to_owned);
                let trouble = trouble.unwrap_or_default();
                tracing::info!(
                    group = self.group,
                    trouble,
                    "waiting for the lease of the group of copies"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = term.recv() => return Err(stopped()),
                _ = interrupt.recv() => return Err(stopped()),
            }
        }
    }

    /// Carries out requests of the state machine until the group is released or lost.
    async fn run_requests(self: Arc<Self>) {
        let mut has_held = false;
        loop {
            let request = {
                let mut holder = self.holder.lock();
                has_held |= holder.is_ready(self.now());
                if holder.is_done() {
                    return;
                }
                let failed = holder.failed().map(ToString::to_string);
                let lost = holder.take_lost() && has_held;
                let lost = lost.then(|| {
                    "another node holds the lease of the group of copies, or the lease has expired; restart this node to wait for the lease (E_BUCKET_LOST)".to_owned()
                });
                if let Some(why) = failed.or(lost) {
                    self.ended.send_replace(Some(why));
                    return;
                }
                holder.next(self.now())
            };
            let Some(request) = request else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let Some(answer) = self.carried_out(request).await else {
                return;
            };
            self.holder.lock().take(self.now(), answer);
        }
    }

    /// Carries out a request; `None` when that panicked, which ends the lease.
    async fn carried_out(self: &Arc<Self>, request: Request) -> Option<Answer> {
        let bucket = Arc::clone(self);
        let asked = move || carry_out(&bucket.store, &request);
        let answered = tokio::task::spawn_blocking(asked).await;
        let failed =
            |error: tokio::task::JoinError| self.ended.send_replace(Some(error.to_string()));
        answered.map_err(failed).ok()
    }

    /// Uploads packs until the group is released or lost.
    async fn upload(self: Arc<Self>) {
        loop {
            let request = {
                let mut holder = self.holder.lock();
                let is_over = holder.is_done() || holder.failed().is_some();
                if is_over || self.ended.borrow().is_some() {
                    return;
                }
                holder.next_pack(self.now())
            };
            let Some(request) = request else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let Some(answer) = self.carried_out(request).await else {
                return;
            };
            self.holder.lock().take_pack(self.now(), &answer);
        }
    }

    /// Releases the group, so that another node need not wait; stops trying after `within`.
    pub async fn give_back(&self, within: Duration) {
        self.holder.lock().give_back();
        let until = self.now().monotonic + within;
        let is_over = || {
            let holder = self.holder.lock();
            holder.is_done() || self.ended.borrow().is_some()
        };
        while !is_over() && self.now().monotonic < until {
            tokio::time::sleep(LOOK).await;
        }
    }
}

pub(super) fn failed(error: &BucketError) -> StartError {
    StartError::Bucket(format!("{error} ({})", error.kind().code()))
}

fn stopped() -> StartError {
    StartError::Bucket("stopped while waiting for the lease of the group of copies".to_owned())
}
