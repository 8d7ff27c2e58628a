//! The named snapshots of an open database.

use super::record::SnapshotRecord;
use crate::Result;
use crate::common::error::Error;
use crate::common::ids::SegmentId;
use crate::metadata::tables::Meta;
use crate::storage::segment::SegmentFile;
use crate::storage::segment::Store;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A named snapshot that has not ended.
#[derive(Debug)]
pub(crate) struct NamedSnapshot {
    pub(crate) number: u64,
    pub(crate) record: SnapshotRecord,
    /// Files of the segments in the record, in the same order.
    pub(crate) files: Arc<[Arc<SegmentFile>]>,
    /// The value that was last opened to read the snapshot; its type is known to the module that
    /// opens it.
    pub(crate) opened: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl NamedSnapshot {
    pub(crate) fn new(
        number: u64,
        record: SnapshotRecord,
        files: Vec<Arc<SegmentFile>>,
    ) -> NamedSnapshot {
        NamedSnapshot {
            number,
            record,
            files: files.into(),
            opened: Mutex::new(None),
        }
    }

    /// The name under which deletes are retained for the snapshot.
    pub(crate) fn keeper(&self) -> String {
        self.number.to_string()
    }

    /// Its segments that only snapshots refer to, and their bytes.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = (SegmentId, u64)> + '_ {
        let segments = self.record.segments.iter().zip(self.files.iter());
        let replaced = segments.filter(|(_, file)| file.is_replaced());
        replaced.map(|(segment, _)| *segment)
    }
}

/// The snapshots of an open database.
#[derive(Debug, Default)]
pub(crate) struct NamedSnapshots(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By number, in the order of creation.
    there: BTreeMap<u64, Arc<NamedSnapshot>>,
    /// Snapshots that ended without being dropped and are remembered.
    ended: BTreeMap<u64, SnapshotRecord>,
    /// The next number.
    next: u64,
    /// Before this moment no further snapshot ends because the disk is full.
    patient_until: Option<Duration>,
}

impl NamedSnapshots {
    /// Creates the list from the records of the metadata. `live` has the files of the segments of
    /// partitions.
    pub(crate) fn load(
        meta: &Meta,
        store: &Store,
        live: &HashMap<SegmentId, Arc<SegmentFile>>,
    ) -> Result<NamedSnapshots> {
        let mut inner = Inner {
            next: 1,
            ..Inner::default()
        };
        let mut kept: HashMap<SegmentId, Arc<SegmentFile>> = HashMap::new();
        for (number, bytes) in meta.snapshots()? {
            let record = SnapshotRecord::decode(&bytes);
            let record = record.map_err(|e| Error::decode(meta.path(), 0, e))?;
            inner.next = inner.next.max(number.saturating_add(1));
            if record.ended.is_some() {
                inner.ended.insert(number, record);
                continue;
            }
            let mut files = Vec::with_capacity(record.segments.len());
            for (id, _) in &record.segments {
                let file = match live.get(id) {
                    Some(file) => Arc::clone(file),
                    None => {
                        let file = kept.entry(*id).or_insert_with(|| store.retained_file(*id));
                        Arc::clone(file)
                    }
                };
                file.keep();
                files.push(file);
            }
            let snapshot = Arc::new(NamedSnapshot::new(number, record, files));
            inner.there.insert(number, snapshot);
        }
        Ok(NamedSnapshots(Mutex::new(inner)))
    }

    /// All snapshots, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<NamedSnapshot>> {
        self.0.lock().there.values().cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().there.is_empty()
    }

    /// The snapshot of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<NamedSnapshot>> {
        let inner = self.0.lock();
        let mut there = inner.there.values();
        there.find(|s| s.record.name == name).cloned()
    }

    /// The newest snapshot of this name that ended without being dropped, if it is remembered.
    pub(crate) fn find_ended(&self, name: &str) -> Option<SnapshotRecord> {
        let inner = self.0.lock();
        let mut ended = inner.ended.values().rev();
        ended.find(|record| record.name == name).cloned()
    }

    /// Snapshots that ended without being dropped and are remembered, the oldest first, by number.
    pub(crate) fn ended(&self) -> Vec<(u64, SnapshotRecord)> {
        let inner = self.0.lock();
        let ended = inner.ended.iter();
        ended.map(|(n, record)| (*n, record.clone())).collect()
    }

    /// A number that no snapshot has had.
    pub(crate) fn take_number(&self) -> u64 {
        let mut inner = self.0.lock();
        let number = inner.next.max(1);
        inner.next = number.saturating_add(1);
        number
    }

    /// Adds a snapshot that is in the metadata.
    pub(crate) fn put(&self, snapshot: Arc<NamedSnapshot>) {
        self.0.lock().there.insert(snapshot.number, snapshot);
    }

    /// Removes a snapshot that is not in the metadata any more, and releases its files. The record
    /// of a snapshot that ended without being dropped stays; the remembered snapshots with the
    /// numbers in `forget` are removed.
    pub(crate) fn take_away(&self, number: u64, ended: Option<SnapshotRecord>, forget: &[u64]) {
        let gone = {
            let mut inner = self.0.lock();
            if let Some(record) = ended {
                inner.ended.insert(number, record);
            }
            for number in forget {
                inner.ended.remove(number);
            }
            inner.there.remove(&number)
        };
        if let Some(gone) = gone {
            for file in gone.files.iter() {
                file.let_go();
            }
            // Without the lock: the last reference to a file removes it.
            *gone.opened.lock() = None;
        }
    }

    /// Bytes of files that only snapshots retain.
    pub(crate) fn retained_bytes(&self) -> u64 {
        let all = self.all();
        let mut files: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for (id, bytes) in all.iter().flat_map(|s| s.replaced()) {
            let known = files.entry(id).or_default();
            *known = bytes.max(*known);
        }
        files.values().sum()
    }

    /// True when a snapshot may end now because the disk is full.
    pub(crate) fn may_end_for_space(&self, now: Duration) -> bool {
        self.0.lock().patient_until.is_none_or(|until| now >= until)
    }

    /// Allows the next end at `at`: the bytes that the last end freed are counted first.
    pub(crate) fn defer_next_end(&self, at: Duration) {
        self.0.lock().patient_until = Some(at);
    }
}
