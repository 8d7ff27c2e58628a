//! The contents of a segment for a page of streams, in little memory.
//!
//! A page is a range of stream numbers (see [`super::index`]). A stream with a few leaves is stored
//! as the bytes of a change in a footer, a larger one decoded; many small streams take a tenth of
//! the memory of their decoded states. Times and offsets are written as differences from those of
//! the page's first stream: mostly one byte instead of ten.
//!
//! Invariants: stream numbers ascend; a page never changes, a group makes a new one. Concurrency:
//! immutable. Failure: none; packed bytes were packed here.

use super::format::{LeafEntry, Parts, StreamDelta};
use super::state::{StreamState, Sums};
use crate::common::ids::{Sequence, StreamId};
use headwater_codec::Cursor;
use headwater_types::Timestamp;
use headwater_types::invariant::part_of;
use std::sync::Arc;

/// Maximum number of leaves and blocks of a packed stream. Larger ones are stored decoded: they are
/// read more often than their neighbours change.
const PACKED_PARTS_MAX: usize = 64;

/// Base of the times and offsets of a page. Any base unpacks to the same states.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    time: i64,
    offset: u64,
}

impl Origin {
    /// The origin at the first leaf, which is mostly near its neighbours.
    fn of(state: &StreamState) -> Origin {
        let mut leaves = state.main.iter().chain(state.late.iter().flatten());
        let first = leaves.next();
        first.map_or_else(Origin::default, |leaf| Origin {
            time: leaf.first.as_nanos(),
            offset: leaf.offset,
        })
    }

    /// The leaves with times relative to the origin; `None` when one is too far away.
    fn relative(self, leaves: &[LeafEntry]) -> Option<Vec<LeafEntry>> {
        let nearer = |at: Timestamp| {
            at.as_nanos()
                .checked_sub(self.time)
                .map(Timestamp::from_nanos)
        };
        let moved = |leaf: &LeafEntry| {
            Some(LeafEntry {
                first: nearer(leaf.first)?,
                last: nearer(leaf.last)?,
                ..*leaf
            })
        };
        leaves.iter().map(moved).collect()
    }

    fn absolute(self, mut leaves: Vec<LeafEntry>) -> Vec<LeafEntry> {
        let moved = |at: Timestamp| Timestamp::from_nanos(at.as_nanos().wrapping_add(self.time));
        for leaf in &mut leaves {
            leaf.first = moved(leaf.first);
            leaf.last = moved(leaf.last);
        }
        leaves
    }
}

/// Some streams of a segment.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Set by the first stream, and retained by the pages derived from this one, which copy its
    /// bytes.
    origin: Option<Origin>,
    ids: Vec<StreamId>,
    /// End of each stream's bytes in `packed`; a stream without bytes is in `large`.
    ends: Vec<u32>,
    packed: Vec<u8>,
    large: Vec<(StreamId, Arc<StreamState>)>,
}

impl Page {
    /// A page of these streams, which must be sorted.
    pub(super) fn of(streams: impl Iterator<Item = (StreamId, Arc<StreamState>)>) -> Page {
        let mut page = Page::default();
        for (stream, state) in streams {
            page.push(stream, state);
        }
        page.shrink();
        page
    }

    /// The contents of the segment for a stream.
    pub(crate) fn stream(&self, stream: StreamId) -> Option<Arc<StreamState>> {
        self.at(self.ids.binary_search(&stream).ok()?)
    }

