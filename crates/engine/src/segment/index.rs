//! Where a segment's footers say what about which streams; and what the segment holds in sum.
//!
//! A segment's state is the fold of its footers. Of a segment with many streams only this index
//! stays in memory: of each footer, where the changes of each *page* of streams stand, 16 bytes for
//! each. What the segment holds of a page is put together when somebody asks (`Store::page`), and
//! kept as long as there is room. Where a group has a checkpoint, its root takes the place of the
//! footers up to it.
//!
//! Invariants: pages are stretches of `2^shift` stream numbers; of one group each page has one
//! section or none; sections and `newest` rise by page; `newest` names the last group that changed
//! a page, or the checkpoint that says what it holds, which is the version of the page.
//! Concurrency: immutable; a group makes a new state that shares what it can.
//! Failure: a section is checked when the footer is indexed, and again by its own checksum when it
//! is read alone.

use super::checkpoint::CheckpointIndex;
use super::format::{Footer, Parts, StreamDelta, next_stream};
use super::page::Page;
use super::state::{StreamState, Sums};
use crate::catalog::Table;
use crate::ids::{SegmentId, Sequence, StreamId};
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError};
use std::sync::Arc;

/// A page's number: the numbers of its streams without their last `shift` bits.
pub(crate) type PageNumber = u32;

/// The changes of one page in a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    /// The first stream changed.
    first: StreamId,
    /// Where its change begins in the footer.
    at: u32,
    /// Bytes from there to the end of the last change of the page.
    bytes: u32,
    crc: u32,
}

/// The index of one group's footer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GroupIndex {
    footer_offset: u64,
    footer_bytes: u32,
    /// Of a checkpoint in the group that is not used.
    checkpoint_bytes: u64,
    group_offset: u64,
    sequence: Sequence,
    shift: u32,
    sections: Box<[Section]>,
}

/// Divides the changes of a footer into pages as they go by.
struct Sectioner {
    shift: u32,
    sections: Vec<Section>,
    rises: bool,
}

impl Sectioner {
    fn new(shift: u32) -> Sectioner {
        Sectioner {
            shift,
            sections: Vec::new(),
            rises: true,
        }
    }

    fn note(&mut self, stream: StreamId, from: usize, to: usize) {
        // A footer is shorter than 4 GiB, as its trailer says.
        let (from, to) = (from as u32, to as u32);
        match self.sections.last_mut() {
            Some(last) if last.first.0 >> self.shift == stream.0 >> self.shift => {
                last.bytes = to.wrapping_sub(last.at);
            }
            last => {
                self.rises &= last.is_none_or(|last| last.first < stream);
                self.sections.push(Section {
                    first: stream,
                    at: from,
                    bytes: to.wrapping_sub(from),
                    crc: 0,
                });
            }
        }
    }

    fn finish(
        mut self,
        footer: &Footer,
        bytes: &[u8],
        offset: u64,
    ) -> std::result::Result<GroupIndex, DecodeError> {
        let wrong = |expected| DecodeError {
            expected,
            offset: 0,
        };
        if !self.rises {
            return Err(wrong("a footer whose streams rise"));
        }
        for section in &mut self.sections {
            section.crc = crc32c(section.of(bytes));
        }
        Ok(GroupIndex {
            footer_offset: offset,
            footer_bytes: u32::try_from(bytes.len()).map_err(|_| wrong("a footer below 4 GiB"))?,
            checkpoint_bytes: footer.checkpoint.bytes(),
            group_offset: footer.group_offset,
            sequence: footer.sequence,
            shift: self.shift,
            sections: self.sections.into(),
        })
    }
}

impl Section {
    fn of<'a>(&self, footer: &'a [u8]) -> &'a [u8] {
        let end = self.at as usize + self.bytes as usize;
        footer.get(self.at as usize..end).unwrap_or_default()
    }
}

