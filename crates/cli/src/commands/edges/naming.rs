//! `headwater edges`: moves of streams, and tags that are added to streams.

use crate::arguments::parse_time;
use crate::failure::Failure;
use crate::output::print;
use crate::server::Server;
use clap::Args;
use headwater::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug, Args)]
pub(super) struct Move {
    /// Streams that both edges have: a table, or * for every one, perhaps with tags, such as
    /// cpu,host=raspberrypi
    #[arg(value_name = "PATTERN")]
    pattern: String,
    /// The edge, or closed part, whose rows count before
    #[arg(long, value_name = "EDGE")]
    from: String,
    /// The edge, or closed part, whose rows count from then on
    #[arg(long, value_name = "EDGE")]
    to: String,
    /// The first instant that belongs to --to; now unless given
    #[arg(long, value_name = "T", value_parser = parse_time, allow_hyphen_values = true)]
    at: Option<Timestamp>,
}

#[derive(Debug, Args)]
pub(super) struct Tag {
    #[arg(value_name = "NAME")]
    name: String,
    /// All tags that are added; the value is the name of the edge unless given
    #[arg(value_name = "TAG[=VALUE]", required_unless_present = "clear", value_parser = parse_added)]
    tags: Vec<Added>,
    /// Add none any more
    #[arg(long, conflicts_with = "tags")]
    clear: bool,
}

/// A tag that is added, perhaps with its value.
#[derive(Clone, Debug)]
pub(super) struct Added {
    key: String,
    value: Option<String>,
}

pub(super) fn parse_added(text: &str) -> Result<Added, String> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (text, None),
    };
    match key.is_empty() || value.as_deref() == Some("") {
        true => Err("expected TAG, or TAG=VALUE, such as gateway=pump-7".to_owned()),
        false => Ok(Added {
            key: key.to_owned(),
            value,
        }),
    }
}

/// The tags of an edge, of which those without a value have its name.
pub(super) fn tags(tags: &[Added], edge: &str) -> BTreeMap<String, String> {
    let value = |tag: &Added| tag.value.clone().unwrap_or_else(|| edge.to_owned());
    tags.iter()
        .map(|tag| (tag.key.clone(), value(tag)))
        .collect()
}

/// Tags in one line.
pub(super) fn text(tags: &BTreeMap<String, String>) -> String {
    let tags = tags.iter().map(|(key, value)| format!("{key}={value}"));
    tags.collect::<Vec<_>>().join(",")
}

impl Move {
    pub(super) fn run(&self, server: &Server) -> Result<(), Failure> {
        let asked = json!({
            "op": "move", "pattern": self.pattern, "from": self.from, "to": self.to,
            "at_ns": self.at.map(Timestamp::as_nanos),
        });
        let change = super::parts::changed(server, &asked)?;
        print(&format!(
            "{} moved from {} to {}: change {change}\n",
            self.pattern, self.from, self.to
        ))
    }
}

impl Tag {
    pub(super) fn run(&self, server: &Server) -> Result<(), Failure> {
        let tags = tags(&self.tags, &self.name);
        let asked = json!({ "op": "tag", "edge": self.name, "tags": tags });
        let change = super::parts::changed(server, &asked)?;
        print(&match tags.is_empty() {
            true => format!("{}: no tags are added: change {change}\n", self.name),
            false => format!(
                "{}: {} added to all streams: change {change}\n",
                self.name,
                text(&tags)
            ),
        })
    }
}
