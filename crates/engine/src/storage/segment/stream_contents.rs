//! The contents of a segment for a stream, for reads of a part of them: the complete state in
//! memory, or the pages of a checkpoint with the changes since.
//!
//! Invariants: both return the same. The cost of reads of pages grows with the part that is read,
//! not with the contents of the segment. Concurrency: immutable. Failure: where a page is damaged,
//! the fold of the footers is used ([`IndexPages::fold`]); damage of the footers is an error.

use super::checkpoint::{List, PageEntries, PageLocation, StreamHead};
use super::format::{BlockEntry, LeafEntry, StreamDelta};
use super::state::StreamState;
use crate::common::ids::{SegmentId, StreamId};
use crate::{Error, ErrorKind, Result};
use headwater_types::invariant::part_of;
use headwater_types::{ClosedRange, Level, Timestamp};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// Source of pages of checkpoints.
pub(crate) trait IndexPages {
    /// The entries of a page.
    fn entries(&self, segment: SegmentId, place: &PageLocation) -> Result<Arc<PageEntries>>;

    /// Folds the footers up to one for a stream, since a part of the checkpoint is damaged, as
    /// `error` describes.
    fn fold(
        &self,
        segment: SegmentId,
        stream: StreamId,
        newest: (u64, u32),
        error: &Error,
    ) -> Result<Arc<StreamState>>;
}

/// The contents of a segment for a stream.
#[derive(Clone, Debug)]
pub(crate) enum StreamContents {
    Full(Arc<StreamState>),
    Paged(Arc<PagedStream>),
}

/// The state of a stream in a checkpoint, and the changes by groups since.
#[derive(Debug)]
pub(crate) struct PagedStream {
    segment: SegmentId,
    stream: StreamId,
    /// Offset and length of the newest footer that is included.
    newest: (u64, u32),
    pages: Vec<PageLocation>,
    /// Leaves of pages that were removed from the main run.
    removed: HashSet<(u64, u32)>,
    /// Leaves of the main run that are in no page.
    added: Vec<LeafEntry>,
    late: Vec<Vec<LeafEntry>>,
    base: Option<Level>,
    /// Blocks of pages that were removed.
    removed_blocks: HashSet<u64>,
    /// Blocks that are in no page.
    added_blocks: Vec<BlockEntry>,
    stale: Vec<ClosedRange>,
    last_row: Option<Box<[u8]>>,
    /// The last bucket of each level that has blocks, by level.
    ends: Vec<(Level, i64)>,
    main_end: Option<Timestamp>,
}

impl PagedStream {
    /// Applies the changes since the checkpoint to its state, oldest first.
    pub(super) fn new(
        (segment, stream): (SegmentId, StreamId),
        newest: (u64, u32),
        head: StreamHead,
        changes: Vec<StreamDelta>,
        from: &impl IndexPages,
    ) -> Result<PagedStream> {
        let rest = head.rest;
        let mut paged = PagedStream {
            segment,
            stream,
            newest,
            pages: head.pages,
            removed: HashSet::new(),
            added: rest.added,
            late: rest.late_runs,
            base: rest.base,
            removed_blocks: HashSet::new(),
            added_blocks: rest.added_blocks,
            stale: rest.stale.unwrap_or_default(),
            last_row: rest.last_row.filter(|row| !row.is_empty()),
            ends: Vec::new(),
            main_end: None,
        };
        for change in changes {
            paged.take(change);
        }
        paged.added.sort_by_key(|l| (l.first, l.last));
        let by_place = |b: &BlockEntry| (b.level, b.first_bucket);
        paged.added_blocks.sort_by_key(by_place);
        paged.main_end = paged.find_main_end(from)?;
        paged.ends = paged.find_ends(from)?;
        Ok(paged)
    }

    fn take(&mut self, change: StreamDelta) {
        let mut gone: HashSet<(u64, u32)> = change.removed.into_iter().collect();
        self.added
            .retain(|l| !gone.remove(&(l.offset, l.row_start)));
        self.removed.extend(gone);
        self.added.extend(change.added);
        if change.clear_late {
            self.late.clear();
        }
        self.late.extend(change.late_runs);
        if change.base.is_some() {
            self.base = change.base;
            let mut gone: HashSet<u64> = change.removed_blocks.into_iter().collect();
            self.added_blocks.retain(|b| !gone.remove(&b.offset));
            self.removed_blocks.extend(gone);
            self.added_blocks.extend(change.added_blocks);
        }
        if let Some(stale) = change.stale {
            self.stale = stale;
        }
        if let Some(row) = change.last_row {
            self.last_row = Some(row).filter(|row| !row.is_empty());
        }
    }

