//! Connection to an XMPP server with publish-subscribe (XEP-0060): publishes notices of this node,
//! receives notices of others.
//!
//! Invariants: each node publishes under its own topic, a single item, which the server retains;
//! the item is published again on each new connection. A follower lists the topics, periodically
//! again, subscribes to each, and fetches the retained items. A link exists after all of these
//! requests were answered. Polling the nodes replaces missed notices. Live values share the
//! connection: those of this node are published, a bounded number at a time, and those of streams
//! that the account may hear are subscribed to again with each listing, so that a right that began
//! or ended counts within [`LOOK_AGAIN`]. Concurrency: one task. Failure: a connection that ends is
//! re-established, with growing pauses. A topic that is refused is counted and logged once, and the
//! other topics continue.

use super::line::{Line, Login};
use super::pauses::Pauses;
use super::{Notices, next};
use headwater_protocol::live::{HEARD_STREAMS_MAX, PublishAnswer, ValueRequest, is_value_topic};
use headwater_protocol::notice::{Event, NOTICE_BYTES_MAX, Subscription, TOPICS_MAX, is_node_name};
use headwater_protocol::xmpp::pubsub::{self, Published};
use headwater_protocol::xmpp::{Element, Happened, IqKind, Jid, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Namespace of a notice in XML: its bytes in base64.
const NOTICE: &str = "urn:headwater:notice:1";
/// Keep-alive interval of the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Silence after which the connection is over.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// Pause after the server has refused a list of rights.
const RIGHTS_AGAIN: Duration = Duration::from_secs(5);
/// Most topics of lists of rights that are heard.
const RIGHTS_TOPICS_MAX: usize = 8;
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
    /// A subscription to the topic of a stream.
    ValuesSubscribed(String),
    ValuesRetained,
    /// A subscription to a topic of lists of rights.
    RightsSubscribed(String),
    RightsRetained,
    /// The list of rights with this digest.
    Rights(String),
    /// Values of a stream, or their removal.
    Values {
        stream: String,
        is_retract: bool,
    },
}

impl Pending {
    /// Whether the link to the notices of nodes waits for the answer.
    fn is_about_topics(&self) -> bool {
        matches!(
            self,
            Pending::Topics | Pending::Subscribed(_) | Pending::Retained
        )
    }
}

/// State of one connection.
struct Connection<'a> {
    notices: &'a Notices,
    line: Line,
    sent: BTreeMap<u64, Pending>,
    /// Topics with an answered subscription, granted or refused.
    topics: BTreeSet<String>,
    /// Topics of streams with a granted subscription.
    streams: BTreeSet<String>,
    /// Topics of lists of rights with a granted subscription.
    rights: BTreeSet<String>,
    /// Digest of the list of rights that was sent last, and the time from which on one may be sent
    /// after a refusal.
    rights_sent: String,
    rights_after: Instant,
    /// A refusal of values was logged.
    has_reported: bool,
    /// Notices of this node, and whether a publication awaits its answer.
    published: Subscription,
    is_publishing: bool,
    /// Times of the last input, of the last ping, and of the last listing of topics.
    last_input: Instant,
    pinged_at: Instant,
    looked_at: Instant,
}

/// Maintains a connection, for ever.
pub(super) async fn run_connections(notices: &Notices) {
    let mut pauses = Pauses::default();
    loop {
        notices.until_open().await;
        let before = notices.metrics.connects.get();
        let ended = match once(notices).await {
            Ok(Ended::Paused) => {
                pauses.begin_pause(notices);
                continue;
            }
            Ok(Ended::ByServer) => "the server ends the stream".to_owned(),
            Err(why) => why,
        };
        tokio::time::sleep(pauses.after(notices, before, &ended)).await;
    }
}

/// Why a connection has ended without a fault.
enum Ended {
    ByServer,
    /// The budget of the link pauses.
    Paused,
}

