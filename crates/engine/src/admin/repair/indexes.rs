//! Repair of indexes: forgets all their runs, which are built again.
//!
//! Invariants: no run survives a repair with changes, since its rows may be removed from its
//! segment and their location reused. Definitions are kept if the metadata are.

use super::plan::Dangling;
use super::{RepairFinding, RepairReport};
use crate::Result;
use crate::metadata::tables::{IndexChange, Meta};

/// Reports damaged runs as findings; they are not damage after the repair.
pub(super) fn find(report: &mut RepairReport) {
    let (runs, left) = std::mem::take(&mut report.after.damages)
        .into_iter()
        .partition(|damage| damage.file.extension().is_some_and(|e| e == "idx"));
    report.after.damages = left;
    let runs: Vec<crate::Damage> = runs;
    report
        .findings
        .extend(runs.into_iter().map(|damage| RepairFinding {
            damage,
            action: "all indexes are rebuilt; their definitions are unchanged".into(),
        }));
}

/// Forgets all runs, and indexes that have lost their meaning; the next opening removes the files.
pub(super) fn forget_runs(meta: &Meta, dangling: &Dangling) -> Result<()> {
    let runs = meta.index_runs()?;
    if runs.is_empty() && dangling.is_empty() {
        return Ok(());
    }
    meta.change_indexes(&IndexChange {
        forgotten: runs.into_iter().map(|(key, _)| key).collect(),
        dropped: dangling.dropped.clone(),
        removed_policies: dangling.removed_policies.clone(),
        ..IndexChange::default()
    })
}