    /// The pages of a list, in their order.
    fn pages_of(&self, list: List) -> &[PageLocation] {
        let from = self.pages.partition_point(|p| p.list < list);
        let to = self.pages.partition_point(|p| p.list <= list);
        part_of(&self.pages, from..to, "pages of a list")
    }

    /// The leaves of a page that meet a range and are still in the main run.
    fn leaves(
        &self,
        from: &impl IndexPages,
        place: &PageLocation,
        range: &ClosedRange,
    ) -> Result<Vec<LeafEntry>> {
        let entries = from.entries(self.segment, place)?;
        let PageEntries::Leaves(leaves) = &*entries else {
            return Err(Error::internal("a page of leaves that holds blocks"));
        };
        let stays = |l: &&LeafEntry| !self.removed.contains(&(l.offset, l.row_start));
        let leaves = meeting(leaves, range).iter();
        Ok(leaves.filter(stays).copied().collect())
    }

    /// The blocks of a page that have buckets in a range and were not removed.
    fn blocks(
        &self,
        from: &impl IndexPages,
        place: &PageLocation,
        (first, last): (i64, i64),
    ) -> Result<Vec<BlockEntry>> {
        let entries = from.entries(self.segment, place)?;
        let PageEntries::Blocks(blocks) = &*entries else {
            return Err(Error::internal("a page of blocks that holds leaves"));
        };
        let stays = |b: &&BlockEntry| !self.removed_blocks.contains(&b.offset);
        let blocks = with_buckets(blocks, (first, last)).iter();
        Ok(blocks.filter(stays).copied().collect())
    }

    fn find_main_end(&self, from: &impl IndexPages) -> Result<Option<Timestamp>> {
        let mut end = self.added.last().map(|l| l.last);
        for place in self.pages_of(None).iter().rev() {
            let of_page = match self.removed.is_empty() {
                true => Some(Timestamp::from_nanos(place.high)),
                false => {
                    let leaves = self.leaves(from, place, &ClosedRange::ALL)?;
                    leaves.last().map(|l| l.last)
                }
            };
            if of_page.is_some() {
                end = end.max(of_page);
                break;
            }
        }
        Ok(end)
    }

    /// The last bucket of each level that has blocks, by level.
    fn find_ends(&self, from: &impl IndexPages) -> Result<Vec<(Level, i64)>> {
        let of_pages = self.pages.iter().filter_map(|place| place.list);
        let mut levels: Vec<Level> = of_pages.collect();
        levels.extend(self.added_blocks.iter().map(|b| b.level));
        levels.sort_unstable();
        levels.dedup();
        let mut ends = Vec::with_capacity(levels.len());
        for level in levels {
            let mut added = self.added_blocks.iter().rev();
            let mut end = added.find(|b| b.level == level).map(|b| b.last_bucket);
            for place in self.pages_of(Some(level)).iter().rev() {
                if end.is_some_and(|end| end >= place.high) {
                    break;
                }
                let of_page = match self.removed_blocks.is_empty() {
                    true => Some(place.high),
                    false => {
                        let blocks = self.blocks(from, place, (i64::MIN, i64::MAX))?;
                        blocks.last().map(|b| b.last_bucket)
                    }
                };
                if of_page.is_some() {
                    end = end.max(of_page);
                    break;
                }
            }
            ends.extend(end.map(|end| (level, end)));
        }
        Ok(ends)
    }

    fn blocks_in(
        &self,
        from: &impl IndexPages,
        level: Level,
        (first, last): (i64, i64),
    ) -> Result<Vec<BlockEntry>> {
        let pages = self.pages_of(Some(level));
        let begin = pages.partition_point(|p| p.high < first);
        let pages = part_of(pages, begin.., "pages of a range").iter();
        let mut out = Vec::new();
        for place in pages.take_while(|p| p.low <= last) {
            out.extend(self.blocks(from, place, (first, last))?);
        }
        let begin = self.added_blocks.partition_point(|b| b.level < level);
        let end = self.added_blocks.partition_point(|b| b.level <= level);
        let added = part_of(&self.added_blocks, begin..end, "blocks of a level");
        out.extend_from_slice(with_buckets(added, (first, last)));
        out.sort_by_key(|b| b.first_bucket);
        Ok(out)
    }

    fn leaves_in(&self, from: &impl IndexPages, range: &ClosedRange) -> Result<Vec<LeafEntry>> {
        let mut out = Vec::new();
        for place in self.pages_in(range) {
            out.extend(self.leaves(from, place, range)?);
        }
        out.extend_from_slice(meeting(&self.added, range));
        out.sort_by_key(|l| (l.first, l.last));
        Ok(out)
    }

