//! Connection to an XMPP server with publish-subscribe (XEP-0060): publishes notices of this node,
//! receives notices of others.
//!
//! Invariants: each node publishes under its own topic, a single item, which the server retains;
//! the item is published again on each new connection. A follower lists the topics, periodically
//! again, subscribes to each, and fetches the retained items. A link exists after all of these
//! requests were answered. Polling the nodes replaces missed notices. Concurrency: one task.
//! Failure: a connection that ends is re-established, with growing pauses. A topic that is refused
//! is counted and logged once, and the other topics continue.

use super::line::{Line, Login};
use super::pauses::Pauses;
use super::{Notices, next};
use headwater_protocol::notice::{Event, NOTICE_BYTES_MAX, Subscription, TOPICS_MAX};
use headwater_protocol::xmpp::pubsub::{self, Published};
use headwater_protocol::xmpp::{Element, Happened, Jid, Kind, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Namespace of a notice in XML: its bytes in base64.
const NOTICE: &str = "urn:headwater:notice:1";
/// Keep-alive interval of the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Silence after which the connection is over.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// Interval of listing new topics.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Kind of a pending request.
#[derive(Debug)]
enum Pending {
    Topics,
    Subscribed(String),
    Retained,
    Published,
    Ping,
}

/// State of one connection.
struct Connection<'a> {
    notices: &'a Notices,
    line: Line,
    sent: BTreeMap<u64, Pending>,
    /// Topics with an answered subscription, granted or refused.
    topics: BTreeSet<String>,
    /// Notices of this node, and whether a publication awaits its answer.
    published: Subscription,
    is_publishing: bool,
    /// Times of the last input, of the last ping, and of the last listing of topics.
    heard_at: Instant,
    pinged_at: Instant,
    looked_at: Instant,
}

/// Maintains a connection, for ever.
pub(super) async fn keep(notices: &Notices) {
    let mut pauses = Pauses::default();
    loop {
        let before = notices.metrics.connects.get();
        let ended = match once(notices).await {
            Ok(()) => "the server ends the stream".to_owned(),
            Err(why) => why,
        };
        tokio::time::sleep(pauses.after(notices, before, &ended)).await;
    }
}

/// Runs one connection until it ends.
async fn once(notices: &Notices) -> Result<(), String> {
    let login = Login::of(&notices.settings)?;
    let line = Line::connect(&login).await?;
    notices.metrics.connects.inc();
    let (account, service) = (line.account.to_string(), line.service.to_string());
    tracing::info!(account, service, "notices: connected");
    let now = Instant::now();
    let mut connection = Connection {
        notices,
        line,
        sent: BTreeMap::new(),
        topics: BTreeSet::new(),
        published: notices.published.subscribe(),
        is_publishing: false,
        heard_at: now,
        pinged_at: now,
        looked_at: now,
    };
    connection.begin()?;
    connection.run().await
}

/// Text of a notice, as the content of an item.
fn written(bytes: &[u8]) -> Element {
    Element::new(NOTICE, "notice").carrying(bytes)
}

/// Bytes of a notice; `None` for another payload.
fn read(payload: Option<&Element>) -> Option<Vec<u8>> {
    let payload = payload.filter(|payload| payload.is(NOTICE, "notice"))?;
    let bytes = payload.carried()?;
    (bytes.len() <= NOTICE_BYTES_MAX).then_some(bytes)
}