    /// All streams with their states, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, Arc<StreamState>)> + '_ {
        let all = self.ids.iter().enumerate();
        all.filter_map(|(at, stream)| Some((*stream, self.at(at)?)))
    }

    /// The page after one more group. Its changes are sorted by stream; several changes of one
    /// stream apply in their order. Updates the sums.
    pub(super) fn changed(&self, deltas: &[StreamDelta], sums: &mut Sums) -> Page {
        let mut page = Page {
            origin: self.origin,
            ..Page::default()
        };
        let mut changes = deltas.chunk_by(|a, b| a.stream == b.stream).peekable();
        let mut at = 0;
        loop {
            let kept = self.ids.get(at).copied();
            let changed = changes.peek().and_then(|c| c.first()).map(|d| d.stream);
            match (kept, changed) {
                (Some(kept), changed) if changed.is_none_or(|c| kept < c) => {
                    page.copy(self, at);
                    at += 1;
                }
                (kept, Some(changed)) => {
                    let mut state = StreamState::default();
                    if kept == Some(changed) {
                        state = self.at(at).map_or(state, Arc::unwrap_or_clone);
                        at += 1;
                    }
                    let before = Sums::of(&state);
                    for delta in changes.next().unwrap_or_default() {
                        state.apply(delta);
                    }
                    sums.replace(before, Sums::of(&state));
                    page.push(changed, Arc::new(state));
                }
                (_, None) => break,
            }
        }
        page.shrink();
        page
    }

    fn shrink(&mut self) {
        self.ids.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.packed.shrink_to_fit();
        self.large.shrink_to_fit();
    }

    fn bytes(&self, at: usize) -> &[u8] {
        let end = |at: usize| self.ends.get(at).map_or(0, |e| *e as usize);
        let start = at.checked_sub(1).map_or(0, end);
        part_of(&self.packed, start..end(at), "a packed stream")
    }

    fn at(&self, at: usize) -> Option<Arc<StreamState>> {
        let stream = *self.ids.get(at)?;
        match self.bytes(at) {
            [] => self.large(stream).cloned(),
            packed => unpack(packed, self.origin?).map(Arc::new),
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
        let origin = *self.origin.get_or_insert_with(|| Origin::of(&state));
        self.ids.push(stream);
        let before = self.packed.len();
        let late = state.late.iter().map(Vec::len).sum::<usize>();
        if state.main.len() + late + state.blocks.len() <= PACKED_PARTS_MAX {
            pack(&state, origin, &mut self.packed);
        }
        // A page of small streams is far below 4 GiB: a newest row of that size is not packed.
        if self.packed.len() > u32::MAX as usize / 2 {
            self.packed.truncate(before);
        }
        self.ends.push(self.packed.len() as u32);
        if self.packed.len() == before {
            self.large.push((stream, state));
        }
    }

    /// Approximate bytes of memory.
    pub(super) fn weight(&self) -> usize {
        let large: usize = self.large.iter().map(|(_, s)| s.weight() + 24).sum();
        size_of::<Page>() + 80 + self.ids.len() * 8 + self.packed.len() + large
    }
}

/// Appends the bytes of a state: a change of a footer that adds all of it. Appends nothing if the
/// origin is too far away.
fn pack(state: &StreamState, origin: Origin, out: &mut Vec<u8>) {
    let StreamState {
        main,
        late,
        base,
        blocks,
        stale,
        last_row,
    } = state;
    let late: Option<Vec<_>> = late.iter().map(|run| origin.relative(run)).collect();
    let (Some(added), Some(late_runs)) = (origin.relative(main), late) else {
        return;
    };
    let whole = StreamDelta {
        added,
        late_runs,
        base: *base,
        added_blocks: blocks.clone(),
        stale: (!stale.is_empty()).then(|| stale.clone()),
        last_row: last_row.clone(),
        ..StreamDelta::default()
    };
    whole.encode(origin.offset, Sequence::default(), out);
}

