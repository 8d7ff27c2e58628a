//! The state that all requests share.
//!
//! Concurrency: shared by all tasks; no method waits.

use crate::access::guard::Guard;
use crate::access::host::Names;
use crate::error::ErrorAnswer;
use crate::http_metrics::Metrics;
use crate::settings::ShellSettings;
use crate::tls::Certificate;
use axum::http::StatusCode;
use headwater_io::Env;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// The state that all requests share.
pub struct Shell {
    pub(crate) settings: ShellSettings,
    env: Env,
    guard: Arc<Guard>,
    certificate: Option<Arc<Certificate>>,
    /// Names under which requests without a token are admitted.
    pub(crate) names: Names,
    pub(crate) metrics: Metrics,
    /// One permit for each request that may run at once.
    requests: Semaphore,
    stopping: watch::Receiver<bool>,
    /// Start, by the monotonic clock.
    started: Duration,
    /// Distinguishes the requests of this run from requests of other runs.
    run_number: u32,
    requests_named: AtomicU64,
    full: FullDisk,
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
            full: FullDisk::default(),
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

    /// The current certificate; `None` = no TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&Arc<Certificate>> {
        self.certificate.as_ref()
    }

    /// Becomes true when the server stops: answers that last must end then.
    #[must_use]
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.clone()
    }

    /// Time since the start.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.env.clock.monotonic().saturating_sub(self.started)
    }

    /// A permit to work on a request; the number of permits limits the running requests.
    ///
    /// # Errors
    /// `E_REQUESTS` when no permit is free.
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

    /// Number of requests that are being worked on, those that wait for news included.
    #[must_use]
    pub fn requests_running(&self) -> u32 {
        let free = self.requests.available_permits();
        let running = self.settings.requests_max.saturating_sub(free);
        u32::try_from(running).unwrap_or(u32::MAX)
    }

    /// Records the status of a write, and logs a full disk once when it fills up, and once when
    /// space is available again: clients keep sending meanwhile.
    pub(crate) fn note_write(&self, status: StatusCode) {
        match self.full.note(status) {
            None => {}
            Some(Disk::Full) => {
                tracing::warn!("the disk is full: writes are answered 507 until there is room")
            }
            Some(Disk::HasSpace { refused }) => {
                tracing::info!(
                    refused,
                    "there is room on the disk again: writes are stored"
                );
            }
        }
    }

    /// The next id for a request without one.
    pub(crate) fn next_request_id(&self) -> String {
        let number = self.requests_named.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}-{number:x}", self.run_number)
    }
}

/// A change of the disk to be logged.
#[derive(Debug, PartialEq, Eq)]
enum Disk {
    Full,
    HasSpace {
        /// Writes that were refused meanwhile.
        refused: u64,
    },
}

/// Number of writes answered 507 since one was stored.
#[derive(Debug, Default)]
struct FullDisk(AtomicU64);

impl FullDisk {
    fn note(&self, status: StatusCode) -> Option<Disk> {
        if status == StatusCode::INSUFFICIENT_STORAGE {
            let is_first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
            return is_first.then_some(Disk::Full);
        }
        if !status.is_success() {
            return None;
        }
        let refused = self.0.swap(0, Ordering::Relaxed);
        (refused > 0).then_some(Disk::HasSpace { refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_once_and_so_is_room() {
        let disk = FullDisk::default();
        let note = |status: u16| disk.note(StatusCode::from_u16(status).unwrap_or_default());
        assert_eq!(note(204), None);
        assert_eq!(note(507), Some(Disk::Full));
        assert_eq!(
            [note(507), note(400), note(503), note(507)],
            [None, None, None, None]
        );
        assert_eq!(note(204), Some(Disk::HasSpace { refused: 3 }));
        assert_eq!(note(204), None);
        assert_eq!(note(507), Some(Disk::Full));
    }
}
