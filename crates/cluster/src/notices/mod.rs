//! Notices of this node, or of the nodes that it follows, and the bus that carries them.
//!
//! From bottom to top: `metrics` counts; `bus_rights` has the lists of rights of clouds; `rules`
//! creates a broker's access rules; `line` is a connection to an XMPP server; `lists` applies the
//! rules at that server; `list_worker` does so whenever the list of rights changes; `pauses` is
//! for the time between connections; `values` has the live values of this node and of others;
//! `mqtt` and `xmpp` maintain a connection to a broker; this module is the interface for the rest
//! of the server.
//!
//! Invariants: correctness does not depend on notices: a follower polls the node anyway; a notice
//! only makes the poll earlier. In this process notices pass through a hub, also where a broker
//! carries them to other nodes. Notices over a broker are signed. Concurrency: shared; one task
//! maintains the connection to the broker. Failure: an unreachable broker is logged once, and
//! retried.

mod bus_rights;
mod line;
mod list_worker;
mod lists;
mod metrics;
#[cfg(feature = "mqtt")]
mod mqtt;
mod pauses;
mod rules;
mod values;
mod xmpp;

pub use bus_rights::{BusRights, RIGHTS_TABLE};
pub use list_worker::WantedLists;
pub use lists::{ListsApplied, apply_broker_lists};
pub use metrics::NoticeMetrics;
pub use rules::{broker_lists, broker_rules, wanted_lists};
pub use values::{LiveValues, VALUES_PATH};

use crate::bus_budget::BusBudget;
use crate::key_file::seed;
use crate::settings::{NoticeBus, NoticeSettings};
use crate::start_error::StartError;
use headwater_protocol::notice::{
    Bus, Event, Hub, Notice, NoticeKey, NoticeKind, PublicKey, Subscription,
};
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

const KEY_FILE: &str = "notices.key";

/// Key and topic for publishing over a broker.
struct Signer {
    key: NoticeKey,
    topic: String,
}

/// Makes the last will of the connection with this number.
pub type LastWords = Box<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// Bus for notices to and from this node.
pub struct Notices {
    settings: NoticeSettings,
    /// Budget of the link over which the broker is reached; `None` = not limited.
    link: Option<BusBudget>,
    /// Counts of this bus.
    pub metrics: NoticeMetrics,
    /// Notices of this node, for local subscribers.
    published: Hub,
    /// Notices of other nodes; empty without a broker.
    received: Hub,
    signer: Option<Signer>,
    /// Live values of this node and of others.
    pub values: LiveValues,
    /// Lists of rights to and from the bus.
    pub rights: BusRights,
    /// Number of local waiters.
    waiting: AtomicUsize,
    waiter_added: Notify,
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notices")
            .field("bus", &self.settings.bus)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

/// Guard of a local waiter.
#[derive(Debug)]
pub struct Waiting {
    notices: Arc<Notices>,
    received: Subscription,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.notices.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Waiting {
    /// Waits for the next notice of this node.
    pub async fn next(&mut self) {
        next(&mut self.received).await;
    }
}

impl Bus for Notices {
    fn publish(&self, topic: &str, notice: &[u8]) {
        self.published.publish(topic, notice);
    }

    /// Subscribes to notices of other nodes.
    fn subscribe(&self) -> Subscription {
        self.received.subscribe()
    }
}

/// Waits for the next event.
pub async fn next(from: &mut Subscription) -> Event {
    poll_fn(|context| from.poll_next(context)).await
}

impl Notices {
    /// Opens the bus of the settings. A node that publishes names its directory, which has the key
    /// of its notices; a node without only subscribes. Where a link to the cloud has a budget,
    /// connections to the bus are within it.
    ///
    /// # Errors
    /// When the key, the password or certificates cannot be read.
    pub fn open(
        settings: &NoticeSettings,
        publisher: Option<&Path>,
        metrics: NoticeMetrics,
        link: Option<BusBudget>,
    ) -> Result<Arc<Notices>, StartError> {
        let of = settings.clone();
        let is_mqtt = of.bus == NoticeBus::Mqtt;
        #[cfg(not(feature = "mqtt"))]
        if is_mqtt {
            let text = "this program was built without MQTT";
            return Err(StartError::Notices(text.to_owned()));
        }
        #[cfg(feature = "mqtt")]
        if is_mqtt {
            crate::broker::options("notices", &of.login).map_err(StartError::Notices)?;
        }
        if of.bus == NoticeBus::Xmpp {
            line::Login::of(&of).map_err(StartError::Notices)?;
        }
        let is_abroad = of.bus != NoticeBus::Hub;
        let signer = match publisher.filter(|_| is_abroad) {
            None => None,
            Some(dir) => {
                let path = dir.join(KEY_FILE);
                let key = seed(&path).map_err(StartError::Notices)?;
                let key = NoticeKey::of_seed(&key);
                let key =
                    key.ok_or_else(|| StartError::Notices(format!("{KEY_FILE}: not a valid key")))?;
                Some(Signer {
                    key,
                    topic: format!("{}/{}", of.topic, of.name),
                })
            }
        };
        let epoch = headwater_shell::access::token::random_hex::<8>();
        let epoch = epoch.map_err(|e| StartError::Notices(e.to_string()))?;
        let epoch = u64::from_str_radix(&epoch, 16).unwrap_or_default();
        Ok(Arc::new(Notices {
            values: LiveValues::new(&of, epoch, metrics.clone()),
            rights: BusRights::default(),
            settings: of,
            link,
            metrics,
            published: Hub::new(true),
            received: Hub::new(false),
            signer,
            waiting: AtomicUsize::new(0),
            waiter_added: Notify::new(),
        }))
    }

