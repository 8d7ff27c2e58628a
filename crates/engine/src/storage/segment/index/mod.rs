//! Index of a segment's footers by stream, and the sums over the segment.
//!
//! A segment's state is the fold of its footers. For a segment with many streams only this index
//! stays in memory: for each footer, the locations of the changes of each *page* of streams, 16
//! bytes each. The contents of a page are folded on demand (`Store::page`), and cached while they
//! fit. Where a group has a checkpoint, its root replaces the footers up to it.
//!
//! Invariants: pages are ranges of `2^shift` stream numbers; each group has at most one section per
//! page; sections and `newest` are sorted by page; `newest` has the last group that changed a page,
//! or the checkpoint that contains it, which is the version of the page. Concurrency: immutable; a
//! group makes a new state that shares the unchanged parts. Failure: a section is checked by its
//! own checksum when it is read alone, and also when the footer is indexed, unless its directory
//! has the locations of its sections.

use super::checkpoint::CheckpointIndex;
use super::directory::{DIRECTORY_PAGES, Directory, Section, Sectioner, length_of, wrong};
use super::format::{Footer, Parts, StreamDelta, next_stream};
use super::page::Page;
use super::state::{StreamState, Sums};
use crate::common::ids::{SegmentId, Sequence, StreamId};
use crate::metadata::catalog::Table;
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError};
use headwater_types::invariant::part_of;
use std::sync::Arc;

/// A page's number: the numbers of its streams without their last `shift` bits.
pub(crate) type PageNumber = u32;

/// The index of one group's footer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GroupIndex {
    footer_offset: u64,
    footer_bytes: u32,
    /// Bytes of a checkpoint in the group that is not used.
    checkpoint_bytes: u64,
    group_offset: u64,
    sequence: Sequence,
    shift: u32,
    sections: Box<[Section]>,
    /// True when only the footer's directory and the part before its streams were read.
    in_part: bool,
}

impl GroupIndex {
    fn new(
        footer: &Footer,
        (offset, bytes): (u64, u32),
        shift: u32,
        sections: Vec<Section>,
    ) -> GroupIndex {
        GroupIndex {
            footer_offset: offset,
            footer_bytes: bytes,
            checkpoint_bytes: footer.checkpoint.bytes(),
            group_offset: footer.group_offset,
            sequence: footer.sequence,
            shift,
            sections: sections.into(),
            in_part: false,
        }
    }

    /// Encodes a footer for the location `offset`. A footer that changes many pages has a
    /// directory.
    pub(super) fn encode(
        footer: &Footer,
        offset: u64,
        shift: u32,
    ) -> Result<(Vec<u8>, GroupIndex)> {
        let cannot = |e: DecodeError| Error::internal(format!("cannot write {}", e.expected));
        let pages = footer
            .streams
            .chunk_by(|a, b| a.stream.0 >> shift == b.stream.0 >> shift);
        let has_directory = pages.count() >= DIRECTORY_PAGES;
        let mut sectioner = Sectioner::new(shift);
        let (mut body, front_bytes) = footer.encode_body(has_directory, |stream, from, to| {
            sectioner.note(stream, from, to);
        });
        let sections = sectioner.finish(&body).map_err(cannot)?;
        let sections = match has_directory {
            false => sections,
            true => {
                let front = part_of(&body, ..front_bytes, "the beginning of a footer");
                let directory = Directory {
                    shift,
                    front_bytes: length_of(front).map_err(cannot)?,
                    front_crc: crc32c(front),
                    sections,
                };
                directory.append_to(&mut body);
                directory.sections
            }
        };
        let bytes = Footer::with_trailer(body);
        let length = length_of(&bytes).map_err(cannot)?;
        let index = GroupIndex::new(footer, (offset, length), shift, sections);
        Ok((bytes, index))
    }

