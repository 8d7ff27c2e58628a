//! Starting, serving and stopping.
//!
//! A start binds the address first, so that a port that is taken is told before a recovery that may last; then it opens the
//! database. A stop takes no more connections, lets requests end, and closes the database with everything durable.

use crate::access::host::Names;
use crate::access::tokens::{Guard, TokenError, TokenFile};
use crate::app::App;
use crate::ingest::{Ingest, Limits};
use crate::listen::Listening;
use crate::metrics::Metrics;
use crate::notify::notify;
use crate::routes;
use crate::settings::Settings;
use crate::tile_cache::TileCache;
use crate::tile_costs::TileCosts;
use crate::tls::Certificate;
use headwater::Database;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};

/// How often changes of tokens and certificates are looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Why a server did not start, or could not end in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The database cannot be opened, or not be closed.
    #[error("the database {dir}: {source}")]
    Database {
        /// Its directory.
        dir: String,
        /// What the engine says.
        source: headwater::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; name another with --http-addr, for example --http-addr {}:0 for any free port", addr.ip())]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The address for clients of PostgreSQL cannot be listened on.
    #[cfg(feature = "sql")]
    #[error(
        "cannot listen on {addr} for clients of PostgreSQL: {source}; name another with --postgres-addr"
    )]
    ListenPostgres {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others could reach the server, and nothing would keep them out.
    #[error(
        "{0} can be reached from other machines, and there are no tokens: make one with `headwater token create`, listen on 127.0.0.1, or say --allow-open if everyone may read and write everything"
    )]
    Open(SocketAddr),
    /// Others could read what is sent.
    #[error(
        "{0} can be reached from other machines, and there is no TLS: set tls.cert and tls.key, listen on 127.0.0.1, or say --allow-plaintext if others may read what is sent, tokens too, or a proxy does TLS"
    )]
    Plaintext(SocketAddr),
    /// A certificate or key cannot be used.
    #[error("{path}: {reason}")]
    Tls {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// Messages cannot be taken from a broker with these settings.
    #[error("mqtt: {0}")]
    Mqtt(String),
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The system denied something that serving needs.
    #[error("serving failed: {0}")]
    Serve(#[from] std::io::Error),
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    addr: SocketAddr,
    /// For clients of PostgreSQL.
    #[cfg(feature = "sql")]
    postgres: Option<(TcpListener, headwater_postgres::Metrics)>,
    certificate: Option<Arc<Certificate>>,
    stop: watch::Sender<bool>,
    /// Where messages come from, besides requests.
    #[cfg(feature = "mqtt")]
    source: Option<crate::mqtt::Source>,
}

impl Server {
    /// Starts to listen, and opens the database, recovering it if needed. Requests wait until [`Server::run`].
    ///
    /// # Errors
    /// When the address is taken or may not be served with these settings, a certificate or the tokens cannot be read, or the
    /// database cannot be opened.
    pub async fn start(settings: Settings) -> Result<Server, StartError> {
        Server::start_with(settings, None).await
    }

    /// As [`Server::start`], over a database that is open already: that of a program which lets others look at its data, or
    /// one whose files are not those of the system. Of the settings, those of the engine are not used, but for the directory,
    /// where the tokens are. The database is closed at the end.
    ///
    /// # Errors
    /// As [`Server::start`], but for those of opening the database.
    pub async fn over(db: Database, settings: Settings) -> Result<Server, StartError> {
        Server::start_with(settings, Some(db)).await
    }

    async fn start_with(settings: Settings, open: Option<Database>) -> Result<Server, StartError> {
        let addr = settings.http_addr;
        let guard = Guard::new(TokenFile::of_database(settings.db()))?;
        let certificate = Certificate::new(&settings)?.map(Arc::new);
        let reachable = !addr.ip().is_loopback();
        for addr in [Some(addr), settings.postgres_addr].into_iter().flatten() {
            let reachable = !addr.ip().is_loopback();
            if reachable && guard.is_open() && !settings.allow_open {
                return Err(StartError::Open(addr));
            }
            if reachable && !guard.is_open() && certificate.is_none() && !settings.allow_plaintext {
                return Err(StartError::Plaintext(addr));
            }
        }
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|source| StartError::Listen { addr, source })?;
        let addr = listener.local_addr()?;
        #[cfg(feature = "sql")]
        let postgres = match settings.postgres_addr {
            None => None,
            Some(addr) => {
                let bound = TcpListener::bind(addr).await;
                Some(bound.map_err(|source| StartError::ListenPostgres { addr, source })?)
            }
        };
        let db = match open {
            Some(db) => db,
            None => {
                let options = settings.engine.clone();
                tokio::task::spawn_blocking(|| Database::open(options))
                    .await
                    .map_err(std::io::Error::other)?
                    .map_err(|source| database(&settings, source))?
            }
        };
        told(&settings, addr, &db, &guard);
        let live = Arc::default();
        #[cfg(feature = "mqtt")]
        let source = crate::mqtt::Source::new(&settings)?;
        let ingest = Ingest::start(db.clone(), Arc::clone(&live), Limits::of(&settings))?;
        let (stop, stopping) = watch::channel(false);
        #[cfg(feature = "sql")]
        let limits = settings.sql_limits();
        #[cfg(feature = "sql")]
        // One for each statement at least: what keeps a thread busy for long keeps nobody else from
        // running.
        let sql_threads = Arc::new(headwater_query::Threads::new(
            limits.parallel.max(settings.sql_statements_max.min(64)),
        )?);
        #[cfg(feature = "sql")]
        let query = headwater_query::Query::new(db.clone(), limits);
        #[cfg(feature = "sql")]
        let mut of_postgres = None;
        let metrics = Metrics::new(|registry| {
            #[cfg(feature = "sql")]
            {
                of_postgres = Some(headwater_postgres::Metrics::new(registry));
            }
            #[cfg(feature = "mqtt")]
            if let Some(source) = &source {
                source.figures.register(registry);
            }
            let _ = registry;
        });
        let app = App {
            #[cfg(feature = "sql")]
            sql_threads,
            #[cfg(feature = "sql")]
            query,
            #[cfg(feature = "sql")]
            places: headwater_query::Places::new(settings.sql_statements_max),
            db,
            guard: Arc::new(guard),
            names: Names::new(&settings.hosts, reachable && settings.allow_open),
            metrics,
            ingest,
            requests: Semaphore::new(settings.requests_max),
            stopping,
            started: Instant::now(),
            live,
            tiles: TileCache::new(settings.tile_cache),
            tile_costs: TileCosts::new(),
            #[cfg(feature = "mqtt")]
            messages: source
                .as_ref()
                .map(|source| Arc::clone(&source.figures))
                .unwrap_or_default(),
            settings,
        };
        Ok(Server {
            app: Arc::new(app),
            listener,
            addr,
            #[cfg(feature = "sql")]
            postgres: postgres.zip(of_postgres),
            certificate,
            stop,
            #[cfg(feature = "mqtt")]
            source,
        })
    }

    /// The database, and what is counted of messages.
    #[cfg(all(test, feature = "mqtt"))]
    pub(crate) fn of_messages(&self) -> (Database, Arc<crate::mqtt::Figures>) {
        let figures = self.source.as_ref().map(|s| Arc::clone(&s.figures));
        (self.app.db.clone(), figures.unwrap_or_default())
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens for clients of PostgreSQL, if it does.
    #[cfg(feature = "sql")]
    #[must_use]
    pub fn postgres_addr(&self) -> Option<SocketAddr> {
        self.postgres.as_ref()?.0.local_addr().ok()
    }

    /// The address of its page.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = match self.certificate {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}/", self.addr)
    }

    /// Serves until `stop` is true or its sender is gone; then lets the requests that have begun end, and closes the database
    /// with everything durable.
    ///
    /// # Errors
    /// When the database cannot be closed.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), StartError> {
        let Server {
            app,
            listener,
            certificate,
            stop: stopping,
            #[cfg(feature = "mqtt")]
            source,
            #[cfg(feature = "sql")]
            postgres,
            ..
        } = self;
        #[cfg(feature = "mqtt")]
        let source = source.map(|source| source.run(Arc::clone(&app)));
        let keeper = tokio::spawn(keep(Arc::clone(&app), certificate.clone()));
        #[cfg(feature = "sql")]
        let certificate_of_doors = certificate.clone();
        let listening = Listening {
            app: Arc::clone(&app),
            listener,
            certificate,
            router: routes::router(Arc::clone(&app)),
        };
        let served = listening.run(app.stopping.clone());
        #[cfg(feature = "sql")]
        let served = {
            let door = postgres.map(|(listener, metrics)| {
                crate::postgres::door(&app, certificate_of_doors, metrics).run(listener)
            });
            async {
                let door = async {
                    match door {
                        Some(door) => door.await,
                        None => true,
                    }
                };
                let (served, door) = tokio::join!(served, door);
                served && door
            }
        };
        let ended = {
            let wait = async {
                // An error means that the sender is gone: that is a stop too.
                let _ = stop.wait_for(|stop| *stop).await;
                notify("STOPPING=1");
                tracing::info!("stopping: no more connections are taken");
                stopping.send_replace(true);
            };
            tokio::join!(served, wait).0
        };
        if !ended {
            tracing::warn!("requests were cut off when the time for the end was up");
        }
        keeper.abort();
        // What was received is stored and acknowledged before the database closes.
        #[cfg(feature = "mqtt")]
        if let Some(source) = source
            && let Err(error) = source.await
        {
            tracing::error!(%error, "taking messages did not end in order");
        }
        let closed = {
            let app = Arc::clone(&app);
            tokio::task::spawn_blocking(move || {
                app.ingest.close();
                app.db.close()
            })
        };
        closed
            .await
            .map_err(std::io::Error::other)?
            .map_err(|source| database(&app.settings, source))?;
        tracing::info!("stopped: the database is closed");
        Ok(())
    }
}

