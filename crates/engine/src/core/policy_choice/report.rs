//! Report on late events, and on the decisions of shards about them.

use super::space;
use crate::core::Core;
use headwater_late::{Algorithm1, Candidate, Decision, PaperModel, PolicyChoice, Ranked};
use std::time::Duration;

/// Maximum memory, in events, for which the paper's formulas are reported.
const PAPER_MEMORY_MAX: u32 = 1024;

/// Statistics of late events and decisions, shard by shard.
pub(crate) fn late_report(core: &Core) -> LateReport {
    let shards = core.shards.iter().map(|shard| {
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
            // Not evaluated since opening: from the persisted state.
            report.candidates = evaluation.rank(&space(core, evaluation.memory_events));
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
    let choice = core.late_choice.get();
    LateReport {
        choice,
        late_merge_interval: core.options.late_merge_interval,
        shards,
    }
}

/// Shares for which the report has the lateness.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Statistics of late events, and decisions about them.
#[derive(Clone, Debug, PartialEq)]
pub struct LateReport {
    /// The origin of the policy.
    pub choice: PolicyChoice,
    /// Maximum time until late events are merged.
    pub late_merge_interval: Option<Duration>,
    /// One report for each shard.
    pub shards: Vec<ShardLateReport>,
}

/// The report of one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardLateReport {
    /// The policy in force, and the leaf size with it.
    pub in_force: Candidate,
    /// True when the policy may change.
    pub adaptive: bool,
    /// Number of events analyzed.
    pub events: u64,
    /// Share of recent events that were not the newest of their stream.
    pub late_share: f64,
    /// Memory of the streams that bring the events, in events per stream; 0 before the first
    /// evaluation.
    pub memory_events: f64,
    /// Write amplification measured since the policy came into force, or since opening, and the
    /// merges in it.
    pub measured: Option<(f64, u64)>,
    /// Every candidate with its prediction, the least cost first.
    pub candidates: Vec<Ranked>,
    /// The newest decisions, the oldest first.
    pub decisions: Vec<Decision>,
    /// Histogram of the lateness of recent events, in events of their stream: as
    /// [`headwater_late::Histogram::buckets`].
    pub histogram: Vec<(u64, f64)>,
    /// Shares of recent events, and their maximum lateness, in events of their stream.
    pub quantiles: Vec<(f64, f64)>,
    /// Result of Algorithm 1 of the paper with this many events of memory.
    pub paper: Option<(u32, Algorithm1)>,
}
