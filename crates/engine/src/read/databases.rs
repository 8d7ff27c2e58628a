//! Several databases read as one: parts that are put and removed, and snapshots over all.
//!
//! Invariants: a snapshot shows each part as its own snapshot that was last put. Concurrency:
//! shared freely; parts are read through without the lock, so that a large one blocks no other.
//! Failure: a part that cannot be read through is not put, and the previous one stays.

use super::across::{Change, Keeper, Owners};
use super::snapshot::Snapshot;
use crate::Result;
use parking_lot::Mutex;
use std::sync::Arc;

/// A database among several that are read together.
#[derive(Debug)]
pub struct SnapshotPart {
    /// Its name: the name of the node that owns the data.
    pub name: Arc<str>,
    /// The shown state. A snapshot of one database.
    pub snapshot: Snapshot,
}

/// Several databases that are read as one: a node that has copies of many, and perhaps a database
/// of its own. Parts are put and removed as they change, at the cost of the changes only; a
/// snapshot over all of them costs little. Cheap to clone; clones share the parts.
///
/// Tables and streams are the union of the tables and streams of all parts. Fields are matched by
/// name; a field that has another type in a later part also appears as `field@part`. All other
/// properties of a table come from the first part that has it. Parts are ordered by when their
/// names were first put: a node's own database, then its oldest copy.
///
/// Each instant of a stream belongs to one part: as [`Owners`] determine, otherwise the first part
/// that has the stream. Data of other parts at that instant is not shown, and is reported by
/// [`Snapshot::conflicts`]. Where the owner is not among the parts, reads fail with
/// [`crate::ErrorKind::Elsewhere`].
///
/// ```
/// use headwater_engine::{Across, Database, Options, SnapshotPart};
/// use headwater_types::{Batch, ClosedRange, StreamName};
/// let dir = tempfile::tempdir().unwrap();
/// let all = Across::default();
/// for (name, id) in [("edge-a", "1"), ("edge-b", "2")] {
///     let db = Database::open(Options::new(dir.path().join(name)))?;
///     let mut batch = Batch::new();
///     let pump = StreamName::new("pump", [("id", id)]);
///     batch.stream(&pump).row(5, [("rpm", 2150.0.into())]).unwrap();
///     db.commit(batch)?;
///     all.replace(SnapshotPart { name: name.into(), snapshot: db.snapshot()? })?;
/// }
/// let snapshot = all.snapshot()?;
/// let pumps = snapshot.streams("pump", &[])?;
/// assert_eq!(pumps.len(), 2);
/// assert_eq!(snapshot.last(&pumps[1])?[0].value, 2150.0.into());
/// assert_eq!(snapshot.row_count("pump", ClosedRange::ALL, &mut || true)?, Some(2));
/// # Ok::<(), headwater_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Across {
    keeper: Arc<Mutex<Keeper>>,
}

impl Across {
    /// Puts a part after the existing ones, or replaces the part of the same name. Of one open
    /// database the newest snapshot that was put stays. Its streams are read if its definitions may
    /// have changed ([`Snapshot::definitions`]).
    ///
    /// # Errors
    /// `invalid` for a snapshot of several databases, `corrupt`, `io`.
    pub fn replace(&self, part: SnapshotPart) -> Result<()> {
        let snapshot = part.snapshot.into_single()?;
        let mut change = Change::unseen(part.name, snapshot);
        loop {
            let before = self.keeper.lock().known(change.name());
            change.look(before.as_deref())?;
            // Another thread has put the part in between, so `change` was compared with an old one.
            match self.keeper.lock().put(change)? {
                None => return Ok(()),
                Some(again) => change = again,
            }
        }
    }

    /// Removes a part; its data are `elsewhere` where [`Owners`] assign them to it.
    ///
    /// # Errors
    /// `internal`.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.keeper.lock().remove(name)
    }

    /// Sets the rules of ownership; `None` = each stream belongs to the first part that has it.
    pub fn set_owners(&self, owners: Option<Owners>) {
        self.keeper.lock().set_owners(owners);
    }

    /// A snapshot of all parts, each as it was last put.
    ///
    /// # Errors
    /// `internal`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.keeper.lock().snapshot().map(Snapshot::across)
    }
}

impl Snapshot {
    /// Several databases as one, in the order of the parts; see [`Across`], which can be updated.
    ///
    /// ```
    /// # use headwater_engine::{Database, Options, Snapshot, SnapshotPart};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    /// let here = Database::open(Options::new(here))?;
    /// let there = Database::open(Options::new(there))?;
    /// let both = Snapshot::of_parts(vec![
    ///     SnapshotPart { name: "here".into(), snapshot: here.snapshot()? },
    ///     SnapshotPart { name: "there".into(), snapshot: there.snapshot()? },
    /// ])?;
    /// assert!(both.table_names().is_empty());
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Across::replace`].
    pub fn of_parts(parts: Vec<SnapshotPart>) -> Result<Snapshot> {
        let all = Across::default();
        for part in parts {
            all.replace(part)?;
        }
        all.snapshot()
    }
}