    fn pages_in(&self, range: &ClosedRange) -> impl Iterator<Item = &PageLocation> {
        let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
        let pages = self.pages_of(None);
        let begin = pages.partition_point(|p| p.high < first);
        let pages = part_of(pages, begin.., "pages of a range").iter();
        pages.take_while(move |p| p.low <= last)
    }

    fn rows_in(
        &self,
        from: &impl IndexPages,
        range: &ClosedRange,
    ) -> Result<(u64, Vec<LeafEntry>)> {
        let (first, last) = (range.first.as_nanos(), range.last.as_nanos());
        let (mut rows, mut others) = (0, Vec::new());
        for place in self.pages_in(range) {
            if self.removed.is_empty() && first <= place.low && place.high <= last {
                rows += place.rows;
                continue;
            }
            others.extend(self.leaves(from, place, range)?);
        }
        others.extend_from_slice(meeting(&self.added, range));
        let (inside, cut) = rows_of(others.iter(), range);
        Ok((rows + inside, cut))
    }

    /// Approximate bytes of memory.
    pub(super) fn weight(&self) -> u64 {
        let leaves = self.added.len() + self.late.iter().map(Vec::len).sum::<usize>();
        let bytes = size_of::<PagedStream>()
            + self.pages.len() * size_of::<PageLocation>()
            + leaves * size_of::<LeafEntry>()
            + self.added_blocks.len() * size_of::<BlockEntry>()
            + (self.removed.len() + self.removed_blocks.len()) * 32
            + self.last_row.as_ref().map_or(0, |row| row.len());
        bytes as u64 + 128
    }
}

/// The number of rows of leaves that are completely in a range, and the leaves that are partly in
/// it.
fn rows_of<'a>(
    leaves: impl Iterator<Item = &'a LeafEntry>,
    range: &ClosedRange,
) -> (u64, Vec<LeafEntry>) {
    let (mut rows, mut cut) = (0, Vec::new());
    for leaf in leaves {
        let inside = leaf.range().intersect(range);
        if inside == leaf.range() {
            rows += u64::from(leaf.count);
        } else if !inside.is_empty() {
            cut.push(*leaf);
        }
    }
    (rows, cut)
}

/// The leaves of a list that meet a range.
fn meeting<'a>(leaves: &'a [LeafEntry], range: &ClosedRange) -> &'a [LeafEntry] {
    let from = leaves.partition_point(|l| l.last < range.first);
    let to = leaves.partition_point(|l| l.first <= range.last);
    part_of(leaves, from..to.max(from), "leaves of a range")
}

/// The blocks of a level that have buckets in a range, both ends included.
fn with_buckets(blocks: &[BlockEntry], (first, last): (i64, i64)) -> &[BlockEntry] {
    let from = blocks.partition_point(|b| b.last_bucket < first);
    let to = blocks.partition_point(|b| b.first_bucket <= last);
    part_of(blocks, from..to.max(from), "blocks of a range")
}

