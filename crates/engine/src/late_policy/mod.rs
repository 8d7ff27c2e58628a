//! What shards do about late data: when their analyzers evaluate, when a late buffer is merged for its age, and what of it is told.
//!
//! Invariants: a change of policy writes nothing, moves nothing and makes nobody wait: events in memory are divided anew when
//! their stream is written to or stored the next time. A policy that is set by the user never changes.
//! Concurrency: predictions are made without a lock, between two short looks at the shard.
//! Failure: none of its own.

use crate::Options;
use crate::Result;
use crate::core::Core;
use crate::ids::ShardIndex;
use crate::late::{
    Algorithm1, Analyzer, Candidate, Configuration, Decision, FlushRule, Knobs, PaperModel,
    PolicyChoice, Ranked, Space,
};
use crate::shard::ShardState;
use std::time::Duration;

/// What an event takes in memory, before any is there to look at.
const EVENT_BYTES: f64 = 40.0;
/// Rewriting more stored events than this per late event is never done at once: a run waits for company, and for a compaction that
/// would rewrite the leaves anyway.
const REWRITE_PER_LATE_EVENT_MAX: f64 = 4.0;
/// After an evaluation a shard does without for so many times as long as it took: it takes 1 % of the time at most, however fast
/// events arrive.
const REST: u32 = 100;
/// The paper's formulas are shown for a memory of at most so many events.
const PAPER_MEMORY_MAX: u32 = 1024;

/// The policy of a new shard.
pub(crate) fn first_analyzer(options: &Options) -> Analyzer {
    let adaptive = matches!(options.late_policy, PolicyChoice::Adaptive(_));
    Analyzer::new(first_candidate(options), adaptive)
}

/// The analyzer of a shard as it was kept; a new one if what was kept is of another version. The owner's settings decide what
/// is in force.
pub(crate) fn kept_analyzer(options: &Options, kept: &[u8], is_owner: bool) -> Analyzer {
    let mut analyzer = match Analyzer::decode(kept) {
        Ok(analyzer) => analyzer,
        Err(error) => {
            tracing::warn!(%error, "what was known of late events cannot be read: it is learnt anew");
            return first_analyzer(options);
        }
    };
    if is_owner {
        let is_fixed = matches!(options.late_policy, PolicyChoice::Fixed(_));
        analyzer.set_fixed(is_fixed.then(|| first_candidate(options)));
    }
    analyzer
}

fn first_candidate(options: &Options) -> Candidate {
    Candidate {
        policy: options.late_policy.first(),
        leaf_events: options.leaf_events,
    }
}

/// What is to be written how, as a step found it when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    pub(crate) candidate: Candidate,
    /// Stored events that may be rewritten at once for each late one; beyond that, late events become a run.
    pub(crate) rewrite_per_late: f64,
}

impl InForce {
    /// The leaf size for a table.
    pub(crate) fn leaf_events(&self, options: &Options, table_leaf_events: u32) -> usize {
        let chosen = if self.candidate.leaf_events == options.leaf_events {
            table_leaf_events
        } else {
            table_leaf_events.min(self.candidate.leaf_events)
        };
        chosen as usize
    }
}

impl ShardState {
    /// What is in force now.
    pub(crate) fn in_force(&self) -> InForce {
        // A run costs its own writing, and its part of the merge of all runs.
        let rewrite_per_late = self
            .analyzer
            .current()
            .filter(|r| r.predicted > 1.0)
            .map_or(REWRITE_PER_LATE_EVENT_MAX, |r| {
                (1.0 + r.rewritten_per_late.max(0.0)).min(REWRITE_PER_LATE_EVENT_MAX)
            });
        InForce {
            candidate: self.analyzer.in_force(),
            rewrite_per_late,
        }
    }
}

