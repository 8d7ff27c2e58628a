//! What all requests to a dispatcher share: its nodes, what is known of them, and its key.
//!
//! Invariant: nothing here is kept over a restart but the key, and a new one would do: nodes tell
//! again what they hold, and take any key that comes with the token.
//! Concurrency: the tables are locked for a look-up, or while a change is taken in, never while
//! something is waited for.

use super::figures::Figures;
use super::peer::Peer;
use crate::access::ticket::TicketKey;
use crate::key_file::seed;
use crate::notices::Notices;
use crate::settings::Settings;
use crate::start_error::StartError;
use headwater_protocol::dispatch::{NodeIndex, Tables};
use headwater_shell::Shell;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Edges to which connections are kept.
const EDGES_MAX: usize = 1_024;
const KEY_FILE: &str = "dispatch.key";

/// A node, by two addresses.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) peer: Arc<Peer>,
    /// Where clients are sent.
    pub(crate) public_url: String,
    /// Why it does not answer.
    pub(crate) error: Mutex<Option<String>>,
}

/// How fast answers may be passed on, all together.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// Until when what was passed on takes, by the monotonic clock.
    busy_until: Mutex<Duration>,
}

impl Pace {
    /// Takes note of bytes that are passed on. How long to wait then.
    pub(crate) fn take(&self, now: Duration, bytes: usize) -> Duration {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else {
            return Duration::ZERO;
        };
        let bytes = u128::try_from(bytes).unwrap_or(0);
        let ns = bytes.saturating_mul(1_000_000_000) / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let mut busy_until = self.busy_until.lock();
        *busy_until = now.max(*busy_until).saturating_add(takes);
        busy_until.saturating_sub(now)
    }
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) shell: Arc<Shell>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tables: RwLock<Tables>,
    /// What nodes are asked with.
    pub(crate) token: Option<String>,
    pub(crate) key: TicketKey,
    pub(crate) figures: Figures,
    /// Notices of nodes.
    pub(crate) notices: Arc<Notices>,
    /// One for each answer that may be passed on.
    pub(crate) relays: Arc<Semaphore>,
    pub(crate) pace: Arc<Pace>,
    edges: Mutex<HashMap<String, Arc<Peer>>>,
    ca: Option<String>,
}

impl Desk {
    pub(crate) fn new(
        settings: &Settings,
        shell: Arc<Shell>,
        figures: Figures,
        notices: Arc<Notices>,
    ) -> Result<Desk, StartError> {
        let of_dispatch = &settings.dispatch;
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.map_err(|e| StartError::Dispatch(format!("{}: {e}", path.display())))
        };
        let ca = of_dispatch.ca.as_deref().map(read).transpose()?;
        let token = of_dispatch.token_file.as_deref().map(read).transpose()?;
        let nodes = of_dispatch.nodes.iter().map(|node| Node {
            peer: Arc::new(Peer::new(&node.url, ca.as_deref())),
            public_url: node.public_url.clone(),
            error: Mutex::new(None),
        });
        let nodes: Vec<Node> = nodes.collect();
        Ok(Desk {
            tables: RwLock::new(Tables::new(nodes.len())),
            key: key(settings.db())?,
            token: token.map(|token| token.trim().to_owned()),
            relays: Arc::new(Semaphore::new(of_dispatch.relays_max)),
            pace: Arc::new(Pace {
                bytes_per_second: of_dispatch.relay_rate,
                busy_until: Mutex::new(Duration::ZERO),
            }),
            edges: Mutex::default(),
            shell,
            nodes,
            figures,
            notices,
            ca,
        })
    }

    pub(crate) fn node(&self, at: NodeIndex) -> Option<&Node> {
        self.nodes.get(at.0)
    }

    /// A node does not answer.
    pub(crate) fn lost(&self, at: NodeIndex, why: &str) {
        self.tables.write().lost(at);
        if let Some(node) = self.node(at) {
            let before = node.error.lock().replace(why.to_owned());
            if before.is_none() {
                tracing::warn!(node = node.peer.url(), why, "a node does not answer");
            }
        }
    }

    /// An edge at its own address.
    pub(crate) fn edge(&self, url: &str) -> Arc<Peer> {
        let mut edges = self.edges.lock();
        if edges.len() >= EDGES_MAX && !edges.contains_key(url) {
            edges.clear();
        }
        let edge = edges
            .entry(url.to_owned())
            .or_insert_with(|| Arc::new(Peer::new(url, self.ca.as_deref())));
        Arc::clone(edge)
    }
}

/// The key of this dispatcher, made at its first start.
fn key(dir: &Path) -> Result<TicketKey, StartError> {
    let seed = seed(&dir.join(KEY_FILE)).map_err(StartError::Dispatch)?;
    let key = TicketKey::of_seed(&seed);
    key.ok_or_else(|| StartError::Dispatch(format!("{KEY_FILE}: this is no key")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_takes_the_time_that_its_rate_says() {
        let pace = Pace {
            bytes_per_second: Some(1_000),
            busy_until: Mutex::new(Duration::ZERO),
        };
        let at = Duration::from_secs(10);
        assert_eq!(pace.take(at, 500), Duration::from_millis(500));
        assert_eq!(pace.take(at, 500), Duration::from_secs(1));
        // Time that nothing was passed on in is not made up for.
        assert_eq!(pace.take(at * 2, 100), Duration::from_millis(100));
        let free = Pace {
            bytes_per_second: None,
            busy_until: Mutex::new(Duration::ZERO),
        };
        assert_eq!(free.take(at, usize::MAX), Duration::ZERO);
    }
}
