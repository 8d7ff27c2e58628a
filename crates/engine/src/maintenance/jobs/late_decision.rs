//! The decision about a stream's late events in a job: a late run, a merge into the main run, or a
//! merge of all late runs with them.
//!
//! Invariants: pure. A late run is written while there are fewer than `late_runs_max` runs and a
//! merge would rewrite more than the policy allows for a late event; all late runs are merged into
//! the main run when one more would exceed `late_runs_max`.

use super::late_merge::units;
use super::stream_writer::StoreContext;
use crate::storage::segment::StreamState;
use headwater_types::Rows;
use headwater_types::invariant::part_of;
use std::ops::Range;

/// Decision about a stream's late events.
pub(super) enum LatePlan {
    /// There are no late events.
    Nothing,
    /// Write them as a late run.
    Run,
    /// Merge them into these units of leaves of the main run.
    Merge(Vec<Range<usize>>),
    /// Merge them and all late runs into the main run.
    Fold,
}

/// Decides about the late events of a stream; `appends` = the job appends in order too.
pub(super) fn plan_late(
    context: &StoreContext<'_>,
    state: &StreamState,
    late: &Rows,
    appends: bool,
) -> LatePlan {
    if late.is_empty() {
        return LatePlan::Nothing;
    }
    if !state.late.is_empty() {
        return if state.late.len() + 1 > context.late_runs_max {
            LatePlan::Fold
        } else {
            LatePlan::Run
        };
    }
    let units = units(context.scope, state, late, appends);
    if context.late_runs_max == 0 {
        return LatePlan::Merge(units);
    }
    let rewritten: u64 = units
        .iter()
        .flat_map(|u| part_of(&state.main, u.clone(), "leaves to rewrite"))
        .map(|l| u64::from(l.count))
        .sum();
    if rewritten as f64 <= context.rewrite_per_late * late.len() as f64 {
        LatePlan::Merge(units)
    } else {
        LatePlan::Run
    }
}