impl Connection<'_> {
    fn begin(&mut self) -> Result<(), String> {
        if self.notices.signer.is_some() {
            self.notices.metrics.connected.set(1);
            return Ok(());
        }
        self.line.session.appear();
        self.ask(Kind::Get, pubsub::nodes(), Pending::Topics)
    }

    fn ask(&mut self, kind: Kind, what: Element, about: Pending) -> Result<(), String> {
        let service = self.line.service.clone();
        let number = match about {
            Pending::Ping => self.line.session.ping(),
            _ => self.line.session.ask(kind, Some(&service), what),
        };
        self.sent.insert(number.map_err(|e| e.to_string())?, about);
        Ok(())
    }

    async fn run(&mut self) -> Result<(), String> {
        let publishes = self.notices.signer.is_some();
        loop {
            while let Some(happened) = self.line.session.next_happened() {
                if happened == Happened::Closed {
                    return Ok(());
                }
                self.take(happened)?;
            }
            self.look_at_the_clock()?;
            self.line.flush().await?;
            let due =
                (self.heard_at.max(self.pinged_at) + KEEP_ALIVE).min(self.heard_at + SILENCE_MAX);
            let event = tokio::select! {
                come = self.line.read() => {
                    self.heard_at = Instant::now();
                    come?;
                    None
                }
                event = next(&mut self.published), if publishes && !self.is_publishing => Some(event),
                () = sleep_until(due) => None,
            };
            if let Some(Event::Notice { topic, bytes }) = event {
                self.is_publishing = true;
                let what = pubsub::publish(&topic, written(&bytes));
                self.ask(Kind::Set, what, Pending::Published)?;
            }
        }
    }

    fn look_at_the_clock(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if now >= self.heard_at + SILENCE_MAX {
            return Err("nothing comes from the server any more".to_owned());
        }
        if now >= self.heard_at.max(self.pinged_at) + KEEP_ALIVE {
            self.pinged_at = now;
            self.ask(Kind::Get, Element::default(), Pending::Ping)?;
        }
        if self.notices.signer.is_none() && now >= self.looked_at + LOOK_AGAIN {
            self.looked_at = now;
            self.ask(Kind::Get, pubsub::nodes(), Pending::Topics)?;
        }
        Ok(())
    }

    fn take(&mut self, happened: Happened) -> Result<(), String> {
        match happened {
            Happened::Answer { number, answer } => match self.sent.remove(&number) {
                Some(about) => self.answered(about, answer)?,
                None => return Ok(()),
            },
            Happened::Message(message) => {
                let from = message
                    .attribute("from")
                    .and_then(|from| from.parse::<Jid>().ok());
                if from.as_ref() == Some(&self.line.service) {
                    self.hear(&pubsub::told(&message));
                }
            }
            Happened::Ready | Happened::WantsTls | Happened::Closed => {}
        }
        let is_about_topics = |of: &Pending| !matches!(of, Pending::Ping | Pending::Published);
        if self.notices.signer.is_none() && !self.sent.values().any(is_about_topics) {
            self.notices.metrics.connected.set(1);
            self.notices.received.set_linked(true);
        }
        Ok(())
    }

    fn hear(&self, published: &[Published<'_>]) {
        for (topic, payload) in published {
            match read(*payload) {
                Some(bytes) if self.topics.contains(*topic) => {
                    self.notices.received.publish(topic, &bytes);
                }
                _ => self.notices.metrics.garbled(),
            }
        }
    }

    fn answered(&mut self, about: Pending, answer: Result<Element, Refusal>) -> Result<(), String> {
        match (about, answer) {
            (Pending::Topics, Ok(answer)) => self.subscribe(&answer),
            (Pending::Topics, Err(refusal)) => {
                self.notices.metrics.refused.inc();
                Err(format!(
                    "the server does not say which topics there are: {refusal}"
                ))
            }
            (Pending::Subscribed(topic), Ok(_)) => {
                self.ask(Kind::Get, pubsub::items(&topic), Pending::Retained)
            }
            (Pending::Subscribed(topic), Err(refusal)) => {
                self.notices.metrics.refused.inc();
                let why = refusal.condition;
                tracing::warn!(topic, why, "notices: the server refuses the subscription");
                Ok(())
            }
            (Pending::Retained, Ok(answer)) => {
                self.hear(&pubsub::kept(&answer));
                Ok(())
            }
            (Pending::Published, answer) => {
                self.is_publishing = false;
                if let Err(refusal) = answer {
                    self.notices.metrics.refused.inc();
                    let why = refusal.condition;
                    tracing::error!(
                        why,
                        "notices: the server does not take notices of this node; see `headwater notices apply`"
                    );
                }
                Ok(())
            }
            // An answer of any kind shows that the server lives; retained items are a help only.
            (Pending::Ping | Pending::Retained, _) => Ok(()),
        }
    }

    /// Subscribes to new topics.
    fn subscribe(&mut self, answer: &Element) -> Result<(), String> {
        let prefix = format!("{}/", self.notices.settings.topic);
        let account = self.line.account.clone();
        for topic in pubsub::nodes_of(answer) {
            let is_ours = topic
                .strip_prefix(&prefix)
                .is_some_and(headwater_protocol::notice::is_node_name);
            if !is_ours || self.topics.len() >= TOPICS_MAX || !self.topics.insert(topic.clone()) {
                continue;
            }
            let what = pubsub::subscribe(&topic, &account);
            self.ask(Kind::Set, what, Pending::Subscribed(topic))?;
        }
        Ok(())
    }
}
