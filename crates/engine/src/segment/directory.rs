//! The streams of a segment and what it holds of each, in little memory.
//!
//! Streams stand in pages, by number. Within a page a stream with a few leaves is kept as the bytes a footer would hold of it,
//! a larger one decoded; a segment of many small streams takes a fifth of what their decoded states would.
//!
//! Invariants: pages are not empty and hold rising stream numbers, each above those of the page before; a page never
//! changes, a changed directory shares the pages that no change touched.
//! Concurrency: immutable but for [`Directory::change`], which needs it alone.
//! Failure: none; what is packed was packed here.

use super::format::StreamDelta;
use super::state::StreamState;
use crate::ids::{Sequence, StreamId};
use headwater_codec::Cursor;
use std::sync::Arc;

/// Streams of a page, at most. A change of one stream copies its page.
const PAGE_STREAMS: usize = 64;
/// A stream with more leaves and blocks than this is kept decoded: it is read more often than its neighbours change.
const PACKED_PARTS_MAX: usize = 16;

/// The streams of a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    pages: Vec<Arc<Page>>,
    weight: usize,
}

#[derive(Debug, Default)]
struct Page {
    ids: Vec<StreamId>,
    /// Where each stream's bytes end in `packed`; a stream without bytes stands in `large`.
    ends: Vec<u32>,
    packed: Vec<u8>,
    large: Vec<(StreamId, Arc<StreamState>)>,
}

/// One stream's change: gives its new state from the old one; `None` = the segment did not hold it.
pub(crate) trait Change {
    fn stream(&self) -> StreamId;
    fn apply(&self, old: Option<&StreamState>) -> StreamState;
}

impl Directory {
    /// What the segment holds of a stream.
    pub(crate) fn get(&self, stream: StreamId) -> Option<Arc<StreamState>> {
        let page = self.pages.get(self.page_of(stream))?;
        page.get(page.ids.binary_search(&stream).ok()?)
    }

    pub(crate) fn contains(&self, stream: StreamId) -> bool {
        let page = self.pages.get(self.page_of(stream));
        page.is_some_and(|p| p.ids.binary_search(&stream).is_ok())
    }

    /// All streams, by number.
    pub(crate) fn ids(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.pages.iter().flat_map(|p| p.ids.iter().copied())
    }

    /// All streams with their states, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, Arc<StreamState>)> + '_ {
        self.pages
            .iter()
            .flat_map(|p| (0..p.ids.len()).filter_map(|at| Some((*p.ids.get(at)?, p.get(at)?))))
    }

    /// Bytes of memory, about.
    pub(crate) fn weight(&self) -> usize {
        self.weight + self.pages.capacity() * size_of::<Arc<Page>>()
    }

    /// The page a stream stands in, or would.
    fn page_of(&self, stream: StreamId) -> usize {
        self.pages
            .partition_point(|p| p.ids.first().is_some_and(|first| *first <= stream))
            .saturating_sub(1)
    }

    /// Applies changes, which are sorted by stream; several of one stream in their order.
    pub(crate) fn change<C: Change>(&mut self, changes: &[C]) {
        let old = std::mem::take(&mut self.pages);
        let mut pages = Vec::with_capacity(old.len() + changes.len() / PAGE_STREAMS + 1);
        let mut rest = changes;
        if old.is_empty() {
            self.rebuild(&Page::default(), rest, &mut pages);
            rest = &[];
        }
        let mut old = old.into_iter().peekable();
        while let Some(page) = old.next() {
            let next = old.peek().and_then(|p| p.ids.first());
            let inside = next.map_or(rest.len(), |n| rest.partition_point(|c| c.stream() < *n));
            let (mine, others) = rest.split_at(inside);
            rest = others;
            if mine.is_empty() {
                pages.push(page);
            } else {
                self.weight -= page.weight();
                self.rebuild(&page, mine, &mut pages);
            }
        }
        self.pages = pages;
    }

    /// The streams of a page and of changes that fall in it, as pages.
    fn rebuild<C: Change>(&mut self, page: &Page, changes: &[C], pages: &mut Vec<Arc<Page>>) {
        let by_stream = |a: &C, b: &C| a.stream() == b.stream();
        let changes: Vec<&[C]> = changes.chunk_by(by_stream).collect();
        let new = changes.iter().filter_map(|c| c.first()).map(C::stream);
        let count = page.ids.len() + new.filter(|s| page.ids.binary_search(s).is_err()).count();
        let size = count.div_ceil(count.div_ceil(PAGE_STREAMS).max(1)).max(1);
        let mut building = Page::default();
        let mut changes = changes.into_iter().peekable();
        let mut at = 0;
        loop {
            let kept = page.ids.get(at).copied();
            let changed = changes.peek().and_then(|c| c.first()).map(C::stream);
            match (kept, changed) {
                (None, None) => break,
                (Some(kept), changed) if changed.is_none_or(|c| kept < c) => {
                    building.copy(page, at);
                    at += 1;
                }
                (kept, Some(changed)) => {
                    let mut state = None;
                    if kept == Some(changed) {
                        state = page.get(at);
                        at += 1;
                    }
                    for change in changes.next().unwrap_or_default() {
                        state = Some(Arc::new(change.apply(state.as_deref())));
                    }
                    if let Some(state) = state {
                        building.push(changed, state);
                    }
                }
                (Some(_), None) => break,
            }
            if building.ids.len() >= size {
                self.finish(std::mem::take(&mut building), pages);
            }
        }
        if !building.ids.is_empty() {
            self.finish(building, pages);
        }
    }

    fn finish(&mut self, mut page: Page, pages: &mut Vec<Arc<Page>>) {
        page.ids.shrink_to_fit();
        page.ends.shrink_to_fit();
        page.packed.shrink_to_fit();
        page.large.shrink_to_fit();
        self.weight += page.weight();
        pages.push(Arc::new(page));
    }
}

