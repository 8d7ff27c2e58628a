//! Policies for late data: the division of memory between in-order and late events, the events that
//! a flush retains, the leaves that a merge rewrites; and predictions of the writes of each policy.
//!
//! [`lateness`](Lateness) has statistics of late events, the model ([`predict`]) predicts from them
//! the writes of a policy, a replay of time stamps ([`Shadow`]) counts the writes, and
//! [`PaperModel`] has the paper's own formulas for comparison. [`Space`] is the set of candidates,
//! and an [`Analyzer`] for each shard decides.
//!
//! Invariants: everything here is pure, and uses neither clock nor files. Concurrency: values; the
//! shards' locks guard the ones in use. Failure: settings out of range are refused with the range.
//!
//! Source: "Separation or Not" (SEP paper), sections II to IV.

mod analyzer;
mod choose;
mod lateness;
mod law;
mod model;
mod paper;
mod shadow;
mod study;

pub use analyzer::{
    Analyzer, Decision, EVENTS_PER_EVALUATION, Evaluation, REPLAY_BYTES_MAX, Reason, belief,
};
pub use choose::{Knobs, PolicyChoice, Ranked, Space};
pub use lateness::{Histogram, Lateness, LatenessLaw, STREAMS_TRACKED_MAX, Tracker};
pub use law::{DelayLaw, Lognormal, Sample, erfc};
pub use model::{Candidate, Configuration, Prediction, predict, predict_in_full};
pub use paper::{Algorithm1, PaperModel};
pub use shadow::{Shadow, ShadowCount};
pub use study::{EVENTS_KEPT, Study, StudyReport, StudySettings};

/// A setting of a policy is out of range, or its text is not a policy. Displays the invalid value
/// and the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSetting(pub String);

/// The leaves that a merge of late events rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeScope {
    /// Only leaves that receive an event. The default.
    Touched,
    /// Every leaf that overlaps the range of the buffer, as in the papers.
    Overlap,
}

/// Division of memory between in-order and late events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Split {
    /// One buffer for all events (the paper's pi_c).
    Conventional,
    /// A flank for in-order events and a buffer for late ones (the paper's pi_s). The flank's share
    /// of the memory is above 0 and below 1.
    Separate {
        /// Share of the memory that in-order events may use.
        flank_share: f64,
    },
}

/// A policy for late data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatePolicy {
    /// One buffer or two.
    pub split: Split,
    /// Number of the newest events of a stream a flush keeps in memory, so that slightly late
    /// events stay in order.
    pub retain_events: u32,
    /// The leaves that a merge rewrites.
    pub merge_scope: MergeScope,
}

impl Default for LatePolicy {
    fn default() -> Self {
        LatePolicy {
            split: Split::Separate { flank_share: 0.5 },
            retain_events: 0,
            merge_scope: MergeScope::Touched,
        }
    }
}

impl LatePolicy {
    /// Maximum setting of the events of a stream that a flush retains.
    pub const RETAIN_EVENTS_MAX: u32 = 1 << 24;

    /// One buffer for all events.
    #[must_use]
    pub fn conventional() -> Self {
        LatePolicy {
            split: Split::Conventional,
            ..LatePolicy::default()
        }
    }

    /// Two buffers; `flank_share` of the memory for in-order events.
    #[must_use]
    pub fn separate(flank_share: f64) -> Self {
        LatePolicy {
            split: Split::Separate { flank_share },
            ..LatePolicy::default()
        }
    }

    /// Checks the ranges of the settings.
    ///
    /// # Errors
    ///
    /// A setting is out of range.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        if let Split::Separate { flank_share } = self.split
            && !(flank_share > 0.0 && flank_share < 1.0)
        {
            return Err(InvalidSetting(format!(
                "late policy: flank_share must be above 0 and below 1, found {flank_share}"
            )));
        }
        if self.retain_events > LatePolicy::RETAIN_EVENTS_MAX {
            return Err(InvalidSetting(format!(
                "late policy: retain_events must be 0 to {}, found {}",
                LatePolicy::RETAIN_EVENTS_MAX,
                self.retain_events
            )));
        }
        Ok(())
    }
}

/// Capacity of the flank in a memory of `memory` events: at least one, and at least one less than
/// all.
#[must_use]
pub fn flank_capacity(memory: usize, flank_share: f64) -> usize {
    ((memory as f64 * flank_share).round() as usize).clamp(1, memory.saturating_sub(1).max(1))
}

/// When buffers are flushed, and the extent of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushRule {
    /// By bytes against the memory budget; streams with whole leaves first.
    Production,
    /// As in the papers, for experiments: memory is counted in events of one shard, a full buffer
    /// is flushed whole right after the insertion that filled it, there is one partition, and no
    /// late runs. Leaves are cut full from the left. Events left at the end are stored in the same
    /// way, each buffer separately.
    LabExact {
        /// Events of memory, in-order and late together (the paper's n).
        memory_events: u32,
    },
}
