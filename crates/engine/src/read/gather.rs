//! Gathers the inputs of an aggregate of a stream: whole buckets of the pyramid, and rows for the
//! rest.
//!
//! Invariants: every row of the range reaches the sink once: in a bucket that the sink accepted, or
//! as a row, merged with all rows of its time and without expired values.

use super::merge::{Merge, Source};
use super::missing::record_missing;
use super::view::{StreamView, run_sources};
use super::walk::{Visit, VisitedBucket, Walk};
use crate::storage::segment::{LeafCaching, Partition, StreamContents};
use crate::{ErrorKind, Result};
use headwater_types::{ClosedRange, FieldId, Rows, Timestamp};

/// Receiver of buckets and rows.
pub(super) trait Sink {
    /// Visits a bucket: accepts it, or requests a descent into it.
    fn visit(&mut self, seen: &VisitedBucket<'_>) -> Visit;

    /// Rows, by time.
    fn add(&mut self, rows: &Rows);

    /// True when the sink caches results of partitions by their state.
    fn remembers(&self) -> bool {
        false
    }

    /// Announces a partition whose stored rows all count, and no others. True when the sink had a
    /// cached result, and used it.
    fn knows(&mut self, partition: &Partition) -> bool {
        let _ = partition;
        false
    }

    /// Ends that partition: all of its rows were passed to the sink.
    fn learned(&mut self, partition: &Partition) {
        let _ = partition;
    }
}

/// True when all stored rows of a stream in a partition count, and no others: no events in memory,
/// no deletes, no expired values.
fn stands_alone(
    view: &StreamView,
    partition: &Partition,
    state: &StreamContents,
    range: &ClosedRange,
    memory: &Rows,
) -> bool {
    let span = partition.span();
    let in_memory = |bound: Timestamp| memory.times.partition_point(|t| *t < bound.as_nanos());
    let behind = memory.times.partition_point(|t| *t <= span.last.as_nanos());
    range.intersect(&span) == span
        && in_memory(span.first) == behind
        && view.now.is_none()
        && partition.piece.is_none()
        && view.core.store.here().is_none()
        && !state.is_aged()
        && !view.hidden(partition).touches(&span)
}

/// Position up to which rows in memory outside of partitions were passed on.
struct Outside {
    next: Option<i64>,
    last: i64,
}

impl Outside {
    fn new(range: &ClosedRange) -> Outside {
        Outside {
            next: (!range.is_empty()).then(|| range.first.as_nanos()),
            last: range.last.as_nanos(),
        }
    }

    fn memory_before(
        &mut self,
        memory: &Rows,
        span: Option<&ClosedRange>,
        each: &mut impl FnMut(&Rows),
    ) {
        let Some(first) = self.next else { return };
        let from = memory.times.partition_point(|t| *t < first);
        let to = match span {
            Some(span) => memory.times.partition_point(|t| *t < span.first.as_nanos()),
            None => memory.times.partition_point(|t| *t <= self.last),
        };
        if from < to {
            if from == 0 && to == memory.len() {
                each(memory);
            } else {
                each(&memory.slice(from..to));
            }
        }
        self.next = span.and_then(|s| s.last.as_nanos().checked_add(1));
    }
}

/// Passes the rows of a part of a partition to the sink, merged with the rows in memory there.
fn merged(
    view: &StreamView,
    read: &[FieldId],
    span: ClosedRange,
    (mut sources, keep): (Vec<Source>, LeafCaching),
    memory: &Rows,
    each: &mut impl FnMut(&Rows),
) -> Result<()> {
    let from = memory.times.partition_point(|t| *t < span.first.as_nanos());
    let to = memory.times.partition_point(|t| *t <= span.last.as_nanos());
    if from < to {
        sources.push(Source::rows(memory.slice(from..to)));
    }
    let merge = Merge::new(&view.core.store, &view.table, span, Some(read), sources);
    let mut merge = merge.keeping(keep);
    while let Some(rows) = merge.next_rows()? {
        each(&view.settled(&rows));
    }
    Ok(())
}

/// Passes all rows of a range to the sink, with the fields in `read`.
pub(super) fn rows(
    view: &StreamView,
    read: &[FieldId],
    range: &ClosedRange,
    each: &mut impl FnMut(&Rows),
) -> Result<()> {
    let memory = view.memory_rows(range, Some(read));
    let mut outside = Outside::new(range);
    for partition in view.partitions_in(range) {
        let span = partition.span().intersect(range);
        outside.memory_before(&memory, Some(&span), &mut |rows| each(&view.settled(rows)));
        let sources = match view.state(&partition)? {
            Some(state) => run_sources(view, &partition, &state, &span)?,
            None => Vec::new(),
        };
        merged(
            view,
            read,
            span,
            (sources, LeafCaching::ReadAgain),
            &memory,
            each,
        )?;
    }
    outside.memory_before(&memory, None, &mut |rows| each(&view.settled(rows)));
    Ok(())
}

/// Passes the buckets of a range that are inside bins of this width to the sink, and the remaining
/// rows with the fields in `read`.
///
/// Where a read ends at a range that a copy does not have, the other ranges that it needs are
/// recorded with it.
pub(super) fn buckets_and_rows(
    view: &StreamView,
    read: &[FieldId],
    range: &ClosedRange,
    width_ns: i128,
    sink: &mut impl Sink,
) -> Result<()> {
    let passed = pass_buckets_and_rows(view, read, range, width_ns, sink);
    if let Err(error) = &passed
        && error.kind() == ErrorKind::Elsewhere
    {
        record_missing(view, range, width_ns)?;
    }
    passed
}

fn pass_buckets_and_rows(
    view: &StreamView,
    read: &[FieldId],
    range: &ClosedRange,
    width_ns: i128,
    sink: &mut impl Sink,
) -> Result<()> {
    let memory = view.memory_rows(range, Some(read));
    let mut outside = Outside::new(range);
    for partition in view.partitions_in(range) {
        let span = partition.span().intersect(range);
        outside.memory_before(&memory, Some(&span), &mut |rows| {
            sink.add(&view.settled(rows))
        });
        let Some(state) = view.state(&partition)? else {
            let nothing = (Vec::new(), LeafCaching::ReadAgain);
            merged(view, read, span, nothing, &memory, &mut |rows| {
                sink.add(rows)
            })?;
            continue;
        };
        let is_alone = sink.remembers() && stands_alone(view, &partition, &state, range, &memory);
        if is_alone && sink.knows(&partition) {
            continue;
        }
        let walk = Walk::new(view, &partition, &state, span, &memory.times)?
            .filter(|walk| walk.is_aged() || walk.base().bucket_start_wide(1) <= width_ns);
        let to_read = match walk {
            None => vec![span],
            Some(walk) => walk
                .no_wider_than(width_ns)
                .only(read)
                .run(&mut |seen| sink.visit(seen))?,
        };
        for part in to_read {
            let sources = run_sources(view, &partition, &state, &part)?;
            // Mostly buckets that straddle the border of a bin: some rows of a leaf.
            let sources = (sources, LeafCaching::UnlessSmall);
            merged(view, read, part, sources, &memory, &mut |rows| {
                sink.add(rows)
            })?;
        }
        if is_alone {
            sink.learned(&partition);
        }
    }
    outside.memory_before(&memory, None, &mut |rows| sink.add(&view.settled(rows)));
    Ok(())
}
