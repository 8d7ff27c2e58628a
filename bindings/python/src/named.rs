//! Named snapshots: states of a database that last until they are dropped.

use crate::errors::Outcome;
use crate::shared::{Opened, Shared};
use headwater::{SnapshotInfo, Timestamp};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A named snapshot, as keyword arguments of `headwater.NamedSnapshot`.
fn shown<'py>(py: Python<'py>, info: &SnapshotInfo) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("name", &info.name)?;
    out.set_item("created", info.created.as_nanos())?;
    out.set_item("ends", info.ends.map(Timestamp::as_nanos))?;
    out.set_item("sequence", info.sequence)?;
    out.set_item("tables", info.tables)?;
    out.set_item("streams", info.streams)?;
    out.set_item("events", info.events)?;
    out.set_item("bytes", info.bytes)?;
    out.set_item("kept_bytes", info.kept_bytes)?;
    out.set_item("own_bytes", info.own_bytes)?;
    Ok(out)
}

/// Creates a named snapshot.
pub(crate) fn create<'py>(
    py: Python<'py>,
    shared: &Shared,
    name: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let made = py.detach(|| shared.with(|opened| Ok(opened.owner()?.create_snapshot(name)?)))?;
    shown(py, &made)
}

/// Drops one.
pub(crate) fn end(shared: &Shared, name: &str) -> Outcome<()> {
    shared.with(|opened| Ok(opened.owner()?.drop_snapshot(name)?))
}

/// The named snapshots, the oldest first.
pub(crate) fn list<'py>(py: Python<'py>, shared: &Shared) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let all = py.detach(|| {
        shared.with(|opened| {
            Ok(match opened {
                Opened::Owner(db) => db.snapshots(),
                Opened::Reader(reader) => reader.snapshots(),
            })
        })
    })?;
    all.iter().map(|info| shown(py, info)).collect()
}

/// The named snapshots that ended by themselves: name, when made, when ended, why.
pub(crate) fn ended(
    py: Python<'_>,
    shared: &Shared,
) -> PyResult<Vec<(String, i64, i64, &'static str)>> {
    let all = py.detach(|| {
        shared.with(|opened| {
            Ok(match opened {
                Opened::Owner(db) => db.ended_snapshots(),
                Opened::Reader(reader) => reader.ended_snapshots(),
            })
        })
    })?;
    let told = all.into_iter();
    let told = told.map(|e| {
        (
            e.name,
            e.created.as_nanos(),
            e.ended.as_nanos(),
            e.why.reason(),
        )
    });
    Ok(told.collect())
}
