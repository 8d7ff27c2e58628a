//! What all requests share, whatever they are for.
//!
//! Concurrency: shared by all tasks; nothing here waits.

use crate::access::host::Names;
use crate::access::tokens::Guard;
use crate::error::ErrorAnswer;
use crate::metrics::Metrics;
use crate::settings::ShellSettings;
use crate::tls::Certificate;
use axum::http::StatusCode;
use headwater_io::Env;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// What all requests share.
pub struct Shell {
    pub(crate) settings: ShellSettings,
    env: Env,
    guard: Arc<Guard>,
    certificate: Option<Arc<Certificate>>,
    /// Names that requests without a token may come under.
    pub(crate) names: Names,
    pub(crate) metrics: Metrics,
    /// One permit for each request that may be worked on.
    requests: Semaphore,
    stopping: watch::Receiver<bool>,
    /// By the monotonic clock.
    started: Duration,
    /// Tells the requests of one run from those of others.
    run_number: u32,
    requests_named: AtomicU64,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Shell {
    pub(crate) fn new(
        settings: ShellSettings,
        env: Env,
        guard: Arc<Guard>,
        certificate: Option<Arc<Certificate>>,
        stopping: watch::Receiver<bool>,
        metrics: Metrics,
    ) -> Shell {
        let reachable = !settings.http_addr.ip().is_loopback();
        Shell {
            guard,
            certificate,
            names: Names::new(&settings.hosts, reachable && settings.allow_open),
            metrics,
            requests: Semaphore::new(settings.requests_max),
            stopping,
            started: env.clock.monotonic(),
            // The low half is as random as the high one.
            run_number: (env.chance.next_u64() >> 32) as u32,
            requests_named: AtomicU64::new(0),
            settings,
            env,
        }
    }

    /// The clocks, randomness and threads of this server.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The tokens in force.
    #[must_use]
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// The certificate in force; `None` = no TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.certificate.as_ref()
    }

    /// Becomes true when the server stops: answers that last must end then.
    #[must_use]
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.clone()
    }

    /// How long it has run.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.env.clock.monotonic().saturating_sub(self.started)
    }

    /// A permit to work on a request, of which there are as many as requests may be worked on.
    ///
    /// # Errors
    /// `E_REQUESTS` when there is none.
    pub fn permit(&self) -> Result<SemaphorePermit<'_>, ErrorAnswer> {
        self.requests.try_acquire().map_err(|_| {
            let max = self.settings.requests_max;
            ErrorAnswer::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "E_REQUESTS",
                format!("{max} requests are being worked on, the most that the setting request.max allows"),
            )
            .retry_after(1)
        })
    }

    /// The next id for a request that has none.
    pub(crate) fn next_request_id(&self) -> String {
        let number = self.requests_named.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}-{number:x}", self.run_number)
    }
}