impl Core {
    fn space(&self, memory_events: f64) -> Space {
        let choice = *self.late_choice.lock();
        let knobs = match choice {
            PolicyChoice::Adaptive(knobs) => knobs,
            // Nothing is chosen, but what could be is shown.
            PolicyChoice::Fixed(policy) => Knobs {
                merge_scope: policy.merge_scope,
                ..Knobs::default()
            },
        };
        Space {
            configuration: Configuration {
                memory_events,
                late_runs_max: self.options.late_runs_max,
            },
            leaf_events: self.options.leaf_events,
            knobs,
            frames: self.options.flush_rule == FlushRule::Production,
        }
    }

    /// Events that fit into a shard's memory.
    fn shard_memory_events(&self, state: &ShardState) -> f64 {
        if let FlushRule::LabExact { memory_events } = self.options.flush_rule {
            return f64::from(memory_events);
        }
        let held = state.flank_events + state.late_events;
        let event_bytes = if held >= 1024 {
            state.bytes as f64 / held as f64
        } else {
            EVENT_BYTES
        };
        self.flush_bytes() as f64 / self.shards.len().max(1) as f64 / event_bytes.max(8.0)
    }

    /// Enough has arrived, and enough time has passed. Exact conditions count events only, so that they can be repeated.
    fn evaluation_is_due(&self, state: &ShardState) -> bool {
        let exact = matches!(self.options.flush_rule, FlushRule::LabExact { .. });
        state.analyzer.is_due() && (exact || self.env.clock.monotonic() >= state.evaluate_from)
    }

    /// Evaluates the policies for a shard when it is time.
    pub(crate) fn decide_if_due(&self, index: ShardIndex) -> Result<()> {
        let shard = self.shard(index)?;
        let evaluation = {
            let mut state = shard.state.lock();
            if !self.evaluation_is_due(&state) {
                return Ok(());
            }
            let memory = self.shard_memory_events(&state);
            state.analyzer.evaluation(memory)
        };
        let begun = self.env.clock.monotonic();
        let ranking = evaluation.rank(&self.space(evaluation.memory_events));
        let ended = self.env.clock.monotonic();
        let mut state = shard.state.lock();
        state.evaluate_from = ended.saturating_add(ended.saturating_sub(begun) * REST);
        state.unsaved_analyzer = true;
        if let Some(decision) = state.analyzer.apply(ranking) {
            state.repartition = true;
            drop(state);
            tracing::info!(
                shard = index.0,
                from = %decision.from,
                to = %decision.to,
                expected_from = decision.expected_from,
                expected_to = decision.expected_to,
                reason = %decision.reason,
                "another policy for late data"
            );
        }
        Ok(())
    }

    /// Takes account of the newest events before the database is closed, so that the next opening goes on from them.
    pub(crate) fn settle_analyzers(&self) {
        for shard in &self.shards {
            let mut state = shard.state.lock();
            if state.analyzer.recent_events() > 0 {
                let memory = self.shard_memory_events(&state);
                // Nothing is ranked: that is for who goes on.
                let _evaluation = state.analyzer.evaluation(memory);
                state.unsaved_analyzer = true;
            }
        }
    }

    /// Changes who decides, for all shards, from now on.
    pub(crate) fn set_late_policy(&self, choice: PolicyChoice) -> Result<()> {
        choice.validate()?;
        *self.late_choice.lock() = choice;
        let fixed = match choice {
            PolicyChoice::Fixed(policy) => Some(Candidate {
                policy,
                leaf_events: self.options.leaf_events,
            }),
            PolicyChoice::Adaptive(_) => None,
        };
        for shard in &self.shards {
            let mut state = shard.state.lock();
            state.analyzer.set_fixed(fixed);
            state.repartition = true;
            state.unsaved_analyzer = true;
        }
        Ok(())
    }

    /// True when late events of a shard have waited for their merge long enough.
    pub(crate) fn late_merge_is_due(&self, index: ShardIndex) -> Result<bool> {
        let Some(longest) = self.options.late_merge_interval else {
            return Ok(false);
        };
        let since = self.shard(index)?.state.lock().late_since;
        let Some(since) = since else { return Ok(false) };
        Ok(self.env.clock.monotonic().saturating_sub(since) >= longest)
    }

