//! The candidates, and the choice of the one with the least cost.
//!
//! Invariants: pure functions. A ranking begins with the least cost; the policy in force is always
//! in it. Concurrency: values. Failure: none; settings are checked at input.

use super::law::DelayLaw;
use super::model::{Candidate, Configuration, Outline};
use super::{LatePolicy, MergeScope, Split};
use crate::InvalidSetting;
use std::fmt;
use std::str::FromStr;

/// Shares of memory for the flank that are candidates, in sixteenths.
const SHARES: [u32; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// Shares of memory for candidates that retain events: fewer, so that a ranking takes a few
/// milliseconds.
const SHARES_RETAINING: [u32; 6] = [4, 6, 8, 10, 12, 14];
/// Parts of the flank that are retained, in eighths.
const RETAINED: [u32; 3] = [2, 4, 6];
/// Number of the best candidates of one leaf size that are tried with the others.
const LEAVES_TRIED_WITH: usize = 3;
/// Minimum leaf size that is chosen.
const LEAF_EVENTS_MIN: u32 = 128;
/// Divisors of the table's leaf size: at least a quarter of it is chosen, so that compaction need
/// not rewrite small leaves.
const LEAF_PARTS: [u32; 2] = [2, 4];
/// Overhead of a leaf's frame on the medium, and of a flush of a stream in addition to its leaves,
/// in events: some 40 B and 60 B at 3 B an event.
const LEAF_FRAME_EVENTS: f64 = 14.0;
const FLUSH_FRAME_EVENTS: f64 = 20.0;

/// Parameters that `adaptive` may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// The number of the newest events a flush retains.
    pub retain: bool,
    /// The leaf size, down to a quarter of the table's.
    pub leaf: bool,
    /// The leaves that a merge rewrites; not chosen but configured, since touched leaves are always
    /// fewer.
    pub merge_scope: MergeScope,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            retain: true,
            leaf: true,
            merge_scope: MergeScope::Touched,
        }
    }
}

impl Knobs {
    /// The choices of the paper: only the division of memory.
    #[must_use]
    pub fn paper() -> Knobs {
        Knobs {
            retain: false,
            leaf: false,
            merge_scope: MergeScope::Overlap,
        }
    }
}

/// Origin of the policy for late data.
///
/// As text: `adaptive`, `adaptive:paper`, `conventional`, `separate:SHARE` (`separate` alone means
/// half and half); a fixed policy may be followed by `,retain=EVENTS` and `,scope=touched` or
/// `,scope=overlap`.
///
/// ```
/// use headwater_late::{LatePolicy, PolicyChoice};
/// assert_eq!("adaptive".parse::<PolicyChoice>()?, PolicyChoice::default());
/// let fixed: PolicyChoice = "separate:0.5,retain=200".parse()?;
/// assert_eq!(fixed, LatePolicy { retain_events: 200, ..LatePolicy::separate(0.5) }.into());
/// assert_eq!(fixed.to_string(), "separate:0.5,retain=200");
/// assert!("separate:1.5".parse::<PolicyChoice>().is_err());
/// # Ok::<(), headwater_late::InvalidSetting>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyChoice {
    /// Every shard chooses the policy with the least predicted writes. The default.
    Adaptive(Knobs),
    /// This policy, always.
    Fixed(LatePolicy),
}

impl Default for PolicyChoice {
    fn default() -> Self {
        PolicyChoice::Adaptive(Knobs::default())
    }
}

impl From<LatePolicy> for PolicyChoice {
    fn from(policy: LatePolicy) -> Self {
        PolicyChoice::Fixed(policy)
    }
}

impl PolicyChoice {
    /// The allowed texts of a choice.
    pub const ALLOWED: &str = "adaptive, adaptive:paper, conventional, separate or separate:SHARE with the share of in-order events in memory (0 < SHARE < 1); the last three accept ,retain=EVENTS (0 to 16777216) and ,scope=touched or ,scope=overlap";

    /// The initial policy.
    #[must_use]
    pub fn first(&self) -> LatePolicy {
        match self {
            PolicyChoice::Fixed(policy) => *policy,
            PolicyChoice::Adaptive(knobs) => LatePolicy {
                merge_scope: knobs.merge_scope,
                ..LatePolicy::default()
            },
        }
    }

    /// Checks the initial policy.
    ///
    /// # Errors
    ///
    /// A setting is out of range.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.first().validate()
    }
}

impl fmt::Display for LatePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.split {
            Split::Conventional => f.write_str("conventional")?,
            Split::Separate { flank_share } => write!(f, "separate:{flank_share}")?,
        }
        if self.retain_events > 0 {
            write!(f, ",retain={}", self.retain_events)?;
        }
        match self.merge_scope {
            MergeScope::Touched => Ok(()),
            MergeScope::Overlap => f.write_str(",scope=overlap"),
        }
    }
}

