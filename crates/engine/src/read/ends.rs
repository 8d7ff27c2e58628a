//! The first and the last value of fields in a range, and the first and the last row, without
//! reading the rows between them.
//!
//! From the requested end the range is read in stretches that begin and end where leaves and chunks
//! in memory do. Each stretch has twice as many leaves and chunks as the one before. After
//! [`WALKED`] of them the field is obviously rare, and the pyramid determines the parts to pass
//! over.
//!
//! Invariants: the result is the row or value that a scan of the range returns first or last, also
//! among several rows of one instant; late rows, deleted rows, expired values and absent values are
//! treated as a scan treats them. No instant is in two stretches. Where only aggregates are left
//! there is no result. Failure: `corrupt` for damage that is met before the result.

use super::merge::{Merge, Source};
use super::scan::{ScanStretch, segments};
use super::view::{StreamView, run_sources};
use super::walk::{Visit, Walk};
use crate::Result;
use crate::storage::segment::{LeafEntry, Partition, StreamContents};
use headwater_types::{ClosedRange, FieldId, Rows, Timestamp, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// Number of leaves and chunks that are read before the pyramid is consulted.
const WALKED: usize = 16;

/// The end of a range to look from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeEnd {
    /// The earliest.
    First,
    /// The latest.
    Last,
}

/// An instant and the value at it.
pub(super) type End = (Timestamp, Value);

/// The target of the search, and its match so far.
trait EndSearch {
    /// Adds the next rows of a stretch, sorted by time.
    fn take(&mut self, rows: &Rows, side: RangeEnd);

    /// Ends a stretch: its match is closer to the end than all later stretches.
    fn settle(&mut self);

    /// True when nothing more is searched.
    fn is_done(&self) -> bool;

    /// The fields without a value yet; `None` where any row will do.
    fn missing(&self) -> Option<Vec<FieldId>>;
}

/// Values of fields.
struct Values<'a> {
    fields: &'a [FieldId],
    found: Vec<Option<End>>,
    /// Values of the stretch that is being read.
    fresh: Vec<Option<End>>,
}

impl EndSearch for Values<'_> {
    fn take(&mut self, rows: &Rows, side: RangeEnd) {
        let places = self.found.iter().zip(&mut self.fresh).zip(self.fields);
        for ((found, fresh), field) in places {
            if found.is_some() || (side == RangeEnd::First && fresh.is_some()) {
                continue;
            }
            let Some(column) = rows.column(*field) else {
                continue;
            };
            let mut present = (0..rows.len()).filter(|row| column.is_present(*row));
            let row = match side {
                RangeEnd::First => present.next(),
                RangeEnd::Last => present.next_back(),
            };
            let end = row.and_then(|row| {
                let time = Timestamp::from_nanos(*rows.times.get(row)?);
                Some((time, column.get(row)?.to_owned()))
            });
            if end.is_some() {
                *fresh = end;
            }
        }
    }

    fn settle(&mut self) {
        for (found, fresh) in self.found.iter_mut().zip(&mut self.fresh) {
            if found.is_none() {
                *found = fresh.take();
            }
        }
    }

    fn is_done(&self) -> bool {
        let mut known = self.found.iter().zip(&self.fresh);
        known.all(|(found, fresh)| found.is_some() || fresh.is_some())
    }

    fn missing(&self) -> Option<Vec<FieldId>> {
        let open = self.fields.iter().zip(&self.found);
        Some(
            open.filter(|(_, found)| found.is_none())
                .map(|(field, _)| *field)
                .collect(),
        )
    }
}

/// Any row.
#[derive(Default)]
struct AnyRow(Option<Timestamp>);

impl EndSearch for AnyRow {
    fn take(&mut self, rows: &Rows, side: RangeEnd) {
        let instant = |time: Option<&i64>| time.map(|t| Timestamp::from_nanos(*t));
        match side {
            RangeEnd::First => self.0 = self.0.or(instant(rows.times.first())),
            RangeEnd::Last => self.0 = instant(rows.times.last()).or(self.0),
        }
    }

    fn settle(&mut self) {}