/// Runs a server until SIGTERM or SIGINT, in a runtime of its own. `ready` is called with the address of its page once it
/// answers.
///
/// # Errors
/// As [`Server::start`] and [`Server::run`].
pub fn serve(settings: Settings, ready: impl FnOnce(&str)) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        // Before the start, so that a signal during a long recovery is not lost.
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // Without somebody who listens, this one would end the process.
        let _hangup = signal(SignalKind::hangup())?;
        let server = Server::start(settings).await?;
        let (stop, stopped) = watch::channel(false);
        notify("READY=1");
        ready(&server.url());
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.send_replace(true);
        });
        server.run(stopped).await
    });
    // Work that is stuck must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Looks for changed tokens and certificates, now and then and on SIGHUP.
async fn keep(app: Arc<App>, certificate: Option<Arc<Certificate>>) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => {
            tracing::error!(%error, "changes of tokens and certificates will not be seen");
            return;
        }
    };
    loop {
        let asked = tokio::select! {
            asked = hangup.recv() => asked.is_some(),
            () = tokio::time::sleep(LOOK) => false,
        };
        let (app, certificate) = (Arc::clone(&app), certificate.clone());
        let looked = tokio::task::spawn_blocking(move || {
            app.guard.refresh();
            if let Some(certificate) = certificate {
                certificate.refresh(asked);
            }
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "looking for changed tokens and certificates failed");
        }
    }
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
    tracing::info!(recovery = ?db.recovery(), "the database is open");
}

fn database(settings: &Settings, source: headwater::Error) -> StartError {
    StartError::Database {
        dir: settings.db().display().to_string(),
        source,
    }
}
