//! Keeps the lake up to date with the databases, and counts that.
//!
//! Invariants: a table that cannot be written does not prevent others from being written. This
//! module has no state: each turn compares the lake with the databases. Concurrency: one turn at a
//! time, on a thread that may block. Another program may write the same lake: one of the two
//! commits first, and the other starts over. Failure: an error is counted, logged, and retried by
//! the next turn. When the server stops, a turn ends between two days.

use crate::app::App;
use crate::settings::{Lake, Settings};
use crate::start_error::StartError;
use headwater::{Error, ErrorKind, Snapshot, Timestamp};
use headwater_io::{Clock, SystemClock};
use headwater_lake::{LakeError, LakeLocation, Steps, WriteOptions, write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Delay of the first turn after the start.
const FIRST: Duration = Duration::from_secs(1);

/// Location of the lake of the settings; `None` when the settings have no lake.
pub(crate) fn lake_location(settings: &Settings) -> Result<Option<LakeLocation>, StartError> {
    let dir = settings.lake.dir.as_deref();
    let open = |dir| LakeLocation::open(dir, &|name| std::env::var(name).ok());
    let place = dir.map(open).transpose();
    place.map_err(|error| StartError::Lake(error.to_string()))
}

/// Writes the lake until the server stops.
pub(crate) async fn run(app: Arc<App>, every: Duration) {
    let mut stopping = app.shell.stopping();
    let mut pause = FIRST.min(every);
    loop {
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let (app, stop) = (Arc::clone(&app), stopping.clone());
        let turn = tokio::task::spawn_blocking(move || {
            if let Some(place) = &app.lake().location {
                Turn::new(&app, stop).update_tables(place);
            }
        });
        if let Err(error) = turn.await {
            tracing::error!(%error, "writing the lake panicked and restarts");
        }
        pause = every;
    }
}

/// One pass over all databases.
struct Turn<'a> {
    app: &'a App,
    stop: watch::Receiver<bool>,
    options: WriteOptions,
    now: Timestamp,
    failures: u64,
    blocked: i64,
}

impl<'a> Turn<'a> {
    fn new(app: &'a App, stop: watch::Receiver<bool>) -> Turn<'a> {
        let now = SystemClock::new().now();
        let Lake {
            closed_for,
            keep_snapshots,
            ..
        } = app.settings.lake;
        let mut options = WriteOptions::default();
        options.keep_snapshots = keep_snapshots;
        options.until = closed_for.map(|ago| {
            let ago = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
            Timestamp::from_nanos(now.as_nanos().saturating_sub(ago))
        });
        let stopping = stop.clone();
        options.steps = Steps::asking(move |_| !*stopping.borrow());
        Turn {
            app,
            stop,
            options,
            now,
            failures: 0,
            blocked: 0,
        }
    }

    /// Brings all tables up to date.
    fn update_tables(mut self, lake: &LakeLocation) {
        self.database("its own database", lake, &|| self.app.db().snapshot());
        let edges = self.app.fleet.as_ref().map(|fleet| (fleet, fleet.views()));
        for (fleet, edge) in edges
            .iter()
            .flat_map(|(fleet, views)| views.iter().map(move |view| (fleet, view.name())))
        {
            let look = || match fleet.shown_of_edge(edge) {
                Ok(Some(snapshot)) => Ok(snapshot),
                Ok(None) => Err(Error::new(
                    ErrorKind::NotFound,
                    "this node has no copy of the edge yet",
                )),
                Err(error) => Err(Error::new(ErrorKind::Io, error.to_string())),
            };
            self.database(edge, &lake.of_edge(edge), &look);
        }
        if *self.stop.borrow() {
            return;
        }
        let figures = &self.app.lake().stats;
        figures.blocked.set(self.blocked);
        if self.failures == 0 {
            let seconds = self.now.as_nanos().div_euclid(1_000_000_000);
            figures.written_at.set(seconds);
        }
    }

    /// The tables of a database, one after the other.
    fn database(
        &mut self,
        name: &str,
        lake: &LakeLocation,
        look: &dyn Fn() -> headwater::Result<Snapshot>,
    ) {
        let tables = match look() {
            Ok(snapshot) => snapshot.table_names(),
            // An edge without data yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => return self.failed(name, "", &error.into()),
        };
        for table in tables {
            if *self.stop.borrow() {
                return;
            }
            self.options.tables = vec![table.clone()];
            match write(look, lake, &self.options) {
                Ok(written) => {
                    for told in &written.tables {
                        self.app.lake().stats.rows.inc_by(told.rows);
                        self.app.lake().stats.days.inc_by(told.days_written);
                        self.blocked += i64::try_from(told.blocked.len()).unwrap_or(i64::MAX);
                    }
                }
                Err(LakeError::Stopped(_)) => return,
                Err(error) => self.failed(name, &table, &error),
            }
        }
    }

    fn failed(&mut self, database: &str, table: &str, error: &LakeError) {
        self.failures += 1;
        self.app.lake().stats.failures.inc();
        tracing::warn!(database, table, %error, "a table of the lake was not written");
    }
}