impl GroupIndex {
    /// Encodes a footer that will stand at `offset`.
    pub(super) fn encode(
        footer: &Footer,
        offset: u64,
        shift: u32,
    ) -> Result<(Vec<u8>, GroupIndex)> {
        let mut sectioner = Sectioner::new(shift);
        let bytes = footer.encode_noting(|stream, from, to| sectioner.note(stream, from, to));
        let index = sectioner
            .finish(footer, &bytes, offset)
            .map_err(|e| Error::internal(format!("cannot write {}", e.expected)))?;
        Ok((bytes, index))
    }

    /// The index of a footer at `offset`, all of which is checked; and the footer without its
    /// streams.
    pub(super) fn read(
        bytes: &[u8],
        offset: u64,
        shift: u32,
    ) -> std::result::Result<(Footer, GroupIndex), DecodeError> {
        let mut sectioner = Sectioner::new(shift);
        let footer =
            Footer::decode_noting(bytes, |stream, from, to| sectioner.note(stream, from, to))?;
        let index = sectioner.finish(&footer, bytes, offset)?;
        Ok((footer, index))
    }

    fn section(&self, page: PageNumber) -> Option<&Section> {
        let at = self
            .sections
            .binary_search_by_key(&page, |s| s.first.0 >> self.shift)
            .ok()?;
        self.sections.get(at)
    }

    /// Where a page's changes stand in the file.
    pub(super) fn place(&self, page: PageNumber) -> Option<(u64, u32)> {
        let section = self.section(page)?;
        Some((self.footer_offset + u64::from(section.at), section.bytes))
    }

    /// Hands out a page's changes, or what is wanted of them, from the bytes at
    /// [`GroupIndex::place`].
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
                expected: "the part of a footer that was there when it was checked",
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

/// In place of a group: no group since the checkpoint changed the page.
const CHECKPOINT: u32 = u32::MAX;

/// What a segment holds, up to one of its footers.
#[derive(Clone, Debug)]
pub(crate) struct SegmentState {
    segment: SegmentId,
    shift: u32,
    /// What stands for all groups before `groups`.
    checkpoint: Option<Arc<CheckpointIndex>>,
    /// Oldest first.
    groups: Vec<Arc<GroupIndex>>,
    /// Pages that are not empty, each with the newest group that changed it, or [`CHECKPOINT`].
    newest: Arc<Vec<(PageNumber, u32)>>,
    /// No checkpoint is tried before footers since the last one have so many bytes: one was not
    /// worth writing.
    tried_to: u64,
    /// The newest table definition written to this segment.
    pub(crate) table: Option<Arc<Table>>,
    pub(crate) sums: Sums,
}

impl SegmentState {
    /// Of a segment without groups.
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

    /// As a checkpoint says.
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

    /// The checkpoint it begins with.
    pub(super) fn checkpoint(&self) -> Option<&CheckpointIndex> {
        self.checkpoint.as_deref()
    }

    /// Bytes of footers since the checkpoint it begins with, or since the first.
    pub(super) fn bytes_since_checkpoint(&self) -> u64 {
        let groups = self.groups.iter();
        groups.map(|g| u64::from(g.footer_bytes)).sum()
    }

    /// See the field.
    pub(super) fn tried_to(&self) -> u64 {
        self.tried_to
    }

    /// A checkpoint was not worth writing: none is before footers have this many bytes.
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

    /// Over how many sections of footers its changes are spread.
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

    /// The page a stream belongs to.
    pub(super) fn page_of(&self, stream: StreamId) -> PageNumber {
        stream.0 >> self.shift
    }

    /// Its pages, rising.
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

    /// How many groups changed a page on average: over how many what it holds of a stream is spread
    /// at the most.
    pub(super) fn rounds(&self) -> u32 {
        let pages = self.newest.len().max(1) as u64;
        u32::try_from(self.sections() / pages).unwrap_or(u32::MAX)
    }

    /// Where each group's index stands, oldest first: its footer with the checkpoint before it,
    /// offset and length. Of a state that uses no checkpoint these are all there are.
    pub(super) fn indexes(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.groups.iter().map(|g| {
            let before = u32::try_from(g.checkpoint_bytes).unwrap_or(u32::MAX);
            let from = g.footer_offset.saturating_sub(u64::from(before));
            (from, before.saturating_add(g.footer_bytes))
        })
    }

