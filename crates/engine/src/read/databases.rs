//! Several databases read as one: parts that are put and removed, and snapshots over all.
//!
//! Invariants: a snapshot shows each part as its own snapshot that was last put. Concurrency:
//! shared freely; parts are read through without the lock, so that a large one blocks no other.
//! Failure: a part that cannot be read through is not put, and the previous one stays.

use super::across::{Change, Keeper, Owners};
use super::added_tags::AddedTags;
use super::snapshot::Snapshot;
use crate::Result;
use parking_lot::Mutex;
use std::sync::Arc;

/// A database among several that are read together.
#[derive(Debug)]
pub struct SnapshotPart {
    /// Its name: the name of the node that owns the data.
    pub name: Arc<str>,
    /// Its position: parts of lower ranks come first, and parts of equal ranks are in the order of
    /// their names. The instant at which a node was added, or 0 for the node's own database.
    pub rank: u64,
    /// The shown state. A snapshot of one database.
    pub snapshot: Snapshot,
    /// Tags that are added to the names of all of its streams, wherever streams are named.
    pub tags: AddedTags,
}

/// Several databases that are read as one: a node that has copies of many, and perhaps a database
/// of its own. Parts are put and removed as they change, at the cost of the changes only; a
/// snapshot over all of them costs little. Cheap to clone; clones share the parts.
///
/// Tables and streams are the union of the tables and streams of all parts. Fields are matched by
/// name; a field that has another type in a later part also appears as `field@part`. All other
/// properties of a table come from the first part that has it. Parts are ordered by their ranks,
/// not by when they are put: a part that leaves and returns has its position again.
///
/// A stream that several parts have, under the names that [`AddedTags`] give to streams, has the
/// rows of all of them; of an instant the rows of the first part with rows at it, the rest is
/// reported by [`Snapshot::conflicts`]. [`Owners`] may say which parts own a stream, by stretches
/// of time: then no rows of others are shown. Where none of the owners is among the parts, reads
/// fail with [`crate::ErrorKind::Elsewhere`].
///
/// ```
/// use headwater_engine::{Across, AddedTags, Database, Options, SnapshotPart};
/// use headwater_types::{Batch, ClosedRange, StreamName};
/// let dir = tempfile::tempdir().unwrap();
/// let all = Across::default();
/// for (rank, name, id) in [(1, "edge-a", "1"), (2, "edge-b", "2")] {
///     let db = Database::open(Options::new(dir.path().join(name)))?;
///     let mut batch = Batch::new();
///     let pump = StreamName::new("pump", [("id", id)]);
///     batch.stream(&pump).row(5, [("rpm", 2150.0.into())]).unwrap();
///     db.commit(batch)?;
///     let tags = AddedTags::new([("site", name)])?;
///     all.replace(SnapshotPart { name: name.into(), rank, snapshot: db.snapshot()?, tags })?;
/// }
/// let snapshot = all.snapshot()?;
/// let pumps = snapshot.streams("pump", &[])?;
/// assert_eq!(pumps[0].to_string(), "pump,id=1,site=edge-a");
/// assert_eq!(snapshot.last(&pumps[1])?[0].value, 2150.0.into());
/// assert_eq!(snapshot.row_count("pump", ClosedRange::ALL, &mut || true)?, Some(2));
/// # Ok::<(), headwater_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Across {
    keeper: Arc<Mutex<Keeper>>,
}

impl Across {
    /// Puts a part at the position of its rank, or replaces the part of the same name. Of one open
    /// database the newest snapshot that was put stays. Its streams are read if its definitions may
    /// have changed ([`Snapshot::definitions`]).
    ///
    /// # Errors
    /// `invalid` for a snapshot of several databases, `corrupt`, `io`.
    pub fn replace(&self, part: SnapshotPart) -> Result<()> {
        let snapshot = part.snapshot.into_single()?;
        let mut change = Change::unseen(part.name, part.rank, snapshot, part.tags);
        loop {
            let before = self.keeper.lock().find(change.name());
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

    /// Records that the node knows a part that it cannot read, and why: nobody takes it for empty.
    /// Until the part is put or removed, questions about all streams or all tables, and about a
    /// stream that no other part has, fail with [`crate::ErrorKind::Elsewhere`]; see
    /// [`Snapshot::allowing_partial`]. A part of this name that was put before leaves.
    ///
    /// # Errors
    /// `internal`.
    pub fn set_unreadable(&self, name: &str, reason: &str) -> Result<()> {
        self.keeper.lock().set_unreadable(name, reason)
    }

    /// Sets the rules of ownership; `None` = each stream belongs to all parts that have it.
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
    /// Several databases as one, in the order of their ranks; see [`Across`], which can be updated.
    ///
    /// ```
    /// # use headwater_engine::{AddedTags, Database, Options, Snapshot, SnapshotPart};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    /// let here = Database::open(Options::new(here))?;
    /// let there = Database::open(Options::new(there))?;
    /// let both = Snapshot::of_parts(vec![
    ///     SnapshotPart {
    ///         name: "here".into(),
    ///         rank: 0,
    ///         snapshot: here.snapshot()?,
    ///         tags: AddedTags::default(),
    ///     },
    ///     SnapshotPart {
    ///         name: "there".into(),
    ///         rank: 1,
    ///         snapshot: there.snapshot()?,
    ///         tags: AddedTags::default(),
    ///     },
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
