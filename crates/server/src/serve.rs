//! Starting and serving one database.
//!
//! A start binds the address first, so that a port that is taken is told before a recovery that may
//! last; then it opens the database. A stop takes no more connections, lets requests end, and
//! closes the database with everything durable.

use crate::access::tokens::{Guard, TokenFile};
use crate::app::App;
#[cfg(feature = "bucket")]
use crate::bucket::{Bucket, Keeper};
use crate::databases::KeptNames;
use crate::dispatcher::Dispatcher;
use crate::holdings::Holdings;
use crate::ingest::{Ingest, Limits};
use crate::metrics::Metrics;
use crate::notices::{Figures as NoticeFigures, Notices};
use crate::settings::{NodeRole, Settings};
use crate::single::Single;
use crate::start_error::StartError;
use crate::tile_cache::TileCache;
use crate::tile_costs::TileCosts;
use headwater::{Database, Reader};
use headwater_fleet::{Fleet, Relays, Uplink, UplinkFile};
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
    /// In which it keeps its copies; without its group it stops.
    #[cfg(feature = "bucket")]
    bucket: Option<Arc<Bucket>>,
    /// For clients of PostgreSQL.
    #[cfg(feature = "sql")]
    postgres_addr: Option<SocketAddr>,
}

/// What is served.
#[derive(Debug)]
enum Served {
    /// A database.
    Single(Box<Single>),
    /// Where questions are answered.
    Dispatcher(Dispatcher),
}

impl Server {
    /// Starts to listen, and opens the database, recovering it if needed. Requests wait until
    /// [`Server::run`].
    ///
    /// # Errors
    /// When the address is taken or may not be served with these settings, a certificate or the
    /// tokens cannot be read, or the database cannot be opened.
    pub async fn start(settings: Settings) -> Result<Server, StartError> {
        Server::start_with(settings, None).await
    }

    /// As [`Server::start`], over a database that is open already: that of a program which lets
    /// others look at its data, or one whose files are not those of the system. Of the settings,
    /// those of the engine are not used, but for the directory, where the tokens are. The database
    /// is closed at the end.
    ///
    /// # Errors
    /// As [`Server::start`], but for those of opening the database.
    pub async fn over(db: Database, settings: Settings) -> Result<Server, StartError> {
        Server::start_with(settings, Some(db)).await
    }

