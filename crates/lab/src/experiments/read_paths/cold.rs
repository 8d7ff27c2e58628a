//! Scans of rows that are not in the system's page cache.

use super::Arguments;
use crate::baselines::{Survival, options};
use crate::harness::{
    Bench, Bound, Candidate, Failure, Random, Rounds, Targets, real, signed, time_round, turns,
    unsigned,
};
use crate::table;
use headwater::{Batch, Database, Options, ScanSpec, StreamName, StreamRows, Values};
use headwater_engine::IoBackend;
use headwater_io::{Files, OpenMode, UringFiles};
use rustix::fs::Advice;
use serde::Serialize;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Instant;

const BEGIN: i64 = 1_700_000_000;
const NANOS: i64 = 1_000_000_000;
const BATCH: usize = 20_000;
/// Approximate size of a leaf in bytes, with which the medium's depth is measured.
const REQUEST_BYTES: usize = 32 << 10;
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Requests of one depth.
const REQUESTS: usize = 512;

#[derive(Serialize)]
pub(super) struct Cold {
    scans: Vec<Rounds>,
    /// Reads a second of [`REQUEST_BYTES`] at random places, for each of [`DEPTHS`].
    by_depth: Vec<(usize, f64)>,
    /// Reason why there is no queue of the kernel, if there is none.
    refused: Option<String>,
}

/// A method of scanning.
#[derive(Clone, Copy)]
struct ScanMethod {
    name: &'static str,
    backend: IoBackend,
    depth: usize,
    sets: usize,
}

fn stream(number: usize) -> StreamName {
    StreamName::new("points", [("id", number.to_string())])
}

fn fill(db: &Database, points: usize, streams: usize) -> Result<(), Failure> {
    let mut dice = Random::new(7);
    let of_each = points / streams.max(1);
    let at_once = (BATCH / streams.max(1)).max(1);
    for first in (0..of_each).step_by(at_once) {
        let mut batch = Batch::new();
        for number in 0..streams {
            let seconds = first..(first + at_once).min(of_each);
            let mut rows = StreamRows::new(stream(number));
            rows.times = seconds
                .clone()
                .map(|second| (BEGIN + signed(second)) * NANOS)
                .collect();
            // Values that do not compress to a few bits.
            let values = seconds.map(|_| dice.unit()).collect();
            batch.push(rows.with_column("value", Values::F64(values)));
        }
        db.commit(batch)?;
    }
    db.flush()?;
    db.compact()?;
    db.close()?;
    Ok(())
}

fn segments(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir.join("segment"))? {
        all.push(entry?.path());
    }
    Ok(all)
}

