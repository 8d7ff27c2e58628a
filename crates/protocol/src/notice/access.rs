//! Access to notices, and its rules for a broker.
//!
//! A notice of node `NAME` counts as a row of the table [`TABLE`] with the tag `node=NAME`: a
//! subject that may read the row may receive the notice, a subject that may write the row may
//! publish the notice.
//!
//! Invariants: no right is granted beyond the rights of the subjects. A name that a broker would
//! interpret differently is refused, never changed. Concurrency: plain data. Failure:
//! [`AccessError`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Table whose rows represent notices in access rules.
pub const TABLE: &str = "headwater_notices";

const NAME_MAX: usize = 64;

/// Reason why rules cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The file format cannot express the name of a subject.
    #[error(
        "the name {0:?} cannot stand in rules of a broker: expected no line ends and other control characters, no blank at its ends, no # at its beginning"
    )]
    Subject(String),
    /// The name of a subject cannot be an account.
    #[error(
        "the name {0:?} cannot be an account of XMPP: expected letters a to z, digits, dots, dashes and underscores"
    )]
    Account(String),
    /// The file format cannot express the topic.
    #[error("the topic {0:?} cannot be one of notices: expected text without + # and blanks")]
    Topic(String),
}

/// Nodes whose notices a right covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topics {
    /// All nodes, including nodes that do not exist yet.
    All,
    /// The named nodes.
    Of(BTreeSet<String>),
}

impl Topics {
    /// True when the topics of a node are among them.
    #[must_use]
    pub fn has(&self, node: &str) -> bool {
        match self {
            Topics::All => true,
            Topics::Of(nodes) => nodes.contains(node),
        }
    }

    fn lines(&self, verb: &str, prefix: &str, out: &mut String) {
        let mut line = |node: &str| {
            // Writing to a `String` cannot fail.
            let _ = writeln!(out, "topic {verb} {prefix}/{node}");
        };
        match self {
            Topics::All => line("+"),
            Topics::Of(nodes) => nodes.iter().for_each(|node| line(node)),
        }
    }
}

/// A user name at a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The name.
    pub name: String,
    /// Topics that it may hear.
    pub hears: Topics,
    /// Topics to which it may publish.
    pub tells: Topics,
}

/// Right at a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum May {
    /// Hear notices.
    Hear,
    /// Publish; with XMPP a publisher may hear there too.
    Tell,
}

/// Rights at each topic; subjects that are not listed have no rights.
pub type Lists = BTreeMap<String, BTreeMap<String, May>>;

/// Whether a node may have this name: 1 to 64 letters, digits, dots, dashes and underscores.
///
/// ```
/// use headwater_protocol::notice::is_node_name;
/// assert!(is_node_name("north-1.plant") && !is_node_name("north/1") && !is_node_name("+"));
/// ```
#[must_use]
pub fn is_node_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

/// The rules in mosquitto's format (`acl_file`): a user that is not named, and a client without a
/// user name, can neither subscribe nor publish.
///
/// # Errors
/// If the file format cannot express a name.
pub fn mosquitto(prefix: &str, subjects: &[Subject]) -> Result<String, AccessError> {
    let is_topic = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '+' | '#');
    if prefix.is_empty() || !prefix.chars().all(is_topic) {
        return Err(AccessError::Topic(prefix.to_owned()));
    }
    let mut out = format!(
        "# Who may tell and hear notices under {prefix}, made by `headwater notices rules`.\n"
    );
    for subject in subjects {
        let name = &subject.name;
        let is_bad = name.is_empty()
            || name.trim() != name
            || name.starts_with('#')
            || name.chars().any(char::is_control);
        if is_bad {
            return Err(AccessError::Subject(name.clone()));
        }
        let mut lines = String::new();
        subject.hears.lines("read", prefix, &mut lines);
        subject.tells.lines("write", prefix, &mut lines);
        if !lines.is_empty() {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "\nuser {name}\n{lines}");
        }
    }
    Ok(out)
}

/// The lists for XMPP's publish-subscribe: each node that may publish has a topic, and each subject
/// is an account of `domain`.
///
/// # Errors
/// If a name is not a valid account, or a topic is invalid.
pub fn whitelists(prefix: &str, domain: &str, subjects: &[Subject]) -> Result<Lists, AccessError> {
    if !prefix.split('/').all(is_node_name) {
        return Err(AccessError::Topic(prefix.to_owned()));
    }
    let is_account = |name: &str| is_node_name(name) && !name.chars().any(char::is_uppercase);
    if let Some(bad) = subjects.iter().find(|subject| !is_account(&subject.name)) {
        return Err(AccessError::Account(bad.name.clone()));
    }
    let nodes: BTreeSet<&str> = subjects
        .iter()
        .flat_map(|subject| match &subject.tells {
            Topics::All => vec![subject.name.as_str()],
            Topics::Of(nodes) => nodes.iter().map(String::as_str).collect(),
        })
        .collect();
    let mut lists = Lists::new();
    for node in nodes {
        let who = subjects.iter().filter_map(|subject| {
            let may = match (subject.tells.has(node), subject.hears.has(node)) {
                (true, _) => May::Tell,
                (false, true) => May::Hear,
                (false, false) => return None,
            };
            Some((format!("{}@{domain}", subject.name), may))
        });
        lists.insert(format!("{prefix}/{node}"), who.collect());
    }
    Ok(lists)
}

/// The same as text: topic, affiliation and account, a line each.
#[must_use]
pub fn whitelist_text(lists: &Lists) -> String {
    let mut out = String::from(
        "# Who may tell (publisher) and hear (member) notices; `headwater notices apply` brings it to the server.\n",
    );
    for (topic, who) in lists {
        for (account, may) in who {
            let may = match may {
                May::Hear => "member",
                May::Tell => "publisher",
            };
            // Writing to a `String` cannot fail.
            let _ = writeln!(out, "{topic} {may} {account}");
        }
    }
    out
}
