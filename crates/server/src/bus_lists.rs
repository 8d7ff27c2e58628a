//! Access lists of topics for the bus, from the list of rights and the streams that this node has.
//!
//! Invariants: the lists are made again within a second of a change of the list of rights, and of
//! the end of a token; within [`SELECT_EVERY`] of a new stream. A node without tokens changes no
//! list. Concurrency: one worker, which computes away from the runtime. Failure: what cannot be
//! computed is logged once, and the lists before stay wanted.

use crate::app::App;
use crate::bus_values::selected;
use headwater_cluster::notices::wanted_lists;
use headwater_protocol::notice::Lists;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval of looking at the list of rights.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of looking for new streams.
const SELECT_EVERY: Duration = Duration::from_secs(5);
/// Most streams that get a topic.
const STREAMS_MAX: usize = 2_048;

/// Input of the lists that were made last.
#[derive(Debug, Default)]
struct ListInput {
    /// Numbers of the lists of rights, and the valid tokens.
    rights: Option<(Option<u64>, Option<u64>, Vec<String>)>,
    streams: Vec<String>,
    selected_at: Option<Instant>,
}

/// Computes lists, and has them applied, until the server stops.
pub(crate) async fn run(app: Arc<App>) {
    let mut stopping = app.shell.stopping();
    let (send, wanted) = watch::channel(None);
    let applying = Arc::clone(&app.notices).apply_lists(wanted, app.shell.stopping());
    let computing = async {
        let (mut input, mut has_failed) = (ListInput::default(), false);
        loop {
            let mut known = std::mem::take(&mut input);
            let looked = app.blocking(move |app| {
                let lists = known.look(app);
                Ok((known, lists))
            });
            match looked.await {
                Ok((known, lists)) => {
                    input = known;
                    has_failed = match lists {
                        Ok(lists) => {
                            if let Some(lists) = lists {
                                send.send_replace(Some(Arc::new(lists)));
                            }
                            false
                        }
                        Err(why) => {
                            if !has_failed {
                                tracing::error!(
                                    why,
                                    "the access lists of the bus cannot be made; those before stay in force"
                                );
                            }
                            true
                        }
                    };
                }
                Err(error) => {
                    tracing::error!(?error, "the access lists of the bus cannot be made");
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = applying => {}
        () = computing => {}
        // An error means that the server has stopped.
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

impl ListInput {
    /// The lists, after a change of what they are made of.
    fn look(&mut self, app: &App) -> Result<Option<Lists>, String> {
        let guard = app.shell.guard();
        if guard.is_open() {
            return Ok(None);
        }
        let grants = guard.valid_grants();
        let rights = (
            guard.own().map(|own| own.list()),
            guard.with_received(|list| list.number),
            grants.iter().map(|grant| grant.id.clone()).collect(),
        );
        let mut is_changed = self.rights.as_ref() != Some(&rights);
        if self
            .selected_at
            .is_none_or(|at| at.elapsed() >= SELECT_EVERY)
        {
            let streams = self.streams(app).map_err(|error| error.to_string())?;
            is_changed |= streams != self.streams;
            self.streams = streams;
            self.selected_at = Some(Instant::now());
        }
        if !is_changed {
            return Ok(None);
        }
        let settings = app.notices.settings();
        let lists = wanted_lists(guard, &grants, settings, &self.streams);
        let lists = lists.map_err(|error| error.to_string())?;
        self.rights = Some(rights);
        Ok(Some(lists))
    }

    /// Streams of this node and of its copies that get a topic; those that have one come first.
    fn streams(&self, app: &App) -> headwater::Result<Vec<String>> {
        let all = selected(&app.snapshot()?, &app.settings.notices.values)?;
        let known = self.streams.iter().filter(|name| all.contains_key(*name));
        let mut streams: Vec<String> = known.cloned().collect();
        let is_known: std::collections::BTreeSet<&String> = self.streams.iter().collect();
        let others = all.keys().filter(|name| !is_known.contains(name));
        let beyond = all.len().saturating_sub(STREAMS_MAX);
        if beyond > 0 && self.streams.len() < STREAMS_MAX {
            tracing::warn!(
                beyond,
                "notices.values selects more than {STREAMS_MAX} streams: the others get no topic on the bus"
            );
        }
        streams.extend(others.cloned());
        streams.truncate(STREAMS_MAX);
        Ok(streams)
    }
}
