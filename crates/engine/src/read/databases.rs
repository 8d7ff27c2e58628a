//! Several databases under one roof: parts that are put and taken out, and snapshots over all.
//!
//! Invariants: a snapshot shows of each part the state of the part's own snapshot that was put
//! last.
//! Concurrency: shared freely; parts are looked through without the lock, so that a large one
//! blocks no other.
//! Failure: a part that cannot be looked through is not put, and the one before stays.

use super::across::{Change, Keeper, Owners};
use super::snapshot::Snapshot;
use crate::Result;
use parking_lot::Mutex;
use std::sync::Arc;

/// A database among several that are read together.
#[derive(Debug)]
pub struct SnapshotPart {
    /// Its name: the name of the node it comes from.
    pub name: Arc<str>,
    /// The state that is shown of it. Not one of several databases.
    pub snapshot: Snapshot,
}

/// Several databases that are read as one: a node that has copies of many, and perhaps a database
/// of its own. Parts are put and removed as they change, at a cost of the changes only; a snapshot
/// over all of them costs little. Cheap to clone; clones share the parts.
///
/// Tables are the union of those of all parts, and so are their streams. A field is known by its
/// name; where its type differs in a later part, it is also there as `field@part`. All other
/// properties of a table are those of the first part that has it. Parts stand in the order in which
/// their names were put first: a node's own database, then its oldest copy.
///
/// Each instant of a stream belongs to one part: as [`Owners`] say, otherwise the first part that
/// has the stream. Data of other parts at that instant is not shown, and is reported by
/// [`Snapshot::conflicts`]. Where the owner is not among the parts, reads are
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
    /// Puts a part behind the existing ones, or replaces the one of its name. Of one open database
    /// the newest snapshot that was put stays. Its streams are looked through if its definitions
    /// may have changed ([`Snapshot::definitions`]).
    ///
    /// # Errors
    /// `invalid` for a snapshot of several databases, `corrupt`, `io`.
    pub fn replace(&self, part: SnapshotPart) -> Result<()> {
        let snapshot = part.snapshot.into_single()?;
        let mut change = Change::unseen(part.name, snapshot);
        loop {
            let before = self.keeper.lock().known(change.name());
            change.look(before.as_deref())?;
            // The thread that put the part in between has changed what it was compared with.
            match self.keeper.lock().put(change)? {
                None => return Ok(()),
                Some(again) => change = again,
            }
        }
    }

    /// Removes a part; its data are `elsewhere` where [`Owners`] say so.
    ///
    /// # Errors
    /// `internal`.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.keeper.lock().remove(name)
    }

    /// Says whose streams are from now on; `None` = each belongs to the first part that has it.
    pub fn set_owners(&self, owners: Option<Owners>) {
        self.keeper.lock().set_owners(owners);
    }

    /// All parts as they were put last.
    ///
    /// # Errors
    /// `internal`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.keeper.lock().snapshot().map(Snapshot::across)
    }
}

impl Snapshot {
    /// Several databases as one, in the order of the parts; see [`Across`], which keeps them.
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
