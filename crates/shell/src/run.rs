//! Starting, serving and stopping.
//!
//! A start binds the address first, so that an occupied port is reported before a role's own start,
//! which may take long. A stop refuses new connections, and ends requests and listeners, then the
//! background work, then the role.

use crate::access::guard::Guard;
use crate::access::tokens::{TokenError, TokenFile};
use crate::http_metrics::Metrics;
use crate::listen::Listening;
use crate::middleware;
use crate::notify::notify;
use crate::role::{Role, Work};
use crate::settings::ShellSettings;
use crate::shell::Shell;
use crate::standard;
use crate::tls::{Certificate, TlsError};
use futures_util::future::join_all;
use headwater_io::Env;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Interval of checks for changed tokens and certificates.
const LOOK: Duration = Duration::from_millis(500);

/// Errors of a start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; choose another address with --http-addr, for example --http-addr {}:0 for any free port", addr.ip())]
    Listen {
        /// The configured address.
        addr: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Other machines could use the server without tokens.
    #[error(
        "{0} can be reached from other machines, and there are no tokens: make one with `headwater token create`, listen on 127.0.0.1, or use --allow-open if everyone may read and write everything"
    )]
    Open(SocketAddr),
    /// Other machines could read the traffic.
    #[error(
        "{0} can be reached from other machines, and there is no TLS: set tls.cert and tls.key, listen on 127.0.0.1, or use --allow-plaintext if others may read all traffic including tokens, or if a proxy does TLS"
    )]
    Plaintext(SocketAddr),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The system refused a resource that serving needs.
    #[error("serving failed: {0}")]
    Serve(#[from] std::io::Error),
}

/// A bound shell that does not serve yet. Requests wait until [`Bound::serve`].
#[derive(Debug)]
pub struct Bound {
    shell: Arc<Shell>,
    listener: TcpListener,
    addr: SocketAddr,
    stop: watch::Sender<bool>,
}

/// A bound shell whose metrics are not registered yet.
#[derive(Debug)]
pub struct Listener {
    settings: ShellSettings,
    env: Env,
    guard: Arc<Guard>,
    certificate: Option<Arc<Certificate>>,
    listener: TcpListener,
    addr: SocketAddr,
}

impl Listener {
    /// Checks that these settings are safe to serve, and binds the addresses. `front_ends` are
    /// further addresses, which are checked in the same way.
    ///
    /// # Errors
    /// When an address is occupied or may not be served with these settings, or a certificate or
    /// the tokens cannot be read.
    pub async fn bind(
        settings: ShellSettings,
        env: Env,
        tokens: TokenFile,
        front_ends: &[SocketAddr],
    ) -> Result<Listener, StartError> {
        let addr = settings.http_addr;
        let guard = Guard::new(tokens)?
            .read_only(settings.read_only)
            .with_rights(settings.rights.clone());
        let certificate = match (&settings.tls_cert, &settings.tls_key) {
            (Some(cert), Some(key)) => Some(Arc::new(Certificate::read(cert, key)?)),
            _ => None,
        };
        for addr in std::iter::once(&addr).chain(front_ends) {
            let reachable = !addr.ip().is_loopback();
            if reachable && guard.is_open() && !settings.allow_open {
                return Err(StartError::Open(*addr));
            }
            if reachable && !guard.is_open() && certificate.is_none() && !settings.allow_plaintext {
                return Err(StartError::Plaintext(*addr));
            }
        }
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|source| StartError::Listen { addr, source })?;
        Ok(Listener {
            addr: listener.local_addr()?,
            settings,
            env,
            guard: Arc::new(guard),
            certificate,
            listener,
        })
    }

    /// Bound address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The tokens in force.
    #[must_use]
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// Creates the shell; `register` adds the metrics of its role.
    #[must_use]
    pub fn shell(self, register: impl FnOnce(&mut Registry)) -> Bound {
        let metrics = Metrics::new(
            &self.env,
            (self.certificate.as_ref(), &self.guard),
            register,
        );
        let (stop, stopping) = watch::channel(false);
        let shell = Shell::new(
            self.settings,
            self.env,
            self.guard,
            self.certificate,
            stopping,
            metrics,
        );
        Bound {
            shell: Arc::new(shell),
            listener: self.listener,
            addr: self.addr,
            stop,
        }
    }
}

