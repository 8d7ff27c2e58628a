//! Environment of the PostgreSQL front end in this server: access, TLS, and admission of
//! statements.

use crate::access::Access;
use crate::access::rules::Action;
use crate::access::token::{Carried, fill_random};
use crate::app::App;
use crate::component::Component;
use crate::components::sql::owner;
use crate::query_access::QueryAccess;
use crate::settings::Settings;
use crate::start_error::StartError;
use headwater_postgres::{FrontEnd, FrontEndSettings, Grant, Host, Metrics, Statements};
use headwater_query::Owner;
use headwater_shell::Shell;
use headwater_shell::Work;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use tokio::net::TcpListener;

/// Creates the front end over a server's database.
pub(crate) fn front_end(app: &App, metrics: Metrics) -> Arc<FrontEnd> {
    let statements = Statements {
        query: app.sql().query.clone(),
        threads: Arc::clone(&app.sql().threads),
        slots: Arc::clone(&app.sql().slots),
    };
    FrontEnd::new(
        Arc::new(Tokens(Arc::clone(&app.shell))),
        statements,
        settings(&app.settings),
        metrics,
        app.shell.stopping(),
    )
}

fn settings(settings: &Settings) -> FrontEndSettings {
    FrontEndSettings {
        allow_open: settings.allow_open,
        allow_plaintext: settings.allow_plaintext,
        connections_max: settings.postgres_connections_max,
        startup_timeout: settings.postgres_startup_timeout,
        idle_timeout: settings.postgres_idle_timeout,
        statement_timeout: settings.sql_timeout,
        shutdown_timeout: settings.shutdown_timeout,
        message_bytes_max: settings.body_max,
    }
}

/// Tokens and the certificate of the server.
struct Tokens(Arc<Shell>);

impl Host for Tokens {
    fn is_open(&self) -> bool {
        self.0.guard().is_open()
    }

    fn admit(&self, token: Option<String>) -> Option<Arc<dyn Grant>> {
        let carried = token.map_or(Carried::Missing, Carried::Token);
        // A refused client is not told the reason.
        let access = self.0.guard().admit(&carried).ok()?;
        Some(Arc::new(Session(access)))
    }

    fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        Some(self.0.certificate()?.config_for(b"postgresql"))
    }

    fn random_bytes(&self, bytes: &mut [u8]) -> io::Result<()> {
        fill_random(bytes)
    }
}

/// Access of a session's token.
struct Session(Access);

impl Grant for Session {
    fn is_current(&self) -> bool {
        self.0.is_current()
    }

    fn allows_anything(&self) -> bool {
        [Action::Read, Action::Write, Action::Manage]
            .into_iter()
            .any(|action| self.0.any(action))
    }

    fn access(&self) -> Arc<dyn headwater_query::Access> {
        Arc::new(QueryAccess(self.0.clone()))
    }

    fn owner(&self) -> Owner {
        owner(&self.0, "postgres")
    }
}

/// Front end for clients of PostgreSQL; exists if the settings contain its address.
#[derive(Debug)]
pub(super) struct PostgresFrontEnd {
    address: Option<SocketAddr>,
    /// `None` after the component has begun.
    listener: Mutex<Option<TcpListener>>,
    metrics: OnceLock<Metrics>,
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

impl Component<App> for PostgresFrontEnd {
    fn register(&self, registry: &mut Registry) {
        let metrics = Metrics::new(registry);
        let is_first = self.metrics.set(metrics).is_ok();
        debug_assert!(is_first, "metrics are registered once");
    }

    fn begin(&self, app: &Arc<App>, work: &mut Work) {
        let listener = self.listener.lock().take();
        if let (Some(listener), Some(metrics)) = (listener, self.metrics.get()) {
            let front_end = front_end(app, metrics.clone());
            work.front_ends.push(Box::pin(front_end.run(listener)));
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}