    /// The index of a footer at `offset`, which is checked completely, including its directory; and
    /// the footer without its streams.
    pub(super) fn read(
        bytes: &[u8],
        offset: u64,
        shift: u32,
    ) -> std::result::Result<(Footer, GroupIndex), DecodeError> {
        let mut sectioner = Sectioner::new(shift);
        let footer =
            Footer::decode_noting(bytes, |stream, from, to| sectioner.note(stream, from, to))?;
        let sections = sectioner.finish(bytes)?;
        let index = GroupIndex::new(&footer, (offset, length_of(bytes)?), shift, sections);
        Ok((footer, index))
    }

    /// The index of a footer of which only the part before its streams, and the directory, were
    /// read; and the footer without its streams. `None` when the footer has pages of another size.
    pub(super) fn of_directory(
        front: &[u8],
        directory: Directory,
        (offset, bytes): (u64, u32),
        shift: u32,
    ) -> std::result::Result<Option<(Footer, GroupIndex)>, DecodeError> {
        if directory.shift != shift {
            return Ok(None);
        }
        if crc32c(front) != directory.front_crc {
            return Err(wrong("the beginning of a footer with a valid checksum"));
        }
        let footer = Footer::read_front(front)?;
        let mut index = GroupIndex::new(&footer, (offset, bytes), shift, directory.sections);
        index.in_part = true;
        Ok(Some((footer, index)))
    }

    fn section(&self, page: PageNumber) -> Option<&Section> {
        let at = self
            .sections
            .binary_search_by_key(&page, |s| s.first.0 >> self.shift)
            .ok()?;
        self.sections.get(at)
    }

    /// Location of a page's changes in the file.
    pub(super) fn location(&self, page: PageNumber) -> Option<(u64, u32)> {
        let section = self.section(page)?;
        Some((self.footer_offset + u64::from(section.at), section.bytes))
    }

    /// Decodes a page's changes, or parts of them, from the bytes at [`GroupIndex::location`].
    pub(super) fn each_change(
        &self,
        page: PageNumber,
        bytes: &[u8],
        parts: Parts,
        mut each: impl FnMut(StreamDelta),
    ) -> std::result::Result<(), DecodeError> {
        let Some(section) = self.section(page) else {
            return Ok(());
        };
        if crc32c(bytes) != section.crc {
            return Err(DecodeError {
                expected: "a footer that is unchanged since it was checked",
                offset: 0,
            });
        }
        let mut cursor = Cursor::new(bytes);
        let mut stream = section.first.0;
        loop {
            each(StreamDelta::decode(
                StreamId(stream),
                self.group_offset,
                self.sequence,
                parts,
                &mut cursor,
            )?);
            if cursor.remaining() == 0 {
                return Ok(());
            }
            stream = next_stream(stream, &mut cursor)?;
        }
    }

    /// A page's changes as a list: for tests and the fuzz target.
    #[cfg(any(test, fuzzing))]
    fn changes(
        &self,
        page: PageNumber,
        bytes: &[u8],
    ) -> std::result::Result<Vec<StreamDelta>, DecodeError> {
        let mut out = Vec::new();
        self.each_change(page, bytes, Parts::All, |delta| out.push(delta))?;
        Ok(out)
    }
}

/// In place of the number of a group: no group since the checkpoint changed the page.
const CHECKPOINT: u32 = u32::MAX;

/// The contents of a segment, up to one of its footers.
#[derive(Clone, Debug)]
pub(crate) struct SegmentState {
    segment: SegmentId,
    shift: u32,
    /// The checkpoint that replaces all groups before `groups`.
    checkpoint: Option<Arc<CheckpointIndex>>,
    /// The groups, oldest first.
    groups: Vec<Arc<GroupIndex>>,
    /// Pages that are not empty, each with the newest group that changed it, or [`CHECKPOINT`].
    newest: Arc<Vec<(PageNumber, u32)>>,
    /// Minimum bytes of footers since the last checkpoint before the next one is tried: at fewer
    /// bytes one was not worth writing.
    tried_to: u64,
    /// The newest table definition written to this segment.
    pub(crate) table: Option<Arc<Table>>,
    pub(crate) sums: Sums,
}

