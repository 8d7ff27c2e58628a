//! Bulk insert: 100 devices with 10 fields each, in batches of 1,000 rows, synced.
//!
//! A batch has the rows of one device in one case; in the other it has rows as they arrive, over
//! all devices in turn, and is sorted into streams within the measured time. One batch in flight,
//! or eight. Flushes and the pyramid are part of the time; the stored rows are compared with the
//! generated ones. The fields are sensors with one to three decimals, and one of full precision.

use crate::baselines::{Survival, bytes_in, options};
use crate::harness::{
    Bench, Bound, Candidate, Common, Failure, Random, Rounds, Targets, time_round_with_drain, turns,
};
use crate::machine::SyncProbe;
use crate::table;
use headwater::{Batch, Column, Database, ScanSpec, Stats, StreamName, StreamRows, Values};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Number of devices.
    #[arg(long, default_value_t = 100)]
    devices: usize,
    /// Fields of a device.
    #[arg(long, default_value_t = 10)]
    fields: usize,
    /// Values in all.
    #[arg(long, default_value_t = 10_000_000)]
    values: usize,
    /// Rows of a batch.
    #[arg(long, default_value_t = 1_000)]
    batch: usize,
    /// Only ways whose name holds this, such as `arrive` or `8 in`.
    #[arg(long, default_value = "")]
    only: String,
}

const BEGIN: i64 = 1_700_000_000_000_000_000;
const STEP: i64 = 1_000_000_000;

#[derive(Serialize)]
struct Measurement {
    by_device: bool,
    in_flight: usize,
    rounds: Rounds,
    wa_events: f64,
    wa_bytes: f64,
    bytes_per_value: f64,
}

#[derive(Serialize)]
struct Results {
    values: usize,
    sync_median_us: f64,
    ways: Vec<Measurement>,
}

/// The rows of all devices. Row `i` of the arrival order is row `i / devices` of device
/// `i % devices`.
struct Fleet {
    names: Vec<StreamName>,
    fields: Vec<String>,
    /// Values by device, then field.
    columns: Vec<Vec<Vec<f64>>>,
    rows: usize,
    batch: usize,
}

impl Fleet {
    fn new(arguments: &Arguments) -> Fleet {
        let (devices, fields) = (arguments.devices.max(1), arguments.fields.max(1));
        let rows = (arguments.values / devices / fields).max(1);
        let columns = (0..devices)
            .map(|device| {
                (0..fields)
                    .map(|field| sensor((device * fields + field) as u64, field, rows))
                    .collect()
            })
            .collect();
        Fleet {
            names: (0..devices)
                .map(|d| StreamName::new("fleet", [("device", format!("d{d:04}"))]))
                .collect(),
            fields: (0..fields).map(|f| format!("field{f}")).collect(),
            columns,
            rows,
            batch: arguments.batch.max(1),
        }
    }

    fn values(&self) -> usize {
        self.rows * self.names.len() * self.fields.len()
    }

    fn rows_of(&self, device: usize, from: usize, to: usize) -> Result<StreamRows, Failure> {
        let (name, columns) = self
            .names
            .get(device)
            .zip(self.columns.get(device))
            .ok_or("no such device")?;
        let mut out = StreamRows::new(name.clone());
        out.times = (from..to).map(|row| BEGIN + row as i64 * STEP).collect();
        for (field, column) in self.fields.iter().zip(columns) {
            let values = column.get(from..to).unwrap_or_default().to_vec();
            out.fields
                .push((field.clone(), Column::from_values(Values::F64(values))));
        }
        Ok(out)
    }

