//! Hashes of groups that were written by versions without hashes, or by a repair: read and hashed a
//! part at a time, on request.
//!
//! Invariants: a stored hash is of bytes below the committed length, and is stored only if the
//! segment is still the one that was read. Concurrency: one transaction of the metadata at a time;
//! jobs and writers go on meanwhile. Failure: a segment that cannot be read is left out, and read
//! again the next time. After a failed transaction the database latches.

use crate::common::ids::SegmentId;
use crate::core::Core;
use crate::metadata::ledger::{self, GroupHasher, GroupHashes, Hash};
use crate::storage::segment::{HEADER_BYTES, Partition};
use crate::{Database, Error, Result};
use headwater_io::File;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that are read at a time.
const READ_BYTES: u64 = 1 << 20;

impl Database {
    /// Hashes groups of segments without known hashes, reading about `bytes_max` bytes; true when
    /// all are hashed, except for segments that cannot be read. Groups that are written from now on
    /// do not need this.
    ///
    /// # Errors
    /// `closed`, `io` and `full` when the metadata cannot be written.
    pub fn complete_ledger(&self, bytes_max: u64) -> Result<bool> {
        let core = self.own_core()?;
        core.log.check()?;
        let mut left = bytes_max.max(1);
        for partition in unproven(core)? {
            match prove(core, &partition, &mut left) {
                Ok(()) => {}
                Err(Failed::Here(error)) => return Err(error),
                Err(Failed::There(error)) => {
                    let segment = partition.id().0;
                    tracing::warn!(%error, segment, "cannot hash a segment");
                }
            }
            if left == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

enum Failed {
    /// No more writes are possible.
    Here(Error),
    /// This segment cannot be read.
    There(Error),
}

/// Partitions whose head of the chain is not known, from the metadata.
fn unproven(core: &Core) -> Result<Vec<Partition>> {
    let mut held: BTreeMap<SegmentId, Arc<Partition>> = BTreeMap::new();
    for shard in &core.shards {
        let state = shard.state.lock();
        held.extend(state.partitions.all().map(|p| (p.id(), Arc::clone(p))));
    }
    let named = core.meta.partitions()?.into_iter();
    // The hashes of freed rows were known, and cannot be computed again.
    let stubs = core.store.stubs();
    let unproven = named.filter(|(id, record)| record.chain.is_none() && !stubs.is_freed(*id));
    let with_file = unproven.filter_map(|(id, record)| {
        // A newer one is processed the next time.
        let held = held.get(&id)?;
        let file = Arc::clone(&held.file);
        Some(Partition::with(record, file, held.unreadable.clone()))
    });
    Ok(with_file.collect())
}

/// Hashes groups of a segment while bytes are left in the budget.
fn prove(core: &Core, partition: &Partition, left: &mut u64) -> std::result::Result<(), Failed> {
    let id = partition.id();
    let (mut new, mut chain) = (Vec::new(), None);
    let hashed = hash_groups(core, partition, left, &mut new, &mut chain);
    if !new.is_empty() || chain.is_some() {
        let _one_at_a_time = core.commits.begin();
        let put = core
            .meta
            .put_hashes(id, &partition.record, &new, chain)
            .inspect_err(|error| core.log.latch(error.clone()));
        put.map_err(Failed::Here)?;
    }
    hashed.map_err(Failed::There)
}

fn hash_groups(
    core: &Core,
    partition: &Partition,
    left: &mut u64,
    new: &mut Vec<GroupHashes>,
    head: &mut Option<Hash>,
) -> Result<()> {
    let id = partition.id();
    let footers = core.store.indexes(partition)?;
    let known = core.meta.hashes(id)?;
    let reading = Reading {
        core,
        id,
        file: core.store.cached_file(id)?,
    };
    let mut header = Vec::new();
    reading.each(0, HEADER_BYTES, |bytes| header.extend_from_slice(bytes))?;
    let mut chain = ledger::begin(&header);
    let mut start = HEADER_BYTES;
    for (index_at, index_bytes) in &*footers {
        let end = index_at + u64::from(*index_bytes);
        let group = match known.iter().find(|group| group.end == end) {
            Some(group) => group.clone(),
            None if *left == 0 => return Ok(()),
            None => {
                *left = left.saturating_sub(end - start);
                let mut hasher = GroupHasher::default();
                reading.each(start, *index_at, |bytes| hasher.put(bytes))?;
                // Upper blocks had no location of their own.
                hasher.upper_from(*index_at);
                reading.each(*index_at, end, |bytes| hasher.put(bytes))?;
                let group = hasher.finish(end);
                new.push(group.clone());
                group
            }
        };
        chain = ledger::next(&chain, &group);
        start = end;
    }
    *head = Some(chain);
    Ok(())
}

/// A segment that is being read.
struct Reading<'a> {
    core: &'a Core,
    id: SegmentId,
    file: Arc<dyn File>,
}

impl Reading<'_> {
    fn each(&self, from: u64, to: u64, mut take: impl FnMut(&[u8])) -> Result<()> {
        let mut at = from;
        while at < to {
            let bytes = (to - at).min(READ_BYTES);
            let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            self.file
                .read_exact_at(at, &mut buffer)
                .map_err(|e| Error::io("read", &self.core.store.path(self.id), e))?;
            take(&buffer);
            at += bytes;
        }
        Ok(())
    }
}