    /// Something of a shard waits for the clock or for an evaluation: for databases without threads.
    pub(crate) fn late_work_is_due(&self) -> bool {
        let longest = self.options.late_merge_interval;
        self.shards.iter().any(|shard| {
            let state = shard.state.lock();
            self.evaluation_is_due(&state)
                || matches!((state.late_since, longest), (Some(since), Some(longest))
                    if self.env.clock.monotonic().saturating_sub(since) >= longest)
        })
    }

    /// What is known of late events, and decided, shard by shard.
    pub(crate) fn late_report(&self) -> LateReport {
        let shards = self.shards.iter().map(|shard| {
            let (mut report, evaluation) = {
                let state = shard.state.lock();
                let analyzer = &state.analyzer;
                let lateness = analyzer.lateness();
                let report = ShardLateReport {
                    in_force: analyzer.in_force(),
                    adaptive: analyzer.is_adaptive(),
                    events: analyzer.events(),
                    late_share: lateness.late_events() / lateness.events().max(1.0),
                    memory_events: analyzer.memory_events(),
                    measured: analyzer.measured(),
                    candidates: analyzer.ranking().to_vec(),
                    decisions: analyzer.decisions().copied().collect(),
                    histogram: lateness.histogram().buckets().collect(),
                    quantiles: Vec::new(),
                    paper: None,
                };
                (report, analyzer.glance())
            };
            if report.candidates.is_empty() {
                // Not evaluated since opening: from what was kept.
                report.candidates = evaluation.rank(&self.space(evaluation.memory_events));
            }
            if let Some(law) = evaluation.law() {
                report.quantiles = QUANTILES
                    .iter()
                    .map(|share| (*share, law.quantile(*share)))
                    .collect();
                let memory = evaluation
                    .memory_events
                    .clamp(0.0, f64::from(PAPER_MEMORY_MAX)) as u32;
                if memory >= 2 {
                    let advice = PaperModel::new(&law, 1.0).algorithm_1(memory);
                    report.paper = Some((memory, advice));
                }
            }
            report
        });
        let shards = shards.collect();
        let choice = *self.late_choice.lock();
        LateReport {
            choice,
            late_merge_interval: self.options.late_merge_interval,
            shards,
        }
    }
}

/// Shares of which the lateness is told.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// What is known and decided about late events.
#[derive(Clone, Debug, PartialEq)]
pub struct LateReport {
    /// Who decides.
    pub choice: PolicyChoice,
    /// Late events are merged after this time at the latest.
    pub late_merge_interval: Option<Duration>,
    /// One for each shard.
    pub shards: Vec<ShardLateReport>,
}

/// … of one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardLateReport {
    /// The policy in force, and the leaf size with it.
    pub in_force: Candidate,
    /// The policy may change.
    pub adaptive: bool,
    /// Events seen.
    pub events: u64,
    /// Share of the events seen lately that were not the newest of their stream.
    pub late_share: f64,
    /// Memory of the streams that bring the events, in events of one; 0 before the first evaluation.
    pub memory_events: f64,
    /// Write amplification measured since the policy came into force, or since opening, and the merges in it.
    pub measured: Option<(f64, u64)>,
    /// Every candidate with its prediction, the least cost first.
    pub candidates: Vec<Ranked>,
    /// The newest decisions, the oldest first.
    pub decisions: Vec<Decision>,
    /// How many of the events seen lately were how late, in events of their stream: as [`crate::late::Histogram::buckets`].
    pub histogram: Vec<(u64, f64)>,
    /// Shares of the events seen lately, and how late they are at most, in events of their stream.
    pub quantiles: Vec<(f64, f64)>,
    /// What Algorithm 1 of the paper would say with that many events of memory.
    pub paper: Option<(u32, Algorithm1)>,
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},leaf={}", self.policy, self.leaf_events)
    }
}