    /// One device after another within each span of time.
    fn by_device(&self, mut give: impl FnMut(Batch) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut from = 0;
        while from < self.rows {
            let to = (from + self.batch).min(self.rows);
            for device in 0..self.names.len() {
                let mut batch = Batch::new();
                batch.push(self.rows_of(device, from, to)?);
                give(batch)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Rows of a batch as they arrive: device, time, values one row after the other, sorted into
    /// columns here.
    fn as_they_arrive(
        &self,
        arrivals: &[Arrivals],
        mut give: impl FnMut(Batch) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let devices = self.names.len();
        let fields = self.fields.len();
        let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); devices];
        for arrived in arrivals {
            for (row, device) in (0u32..).zip(&arrived.devices) {
                if let Some(rows) = rows_of.get_mut(*device as usize) {
                    rows.push(row);
                }
            }
            let mut batch = Batch::new();
            for (name, rows) in self.names.iter().zip(&mut rows_of) {
                if rows.is_empty() {
                    continue;
                }
                let mut out = StreamRows::new(name.clone());
                out.times = rows
                    .iter()
                    .filter_map(|r| arrived.times.get(*r as usize).copied())
                    .collect();
                for (field, name) in self.fields.iter().enumerate() {
                    let mut values = Vec::with_capacity(rows.len());
                    for row in rows.iter() {
                        values.extend(arrived.values.get(*row as usize * fields + field));
                    }
                    out.fields
                        .push((name.clone(), Column::from_values(Values::F64(values))));
                }
                batch.push(out);
                rows.clear();
            }
            give(batch)?;
        }
        Ok(())
    }

    /// The batches of [`Fleet::as_they_arrive`], made before the measurement.
    fn arrivals(&self) -> Vec<Arrivals> {
        let devices = self.names.len();
        let all = self.rows * devices;
        let mut out = Vec::new();
        let mut from = 0;
        while from < all {
            let to = (from + self.batch).min(all);
            let places = (from..to).map(|i| (i % devices, i / devices));
            out.push(Arrivals {
                devices: places.clone().map(|(d, _)| d as u32).collect(),
                times: places
                    .clone()
                    .map(|(_, row)| BEGIN + row as i64 * STEP)
                    .collect(),
                values: places
                    .flat_map(|(device, row)| {
                        let columns = self.columns.get(device).into_iter().flatten();
                        columns.filter_map(move |c| c.get(row).copied())
                    })
                    .collect(),
            });
            from = to;
        }
        out
    }

    /// Verifies that every device has the rows generated for it.
    fn check(&self, db: &Database) -> Result<(), Failure> {
        let snapshot = db.snapshot()?;
        for (name, columns) in self.names.iter().zip(&self.columns) {
            let mut row = 0;
            for chunk in snapshot.scan(name, &ScanSpec::default())? {
                let chunk = chunk?;
                let end = row + chunk.times.len();
                let mut same = chunk
                    .times
                    .iter()
                    .copied()
                    .eq((row..end).map(|r| BEGIN + r as i64 * STEP));
                for (made, found) in columns.iter().zip(&chunk.columns) {
                    same &=
                        matches!(found.values(), Values::F64(v) if made.get(row..end) == Some(v));
                }
                if !same {
                    return Err(format!("{name}: rows {row} to {end} came back otherwise").into());
                }
                row = end;
            }
            if row != self.rows {
                return Err(format!("{name}: {row} rows of {}", self.rows).into());
            }
        }
        Ok(())
    }
}

/// Rows of a batch, row by row.
struct Arrivals {
    devices: Vec<u32>,
    times: Vec<i64>,
    values: Vec<f64>,
}

/// A sensor's values: a walk with one to three decimals; every tenth field has all its digits.
fn sensor(seed: u64, field: usize, rows: usize) -> Vec<f64> {
    let mut dice = Random::new(seed);
    let mut at = dice.below(10_000) as i64;
    let power = [10.0, 100.0, 1000.0][field % 3];
    (0..rows)
        .map(|_| {
            at += dice.below(11) as i64 - 5;
            if field % 10 == 9 {
                (at as f64 / 100.0).sin() + dice.unit() / 100.0
            } else {
                at as f64 / power
            }
        })
        .collect()
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::new("bulk", &arguments.common)?;
    let fleet = Fleet::new(arguments);
    let arrivals = fleet.arrivals();
    let probe = RefCell::new(SyncProbe::new(bench.path("probe"))?);
    let name = |(by_device, in_flight): (bool, usize)| {
        let way = if by_device {
            "one device a batch"
        } else {
            "as they arrive"
        };
        format!("{way}, {in_flight} in flight")
    };
    let mut ways = vec![(true, 1), (true, 8), (false, 1), (false, 8)];
    ways.retain(|way| name(*way).contains(&arguments.only));
    if ways.is_empty() {
        return Err(format!("there is no way `{}`", arguments.only).into());
    }
    let ends: Vec<RefCell<Stats>> = ways.iter().map(|_| RefCell::default()).collect();
    let candidates = ways
        .iter()
        .zip(&ends)
        .map(|((by_device, in_flight), end)| {
            let (bench, fleet, arrivals, probe) = (&bench, &fleet, &arrivals, &probe);
            Candidate::new(name((*by_device, *in_flight)), move |round| {
                let dir = bench.path("headwater");
                let mut db = Database::open(options(&dir, Survival::PowerCut))?;
                let mut syncs = 0;
                let mut one = time_round_with_drain(
                    &mut db,
                    |db| {
                        let mut flying = InFlightWrites::new(db, *in_flight);
                        if *by_device {
                            fleet.by_device(|batch| flying.write(batch))?;
                        } else {
                            fleet.as_they_arrive(arrivals, |batch| flying.write(batch))?;
                        }
                        flying.land()?;
                        syncs = db.stats()?.log_syncs;
                        Ok(fleet.values() as u64)
                    },
                    |db| Ok(db.flush()?),
                )?;
                one.syncs = Some(syncs);
                *end.borrow_mut() = db.stats()?;
                if round == 0 {
                    fleet.check(&db)?;
                }
                db.close()?;
                drop(db);
                let left = bytes_in(&dir)?;
                std::fs::remove_dir_all(&dir)?;
                if left == 0 {
                    return Err("nothing was stored".into());
                }
                probe.borrow_mut().sample(16)?;
                Ok(one)
            })
        })
        .collect();
    let rounds = turns(bench.rounds(), candidates)?;
    let results = Results {
        values: fleet.values(),
        sync_median_us: probe.borrow().median_us(),
        ways: rounds
            .into_iter()
            .zip(ways.iter().zip(&ends))
            .map(|(rounds, ((by_device, in_flight), end))| {
                let stats = end.borrow();
                Measurement {
                    by_device: *by_device,
                    in_flight: *in_flight,
                    rounds,
                    wa_events: stats.wa_events(),
                    wa_bytes: stats.wa_bytes(),
                    bytes_per_value: stats.bytes_per_event() / fleet.fields.len() as f64,
                }
            })
            .collect(),
    };
    print(&results);
    let mut targets = Targets::default();
    judge(&results, &mut targets);
    bench.finish(&results, &targets)
}

/// Writes with some tickets outstanding.
struct InFlightWrites<'a> {
    db: &'a Database,
    most: usize,
    tickets: VecDeque<headwater::Ticket>,
}