    /// The groups since the checkpoint that changed a page, oldest first.
    pub(super) fn groups_of(&self, page: PageNumber) -> impl Iterator<Item = &GroupIndex> {
        let groups = self.groups.iter().map(Arc::as_ref);
        groups.filter(move |g| g.section(page).is_some())
    }

    /// The state after one more group; `sums` are those after it.
    pub(super) fn with_group(
        &self,
        group: GroupIndex,
        table: Option<&Table>,
        sums: Sums,
    ) -> SegmentState {
        let number = self.groups.len() as u32;
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

    /// The changed pages after one more group, and the sums. `touched` are the pages before it,
    /// rising, of all streams it changes.
    pub(super) fn changed(
        &self,
        streams: &[StreamDelta],
        touched: &[(PageNumber, Arc<Page>)],
    ) -> Result<(ChangedPages, Sums)> {
        let mut sums = self.sums;
        let mut pages = Vec::new();
        for deltas in self.by_page(streams) {
            // Parts of a list that is divided hold at least one each.
            let Some(number) = deltas.first().map(|d| self.page_of(d.stream)) else {
                continue;
            };
            let before = touched
                .binary_search_by_key(&number, |(page, _)| *page)
                .ok()
                .and_then(|at| touched.get(at))
                .ok_or_else(|| Error::internal("a step that did not look at what it changes"))?;
            pages.push((number, Arc::new(before.1.changed(deltas, &mut sums))));
        }
        Ok((ChangedPages(pages), sums))
    }

    /// Changes by the pages they are of.
    pub(super) fn by_page<'a>(
        &self,
        streams: &'a [StreamDelta],
    ) -> impl Iterator<Item = &'a [StreamDelta]> {
        let shift = self.shift;
        streams.chunk_by(move |a, b| a.stream.0 >> shift == b.stream.0 >> shift)
    }

    /// The sums after a group that holds streams the segment did not have before.
    pub(super) fn sums_with(&self, new: &[StreamDelta]) -> Sums {
        let mut sums = self.sums;
        for delta in new {
            let mut state = StreamState::default();
            state.apply(delta);
            sums.replace(Sums::default(), Sums::of(&state));
        }
        sums
    }

    /// Bytes of memory, about.
    pub(super) fn weight(&self) -> usize {
        let sections: usize = self.groups.iter().map(|g| g.sections.len()).sum();
        size_of::<SegmentState>()
            + self.newest.len() * size_of::<(PageNumber, u32)>()
            + self.groups.len() * (size_of::<GroupIndex>() + 24)
            + self.checkpoint.as_ref().map_or(0, |c| c.weight())
            + sections * size_of::<Section>()
    }
}

/// Pages as a group left them, rising.
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
    /// What a group left of a stream that it changed.
    pub(crate) fn stream(
        &self,
        state: &SegmentState,
        stream: StreamId,
    ) -> Option<Arc<StreamState>> {
        self.page(state.page_of(stream))?.stream(stream)
    }
}