impl SegmentState {
    /// The state of a segment without groups.
    pub(super) fn new(segment: SegmentId, shift: u32) -> SegmentState {
        SegmentState {
            segment,
            shift,
            checkpoint: None,
            groups: Vec::new(),
            newest: Arc::default(),
            tried_to: 0,
            table: None,
            sums: Sums::default(),
        }
    }

    /// The state in a checkpoint.
    pub(super) fn of_checkpoint(
        segment: SegmentId,
        shift: u32,
        checkpoint: CheckpointIndex,
        sums: Sums,
    ) -> SegmentState {
        let pages = checkpoint.streams().map(|stream| stream.0 >> shift);
        let mut newest: Vec<(PageNumber, u32)> = pages.map(|page| (page, CHECKPOINT)).collect();
        newest.dedup();
        newest.shrink_to_fit();
        SegmentState {
            newest: Arc::new(newest),
            table: checkpoint.front.table.clone(),
            sums: Sums {
                footer_bytes: checkpoint.index_bytes(),
                ..sums
            },
            checkpoint: Some(Arc::new(checkpoint)),
            ..SegmentState::new(segment, shift)
        }
    }

    /// The checkpoint that the state starts with.
    pub(super) fn checkpoint(&self) -> Option<&CheckpointIndex> {
        self.checkpoint.as_deref()
    }

    /// Bytes of footers since that checkpoint, or since the first footer.
    pub(super) fn bytes_since_checkpoint(&self) -> u64 {
        let groups = self.groups.iter();
        groups.map(|g| u64::from(g.footer_bytes)).sum()
    }

    /// See the field `tried_to`.
    pub(super) fn tried_to(&self) -> u64 {
        self.tried_to
    }

    /// Sets the minimum bytes of footers before the next checkpoint, since one was not worth
    /// writing.
    pub(super) fn not_before(mut self, bytes_since: u64) -> SegmentState {
        self.tried_to = bytes_since;
        self
    }

    /// Offset and length of the newest footer, if there is one.
    pub(super) fn newest_footer(&self) -> Option<(u64, u32)> {
        let of_group = self
            .groups
            .last()
            .map(|g| (g.footer_offset, g.footer_bytes));
        of_group.or_else(|| self.checkpoint.as_ref().map(|c| c.footer))
    }

    /// Number of sections of footers with its changes.
    pub(super) fn sections(&self) -> u64 {
        let sections: usize = self.groups.iter().map(|g| g.sections.len()).sum();
        let before = self.checkpoint.as_ref().map_or(0, |c| c.front.sections);
        before.saturating_add(sections as u64)
    }

    /// The first and the last stream of a page.
    pub(super) fn streams_of(&self, page: PageNumber) -> (StreamId, StreamId) {
        let first = page << self.shift;
        (
            StreamId(first),
            StreamId(first | ((1u32 << self.shift) - 1)),
        )
    }

    pub(crate) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// The page of a stream.
    pub(super) fn page_of(&self, stream: StreamId) -> PageNumber {
        stream.0 >> self.shift
    }

