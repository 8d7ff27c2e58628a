//! State that all requests to the database share.

use crate::access::ticket::Audience;
use crate::component::Components;
use crate::database_metrics::Metrics;
use crate::databases::DatabaseNames;
use crate::error::ApiError;
use crate::ingest::Ingest;
use crate::live::Hub;
use crate::read_scope::ReadScope;
use crate::request::{no_snapshot, ok_if_found};
use crate::rights_state::RightsState;
use crate::settings::Settings;
use crate::tile_cache::TileCache;
use crate::tile_costs::TileCosts;
use axum::http::StatusCode;
use headwater::{
    ClosedRange, Database, ErrorKind, Level, Reader, Snapshot, StreamHandle, Timestamp,
};
use headwater_cluster::inventory::Inventory;
use headwater_cluster::notices::Notices;
use headwater_cluster::{EdgeCopies, NodeStatus, Peers, Relays, Uplink};
use headwater_shell::Shell;
use std::sync::Arc;

/// State shared by all routes.
#[derive(Debug)]
pub(crate) struct App {
    /// The database; if read-only, its state at the start: see [`App::db`].
    pub(crate) opened_db: Database,
    /// Reader of a database that another process owns.
    pub(crate) reader: Option<Reader>,
    /// Names of databases.
    pub(crate) databases: Arc<DatabaseNames>,
    pub(crate) settings: Settings,
    /// Access, limits, clocks and the stop of every server.
    pub(crate) shell: Arc<Shell>,
    pub(crate) metrics: Metrics,
    /// Locked while a client's compaction runs.
    pub(crate) compacting: parking_lot::Mutex<()>,
    pub(crate) ingest: Ingest,
    /// Memory of queries of InfluxQL and OpenTSDB.
    pub(crate) memory: Arc<headwater_ask::Memory>,
    /// Subscribers of new values.
    pub(crate) live: Arc<Hub>,
    /// Formatted tiles.
    pub(crate) tiles: TileCache,
    /// Measured costs of tiles.
    pub(crate) tile_costs: TileCosts,
    /// Inventory of this node, for dispatchers.
    pub(crate) inventory: Inventory,
    /// Sends notices of changes to other nodes.
    pub(crate) notices: Arc<Notices>,
    /// The edges of a cloud node and their copies.
    pub(crate) fleet: Option<Arc<EdgeCopies>>,
    /// Relays of a cloud's edges to another cloud.
    pub(crate) relays: Option<Arc<Relays>>,
    /// Peer of a cloud.
    pub(crate) peers: Option<Arc<Peers>>,
    /// Connection of an edge to its cloud.
    pub(crate) uplink: Option<Arc<Uplink>>,
    /// The list of rights.
    pub(crate) rights: RightsState,
    /// The parts that run in addition to requests, with their state.
    pub(crate) components: Components<App>,
}

impl App {
    /// The database; if read-only, its newest state.
    pub(crate) fn db(&self) -> Database {
        match &self.reader {
            Some(reader) => reader.database(),
            None => self.opened_db.clone(),
        }
    }

    /// Snapshot of the database, and of a cloud's copies of its edges, as the request may read it
    /// ([`crate::read_scope`]).
    pub(crate) fn snapshot(&self) -> headwater::Result<Snapshot> {
        let own = self.db().snapshot()?;
        match &self.fleet {
            None => Ok(own),
            Some(fleet) => Ok(ReadScope::current().of_snapshot(fleet.across(own)?)),
        }
    }

    /// Snapshot of the present, or a named snapshot of the node's own database.
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

    /// Instant up to which the shown data of these streams is the newest known; after it a newer
    /// version is in transit from an edge. `None` = no newer version is known.
    pub(crate) fn until<'a>(
        &self,
        snapshot: &Snapshot,
        read: impl IntoIterator<Item = (&'a StreamHandle, ClosedRange)>,
    ) -> Result<Option<Timestamp>, ApiError> {
        if !self.fleet.as_ref().is_some_and(|fleet| fleet.is_behind()) {
            return Ok(None);
        }
        let mut until: Option<Timestamp> = None;
        for (handle, range) in read {
            // The coarsest level: an answer exists already, so all levels that it needs are
            // present.
            // Streams that were dropped meanwhile have no newer data.
            let parts = ok_if_found(handle.coverage(snapshot, range, Some(Level::MAX)))?;
            for part in parts.iter().flatten().filter(|part| part.is_older) {
                let before = part.range.first.previous().unwrap_or(Timestamp::MIN);
                let of_part = part.until.unwrap_or(before);
                until = Some(until.map_or(of_part, |until| until.min(of_part)));
            }
        }
        Ok(until)
    }

    /// Accepts tickets for this database from now on, signed with keys of a setting or keys that
    /// arrive with a token.
    pub(crate) fn take_tickets(&self) -> headwater::Result<()> {
        let (identity, incarnation) = headwater_cluster::database_of(&self.db())?;
        let audience = Audience {
            identity,
            incarnation,
        };
        let keys = self.settings.dispatch.ticket_keys.clone();
        self.shell.guard().take_tickets(audience, keys);
        Ok(())
    }

    /// Status of the connections with other nodes.
    pub(crate) fn node_status(&self) -> headwater::Result<NodeStatus> {
        Ok(NodeStatus {
            role: self.settings.sync.role.name().to_owned(),
            cloud: self.uplink.as_ref().map(|u| u.status()).transpose()?,
            edges: self.fleet.as_ref().map(|fleet| fleet.status()),
            identity: self
                .fleet
                .as_ref()
                .map(|fleet| format!("{:016x}", fleet.node())),
            peer: self.peers.as_ref().map(|peers| peers.status()),
            rights: Some(self.rights.status(self.shell.guard())),
            fetched: self.fleet.as_ref().map(|fleet| fleet.fetch_status()),
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
        let (span, scope) = (tracing::Span::current(), ReadScope::of_task());
        let call = move || scope.read(|| span.in_scope(|| call(&app)));
        match tokio::task::spawn_blocking(call).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "a request handler panicked");
                Err(ApiError::internal())
            }
        }
    }
}
