//! Access rules of a broker for notices, generated from the list of tokens.

use super::bus_rights::RIGHTS_TABLE;
use crate::settings::NoticeSettings;
use headwater_protocol::live::{StreamReaders, value_lists};
use headwater_protocol::notice::{
    AccessError, Lists, Subject, TABLE, TopicRight, Topics, is_node_name, mosquitto, whitelists,
};
use headwater_shell::access::Access;
use headwater_shell::access::guard::Guard;
use headwater_shell::access::rules::Action;
use headwater_shell::access::tokens::{Grant, Tokens};
use headwater_types::StreamName;
use std::sync::Arc;

/// Nodes whose rows of a table a token may use.
fn topics(grant: &Grant, table: &str, action: Action, nodes: &[&str]) -> Topics {
    let rules = grant.rules.iter().filter(|rule| rule.action == action);
    let patterns: Vec<_> = rules.map(|rule| &rule.pattern).collect();
    // A row without the tag is covered only by patterns that do not name a node.
    if patterns.iter().any(|pattern| pattern.matches(table, &[])) {
        return Topics::All;
    }
    let may = |node: &&&str| {
        let tags = [("node".to_owned(), (**node).to_owned())];
        patterns.iter().any(|pattern| pattern.matches(table, &tags))
    };
    let of = nodes.iter().filter(may).map(|node| (*node).to_owned());
    Topics::Of(of.collect())
}

fn subjects<'a>(grants: impl Iterator<Item = &'a Arc<Grant>>) -> Vec<Subject> {
    let grants: Vec<_> = grants.collect();
    let names = grants.iter().map(|grant| grant.name.as_str());
    let nodes: Vec<&str> = names.filter(|name| is_node_name(name)).collect();
    let subjects = grants.iter().map(|grant| Subject {
        name: grant.name.clone(),
        subscribes: topics(grant, TABLE, Action::Read, &nodes),
        publishes: topics(grant, TABLE, Action::Write, &nodes),
    });
    // Names of tokens without rights to notices may be any.
    let some = subjects.filter(|subject| {
        let none = Topics::Of(std::collections::BTreeSet::new());
        subject.subscribes != none || subject.publishes != none
    });
    some.collect()
}

fn valid(tokens: &Tokens) -> impl Iterator<Item = &Arc<Grant>> {
    tokens.grants().iter().filter(|grant| !grant.is_over())
}

/// Rights of tokens at streams.
struct TokenRights<'a> {
    guard: &'a Arc<Guard>,
    grants: &'a [Arc<Grant>],
}

impl StreamReaders for TokenRights<'_> {
    fn rights_of(&self, stream: &str) -> (Vec<String>, Vec<String>) {
        let Some(name) = StreamName::parse(stream) else {
            return (Vec::new(), Vec::new());
        };
        let with = |may: fn(&Access, &StreamName) -> bool| {
            let grants = self.grants.iter();
            let may = grants.filter(|grant| may(&self.guard.access_by(grant), &name));
            may.map(|grant| grant.name.clone()).collect()
        };
        (
            with(Access::may_read_stream),
            with(Access::may_write_stream),
        )
    }
}

/// The access list of the topic of this node's list of rights: a subject that may read its row may
/// hear it, and nobody but the owner of the topic publishes there.
fn rights_list(settings: &NoticeSettings, domain: &str, grants: &[&Arc<Grant>]) -> Lists {
    let node = settings.name.as_str();
    let may = grants.iter().filter(|grant| {
        let topics = topics(grant, RIGHTS_TABLE, Action::Read, &[node]);
        topics.contains(node)
    });
    let accounts = may.map(|grant| (format!("{}@{domain}", grant.name), TopicRight::Subscribe));
    let topic = format!("{}/{node}", settings.rights_topic);
    Lists::from([(topic, accounts.collect())])
}

/// The lists that a server of XMPP is to have: of the topics of notices, of those of streams, and
/// of that of the list of rights, if it is published.
/// Tokens whose names are not valid accounts are left out.
///
/// # Errors
/// When the topic contains characters that are not allowed there.
pub fn wanted_lists(
    guard: &Arc<Guard>,
    grants: &[Arc<Grant>],
    settings: &NoticeSettings,
    streams: &[String],
) -> Result<Lists, AccessError> {
    let account = settings.login.user.split_once('@');
    let domain = account.map_or("", |(_, domain)| domain);
    let is_account = |grant: &&Arc<Grant>| {
        is_node_name(&grant.name) && !grant.name.chars().any(char::is_uppercase)
    };
    let accounts: Vec<&Arc<Grant>> = grants.iter().filter(is_account).collect();
    let mut lists = whitelists(&settings.topic, domain, &subjects(accounts.iter().copied()))?;
    if settings.rights {
        lists.extend(rights_list(settings, domain, &accounts));
    }
    let rights = TokenRights { guard, grants };
    lists.extend(value_lists(
        &settings.values_topic,
        domain,
        streams,
        &rights,
    ));
    Ok(lists)
}

/// Subscribers and publishers of each topic, as XMPP's publish-subscribe expects them: a token's
/// name is an account of `domain`, and the name of the node that has the token.
///
/// # Errors
/// When a topic or the name of a token contains characters that are not allowed there.
pub fn broker_lists(tokens: &Tokens, topic: &str, domain: &str) -> Result<Lists, AccessError> {
    whitelists(topic, domain, &subjects(valid(tokens)))
}

/// Rules for mosquitto (`acl_file`) equivalent to the list: a token's name is the user of the
/// broker, and the name of the node that has the token. A notice of node `NAME` counts as a row of
/// `headwater_notices,node=NAME`.
///
/// # Errors
/// When a topic or the name of a token contains characters that are not allowed there.
pub fn broker_rules(tokens: &Tokens, topic: &str) -> Result<String, AccessError> {
    mosquitto(topic, &subjects(valid(tokens)))
}
