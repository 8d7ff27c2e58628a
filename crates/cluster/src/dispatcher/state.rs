//! State that all requests to a dispatcher share: its nodes, their inventories, and its key.
//!
//! Invariant: only the key outlives a restart, and a new key would suffice: nodes report their
//! inventories again, and accept any key that arrives with the token. Concurrency: the tables are
//! locked for a look-up, or while a change is applied, never across an await.

use super::DispatcherConfig;
use super::metrics::DispatcherMetrics;
use crate::ca_file::CaFile;
use crate::key_file::seed;
use crate::node_client::NodeClient;
use crate::notices::Notices;
use crate::rights::RightsReceiver;
use crate::rights_source::RightsSource;
use crate::start_error::StartError;
use headwater_protocol::dispatch::{NodeIndex, Tables};
use headwater_shell::Shell;
use headwater_shell::access::ticket::TicketKey;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Largest number of edges with cached connections.
const EDGES_MAX: usize = 1_024;
const KEY_FILE: &str = "dispatch.key";

/// Node, by two addresses.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) peer: Arc<NodeClient>,
    /// Address for clients.
    pub(crate) public_url: String,
    /// Reason why the node does not answer.
    pub(crate) error: Mutex<Option<String>>,
}

/// Rate limit of all relayed answers together.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// Instant at which the relayed bytes are due, by the monotonic clock.
    busy_until: Mutex<Duration>,
}

impl Pace {
    /// Counts relayed bytes. Returns the pause that the rate demands.
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

/// State that all requests share.
#[derive(Debug)]
pub(crate) struct DispatcherState {
    pub(crate) shell: Arc<Shell>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tables: RwLock<Tables>,
    /// Token for requests to nodes.
    pub(crate) token: Option<String>,
    pub(crate) key: TicketKey,
    pub(crate) metrics: DispatcherMetrics,
    /// Node whose list of rights is taken, and the receiver of the list.
    pub(crate) rights: Option<(RightsSource, RightsReceiver)>,
    /// Notices of nodes.
    pub(crate) notices: Arc<Notices>,
    /// One permit for each answer that may be relayed.
    pub(crate) relays: Arc<Semaphore>,
    pub(crate) pace: Arc<Pace>,
    edges: Mutex<HashMap<String, Arc<NodeClient>>>,
    ca: Option<Arc<CaFile>>,
}

impl DispatcherState {
    pub(crate) fn new(
        config: &DispatcherConfig<'_>,
        shell: Arc<Shell>,
        metrics: DispatcherMetrics,
        notices: Arc<Notices>,
    ) -> Result<DispatcherState, StartError> {
        let of_dispatch = config.dispatch;
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.map_err(|e| StartError::Dispatch(format!("{}: {e}", path.display())))
        };
        let of_file = |path: &Path| {
            let read = CaFile::read(path);
            read.map_err(|e| StartError::Dispatch(format!("{}: {e}", path.display())))
        };
        let ca = of_dispatch.ca.as_deref().map(of_file).transpose()?;
        let token = of_dispatch.token_file.as_deref().map(read).transpose()?;
        let nodes = of_dispatch.nodes.iter().map(|node| Node {
            peer: Arc::new(NodeClient::new(&node.url, ca.clone())),
            public_url: node.public_url.clone(),
            error: Mutex::new(None),
        });
        let nodes: Vec<Node> = nodes.collect();
        Ok(DispatcherState {
            rights: config.rights.clone(),
            tables: RwLock::new(Tables::new(nodes.len())),
            key: key(config.dir)?,
            token: token.map(|token| token.trim().to_owned()),
            relays: Arc::new(Semaphore::new(of_dispatch.relays_max)),
            pace: Arc::new(Pace {
                bytes_per_second: of_dispatch.relay_rate,
                busy_until: Mutex::new(Duration::ZERO),
            }),
            edges: Mutex::default(),
            shell,
            nodes,
            metrics,
            notices,
            ca,
        })
    }

    pub(crate) fn node(&self, at: NodeIndex) -> Option<&Node> {
        self.nodes.get(at.0)
    }

    /// Records that a node does not answer.
    pub(crate) fn lost(&self, at: NodeIndex, why: &str) {
        let now = self.shell.env().clock.now();
        self.tables.write().lost(at, now);
        if let Some(node) = self.node(at) {
            let before = node.error.lock().replace(why.to_owned());
            if before.is_none() {
                tracing::warn!(node = node.peer.url(), why, "a node does not answer");
            }
        }
    }

    /// Returns an edge at its own address.
    pub(crate) fn edge(&self, url: &str) -> Arc<NodeClient> {
        let mut edges = self.edges.lock();
        if edges.len() >= EDGES_MAX && !edges.contains_key(url) {
            edges.clear();
        }
        let edge = edges
            .entry(url.to_owned())
            .or_insert_with(|| Arc::new(NodeClient::new(url, self.ca.clone())));
        Arc::clone(edge)
    }
}

/// Reads the key of this dispatcher, made at its first start.
fn key(dir: &Path) -> Result<TicketKey, StartError> {
    let seed = seed(&dir.join(KEY_FILE)).map_err(StartError::Dispatch)?;
    let key = TicketKey::of_seed(&seed);
    key.ok_or_else(|| StartError::Dispatch(format!("{KEY_FILE}: not a valid key")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relayed_bytes_take_the_time_of_the_rate() {
        let pace = Pace {
            bytes_per_second: Some(1_000),
            busy_until: Mutex::new(Duration::ZERO),
        };
        let at = Duration::from_secs(10);
        assert_eq!(pace.take(at, 500), Duration::from_millis(500));
        assert_eq!(pace.take(at, 500), Duration::from_secs(1));
        // Idle time is not credited.
        assert_eq!(pace.take(at * 2, 100), Duration::from_millis(100));
        let free = Pace {
            bytes_per_second: None,
            busy_until: Mutex::new(Duration::ZERO),
        };
        assert_eq!(free.take(at, usize::MAX), Duration::ZERO);
    }
}