/// Drops the segments from the page cache of the system.
fn forget(dir: &Path) -> Result<(), Failure> {
    for path in segments(dir)? {
        let file = std::fs::File::open(path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn scan_all(options: &Options, streams: usize, points: usize) -> Result<u64, Failure> {
    let db = Database::open(options.clone())?;
    let snapshot = db.snapshot()?;
    let mut rows = 0;
    for number in 0..streams {
        for chunk in snapshot.scan(&stream(number), &ScanSpec::default())? {
            rows += chunk?.times.len();
        }
    }
    drop(snapshot);
    db.close()?;
    match rows == points / streams.max(1) * streams {
        true => Ok(unsigned(rows)),
        false => Err(format!("{rows} rows of {points}").into()),
    }
}

/// Reads per second at random positions of an uncached file, with `depth` in flight.
fn reads_at(files: &UringFiles, path: &Path, depth: usize) -> Result<f64, Failure> {
    let file = files.open(path, OpenMode::Read)?;
    let places = usize::try_from(file.len()?)? / REQUEST_BYTES;
    if places == 0 {
        return Err("the largest segment is shorter than a request".into());
    }
    // The same places for each depth, and few of them twice.
    let mut dice = Random::new(3);
    let begun = Instant::now();
    let mut on_their_way = VecDeque::new();
    let requests = REQUESTS.min(places);
    for _ in 0..requests {
        if on_their_way.len() >= depth {
            wait(&mut on_their_way)?;
        }
        let place = dice.below(unsigned(places)) * unsigned(REQUEST_BYTES);
        on_their_way.push_back(file.submit_read(place, vec![0; REQUEST_BYTES]));
    }
    while !on_their_way.is_empty() {
        wait(&mut on_their_way)?;
    }
    Ok(real(requests) / begun.elapsed().as_secs_f64().max(1e-9))
}

fn wait(on_their_way: &mut VecDeque<headwater_io::Completion<Vec<u8>>>) -> Result<(), Failure> {
    match on_their_way.pop_front() {
        Some(oldest) => Ok(oldest.wait().map(drop)?),
        None => Ok(()),
    }
}

fn depths(files: &UringFiles, dir: &Path) -> Result<Vec<(usize, f64)>, Failure> {
    let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    let largest = segments(dir)?.into_iter().max_by_key(length);
    let largest = largest.ok_or("a database without segments")?;
    let mut found = Vec::new();
    for depth in DEPTHS {
        forget(dir)?;
        // The kernel's own read-ahead would disturb the measurement.
        let file = std::fs::File::open(&largest)?;
        rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
        found.push((depth, reads_at(files, &largest, depth)?));
    }
    Ok(found)
}

/// The least depth with nine tenths of the most reads a second.
fn depth_of(by_depth: &[(usize, f64)]) -> usize {
    let most = by_depth.iter().map(|(_, reads)| *reads).fold(0.0, f64::max);
    let enough = by_depth.iter().find(|(_, reads)| *reads >= most * 0.9);
    enough.map_or(1, |(depth, _)| *depth)
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Cold, Failure> {
    let (points, streams) = (arguments.points, arguments.streams.max(1));
    let dir = bench.path("cold");
    let base = options(&dir, Survival::Process);
    fill(&Database::open(base.clone())?, points, streams)?;
    let method = |name, backend, depth, sets| ScanMethod {
        name,
        backend,
        depth,
        sets,
    };
    let depth = arguments.depth;
    let ways = [
        method("calls, one after the other", IoBackend::File, 1, 0),
        method("queue of the kernel, depth 1", IoBackend::Uring, 1, 0),
        method(
            "queue of the kernel, leaves ahead",
            IoBackend::Uring,
            depth,
            0,
        ),
        method(
            "owners of queue sets, leaves ahead",
            IoBackend::File,
            depth,
            4,
        ),
    ];
    let candidates = ways.iter().map(|method| {
        let options = Options {
            io_backend: method.backend,
            read_ahead: method.depth,
            queue_sets: method.sets,
            ..base.clone()
        };
        let dir = &dir;
        Candidate::new(method.name, move |_| {
            forget(dir)?;
            time_round(|| scan_all(&options, streams, points))
        })
    });
    let scans = turns(bench.rounds(), candidates.collect())?;
    let (by_depth, refused) = match UringFiles::new() {
        Ok(files) => (depths(&files, &dir)?, None),
        Err(refused) => (Vec::new(), Some(refused.to_string())),
    };
    let cold = Cold {
        scans,
        by_depth,
        refused,
    };
    print(&cold, arguments);
    if let [_, one, ahead, _] = &*cold.scans
        && cold.refused.is_none()
    {
        targets.add(
            format!("cold scan, depth {depth} by depth 1, on a queue of the kernel"),
            Bound::AtLeast(1.5),
            " ×",
            one.times_of(ahead),
        );
    }
    Ok(cold)
}

fn print(cold: &Cold, arguments: &Arguments) {
    println!(
        "\nCold scans: {} rows of {} streams, on the medium of --scratch; nothing stands in for it\n",
        arguments.points, arguments.streams
    );
    let first = cold.scans.first();
    let line = |rounds: &Rounds| {
        vec![
            rounds.name.clone(),
            rounds.time(),
            rounds.spread(),
            first.map_or(String::new(), |first| {
                format!("{:.2} ×", first.times_of(rounds))
            }),
        ]
    };
    let heads = ["way", "a row", "spread", "as fast as calls"];
    table::print(&heads, &cold.scans.iter().map(line).collect::<Vec<_>>());
    if let Some(refused) = &cold.refused {
        println!("\nNo queue of the kernel, so that those rows are calls: {refused}\n");
        return;
    }
    println!(
        "\nDepth of the medium, measured with reads of {} KiB at random places: {}\n",
        REQUEST_BYTES >> 10,
        depth_of(&cold.by_depth)
    );
    let one = cold.by_depth.first().map_or(1.0, |(_, reads)| *reads);
    let line = |(depth, reads): &(usize, f64)| {
        vec![
            depth.to_string(),
            format!("{reads:.0}"),
            format!("{:.2} ×", reads / one),
        ]
    };
    let heads = ["reads at once", "reads a second", "of one"];
    table::print(&heads, &cold.by_depth.iter().map(line).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::depth_of;

    #[test]
    fn the_depth_is_the_least_that_does_nearly_all() {
        assert_eq!(depth_of(&[(1, 100.0), (2, 190.0), (4, 210.0)]), 2);
        assert_eq!(depth_of(&[(1, 100.0), (2, 105.0), (4, 99.0)]), 1);
        assert_eq!(depth_of(&[]), 1);
    }
}