    /// Its pages, sorted.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageNumber> + '_ {
        self.newest.iter().map(|(page, _)| *page)
    }

    /// A page's version: the offset of the newest footer that changed it; `None` = no footer did.
    pub(super) fn version(&self, page: PageNumber) -> Option<u64> {
        let at = self.newest.binary_search_by_key(&page, |(p, _)| *p).ok()?;
        match self.newest.get(at)? {
            (_, CHECKPOINT) => self.checkpoint.as_ref().map(|c| c.footer.0),
            (_, group) => Some(self.groups.get(*group as usize)?.footer_offset),
        }
    }

    /// The mean number of groups that changed a page: an upper bound of the groups to read for a
    /// stream.
    pub(super) fn rounds(&self) -> u32 {
        let pages = self.newest.len().max(1) as u64;
        u32::try_from(self.sections() / pages).unwrap_or(u32::MAX)
    }

    /// Location of each group's index, oldest first: its footer with the checkpoint before it,
    /// offset and length. In a state that uses no checkpoint these are all groups.
    pub(super) fn indexes(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.groups.iter().map(|g| {
            let before = u32::try_from(g.checkpoint_bytes).unwrap_or(u32::MAX);
            let from = g.footer_offset.saturating_sub(u64::from(before));
            (from, before.saturating_add(g.footer_bytes))
        })
    }

    /// Offset and length of each footer of which only a part was read.
    pub(super) fn read_in_part(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let in_part = self.groups.iter().filter(|group| group.in_part);
        in_part.map(|group| (group.footer_offset, group.footer_bytes))
    }

    /// The groups since the checkpoint that changed a page, oldest first.
    pub(super) fn groups_of(&self, page: PageNumber) -> impl Iterator<Item = &GroupIndex> {
        let groups = self.groups.iter().map(Arc::as_ref);
        groups.filter(move |g| g.section(page).is_some())
    }

    /// The number that the next group gets.
    fn next_number(&self) -> u32 {
        self.groups.len() as u32
    }

    /// The state after more groups, oldest first, each with its new definition, if any. Sums are
    /// those of the footers alone.
    pub(super) fn with_groups(self, more: Vec<(GroupIndex, Option<Table>)>) -> SegmentState {
        let mut state = self;
        let mut newest: Vec<(PageNumber, u32)> = Vec::new();
        for (group, table) in more {
            let number = state.next_number();
            let pages = group.sections.iter();
            newest.extend(pages.map(|section| (section.first.0 >> state.shift, number)));
            let index_bytes = u64::from(group.footer_bytes) + group.checkpoint_bytes;
            state.sums.footer_bytes += index_bytes;
            state.table = table.map(Arc::new).or(state.table);
            state.groups.push(Arc::new(group));
        }
        // The newest group that changed each page; a checkpoint is older than all of them.
        newest.sort_unstable_by_key(|(page, number)| (*page, std::cmp::Reverse(*number)));
        newest.extend(state.newest.iter().copied());
        newest.sort_by_key(|(page, _)| *page);
        newest.dedup_by_key(|(page, _)| *page);
        newest.shrink_to_fit();
        state.newest = Arc::new(newest);
        state
    }

    /// The state after one more group; `sums` are the sums after it.
    pub(super) fn with_group(
        &self,
        group: GroupIndex,
        table: Option<&Table>,
        sums: Sums,
    ) -> SegmentState {
        let number = self.next_number();
        let mut newest = Vec::with_capacity(self.newest.len() + group.sections.len());
        let mut old = self.newest.iter().copied().peekable();
        for section in &group.sections {
            let page = self.page_of(section.first);
            newest.extend(std::iter::from_fn(|| old.next_if(|(p, _)| *p < page)));
            old.next_if(|(p, _)| *p == page);
            newest.push((page, number));
        }
        newest.extend(old);
        newest.shrink_to_fit();
        let mut groups = Vec::with_capacity(self.groups.len() + 1);
        groups.extend(self.groups.iter().cloned());
        let index_bytes = u64::from(group.footer_bytes) + group.checkpoint_bytes;
        groups.push(Arc::new(group));
        SegmentState {
            segment: self.segment,
            shift: self.shift,
            checkpoint: self.checkpoint.clone(),
            groups,
            tried_to: self.tried_to,
            newest: Arc::new(newest),
            table: table
                .map(|t| Arc::new(t.clone()))
                .or_else(|| self.table.clone()),
            sums: Sums {
                footer_bytes: self.sums.footer_bytes + index_bytes,
                ..sums
            },
        }
    }

    /// The changed pages after one more group, and the sums. `touched` are the earlier pages of all
    /// streams that the group changes, sorted.
    pub(super) fn changed(
        &self,
        streams: &[StreamDelta],
        touched: &[(PageNumber, Arc<Page>)],
    ) -> Result<(ChangedPages, Sums)> {
        let mut sums = self.sums;
        let mut pages = Vec::new();
        for deltas in self.by_page(streams) {
            // Each part of a divided list has at least one change.
            let Some(number) = deltas.first().map(|d| self.page_of(d.stream)) else {
                continue;
            };
            let before = touched
                .binary_search_by_key(&number, |(page, _)| *page)
                .ok()
                .and_then(|at| touched.get(at))
                .ok_or_else(|| Error::internal("a job changes a part that it did not read"))?;
            pages.push((number, Arc::new(before.1.changed(deltas, &mut sums))));
        }
        Ok((ChangedPages(pages), sums))
    }

    /// Changes grouped by page.
    pub(super) fn by_page<'a>(
        &self,
        streams: &'a [StreamDelta],
    ) -> impl Iterator<Item = &'a [StreamDelta]> {
        let shift = self.shift;
        streams.chunk_by(move |a, b| a.stream.0 >> shift == b.stream.0 >> shift)
    }

    /// The sums after a group with streams that are new in the segment.
    pub(super) fn sums_with(&self, new: &[StreamDelta]) -> Sums {
        let mut sums = self.sums;
        for delta in new {
            let mut state = StreamState::default();
            state.apply(delta);
            sums.replace(Sums::default(), Sums::of(&state));
        }
        sums
    }

    /// Approximate bytes of memory.
    pub(super) fn weight(&self) -> usize {
        let sections: usize = self.groups.iter().map(|g| g.sections.len()).sum();
        size_of::<SegmentState>()
            + self.newest.len() * size_of::<(PageNumber, u32)>()
            + self.groups.len() * (size_of::<GroupIndex>() + 24)
            + self.checkpoint.as_ref().map_or(0, |c| c.weight())
            + sections * size_of::<Section>()
    }
}