impl Bound {
    /// The state that all requests will share.
    #[must_use]
    pub fn shell(&self) -> &Arc<Shell> {
        &self.shell
    }

    /// Bound address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of its page.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = match self.shell.certificate() {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}/", self.addr)
    }

    /// Serves a role until `stop` is true or its sender was dropped; then waits for work in
    /// progress, and closes the role.
    ///
    /// # Errors
    /// Errors of the role's end.
    pub async fn serve<R: Role>(
        self,
        mut role: R,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), R::Error> {
        let Bound {
            shell,
            listener,
            stop: stopping,
            ..
        } = self;
        let Work {
            front_ends,
            workers,
        } = role.begin(&shell);
        let role = Arc::new(role);
        let workers: Vec<_> = workers.into_iter().map(tokio::spawn).collect();
        let front_ends: Vec<_> = front_ends.into_iter().map(tokio::spawn).collect();
        let keeper = tokio::spawn(reload_secrets(Arc::clone(&shell)));
        let mut routes = standard::routes(&shell, &role);
        routes.extend(role.routes(&shell));
        let listening = Listening {
            shell: Arc::clone(&shell),
            listener,
            router: middleware::router(&shell, routes),
        };
        let served = async {
            let (served, front_ends) = tokio::join!(listening.run(), join_all(front_ends));
            let front_ends = front_ends.into_iter().map(|ended| {
                ended.unwrap_or_else(|error| {
                    tracing::error!(%error, "a front end did not shut down cleanly");
                    false
                })
            });
            front_ends.fold(served, |all, ended| all && ended)
        };
        let ended = {
            let wait = async {
                // An error means that the sender was dropped, which is a stop too.
                let _ = stop.wait_for(|stop| *stop).await;
                notify("STOPPING=1");
                tracing::info!("shutting down: no more connections are accepted");
                stopping.send_replace(true);
            };
            tokio::join!(served, wait).0
        };
        if !ended {
            tracing::warn!("requests were aborted at the end of the shutdown timeout");
        }
        keeper.abort();
        role.requests_ended();
        // Received data is processed before the role closes.
        for ended in join_all(workers).await {
            if let Err(error) = ended {
                tracing::error!(%error, "background work did not shut down cleanly");
            }
        }
        tokio::task::spawn_blocking(move || role.close())
            .await
            .map_err(std::io::Error::other)?
    }
}

/// Looks for changed tokens and certificates, now and then and on SIGHUP.
async fn reload_secrets(shell: Arc<Shell>) {
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
        let shell = Arc::clone(&shell);
        let looked = tokio::task::spawn_blocking(move || {
            shell.guard().refresh();
            shell.guard().report_age();
            if let Some(certificate) = shell.certificate() {
                certificate.refresh(asked);
                certificate.report_expiry(shell.env().clock.now());
            }
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "checking for changed tokens and certificates failed");
        }
    }
}

/// Runs a server until SIGTERM or SIGINT, in its own runtime: `start` creates the server, and `run`
/// serves until the passed watch becomes true. `ready` is called after the start.
///
/// # Errors
/// Errors of the start, of the end, and of the system.
pub fn run_until_signal<S, E: From<std::io::Error>>(
    start: impl AsyncFnOnce() -> Result<S, E>,
    ready: impl FnOnce(&S),
    run: impl AsyncFnOnce(S, watch::Receiver<bool>) -> Result<(), E>,
) -> Result<(), E> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        // Before the start, so that a signal during a long recovery is not lost.
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // Without a handler, this signal would end the process.
        let _hangup = signal(SignalKind::hangup())?;
        let server = start().await?;
        let (stop, stopped) = watch::channel(false);
        notify("READY=1");
        ready(&server);
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.send_replace(true);
        });
        run(server, stopped).await
    });
    // Stuck work must not prevent the process from exiting.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}
