//! Stores that do the same work: ours, and others set up as well as their makers advise.
//!
//! The work is that of the GOLSM paper: points `(tag, time) -> f64`, written in atomic calls, read
//! by a range of one tag. A later point of the same tag and time replaces the earlier one in every
//! store.

mod bytes;
mod headwater;
mod redb;
mod sqlite;

pub(crate) use bytes::bytes_in;
pub(crate) use headwater::{Headwater, options, point_batch, stream_names};
pub(crate) use redb::Redb;
pub(crate) use sqlite::{Overview, PlainSqlite, Sqlite};

use crate::harness::Failure;
use std::path::Path;

/// Failure that a write survives when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    /// A power cut: one sync a call at least.
    PowerCut,
    /// The end of the process, as far as the store promises that.
    Process,
}

impl Survival {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Survival::PowerCut => "synced",
            Survival::Process => "unsynced",
        }
    }
}

/// The points of one call: every tag has a value at every time.
pub(crate) struct Window<'a> {
    /// Seconds since 1970, ascending.
    pub(crate) seconds: &'a [i64],
    /// For each tag, by its number, as many values as there are times.
    pub(crate) values: &'a [&'a [f64]],
}

impl Window<'_> {
    /// Every point as its tag, its second and its value: by tag, and then by time.
    pub(crate) fn points(&self) -> impl Iterator<Item = (usize, i64, f64)> {
        self.values.iter().enumerate().flat_map(|(tag, values)| {
            let points = self.seconds.iter().zip(*values);
            points.map(move |(second, value)| (tag, *second, *value))
        })
    }
}

/// Points that a read returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Points {
    pub(crate) seconds: Vec<i64>,
    pub(crate) values: Vec<f64>,
}

impl Points {
    pub(crate) fn push(&mut self, second: i64, value: f64) {
        self.seconds.push(second);
        self.values.push(value);
    }

    pub(crate) fn clear(&mut self) {
        self.seconds.clear();
        self.values.clear();
    }
}

/// A store under test.
pub(crate) trait Store {
    /// Stores the points of a call, all or nothing.
    fn write(&mut self, window: &Window<'_>) -> Result<(), Failure>;

    /// Appends the points of the tags from `first` to `last`, both included, by tag in the given
    /// order and then by time.
    fn read(
        &mut self,
        tags: &[usize],
        first: i64,
        last: i64,
        out: &mut Points,
    ) -> Result<(), Failure>;

    /// Does deferred work: flushes, checkpoints.
    fn drain(&mut self) -> Result<(), Failure>;

    /// Syncs since opening, where they can be counted.
    fn syncs(&self) -> Result<Option<u64>, Failure>;
}

/// Creates a store in a directory, or opens it again.
pub(crate) type Open = fn(&Path, usize, Survival) -> Result<Box<dyn Store>, Failure>;

/// Every store by its name: ours first, the tuned ones, then the paper's own comparison.
pub(crate) const STORES: [(&str, Open); 4] = [
    ("headwater", |dir, tags, survives| {
        Ok(Box::new(Headwater::open(dir, tags, survives)?))
    }),
    ("sqlite tuned", |dir, _, survives| {
        Ok(Box::new(Sqlite::open(dir, survives)?))
    }),
    ("redb", |dir, _, survives| {
        Ok(Box::new(Redb::open(dir, survives)?))
    }),
    ("sqlite as in the paper", |dir, _, survives| {
        Ok(Box::new(PlainSqlite::open(dir, survives)?))
    }),
];
