//! A file as shared by all its handles in this process: its regions, and its unsynced writes.
//!
//! Invariants: one [`Node`] per file of the machine, as long as a handle of it is open; a region is
//! ready only below the length of the file. A write by calls is counted after the call has
//! returned, and synced up to a count. Concurrency: stores, and writes by calls, hold the lock of
//! the regions for reading; preparing regions, or changing the length, for writing. No other lock
//! is acquired under the registry's. Failure: a failed sync is retried by the next one, whose
//! success does not prove that earlier writes survived.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::lines::Lines;
use super::regions::{self, MappedRegion, REGION_BYTES};
use super::{Medium, Standing};
use crate::files::File;
use crate::system::{FileId, SystemFile, id_of};

/// The files that are open.
static NODES: Mutex<BTreeMap<FileId, Weak<Node>>> = Mutex::new(BTreeMap::new());

/// A file.
#[derive(Debug)]
pub(super) struct Node {
    medium: Medium,
    regions: RwLock<MappedRegions>,
    /// Number of returned writes by calls and changes of the length, plus one for those before the
    /// file was opened here.
    calls: AtomicU64,
    /// Number of those calls whose writes are durable.
    synced: Mutex<u64>,
}

#[derive(Debug, Default)]
struct MappedRegions {
    /// Guarantee of the file; known after the first request for a region.
    standing: Option<Standing>,
    /// MappedRegions by their start in the file.
    by_start: BTreeMap<u64, MappedRegion>,
}

impl Node {
    /// The node of an open file.
    pub(super) fn of(file: &SystemFile, medium: &Medium) -> io::Result<Arc<Node>> {
        let id = id_of(&file.0.metadata()?);
        let mut nodes = NODES.lock();
        if let Some(node) = nodes.get(&id).and_then(Weak::upgrade) {
            return Ok(node);
        }
        nodes.retain(|_, node| node.strong_count() > 0);
        let node = Arc::new(Node {
            medium: medium.clone(),
            regions: RwLock::default(),
            calls: AtomicU64::new(1),
            synced: Mutex::new(0),
        });
        nodes.insert(id, Arc::downgrade(&node));
        Ok(node)
    }

    /// Writes the parts inside regions through them, and the rest by calls.
    pub(super) fn write(&self, file: &SystemFile, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = u64::try_from(data.len())
            .ok()
            .and_then(|len| offset.checked_add(len));
        let (Some(lines), Some(end)) = (&self.medium.lines, end) else {
            return self.write_by_call(file, offset, data);
        };
        {
            let regions = self.regions.read();
            if regions.are_ready(offset, end) {
                regions.write(&**lines, offset, end, data);
                return Ok(());
            }
            if regions.standing == Some(Standing::Calls) || end > file.len()? {
                return self.write_by_call(file, offset, data);
            }
        }
        let mut regions = self.regions.write();
        match regions.populate(file, &self.medium, offset, end) {
            Ok(true) => {
                regions.write(&**lines, offset, end, data);
                Ok(())
            }
            // The reason why the file cannot be mapped, such as a full file system, matters to the
            // caller only if it cannot be written either; then the call reports it.
            Ok(false) | Err(_) => self.write_by_call(file, offset, data),
        }
    }

    fn write_by_call(&self, file: &SystemFile, offset: u64, data: &[u8]) -> io::Result<()> {
        let written = file.write_all_at(offset, data);
        // After an error, too, a part may have been written.
        self.calls.fetch_add(1, Ordering::AcqRel);
        written
    }

    /// Changes the length.
    pub(super) fn set_len(&self, file: &SystemFile, len: u64) -> io::Result<()> {
        let mut regions = self.regions.write();
        regions.truncate(len);
        let changed = file.set_len(len);
        self.calls.fetch_add(1, Ordering::AcqRel);
        changed
    }

    /// Makes pending writes durable: stores are durable when they return, so these are the writes
    /// by calls.
    pub(super) fn sync(&self, file: &SystemFile) -> io::Result<()> {
        let mut synced = self.synced.lock();
        let calls = self.calls.load(Ordering::Acquire);
        if *synced < calls {
            file.sync_data()?;
            *synced = calls;
        }
        Ok(())
    }
}

impl MappedRegions {
    fn are_ready(&self, offset: u64, end: u64) -> bool {
        parts(offset, end).all(|part| {
            self.by_start
                .get(&part.region)
                .is_some_and(|region| part.end() <= region.populated())
        })
    }

    /// Stores to regions that are ready, and waits until it is in memory.
    fn write(&self, lines: &dyn Lines, offset: u64, end: u64, data: &[u8]) {
        let mut rest = data;
        for part in parts(offset, end) {
            let (here, behind) = rest.split_at(part.len);
            let region = self.by_start.get(&part.region);
            assert!(region.is_some(), "a region at {} is ready", part.region);
            if let Some(region) = region {
                region.write(lines, part.at, here);
            }
            rest = behind;
        }
        lines.fence();
    }

    /// Prepares the file and the regions of a range for stores; false if that is not possible.
    fn populate(
        &mut self,
        file: &SystemFile,
        medium: &Medium,
        offset: u64,
        end: u64,
    ) -> io::Result<bool> {
        let len = file.len()?;
        if end > len {
            return Ok(false);
        }
        let standing = match self.standing.or(medium.assumed) {
            Some(standing) => standing,
            None => regions::standing_of(&file.0)?,
        };
        self.standing = Some(standing);
        if standing == Standing::Calls {
            return Ok(false);
        }
        for part in parts(offset, end) {
            let in_file = len.saturating_sub(part.region).min(REGION_BYTES);
            let in_file = usize::try_from(in_file).unwrap_or(usize::MAX);
            let region = match self.by_start.entry(part.region) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(MappedRegion::map(&file.0, part.region, standing)?)
                }
            };
            region.populate(&file.0, part.region, in_file)?;
        }
        Ok(true)
    }

    /// The file is going to have this length.
    fn truncate(&mut self, len: u64) {
        self.by_start.retain(|start, _| *start < len);
        for (start, region) in &mut self.by_start {
            region.truncate(usize::try_from(len.saturating_sub(*start)).unwrap_or(usize::MAX));
        }
    }
}

/// The part of a range inside one region.
struct RegionPart {
    /// Offset of the region in the file.
    region: u64,
    /// Offset of the part in the region.
    at: usize,
    len: usize,
}

impl RegionPart {
    fn end(&self) -> usize {
        self.at.saturating_add(self.len)
    }
}

fn parts(offset: u64, end: u64) -> impl Iterator<Item = RegionPart> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let inside = at % REGION_BYTES;
        let len = (REGION_BYTES - inside).min(end - at);
        let part = RegionPart {
            region: at - inside,
            at: usize::try_from(inside).unwrap_or(usize::MAX),
            len: usize::try_from(len).unwrap_or(usize::MAX),
        };
        at = at.saturating_add(len);
        Some(part)
    })
}
