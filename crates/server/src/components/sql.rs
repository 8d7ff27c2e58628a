//! SQL over the database, and what stands on it: watches, the lake, clients of PostgreSQL.

use super::{Component, Opening};
use crate::app::App;
use crate::settings::Settings;
use crate::start_error::StartError;
use crate::watch_registry::Watches;
use headwater::Database;
use headwater_fleet::Fleet;
use headwater_query::{Slots, Query, Threads};
use headwater_shell::Work;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpListener;

/// SQL over the database of a node.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) query: Query,
    /// Threads that compute statements, so that nothing else waits for them.
    pub(crate) threads: Arc<Threads>,
    /// Slots of statements that may run at once.
    pub(crate) slots: Arc<Slots>,
}

impl Sql {
    pub(super) fn open(opening: &Opening<'_>) -> Result<Sql, StartError> {
        let settings = opening.settings;
        let limits = settings.sql_limits();
        // One thread for each statement at least: a long computation keeps no other from running.
        let threads = Threads::new(limits.parallel.max(settings.sql_statements_max.min(64)))?;
        let db = opening.db.clone();
        let query = match (&opening.reader, &opening.fleet) {
            (Some(reader), _) => Query::read_only(reader.clone(), limits),
            (None, None) => Query::new(db, limits),
            (None, Some(fleet)) => {
                let all = Arc::new(OwnAndCopies(db.clone(), Arc::clone(fleet)));
                Query::across(db, all, limits)
            }
        };
        Ok(Sql {
            query,
            threads: Arc::new(threads),
            slots: Slots::new(settings.sql_statements_max),
        })
    }
}

impl Component for Sql {}

/// A cloud's own database with its copies, for statements.
struct OwnAndCopies(Database, Arc<Fleet>);

impl headwater_query::Snapshots for OwnAndCopies {
    fn snapshot(&self) -> headwater::Result<headwater::Snapshot> {
        self.1.across(self.0.snapshot()?)
    }
}

/// The watches of a node and their worker.
#[derive(Debug, Default)]
pub(crate) struct WatchRunner {
    pub(crate) watches: Watches,
}

impl Component for WatchRunner {
    fn register(&self, registry: &mut Registry) {
        self.watches.metrics.register(registry);
    }

    /// The owner of the database follows its watches, and persists their events.
    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        if app.reader.is_none() {
            let run = crate::watches::run(Arc::clone(app));
            work.workers.push(Box::pin(run));
        }
    }
}

/// The lake of a node, if the settings name one.
#[derive(Debug)]
pub(crate) struct Lake {
    pub(crate) stats: crate::lake_figures::Figures,
    /// Location of the lake; `None` = there is none.
    pub(crate) location: Option<headwater_lake::LakeLocation>,
}

impl Lake {
    pub(super) fn open(settings: &Settings) -> Result<Lake, StartError> {
        Ok(Lake {
            stats: crate::lake_figures::Figures::default(),
            location: crate::lake::place(settings)?,
        })
    }
}

impl Component for Lake {
    fn register(&self, registry: &mut Registry) {
        self.stats.register(registry);
    }

    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        if let (Some(_), Some(every)) = (&self.location, app.settings.lake.every) {
            let run = crate::lake::run(Arc::clone(app), every);
            work.workers.push(Box::pin(run));
        }
    }
}

/// The front end for clients of PostgreSQL, if the settings give it an address.
#[derive(Debug)]
pub(super) struct PostgresFrontEnd {
    address: Option<SocketAddr>,
    /// Until it begins.
    listener: Mutex<Option<TcpListener>>,
    metrics: OnceLock<headwater_postgres::Metrics>,
}

/// Binds the address for clients of PostgreSQL.
pub(super) async fn bind(settings: &Settings) -> Result<Option<TcpListener>, StartError> {
    let Some(addr) = settings.postgres_addr else {
        return Ok(None);
    };
    let bound = TcpListener::bind(addr).await;
    let bound = bound.map_err(|source| StartError::ListenPostgres { addr, source })?;
    Ok(Some(bound))
}

impl PostgresFrontEnd {
    pub(super) fn open(listener: Option<TcpListener>) -> PostgresFrontEnd {
        PostgresFrontEnd {
            address: listener.as_ref().and_then(|bound| bound.local_addr().ok()),
            listener: Mutex::new(listener),
            metrics: OnceLock::new(),
        }
    }
}

impl Component for PostgresFrontEnd {
    fn register(&self, registry: &mut Registry) {
        let metrics = headwater_postgres::Metrics::new(registry);
        let is_first = self.metrics.set(metrics).is_ok();
        debug_assert!(is_first, "metrics are registered once");
    }

    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        let listener = self.listener.lock().take();
        if let (Some(listener), Some(metrics)) = (listener, self.metrics.get()) {
            let door = crate::postgres::door(app, metrics.clone());
            work.doors.push(Box::pin(door.run(listener)));
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl App {
    /// SQL over the database.
    pub(crate) fn sql(&self) -> &Sql {
        let sql = self.components.get::<Sql>();
        sql.expect("every node that is built with SQL has it")
    }

    /// The watches that are followed.
    pub(crate) fn watches(&self) -> &Watches {
        let runner = self.components.get::<WatchRunner>();
        &runner
            .expect("every node that is built with SQL has it")
            .watches
    }

    /// The lake.
    pub(crate) fn lake(&self) -> &Lake {
        let lake = self.components.get::<Lake>();
        lake.expect("every node that is built with SQL has it")
    }

    /// The newest record that concerns a table, of those up to `sequence`, which every reader sees.
    pub(crate) fn changed_at(&self, table: &str, sequence: u64) -> u64 {
        match &self.fleet {
            None => self.db().changed_at(table).unwrap_or(sequence),
            // Records of edges have no numbers here: any change may concern any table.
            Some(_) => sequence,
        }
    }
}