impl fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyChoice::Fixed(policy) => policy.fmt(f),
            PolicyChoice::Adaptive(knobs) if *knobs == Knobs::paper() => {
                f.write_str("adaptive:paper")
            }
            PolicyChoice::Adaptive(_) => f.write_str("adaptive"),
        }
    }
}

impl FromStr for PolicyChoice {
    type Err = InvalidSetting;

    fn from_str(text: &str) -> Result<PolicyChoice, InvalidSetting> {
        let bad = |what: String| {
            InvalidSetting(format!(
                "late policy `{text}`: {what}; allowed: {}",
                PolicyChoice::ALLOWED
            ))
        };
        let mut parts = text.split(',').map(str::trim);
        let mut policy = match parts.next().unwrap_or_default() {
            "adaptive" if !text.contains(',') => return Ok(PolicyChoice::default()),
            "adaptive:paper" if !text.contains(',') => {
                return Ok(PolicyChoice::Adaptive(Knobs::paper()));
            }
            "conventional" => LatePolicy::conventional(),
            "separate" => LatePolicy::default(),
            first => match first.strip_prefix("separate:").map(str::parse) {
                Some(Ok(share)) => LatePolicy::separate(share),
                _ => return Err(bad(format!("unknown policy `{first}`"))),
            },
        };
        for part in parts {
            match part.split_once('=') {
                Some(("retain", count)) => {
                    policy.retain_events = count
                        .parse()
                        .map_err(|_| bad(format!("`{count}` is not a number of events")))?;
                }
                Some(("scope", "touched")) => policy.merge_scope = MergeScope::Touched,
                Some(("scope", "overlap")) => policy.merge_scope = MergeScope::Overlap,
                _ => return Err(bad(format!("unknown option `{part}`"))),
            }
        }
        policy.validate().map_err(|e| bad(e.to_string()))?;
        Ok(PolicyChoice::Fixed(policy))
    }
}

/// A candidate with its predicted writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The candidate.
    pub candidate: Candidate,
    /// Predicted events written to leaves per event.
    pub predicted: f64,
    /// The cost counted by the newest replay, if any.
    pub replayed: Option<f64>,
    /// Cost to compare: the write amplification and the frames of leaves and flushes.
    pub cost: f64,
    /// Stored events that a merge of waiting late events rewrites, per late event.
    pub rewritten_per_late: f64,
}

/// Resources of the candidates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Space {
    /// Memory and late runs.
    pub configuration: Configuration,
    /// The table's leaf size.
    pub leaf_events: u32,
    /// The parameters that may be chosen.
    pub knobs: Knobs,
    /// True when frames of leaves and flushes count: they do on a medium, and not where the papers
    /// count events.
    pub frames: bool,
}

impl Space {
    /// The candidates with the table's leaf size.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let memory = self.configuration.memory_events;
        let with = |split: Split, retain: f64| Candidate {
            policy: LatePolicy {
                split,
                retain_events: (retain.round() as u32).min(LatePolicy::RETAIN_EVENTS_MAX),
                merge_scope: self.knobs.merge_scope,
            },
            leaf_events: self.leaf_events,
        };
        let mut out = vec![with(Split::Conventional, 0.0)];
        let share = |sixteenths: u32| f64::from(sixteenths) / 16.0;
        let retains = self.knobs.retain && memory >= 64.0;
        let shares: &[u32] = if retains { &SHARES_RETAINING } else { &SHARES };
        for sixteenths in shares.iter().copied() {
            let flank_share = share(sixteenths);
            out.push(with(Split::Separate { flank_share }, 0.0));
        }
        if retains {
            for eighths in RETAINED {
                let part = f64::from(eighths) / 8.0;
                out.push(with(Split::Conventional, memory * part));
                for sixteenths in SHARES_RETAINING {
                    let flank_share = share(sixteenths);
                    out.push(with(
                        Split::Separate { flank_share },
                        memory * flank_share * part,
                    ));
                }
            }
        }
        out
    }

    /// A prediction, with or without late runs, whichever writes less.
    #[must_use]
    pub fn rank<L: DelayLaw + ?Sized>(&self, candidate: Candidate, law: &L) -> Ranked {
        let outline = Outline::new(&candidate, self.configuration.memory_events, law);
        let runs = outline.predict(self.configuration.late_runs_max);
        let predicted = if self.configuration.late_runs_max > 0 {
            let without = outline.predict(0).write_amplification;
            runs.write_amplification.min(without)
        } else {
            runs.write_amplification
        };
        let mut cost = predicted;
        if self.frames {
            cost *= 1.0 + LEAF_FRAME_EVENTS / f64::from(candidate.leaf_events.max(1));
            cost += FLUSH_FRAME_EVENTS / runs.flushed_events.max(1.0);
        }
        Ranked {
            candidate,
            predicted,
            replayed: None,
            cost,
            rewritten_per_late: runs.rewritten_per_late,
        }
    }

    /// All candidates by their costs, the least first; `in_force` among them.
    #[must_use]
    pub fn ranking<L: DelayLaw + ?Sized>(&self, in_force: Candidate, law: &L) -> Vec<Ranked> {
        let mut out: Vec<Ranked> = self
            .candidates()
            .into_iter()
            .map(|candidate| self.rank(candidate, law))
            .collect();
        sort(&mut out);
        if self.knobs.leaf {
            let best: Vec<Candidate> = out
                .iter()
                .take(LEAVES_TRIED_WITH)
                .map(|r| r.candidate)
                .collect();
            for part in LEAF_PARTS {
                let leaf_events = self.leaf_events / part;
                if leaf_events < LEAF_EVENTS_MIN {
                    break;
                }
                out.extend(best.iter().map(|candidate| {
                    self.rank(
                        Candidate {
                            leaf_events,
                            ..*candidate
                        },
                        law,
                    )
                }));
            }
        }
        if !out.iter().any(|r| r.candidate == in_force) {
            out.push(self.rank(in_force, law));
        }
        sort(&mut out);
        out
    }
}

