//! Ends a group: blocks get their locations, a checkpoint is written where one is due, the footer
//! follows.
//!
//! Invariants: the resulting state equals the state that a reader of the file decodes; a checkpoint
//! equals the fold of the footers, including the footer that refers to it. Failure: nothing counts
//! until the metadata refer to the group. Where the earlier contents of the segment cannot be read,
//! the group is written without a checkpoint.

use super::checkpoint::{CheckpointIndex, RootFront, encode_root};
use super::format::{CheckpointLocation, CheckpointNote, Footer, StreamDelta};
use super::group::{FinishedGroup, GroupWriter};
use super::index::{ChangedPages, PageNumber, SegmentState};
use super::page::Page;
use super::paging::CheckpointPages;
use super::state::{StreamState, Sums};
use super::store::Store;
use crate::common::ids::{Sequence, StreamId};
use crate::metadata::catalog::Table;
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Maximum number of pages of streams of a segment with checkpoints: with more streams a checkpoint
/// would have mostly short lists, and take too long to write.
const PAGES_MAX: usize = 64;
/// Approximate bytes of a footer for an entry of a leaf or a block.
const ENTRY_BYTES: u64 = 10;

/// The contents of a group's footer.
pub(crate) struct GroupEnd {
    pub(crate) previous: Option<(u64, u32)>,
    pub(crate) sequence: Sequence,
    pub(crate) table: Option<Table>,
    pub(crate) streams: Vec<StreamDelta>,
}

/// A group that is written, not yet committed.
pub(crate) struct ClosedGroup {
    /// The state of the segment after the group.
    pub(crate) state: SegmentState,
    pub(crate) pages: ChangedPages,
    pub(crate) finished: FinishedGroup,
}

/// A checkpoint that was written.
struct WrittenCheckpoint {
    location: CheckpointLocation,
    root: Vec<u8>,
}

/// Ends a group that changes the contents of a segment. `touched` are the earlier pages of all
/// streams that the group changes, sorted.
pub(crate) fn close(
    store: &Store,
    group: &mut GroupWriter,
    state: &SegmentState,
    touched: &[(PageNumber, Arc<Page>)],
    mut end: GroupEnd,
) -> Result<ClosedGroup> {
    group.settle(&mut end.streams)?;
    let (pages, sums) = state.changed(&end.streams, touched)?;
    let (state, finished) = finish(store, group, state, Some(&pages), end, sums)?;
    Ok(ClosedGroup {
        state,
        pages,
        finished,
    })
}

/// Ends a group of streams that are new in the segment; its pages are read when they are needed.
/// `is_whole` = the group is the only one.
pub(crate) fn close_new(
    store: &Store,
    group: &mut GroupWriter,
    state: &SegmentState,
    is_whole: bool,
    mut end: GroupEnd,
) -> Result<(SegmentState, FinishedGroup)> {
    group.settle(&mut end.streams)?;
    let sums = state.sums_with(&end.streams);
    let bytes = estimate(&end.streams);
    let is_due = is_whole && store.paging().is_due(bytes, 0);
    let pages = match is_due {
        true => {
            let mut pages = Vec::new();
            for deltas in state.by_page(&end.streams) {
                let number = deltas.first().map(|delta| state.page_of(delta.stream));
                let page = Page::default().changed(deltas, &mut Sums::default());
                pages.extend(number.map(|number| (number, Arc::new(page))));
            }
            Some(ChangedPages(pages))
        }
        false => None,
    };
    finish(store, group, state, pages.as_ref(), end, sums)
}

/// Approximate bytes of these changes in a footer.
fn estimate(streams: &[StreamDelta]) -> u64 {
    let entries = streams.iter().map(|delta| {
        let late: usize = delta.late_runs.iter().map(Vec::len).sum();
        delta.added.len() + late + delta.added_blocks.len()
    });
    entries.sum::<usize>() as u64 * ENTRY_BYTES
}