    async fn start_with(settings: Settings, open: Option<Database>) -> Result<Server, StartError> {
        let env = Env::system();
        #[cfg(feature = "bucket")]
        let bucket = Bucket::open(&settings, &env)?;
        #[cfg(feature = "bucket")]
        if let Some(bucket) = &bucket {
            // Before it listens, so that nobody is sent to a node that waits for its turn.
            bucket.take().await?;
        }
        let tokens = TokenFile::of_database(settings.db()).with_clock(Arc::clone(&env.clock));
        let doors: Vec<SocketAddr> = settings.postgres_addr.into_iter().collect();
        let listener = Listener::bind(settings.shell(), env.clone(), tokens, &doors).await?;
        if settings.sync.role == NodeRole::Dispatcher {
            let (bound, dispatcher) = Dispatcher::begin(&settings, listener)?;
            return Ok(Server {
                bound,
                #[cfg(feature = "bucket")]
                bucket: None,
                role: Served::Dispatcher(dispatcher),
                #[cfg(feature = "sql")]
                postgres_addr: None,
            });
        }
        #[cfg(feature = "sql")]
        let postgres = match settings.postgres_addr {
            None => None,
            Some(addr) => {
                let bound = tokio::net::TcpListener::bind(addr).await;
                Some(bound.map_err(|source| StartError::ListenPostgres { addr, source })?)
            }
        };
        let (db, reader) = match open {
            Some(db) => (db, None),
            None => open_database(&settings).await?,
        };
        told(&settings, listener.local_addr(), &db, listener.guard());
        let live = Arc::default();
        #[cfg(feature = "mqtt")]
        let source = crate::mqtt::Source::new(&settings)?;
        let limits = Limits::of(&settings);
        let ingest = Ingest::start(db.clone(), Arc::clone(&live), limits, &env)?;
        #[cfg(feature = "bucket")]
        let kept = match &bucket {
            None => None,
            Some(bucket) => {
                let (held, dir) = (Arc::clone(bucket), settings.db().to_owned());
                let restored = tokio::task::spawn_blocking(move || held.restore(&dir)).await;
                Some((bucket, restored.map_err(std::io::Error::other)??))
            }
        };
        let others = Others::open(&settings, &db, &env)?;
        #[cfg(feature = "bucket")]
        let keeper = (kept.zip(others.fleet.as_ref()))
            .map(|((bucket, contents), fleet)| Keeper::new(bucket, fleet, &settings, contents));
        #[cfg(feature = "sql")]
        let limits = settings.sql_limits();
        #[cfg(feature = "sql")]
        // One for each statement at least: what keeps a thread busy for long keeps nobody else from
        // running.
        let sql_threads = Arc::new(headwater_query::Threads::new(
            limits.parallel.max(settings.sql_statements_max.min(64)),
        )?);
        #[cfg(feature = "sql")]
        let query = match (&reader, &others.fleet) {
            (Some(reader), _) => headwater_query::Query::read_only(reader.clone(), limits),
            (None, None) => headwater_query::Query::new(db.clone(), limits),
            (None, Some(fleet)) => {
                let all = Arc::new(All(db.clone(), Arc::clone(fleet)));
                headwater_query::Query::across(db.clone(), all, limits)
            }
        };
        let metrics = Metrics::default();
        let notices = Notices::open(&settings, NoticeFigures::default())?;
        #[cfg(feature = "sql")]
        let mut of_postgres = None;
        #[cfg(feature = "sql")]
        let watches = crate::watched::Watches::default();
        #[cfg(feature = "sql")]
        let lake = crate::lake_figures::Figures::default();
        #[cfg(feature = "sql")]
        let lake_place = crate::lake::place(&settings)?;
        let bound = listener.shell(|registry| {
            metrics.register(registry);
            notices.figures.register(registry);
            #[cfg(feature = "sql")]
            {
                of_postgres = Some(headwater_postgres::Metrics::new(registry));
                watches.figures.register(registry);
                lake.register(registry);
            }
            #[cfg(feature = "mqtt")]
            if let Some(source) = &source {
                source.figures.register(registry);
            }
        });
        let app = App {
            memory: headwater_ask::Memory::new(settings.query_memory, settings.query_memory_all),
            #[cfg(feature = "sql")]
            sql_threads,
            #[cfg(feature = "sql")]
            query,
            #[cfg(feature = "sql")]
            watches,
            #[cfg(feature = "sql")]
            lake,
            #[cfg(feature = "sql")]
            lake_place,
            #[cfg(feature = "sql")]
            places: headwater_query::Places::new(settings.sql_statements_max),
            databases: Arc::new(KeptNames::open(db.clone(), &settings)?),
            opened: db,
            reader,
            shell: Arc::clone(bound.shell()),
            metrics,
            compacting: parking_lot::Mutex::new(()),
            ingest,
            live,
            holdings: Holdings::default(),
            notices,
            fleet: others.fleet,
            #[cfg(feature = "bucket")]
            bucket: bucket.clone(),
            relays: others.relays,
            uplink: others.uplink,
            tiles: TileCache::new(settings.tile_cache),
            tile_costs: TileCosts::new(),
            #[cfg(feature = "mqtt")]
            publisher: crate::mqtt_publisher::Publisher::default(),
            #[cfg(feature = "mqtt")]
            messages: source
                .as_ref()
                .map(|source| Arc::clone(&source.figures))
                .unwrap_or_default(),
            settings,
        };
        if !app.settings.dispatch.ticket_keys.is_empty() {
            app.take_tickets().map_err(|source| StartError::Database {
                dir: app.settings.db().display().to_string(),
                source,
            })?;
        }
        Ok(Server {
            #[cfg(feature = "sql")]
            postgres_addr: postgres.as_ref().and_then(|bound| bound.local_addr().ok()),
            #[cfg(feature = "bucket")]
            bucket,
            role: Served::Single(Box::new(Single {
                app: Arc::new(app),
                #[cfg(feature = "bucket")]
                keeper,
                #[cfg(feature = "sql")]
                postgres: postgres.zip(of_postgres),
                #[cfg(feature = "mqtt")]
                source,
            })),
            bound,
        })
    }

    /// The database, and what is counted of messages.
    #[cfg(all(test, feature = "mqtt"))]
    pub(crate) fn of_messages(&self) -> (Database, Arc<crate::mqtt_figures::Figures>) {
        let Served::Single(single) = &self.role else {
            unreachable!("no dispatcher takes messages");
        };
        let figures = single.source.as_ref().map(|s| Arc::clone(&s.figures));
        (single.app.opened.clone(), figures.unwrap_or_default())
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.bound.local_addr()
    }

