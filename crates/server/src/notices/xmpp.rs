//! The connection to an XMPP server with publish-subscribe (XEP-0060): notices of this node go
//! there, those of others come.
//!
//! Invariants: each node publishes under its own topic, one item, which the server keeps as the
//! newest; it is published again on each new connection. Who hears looks for the topics that there
//! are, now and then again, subscribes to each, and asks for what is kept there. A link is said to
//! be there once all of that was answered. What was missed is asked for at the nodes.
//! Concurrency: one task.
//! Failure: a connection that ends is made again, with growing pauses. A topic that is refused is
//! counted and told of once, and the others go on.

use super::line::{Line, Login};
use super::pauses::Pauses;
use super::{Notices, next};
use headwater_protocol::notice::{Event, NOTICE_BYTES_MAX, Subscription, TOPICS_MAX};
use headwater_protocol::xmpp::pubsub::{self, Published};
use headwater_protocol::xmpp::{Element, Happened, Jid, Kind, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How a notice stands in XML: its bytes in base64.
const NOTICE: &str = "urn:headwater:notice:1";
/// How often the connection is proven to live.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Without a byte for so long it is over.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// How often is looked for topics that were not there before.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What a question was about.
#[derive(Debug)]
enum Asked {
    Topics,
    Subscribed(String),
    Kept,
    Told,
    Ping,
}

/// What one connection is about.
struct Connection<'a> {
    notices: &'a Notices,
    line: Line,
    asked: BTreeMap<u64, Asked>,
    /// Topics to which this connection has subscribed, or was refused to.
    topics: BTreeSet<String>,
    /// What this node tells, and whether an answer to that is waited for.
    told: Subscription,
    is_telling: bool,
    /// When something came last, when the other side was last asked for a sign, and when topics
    /// were looked for.
    heard_at: Instant,
    pinged_at: Instant,
    looked_at: Instant,
}

/// Keeps a connection, for ever.
pub(super) async fn keep(notices: &Notices) {
    let mut pauses = Pauses::default();
    loop {
        let before = notices.figures.connects.get();
        let ended = match once(notices).await {
            Ok(()) => "the server ends the stream".to_owned(),
            Err(why) => why,
        };
        tokio::time::sleep(pauses.after(notices, before, &ended)).await;
    }
}

/// One connection, until it ends.
async fn once(notices: &Notices) -> Result<(), String> {
    let login = Login::of(&notices.settings)?;
    let line = Line::connect(&login).await?;
    notices.figures.connects.inc();
    let (account, service) = (line.account.to_string(), line.service.to_string());
    tracing::info!(account, service, "notices: connected");
    let now = Instant::now();
    let mut connection = Connection {
        notices,
        line,
        asked: BTreeMap::new(),
        topics: BTreeSet::new(),
        told: notices.told.subscribe(),
        is_telling: false,
        heard_at: now,
        pinged_at: now,
        looked_at: now,
    };
    connection.begin()?;
    connection.run().await
}

/// The text of a notice, as it stands in an item.
fn written(bytes: &[u8]) -> Element {
    Element::new(NOTICE, "notice").carrying(bytes)
}

/// The bytes of a notice; `None` = it is none.
fn read(payload: Option<&Element>) -> Option<Vec<u8>> {
    let payload = payload.filter(|payload| payload.is(NOTICE, "notice"))?;
    let bytes = payload.carried()?;
    (bytes.len() <= NOTICE_BYTES_MAX).then_some(bytes)
}

impl Connection<'_> {
    fn begin(&mut self) -> Result<(), String> {
        if self.notices.teller.is_some() {
            self.notices.figures.connected.set(1);
            return Ok(());
        }
        self.line.session.appear();
        self.ask(Kind::Get, pubsub::nodes(), Asked::Topics)
    }

    fn ask(&mut self, kind: Kind, what: Element, about: Asked) -> Result<(), String> {
        let service = self.line.service.clone();
        let number = match about {
            Asked::Ping => self.line.session.ping(),
            _ => self.line.session.ask(kind, Some(&service), what),
        };
        self.asked.insert(number.map_err(|e| e.to_string())?, about);
        Ok(())
    }

    async fn run(&mut self) -> Result<(), String> {
        let tells = self.notices.teller.is_some();
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
                event = next(&mut self.told), if tells && !self.is_telling => Some(event),
                () = sleep_until(due) => None,
            };
            if let Some(Event::Notice { topic, bytes }) = event {
                self.is_telling = true;
                let what = pubsub::publish(&topic, written(&bytes));
                self.ask(Kind::Set, what, Asked::Told)?;
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
            self.ask(Kind::Get, Element::default(), Asked::Ping)?;
        }
        if self.notices.teller.is_none() && now >= self.looked_at + LOOK_AGAIN {
            self.looked_at = now;
            self.ask(Kind::Get, pubsub::nodes(), Asked::Topics)?;
        }
        Ok(())
    }

    fn take(&mut self, happened: Happened) -> Result<(), String> {
        match happened {
            Happened::Answer { number, answer } => match self.asked.remove(&number) {
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
        let is_about_topics = |about: &Asked| !matches!(about, Asked::Ping | Asked::Told);
        if self.notices.teller.is_none() && !self.asked.values().any(is_about_topics) {
            self.notices.figures.connected.set(1);
            self.notices.heard.set_linked(true);
        }
        Ok(())
    }

    fn hear(&self, published: &[Published<'_>]) {
        for (topic, payload) in published {
            match read(*payload) {
                Some(bytes) if self.topics.contains(*topic) => {
                    self.notices.heard.publish(topic, &bytes);
                }
                _ => self.notices.figures.garbled(),
            }
        }
    }

    fn answered(&mut self, about: Asked, answer: Result<Element, Refusal>) -> Result<(), String> {
        match (about, answer) {
            (Asked::Topics, Ok(answer)) => self.subscribe(&answer),
            (Asked::Topics, Err(refusal)) => {
                self.notices.figures.refused.inc();
                Err(format!(
                    "the server does not say which topics there are: {refusal}"
                ))
            }
            (Asked::Subscribed(topic), Ok(_)) => {
                self.ask(Kind::Get, pubsub::items(&topic), Asked::Kept)
            }
            (Asked::Subscribed(topic), Err(refusal)) => {
                self.notices.figures.refused.inc();
                let why = refusal.condition;
                tracing::warn!(topic, why, "notices: the server refuses the subscription");
                Ok(())
            }
            (Asked::Kept, Ok(answer)) => {
                self.hear(&pubsub::kept(&answer));
                Ok(())
            }
            (Asked::Told, answer) => {
                self.is_telling = false;
                if let Err(refusal) = answer {
                    self.notices.figures.refused.inc();
                    let why = refusal.condition;
                    tracing::error!(
                        why,
                        "notices: the server does not take notices of this node; see `headwater notices apply`"
                    );
                }
                Ok(())
            }
            // An answer of any kind shows that the other side lives; what is kept is a help only.
            (Asked::Ping | Asked::Kept, _) => Ok(()),
        }
    }

    /// Subscribes to topics that were not there before.
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
            self.ask(Kind::Set, what, Asked::Subscribed(topic))?;
        }
        Ok(())
    }
}