impl StreamContents {
    /// Answers from the pages or, if one is damaged, from the footers.
    fn with_fallback<T>(
        paged: &PagedStream,
        from: &impl IndexPages,
        of_pages: Result<T>,
        of_fold: impl FnOnce(&StreamState) -> T,
    ) -> Result<T> {
        match of_pages {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let fold = from.fold(paged.segment, paged.stream, paged.newest, &error)?;
                Ok(of_fold(&fold))
            }
            answer => answer,
        }
    }

    /// The pyramid's base level, if there is one.
    pub(crate) fn base(&self) -> Option<Level> {
        match self {
            StreamContents::Full(state) => state.base,
            StreamContents::Paged(paged) => paged.base,
        }
    }

    /// Ranges in which blocks above the base level are not true.
    pub(crate) fn stale(&self) -> &[ClosedRange] {
        match self {
            StreamContents::Full(state) => &state.stale,
            StreamContents::Paged(paged) => &paged.stale,
        }
    }

    /// Late runs, oldest first.
    pub(crate) fn late(&self) -> &[Vec<LeafEntry>] {
        match self {
            StreamContents::Full(state) => &state.late,
            StreamContents::Paged(paged) => &paged.late,
        }
    }

    /// The newest row of the main run in its stored form, if it is stored separately.
    pub(crate) fn last_row(&self) -> Option<&[u8]> {
        match self {
            StreamContents::Full(state) => state.last_row.as_deref(),
            StreamContents::Paged(paged) => paged.last_row.as_deref(),
        }
    }

    /// See [`StreamState::is_aged`].
    pub(crate) fn is_aged(&self) -> bool {
        match self {
            StreamContents::Full(state) => state.is_aged(),
            StreamContents::Paged(paged) => paged.main_end.is_none() && !paged.ends.is_empty(),
        }
    }

    /// Newest time in the main run.
    pub(crate) fn main_end(&self) -> Option<Timestamp> {
        match self {
            StreamContents::Full(state) => state.main_end(),
            StreamContents::Paged(paged) => paged.main_end,
        }
    }

    /// See [`StreamState::watermark`].
    pub(crate) fn watermark(&self) -> Option<Timestamp> {
        let late = self.late().iter().filter_map(|run| run.last());
        self.main_end().max(late.map(|l| l.last).max())
    }

    /// The instants from the first to the last row of the main run, if known without reading
    /// leaves.
    pub(crate) fn main_span(&self) -> Option<ClosedRange> {
        let first = match self {
            StreamContents::Full(state) => state.main.first().map(|l| l.first),
            StreamContents::Paged(paged) if paged.removed.is_empty() => {
                let of_pages = paged.pages_of(None).first();
                let of_pages = of_pages.map(|place| Timestamp::from_nanos(place.low));
                let added = paged.added.first().map(|l| l.first);
                of_pages.into_iter().chain(added).min()
            }
            StreamContents::Paged(_) => None,
        };
        Some(ClosedRange::new(first?, self.main_end()?))
    }

    /// The coarsest level that has blocks.
    pub(crate) fn top(&self) -> Option<Level> {
        match self {
            StreamContents::Full(state) => state.blocks.last().map(|b| b.level),
            StreamContents::Paged(paged) => paged.ends.last().map(|(level, _)| *level),
        }
    }

    /// The last bucket of a level that has blocks.
    pub(crate) fn last_bucket(&self, level: Level) -> Option<i64> {
        match self {
            StreamContents::Full(state) => state.blocks_of(level).last().map(|b| b.last_bucket),
            StreamContents::Paged(paged) => {
                let at = paged.ends.binary_search_by_key(&level, |(level, _)| *level);
                at.ok()
                    .and_then(|at| paged.ends.get(at))
                    .map(|(_, end)| *end)
            }
        }
    }

    /// The blocks of a level that have buckets in a range, both ends included.
    pub(crate) fn blocks_in(
        &self,
        from: &impl IndexPages,
        level: Level,
        (first, last): (i64, i64),
    ) -> Result<Cow<'_, [BlockEntry]>> {
        match self {
            StreamContents::Full(state) => {
                let blocks = with_buckets(state.blocks_of(level), (first, last));
                Ok(Cow::Borrowed(blocks))
            }
            StreamContents::Paged(paged) => {
                let found = paged.blocks_in(from, level, (first, last));
                let fold = |state: &StreamState| {
                    with_buckets(state.blocks_of(level), (first, last)).to_vec()
                };
                StreamContents::with_fallback(paged, from, found, fold).map(Cow::Owned)
            }
        }
    }

    /// The leaves of the main run that meet a range, by time.
    pub(crate) fn leaves_in(
        &self,
        from: &impl IndexPages,
        range: &ClosedRange,
    ) -> Result<Cow<'_, [LeafEntry]>> {
        match self {
            StreamContents::Full(state) => Ok(Cow::Borrowed(meeting(&state.main, range))),
            StreamContents::Paged(paged) => {
                let fold = |state: &StreamState| meeting(&state.main, range).to_vec();
                StreamContents::with_fallback(paged, from, paged.leaves_in(from, range), fold)
                    .map(Cow::Owned)
            }
        }
    }

    /// The number of rows of leaves of the main run that are completely in a range, and the leaves
    /// that are partly in it.
    pub(crate) fn rows_in(
        &self,
        from: &impl IndexPages,
        range: &ClosedRange,
    ) -> Result<(u64, Vec<LeafEntry>)> {
        match self {
            StreamContents::Full(state) => Ok(rows_of(meeting(&state.main, range).iter(), range)),
            StreamContents::Paged(paged) => {
                let fold = |state: &StreamState| rows_of(state.main.iter(), range);
                StreamContents::with_fallback(paged, from, paged.rows_in(from, range), fold)
            }
        }
    }

    /// Divides a range into disjoint stretches by time; each meets the leaves of about one page.
    pub(crate) fn stretches(&self, range: ClosedRange) -> Vec<ClosedRange> {
        let mut out = Vec::new();
        let mut begin = range.first;
        if let StreamContents::Paged(paged) = self {
            let starts = paged.pages_in(&range).map(|p| Timestamp::from_nanos(p.low));
            for start in starts {
                if let Some(before) = start.previous().filter(|before| *before >= begin) {
                    out.push(ClosedRange::new(begin, before));
                    begin = start;
                }
            }
        }
        out.push(ClosedRange::new(begin, range.last));
        out
    }
}
