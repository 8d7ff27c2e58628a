//! What all requests to the database share.

use crate::access::ticket::Audience;
use crate::databases::KeptNames;
use crate::error::ApiError;
use crate::holdings::Holdings;
use crate::ingest::Ingest;
use crate::live::Hub;
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::request::{found, no_snapshot};
use crate::settings::Settings;
use crate::tile_cache::TileCache;
use crate::tile_costs::TileCosts;
use axum::http::StatusCode;
use headwater::{ClosedRange, Database, ErrorKind, Level, Reader, Snapshot, StreamName, Timestamp};
use headwater_fleet::{Fleet, NodeStatus, Relays, Uplink};
use headwater_shell::Shell;
use std::sync::Arc;

/// The state behind every route.
#[derive(Debug)]
pub(crate) struct App {
    /// The database; of one that is only read, what was there at the start: see [`App::db`].
    pub(crate) opened: Database,
    /// Of a database that is only read, what looks at it.
    pub(crate) reader: Option<Reader>,
    /// What names of databases mean.
    pub(crate) databases: Arc<KeptNames>,
    pub(crate) settings: Settings,
    /// What all servers have: access, limits, clocks, the stop.
    pub(crate) shell: Arc<Shell>,
    pub(crate) metrics: Metrics,
    /// Held while an asker has everything compacted.
    pub(crate) compacting: parking_lot::Mutex<()>,
    pub(crate) ingest: Ingest,
    /// What questions of InfluxQL and OpenTSDB may keep.
    pub(crate) memory: Arc<headwater_ask::Memory>,
    /// Who follows new values.
    pub(crate) live: Arc<Hub>,
    /// Formatted tiles.
    pub(crate) tiles: TileCache,
    /// How long tiles took to be read.
    pub(crate) tile_costs: TileCosts,
    /// What this node holds, for dispatchers.
    pub(crate) holdings: Holdings,
    /// What tells others that this has changed.
    pub(crate) notices: Arc<Notices>,
    /// The edges of a cloud node and their copies.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// The bucket in which a cloud node keeps its copies.
    #[cfg(feature = "bucket")]
    pub(crate) bucket: Option<Arc<crate::bucket::Bucket>>,
    /// What keeps edges of a cloud node connected to another cloud.
    pub(crate) relays: Option<Arc<Relays>>,
    /// What keeps an edge connected to its cloud.
    pub(crate) uplink: Option<Arc<Uplink>>,
    /// What is counted of messages from a broker; all zero without one.
    #[cfg(feature = "mqtt")]
    pub(crate) messages: Arc<crate::mqtt_figures::Figures>,
    /// Messages to the broker.
    #[cfg(feature = "mqtt")]
    pub(crate) publisher: crate::mqtt_publisher::Publisher,
    /// SQL over the database.
    #[cfg(feature = "sql")]
    pub(crate) query: headwater_query::Query,
    /// Where statements are computed, so that nothing else waits for them.
    #[cfg(feature = "sql")]
    pub(crate) sql_threads: Arc<headwater_query::Threads>,
    /// What is counted of writing the lake.
    #[cfg(feature = "sql")]
    pub(crate) lake: crate::lake_figures::Figures,
    /// Where the lake is; `None` = there is none.
    #[cfg(feature = "sql")]
    pub(crate) lake_place: Option<headwater_lake::Place>,
    /// The watches that are followed.
    #[cfg(feature = "sql")]
    pub(crate) watches: crate::watched::Watches,
    /// A place for each statement that may run.
    #[cfg(feature = "sql")]
    pub(crate) places: Arc<headwater_query::Places>,
}

impl App {
    /// The database; of one that is only read, what was looked at last.
    pub(crate) fn db(&self) -> Database {
        match &self.reader {
            Some(reader) => reader.database(),
            None => self.opened.clone(),
        }
    }

    /// What there is to be read: the database, and what a cloud node has of its edges.
    pub(crate) fn snapshot(&self) -> headwater::Result<Snapshot> {
        let own = self.db().snapshot()?;
        match &self.fleet {
            None => Ok(own),
            Some(fleet) => fleet.across(own),
        }
    }

    /// What there is to be read, or what a named snapshot of the own database keeps.
    pub(crate) fn snapshot_of(&self, past: Option<&str>) -> Result<Snapshot, ApiError> {
        let Some(name) = past else {
            return Ok(self.snapshot()?);
        };
        self.db()
            .snapshot_named(name)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => no_snapshot(name),
                ErrorKind::Gone => {
                    ApiError::new(StatusCode::GONE, "E_SNAPSHOT_GONE", error.to_string())
                }
                _ => error.into(),
            })
    }

    /// The newest record that concerns a table, of which everybody sees those up to `sequence`.
    #[cfg(feature = "sql")]
    pub(crate) fn changed_at(&self, table: &str, sequence: u64) -> u64 {
        match &self.fleet {
            None => self.db().changed_at(table).unwrap_or(sequence),
            // What comes from edges has no numbers here: any change may concern any table.
            Some(_) => sequence,
        }
    }

    /// Up to when what is shown of these streams is the newest that is known of them; behind it a
    /// newer version is on its way from an edge. `None` = nothing newer is known.
    pub(crate) fn until<'a>(
        &self,
        snapshot: &Snapshot,
        asked: impl IntoIterator<Item = (&'a StreamName, ClosedRange)>,
    ) -> Result<Option<Timestamp>, ApiError> {
        if !self.fleet.as_ref().is_some_and(|fleet| fleet.is_behind()) {
            return Ok(None);
        }
        let mut until: Option<Timestamp> = None;
        for (stream, range) in asked {
            // The coarsest level: an answer was given, so that what it needs is here.
            let parts = found(snapshot.coverage(stream, range, Some(Level::MAX)))?;
            for part in parts.iter().flatten().filter(|part| part.is_older) {
                let before = part.range.first.previous().unwrap_or(Timestamp::MIN);
                let of_part = part.until.unwrap_or(before);
                until = Some(until.map_or(of_part, |until| until.min(of_part)));
            }
        }
        Ok(until)
    }

    /// Takes tickets for this database from now on, of the keys that a setting names and of those
    /// that come with a token.
    pub(crate) fn take_tickets(&self) -> headwater::Result<()> {
        let (identity, incarnation) = headwater_fleet::database_of(&self.db())?;
        let audience = Audience {
            identity,
            incarnation,
        };
        let keys = self.settings.dispatch.ticket_keys.clone();
        self.shell.guard().take_tickets(audience, keys);
        Ok(())
    }

    /// How it stands with other nodes.
    pub(crate) fn node_status(&self) -> headwater::Result<NodeStatus> {
        Ok(NodeStatus {
            role: self.settings.sync.role.name().to_owned(),
            cloud: self.uplink.as_ref().map(|u| u.status()).transpose()?,
            edges: self.fleet.as_ref().map(|fleet| fleet.status()),
            relays: match &self.relays {
                Some(relays) => relays.status()?,
                None => Vec::new(),
            },
        })
    }

    /// Runs a blocking call of the engine away from the runtime's threads.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = Arc::clone(self);
        let span = tracing::Span::current();
        match tokio::task::spawn_blocking(move || span.in_scope(|| call(&app))).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "a request panicked");
                Err(ApiError::internal())
            }
        }
    }
}