/// Changed pages after a group, sorted.
#[derive(Debug, Default)]
pub(crate) struct ChangedPages(pub(super) Vec<(PageNumber, Arc<Page>)>);

impl ChangedPages {
    /// A page, if the group changed it.
    pub(super) fn page(&self, number: PageNumber) -> Option<&Page> {
        let at = self.0.binary_search_by_key(&number, |(p, _)| *p).ok()?;
        self.0.get(at).map(|(_, page)| &**page)
    }
}

impl ChangedPages {
    /// The state of a stream after the group that changed it.
    pub(crate) fn stream(
        &self,
        state: &SegmentState,
        stream: StreamId,
    ) -> Option<Arc<StreamState>> {
        self.page(state.page_of(stream))?.stream(stream)
    }
}

/// True when the index of a footer returns the same as the footer for every page: for tests and the
/// fuzz target.
#[cfg(any(test, fuzzing))]
pub(crate) fn index_agrees(bytes: &[u8], footer: &Footer) -> bool {
    [0, 3, 12].into_iter().all(|shift| {
        let Ok((_, index)) = GroupIndex::read(bytes, 64, shift) else {
            return false;
        };
        let pages = index.sections.iter().map(|section| {
            let page = section.first.0 >> shift;
            index.changes(page, section.of(bytes))
        });
        let found: std::result::Result<Vec<_>, _> = pages.collect();
        found.is_ok_and(|found| found.concat() == footer.streams)
    })
}

/// The bytes of a footer whose pages have `2^shift` streams.
#[cfg(test)]
pub(crate) fn encode_divided(footer: &Footer, shift: u32) -> Vec<u8> {
    GroupIndex::encode(footer, 64, shift).map_or_else(|_| Vec::new(), |(bytes, _)| bytes)
}

#[cfg(test)]
mod tests;
