//! What a cloud copies of an edge before somebody asks for it, as it is said and kept.
//!
//! Format: docs/format/fleet.md.

use headwater_protocol::replication::{Policy, ScoreBy};
use serde::{Deserialize, Serialize};

/// What is copied before somebody asks for it, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationPolicy {
    /// Nothing goes by itself.
    None,
    /// What tiles need, coarse before fine; then the rows that are wanted, in their order.
    Periodic,
    /// What tiles need; then rows, the highest score first.
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
    /// Those whose values deviate most, over how much those of their stream do.
    #[default]
    Deviation,
    /// Those whose values are the furthest apart, over how far those of their stream are.
    Spread,
    /// Those of stretches with the most events.
    Events,
    /// Those beside which readers missed something most often.
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

/// How a copy grows while nobody asks for anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Migration {
    /// What takes part.
    #[serde(default)]
    pub policy: MigrationPolicy,
    /// By what rows go before others.
    #[serde(default)]
    pub score: MigrationScore,
    /// So many bytes of rows are copied ahead, of streams of which only summaries are wanted.
    #[serde(default)]
    pub ahead_bytes: u64,
}

impl Migration {
    pub(crate) fn is_default(&self) -> bool {
        *self == Migration::default()
    }
}