impl Page {
    fn bytes(&self, at: usize) -> &[u8] {
        let end = |at: usize| self.ends.get(at).map_or(0, |e| *e as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.packed.get(start..end(at)).unwrap_or_default()
    }

    fn get(&self, at: usize) -> Option<Arc<StreamState>> {
        let stream = *self.ids.get(at)?;
        match self.bytes(at) {
            [] => self.large(stream).cloned(),
            packed => unpack(packed).map(Arc::new),
        }
    }

    fn large(&self, stream: StreamId) -> Option<&Arc<StreamState>> {
        let at = self.large.binary_search_by_key(&stream, |(s, _)| *s).ok()?;
        self.large.get(at).map(|(_, state)| state)
    }

    fn copy(&mut self, from: &Page, at: usize) {
        let Some(stream) = from.ids.get(at).copied() else {
            return;
        };
        self.ids.push(stream);
        self.packed.extend_from_slice(from.bytes(at));
        self.ends.push(self.packed.len() as u32);
        if let Some(state) = from.large(stream) {
            self.large.push((stream, Arc::clone(state)));
        }
    }

    fn push(&mut self, stream: StreamId, state: Arc<StreamState>) {
        self.ids.push(stream);
        let before = self.packed.len();
        let late = state.late.iter().map(Vec::len).sum::<usize>();
        if state.main.len() + late + state.blocks.len() <= PACKED_PARTS_MAX {
            pack(&state, &mut self.packed);
        }
        // A page of small streams is far below 4 GiB: a newest row that large is not packed.
        if self.packed.len() > u32::MAX as usize / 2 {
            self.packed.truncate(before);
        }
        self.ends.push(self.packed.len() as u32);
        if self.packed.len() == before {
            self.large.push((stream, state));
        }
    }

    fn weight(&self) -> usize {
        let large: usize = self.large.iter().map(|(_, s)| s.weight() + 24).sum();
        size_of::<Page>() + 80 + self.ids.len() * 8 + self.packed.len() + large
    }
}

/// Appends the bytes of a state: those of a footer that adds all of it.
fn pack(state: &StreamState, out: &mut Vec<u8>) {
    let StreamState {
        main,
        late,
        base,
        blocks,
        stale,
        last_row,
    } = state;
    let whole = StreamDelta {
        added: main.clone(),
        late_runs: late.clone(),
        base: *base,
        added_blocks: blocks.clone(),
        stale: (!stale.is_empty()).then(|| stale.clone()),
        last_row: last_row.clone(),
        ..StreamDelta::default()
    };
    whole.encode(0, Sequence::default(), out);
}

fn unpack(packed: &[u8]) -> Option<StreamState> {
    let mut cursor = Cursor::new(packed);
    let delta = StreamDelta::decode(StreamId(0), 0, Sequence::default(), &mut cursor).ok()?;
    Some(StreamState {
        main: delta.added,
        late: delta.late_runs,
        base: delta.base,
        blocks: delta.added_blocks,
        stale: delta.stale.unwrap_or_default(),
        last_row: delta.last_row,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::segment::format::{BlockEntry, LeafEntry};
    use headwater_codec::{ClosedRange, Level};
    use std::collections::BTreeMap;

    /// A change that adds a leaf.
    struct Add(u32, LeafEntry);

    impl Change for Add {
        fn stream(&self) -> StreamId {
            StreamId(self.0)
        }
        fn apply(&self, old: Option<&StreamState>) -> StreamState {
            let mut state = old.cloned().unwrap_or_default();
            state.main.push(self.1);
            state
        }
    }

    fn leaf(number: u64) -> LeafEntry {
        LeafEntry {
            first: number as i64 * 1000 - 5_000,
            last: number as i64 * 1000 - 4_001,
            count: 7,
            row_start: 3,
            offset: 64 + number * 900,
            bytes: 800,
            leaf_rows: 2048,
        }
    }

    #[test]
    fn a_state_is_unpacked_as_it_was() {
        let state = StreamState {
            main: vec![leaf(1), leaf(2)],
            late: vec![vec![leaf(0)], vec![leaf(1), leaf(9)]],
            base: Level::new(-3),
            blocks: vec![BlockEntry {
                level: Level::new(-3).unwrap(),
                first_bucket: -70,
                last_bucket: 12,
                count: 64,
                offset: 5000,
                bytes: 900,
            }],
            stale: vec![ClosedRange::nanos(i64::MIN, 5)],
            last_row: Some([1, 2, 3].into()),
        };
        for state in [state, StreamState::default()] {
            let mut packed = Vec::new();
            pack(&state, &mut packed);
            assert_eq!(unpack(&packed), Some(state));
            assert!(!packed.is_empty());
        }
    }

    #[test]
    fn it_holds_what_a_map_would_and_older_versions_stay() {
        let mut directory = Directory::default();
        let mut map: BTreeMap<u32, Vec<LeafEntry>> = BTreeMap::new();
        let mut versions = Vec::new();
        let mut number = 0u64;
        for round in 0..60u64 {
            // Few or many streams, new and known, the same one several times in a round.
            let mut changes: Vec<Add> = (0..1 + round * round % 400)
                .map(|i| {
                    number += 1;
                    let stream = (i * (round * 37 + 1) * 7 % (round * 40 + 1)) as u32;
                    Add(stream, leaf(number))
                })
                .collect();
            changes.sort_by_key(|c| c.0);
            directory.change(&changes);
            for change in &changes {
                map.entry(change.0).or_default().push(change.1);
            }
            versions.push((directory.clone(), map.clone()));
        }
        for (directory, map) in &versions {
            assert!(directory.ids().map(|s| s.0).eq(map.keys().copied()));
            assert!(
                directory
                    .pages
                    .iter()
                    .all(|p| (1..=PAGE_STREAMS).contains(&p.ids.len()))
            );
            for ((stream, state), (id, leaves)) in directory.iter().zip(map) {
                assert_eq!((stream.0, &state.main), (*id, leaves));
                assert_eq!(directory.get(stream).unwrap().main, *leaves);
            }
            assert!(
                !directory.contains(StreamId(1 << 20))
                    && directory.get(StreamId(1 << 20)).is_none()
            );
            let pages: usize = directory.pages.iter().map(|p| p.weight()).sum();
            assert_eq!(directory.weight, pages);
        }
    }

    #[test]
    fn what_no_change_touches_is_shared() {
        let mut directory = Directory::default();
        let all: Vec<Add> = (0..10_000).map(|i| Add(i, leaf(u64::from(i)))).collect();
        directory.change(&all);
        let before = directory.clone();
        directory.change(&[Add(500, leaf(1)), Add(9_999, leaf(2))]);
        let same = |(a, b): (&Arc<Page>, &Arc<Page>)| Arc::ptr_eq(a, b);
        let shared = before
            .pages
            .iter()
            .zip(&directory.pages)
            .filter(|p| same(*p))
            .count();
        assert_eq!((before.pages.len(), shared), (157, 155));
        // A small stream takes little.
        assert!(directory.weight() < 60 * 10_000, "{}", directory.weight());
    }
}