impl InFlightWrites<'_> {
    fn new(db: &Database, most: usize) -> InFlightWrites<'_> {
        InFlightWrites {
            db,
            most,
            tickets: VecDeque::with_capacity(most),
        }
    }

    fn write(&mut self, batch: Batch) -> Result<(), Failure> {
        if self.most <= 1 {
            return accepted(&self.db.commit(batch)?);
        }
        if self.tickets.len() >= self.most {
            self.wait_one()?;
        }
        self.tickets.push_back(self.db.write(batch)?);
        Ok(())
    }

    fn wait_one(&mut self) -> Result<(), Failure> {
        match self.tickets.pop_front() {
            Some(ticket) => accepted(&ticket.wait()?),
            None => Ok(()),
        }
    }

    fn land(&mut self) -> Result<(), Failure> {
        while !self.tickets.is_empty() {
            self.wait_one()?;
        }
        Ok(())
    }
}

fn accepted(written: &headwater::Written) -> Result<(), Failure> {
    match written.refused.first() {
        Some(refused) => Err(refused.message.clone().into()),
        None => Ok(()),
    }
}

fn print(results: &Results) {
    let rows: Vec<Vec<String>> = results
        .ways
        .iter()
        .map(|f| {
            let drained = f.rounds.drained();
            vec![
                f.rounds.name.clone(),
                format!("{:.2}", f.rounds.per_second() / 1e6),
                f.rounds.spread(),
                format!("{:.4}", f.rounds.cpu_per_million()),
                format!("{:.2}", drained.per_second() / 1e6),
                format!("{:.4}", drained.cpu_per_million()),
                format!(
                    "{:.2}",
                    f.rounds.syncs_per_operation().unwrap_or(0.0) * 10_000.0
                ),
                format!("{:.0} µs", results.sync_median_us),
                format!("{:.3}", f.wa_bytes),
                format!("{:.2}", f.bytes_per_value),
            ]
        })
        .collect();
    table::print(
        &[
            "way",
            "million values/s",
            "spread",
            "CPU s per million",
            "drained: million values/s",
            "CPU s per million",
            "syncs per 10,000 values",
            "sync median",
            "WA bytes",
            "bytes/value",
        ],
        &rows,
    );
}

fn judge(results: &Results, targets: &mut Targets) {
    for way in &results.ways {
        let drained = way.rounds.drained();
        let (rate, cpu) = if way.by_device {
            (14.0, 0.07)
        } else {
            (9.0, 0.11)
        };
        let what = format!("bulk, {}, flushes included", way.rounds.name);
        let (bound, measured) = (Bound::AtLeast(rate), drained.per_second() / 1e6);
        if way.in_flight == 1 {
            let sync = results.sync_median_us;
            targets.add_if_fast_sync(&what, bound, " million/s", measured, sync);
        } else {
            targets.add(&what, bound, " million/s", measured);
        }
        targets.add(
            format!("{what}: CPU"),
            Bound::AtMost(cpu),
            " s per million",
            drained.cpu_per_million(),
        );
    }
}
