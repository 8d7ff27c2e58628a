//! What a broker is told of who may tell and hear notices: made of the list of tokens.

use crate::access::rules::Action;
use crate::access::tokens::{Grant, Tokens};
use headwater_protocol::notice::{
    AccessError, Lists, Subject, TABLE, Topics, is_node_name, mosquitto, whitelists,
};

/// Of which nodes a token may do something with notices.
fn topics(grant: &Grant, action: Action, nodes: &[&str]) -> Topics {
    let rules = grant.rules.iter().filter(|rule| rule.action == action);
    let patterns: Vec<_> = rules.map(|rule| &rule.pattern).collect();
    // A row without the tag is meant by those only that name no node.
    if patterns.iter().any(|pattern| pattern.matches(TABLE, &[])) {
        return Topics::All;
    }
    let may = |node: &&&str| {
        let tags = [("node".to_owned(), (**node).to_owned())];
        patterns.iter().any(|pattern| pattern.matches(TABLE, &tags))
    };
    let of = nodes.iter().filter(may).map(|node| (*node).to_owned());
    Topics::Of(of.collect())
}

fn subjects(tokens: &Tokens) -> Vec<Subject> {
    let grants = tokens.grants().iter().filter(|grant| !grant.is_over());
    let grants: Vec<_> = grants.collect();
    let names = grants.iter().map(|grant| grant.name.as_str());
    let nodes: Vec<&str> = names.filter(|name| is_node_name(name)).collect();
    let subjects = grants.iter().map(|grant| Subject {
        name: grant.name.clone(),
        hears: topics(grant, Action::Read, &nodes),
        tells: topics(grant, Action::Write, &nodes),
    });
    // Names of those who have nothing to do with notices may be any.
    let some = subjects.filter(|subject| {
        let none = Topics::Of(std::collections::BTreeSet::new());
        subject.hears != none || subject.tells != none
    });
    some.collect()
}

/// For each topic who may tell and hear, as XMPP's publish-subscribe wants it: a token's name is an
/// account of `domain`, and what the node is called whose token it is.
///
/// # Errors
/// When a topic or the name of a token cannot stand there.
pub fn broker_lists(tokens: &Tokens, topic: &str, domain: &str) -> Result<Lists, AccessError> {
    whitelists(topic, domain, &subjects(tokens))
}

/// The rules for mosquitto (`acl_file`) that say what the list says: a token's name is who logs in
/// to the broker, and what the node is called whose token it is. A notice of node `NAME` counts as
/// a row of `headwater_notices,node=NAME`.
///
/// # Errors
/// When a topic or the name of a token cannot stand there.
pub fn broker_rules(tokens: &Tokens, topic: &str) -> Result<String, AccessError> {
    mosquitto(topic, &subjects(tokens))
}
