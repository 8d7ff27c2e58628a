//! Notices of this node, or of those that it follows: the bus that carries them.
//!
//! From bottom to top: `figures` what is counted; `rules` what a broker is told of who may do what;
//! `line` a connection to an XMPP server; `lists` brings the rules there; `pauses` between
//! connections; `mqtt` and `xmpp` keep one to a broker; and here what the rest of the server has of
//! all that.
//!
//! Invariants: nothing depends on a notice: who follows a node asks it, and only sooner or later.
//! In this process notices go through a hub, also where a broker carries them to others. What is
//! told over a broker is signed.
//! Concurrency: shared; one task keeps the connection to the broker.
//! Failure: a broker that is away is told of in the log once, and tried again.

mod figures;
mod line;
mod lists;
#[cfg(feature = "mqtt")]
mod mqtt;
mod pauses;
mod rules;
mod xmpp;

pub(crate) use figures::Figures;
pub use lists::{ListsApplied, apply_broker_lists};
pub use rules::{broker_lists, broker_rules};

use crate::key_file::seed;
use crate::settings::{NodeRole, NoticeBus, NoticeSettings, Settings};
use crate::start_error::StartError;
use headwater_protocol::notice::{
    Bus, Event, Hub, Kind, Notice, NoticeKey, PublicKey, Subscription,
};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

const KEY_FILE: &str = "notices.key";

/// What a node tells over a broker with.
struct Teller {
    key: NoticeKey,
    topic: String,
}

/// Makes the notice that the broker sends when a connection ends, of its number.
type LastWords = Box<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// What carries notices to and from this node.
pub(crate) struct Notices {
    settings: NoticeSettings,
    pub(crate) figures: Figures,
    /// What this node tells; who waits here hears it.
    told: Hub,
    /// What came from others; without a broker nothing does.
    heard: Hub,
    teller: Option<Teller>,
    /// How many wait here.
    waiting: AtomicUsize,
    begun: Notify,
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notices")
            .field("bus", &self.settings.bus)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

/// Somebody waits here, as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting {
    notices: Arc<Notices>,
    heard: Subscription,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.notices.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Waiting {
    /// Waits for what this node tells next.
    pub(crate) async fn next(&mut self) {
        next(&mut self.heard).await;
    }
}

impl Bus for Notices {
    fn publish(&self, topic: &str, notice: &[u8]) {
        self.told.publish(topic, notice);
    }

    /// What comes from others.
    fn subscribe(&self) -> Subscription {
        self.heard.subscribe()
    }
}

/// Waits for what comes next.
pub(crate) async fn next(from: &mut Subscription) -> Event {
    poll_fn(|context| from.poll_next(context)).await
}

impl Notices {
    /// As the settings say.
    ///
    /// # Errors
    /// When the key, the password or certificates cannot be read.
    pub(crate) fn open(settings: &Settings, figures: Figures) -> Result<Arc<Notices>, StartError> {
        let of = settings.notices.clone();
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
        let teller = match is_abroad && settings.sync.role != NodeRole::Dispatcher {
            false => None,
            true => {
                let path = settings.db().join(KEY_FILE);
                let key = seed(&path).map_err(StartError::Notices)?;
                let key = NoticeKey::of_seed(&key);
                let key =
                    key.ok_or_else(|| StartError::Notices(format!("{KEY_FILE}: this is no key")))?;
                Some(Teller {
                    key,
                    topic: format!("{}/{}", of.topic, of.name),
                })
            }
        };
        Ok(Arc::new(Notices {
            settings: of,
            figures,
            told: Hub::new(true),
            heard: Hub::new(false),
            teller,
            waiting: AtomicUsize::new(0),
            begun: Notify::new(),
        }))
    }

    /// What notices of this node are signed with, where others than those who wait here are told.
    pub(crate) fn public_key(&self) -> Option<PublicKey> {
        self.teller.as_ref().map(|teller| teller.key.public())
    }

    /// How often a node is asked of which nothing was heard.
    pub(crate) fn check(&self) -> std::time::Duration {
        self.settings.check
    }

    /// The bus as it is called, and whether it has a link.
    pub(crate) fn state(&self) -> (&'static str, bool) {
        match self.settings.bus {
            NoticeBus::Hub => ("hub", true),
            NoticeBus::Mqtt => ("mqtt", self.heard.is_linked()),
            NoticeBus::Xmpp => ("xmpp", self.heard.is_linked()),
        }
    }

    /// Somebody waits here for what this node tells.
    pub(crate) fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.begun.notify_one();
        Waiting {
            notices: Arc::clone(self),
            heard: self.told.subscribe(),
        }
    }

    /// Whether somebody waits here.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Waits until somebody waits here, where a broker is told nothing.
    pub(crate) async fn until_wanted(&self) {
        while self.teller.is_none() && !self.is_waited_for() {
            self.begun.notified().await;
        }
    }

    /// Tells who waits here and the broker.
    pub(crate) fn tell(&self, notice: &Notice) {
        let (topic, bytes) = match &self.teller {
            None => ("", notice.encode()),
            Some(teller) => (teller.topic.as_str(), teller.key.seal(notice)),
        };
        self.figures.told.inc();
        self.publish(topic, &bytes);
    }

    /// What the broker says when a connection of this node has ended; nothing for who only hears.
    pub(crate) fn last_words(self: &Arc<Self>, of: Notice) -> Option<LastWords> {
        self.teller.as_ref()?;
        let notices = Arc::clone(self);
        Some(Box::new(move |number| {
            let words = Notice {
                kind: Kind::Gone,
                number,
                ..of
            };
            let teller = notices.teller.as_ref();
            teller.map_or_else(Vec::new, |teller| teller.key.seal(&words))
        }))
    }

    /// Keeps the connection to the broker, if there is one, until the server stops.
    pub(crate) async fn run(
        self: Arc<Self>,
        last_words: Option<LastWords>,
        mut stopping: watch::Receiver<bool>,
    ) {
        if self.settings.bus == NoticeBus::Hub {
            return;
        }
        tokio::select! {
            () = self.keep(last_words) => {}
            // An error means that the server is gone: that is a stop too. The connection is dropped
            // without a word, so that the broker says the last ones.
            _ = stopping.wait_for(|stop| *stop) => {}
        }
        self.heard.set_linked(false);
        self.figures.connected.set(0);
    }

    async fn keep(&self, last_words: Option<LastWords>) {
        match self.settings.bus {
            NoticeBus::Hub => {}
            #[cfg(feature = "mqtt")]
            NoticeBus::Mqtt => mqtt::keep(self, last_words).await,
            // There is none in this build, and `open` has said so.
            #[cfg(not(feature = "mqtt"))]
            NoticeBus::Mqtt => drop(last_words),
            NoticeBus::Xmpp => xmpp::keep(self).await,
        }
    }
}
