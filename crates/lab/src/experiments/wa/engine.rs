//! Runs the engine itself under exact conditions, and reads its counters.

use super::plan::{Counts, Plan};
use crate::harness::Failure;
use headwater::{
    Batch, Duplicates, Knobs, LatePolicy, PolicyChoice, Split, Stats, StreamName, StreamRows,
    TableSpec, Values,
};
use headwater_engine::Database;
use headwater_io::Env;
use headwater_late::{EVENTS_PER_EVALUATION, flank_capacity};

/// The stream of all writes.
fn stream() -> StreamName {
    StreamName::new("delays", [("id", "1")])
}

/// An engine in memory under exact conditions.
pub(crate) struct Exact {
    db: Database,
    memory: usize,
    in_force: LatePolicy,
    adaptive: bool,
    /// Events until the engine may choose again.
    until_evaluation: usize,
    switches: Vec<(u64, String)>,
}

impl Exact {
    /// Opens the engine with one policy.
    pub(crate) fn open(plan: &Plan) -> Result<Exact, Failure> {
        Exact::with(plan, plan.late_policy().into())
    }

    /// Opens the engine with the plan's memory and leaves; the engine chooses the rest.
    pub(crate) fn adaptive(plan: &Plan, knobs: Knobs) -> Result<Exact, Failure> {
        Exact::with(plan, PolicyChoice::Adaptive(knobs))
    }

    fn with(plan: &Plan, choice: PolicyChoice) -> Result<Exact, Failure> {
        plan.check()?;
        let mut options = plan.exact_options();
        options.late_policy = choice;
        let db = Database::open_in(Env::memory(), options)?;
        // Every event counts, so equal times are retained.
        db.create_table(&TableSpec {
            duplicates: Duplicates::Keep,
            ..TableSpec::new("delays")
        })?;
        Ok(Exact {
            db,
            memory: plan.memory,
            in_force: choice.first(),
            adaptive: matches!(choice, PolicyChoice::Adaptive(_)),
            until_evaluation: EVENTS_PER_EVALUATION as usize,
            switches: Vec::new(),
        })
    }

    /// Writes events in the order of their arrival.
    ///
    /// The engine checks its buffers after each batch, and they have to act right after the event
    /// that fills them. So the size of a batch is the free space of the fuller buffer: whichever
    /// buffers the events enter, only the last event can fill one.
    pub(crate) fn write(&mut self, mut times: &[i64]) -> Result<(), Failure> {
        let name = stream();
        while !times.is_empty() {
            let stats = self.db.stats()?;
            let room = self.free_events(&stats).min(self.until_evaluation);
            let (now, rest) = times.split_at(room.clamp(1, times.len()));
            let mut rows = StreamRows::new(name.clone());
            rows.times = now.to_vec();
            let mut batch = Batch::new();
            batch.push(rows.with_column("v", Values::I64(now.to_vec())));
            let written = self.db.commit(batch)?;
            if let Some(refused) = written.refused.first() {
                return Err(refused.message.clone().into());
            }
            times = rest;
            self.until_evaluation -= now.len();
            if self.until_evaluation == 0 {
                self.until_evaluation = EVENTS_PER_EVALUATION as usize;
                self.look(stats.events_accepted + now.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Learns which policy is in force.
    fn look(&mut self, events: u64) -> Result<(), Failure> {
        if !self.adaptive {
            return Ok(());
        }
        let report = self.db.late();
        let shard = report.shards.first().ok_or("a database without shards")?;
        if shard.in_force.policy != self.in_force {
            self.in_force = shard.in_force.policy;
            self.switches.push((events, self.in_force.to_string()));
        }
        Ok(())
    }

    /// Number of events that can arrive before a buffer may be full, whichever buffer they enter.
    fn free_events(&self, stats: &Stats) -> usize {
        let late = stats.late_events_in_memory as usize;
        let flank = stats.events_in_memory as usize - late;
        match self.in_force.split {
            Split::Conventional => self.memory.saturating_sub(flank + late),
            Split::Separate { flank_share } => {
                let capacity = flank_capacity(self.memory, flank_share);
                let late_capacity = self.memory - capacity;
                capacity
                    .saturating_sub(flank)
                    .min(late_capacity.saturating_sub(late))
            }
        }
    }

    /// Changes of policy so far: number of events before, and the new policy.
    pub(crate) fn switches(&self) -> &[(u64, String)] {
        &self.switches
    }

    pub(crate) fn events_written(&self) -> Result<u64, Failure> {
        Ok(self.db.stats()?.events_written())
    }

    /// Flushes memory, and returns the counters.
    pub(crate) fn finish(self) -> Result<Counts, Failure> {
        self.db.flush()?;
        let stats = self.db.stats()?;
        if stats.late_runs > 0 || stats.partitions > 1 || stats.events_in_memory > 0 {
            return Err(format!(
                "not one run: {} partitions, {} late runs, {} events in memory",
                stats.partitions, stats.late_runs, stats.events_in_memory
            )
            .into());
        }
        Ok(Counts {
            events: stats.events_accepted,
            events_written: stats.events_written(),
            merges: stats.merges,
            flushes: stats.flushes,
        })
    }
}

/// Runs a policy over times in the order of their arrival.
pub(crate) fn run(times: &[i64], plan: &Plan) -> Result<Counts, Failure> {
    let mut exact = Exact::open(plan)?;
    exact.write(times)?;
    exact.finish()
}
