//! Starting, listening and stopping.

use crate::app::{App, router};
use crate::settings::Settings;
use headwater::{Database, Options};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Why a server did not start, or could not end in order.
#[derive(Debug, thiserror::Error)]
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
    #[error(
        "cannot listen on {addr}: {source}; name another with --http-addr, for example 127.0.0.1:0"
    )]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The listener failed while serving.
    #[error("serving failed: {0}")]
    Serve(#[from] std::io::Error),
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    addr: SocketAddr,
}

impl Server {
    /// Opens the database, recovering it if needed, and starts to listen. Requests wait until [`Server::run`].
    ///
    /// # Errors
    /// When the database cannot be opened or the address is taken.
    pub async fn start(settings: Settings) -> Result<Server, StartError> {
        let dir = settings.db.clone();
        let addr = settings.http_addr;
        let opened = tokio::task::spawn_blocking({
            let dir = dir.clone();
            move || Database::open(Options::new(dir))
        })
        .await
        .map_err(std::io::Error::other)?;
        let db = opened.map_err(|source| database(&dir, source))?;
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|source| StartError::Listen { addr, source })?;
        let addr = listener.local_addr()?;
        Ok(Server {
            app: Arc::new(App { db, settings }),
            listener,
            addr,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `stop` is true or its sender is gone; then answers the requests that have begun, and closes the database with
    /// everything durable.
    ///
    /// # Errors
    /// When the listener fails, or the database cannot be closed.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), StartError> {
        let Server { app, listener, .. } = self;
        let dir = app.settings.db.clone();
        axum::serve(listener, router(Arc::clone(&app)))
            .with_graceful_shutdown(async move {
                // An error means that the sender is gone: that is a stop too.
                let _ = stop.wait_for(|stop| *stop).await;
            })
            .await?;
        tokio::task::spawn_blocking(move || app.db.close())
            .await
            .map_err(std::io::Error::other)?
            .map_err(|source| database(&dir, source))
    }
}

fn database(dir: &std::path::Path, source: headwater::Error) -> StartError {
    StartError::Database {
        dir: dir.display().to_string(),
        source,
    }
}
