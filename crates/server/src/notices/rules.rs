//! Access rules of a broker for notices, generated from the list of tokens.

use crate::access::rules::Action;
use crate::access::tokens::{Grant, Tokens};
use headwater_protocol::notice::{
    AccessError, Lists, Subject, TABLE, Topics, is_node_name, mosquitto, whitelists,
};

/// Topics of the nodes whose notices a token may use.
fn topics(grant: &Grant, action: Action, nodes: &[&str]) -> Topics {
    let rules = grant.rules.iter().filter(|rule| rule.action == action);
    let patterns: Vec<_> = rules.map(|rule| &rule.pattern).collect();
    // A row without the tag is covered only by patterns that do not name a node.
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
    // Names of tokens without rights to notices may be any.
    let some = subjects.filter(|subject| {
        let none = Topics::Of(std::collections::BTreeSet::new());
        subject.hears != none || subject.tells != none
    });
    some.collect()
}

/// Subscribers and publishers of each topic, as XMPP's publish-subscribe expects them: a token's
/// name is an account of `domain`, and the name of the node that has the token.
///
/// # Errors
/// When a topic or the name of a token contains characters that are not allowed there.
pub fn broker_lists(tokens: &Tokens, topic: &str, domain: &str) -> Result<Lists, AccessError> {
    whitelists(topic, domain, &subjects(tokens))
}

/// Rules for mosquitto (`acl_file`) equivalent to the list: a token's name is the user of the
/// broker, and the name of the node that has the token. A notice of node `NAME` counts as a row of
/// `headwater_notices,node=NAME`.
///
/// # Errors
/// When a topic or the name of a token contains characters that are not allowed there.
pub fn broker_rules(tokens: &Tokens, topic: &str) -> Result<String, AccessError> {
    mosquitto(topic, &subjects(tokens))
}