/// Writes the rest of a group. `pages` = the pages that the group changes, where a checkpoint may
/// be written.
fn finish(
    store: &Store,
    group: &mut GroupWriter,
    state: &SegmentState,
    pages: Option<&ChangedPages>,
    end: GroupEnd,
    sums: Sums,
) -> Result<(SegmentState, FinishedGroup)> {
    let since = state.bytes_since_checkpoint() + estimate(&end.streams);
    let last_root = state
        .checkpoint()
        .map_or(0, |c| u64::from(c.location.root_bytes));
    let is_due = since >= state.tried_to() && store.paging().is_due(since, last_root);
    let written = match pages {
        Some(pages) if is_due => checkpoint(store, group, (state, pages), &end, since)?,
        _ => None,
    };
    let GroupEnd {
        previous,
        sequence,
        table,
        streams,
    } = end;
    let footer = Footer {
        previous,
        group_offset: group.group_offset(),
        sequence,
        table,
        checkpoint: match &written {
            Some(written) => CheckpointNote::Written(written.location),
            None => CheckpointNote::Nothing,
        },
        streams,
    };
    let (index, finished) = group.finish(&footer, store.page_shift())?;
    let Some(WrittenCheckpoint { location, root }) = written else {
        let mut next = state.with_group(index, footer.table.as_ref(), sums);
        if is_due && pages.is_some() {
            next = next.not_before(since.saturating_mul(2));
        }
        return Ok((next, finished));
    };
    let at = (finished.footer_offset, finished.footer_bytes);
    let read = CheckpointIndex::read(&root, &footer, at, location);
    let read = read.map_err(|e| Error::internal(format!("cannot write {}", e.expected)))?;
    let next = SegmentState::of_checkpoint(state.segment(), store.page_shift(), read, sums);
    Ok((next, finished))
}

/// Writes a checkpoint of the segment's contents after a group, if it is worth its bytes.
fn checkpoint(
    store: &Store,
    group: &mut GroupWriter,
    (state, changed): (&SegmentState, &ChangedPages),
    end: &GroupEnd,
    since: u64,
) -> Result<Option<WrittenCheckpoint>> {
    let mut numbers: Vec<PageNumber> = state.pages().collect();
    numbers.extend(changed.0.iter().map(|(number, _)| *number));
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.len() > PAGES_MAX {
        return Ok(None);
    }
    let mut pages = CheckpointPages::new(store.paging(), group.offset());
    for number in &numbers {
        match page(store, state, changed.page(*number), *number, &mut pages) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(%error, "a group is written without a checkpoint of the index");
                return Ok(None);
            }
            done => done?,
        }
    }
    let sections = state.sections() + state.by_page(&end.streams).count() as u64;
    let newest = end.table.clone().map(Arc::new);
    let front = RootFront {
        group_offset: group.group_offset(),
        sequence: end.sequence,
        index_bytes: state.sums.footer_bytes,
        sections,
        table: newest.or_else(|| state.table.clone()),
    };
    let root = encode_root(&front, &pages.heads);
    if !store
        .paging()
        .is_worth(since, root.len(), pages.bytes.len())
    {
        return Ok(None);
    }
    let length = |bytes: &[u8]| {
        u32::try_from(bytes.len()).map_err(|_| Error::internal("a checkpoint of 4 GiB"))
    };
    let location = CheckpointLocation {
        pages_bytes: length(&pages.bytes)?,
        root_bytes: length(&root)?,
    };
    group.put_checkpoint(&pages.bytes)?;
    group.put_checkpoint(&root)?;
    Ok(Some(WrittenCheckpoint { location, root }))
}

/// Adds the streams of a page to a checkpoint.
fn page(
    store: &Store,
    state: &SegmentState,
    changed: Option<&Page>,
    number: PageNumber,
    pages: &mut CheckpointPages,
) -> Result<()> {
    let known = store.heads(state, number)?;
    let mut push = |stream: StreamId, held: &StreamState| {
        let before = known.binary_search_by_key(&stream, |(stream, _)| *stream);
        let before = before.ok().and_then(|at| known.get(at));
        let before = before.map(|(_, head)| head);
        pages.push(stream, held, before, &mut |offset, bytes| {
            store.read(state.segment(), offset, bytes)
        })
    };
    match changed {
        Some(page) => page
            .iter()
            .try_for_each(|(stream, held)| push(stream, &held)),
        None => store.each_stream(state, number, &mut push),
    }
}
