//! Applies the access lists of notices to an XMPP server, and verifies them.
//!
//! Invariants: nodes are configured so that only listed accounts subscribe and publish. An account
//! that is missing in the given list is removed from the server's list, after its subscription was
//! ended: a server may otherwise continue sending to the subscriber. Owners are not removed. Every
//! change is read back and compared. Failure: a text that names the refused change, and the
//! refusing server.

use super::line::{Line, Login};
use crate::settings::NoticeSettings;
use headwater_protocol::notice::{Lists, TopicRight};
use headwater_protocol::xmpp::pubsub::{self, Affiliation};
use headwater_protocol::xmpp::{IqKind, Jid, JidError};
use std::collections::BTreeMap;

/// Changes that were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListsApplied {
    /// Topics that were created.
    pub created: Vec<String>,
    /// Changed affiliations: topic, account, before, now.
    pub changed: Vec<(String, String, String, String)>,
    /// Number of topics that match the list.
    pub topics: usize,
}

type Affiliations = BTreeMap<Jid, Affiliation>;

/// Reason why a list is not applied.
#[derive(Debug)]
pub(super) enum ListFault {
    /// The connection has failed.
    Line(String),
    /// The server refuses the list of a topic.
    Topic(String),
}

impl From<String> for ListFault {
    fn from(why: String) -> ListFault {
        ListFault::Line(why)
    }
}

impl ListFault {
    fn text(self) -> String {
        let (ListFault::Line(why) | ListFault::Topic(why)) = self;
        why
    }
}

/// Creates the topics at the server of the settings and sets who may subscribe and publish. The
/// account must have the right to create nodes at the server, and own the existing nodes.
///
/// # Errors
/// When the server cannot be reached, refuses a change, or has another state afterwards.
pub async fn apply_broker_lists(
    settings: &NoticeSettings,
    lists: &Lists,
) -> Result<ListsApplied, String> {
    let login = Login::of(settings)?;
    let mut line = Line::connect(&login, None).await?;
    let mut applied = ListsApplied::default();
    let there = topics(&mut line).await.map_err(ListFault::text)?;
    let prefix = format!("{}/", settings.topic);
    let gone = there.iter().filter(|topic| topic.starts_with(&prefix));
    let gone = gone.filter(|topic| !lists.contains_key(*topic));
    let nobody = BTreeMap::new();
    for (topic, who) in lists.iter().chain(gone.map(|topic| (topic, &nobody))) {
        let exists = there.contains(topic);
        let done = apply(&mut line, topic, exists, who, &mut applied).await;
        done.map_err(ListFault::text)?;
        applied.topics += 1;
    }
    line.end().await;
    Ok(applied)
}

/// Topics of the server.
pub(super) async fn topics(line: &mut Line) -> Result<Vec<String>, ListFault> {
    let answer = line.request(IqKind::Get, pubsub::nodes()).await?;
    let answer =
        answer.map_err(|why| ListFault::Topic(format!("the nodes cannot be listed: {why}")))?;
    Ok(pubsub::nodes_of(&answer))
}

async fn read(line: &mut Line, topic: &str) -> Result<Affiliations, ListFault> {
    let answer = line
        .request(IqKind::Get, pubsub::affiliations(topic))
        .await?;
    let answer = answer.map_err(|why| {
        ListFault::Topic(format!("{topic}: the affiliations cannot be read: {why}"))
    })?;
    let read = pubsub::affiliated(&answer);
    read.ok_or_else(|| {
        ListFault::Topic(format!(
            "{topic}: the list of affiliations from the server cannot be parsed"
        ))
    })
}

async fn subscribed(line: &mut Line, topic: &str) -> Result<Vec<Jid>, ListFault> {
    let answer = line
        .request(IqKind::Get, pubsub::subscriptions(topic))
        .await?;
    let answer = answer.map_err(|why| {
        ListFault::Topic(format!("{topic}: the subscriptions cannot be read: {why}"))
    })?;
    let read = pubsub::subscribed(&answer);
    read.ok_or_else(|| {
        ListFault::Topic(format!(
            "{topic}: the list of subscriptions from the server cannot be parsed"
        ))
    })
}

