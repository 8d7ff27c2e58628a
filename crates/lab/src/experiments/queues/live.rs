//! Rounds with threads, over the throttled device.

use super::device::{Costs, Throttled};
use super::{Arguments, Measurement, Strategy, Workload};
use crate::harness::Failure;
use headwater_io::queue::{Direction, Purpose, Request, Sets, Transfer};
use headwater_io::{File, Files, MemoryFiles, OpenMode, SystemThreads};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const FILE_BYTES: u64 = 1 << 24;
/// Large writes that a compaction has on their way at once.
const COMPACTION_DEPTH: u64 = 4;
const COMPACTION_BYTES: u64 = 32 << 10;

/// Costs by the arguments.
pub(super) fn costs(arguments: &Arguments) -> Costs {
    let read = Duration::from_micros(arguments.read_us);
    Costs {
        channels: u64::try_from(arguments.channels).unwrap_or(1),
        read,
        write: read * 2,
    }
}

/// Interval between the writes of a source, for placing: sources differ.
pub(super) fn interval(source: u64) -> Duration {
    Duration::from_millis(10 * (1 + source % 4))
}

/// Request of thread `thread` of a source.
pub(super) fn request(workload: Workload, source: u64, thread: u64, place: u64) -> Request {
    let is_read = match workload {
        Workload::Load => false,
        Workload::Run => true,
        Workload::Mixed => thread < 2,
    };
    let direction = if is_read {
        Direction::Read
    } else {
        Direction::Write
    };
    Request {
        interval: Some(interval(source)),
        ..Request::of_caller(source, place, 4096, direction)
    }
}

/// Requests of a compaction, with a stream of its own for each request in flight.
pub(super) fn compaction(lane: u64) -> Request {
    Request {
        interval: Some(Duration::from_millis(10)),
        purpose: Purpose::Compaction,
        ..Request::of_caller(1000 + lane, lane << 20, COMPACTION_BYTES, Direction::Write)
    }
}

struct Round {
    file: Arc<dyn File>,
    /// Queue sets; `None` = direct calls.
    sets: Option<Sets<Transfer>>,
    remaining: AtomicU64,
}

impl Round {
    fn call(&self, request: &Request) -> std::io::Result<()> {
        let bytes = usize::try_from(request.length.unwrap_or(0)).unwrap_or(0);
        let buf = vec![7; bytes];
        match (&self.sets, request.direction) {
            (None, Direction::Read) => {
                let mut buf = buf;
                self.file.read_exact_at(request.offset, &mut buf)
            }
            (None, Direction::Write) => self.file.write_all_at(request.offset, &buf),
            (Some(sets), Direction::Read) => sets.read(request, &self.file, buf).wait().map(drop),
            (Some(sets), Direction::Write) => sets.write(request, &self.file, buf).wait().map(drop),
        }
    }

    /// Takes one of the remaining requests; false if there are none.
    fn take_request(&self) -> bool {
        let taken = self
            .remaining
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
        taken.is_ok()
    }

    /// One thread's requests; the latencies of reads and of writes, in microseconds.
    fn thread(
        &self,
        workload: Workload,
        source: u64,
        thread: u64,
    ) -> std::io::Result<(Vec<f64>, Vec<f64>)> {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let mut place = source * 64 + thread;
        while self.take_request() {
            place = (place * 25 + 7) % (FILE_BYTES / 4096);
            let request = request(workload, source, thread, place * 4096);
            let begun = Instant::now();
            self.call(&request)?;
            let micros = begun.elapsed().as_secs_f64() * 1e6;
            match request.direction {
                Direction::Read => reads.push(micros),
                Direction::Write => writes.push(micros),
            }
        }
        Ok((reads, writes))
    }
}

pub(super) fn round(
    arguments: &Arguments,
    workload: Workload,
    sources: u64,
    strategy: Strategy,
) -> Result<Measurement, Failure> {
    let file = MemoryFiles::new().open(Path::new("/device"), OpenMode::CreateNew)?;
    file.set_len(FILE_BYTES)?;
    let sets = match strategy.options(arguments.channels) {
        Some(options) => Some(Sets::start(&options, &SystemThreads)?),
        None => None,
    };
    let round = Round {
        file: Arc::new(Throttled::new(file, costs(arguments))),
        sets,
        remaining: AtomicU64::new(arguments.requests),
    };
    let begun = Instant::now();
    let told = std::thread::scope(|scope| {
        let round = &round;
        let mut threads = Vec::new();
        for source in 0..sources {
            for thread in 0..4 {
                threads.push(scope.spawn(move || round.thread(workload, source, thread)));
            }
        }
        if workload == Workload::Mixed {
            for lane in 0..COMPACTION_DEPTH {
                scope.spawn(move || {
                    // The compaction ends with the others; an error would end them, too.
                    while round.remaining.load(Ordering::Relaxed) > 0
                        && round.call(&compaction(lane)).is_ok()
                    {}
                });
            }
        }
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let (mut all, mut reads) = (Vec::new(), Vec::new());
    for told in told {
        let (of_reads, of_writes) = told?;
        all.extend(of_reads.iter().chain(&of_writes));
        reads.extend(of_reads);
    }
    if u64::try_from(all.len())? != arguments.requests {
        return Err(format!("{} of {} requests", all.len(), arguments.requests).into());
    }
    Ok(Measurement::of(all, reads, seconds))
}