/// True when the index of a footer gives of every page what the footer gives: for tests and the
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::format::{CheckpointNote, Cover, LeafEntry};
    use super::*;
    use headwater_types::{ClosedRange, Timestamp};

    fn leaf(offset: u64) -> LeafEntry {
        LeafEntry {
            first: Timestamp::from_nanos(offset as i64 * 10),
            last: Timestamp::from_nanos(offset as i64 * 10 + 9),
            count: 4,
            row_start: 0,
            offset,
            bytes: 50,
            leaf_rows: 4,
        }
    }

    fn footer(streams: &[u32], group_offset: u64, previous: Option<(u64, u32)>) -> Footer {
        let streams = streams.iter().map(|stream| StreamDelta {
            stream: StreamId(*stream),
            key: (stream % 3 == 0).then(|| Box::from([7u8; 9])),
            added: vec![leaf(group_offset + u64::from(*stream))],
            late_runs: vec![vec![leaf(2)]; (stream % 2) as usize],
            covers: vec![Cover {
                sequence: Sequence(4),
                range: ClosedRange::nanos(-5, i64::from(*stream)),
            }],
            ..StreamDelta::default()
        });
        Footer {
            previous,
            group_offset,
            sequence: Sequence(9),
            table: None,
            checkpoint: CheckpointNote::Nothing,
            streams: streams.collect(),
        }
    }

    #[test]
    fn a_section_gives_what_the_footer_gives() {
        for streams in [&[0u32, 1, 7, 8, 9, 63, 64, 5000][..], &[], &[u32::MAX]] {
            let footer = footer(streams, 64, None);
            let (bytes, written) = GroupIndex::encode(&footer, 64, 3).unwrap();
            assert_eq!(bytes, footer.encode());
            let (_, read) = GroupIndex::read(&bytes, 64, 3).unwrap();
            assert_eq!(read, written);
            assert!(index_agrees(&bytes, &footer));
            for page in [1, 4000] {
                assert!(read.place(page).is_none() || streams.contains(&8));
            }
        }
    }

    #[test]
    fn a_section_that_changed_is_refused() {
        let footer = footer(&[1, 2, 9], 64, None);
        let (mut bytes, index) = GroupIndex::encode(&footer, 64, 3).unwrap();
        let (at, len) = index.place(0).unwrap();
        let range = (at - 64) as usize..(at - 64) as usize + len as usize;
        assert_eq!(index.changes(0, &bytes[range.clone()]).unwrap().len(), 2);
        bytes[range.start + 3] ^= 1;
        assert!(index.changes(0, &bytes[range.clone()]).is_err());
        assert!(
            index
                .changes(0, &bytes[range.start..range.end - 1])
                .is_err()
        );
        // All of it is checked before.
        assert!(GroupIndex::read(&bytes, 64, 3).is_err());
    }

    #[test]
    fn streams_that_do_not_rise_are_refused() {
        let footer = footer(&[9, 1], 64, None);
        assert!(GroupIndex::encode(&footer, 64, 3).is_err());
        assert!(GroupIndex::read(&footer.encode(), 64, 3).is_err());
    }

    #[test]
    fn a_state_knows_the_newest_version_of_each_page() {
        let mut state = SegmentState::new(SegmentId(5), 3);
        let mut pages: Vec<(PageNumber, Arc<Page>)> = Vec::new();
        let mut sums = Sums::default();
        let rounds: [&[u32]; 4] = [&[8, 40], &[0, 9, 100], &[41], &[8]];
        for (round, streams) in (1u64..).zip(rounds) {
            let footer = footer(streams, round * 1000, None);
            let (_, index) = GroupIndex::encode(&footer, round * 1000 + 500, 3).unwrap();
            for stream in streams {
                let page = stream >> 3;
                if !pages.iter().any(|(p, _)| *p == page) {
                    pages.push((page, Arc::default()));
                }
            }
            pages.sort_by_key(|(p, _)| *p);
            let (changed, after) = state.changed(&footer.streams, &pages).unwrap();
            let next = state.with_group(index, None, after);
            for (page, content) in &changed.0 {
                let at = pages.iter().position(|(p, _)| p == page).unwrap();
                pages[at].1 = Arc::clone(content);
            }
            sums.events += 4 * streams.iter().map(|s| 1 + u64::from(s % 2)).sum::<u64>();
            assert_eq!(next.sums.events, sums.events);
            state = next;
        }
        assert!(state.pages().eq([0, 1, 5, 12]));
        let versions = [0, 1, 2, 5, 12].map(|p| state.version(p));
        assert_eq!(
            versions,
            [Some(2500), Some(4500), None, Some(3500), Some(2500)]
        );
        let groups = state.groups_of(1).map(|g| g.footer_offset);
        assert!(groups.eq([1500, 2500, 4500]));
        // A step must have looked at what it changes.
        let footer = footer(&[70], 9000, None);
        assert!(state.changed(&footer.streams, &pages).is_err());
    }
}