    /// Public key of this node's notices, where a broker carries them.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.signer.as_ref().map(|signer| signer.key.public())
    }

    /// Interval of asking a silent node.
    pub fn check(&self) -> std::time::Duration {
        self.settings.check
    }

    /// Name of the bus, and whether it has a link.
    pub fn state(&self) -> (&'static str, bool) {
        match self.settings.bus {
            NoticeBus::Hub => ("hub", true),
            NoticeBus::Mqtt => ("mqtt", self.received.is_linked()),
            NoticeBus::Xmpp => ("xmpp", self.received.is_linked()),
        }
    }

    /// Registers a local waiter for notices of this node.
    pub fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.waiter_added.notify_one();
        Waiting {
            notices: Arc::clone(self),
            received: self.published.subscribe(),
        }
    }

    /// True while a local waiter exists.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Waits until a local waiter exists; returns at once where a broker carries notices.
    pub async fn until_waited_for(&self) {
        while self.signer.is_none() && !self.is_waited_for() {
            self.waiter_added.notified().await;
        }
    }

    /// Publishes to local waiters and the broker.
    pub fn send(&self, notice: &Notice) {
        let (topic, bytes) = match &self.signer {
            None => ("", notice.encode()),
            Some(signer) => (signer.topic.as_str(), signer.key.seal(notice)),
        };
        self.metrics.published.inc();
        self.publish(topic, &bytes);
    }

    /// Last will of this node's connections; `None` for a node that only subscribes.
    pub fn last_words(self: &Arc<Self>, of: Notice) -> Option<LastWords> {
        self.signer.as_ref()?;
        let notices = Arc::clone(self);
        Some(Box::new(move |number| {
            let words = Notice {
                kind: NoticeKind::Disconnected,
                number,
                ..of
            };
            let signer = notices.signer.as_ref();
            signer.map_or_else(Vec::new, |signer| signer.key.seal(&words))
        }))
    }

    /// Maintains the connection to the broker, if one is configured, until the server stops.
    pub async fn run(
        self: Arc<Self>,
        last_words: Option<LastWords>,
        mut stopping: watch::Receiver<bool>,
    ) {
        if self.settings.bus == NoticeBus::Hub {
            return;
        }
        tokio::select! {
            () = self.run_connection(last_words) => {}
            // An error means that the server has stopped. The connection is dropped without a
            // DISCONNECT, so that the broker publishes the last will.
            _ = stopping.wait_for(|stop| *stop) => {}
        }
        self.received.set_linked(false);
        self.metrics.connected.set(0);
    }

    /// Settings of the bus.
    pub fn settings(&self) -> &NoticeSettings {
        &self.settings
    }

    /// Applies the access lists of topics at the XMPP server, whenever others are wanted, until the
    /// server stops.
    pub async fn apply_lists(
        self: Arc<Self>,
        wanted: WantedLists,
        mut stopping: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = list_worker::run(&self, wanted) => {}
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => {}
        }
    }

    /// Waits until connections to the bus may be made.
    async fn until_open(&self) {
        if let Some(link) = &self.link {
            link.until_open().await;
        }
    }

    /// Waits until connections to the bus have to end; for ever where nothing limits them.
    async fn until_paused(&self) {
        match &self.link {
            Some(link) => link.until_paused().await,
            None => std::future::pending().await,
        }
    }

    async fn run_connection(&self, last_words: Option<LastWords>) {
        match self.settings.bus {
            NoticeBus::Hub => {}
            #[cfg(feature = "mqtt")]
            NoticeBus::Mqtt => mqtt::run_connections(self, last_words).await,
            // This build has no such broker, and `open` has reported that.
            #[cfg(not(feature = "mqtt"))]
            NoticeBus::Mqtt => drop(last_words),
            NoticeBus::Xmpp => xmpp::run_connections(self).await,
        }
    }
}
