//! Rows as the two sides have them, and deletes of some.

use crate::replication::world::{SECOND, SECRET, World, options};
use headwater_engine::{DeleteSpec, ErrorKind, RemoteCopy, Result, ScanSpec, Snapshot};
use headwater_io::Env;
use headwater_types::{ClosedRange, StreamName};
use std::collections::BTreeSet;

impl World {
    /// A user deletes some rows at the source; what says which these are.
    pub(crate) fn delete(&mut self) -> impl Fn(&StreamName, i64) -> bool + use<> {
        let start = Env::MEMORY_START.as_nanos();
        let passed = (self.source.newest - start) as u64;
        let first = start + self.dice.below(passed) as i64;
        let last = first + self.dice.below(300) as i64 * SECOND;
        let table = ["m", SECRET][self.dice.below(2) as usize];
        let spec = DeleteSpec {
            table: table.into(),
            tags: vec![("id".into(), self.dice.below(3).to_string())],
            range: ClosedRange::nanos(first, last),
        };
        self.source.db().delete(&spec).unwrap();
        move |stream, time| {
            stream.table() == spec.table
                && stream.tags() == spec.tags
                && (first..=last).contains(&time)
        }
    }

    /// Streams and instants of rows in the copy, without stretches in which something is elsewhere.
    pub(crate) fn rows_here(&self) -> BTreeSet<(StreamName, i64)> {
        self.rows_of(self.planner().copy())
    }

    /// The same of any copy.
    pub(crate) fn rows_of(&self, copy: &RemoteCopy) -> BTreeSet<(StreamName, i64)> {
        let reader = copy.reader(options()).unwrap();
        all_rows(&reader.snapshot(), self.source.newest)
    }

    /// Those of these rows that the copy does not have.
    pub(crate) fn lost(&self, rows: &BTreeSet<(StreamName, i64)>) -> usize {
        lost_of(self.planner().copy(), rows)
    }

    pub(crate) fn rows_of_the_source(&self) -> BTreeSet<(StreamName, i64)> {
        all_rows(&self.source.db().snapshot().unwrap(), self.source.newest)
    }
}

/// Those of these rows that a copy does not have.
pub(crate) fn lost_of(copy: &RemoteCopy, rows: &BTreeSet<(StreamName, i64)>) -> usize {
    let reader = copy.reader(options()).unwrap();
    let snapshot = reader.snapshot();
    let is_here = |(stream, at): &&(StreamName, i64)| {
        let spec = ScanSpec {
            range: ClosedRange::nanos(*at, *at),
            ..ScanSpec::default()
        };
        let scan = snapshot.scan(stream, &spec);
        scan.is_ok_and(|mut scan| scan.any(|chunk| chunk.is_ok_and(|c| c.times == [*at])))
    };
    rows.iter().filter(|row| !is_here(row)).count()
}

fn all_rows(snapshot: &Snapshot, newest: i64) -> BTreeSet<(StreamName, i64)> {
    let mut all = BTreeSet::new();
    let first = Env::MEMORY_START.as_nanos() - 900 * SECOND;
    let wide = 60 * SECOND;
    for stream in ["m", SECRET]
        .iter()
        .flat_map(|t| snapshot.streams(t, &[]).unwrap())
    {
        for n in 0..=(newest - first) / wide {
            let at = first + n * wide;
            let spec = ScanSpec {
                range: ClosedRange::nanos(at, at + wide - 1),
                ..ScanSpec::default()
            };
            let scan = snapshot.scan(&stream, &spec);
            let chunks = scan.and_then(Iterator::collect::<Result<Vec<_>>>);
            match chunks {
                Ok(chunks) => {
                    let times = chunks.into_iter().flat_map(|chunk| chunk.times);
                    all.extend(times.map(|t| (stream.clone(), t)));
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Elsewhere, "{error}"),
            }
        }
    }
    all
}