    /// Where it listens for clients of PostgreSQL, if it does.
    #[cfg(feature = "sql")]
    #[must_use]
    pub fn postgres_addr(&self) -> Option<SocketAddr> {
        self.postgres_addr
    }

    /// The address of its page.
    #[must_use]
    pub fn url(&self) -> String {
        self.bound.url()
    }

    /// Serves until `stop` is true or its sender is gone; then lets the requests that have begun
    /// end, and closes the database with everything durable.
    ///
    /// # Errors
    /// When the database cannot be closed, or another node holds the group of copies that this one
    /// has in a bucket: then it has stopped by itself.
    pub async fn run(self, stop: watch::Receiver<bool>) -> Result<(), StartError> {
        #[cfg(feature = "bucket")]
        let (stop, ended) = match &self.bucket {
            None => (stop, None),
            Some(bucket) => (or_ended(stop, bucket.ended()), Some(bucket.ended())),
        };
        match self.role {
            Served::Single(single) => self.bound.serve(*single, stop).await,
            Served::Dispatcher(dispatcher) => self.bound.serve(dispatcher, stop).await,
        }?;
        #[cfg(feature = "bucket")]
        if let Some(why) = ended.and_then(|ended| ended.borrow().clone()) {
            return Err(StartError::Bucket(why));
        }
        Ok(())
    }
}

/// Becomes true at the stop, or when a group of copies is held no more.
#[cfg(feature = "bucket")]
fn or_ended(
    mut stop: watch::Receiver<bool>,
    mut ended: watch::Receiver<Option<String>>,
) -> watch::Receiver<bool> {
    let (sender, either) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            // An error means that the sender is gone: that is a stop too.
            _ = stop.wait_for(|stop| *stop) => {}
            _ = ended.wait_for(Option::is_some) => {}
        }
        sender.send_replace(true);
    });
    either
}

/// Runs a server until SIGTERM or SIGINT, in a runtime of its own. `ready` is called with the
/// address of its page once it answers.
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

/// A cloud's own database with its copies, for statements.
#[cfg(feature = "sql")]
struct All(Database, Arc<Fleet>);

#[cfg(feature = "sql")]
impl headwater_query::Snapshots for All {
    fn snapshot(&self) -> headwater::Result<headwater::Snapshot> {
        self.1.across(self.0.snapshot()?)
    }
}

/// What there is besides the node's own database.
struct Others {
    fleet: Option<Arc<Fleet>>,
    relays: Option<Arc<Relays>>,
    uplink: Option<Arc<Uplink>>,
}

impl Others {
    /// As the role of the node has it.
    fn open(settings: &Settings, db: &Database, env: &Env) -> Result<Others, StartError> {
        let dir = settings.db();
        let mut others = Others {
            fleet: None,
            relays: None,
            uplink: None,
        };
        match settings.sync.role {
            NodeRole::Cloud => {
                let reader = settings.engine.clone();
                let fleet = Arc::new(Fleet::open(env.clone(), dir, reader)?);
                let (identity, _) =
                    headwater_fleet::database_of(db).map_err(|source| StartError::Database {
                        dir: dir.display().to_string(),
                        source,
                    })?;
                fleet.set_node(identity);
                let relays = Relays::open(&fleet, dir, settings.sync.uplink()?)?;
                (others.fleet, others.relays) = (Some(fleet), Some(Arc::new(relays)));
            }
            NodeRole::Edge => {
                let uplink = Uplink::new(db.clone(), env.clone(), dir, settings.sync.uplink()?)?;
                others.uplink = Some(Arc::new(uplink));
            }
            NodeRole::Single if UplinkFile::read(dir)?.is_some() => tracing::warn!(
                "this database has joined a cloud, and nothing is sent there: start with --role edge"
            ),
            NodeRole::Single | NodeRole::Dispatcher => {}
        }
        Ok(others)
    }
}

/// The database of the settings: as its owner, or where it is only read, as one who looks at it and
/// takes no lock.
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

/// True where the system lets nobody, or not this user, write.
fn is_unwritable(error: &headwater::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .is_some_and(|source| matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
}

/// One line about what runs, and one for each thing that recovery did.
fn told(settings: &Settings, addr: SocketAddr, db: &Database, guard: &Guard) {
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

#[cfg(all(test, feature = "mqtt"))]
mod tests;
