//! What the door for PostgreSQL's clients gets from this server: who may do what, TLS, and places for statements.

use crate::access::Access;
use crate::access::rules::Action;
use crate::access::token::{Carried, fill_random};
use crate::access::tokens::Guard;
use crate::access::{Granted, owner};
use crate::app::App;
use crate::settings::Settings;
use crate::tls::Certificate;
use headwater_postgres::{Door, DoorSettings, Grant, Host, Metrics, Statements};
use headwater_query::Owner;
use std::io;
use std::sync::Arc;

/// The door over a server's database.
pub(crate) fn door(
    app: &App,
    certificate: Option<Arc<Certificate>>,
    metrics: Metrics,
) -> Arc<Door> {
    let statements = Statements {
        query: app.query.clone(),
        threads: Arc::clone(&app.sql_threads),
        places: Arc::clone(&app.places),
    };
    let host = Tokens {
        guard: Arc::clone(&app.guard),
        certificate,
    };
    Door::new(
        Arc::new(host),
        statements,
        settings(&app.settings),
        metrics,
        app.stopping.clone(),
    )
}

fn settings(settings: &Settings) -> DoorSettings {
    DoorSettings {
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
struct Tokens {
    guard: Arc<Guard>,
    certificate: Option<Arc<Certificate>>,
}

impl Host for Tokens {
    fn is_open(&self) -> bool {
        self.guard.is_open()
    }

    fn admit(&self, token: Option<String>) -> Option<Arc<dyn Grant>> {
        let carried = token.map_or(Carried::Nothing, Carried::Token);
        // Who is not let in is told nothing of why.
        let access = self.guard.admit(&carried).ok()?;
        Some(Arc::new(Session(access)))
    }

    fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        let certificate = self.certificate.as_ref()?;
        Some(certificate.config_for(b"postgresql"))
    }

    fn random_bytes(&self, bytes: &mut [u8]) -> io::Result<()> {
        fill_random(bytes)
    }
}

/// What the token of a session allows.
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
        Arc::new(Granted(self.0.clone()))
    }

    fn owner(&self) -> Owner {
        owner(&self.0, "postgres")
    }
}
