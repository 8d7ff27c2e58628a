//! New values of edges at a cloud: delivers values of copies to the listeners of live channels as
//! they arrive, by tails (`sync.live`) or by states.
//!
//! Invariants: a value newer than the newest known one of its channel is delivered once; older
//! values (late rows of an edge) are not. Streams that the node's own database has are delivered by
//! the write path. Without listeners, and while no copy changes, nothing is read. Concurrency: one
//! worker, which reads away from the runtime. Failure: a channel that cannot be read is tried
//! again, and logged once.

use crate::app::App;
use headwater::{ClosedRange, ScanSpec, Snapshot, StreamName, StreamRows, Timestamp};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Interval of looking for new values.
const LOOK: Duration = Duration::from_millis(200);

/// Fields of each watched stream.
type Watched = HashMap<StreamName, BTreeSet<String>>;

/// Delivered values of a stream.
#[derive(Debug, Default)]
struct Delivered {
    /// Newest instant of each watched stream; `None` for a stream of the node's own database.
    newest: HashMap<StreamName, Option<i64>>,
    /// Number of changes of the copies when all of these were read.
    changes: Option<u64>,
}

/// Delivers until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let (mut delivered, mut has_failed) = (Delivered::default(), false);
    loop {
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let watched = app.live.watched();
        if watched.is_empty() {
            delivered = Delivered::default();
            continue;
        }
        let mut known = std::mem::take(&mut delivered);
        // Before the reading: a later change is read next time.
        let changes = app.fleet.as_ref().map_or(0, |fleet| fleet.changes());
        if !known.is_due(&watched, changes) {
            delivered = known;
            continue;
        }
        let looked = app.blocking(move |app| {
            let snapshots = || Ok((app.snapshot()?, app.db().snapshot()?));
            let failed = known.look(&watched, changes, snapshots, |rows| {
                app.live.publish(app.live.select(&rows), &[]);
            });
            Ok((known, failed.err()))
        });
        match looked.await {
            Ok((known, failed)) => {
                delivered = known;
                if let Some(error) = failed.as_ref().filter(|_| !has_failed) {
                    tracing::warn!(?error, "live values of a copy cannot be read");
                }
                has_failed = failed.is_some();
            }
            Err(error) => tracing::warn!(?error, "live values of copies cannot be read"),
        }
    }
}

impl Delivered {
    /// Whether a stream is new, or a copy has changed since all were read.
    fn is_due(&self, watched: &Watched, changes: u64) -> bool {
        let is_known = |stream| self.newest.contains_key(stream);
        self.changes != Some(changes) || !watched.keys().all(is_known)
    }

    /// Passes the new rows of all watched streams to `deliver`, as of that many changes. The
    /// snapshots are of everything, and of the node's own database. After an error all streams are
    /// due again.
    fn look(
        &mut self,
        watched: &Watched,
        changes: u64,
        snapshots: impl FnOnce() -> headwater::Result<(Snapshot, Snapshot)>,
        mut deliver: impl FnMut(Vec<StreamRows>),
    ) -> headwater::Result<()> {
        self.newest.retain(|stream, _| watched.contains_key(stream));
        self.changes = None;
        let (all, own) = snapshots()?;
        let mut looked = Ok(());
        for (stream, fields) in watched {
            if own.handle(stream).is_ok() {
                self.newest.insert(stream.clone(), None);
                continue;
            }
            let known = self.newest.get(stream).copied().flatten();
            match new_rows(&all, stream, fields, known) {
                Ok((rows, until)) => {
                    self.newest.insert(stream.clone(), Some(until));
                    deliver(rows);
                }
                Err(error) => looked = Err(error),
            }
        }
        self.changes = looked.is_ok().then_some(changes);
        looked
    }
}

/// Rows of a stream after the newest known instant, and the newest instant now. At the first look
/// nothing is new.
fn new_rows(
    snapshot: &Snapshot,
    stream: &StreamName,
    fields: &BTreeSet<String>,
    known: Option<i64>,
) -> headwater::Result<(Vec<StreamRows>, i64)> {
    let Some(known) = known else {
        let last = snapshot.last(stream)?;
        let until = last.iter().map(|last| last.time.as_nanos()).max();
        return Ok((Vec::new(), until.unwrap_or(i64::MIN)));
    };
    let Some(first) = known.checked_add(1) else {
        return Ok((Vec::new(), known));
    };
    let spec = ScanSpec {
        range: ClosedRange::new(Timestamp::from_nanos(first), Timestamp::MAX),
        fields: Some(fields.iter().cloned().collect()),
        ..ScanSpec::default()
    };
    let scan = snapshot.scan(stream, &spec)?;
    let names: Vec<String> = scan.fields().iter().map(|(name, _)| name.clone()).collect();
    let (mut until, mut rows) = (known, Vec::new());
    for chunk in scan {
        let chunk = chunk?;
        until = chunk.times.last().map_or(until, |last| until.max(*last));
        rows.push(StreamRows {
            name: stream.clone(),
            times: chunk.times,
            fields: names.iter().cloned().zip(chunk.columns).collect(),
        });
    }
    Ok((rows, until))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater::{Batch, Database, Options};

    /// A database that stands for the copies, or for the node's own.
    fn database(dir: &std::path::Path, name: &str) -> Database {
        Database::open(Options::new(dir.join(name))).unwrap()
    }

    fn write(db: &Database, stream: &StreamName, time: i64) {
        let mut batch = Batch::new();
        let rows = batch.stream(stream);
        rows.row(time, [("flow", (time as f64).into())]).unwrap();
        db.commit(batch).unwrap();
    }

    #[test]
    fn nothing_is_read_while_no_copy_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (copies, own) = (database(dir.path(), "copies"), database(dir.path(), "own"));
        let pump = StreamName::new("pump", [("id", "a")]);
        let mine = StreamName::new("pump", [("id", "own")]);
        write(&copies, &pump, 1);
        write(&own, &mine, 1);
        let fields = BTreeSet::from(["flow".to_owned()]);
        let mut watched = Watched::from([(pump.clone(), fields.clone())]);
        let (mut delivered, mut reads) = (Delivered::default(), 0);
        let mut times = |watched: &Watched, changes, fails| {
            let mut times = Vec::new();
            for _ in 0..3 {
                if delivered.is_due(watched, changes) {
                    reads += 1;
                    let snapshots = || match fails {
                        true => Err(own.snapshot_named("none").unwrap_err()),
                        false => Ok((copies.snapshot()?, own.snapshot()?)),
                    };
                    let looked = delivered.look(watched, changes, snapshots, |rows| {
                        times.extend(rows.into_iter().flat_map(|rows| rows.times));
                    });
                    assert_eq!(looked.is_err(), fails);
                }
            }
            (times, std::mem::take(&mut reads))
        };
        assert_eq!(
            times(&watched, 7, false),
            (vec![], 1),
            "what is there is not new"
        );
        write(&copies, &pump, 2);
        assert_eq!(times(&watched, 7, false), (vec![], 0), "no change, no read");
        assert_eq!(times(&watched, 8, false), (vec![2], 1));
        watched.insert(mine, fields);
        assert_eq!(
            times(&watched, 8, false),
            (vec![], 1),
            "a new stream is read"
        );
        write(&copies, &pump, 3);
        assert_eq!(
            times(&watched, 9, true),
            (vec![], 3),
            "an error is tried again"
        );
        assert_eq!(times(&watched, 9, false), (vec![3], 1));
    }
}
