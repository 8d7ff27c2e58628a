//! Newest values of this node's streams for the bus: reads them, and passes them to the publisher.
//!
//! Invariants: a stream that the vetoes of this node hide from the received list of rights is never
//! published, and what the bus retains of it is removed. Only streams of the node's own database
//! are published. Nothing is read while nothing was written. Concurrency: one worker, which reads
//! away from the runtime. Failure: a stream that cannot be read is tried again, and logged once.

use crate::app::App;
use headwater::{ErrorKind, Snapshot, StreamName};
use headwater_protocol::live::{FieldValue, is_publishable};
use headwater_shell::access::rules::Pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of looking for new streams.
const SELECT_EVERY: Duration = Duration::from_secs(10);
/// Most streams that are looked at.
const STREAMS_MAX: usize = 65_536;
/// Names that are read together.
const NAMES_AT_ONCE: usize = 4_096;

/// Streams of a snapshot, with their texts, that patterns select, up to [`STREAMS_MAX`].
pub(crate) fn selected(
    snapshot: &Snapshot,
    patterns: &[Pattern],
) -> headwater::Result<BTreeMap<String, StreamName>> {
    let mut all = BTreeMap::new();
    for table in snapshot.table_names() {
        if !patterns.iter().any(|pattern| pattern.may_concern(&table)) {
            continue;
        }
        let mut last: Option<StreamName> = None;
        loop {
            let page = match snapshot.streams_after(&table, last.as_ref(), NAMES_AT_ONCE) {
                Ok(page) => page,
                // The table was dropped meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            let is_last = page.len() < NAMES_AT_ONCE;
            last = page.last().cloned();
            let fits = |name: &StreamName| {
                patterns
                    .iter()
                    .any(|pattern| pattern.matches(name.table(), name.tags()))
            };
            let found = page.into_iter().filter(fits);
            all.extend(found.map(|name| (name.to_string(), name)));
            if is_last || all.len() >= STREAMS_MAX {
                break;
            }
        }
    }
    all.retain(|text, _| is_publishable(text));
    Ok(all)
}

/// State of the worker.
#[derive(Debug, Default)]
struct Reading {
    /// Selected streams that are not hidden by a veto.
    streams: BTreeMap<String, StreamName>,
    selected_at: Option<Instant>,
    sequence: Option<u64>,
    identity: u64,
}

/// Publishes until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let pause = app.settings.notices.values_interval;
    let (mut reading, mut has_failed) = (Reading::default(), false);
    loop {
        let mut known = std::mem::take(&mut reading);
        let looked = app.blocking(move |app| {
            let failed = known.look(app).err();
            Ok((known, failed))
        });
        match looked.await {
            Ok((known, failed)) => {
                reading = known;
                if let Some(error) = failed.as_ref().filter(|_| !has_failed) {
                    tracing::warn!(%error, "newest values for the bus cannot be read; it is tried again");
                }
                has_failed = failed.is_some();
            }
            Err(error) => tracing::warn!(?error, "newest values for the bus cannot be read"),
        }
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

impl Reading {
    /// Passes the newest values of the selected streams on, if something was written.
    fn look(&mut self, app: &App) -> headwater::Result<()> {
        let snapshot = app.db().snapshot()?;
        let is_due = self
            .selected_at
            .is_none_or(|at| at.elapsed() >= SELECT_EVERY);
        let sequence = snapshot.sequence();
        if !is_due && self.sequence == Some(sequence) {
            return Ok(());
        }
        self.sequence = None;
        if is_due {
            self.select(app, &snapshot)?;
        }
        let values = &app.notices.values;
        let mut published = BTreeSet::new();
        values.publish(self.identity, |publisher| {
            published.extend(publisher.streams().map(str::to_owned));
        });
        let mut newest = Vec::new();
        let known = self.streams.iter();
        for (text, name) in known.filter(|(text, _)| published.contains(*text)) {
            match snapshot.last(name) {
                Ok(last) => newest.push((text.clone(), last)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        values.publish(self.identity, |publisher| {
            for (text, last) in newest {
                let of = last.into_iter().map(|value| FieldValue {
                    field: value.field,
                    time: value.time,
                    value: value.value,
                });
                publisher.offer(&text, of.collect());
            }
        });
        self.sequence = Some(sequence);
        Ok(())
    }

    /// Selects streams, without those that a veto hides.
    fn select(&mut self, app: &App, snapshot: &Snapshot) -> headwater::Result<()> {
        if self.identity == 0 {
            (self.identity, _) = headwater_cluster::database_of(&app.db())?;
        }
        let all = selected(snapshot, &app.settings.notices.values)?;
        let guard = app.shell.guard();
        let is_hidden = |name: &StreamName| guard.is_reading_vetoed(name);
        let (hidden, streams) = all.into_iter().partition(|(_, name)| is_hidden(name));
        self.streams = streams;
        let hidden: BTreeMap<String, StreamName> = hidden;
        let names: BTreeSet<String> = self.streams.keys().cloned().collect();
        app.notices.values.publish(self.identity, |publisher| {
            publisher.select(&names);
            for text in hidden.keys() {
                publisher.withdraw(text);
            }
        });
        self.selected_at = Some(Instant::now());
        Ok(())
    }
}
