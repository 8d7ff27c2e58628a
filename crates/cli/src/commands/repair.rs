//! `headwater repair`: makes a damaged database sound again.

use super::check::print_report;
use crate::failure::Failure;
use crate::output::print;
use crate::progress::spinner;
use crate::store::DbArgs;
use clap::Args;
use headwater::RepairMode;

/// Repair a damaged database, or show what a repair would do
#[derive(Debug, Args)]
#[command(after_help = "\
Without --yes nothing is changed. Everything that can be read stays; damaged files are copied to DIR/quarantine first.
Lines on stdout: `damaged:` with what is done about it, `lost:` with rows that cannot be recovered, `kept:` with files that are moved
to quarantine, then the check of the repaired database (without --yes: as it would be).")]
pub(crate) struct Repair {
    #[command(flatten)]
    db: DbArgs,

    /// Carry out the repair
    #[arg(long)]
    yes: bool,

    /// The fast tier is lost for good: continue without it, and show what is lost with it
    #[arg(long)]
    fast_tier_lost: bool,
}

impl Repair {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mode = if self.yes {
            RepairMode::Act
        } else {
            RepairMode::DryRun
        };
        let working = spinner("repairing");
        let repaired = if self.fast_tier_lost {
            headwater::repair_without_fast_tier(&self.db.options(), mode)
        } else {
            headwater::repair(&self.db.options(), mode)
        };
        working.finish_and_clear();
        let report = repaired?;
        for finding in &report.findings {
            print(&format!("damaged: {finding}\n"))?;
        }
        for lost in &report.lost {
            print(&format!("lost: {lost}\n"))?;
        }
        for path in &report.quarantined {
            print(&format!("kept: {}\n", path.display()))?;
        }
        if !report.findings.is_empty() && mode == RepairMode::DryRun {
            eprintln!("headwater: nothing was changed: run it with --yes");
        }
        print_report(&report.after)
    }
}
