//! Restores the copies of a node from a bucket.
//!
//! Invariants: local copies are used only if this node owned the group last: the file
//! `bucket.epoch` names the epoch, and is written after everything is restored. An interrupted
//! restoration starts over. Concurrency: runs before any other code opens the copies. Failure: an
//! error stops the start, and leaves the copies that were moved aside.

use super::gather::ROSTER;
use super::lease::{Bucket, failed};
use crate::start_error::StartError;
use crate::{ClusterError, restore_copy, restore_roster, set_copies_aside};
use headwater_bucket::{BucketError, Contents, Head};
use headwater_shell::replace_private;
use std::path::{Path, PathBuf};

/// Reason why a copy is not restored.
enum Failed {
    Bucket(BucketError),
    Fleet(ClusterError),
    Copy(String),
}

impl From<BucketError> for Failed {
    fn from(error: BucketError) -> Failed {
        Failed::Bucket(error)
    }
}

impl From<Failed> for StartError {
    fn from(error: Failed) -> StartError {
        match error {
            Failed::Bucket(error) => failed(&error),
            Failed::Fleet(error) => StartError::Fleet(error),
            Failed::Copy(text) => StartError::Bucket(text),
        }
    }
}

fn mark_path(dir: &Path) -> PathBuf {
    dir.join("bucket.epoch")
}

/// Group and epoch that this node owned last, as the file states them.
fn mark(group: u32, epoch: u64) -> String {
    format!("{group} {epoch}\n")
}

/// Records that the local copies are at this epoch or newer.
pub(super) fn write_mark(dir: &Path, group: u32, epoch: u64) -> std::io::Result<()> {
    replace_private(&mark_path(dir), mark(group, epoch).as_bytes())
}

/// True when no other node has owned the group since this node did, so the local copies are at
/// least as new as the bucket.
fn is_own(dir: &Path, head: &Head) -> bool {
    let before = mark(head.group, head.epoch.saturating_sub(1));
    std::fs::read_to_string(mark_path(dir)).is_ok_and(|found| found == before)
}

impl Bucket {
    /// Restores the copies in a directory where they differ from the bucket, and reads the bucket's
    /// contents.
    pub fn restore(&self, dir: &Path) -> Result<Contents, StartError> {
        let held = self.holder.lock().head().cloned();
        let head = held.ok_or_else(|| {
            StartError::Bucket(
                "this node does not hold the lease of the group of copies yet".to_owned(),
            )
        })?;
        // The head was written by this node: no object that it names is removed.
        let contents = Contents::load(&self.store, &head).map_err(|e| failed(&e))?;
        let is_empty = head.copies.is_empty();
        if !is_empty && !is_own(dir, &head) {
            set_copies_aside(dir)?;
            for name in contents.names() {
                self.restore_one(dir, &head, &contents, name)?;
            }
            tracing::info!(
                group = self.group,
                epoch = head.epoch,
                copies = head.copies.len(),
                "the copies were restored from the bucket"
            );
        }
        write_mark(dir, self.group, head.epoch)?;
        Ok(contents)
    }

    fn restore_one(
        &self,
        dir: &Path,
        head: &Head,
        contents: &Contents,
        name: &str,
    ) -> Result<(), Failed> {
        if name == ROSTER {
            let mut nothing = |_, _: &[u8]| Ok(());
            let found = contents.restore::<Failed>(&self.store, head, name, &mut nothing)?;
            return match found {
                Some(found) => restore_roster(dir, &found.description).map_err(Failed::Fleet),
                None => Ok(()),
            };
        }
        let of = |e: &dyn std::fmt::Display| Failed::Copy(format!("the copy of `{name}`: {e}"));
        let copy = restore_copy(self.env.clone(), dir, name);
        let mut copy = copy.map_err(Failed::Fleet)?;
        let mut put = |range: headwater_bucket::Range, bytes: &[u8]| {
            let put = copy.put(range.segment, range.offset, bytes);
            put.map_err(|e| of(&e))
        };
        let Some(found) = contents.restore(&self.store, head, name, &mut put)? else {
            return Ok(());
        };
        copy.finish(&found.description).map_err(|e| of(&e))
    }
}
