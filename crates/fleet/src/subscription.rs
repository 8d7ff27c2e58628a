//! Subscription of an edge, as it is set and stored: rules by table and tags, and pins.
//!
//! Format: docs/format/fleet.md.

use crate::error::FleetError;
use headwater_engine::{Pin, Rule, Rules};
use headwater_types::{ClosedRange, Level, StreamName, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

impl WantRule {
    /// Whether the rule applies to a stream.
    #[must_use]
    pub fn fits(&self, stream: &StreamName) -> bool {
        is_of(stream, self.table.as_deref(), &self.tags)
    }
}

/// The rules as the engine has them.
pub(crate) fn rules(rules: &[WantRule], otherwise: StreamShare) -> Result<Rules, FleetError> {
    if rules.len() > RULES_MAX {
        return Err(FleetError::invalid(format!(
            "{} rules, at most {RULES_MAX} are kept for an edge",
            rules.len()
        )));
    }
    let rules = rules.iter().map(|rule| Rule {
        table: rule.table.clone(),
        tags: rule.tags.clone().into_iter().collect(),
        want: rule.want.into(),
        priority: rule.priority,
    });
    Rules::new(rules.collect(), otherwise.into()).map_err(|e| FleetError::invalid(e.to_string()))
}

/// Rules that withhold whole tables.
///
/// # Errors
/// `invalid`, which whole tables never are.
pub fn withholding(tables: &[String]) -> Result<Rules, FleetError> {
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
