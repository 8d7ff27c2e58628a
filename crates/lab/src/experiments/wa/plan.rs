//! A policy under exact conditions: the input of the simulation and of the engine.

use crate::harness::Failure;
use headwater::{FlushRule, LatePolicy, MergeScope, Options, Split};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Division of the memory, as the papers count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// One buffer (the paper's pi_c).
    Conventional,
    /// Number of events of memory for those in order (the paper's n_seq), the rest for late ones
    /// (pi_s).
    Separate(usize),
}

impl FromStr for Sharing {
    type Err = String;

    fn from_str(text: &str) -> Result<Sharing, String> {
        if text == "conventional" {
            return Ok(Sharing::Conventional);
        }
        text.strip_prefix("separate:")
            .and_then(|n| n.parse().ok())
            .map(Sharing::Separate)
            .ok_or_else(|| {
                format!("`{text}`: a policy is `conventional`, or `separate:N` with N events for those in order")
            })
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sharing::Conventional => write!(f, "conventional"),
            Sharing::Separate(flank) => write!(f, "separate:{flank}"),
        }
    }
}

/// A policy with its memory and the size of a leaf, in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Events of memory (the paper's n).
    pub(crate) memory: usize,
    /// Events of a leaf (the paper's SSTable).
    pub(crate) leaf: usize,
    pub(crate) sharing: Sharing,
    /// Number of newest events that a flush retains in memory.
    pub(crate) retain: usize,
    pub(crate) scope: MergeScope,
}

impl Plan {
    /// The paper's setting: 512 events of memory, leaves of 512, whole tables rewritten, no
    /// retained events.
    pub(crate) fn paper(sharing: Sharing) -> Plan {
        Plan {
            memory: 512,
            leaf: 512,
            sharing,
            retain: 0,
            scope: MergeScope::Overlap,
        }
    }

    /// Refuses a plan that cannot run; the error states the valid range.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if !(2..=1 << 24).contains(&self.memory) {
            return Err(format!("--memory must be 2 to {}, found {}", 1 << 24, self.memory).into());
        }
        if !(16..=65_536).contains(&self.leaf) {
            return Err(format!("--leaf must be 16 to 65536, found {}", self.leaf).into());
        }
        let buffer = match self.sharing {
            Sharing::Conventional => self.memory,
            Sharing::Separate(flank) if (1..self.memory).contains(&flank) => flank,
            Sharing::Separate(flank) => {
                return Err(format!(
                    "separate:N: N must be 1 to {} (--memory less one), found {flank}",
                    self.memory - 1
                )
                .into());
            }
        };
        if self.retain >= buffer {
            return Err(format!(
                "--retain must be below the {buffer} events of the buffer that is flushed, found {}",
                self.retain
            )
            .into());
        }
        Ok(())
    }

    /// The policy as the engine's type.
    pub(crate) fn late_policy(&self) -> LatePolicy {
        LatePolicy {
            split: match self.sharing {
                Sharing::Conventional => Split::Conventional,
                Sharing::Separate(flank) => Split::Separate {
                    flank_share: flank as f64 / self.memory as f64,
                },
            },
            retain_events: self.retain as u32,
            merge_scope: self.scope,
        }
    }

    /// One shard, one run, buffers counted in events: as the papers have it.
    pub(crate) fn exact_options(&self) -> Options {
        Options {
            shards: 1,
            durability: headwater::Durability::Written,
            late_policy: self.late_policy().into(),
            flush_rule: FlushRule::LabExact {
                memory_events: self.memory as u32,
            },
            late_runs_max: 0,
            leaf_events: self.leaf as u32,
            ..Options::new("/wa")
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.sharing)?;
        if self.retain > 0 {
            write!(f, ", retain {}", self.retain)?;
        }
        match self.scope {
            MergeScope::Overlap => write!(f, ", overlap"),
            MergeScope::Touched => write!(f, ", touched"),
        }
    }
}

/// Counts of writes for a number of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Number of ingested events.
    pub(crate) events: u64,
    /// Events written to leaves, each time they were.
    pub(crate) events_written: u64,
    /// Times late events were merged into leaves.
    pub(crate) merges: u64,
    /// Times a buffer was stored, merges among them.
    pub(crate) flushes: u64,
}

impl Counts {
    /// Events written per ingested event: write amplification as defined in the papers.
    pub(crate) fn wa(&self) -> f64 {
        self.events_written as f64 / self.events.max(1) as f64
    }
}
