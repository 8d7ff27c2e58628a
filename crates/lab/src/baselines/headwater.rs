//! Ours: a stream per tag, one field.

use super::{Points, Store, Survival, Window};
use crate::harness::Failure;
use headwater::{
    Batch, ClosedRange, Database, Durability, Options, ScanSpec, StreamHandle, StreamName,
    StreamRows, Timestamp, Values,
};
use std::path::Path;

/// Nanoseconds of a second.
pub(crate) const NANOS: i64 = 1_000_000_000;

pub(crate) struct Headwater {
    db: Database,
    names: Vec<StreamName>,
    /// Stream handles, looked up at the first read: the equivalent of the rivals' prepared
    /// statements and open tables.
    handles: Vec<Option<StreamHandle>>,
}

/// The defaults, with this durability.
pub(crate) fn options(dir: &Path, survives: Survival) -> Options {
    let mut options = Options::new(dir);
    options.durability = match survives {
        Survival::PowerCut => Durability::Synced,
        Survival::Process => Durability::Written,
    };
    options
}

/// The streams of some tags.
pub(crate) fn stream_names(tags: usize) -> Vec<StreamName> {
    (0..tags)
        .map(|tag| StreamName::new("points", [("tag", tag.to_string())]))
        .collect()
}

/// The points as a batch.
pub(crate) fn point_batch(names: &[StreamName], window: &Window<'_>) -> Batch {
    let mut batch = Batch::new();
    for (name, values) in names.iter().zip(window.values) {
        let mut rows = StreamRows::new(name.clone());
        rows.times = window.seconds.iter().map(|s| s * NANOS).collect();
        batch.push(rows.with_column("value", Values::F64(values.to_vec())));
    }
    batch
}

impl Headwater {
    /// An open database with points of some tags.
    pub(crate) fn with(db: Database, tags: usize) -> Headwater {
        Headwater {
            db,
            names: stream_names(tags),
            handles: vec![None; tags],
        }
    }

    pub(crate) fn open(dir: &Path, tags: usize, survives: Survival) -> Result<Headwater, Failure> {
        let db = Database::open(options(dir, survives))?;
        Ok(Headwater::with(db, tags))
    }
}

impl Store for Headwater {
    fn write(&mut self, window: &Window<'_>) -> Result<(), Failure> {
        let written = self.db.commit(point_batch(&self.names, window))?;
        match written.refused.first() {
            Some(refused) => Err(refused.message.clone().into()),
            None => Ok(()),
        }
    }

    fn read(
        &mut self,
        tags: &[usize],
        first: i64,
        last: i64,
        out: &mut Points,
    ) -> Result<(), Failure> {
        let snapshot = self.db.snapshot()?;
        let spec = ScanSpec {
            range: ClosedRange::new(
                Timestamp::from_nanos(first * NANOS),
                Timestamp::from_nanos(last * NANOS),
            ),
            ..ScanSpec::default()
        };
        for tag in tags {
            let name = self.names.get(*tag).ok_or("no such tag")?;
            let known = self.handles.get_mut(*tag).ok_or("no such tag")?;
            let handle = match known {
                Some(handle) => handle,
                None => known.insert(snapshot.handle(name)?),
            };
            let mut whole = true;
            handle.visit(&snapshot, &spec, |rows| {
                let column = rows.column(0).filter(|c| c.has_all());
                let Some(values) = column.and_then(|c| c.f64s()) else {
                    whole = false;
                    return;
                };
                out.seconds.extend(rows.times().iter().map(|t| t / NANOS));
                out.values.extend_from_slice(values);
            })?;
            if !whole {
                return Err("rows without their floats".into());
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        Ok(self.db.flush()?)
    }

    fn syncs(&self) -> Result<Option<u64>, Failure> {
        Ok(Some(self.db.stats()?.log_syncs))
    }
}
