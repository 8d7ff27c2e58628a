//! Accepting connections, and closing them gracefully.
//!
//! Invariants: the number of connections never exceeds the setting; further connections wait in the
//! system's queue. After the stop no connection is accepted, and each open connection ends after
//! its current request, or when the time limit is reached.
//!
//! Reasons against a ready-made accept loop: a limit of connections, times for TLS and heads of
//! requests, certificates that change and an end with a time limit are all needed, and are a page
//! of code together.

use crate::patient::Patient;
use crate::shell::Shell;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// Pause after a failure to accept a connection, which is most often a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum requests at once on one connection of HTTP/2.
const STREAMS_MAX: u32 = 128;

/// Longest time in which a client does not read its answer.
const UNREAD_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Listening {
    pub(crate) shell: Arc<Shell>,
    pub(crate) listener: TcpListener,
    pub(crate) router: Router,
}

impl Listening {
    /// Serves until the server stops. Returns true when every request ended in time.
    pub(crate) async fn run(self) -> bool {
        let mut stop = self.shell.stopping();
        let settings = &self.shell.settings;
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(settings.header_timeout)
            // Heads and bodies in one write. Not `pipeline_flush`, which does the same but never
            // sends its buffer while unread bytes remain, as they do after bytes that are not a
            // request.
            .writev(false);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .keep_alive_interval(Duration::from_secs(30));
        let http = Arc::new(http);
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(settings.connections_max));
        let stopped = async {
            // An error means that the sender was dropped, which is a stop too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::pin!(stopped);
        loop {
            let taken = tokio::select! {
                biased;
                () = &mut stopped => break,
                taken = self.accept(&places) => taken,
            };
            let (stream, place) = match taken {
                Ok(taken) => taken,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let connection = Connection {
                http: Arc::clone(&http),
                router: self.router.clone(),
                watcher: graceful.watcher(),
                stopping: self.shell.stopping(),
            };
            let tls = self
                .shell
                .certificate()
                .map(|certificate| TlsAcceptor::from(certificate.config()));
            let wait = settings.header_timeout;
            let open = self.shell.metrics.connections().clone();
            tokio::spawn(async move {
                open.inc();
                match tls {
                    None => connection.serve(stream).await,
                    Some(tls) => match tokio::time::timeout(wait, tls.accept(stream)).await {
                        Ok(Ok(stream)) => connection.serve(stream).await,
                        Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
                        Err(_) => tracing::debug!("the TLS handshake timed out"),
                    },
                }
                open.dec();
                drop(place);
            });
        }
        // Refuses new connections while the existing ones end.
        drop(self.listener);
        let limit = self.shell.settings.shutdown_timeout;
        tokio::time::timeout(limit, graceful.shutdown())
            .await
            .is_ok()
    }

    async fn accept(
        &self,
        places: &Arc<Semaphore>,
    ) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
        let place = Arc::clone(places)
            .acquire_owned()
            .await
            .map_err(std::io::Error::other)?;
        let (stream, _) = self.listener.accept().await?;
        // Small answers must not wait for the acknowledgement of previous answers.
        stream.set_nodelay(true)?;
        Ok((stream, place))
    }
}

struct Connection {
    http: Arc<auto::Builder<TokioExecutor>>,
    router: Router,
    watcher: Watcher,
    stopping: watch::Receiver<bool>,
}

impl Connection {
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let service = TowerToHyperService::new(self.router);
        let stream = Patient::new(stream, UNREAD_MAX, self.stopping);
        let connection = self
            .http
            // A WebSocket leaves the connection that it began as.
            .serve_connection_with_upgrades(TokioIo::new(stream), service)
            .into_owned();
        if let Err(error) = self.watcher.watch(connection).await {
            // Clients may disconnect at any time.
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
