//! Maintains the access lists of topics at an XMPP server, as the list of rights says.
//!
//! Invariants: a topic whose list loses an account comes first. An idle worker has no connection.
//! Every list is read back after it was set, and again every hour. Concurrency: one task; wanted
//! lists arrive over a channel. Failure: a topic that the server refuses is logged once and tried
//! again; without a connection, the next attempt follows after growing pauses. The age of the
//! oldest change that was not applied is a metric.

use super::line::{Line, Login};
use super::lists::{ListFault, ListsApplied, apply, topics};
use super::{NoticeMetrics, Notices};
use headwater_protocol::live::{ListReconciler, is_value_topic};
use headwater_protocol::notice::{Lists, is_node_name};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Interval of looking for topics to compare again.
const LOOK: Duration = Duration::from_secs(1);
/// The first pause after a lost connection, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// Lists that are wanted at the server; `None` = not known yet.
pub type WantedLists = watch::Receiver<Option<Arc<Lists>>>;

/// A connection, with the topics that exist there.
struct Server {
    line: Line,
    topics: BTreeSet<String>,
}

struct ListWorker<'a> {
    notices: &'a Notices,
    reconciler: ListReconciler,
    server: Option<Server>,
    started: Instant,
    /// Topics of the server are known to the reconciler.
    has_looked: bool,
    refused: BTreeSet<String>,
}

/// Applies lists until the server stops.
pub(super) async fn run(notices: &Notices, mut wanted: WantedLists) {
    let mut worker = ListWorker {
        notices,
        reconciler: ListReconciler::default(),
        server: None,
        started: Instant::now(),
        has_looked: false,
        refused: BTreeSet::new(),
    };
    let mut pause = PAUSE;
    let mut is_reported = false;
    let mut known: Option<Arc<Lists>> = None;
    loop {
        let newest = wanted.borrow_and_update().clone();
        let Some(lists) = newest else {
            match wanted.changed().await {
                Ok(()) => continue,
                // Nobody sends lists any more: the server stops.
                Err(_) => return,
            }
        };
        let is_known = known
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &lists));
        if !is_known {
            worker.reconciler.want(worker.now(), Lists::clone(&lists));
            known = Some(lists);
        }
        notices.until_open().await;
        let applied = tokio::select! {
            applied = worker.apply_until_changed(&wanted) => applied,
            () = notices.until_paused() => {
                // Lists that were being applied are applied again.
                worker.server = None;
                continue;
            }
        };
        match applied {
            Ok(()) => {
                (pause, is_reported) = (PAUSE, false);
                if let Ok(Err(_)) = tokio::time::timeout(LOOK, wanted.changed()).await {
                    return;
                }
            }
            Err(why) => {
                notices.metrics.list_failures.inc();
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::warn!(
                        why,
                        "notices: the access lists of topics cannot be applied; it is tried again"
                    );
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

impl ListWorker<'_> {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn report(&self, metrics: &NoticeMetrics) {
        metrics.set_lists(self.reconciler.len(), self.reconciler.behind(self.now()));
    }

    /// Applies what is due, until nothing is, or other lists are wanted.
    async fn apply_until_changed(&mut self, wanted: &WantedLists) -> Result<(), String> {
        let metrics = self.notices.metrics.clone();
        loop {
            self.report(&metrics);
            // The server may have topics that no list names any more.
            if !self.has_looked {
                self.connect().await?;
            }
            let Some((topic, list)) = self.reconciler.next(self.now()) else {
                if let Some(server) = self.server.take() {
                    server.line.end().await;
                }
                return Ok(());
            };
            if self.server.is_none() {
                self.connect().await?;
            }
            let Some(server) = &mut self.server else {
                return Err("the connection has ended".to_owned());
            };
            let exists = server.topics.contains(&topic);
            let mut changed = ListsApplied::default();
            let done = apply(&mut server.line, &topic, exists, &list, &mut changed).await;
            if !exists && !changed.created.is_empty() {
                server.topics.insert(topic.clone());
            }
            for (topic, account, before, now) in &changed.changed {
                tracing::info!(
                    topic,
                    account,
                    before,
                    now,
                    "notices: an access list has changed"
                );
            }
            match done {
                Ok(()) => {
                    self.refused.remove(&topic);
                    self.reconciler.applied(self.now(), &topic, list);
                }
                Err(ListFault::Line(why)) => {
                    self.server = None;
                    self.reconciler.failed(self.now(), &topic);
                    self.report(&metrics);
                    return Err(why);
                }
                Err(ListFault::Topic(why)) => {
                    metrics.list_failures.inc();
                    self.reconciler.failed(self.now(), &topic);
                    if self.refused.insert(topic) {
                        tracing::error!(why, "notices: an access list is not applied");
                    }
                }
            }
            if wanted.has_changed().unwrap_or(true) {
                return Ok(());
            }
        }
    }

    async fn connect(&mut self) -> Result<(), String> {
        let login = Login::of(&self.notices.settings)?;
        let mut line = Line::connect(&login, self.notices.link.as_ref()).await?;
        let found = topics(&mut line).await;
        let (ListFault::Line(why) | ListFault::Topic(why)) = match found {
            Ok(found) => {
                let settings = &self.notices.settings;
                let prefix = format!("{}/", settings.topic);
                let rights = format!("{}/", settings.rights_topic);
                let is_ours = |topic: &&String| {
                    let of_node =
                        |prefix: &str| topic.strip_prefix(prefix).is_some_and(is_node_name);
                    is_value_topic(&settings.values_topic, topic)
                        || of_node(&prefix)
                        || of_node(&rights)
                };
                self.reconciler.found(found.iter().filter(is_ours).cloned());
                self.has_looked = true;
                let topics = found.into_iter().collect();
                self.server = Some(Server { line, topics });
                return Ok(());
            }
            Err(fault) => fault,
        };
        Err(why)
    }
}
