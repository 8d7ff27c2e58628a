//! Starting and serving one database.
//!
//! A start binds the address first, so that an occupied port is reported before a recovery, which
//! may take long; then it opens the database. A stop refuses new connections, waits for running
//! requests, and closes the database with everything durable.

use crate::access::guard::Guard;
use crate::access::tokens::TokenFile;
use crate::app::App;
use crate::component::Components;
use crate::components::{self, Opening, Reserved};
use crate::database_metrics::Metrics;
use crate::database_server::DatabaseServer;
use crate::databases::DatabaseNames;
use crate::ingest::{Ingest, Limits};
use crate::rights_state::RightsState;
use crate::settings::{NodeRole, Settings};
use crate::start_error::StartError;
use crate::tile_cache::TileCache;
use crate::tile_costs::TileCosts;
use headwater::{Database, Reader};
use headwater_cluster::BusBudget;
use headwater_cluster::dispatcher::Dispatcher;
use headwater_cluster::inventory::Inventory;
use headwater_cluster::notices::{NoticeMetrics, Notices};
use headwater_io::Env;
use headwater_shell::{Bound, Listener};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    bound: Bound,
    role: Served,
    components: Components<App>,
}

/// The role of a server.
#[derive(Debug)]
enum Served {
    /// A database.
    Database(Box<DatabaseServer>),
    /// Redirects queries to the nodes that answer them.
    Dispatcher(Dispatcher),
}

impl Server {
    /// Binds the address, and opens the database, with recovery if needed. Requests wait until
    /// [`Server::run`].
    ///
    /// # Errors
    /// When the address is occupied or may not be served with these settings, a certificate or the
    /// tokens cannot be read, or the database cannot be opened.
    pub async fn start(settings: Settings) -> Result<Server, StartError> {
        Server::start_with(settings, None).await
    }

    /// As [`Server::start`], over an open database: for a program that serves its own data, or
    /// whose files are not in the file system. Settings of the engine are ignored, except the
    /// directory, which contains the tokens. The database is closed at the end.
    ///
    /// # Errors
    /// As [`Server::start`], except errors of opening the database.
    pub async fn over(db: Database, settings: Settings) -> Result<Server, StartError> {
        Server::start_with(settings, Some(db)).await
    }

    async fn start_with(settings: Settings, open: Option<Database>) -> Result<Server, StartError> {
        let env = Env::system();
        let mut reserved = Reserved::reserve(&settings, &env).await?;
        let tokens = TokenFile::of_database(settings.db()).with_clock(Arc::clone(&env.clock));
        let front_ends: Vec<SocketAddr> = settings.postgres_addr.into_iter().collect();
        let listener = Listener::bind(settings.shell(), env.clone(), tokens, &front_ends).await?;
        if settings.sync.role == NodeRole::Dispatcher {
            let (bound, dispatcher) = crate::dispatching::begin(&settings, listener)?;
            return Ok(Server {
                bound,
                role: Served::Dispatcher(dispatcher),
                components: Components::default(),
            });
        }
        reserved.bind(&settings).await?;
        let (db, reader) = match open {
            Some(db) => (db, None),
            None => open_database(&settings).await?,
        };
        report(&settings, listener.local_addr(), &db, listener.guard());
        let live = Arc::default();
        let limits = Limits::of(&settings);
        let ingest = Ingest::start(db.clone(), Arc::clone(&live), limits, &env)?;
        let rights = RightsState::open(&settings)?;
        let mut opening = Opening {
            settings: &settings,
            env: &env,
            db: db.clone(),
            reader: reader.clone(),
            receiver: rights.receiver.clone(),
            fleet: None,
            relays: None,
            peers: None,
            uplink: None,
        };
        let components = components::open(reserved, &mut opening).await?;
        let (fleet, relays, uplink) = (opening.fleet, opening.relays, opening.uplink);
        let peers = opening.peers;
        let metrics = Metrics::default();
        let notices = Notices::open(
            &settings.notices,
            Some(settings.db()),
            NoticeMetrics::default(),
            uplink.as_ref().map(BusBudget::of),
        )?;
        let bound = listener.shell(|registry| {
            metrics.register(registry);
            notices.metrics.register(registry);
            components.register(registry);
        });
        let app = App {
            memory: headwater_ask::Memory::new(settings.query_memory, settings.query_memory_all),
            databases: Arc::new(DatabaseNames::open(db.clone(), &settings)?),
            opened_db: db,
            reader,
            shell: Arc::clone(bound.shell()),
            metrics,
            compacting: parking_lot::Mutex::new(()),
            ingest,
            live,
            inventory: Inventory::default(),
            notices,
            fleet,
            relays,
            peers,
            uplink,
            rights,
            components: components.clone(),
            tiles: TileCache::new(settings.tile_cache),
            tile_costs: TileCosts::new(),
            settings,
        };
        if !app.settings.dispatch.ticket_keys.is_empty() {
            app.take_tickets().map_err(|source| StartError::Database {
                dir: app.settings.db().display().to_string(),
                source,
            })?;
        }
        Ok(Server {
            bound,
            role: Served::Database(Box::new(DatabaseServer { app: Arc::new(app) })),
            components,
        })
    }

