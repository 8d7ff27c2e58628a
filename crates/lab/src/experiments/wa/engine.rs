//! Runs the engine itself under exact conditions, and reads its counters.

use super::plan::{Counts, Plan, Sharing};
use crate::harness::Failure;
use headwater::{Batch, Duplicates, Stats, StreamName, StreamRows, TableSpec, Values};
use headwater_engine::Database;
use headwater_io::Env;

/// The stream that everything is written to.
fn stream() -> StreamName {
    StreamName::new("delays", [("id", "1")])
}

/// An engine in memory under exact conditions.
pub(crate) struct Exact {
    db: Database,
    plan: Plan,
}

impl Exact {
    pub(crate) fn open(plan: &Plan) -> Result<Exact, Failure> {
        plan.check()?;
        let db = Database::open_in(Env::memory(), plan.exact_options())?;
        // Every event counts, so equal times are kept.
        db.create_table(&TableSpec {
            duplicates: Duplicates::Keep,
            ..TableSpec::new("delays")
        })?;
        Ok(Exact { db, plan: *plan })
    }

    /// Writes events in the order of their arrival.
    ///
    /// The engine looks at its buffers after each batch, and they have to act right after the event that fills them. So a
    /// batch holds as many events as have room in the fuller buffer: wherever they go, none but the last can fill one.
    pub(crate) fn write(&self, mut times: &[i64]) -> Result<(), Failure> {
        let name = stream();
        while !times.is_empty() {
            let stats = self.db.stats()?;
            let count = room(&self.plan, &stats).clamp(1, times.len());
            let (now, rest) = times.split_at(count);
            let mut rows = StreamRows::new(name.clone());
            rows.times = now.to_vec();
            let mut batch = Batch::new();
            batch.push(rows.with_column("v", Values::I64(now.to_vec())));
            let written = self.db.commit(batch)?;
            if let Some(refused) = written.refused.first() {
                return Err(refused.message.clone().into());
            }
            times = rest;
        }
        Ok(())
    }

    /// Stores what is left in memory, and gives the counters.
    pub(crate) fn finish(self) -> Result<(Counts, Stats), Failure> {
        self.db.flush()?;
        let stats = self.db.stats()?;
        if stats.late_runs > 0 || stats.partitions > 1 || stats.events_in_memory > 0 {
            return Err(format!(
                "not one run: {} partitions, {} late runs, {} events in memory",
                stats.partitions, stats.late_runs, stats.events_in_memory
            )
            .into());
        }
        Ok((counts(&stats), stats))
    }
}

/// Events that can come before a buffer may be full, wherever they go.
fn room(plan: &Plan, stats: &Stats) -> usize {
    let late = stats.late_events_in_memory as usize;
    let flank = stats.events_in_memory as usize - late;
    match plan.sharing {
        Sharing::Conventional => plan.memory.saturating_sub(flank + late),
        Sharing::Separate(capacity) => capacity
            .saturating_sub(flank)
            .min((plan.memory - capacity).saturating_sub(late)),
    }
}

fn counts(stats: &Stats) -> Counts {
    Counts {
        events: stats.events_accepted,
        events_written: stats.events_written(),
        merges: stats.merges,
        flushes: stats.flushes,
    }
}

/// Runs a policy over times in the order of their arrival.
pub(crate) fn run(times: &[i64], plan: &Plan) -> Result<Counts, Failure> {
    let exact = Exact::open(plan)?;
    exact.write(times)?;
    Ok(exact.finish()?.0)
}
