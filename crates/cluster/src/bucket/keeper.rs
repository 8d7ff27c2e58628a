//! Uploads new contents of copies into the bucket while a node serves.
//!
//! Invariants: the fleet learns that a range is in the bucket after the commit that contains it.
//! Garbage is collected when packs were dropped, and never during a commit.
//! Concurrency: one task; it waits for the commits that the lease's task carries out.
//! Failure: a failed upload is tried again with the next commit.

use super::gather::{Gathered, Marks, gather};
use super::lease::Bucket;
use super::restore::write_mark;
use crate::EdgeCopies;
use crate::settings::{BucketSettings, Confirm};
use headwater_bucket::{Collector, Committed, Contents, carry_out};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const LOOK: Duration = Duration::from_millis(20);
/// Time limit of the last commit and of releasing the group.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Number of unreferenced packs that are removed together.
const GARBAGE: usize = 32;

/// Task that uploads the copies of a fleet to a bucket.
#[derive(Debug)]
pub struct Keeper {
    bucket: Arc<Bucket>,
    fleet: Arc<EdgeCopies>,
    dir: PathBuf,
    every: Duration,
    contents: Contents,
    marks: Marks,
    /// Epoch under which the copies of this node are marked as the newest.
    epoch: u64,
    garbage: usize,
}

impl Keeper {
    /// Creates a keeper from the bucket's current contents.
    pub fn new(
        bucket: &Arc<Bucket>,
        fleet: &Arc<EdgeCopies>,
        settings: &BucketSettings,
        dir: &Path,
        contents: Contents,
    ) -> Keeper {
        if settings.confirm == Confirm::Bucket {
            fleet.confirm_when_persisted();
        }
        Keeper {
            bucket: Arc::clone(bucket),
            fleet: Arc::clone(fleet),
            dir: dir.to_owned(),
            every: settings.commit_every,
            contents,
            marks: Marks::default(),
            epoch: 0,
            garbage: 0,
        }
    }

    fn has_ended(&self) -> bool {
        self.bucket.ended().borrow().is_some()
    }

    /// Runs until the stop, then releases the group.
    pub async fn run(mut self, stopping: watch::Receiver<bool>) {
        while !self.has_ended() && !*stopping.borrow() {
            let begun = self.bucket.now().monotonic;
            let Some((keeper, more)) = self.round().await else {
                return;
            };
            self = keeper;
            let due = begun + if more { LOOK } else { self.every };
            while self.bucket.now().monotonic < due
                && !*stopping.borrow()
                && self.fleet.roster_version() == self.marks.roster
                && !self.has_ended()
            {
                tokio::time::sleep(LOOK).await;
            }
        }
        if !self.has_ended() {
            let bucket = Arc::clone(&self.bucket);
            // Data that is not committed by then was not confirmed either.
            let last = tokio::time::timeout(END_WITHIN, self.round()).await;
            tracing::debug!(is_through = last.is_ok(), "the last commit");
            bucket.give_back(END_WITHIN).await;
        }
    }

    /// Commits all pending changes. True when more are pending; `None` when the server is aborted.
    async fn round(mut self) -> Option<(Keeper, bool)> {
        let Some(head) = self.bucket.holder.lock().head().cloned() else {
            return Some((self, false));
        };
        self.mark(head.epoch);
        let gathering = tokio::task::spawn_blocking(move || {
            let gathered = gather(&self.fleet, &self.contents, &head, &self.marks);
            (self, gathered)
        });
        let (keeper, gathered) = match gathering.await {
            Ok(gathered) => gathered,
            Err(error) => {
                tracing::error!(%error, "this node has stopped writing to the bucket");
                return None;
            }
        };
        self = keeper;
        let gathered = match gathered {
            Ok(gathered) => gathered,
            Err(error) => {
                tracing::warn!(%error, "writing to the bucket failed");
                return Some((self, false));
            }
        };
        let more = gathered.more;
        if gathered.is_empty() {
            self.set_persisted(gathered);
        } else if let Some((gathered, committed)) = self.commit(gathered).await {
            self.has_committed(gathered, &committed);
        } else {
            return Some((self, false));
        }
        if self.garbage >= GARBAGE {
            self.garbage = 0;
            self = self.collect().await;
        }
        Some((self, more))
    }

    /// Records that the copies of this node are the newest of this epoch.
    fn mark(&mut self, epoch: u64) {
        if self.epoch != epoch {
            match write_mark(&self.dir, self.bucket.group, epoch) {
                Ok(()) => self.epoch = epoch,
                // The copies are restored at the next start then.
                Err(error) => tracing::warn!(%error, "the epoch of the bucket cannot be stored"),
            }
        }
    }

    /// Commits; `None` when the group was lost.
    async fn commit(&self, mut gathered: Gathered) -> Option<(Gathered, Committed)> {
        let mut change = Some(std::mem::take(&mut gathered.change));
        loop {
            {
                let mut holder = self.bucket.holder.lock();
                let now = self.bucket.now();
                if holder.is_ready(now)
                    && let Some(change) = change.take()
                {
                    gathered.change.dropped = change.dropped.clone();
                    gathered.change.removed = change.removed.clone();
                    holder.commit(now, change);
                }
                if let Some(committed) = holder.take_committed() {
                    return Some((gathered, committed));
                }
            }
            if self.has_ended() {
                return None;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn has_committed(&mut self, gathered: Gathered, committed: &Committed) {
        for name in &gathered.change.removed {
            self.contents.remove(name);
            self.marks.copies.remove(name);
        }
        for (number, index) in &committed.packs {
            self.contents.apply(*number, index);
        }
        self.garbage += gathered.change.dropped.len();
        self.set_persisted(gathered);
    }

    fn set_persisted(&mut self, gathered: Gathered) {
        for (name, mark, carried) in gathered.carried {
            self.fleet.set_persisted(&name, mark, &carried);
            self.marks.copies.insert(name, mark);
        }
        if let Some(version) = gathered.roster {
            self.fleet.set_roster_persisted(version);
            self.marks.roster = version;
        }
    }

    /// Removes packs that no head names.
    async fn collect(self) -> Keeper {
        let bucket = Arc::clone(&self.bucket);
        let collecting = tokio::task::spawn_blocking(move || {
            let mut collector = Collector::new(bucket.group, Arc::clone(&bucket.env.chance));
            while let Some(request) = collector.next_request() {
                collector.take(carry_out(&bucket.store, &request));
            }
            collector.outcome()
        });
        match collecting.await {
            Ok(Some(Ok(found))) => {
                tracing::debug!(
                    deleted = found.deleted,
                    bytes = found.bytes,
                    "garbage was removed from the bucket"
                );
            }
            Ok(Some(Err(error))) => {
                tracing::warn!(%error, "garbage in the bucket cannot be removed")
            }
            Ok(None) | Err(_) => {}
        }
        self
    }
}