    /// State of a node; a dispatcher has none.
    #[cfg(test)]
    #[allow(dead_code, reason = "used by tests of optional components")]
    pub(crate) fn app(&self) -> Option<&Arc<App>> {
        match &self.role {
            Served::Database(server) => Some(&server.app),
            Served::Dispatcher(_) => None,
        }
    }

    /// The address for HTTP.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.bound.local_addr()
    }

    /// Address for clients of PostgreSQL; `None` without that front end.
    #[must_use]
    pub fn postgres_addr(&self) -> Option<SocketAddr> {
        self.components.address()
    }

    /// The address of its page.
    #[must_use]
    pub fn url(&self) -> String {
        self.bound.url()
    }

    /// Serves until `stop` is true or its sender is dropped; then waits for running requests, and
    /// closes the database with everything durable.
    ///
    /// # Errors
    /// When the database cannot be closed, or another node has acquired this node's group of copies
    /// in a bucket: then the server has stopped by itself.
    pub async fn run(self, stop: watch::Receiver<bool>) -> Result<(), StartError> {
        let ended = self.components.stop_reasons();
        let stop = match &ended {
            None => stop,
            Some(ended) => or_ended(stop, ended.clone()),
        };
        match self.role {
            Served::Database(server) => self.bound.serve(*server, stop).await,
            Served::Dispatcher(dispatcher) => Ok(self.bound.serve(dispatcher, stop).await?),
        }?;
        if let Some(why) = ended.and_then(|ended| ended.borrow().clone()) {
            return Err(headwater_cluster::StartError::Bucket(why).into());
        }
        Ok(())
    }
}

/// Becomes true at the stop, or when a component ends the node.
fn or_ended(
    mut stop: watch::Receiver<bool>,
    mut ended: watch::Receiver<Option<String>>,
) -> watch::Receiver<bool> {
    let (sender, either) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            // An error means that the sender was dropped, which is a stop too.
            _ = stop.wait_for(|stop| *stop) => {}
            _ = ended.wait_for(Option::is_some) => {}
        }
        sender.send_replace(true);
    });
    either
}

/// Runs a server until SIGTERM or SIGINT, in its own runtime. `ready` is called with the address of
/// the page after the server has started.
///
/// # Errors
/// As [`Server::start`] and [`Server::run`].
pub fn serve(settings: Settings, ready: impl FnOnce(&str)) -> Result<(), StartError> {
    headwater_shell::run_until_signal(
        async || Server::start(settings).await,
        |server: &Server| ready(&server.url()),
        async |server, stop| server.run(stop).await,
    )
}

/// Opens the database of the settings: as its owner, or read-only without a lock.
async fn open_database(settings: &Settings) -> Result<(Database, Option<Reader>), StartError> {
    let (options, is_only_read) = (settings.engine.clone(), settings.is_only_read());
    let open = move || -> headwater::Result<(Database, Option<Reader>)> {
        if !is_only_read {
            return Ok((Database::open(options)?, None));
        }
        let reader = Reader::open(options)?;
        Ok((reader.database(), Some(reader)))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(std::io::Error::other)?.map_err(|source| {
        let dir = settings.db().display().to_string();
        match is_unwritable(&source) && !is_only_read {
            true => StartError::Unwritable { dir, source },
            false => StartError::Database { dir, source },
        }
    })
}

/// True where the system does not let this user write, or no user at all.
fn is_unwritable(error: &headwater::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .is_some_and(|source| matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
}

/// Logs one line about the running server, and one for each action of recovery.
fn report(settings: &Settings, addr: SocketAddr, db: &Database, guard: &Guard) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %addr,
        db = %settings.db().display(),
        memory_budget = settings.engine.memory_budget_bytes,
        durability = ?settings.engine.durability,
        late_policy = %settings.engine.late_policy,
        tls = settings.tls_cert.is_some(),
        tokens = !guard.is_open(),
        "listening"
    );
    let recovery = db.recovery();
    tracing::info!(
        log_records = recovery.log_records,
        events_replayed = recovery.events_replayed,
        torn_tail = recovery.torn_tail,
        files_removed = recovery.files_removed,
        files_truncated = recovery.files_truncated,
        partitions_unreadable = recovery.partitions_unreadable,
        "the database is open"
    );
}
