//! Subscription of an edge, as it is set and stored: rules by table and tags, and pins.
//!
//! Format: docs/format/fleet.md.

use crate::error::ClusterError;
use headwater_engine::{Pin, ReplicationRule, ReplicationRules};
use headwater_types::{ClosedRange, Level, StreamName, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Most rules of an edge.
pub(crate) const RULES_MAX: usize = 1000;

/// Extent of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamShare {
    /// All rows.
    #[default]
    Full,
    /// Ranges that tiles of this level and above need, including the rows that these ranges need.
    Summaries(i32),
    /// No data, not even names; valid for whole tables only.
    Nothing,
}

impl FromStr for StreamShare {
    type Err = String;

    /// Parses `full`, `nothing` or `summaries:LEVEL`.
    fn from_str(text: &str) -> Result<StreamShare, String> {
        let level = text.strip_prefix("summaries:");
        match (text, level.and_then(|level| level.parse().ok())) {
            ("full", _) => Ok(StreamShare::Full),
            ("nothing", _) => Ok(StreamShare::Nothing),
            (_, Some(level)) if Level::new(level).is_some() => Ok(StreamShare::Summaries(level)),
            _ => Err("expected full, nothing, or summaries:LEVEL such as summaries:12".to_owned()),
        }
    }
}

impl fmt::Display for StreamShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamShare::Full => f.write_str("full"),
            StreamShare::Summaries(level) => write!(f, "summaries:{level}"),
            StreamShare::Nothing => f.write_str("nothing"),
        }
    }
}

impl From<StreamShare> for headwater_engine::StreamShare {
    fn from(want: StreamShare) -> headwater_engine::StreamShare {
        match want {
            StreamShare::Full => headwater_engine::StreamShare::Full,
            StreamShare::Summaries(level) => {
                headwater_engine::StreamShare::Summaries(Level::clamped(level))
            }
            StreamShare::Nothing => headwater_engine::StreamShare::Nothing,
        }
    }
}

/// Subscription of some streams: the first rule that fits decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantRule {
    /// The table; `None` = every table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Tags that a stream must have, all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Extent of their subscription.
    pub want: StreamShare,
    /// Streams with a higher priority go first.
    #[serde(default)]
    pub priority: u8,
}

/// Whether a stream is of a table, where one is named, and has these tags.
fn is_of(stream: &StreamName, table: Option<&str>, tags: &BTreeMap<String, String>) -> bool {
    let mut tags = tags.iter();
    table.is_none_or(|table| table == stream.table())
        && tags.all(|(key, value)| stream.tag(key) == Some(value))
}

/// Streams by their names: `TABLE`, or `*` for every table, and tags that they must have, as in
/// `cpu,host=raspberrypi`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamPattern(StreamName);

/// Stands for every table.
const EVERY: &str = "*";

impl StreamPattern {
    /// Whether a stream is one of them.
    #[must_use]
    pub fn fits(&self, stream: &StreamName) -> bool {
        let is_table = self.0.table() == EVERY || self.0.table() == stream.table();
        let mut tags = self.0.tags().iter();
        is_table && tags.all(|(key, value)| stream.tag(key) == Some(value))
    }
}

impl FromStr for StreamPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<StreamPattern, String> {
        let name = StreamName::parse(text);
        name.map(StreamPattern).ok_or_else(|| {
            format!(
                "`{text}`: expected a table, or `*` for every one, perhaps with tags, such as `cpu,host=raspberrypi`"
            )
        })
    }
}

impl TryFrom<String> for StreamPattern {
    type Error = String;

    fn try_from(text: String) -> Result<StreamPattern, String> {
        text.parse()
    }
}

impl From<StreamPattern> for String {
    fn from(pattern: StreamPattern) -> String {
        pattern.to_string()
    }
}

impl fmt::Display for StreamPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl WantRule {
    /// Whether the rule applies to a stream.
    #[must_use]
    pub fn fits(&self, stream: &StreamName) -> bool {
        is_of(stream, self.table.as_deref(), &self.tags)
    }
}

/// The rules as the engine has them.
pub(crate) fn rules(
    rules: &[WantRule],
    otherwise: StreamShare,
) -> Result<ReplicationRules, ClusterError> {
    if rules.len() > RULES_MAX {
        return Err(ClusterError::invalid(format!(
            "{} rules; an edge has at most {RULES_MAX}",
            rules.len()
        )));
    }
    let rules = rules.iter().map(|rule| ReplicationRule {
        table: rule.table.clone(),
        tags: rule.tags.clone().into_iter().collect(),
        want: rule.want.into(),
        priority: rule.priority,
    });
    ReplicationRules::new(rules.collect(), otherwise.into())
        .map_err(|e| ClusterError::invalid(e.to_string()))
}

/// Rules that withhold whole tables.
///
/// # Errors
/// `invalid`, which whole tables never are.
pub fn withholding(tables: &[String]) -> Result<ReplicationRules, ClusterError> {
    let all: Vec<WantRule> = tables
        .iter()
        .map(|table| WantRule {
            table: Some(table.clone()),
            tags: BTreeMap::new(),
            want: StreamShare::Nothing,
            priority: 0,
        })
        .collect();
    rules(&all, StreamShare::Full)
}

/// A span of time of which all rows are subscribed to, whatever the rules say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinSpec {
    /// The table.
    pub table: String,
    /// Tags that a stream must have, all of them.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The first instant, in nanoseconds since 1970.
    pub from_ns: i64,
    /// The last instant, in nanoseconds since 1970.
    pub to_ns: i64,
    /// Expiry of the pin, in nanoseconds since 1970; `None` = until it is removed.
    #[serde(default)]
    pub until_ns: Option<i64>,
}

impl PinSpec {
    /// Whether it is about a stream.
    #[must_use]
    pub fn fits(&self, stream: &StreamName) -> bool {
        is_of(stream, Some(&self.table), &self.tags)
    }

    pub(crate) fn pin(&self) -> Pin {
        Pin {
            table: self.table.clone(),
            tags: self.tags.clone().into_iter().collect(),
            range: ClosedRange::nanos(self.from_ns, self.to_ns),
            until: self.until_ns.map(Timestamp::from_nanos),
        }
    }

    pub(crate) fn of(pin: &Pin) -> PinSpec {
        PinSpec {
            table: pin.table.clone(),
            tags: pin.tags.iter().cloned().collect(),
            from_ns: pin.range.first.as_nanos(),
            to_ns: pin.range.last.as_nanos(),
            until_ns: pin.until.map(Timestamp::as_nanos),
        }
    }
}
