//! Prefetch policy of an edge, as it is set and stored.
//!
//! Format: docs/format/fleet.md.

use headwater_protocol::replication::{Policy, ScoreBy};
use serde::{Deserialize, Serialize};

/// Ranges that are prefetched, and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefetchPolicy {
    /// No prefetch.
    None,
    /// Ranges that tiles need, coarse before fine; then the subscribed rows, in their order.
    Periodic,
    /// Ranges that tiles need; then rows, the highest score first.
    Deviation,
    /// The former two in turn.
    Both,
    /// All kinds of ranges at once, each with a share of the traffic.
    #[default]
    Shares,
}

impl PrefetchPolicy {
    /// All policies with their names.
    pub const ALL: [(&'static str, PrefetchPolicy); 5] = [
        ("none", PrefetchPolicy::None),
        ("periodic", PrefetchPolicy::Periodic),
        ("deviation", PrefetchPolicy::Deviation),
        ("both", PrefetchPolicy::Both),
        ("shares", PrefetchPolicy::Shares),
    ];
}

impl From<PrefetchPolicy> for Policy {
    fn from(policy: PrefetchPolicy) -> Policy {
        match policy {
            PrefetchPolicy::None => Policy::None,
            PrefetchPolicy::Periodic => Policy::Periodic,
            PrefetchPolicy::Deviation => Policy::Deviation,
            PrefetchPolicy::Both => Policy::Both,
            PrefetchPolicy::Shares => Policy::Shares,
        }
    }
}

/// Score of the rows that are likely to be read first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefetchScore {
    /// Rows whose values deviate most, relative to the deviation of their stream.
    #[default]
    Deviation,
    /// Rows with the widest spread of values, over the spread of their stream.
    Spread,
    /// Rows of the ranges with the most events.
    Events,
    /// Rows beside which readers missed something most often.
    Misses,
}

impl PrefetchScore {
    /// All scores with their names.
    pub const ALL: [(&'static str, PrefetchScore); 4] = [
        ("deviation", PrefetchScore::Deviation),
        ("spread", PrefetchScore::Spread),
        ("events", PrefetchScore::Events),
        ("misses", PrefetchScore::Misses),
    ];
}

impl From<PrefetchScore> for ScoreBy {
    fn from(score: PrefetchScore) -> ScoreBy {
        match score {
            PrefetchScore::Deviation => ScoreBy::Deviation,
            PrefetchScore::Spread => ScoreBy::Spread,
            PrefetchScore::Events => ScoreBy::Events,
            PrefetchScore::Misses => ScoreBy::Misses,
        }
    }
}

/// Prefetch into a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefetch {
    /// The prefetch policy.
    #[serde(default)]
    pub policy: PrefetchPolicy,
    /// Score by which rows are prioritised.
    #[serde(default)]
    pub score: PrefetchScore,
    /// Bytes of rows that are prefetched, of streams with a subscription of summaries only.
    #[serde(default)]
    pub ahead_bytes: u64,
}

impl Prefetch {
    pub(crate) fn is_default(&self) -> bool {
        *self == Prefetch::default()
    }
}
