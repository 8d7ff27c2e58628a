//! `headwater check`: reads every byte and says what is damaged.

use crate::failure::Failure;
use crate::grid::grouped;
use crate::output::print;
use crate::progress::spinner;
use crate::store::DbArgs;
use clap::Args;
use headwater::CheckReport;

/// Check every file of a database, also beside a process that has it open
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0 when the database is sound, 1 when it is damaged or cannot be read. Each damaged part is one line on
stdout: file, offset, expected, found. Undamaged parts stay readable.")]
pub(crate) struct Check {
    #[command(flatten)]
    db: DbArgs,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let spinner = spinner("checking");
        let report = headwater::check(self.db.options());
        spinner.finish_and_clear();
        print_report(&report?)
    }
}

/// Prints what a check found; fails if it is damage.
pub(super) fn print_report(report: &CheckReport) -> Result<(), Failure> {
    let looked_at = format!(
        "{} segments, {} leaves, {} blocks, {} rows, {} log records",
        grouped(report.segments),
        grouped(report.leaves),
        grouped(report.blocks),
        grouped(report.rows),
        grouped(report.log_records)
    );
    if report.is_sound() {
        return print(&format!("sound: {looked_at}\n"));
    }
    for damage in &report.damages {
        print(&format!("damaged: {damage}\n"))?;
    }
    eprintln!(
        "headwater: {} damaged parts in {looked_at}",
        grouped(report.damages.len() as u64)
    );
    Err(Failure::Reported)
}
