//! Late-data policy of shards: when their analyzers evaluate, which policy is in force, when a late
//! buffer is merged because of its age. `maintenance/jobs/late_decision` decides whether late
//! events of a stream become a late run or are merged.
//!
//! Invariants: a change of policy causes no writes, moves no data and blocks no thread: events in
//! memory are divided again at the next write or flush of their stream. A policy that is set by the
//! user never changes. Concurrency: predictions are made without a lock, between two short locks of
//! the shard. Failure: none of its own.

mod report;

pub(crate) use report::late_report;
pub use report::{LateReport, ShardLateReport};

use crate::Options;
use crate::Result;
use crate::common::ids::ShardIndex;
use crate::core::Core;
use crate::core::shard::ShardState;
use headwater_late::{Analyzer, Candidate, Configuration, Knobs, PolicyChoice, Space};

/// Assumed bytes of memory per event, before any can be measured.
const EVENT_BYTES: f64 = 40.0;
/// Maximum of stored events rewritten at once per late event: above it a run waits for further
/// runs, or for a compaction that would rewrite the leaves anyway.
const REWRITE_PER_LATE_EVENT_MAX: f64 = 4.0;
/// Pause of a shard after an evaluation, as a multiple of its duration: evaluations take at most 1
/// % of the time, at any rate of events.
const REST: u32 = 100;

/// The policy of a new shard.
pub(crate) fn first_analyzer(options: &Options) -> Analyzer {
    let adaptive = matches!(options.late_policy, PolicyChoice::Adaptive(_));
    Analyzer::new(first_candidate(options), adaptive)
}

/// The persisted analyzer of a shard; a new one if the persisted one is of another version. The
/// owner's settings decide which policy is in force.
pub(crate) fn persisted_analyzer(options: &Options, kept: &[u8], is_owner: bool) -> Analyzer {
    let mut analyzer = match Analyzer::decode(kept) {
        Ok(analyzer) => analyzer,
        Err(error) => {
            tracing::warn!(%error, "cannot read the statistics of late events; they start from zero");
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

/// The policy in force when a job began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    pub(crate) candidate: Candidate,
    /// Stored events that may be rewritten at once for each late one; above it, late events become
    /// a run.
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
    /// The policy in force now.
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

fn space(core: &Core, memory_events: f64) -> Space {
    let choice = core.late_choice.get();
    let knobs = match choice {
        PolicyChoice::Adaptive(knobs) => knobs,
        // No policy is chosen, but the candidates are reported.
        PolicyChoice::Fixed(policy) => Knobs {
            merge_scope: policy.merge_scope,
            ..Knobs::default()
        },
    };
    Space {
        configuration: Configuration {
            memory_events,
            late_runs_max: core.options.late_runs_max,
        },
        leaf_events: core.options.leaf_events,
        knobs,
        frames: !core.mode.is_exact(),
    }
}

/// Events that fit into a shard's memory.
fn shard_memory_events(core: &Core, state: &ShardState) -> f64 {
    if let Some(memory_events) = core.mode.memory_events() {
        return f64::from(memory_events);
    }
    let held = state.flank_events + state.late_events;
    let event_bytes = if held >= 1024 {
        state.bytes as f64 / held as f64
    } else {
        EVENT_BYTES
    };
    core.memory.flush_bytes() as f64 / core.shards.len().max(1) as f64 / event_bytes.max(8.0)
}

/// True when enough events have arrived, and enough time has passed. Exact engine mode counts only
/// events, so that results can be repeated.
fn evaluation_is_due(core: &Core, state: &ShardState) -> bool {
    state.analyzer.is_due()
        && (core.mode.is_exact() || core.env.clock.monotonic() >= state.evaluate_from)
}

/// Evaluates the policies for a shard when due.
pub(crate) fn decide_if_due(core: &Core, index: ShardIndex) -> Result<()> {
    let shard = core.shards.get(index)?;
    let evaluation = {
        let mut state = shard.state.lock();
        if !evaluation_is_due(core, &state) {
            return Ok(());
        }
        let memory = shard_memory_events(core, &state);
        state.analyzer.evaluation(memory)
    };
    let begun = core.env.clock.monotonic();
    let ranking = evaluation.rank(&space(core, evaluation.memory_events));
    let ended = core.env.clock.monotonic();
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
            "changed the policy for late events"
        );
    }
    Ok(())
}

/// Includes the newest events before the database is closed, so that the next opening continues
/// with them.
pub(crate) fn settle_analyzers(core: &Core) {
    for shard in &core.shards {
        let mut state = shard.state.lock();
        if state.analyzer.recent_events() > 0 {
            let memory = shard_memory_events(core, &state);
            // The database is being closed, so the evaluation chooses nothing any more.
            let _evaluation = state.analyzer.evaluation(memory);
            state.unsaved_analyzer = true;
        }
    }
}

/// Changes the origin of the policy, for all shards, from now on.
pub(crate) fn set_late_policy(core: &Core, choice: PolicyChoice) -> Result<()> {
    choice.validate()?;
    core.late_choice.set(choice);
    let fixed = match choice {
        PolicyChoice::Fixed(policy) => Some(Candidate {
            policy,
            leaf_events: core.options.leaf_events,
        }),
        PolicyChoice::Adaptive(_) => None,
    };
    for shard in &core.shards {
        let mut state = shard.state.lock();
        state.analyzer.set_fixed(fixed);
        state.repartition = true;
        state.unsaved_analyzer = true;
    }
    Ok(())
}

/// True when late events of a shard have waited for their merge long enough.
pub(crate) fn late_buffer_is_due(core: &Core, index: ShardIndex) -> Result<bool> {
    let Some(longest) = core.options.late_merge_interval else {
        return Ok(false);
    };
    let since = core.shards.get(index)?.state.lock().late_since;
    let Some(since) = since else { return Ok(false) };
    Ok(core.env.clock.monotonic().saturating_sub(since) >= longest)
}

/// True when a shard waits for the clock or for an evaluation: for databases without threads.
pub(crate) fn late_work_is_due(core: &Core) -> bool {
    let longest = core.options.late_merge_interval;
    core.shards.iter().any(|shard| {
        let state = shard.state.lock();
        evaluation_is_due(core, &state)
            || matches!((state.late_since, longest), (Some(since), Some(longest))
                if core.env.clock.monotonic().saturating_sub(since) >= longest)
    })
}
