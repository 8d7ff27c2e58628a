//! An experiment's surroundings: its arguments, a directory of its own, the machine, and where
//! results go.

use super::{Failure, Targets};
use crate::machine::Machine;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Arguments of every experiment with baselines.
#[derive(clap::Args, Clone, Debug, Serialize)]
pub(crate) struct Common {
    /// Where databases are made; a folder of its own is made in it and removed.
    #[arg(long, default_value = "/tmp")]
    pub(crate) scratch: PathBuf,
    /// Rounds that count; their median is reported.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Rounds before, which do not count.
    #[arg(long, default_value_t = 1)]
    pub(crate) warm_up: usize,
    /// Write the results as JSON too.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// A running experiment. Its directory is removed with it.
pub(crate) struct Bench {
    name: &'static str,
    common: Common,
    scratch: PathBuf,
    machine: Machine,
    next: AtomicU32,
}

impl Bench {
    /// Creates the directory and prints the conditions of the results.
    pub(crate) fn new(name: &'static str, common: &Common) -> Result<Bench, Failure> {
        let bench = Bench::once(name, common)?;
        println!(
            "medians of {} rounds after {} to warm up, candidates in turn\n",
            common.rounds.max(1),
            common.warm_up
        );
        Ok(bench)
    }

    /// As [`Bench::new`], for an experiment that runs once.
    pub(crate) fn once(name: &'static str, common: &Common) -> Result<Bench, Failure> {
        let scratch = common
            .scratch
            .join(format!("headwater-lab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&scratch)?;
        let machine = Machine::look(&scratch)?;
        println!("{name}: {machine}");
        Ok(Bench {
            name,
            common: common.clone(),
            scratch,
            machine,
            next: AtomicU32::new(0),
        })
    }

    /// Number of warm-up rounds, and of counted ones.
    pub(crate) fn rounds(&self) -> (usize, usize) {
        (self.common.warm_up, self.common.rounds.max(1))
    }

    /// An unused path in the scratch directory.
    pub(crate) fn path(&self, what: &str) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.scratch.join(format!("{what}-{number}"))
    }

    /// Prints the targets and writes the JSON file, if one is requested.
    pub(crate) fn finish(
        &self,
        figures: &impl Serialize,
        targets: &Targets,
    ) -> Result<(), Failure> {
        targets.print();
        let Some(path) = &self.common.json else {
            return Ok(());
        };
        #[derive(Serialize)]
        struct Report<'a, F> {
            experiment: &'static str,
            machine: &'a Machine,
            arguments: &'a Common,
            figures: &'a F,
            targets: &'a Targets,
        }
        let report = Report {
            experiment: self.name,
            machine: &self.machine,
            arguments: &self.common,
            figures,
            targets,
        };
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.scratch) {
            eprintln!("lab: {}: {error}", self.scratch.display());
        }
    }
}

/// Removes a file or a directory with all in it, if it is there.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else if path.exists() {
        std::fs::remove_file(path)
    } else {
        Ok(())
    }
}
