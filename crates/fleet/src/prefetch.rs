//! Prefetch policy of an edge, as it is set and stored.
//!
//! Format: docs/format/fleet.md.

use headwater_protocol::replication::{Policy, ScoreBy};
use serde::{Deserialize, Serialize};

/// Ranges that are prefetched, and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationPolicy {
    /// Nothing goes by itself.
    None,
    /// Ranges that tiles need, coarse before fine; then the subscribed rows, in their order.
    Periodic,
    /// Ranges that tiles need; then rows, the highest score first.
    Deviation,
    /// The former two in turn.
    Both,
    /// All at once, each with a share of what travels.
    #[default]
    Shares,
}

impl MigrationPolicy {
    /// All there are, by the names they are known by.
    pub const ALL: [(&'static str, MigrationPolicy); 5] = [
        ("none", MigrationPolicy::None),
        ("periodic", MigrationPolicy::Periodic),
        ("deviation", MigrationPolicy::Deviation),
        ("both", MigrationPolicy::Both),
        ("shares", MigrationPolicy::Shares),
    ];
}

impl From<MigrationPolicy> for Policy {
    fn from(policy: MigrationPolicy) -> Policy {
        match policy {
            MigrationPolicy::None => Policy::None,
            MigrationPolicy::Periodic => Policy::Periodic,
            MigrationPolicy::Deviation => Policy::Deviation,
            MigrationPolicy::Both => Policy::Both,
            MigrationPolicy::Shares => Policy::Shares,
        }
    }
}

/// Which rows are looked at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationScore {
    /// Rows whose values deviate most, over the deviation of their stream.
    #[default]
    Deviation,
    /// Rows with the widest spread of values, over the spread of their stream.
    Spread,
    /// Rows of stretches with the most events.
    Events,
    /// Rows beside which readers missed something most often.
    Misses,
}

impl MigrationScore {
    /// All there are, by the names they are known by.
    pub const ALL: [(&'static str, MigrationScore); 4] = [
        ("deviation", MigrationScore::Deviation),
        ("spread", MigrationScore::Spread),
        ("events", MigrationScore::Events),
        ("misses", MigrationScore::Misses),
    ];
}

impl From<MigrationScore> for ScoreBy {
    fn from(score: MigrationScore) -> ScoreBy {
        match score {
            MigrationScore::Deviation => ScoreBy::Deviation,
            MigrationScore::Spread => ScoreBy::Spread,
            MigrationScore::Events => ScoreBy::Events,
            MigrationScore::Misses => ScoreBy::Misses,
        }
    }
}

/// Prefetch into a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Migration {
    /// The prefetch policy.
    #[serde(default)]
    pub policy: MigrationPolicy,
    /// By what rows go before others.
    #[serde(default)]
    pub score: MigrationScore,
    /// Bytes of rows that are prefetched, of streams with a subscription of summaries only.
    #[serde(default)]
    pub ahead_bytes: u64,
}

impl Migration {
    pub(crate) fn is_default(&self) -> bool {
        *self == Migration::default()
    }
}