    fn is_done(&self) -> bool {
        self.0.is_some()
    }

    fn missing(&self) -> Option<Vec<FieldId>> {
        None
    }
}

struct Search<'a> {
    view: &'a StreamView,
    /// Fields to read, sorted.
    read: Vec<FieldId>,
    end: RangeEnd,
    /// Number of leaves and chunks that were read.
    passed: usize,
}

/// A partition and its state of the stream.
type InPartition<'a> = Option<(&'a Arc<Partition>, &'a StreamContents)>;

impl Search<'_> {
    fn run(&mut self, range: &ClosedRange, target: &mut impl EndSearch) -> Result<()> {
        let mut all = segments(self.view, range);
        if all.is_empty() && !range.is_empty() {
            all.push_back(ScanStretch::Between(*range));
        }
        while !target.is_done() {
            let next = match self.end {
                RangeEnd::First => all.pop_front(),
                RangeEnd::Last => all.pop_back(),
            };
            match next {
                None => return Ok(()),
                Some(ScanStretch::Between(range)) => self.segment(None, range, target)?,
                Some(ScanStretch::Partition(partition, range)) => {
                    let state = self.view.state(&partition)?;
                    let held = state.as_ref().map(|state| (&partition, state));
                    // Of a long main run only the leaves at this end are looked up.
                    let mut parts = state
                        .as_ref()
                        .map_or_else(|| vec![range], |state| state.stretches(range));
                    if self.end == RangeEnd::Last {
                        parts.reverse();
                    }
                    for part in parts {
                        if target.is_done() {
                            break;
                        }
                        self.segment(held, part, target)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A range within which the rows of the stream are in one partition, or only in memory.
    fn segment(
        &mut self,
        held: InPartition<'_>,
        range: ClosedRange,
        target: &mut impl EndSearch,
    ) -> Result<()> {
        let cuts = self.cuts(held, &range)?;
        let mut cuts = cuts.as_slice();
        let mut rest = Some(range);
        while let Some(open) = rest
            && !target.is_done()
        {
            let taken = (self.passed + 1).min(cuts.len());
            let (stretch, behind) = match (self.end, taken) {
                // After the last boundary there may still be rows of late runs that extend over it.
                (_, 0) => (open, None),
                (RangeEnd::First, taken) => {
                    let (these, others) = cuts.split_at(taken);
                    cuts = others;
                    let at = these.last().copied().unwrap_or(open.last);
                    split_behind(open, at)
                }
                (RangeEnd::Last, taken) => {
                    let (others, these) = cuts.split_at(cuts.len() - taken);
                    cuts = others;
                    let at = these.first().copied().unwrap_or(open.first);
                    split_before(open, at)
                }
            };
            self.stretch(held, stretch, target)?;
            self.passed += taken;
            rest = behind;
        }
        Ok(())
    }

    /// The instants at which leaves and chunks that meet the range end, for [`RangeEnd::First`], or
    /// begin, for [`RangeEnd::Last`]: sorted ascending, inside the range.
    fn cuts(&self, held: InPartition<'_>, range: &ClosedRange) -> Result<Vec<Timestamp>> {
        let (mut main, mut late) = (Cow::default(), <&[Vec<LeafEntry>]>::default());
        if let Some((_, state)) = held {
            main = state.leaves_in(&self.view.core.store, range)?;
            late = state.late();
        }
        let leaves = main.iter().chain(late.iter().flatten());
        let leaves = leaves.map(|leaf| leaf.range());
        let chunks = self.view.chunks.iter();
        let spans = leaves.chain(chunks.map(|c| c.span));
        let cut = |span: ClosedRange| match self.end {
            RangeEnd::First => span.last,
            RangeEnd::Last => span.first,
        };
        let inside = |at: &Timestamp| range.contains(*at);
        let mut cuts: Vec<Timestamp> = spans.map(cut).filter(inside).collect();
        cuts.sort_unstable();
        cuts.dedup();
        Ok(cuts)
    }

    fn stretch(
        &self,
        held: InPartition<'_>,
        range: ClosedRange,
        target: &mut impl EndSearch,
    ) -> Result<()> {
        let memory = self.view.memory_rows(&range, Some(&self.read));
        let mut parts = match (held, target.missing()) {
            (Some((partition, state)), Some(missing))
                if self.passed >= WALKED && !state.is_aged() =>
            {
                self.parts_with(&missing, partition, state, range, &memory.times)?
            }
            _ => vec![range],
        };
        if self.end == RangeEnd::Last {
            parts.reverse();
        }
        for part in parts {
            self.part(held, part, &memory, target)?;
            if target.is_done() {
                break;
            }
        }
        Ok(())
    }

    /// The parts of a range in which one of the fields may have a value, by time.
    fn parts_with(
        &self,
        fields: &[FieldId],
        partition: &Partition,
        state: &StreamContents,
        range: ClosedRange,
        memory: &[i64],
    ) -> Result<Vec<ClosedRange>> {
        let Some(walk) = Walk::new(self.view, partition, state, range, memory)? else {
            return Ok(vec![range]);
        };
        walk.only(fields).run(&mut |seen| match fields
            .iter()
            .any(|field| seen.aggregate(*field).is_some())
        {
            true => Visit::Descend,
            false => Visit::Done,
        })
    }

    fn part(
        &self,
        held: InPartition<'_>,
        range: ClosedRange,
        memory: &Rows,
        target: &mut impl EndSearch,
    ) -> Result<()> {
        let mut sources = match held {
            Some((partition, state)) => run_sources(self.view, partition, state, &range)?,
            None => Vec::new(),
        };
        let from = memory
            .times
            .partition_point(|t| *t < range.first.as_nanos());
        let to = memory
            .times
            .partition_point(|t| *t <= range.last.as_nanos());
        if from < to {
            sources.push(Source::rows(memory.slice(from..to)));
        }
        let (store, table) = (&self.view.core.store, &self.view.table);
        let mut merge = Merge::new(store, table, range, Some(&self.read), sources);
        while let Some(rows) = merge.next_rows()? {
            target.take(&self.view.settled(&rows), self.end);
            if self.end == RangeEnd::First && target.is_done() {
                break;
            }
        }
        target.settle();
        Ok(())
    }
}

/// A range up to an instant, and the rest after it.
fn split_behind(range: ClosedRange, at: Timestamp) -> (ClosedRange, Option<ClosedRange>) {
    let next = at.next().filter(|next| *next <= range.last);
    let behind = next.map(|next| ClosedRange::new(next, range.last));
    (ClosedRange::new(range.first, at), behind)
}

/// A range from an instant on, and the rest before it.
fn split_before(range: ClosedRange, at: Timestamp) -> (ClosedRange, Option<ClosedRange>) {
    let before = at.previous().filter(|before| *before >= range.first);
    let before = before.map(|before| ClosedRange::new(range.first, before));
    (ClosedRange::new(at, range.last), before)
}

/// The value of each field at one end of a range.
pub(super) fn values(
    view: &StreamView,
    fields: &[FieldId],
    range: &ClosedRange,
    end: RangeEnd,
) -> Result<Vec<Option<End>>> {
    let mut read = view.fields_to_read(fields);
    read.sort_unstable();
    read.dedup();
    let mut target = Values {
        fields,
        found: vec![None; fields.len()],
        fresh: vec![None; fields.len()],
    };
    let mut search = Search {
        view,
        read,
        end,
        passed: 0,
    };
    search.run(range, &mut target)?;
    Ok(target.found)
}

/// The instant of the row at one end of a range.
pub(super) fn row(
    view: &StreamView,
    range: &ClosedRange,
    end: RangeEnd,
) -> Result<Option<Timestamp>> {
    let read = match view.now {
        // A row no longer exists when all its values have expired.
        Some(_) => {
            let all: Vec<FieldId> = (0..view.table.fields.len())
                .map(|i| FieldId(i as u32))
                .collect();
            view.fields_to_read(&all)
        }
        None => Vec::new(),
    };
    let mut target = AnyRow::default();
    let mut search = Search {
        view,
        read,
        end,
        passed: 0,
    };
    search.run(range, &mut target)?;
    Ok(target.0)
}
