//! Divides the contents of a segment into pages of a checkpoint, and decides when a checkpoint is
//! worth its bytes.
//!
//! Invariants: a checkpoint has exactly the given contents; an existing page is reused only if its
//! bytes equal the bytes that would be written. The bytes of checkpoints are bounded by the bytes
//! of footers ([`Paging::is_worth`]). Concurrency: plain data, and a job that writes. Failure: none
//! of its own.

use super::checkpoint::{List, PageEntries, PageLocation, StreamHead};
use super::format::{BlockEntry, LeafEntry, StreamDelta};
use super::state::StreamState;
use crate::common::ids::StreamId;
use crate::{Error, Result};
use headwater_types::invariant::part_of;
use std::collections::HashMap;

/// Size of the pages of a checkpoint; decides when one is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paging {
    /// Maximum number of entries of a page.
    pub(crate) entries: usize,
}

impl Default for Paging {
    fn default() -> Paging {
        Paging { entries: 256 }
    }
}

impl Paging {
    /// Maximum length of a list without pages.
    fn inline_max(self) -> usize {
        self.entries / 4
    }

    /// True when footers since the last checkpoint, or since the beginning, have enough bytes that
    /// readers gain by another checkpoint; `last_root` = bytes of the root of the last one.
    pub(super) fn is_due(self, bytes_since: u64, last_root: u64) -> bool {
        let least = 64 * u64::try_from(self.entries).unwrap_or(u64::MAX);
        bytes_since >= least.max(last_root.saturating_mul(2))
    }

    /// True when a checkpoint is worth writing: a reader reads its root instead of the footers, and
    /// pages mostly repeat these. With many small streams nearly everything would be in the root,
    /// and readers would gain nothing.
    pub(super) fn is_worth(self, bytes_since: u64, root: usize, pages: usize) -> bool {
        let (root, pages) = (root as u64, pages as u64);
        root <= bytes_since / 3 * 2 && pages <= bytes_since.saturating_mul(2)
    }
}

/// Reads bytes of the segment that a checkpoint is written to.
pub(super) type ReadBytes<'a> = &'a mut dyn FnMut(u64, u32) -> Result<Vec<u8>>;

/// Entries of a page.
trait Entry: Copy {
    /// The start of the entry, by which existing pages are recognised.
    fn origin(&self) -> (u64, u32);

    fn page(entries: Vec<Self>) -> PageEntries;
}

impl Entry for LeafEntry {
    fn origin(&self) -> (u64, u32) {
        (self.offset, self.row_start)
    }

    fn page(entries: Vec<LeafEntry>) -> PageEntries {
        PageEntries::Leaves(entries)
    }
}

impl Entry for BlockEntry {
    fn origin(&self) -> (u64, u32) {
        (self.offset, 0)
    }

    fn page(entries: Vec<BlockEntry>) -> PageEntries {
        PageEntries::Blocks(entries)
    }
}

/// The pages of a checkpoint and the heads of its streams, while the checkpoint is built.
pub(super) struct CheckpointPages {
    paging: Paging,
    /// Offset of its first page.
    offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) heads: Vec<(StreamId, StreamHead)>,
}

impl CheckpointPages {
    pub(super) fn new(paging: Paging, offset: u64) -> CheckpointPages {
        CheckpointPages {
            paging,
            offset,
            bytes: Vec::new(),
            heads: Vec::new(),
        }
    }

    /// Adds a stream; `before` = its head in the previous checkpoint. Streams must be sorted.
    pub(super) fn push(
        &mut self,
        stream: StreamId,
        state: &StreamState,
        before: Option<&StreamHead>,
        read: ReadBytes<'_>,
    ) -> Result<()> {
        let StreamState {
            main,
            late,
            base,
            blocks,
            stale,
            last_row,
        } = state;
        let known = before.map(|head| &*head.pages).unwrap_or_default();
        let mut head = StreamHead {
            pages: Vec::new(),
            rest: StreamDelta {
                stream,
                late_runs: late.clone(),
                base: *base,
                stale: (!stale.is_empty()).then(|| stale.clone()),
                last_row: last_row.clone(),
                ..StreamDelta::default()
            },
        };
        if main.len() <= self.paging.inline_max() {
            head.rest.added.clone_from(main);
        } else {
            self.list(None, main, known, read, &mut head.pages)?;
        }
        for of_level in blocks.chunk_by(|a, b| a.level == b.level) {
            let level = of_level.first().map(|block| block.level);
            if of_level.len() <= self.paging.inline_max() {
                head.rest.added_blocks.extend_from_slice(of_level);
            } else {
                self.list(level, of_level, known, read, &mut head.pages)?;
            }
        }
        self.heads.push((stream, head));
        Ok(())
    }

    /// Divides a list into pages: existing ones, and new ones for the rest.
    fn list<E: Entry>(
        &mut self,
        list: List,
        entries: &[E],
        known: &[PageLocation],
        read: ReadBytes<'_>,
        pages: &mut Vec<PageLocation>,
    ) -> Result<()> {
        // Small pages are joined with newer entries.
        let is_large = |p: &&PageLocation| {
            p.list == list && usize::try_from(p.entries).unwrap_or(0) * 2 >= self.paging.entries
        };
        let known: HashMap<(u64, u32), &PageLocation> = known
            .iter()
            .filter(is_large)
            .map(|p| ((p.origin, p.origin_row), p))
            .collect();
        let mut rest = entries;
        while let Some(first) = rest.first() {
            if let Some(place) = known.get(&first.origin())
                && let Some(behind) = named_again(place, rest, read)?
            {
                pages.push(**place);
                rest = behind;
                continue;
            }
            let begins = |entry: &E| known.contains_key(&entry.origin());
            let behind = part_of(rest, 1.., "entries behind the first");
            let until_known = behind.iter().position(begins).unwrap_or(behind.len());
            let (these, behind) = rest.split_at((until_known + 1).min(self.paging.entries));
            pages.push(self.page(these)?);
            rest = behind;
        }
        Ok(())
    }

    fn page<E: Entry>(&mut self, entries: &[E]) -> Result<PageLocation> {
        let offset = self.offset + self.bytes.len() as u64;
        let Some((place, bytes)) = E::page(entries.to_vec()).encode(offset) else {
            return Err(Error::internal(format!(
                "a page of the index with {} entries, which should be 1 to {}",
                entries.len(),
                self.paging.entries
            )));
        };
        self.bytes.extend_from_slice(&bytes);
        Ok(place)
    }
}

/// The entries after a page, if the first ones are exactly the entries of the page.
fn named_again<'e, E: Entry>(
    place: &PageLocation,
    entries: &'e [E],
    read: ReadBytes<'_>,
) -> Result<Option<&'e [E]>> {
    let count = usize::try_from(place.entries).unwrap_or(usize::MAX);
    let Some((these, behind)) = entries.split_at_checked(count) else {
        return Ok(None);
    };
    let Some((found, bytes)) = E::page(these.to_vec()).encode(place.offset) else {
        return Ok(None);
    };
    // The checksum alone does not prove that the pages are equal.
    let is_same = found == *place && read(place.offset, place.bytes)? == bytes;
    Ok(is_same.then_some(behind))
}