fn unpack(packed: &[u8], origin: Origin) -> Option<StreamState> {
    let mut cursor = Cursor::new(packed);
    let nothing = Sequence::default();
    let (none, parts) = (StreamId(0), Parts::State);
    let delta = StreamDelta::decode(none, origin.offset, nothing, parts, &mut cursor).ok()?;
    let late = delta.late_runs.into_iter();
    Some(StreamState {
        main: origin.absolute(delta.added),
        late: late.map(|run| origin.absolute(run)).collect(),
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
    use crate::storage::segment::format::BlockEntry;
    use headwater_types::{ClosedRange, Level};
    use std::collections::BTreeMap;

    fn leaf(number: u64) -> LeafEntry {
        LeafEntry {
            first: Timestamp::from_nanos(number as i64 * 1000 - 5_000),
            last: Timestamp::from_nanos(number as i64 * 1000 - 4_001),
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
            for origin in [Origin::default(), Origin::of(&state), far_origin()] {
                let mut packed = Vec::new();
                pack(&state, origin, &mut packed);
                assert_eq!(unpack(&packed, origin), Some(state.clone()));
                assert!(!packed.is_empty());
            }
        }
    }

    fn far_origin() -> Origin {
        Origin {
            time: i64::MAX - 10_000,
            offset: 1 << 40,
        }
    }

    #[test]
    fn streams_too_far_from_the_first_one_are_kept_whole() {
        let at = |first, last| LeafEntry {
            first: Timestamp::from_nanos(first),
            last: Timestamp::from_nanos(last),
            ..leaf(3)
        };
        let ends = [at(i64::MIN, i64::MIN), at(i64::MAX - 9, i64::MAX)];
        let states = [vec![leaf(1)], ends.to_vec(), vec![leaf(2)], vec![ends[0]]];
        let all = states.iter().zip(0u32..).map(|(main, stream)| {
            let state = StreamState {
                main: main.clone(),
                late: vec![main.clone()],
                ..StreamState::default()
            };
            (StreamId(stream), state)
        });
        let page = Page::of(all.clone().map(|(stream, state)| (stream, Arc::new(state))));
        assert_eq!(page.large.len(), 1);
        for (stream, state) in all {
            assert_eq!(*page.stream(stream).unwrap(), state);
        }
    }

    fn add(stream: u32, number: u64) -> StreamDelta {
        StreamDelta {
            stream: StreamId(stream),
            added: vec![leaf(number)],
            ..StreamDelta::default()
        }
    }

    #[test]
    fn it_holds_what_a_map_would_and_older_versions_stay() {
        let mut page = Arc::new(Page::default());
        let mut map: BTreeMap<u32, Vec<LeafEntry>> = BTreeMap::new();
        let mut sums = Sums::default();
        let mut versions = Vec::new();
        let mut number = 0u64;
        for round in 0..60u64 {
            // Few or many streams, new and existing, the same one several times in a round.
            let mut changes: Vec<StreamDelta> = (0..1 + round * round % 40)
                .map(|i| {
                    number += 1;
                    let stream = (i * (round * 37 + 1) * 7 % (round + 1)) as u32;
                    add(stream, number)
                })
                .collect();
            changes.sort_by_key(|c| c.stream);
            page = Arc::new(page.changed(&changes, &mut sums));
            for change in &changes {
                map.entry(change.stream.0)
                    .or_default()
                    .extend(&change.added);
            }
            assert_eq!((sums.leaves, sums.events), (number, number * 7));
            versions.push((Arc::clone(&page), map.clone()));
        }
        for (page, map) in &mut versions {
            assert_eq!(page.iter().count(), map.len());
            for ((stream, state), (id, leaves)) in page.iter().zip(map) {
                leaves.sort_by_key(|l| l.first);
                assert_eq!((stream.0, &state.main), (*id, &*leaves));
                assert_eq!(page.stream(stream).unwrap().main, *leaves);
            }
            assert!(page.stream(StreamId(1 << 20)).is_none());
        }
        // Some streams are after the packed ones.
        assert!(!page.large.is_empty() && page.large.len() < page.ids.len());
    }

    #[test]
    fn a_small_stream_takes_little() {
        let all: Vec<StreamDelta> = (0..64).map(|i| add(i, u64::from(i))).collect();
        let page = Page::default().changed(&all, &mut Sums::default());
        assert!(page.weight() < 36 * 64, "{}", page.weight());
    }
}
