//! The I/O paths to the device of segments: a queue of the kernel, and queue sets in front of
//! files.
//!
//! A set serves segments. Streams of a table share leaves, so stored rows cannot be divided by
//! stream; a segment is the smallest unit of division. A segment belongs to a set from its first
//! use until its file is removed.
//!
//! Invariants: the commit log and the metadata are never queued. Without the settings nothing is
//! queued. Bytes and errors are the same on every path. Concurrency: see `headwater_queue`; no lock
//! of the engine is awaited in a turn. Failure: without a queue of the kernel, files are read by
//! calls, with one line in the log; owners of sets that cannot be started are an error of the
//! opening.

use crate::common::ids::SegmentId;
use crate::config::backend::IoBackend;
use crate::metadata::tables::PartitionRecord;
use crate::{Error, ErrorKind, Options, Result};
use headwater_io::queue::{Order, QueuedFiles, SetOptions, Sets, Transfer};
use headwater_io::{Env, Files, Threads, UringFiles};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Approximate length of a read of the kernel's pages, in bytes.
const REQUEST_BYTES: u64 = 4096;

/// Longest wait for a turn: then the request continues as without sets, since a request of its set
/// does not return.
const PATIENCE: Duration = Duration::from_secs(1);

/// The environment with the files of the configured backend.
pub(crate) fn with_backend(env: Env, options: &Options) -> Env {
    if options.io_backend == IoBackend::File {
        return env;
    }
    if !env.files.are_of_system() {
        tracing::warn!(
            "io.backend is uring, but the files are not those of the operating system: they are read by blocking calls"
        );
        return env;
    }
    match UringFiles::new() {
        // One queue for all media.
        Ok(queued) => env.map_files(|files| match files.are_of_system() {
            true => Arc::new(queued.clone()),
            false => Arc::clone(files),
        }),
        Err(refused) => {
            tracing::warn!(%refused, "io.backend is uring, but io_uring is not available: files are read by blocking calls");
            env
        }
    }
}

/// The queue sets in front of the segments of a database.
#[derive(Debug)]
pub(crate) struct SegmentQueues {
    sets: Arc<Sets<Transfer>>,
}

impl SegmentQueues {
    /// Starts the configured sets, if any, with the existing segments.
    pub(crate) fn start<'a>(
        options: &Options,
        threads: &Arc<dyn Threads>,
        partitions: impl Iterator<Item = (SegmentId, &'a PartitionRecord)>,
    ) -> Result<Option<SegmentQueues>> {
        let count = options.queue_sets;
        if count == 0 {
            return Ok(None);
        }
        let set_options = SetOptions {
            sets: count,
            order: Order::ReadsFirst,
            rule: options.queue_placement.rule(),
            ..SetOptions::default()
        };
        let sets = Sets::start(&set_options, &**threads).map_err(|error| {
            Error::new(
                ErrorKind::Io,
                format!("cannot start the threads of {count} queue sets: {error}"),
            )
        })?;
        let sets = sets.with_patience(PATIENCE);
        for (id, record) in partitions {
            sets.set_of(id.0, interval(record));
        }
        Ok(Some(SegmentQueues {
            sets: Arc::new(sets),
        }))
    }

    /// The files of segments, read and written through the sets.
    pub(crate) fn before(
        &self,
        files: &Arc<dyn Files>,
        threads: &Arc<dyn Threads>,
    ) -> Arc<dyn Files> {
        let sets = Arc::clone(&self.sets);
        let set_of = Arc::new(move |path: &Path| match segment_in(path) {
            Some(id) => sets.set_of(id, None),
            None => 0,
        });
        Arc::new(QueuedFiles::new(files, &self.sets, threads, set_of))
    }

    /// Removes a segment whose file is about to be removed.
    pub(crate) fn forget(&self, id: SegmentId) {
        self.sets.release_stream(id.0);
    }

    /// Stops queueing, so that no caller waits for a device that does not answer.
    pub(crate) fn abandon(&self) {
        self.sets.abandon();
    }
}

impl Drop for SegmentQueues {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The number of the segment of a file.
fn segment_in(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".seg")?.parse().ok()
}

/// The mean span of time of a page of a segment; `None` for a segment without rows.
fn interval(record: &PartitionRecord) -> Option<Duration> {
    let pages = record.live_bytes / REQUEST_BYTES;
    let span = record.span();
    let nanos = span.last.as_nanos().abs_diff(span.first.as_nanos());
    nanos.checked_div(pages).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::config::backend::QueuePlacement;
    use headwater_io::NoThreads;
    use headwater_types::Level;

    #[test]
    fn files_of_segments_belong_to_the_set_of_their_segment_and_others_to_the_first() {
        assert_eq!(segment_in(Path::new("/db/segment/17.seg")), Some(17));
        for other in ["/db/segment/17.idx", "/db/segment/x.seg", "/", "17.seg.tmp"] {
            assert_eq!(segment_in(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn segments_are_placed_by_either_rule() {
        let threads: Arc<dyn Threads> = Arc::new(NoThreads);
        // Segments of one span: one with a page in 128 s, and many with a page in 512 s.
        let record = |pages: u64| PartitionRecord {
            level: Level::new(10).unwrap(),
            live_bytes: pages * REQUEST_BYTES,
            ..PartitionRecord::of_nothing()
        };
        let records: Vec<PartitionRecord> = [8, 2, 2, 2, 2, 1].map(record).into();
        let placed = |rule: QueuePlacement| -> Vec<usize> {
            let options = Options {
                queue_sets: 2,
                queue_placement: rule,
                ..Options::new("/db")
            };
            let ids = (1..).map(SegmentId);
            let queues = SegmentQueues::start(&options, &threads, ids.zip(&records));
            let sets = queues.unwrap().unwrap().sets.clone();
            (1..=6).map(|id| sets.set_of(id, None)).collect()
        };
        // Loads 8 | 2 2 2 2: the first of the equal ones is chosen.
        assert_eq!(placed(QueuePlacement::Load), [0, 1, 1, 1, 1, 0]);
        // The mean of the second stays the larger one.
        assert_eq!(placed(QueuePlacement::Interval), [0, 1, 1, 1, 1, 1]);
        assert_eq!(interval(&record(0)), None);
    }

    #[test]
    fn without_the_setting_there_are_no_sets() {
        let threads: Arc<dyn Threads> = Arc::new(NoThreads);
        let queues = SegmentQueues::start(&Options::new("/db"), &threads, std::iter::empty());
        assert!(queues.unwrap().is_none());
    }
}