/// Runs one connection until it ends.
async fn once(notices: &Notices) -> Result<Ended, String> {
    let login = Login::of(&notices.settings)?;
    let line = Line::connect(&login, notices.link.as_ref()).await?;
    notices.metrics.connects.inc();
    let (account, service) = (line.account.to_string(), line.service.to_string());
    tracing::info!(account, service, "notices: connected");
    let now = Instant::now();
    let mut connection = Connection {
        notices,
        line,
        sent: BTreeMap::new(),
        topics: BTreeSet::new(),
        streams: BTreeSet::new(),
        rights: BTreeSet::new(),
        rights_sent: String::new(),
        rights_after: now,
        has_reported: false,
        published: notices.published.subscribe(),
        is_publishing: false,
        last_input: now,
        pinged_at: now,
        looked_at: now,
    };
    connection.begin()?;
    notices.values.set_connected(true);
    let ended = tokio::select! {
        ended = connection.run() => ended.map(|()| Ended::ByServer),
        () = notices.until_paused() => Ok(Ended::Paused),
    };
    notices.values.set_connected(false);
    if matches!(ended, Ok(Ended::Paused)) {
        connection.line.end().await;
    }
    ended
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
        }
        if !self.listens() {
            return Ok(());
        }
        self.line.session.appear();
        self.request(IqKind::Get, pubsub::nodes(), Pending::Topics)
    }

    /// Whether the connection hears notices of nodes, or live values.
    fn listens(&self) -> bool {
        let has_own = self.notices.signer.is_some();
        !has_own || self.notices.values.hears() || self.notices.settings.rights
    }

    /// Sends the list of rights of this node, if it was not sent.
    fn publish_rights(&mut self) -> Result<(), String> {
        let is_pending = self
            .sent
            .values()
            .any(|of| matches!(of, Pending::Rights(_)));
        if is_pending || Instant::now() < self.rights_after {
            return Ok(());
        }
        let Some((digest, element)) = self.notices.rights.next(&self.rights_sent) else {
            return Ok(());
        };
        let settings = &self.notices.settings;
        let topic = format!("{}/{}", settings.rights_topic, settings.name);
        let what = pubsub::publish(&topic, element);
        self.request(IqKind::Set, what, Pending::Rights(digest))
    }

    /// Whether a topic is one of lists of rights of other nodes.
    fn is_rights_topic(&self, topic: &str) -> bool {
        let settings = &self.notices.settings;
        let node = topic.strip_prefix(&settings.rights_topic);
        let node = node.and_then(|rest| rest.strip_prefix('/'));
        settings.rights && node.is_some_and(|node| is_node_name(node) && node != settings.name)
    }

    /// Sends due values, as many as may wait for answers.
    fn publish_values(&mut self) -> Result<(), String> {
        let notices = self.notices;
        while let Some((topic, request)) = notices.values.next_request() {
            let stream = request.stream().to_owned();
            let (what, is_retract) = match request {
                ValueRequest::Publish(item) => (pubsub::publish(&topic, item.element()), false),
                ValueRequest::Retract(_) => (pubsub::retract(&topic), true),
            };
            self.request(IqKind::Set, what, Pending::Values { stream, is_retract })?;
        }
        Ok(())
    }

    fn request(&mut self, kind: IqKind, what: Element, about: Pending) -> Result<(), String> {
        let service = self.line.service.clone();
        let number = match about {
            Pending::Ping => self.line.session.ping(),
            _ => self.line.session.request(kind, Some(&service), what),
        };
        self.sent.insert(number.map_err(|e| e.to_string())?, about);
        Ok(())
    }

    async fn run(&mut self) -> Result<(), String> {
        let notices = self.notices;
        let publishes = notices.signer.is_some();
        loop {
            while let Some(happened) = self.line.session.next_happened() {
                if happened == Happened::Closed {
                    return Ok(());
                }
                self.take(happened)?;
            }
            self.look_at_the_clock()?;
            self.publish_values()?;
            self.publish_rights()?;
            self.line.flush().await?;
            let mut due = (self.last_input.max(self.pinged_at) + KEEP_ALIVE)
                .min(self.last_input + SILENCE_MAX);
            if self.rights_after > Instant::now() {
                due = due.min(self.rights_after);
            }
            let event = tokio::select! {
                come = self.line.read() => {
                    self.last_input = Instant::now();
                    come?;
                    None
                }
                event = next(&mut self.published), if publishes && !self.is_publishing => Some(event),
                () = notices.rights.until_offered(), if notices.settings.rights => None,
                () = notices.values.until_due(), if notices.values.publishes() => None,
                () = sleep_until(due) => None,
            };
            if let Some(Event::Notice { topic, bytes }) = event {
                self.is_publishing = true;
                let what = pubsub::publish(&topic, written(&bytes));
                self.request(IqKind::Set, what, Pending::Published)?;
            }
        }
    }

    fn look_at_the_clock(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if now >= self.last_input + SILENCE_MAX {
            return Err("the server has stopped sending".to_owned());
        }
        if now >= self.last_input.max(self.pinged_at) + KEEP_ALIVE {
            self.pinged_at = now;
            self.request(IqKind::Get, Element::default(), Pending::Ping)?;
        }
        if self.listens() && now >= self.looked_at + LOOK_AGAIN {
            self.looked_at = now;
            self.request(IqKind::Get, pubsub::nodes(), Pending::Topics)?;
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
                    self.receive(&pubsub::items_of_message(&message));
                }
            }
            Happened::Ready | Happened::NeedsTls | Happened::Closed => {}
        }
        let is_following = self.notices.signer.is_none();
        if is_following && !self.sent.values().any(Pending::is_about_topics) {
            self.notices.metrics.connected.set(1);
            self.notices.received.set_linked(true);
        }
        Ok(())
    }

    fn receive(&self, published: &[Published<'_>]) {
        let values = &self.notices.values;
        for (topic, payload) in published {
            if is_value_topic(values.prefix(), topic) {
                // Other connections of the account may have subscribed.
                if self.streams.contains(*topic) {
                    values.receive(topic, *payload);
                }
                continue;
            }
            if self.is_rights_topic(topic) {
                if self.rights.contains(*topic) && !self.notices.rights.receive(topic, *payload) {
                    self.notices.metrics.garbled();
                }
                continue;
            }
            match read(*payload) {
                Some(bytes) if self.topics.contains(*topic) => {
                    self.notices.received.publish(topic, &bytes);
                }
                _ if self.notices.signer.is_some() => {}
                _ => self.notices.metrics.garbled(),
            }
        }
    }

    fn answered(&mut self, about: Pending, answer: Result<Element, Refusal>) -> Result<(), String> {
        match (about, answer) {
            (Pending::Topics, Ok(answer)) => {
                let topics = pubsub::nodes_of(&answer);
                self.subscribe_to_values(&topics)?;
                self.subscribe_to_rights(&topics)?;
                self.subscribe(topics)
            }
            (Pending::Topics, Err(refusal)) => {
                self.notices.metrics.refused.inc();
                Err(format!("the server does not list its topics: {refusal}"))
            }
            (Pending::Subscribed(topic), Ok(_)) => {
                self.request(IqKind::Get, pubsub::items(&topic), Pending::Retained)
            }
            (Pending::Subscribed(topic), Err(refusal)) => {
                self.notices.metrics.refused.inc();
                let why = refusal.condition;
                tracing::warn!(topic, why, "notices: the server refuses the subscription");
                Ok(())
            }
            (Pending::Retained, Ok(answer)) => {
                self.receive(&pubsub::items_of_answer(&answer));
                Ok(())
            }
            (Pending::Published, answer) => {
                self.is_publishing = false;
                if let Err(refusal) = answer {
                    self.notices.metrics.refused.inc();
                    let why = refusal.condition;
                    tracing::error!(
                        why,
                        "notices: the server does not accept notices from this node; see `headwater notices apply`"
                    );
                }
                Ok(())
            }
            // An answer of any kind shows that the server lives; retained items are a help only.
            (Pending::Ping | Pending::Retained, _) => Ok(()),
            (about, answer) => self.answered_beside(about, answer),
        }
    }

    /// Processes the answer to a request about live values or lists of rights.
    fn answered_beside(
        &mut self,
        about: Pending,
        answer: Result<Element, Refusal>,
    ) -> Result<(), String> {
        match (about, answer) {
            (Pending::ValuesSubscribed(topic), Ok(_)) => {
                let retained = pubsub::items(&topic);
                self.streams.insert(topic);
                self.request(IqKind::Get, retained, Pending::ValuesRetained)
            }
            (Pending::ValuesSubscribed(topic), Err(_)) => {
                self.streams.remove(&topic);
                self.notices.values.forget(|known| known == topic);
                Ok(())
            }
            (Pending::ValuesRetained | Pending::RightsRetained, Ok(answer)) => {
                self.receive(&pubsub::items_of_answer(&answer));
                Ok(())
            }
            (Pending::RightsSubscribed(topic), Ok(_)) => {
                let retained = pubsub::items(&topic);
                self.rights.insert(topic);
                self.request(IqKind::Get, retained, Pending::RightsRetained)
            }
            (Pending::RightsSubscribed(topic), Err(_)) => {
                self.rights.remove(&topic);
                Ok(())
            }
            (Pending::Rights(digest), Ok(_)) => {
                self.rights_sent = digest;
                Ok(())
            }
            (Pending::Rights(_), Err(refusal)) => {
                let why = refusal.condition;
                tracing::warn!(
                    why,
                    "notices: the server does not take the list of rights; it is tried again"
                );
                self.rights_after = Instant::now() + RIGHTS_AGAIN;
                Ok(())
            }
            (Pending::Values { stream, is_retract }, answer) => {
                self.take_values_answer(&stream, is_retract, answer.err());
                Ok(())
            }
            // Requests about notices have their answers elsewhere; retained items are a help only.
            _ => Ok(()),
        }
    }

    fn take_values_answer(&mut self, stream: &str, is_retract: bool, refusal: Option<Refusal>) {
        let answer = match &refusal {
            None => PublishAnswer::Done,
            Some(refusal) if refusal.condition == "item-not-found" => PublishAnswer::NoTopic,
            Some(_) => PublishAnswer::Refused,
        };
        let values = &self.notices.values;
        values.answered(stream, is_retract, answer);
        if let Some(refusal) = refusal.filter(|_| !is_retract)
            && !std::mem::replace(&mut self.has_reported, true)
        {
            let why = refusal.condition;
            tracing::warn!(
                stream,
                why,
                "notices: the server does not take the values of a stream; the node that applies the lists (notices.apply_lists) creates its topic, and the account of this node needs the right to write the stream"
            );
        }
    }

    /// Subscribes to the topics of lists of rights again, with the lists that are retained there.
    fn subscribe_to_rights(&mut self, topics: &[String]) -> Result<(), String> {
        let ours = topics.iter().filter(|topic| self.is_rights_topic(topic));
        let ours: Vec<String> = ours.take(RIGHTS_TOPICS_MAX).cloned().collect();
        let account = self.line.account.clone();
        for topic in ours {
            let what = pubsub::subscribe(&topic, &account);
            self.request(IqKind::Set, what, Pending::RightsSubscribed(topic))?;
        }
        Ok(())
    }

    /// Subscribes to the topics of streams again, so that rights that began or ended since count.
    fn subscribe_to_values(&mut self, topics: &[String]) -> Result<(), String> {
        let notices = self.notices;
        if !notices.values.hears() {
            return Ok(());
        }
        let prefix = notices.values.prefix();
        let all = topics.iter().filter(|topic| is_value_topic(prefix, topic));
        let all: BTreeSet<&String> = all.take(HEARD_STREAMS_MAX).collect();
        self.streams.retain(|topic| all.contains(topic));
        notices
            .values
            .forget(|topic| !all.contains(&topic.to_owned()));
        let account = self.line.account.clone();
        for topic in all {
            let what = pubsub::subscribe(topic, &account);
            self.request(IqKind::Set, what, Pending::ValuesSubscribed(topic.clone()))?;
        }
        Ok(())
    }

    /// Subscribes to new topics.
    fn subscribe(&mut self, topics: Vec<String>) -> Result<(), String> {
        if self.notices.signer.is_some() {
            return Ok(());
        }
        let prefix = format!("{}/", self.notices.settings.topic);
        let account = self.line.account.clone();
        for topic in topics {
            let is_ours = topic.strip_prefix(&prefix).is_some_and(is_node_name);
            if !is_ours || self.topics.len() >= TOPICS_MAX || !self.topics.insert(topic.clone()) {
                continue;
            }
            let what = pubsub::subscribe(&topic, &account);
            self.request(IqKind::Set, what, Pending::Subscribed(topic))?;
        }
        Ok(())
    }
}