/// Creates a topic unless it exists, and configures it so that only listed accounts may use it.
async fn configure(
    line: &mut Line,
    topic: &str,
    exists: bool,
    applied: &mut ListsApplied,
) -> Result<(), ListFault> {
    if !exists {
        let made = line.request(IqKind::Set, pubsub::create(topic)).await?;
        made.map_err(|why| ListFault::Topic(format!("{topic}: it cannot be made: {why}")))?;
        applied.created.push(topic.to_owned());
    }
    let configured = line.request(IqKind::Set, pubsub::configure(topic)).await?;
    configured
        .map_err(|why| ListFault::Topic(format!("{topic}: it cannot be configured: {why}")))?;
    let told = line
        .request(IqKind::Get, pubsub::configuration(topic))
        .await?;
    let told = told.map_err(|why| {
        ListFault::Topic(format!("{topic}: the configuration cannot be read: {why}"))
    })?;
    let other = pubsub::differences(&told);
    if !other.is_empty() {
        let other = other.join(", ");
        return Err(ListFault::Topic(format!(
            "{topic}: the server did not accept these settings: {other}"
        )));
    }
    Ok(())
}

/// Applies the list of a topic, which is created if it does not exist.
pub(super) async fn apply(
    line: &mut Line,
    topic: &str,
    exists: bool,
    who: &BTreeMap<String, TopicRight>,
    applied: &mut ListsApplied,
) -> Result<(), ListFault> {
    configure(line, topic, exists, applied).await?;
    let mut wanted = Affiliations::new();
    for (account, may) in who {
        let jid: Jid = account
            .parse()
            .map_err(|e: JidError| ListFault::Topic(format!("{topic}: {e}")))?;
        wanted.insert(jid, affiliation(*may));
    }
    let before = read(line, topic).await?;
    let is_owner = |jid: &Jid| before.get(&jid.bare()) == Some(&Affiliation::Owner);
    let may_hear = |jid: &Jid| wanted.contains_key(&jid.bare()) || is_owner(jid);
    let mut beyond = subscribed(line, topic).await?;
    beyond.retain(|jid| !may_hear(jid));
    if !beyond.is_empty() {
        let ended = line
            .request(IqKind::Set, pubsub::unsubscribe(topic, &beyond))
            .await?;
        ended.map_err(|why| {
            ListFault::Topic(format!("{topic}: subscriptions cannot be ended: {why}"))
        })?;
    }
    let changes = changes(&before, &wanted);
    if !changes.is_empty() {
        let set = line
            .request(IqKind::Set, pubsub::affiliate(topic, &changes))
            .await?;
        set.map_err(|why| {
            ListFault::Topic(format!("{topic}: the affiliations cannot be set: {why}"))
        })?;
        for (jid, now) in &changes {
            let was = before.get(jid).copied().unwrap_or(Affiliation::None);
            let names = (
                topic.to_owned(),
                jid.to_string(),
                was.to_string(),
                now.to_string(),
            );
            applied.changed.push(names);
        }
    }
    if let Some(jid) = subscribed(line, topic)
        .await?
        .iter()
        .find(|jid| !may_hear(jid))
    {
        return Err(ListFault::Topic(format!(
            "{topic}: the server did not end the subscription of {jid}"
        )));
    }
    let left = self::changes(&read(line, topic).await?, &wanted);
    match left.iter().next() {
        None => Ok(()),
        Some((jid, may)) => Err(ListFault::Topic(format!(
            "{topic}: the server did not store {jid} as {may}"
        ))),
    }
}

fn affiliation(may: TopicRight) -> Affiliation {
    match may {
        TopicRight::Subscribe => Affiliation::Member,
        // The standard also has a publish-only affiliation, which servers do not implement.
        TopicRight::Publish => Affiliation::Publisher,
    }
}

/// Affiliations to set for the target state.
fn changes(before: &Affiliations, wanted: &Affiliations) -> Affiliations {
    let is_fixed = |may: Affiliation| matches!(may, Affiliation::Owner | Affiliation::Outcast);
    let mut changes = Affiliations::new();
    for (jid, may) in before {
        let is_wanted = wanted.contains_key(jid);
        if !is_wanted && !is_fixed(*may) && *may != Affiliation::None {
            changes.insert(jid.clone(), Affiliation::None);
        }
    }
    for (jid, may) in wanted {
        let was = before.get(jid).copied();
        if was != Some(*may) && was != Some(Affiliation::Owner) {
            changes.insert(jid.clone(), *may);
        }
    }
    changes
}