/// By cost; equal ones keep their order.
pub(crate) fn sort(ranking: &mut [Ranked]) {
    ranking.sort_by(|a, b| a.cost.total_cmp(&b.cost));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::law::{Lognormal, Sample};
    use super::*;

    fn space(knobs: Knobs, leaf_events: u32) -> Space {
        Space {
            configuration: Configuration {
                memory_events: 512.0,
                late_runs_max: 0,
            },
            leaf_events,
            knobs,
            frames: false,
        }
    }

    fn first(knobs: &Knobs, leaf_events: u32) -> Candidate {
        Candidate {
            policy: PolicyChoice::Adaptive(*knobs).first(),
            leaf_events,
        }
    }

    #[test]
    fn the_papers_choice_is_found_among_the_papers_candidates() {
        let knobs = Knobs::paper();
        let space = space(knobs, 512);
        let begin = first(&knobs, 512);
        // M1 must not be separated, M12 must be.
        let m1 = Lognormal::new(4.0, 1.5).in_units_of(50.0);
        let m12 = Lognormal::new(5.0, 2.0).in_units_of(10.0);
        let best = |law: &Lognormal| space.ranking(begin, law).first().copied().unwrap();
        assert_eq!(best(&m1).candidate.policy.split, Split::Conventional);
        let severe = best(&m12);
        assert!(matches!(
            severe.candidate.policy.split,
            Split::Separate { flank_share } if (0.2..0.6).contains(&flank_share)
        ));
        assert!(severe.predicted < 12.5, "{severe:?}");
    }

    #[test]
    fn all_knobs_write_far_less() {
        let knobs = Knobs::default();
        let law = Lognormal::new(5.0, 2.0).in_units_of(10.0);
        let ranking = space(knobs, 128).ranking(first(&knobs, 128), &law);
        let best = ranking.first().unwrap();
        assert!(best.predicted < 2.8, "{best:?}");
        assert!(best.candidate.policy.retain_events > 0);
    }

    #[test]
    fn without_late_events_nothing_is_better_than_what_is() {
        let law = Sample::new([0.0]).unwrap();
        let knobs = Knobs::default();
        let begin = first(&knobs, 2048);
        let mut space = space(knobs, 2048);
        space.configuration.memory_events = 20_000.0;
        space.configuration.late_runs_max = 16;
        space.frames = true;
        let ranking = space.ranking(begin, &law);
        let here = ranking.iter().find(|r| r.candidate == begin).unwrap();
        assert_eq!(here.predicted, 1.0);
        assert!(ranking.first().unwrap().cost > here.cost * 0.98);
    }

    #[test]
    fn text_is_read_back() {
        for text in [
            "adaptive",
            "adaptive:paper",
            "conventional",
            "separate:0.25,retain=12,scope=overlap",
        ] {
            let choice: PolicyChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
        }
        for text in [
            "",
            "both",
            "separate:0",
            "separate:1",
            "separate:nan",
            "separate:0.5,retain=-1",
            "separate:0.5,scope=all",
            "adaptive,retain=3",
        ] {
            let error = text.parse::<PolicyChoice>().unwrap_err().to_string();
            assert!(error.contains("0 < SHARE < 1"), "{text}: {error}");
        }
    }
}
