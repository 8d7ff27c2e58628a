//! Reads the contents of a segment for a stream in parts: heads and pages of checkpoints.
//!
//! Invariants: a checkpoint that was detected as damaged is not read again: its contents are folded
//! from the footers from then on, which are all read and checked completely. Concurrency: as in
//! [`super`]. Failure: damage of a checkpoint is a warning, as long as the footers can be read.

use super::super::checkpoint::{CheckpointIndex, PageEntries, PageLocation, StreamHead};
use super::super::format::{CheckpointLocation, Footer, Parts};
use super::super::index::{PageNumber, SegmentState};
use super::super::state::StreamState;
use super::super::stream_contents::{IndexPages, PagedStream, StreamContents};
use super::footers::Footers;
use super::{FileOffset, Store};
use crate::common::error::Damage;
use crate::common::ids::{SegmentId, StreamId};
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Store {
    /// The checkpoint that a footer refers to; `None` when it should not be used.
    pub(super) fn checkpoint(
        &self,
        id: SegmentId,
        footer: &Footer,
        at: (u64, u32),
        place: CheckpointLocation,
    ) -> Result<Option<CheckpointIndex>> {
        if self.distrusted.lock().contains(&id) {
            return Ok(None);
        }
        match self.read_checkpoint(id, footer, at, place) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.distrust(id, &error);
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    fn read_checkpoint(
        &self,
        id: SegmentId,
        footer: &Footer,
        at: (u64, u32),
        place: CheckpointLocation,
    ) -> Result<CheckpointIndex> {
        let wrong = |e| Error::decode(&self.path(id), at.0, e);
        let root = CheckpointIndex::root_of(at.0, footer, place).map_err(wrong)?;
        let bytes = self.read(id, root, place.root_bytes)?;
        CheckpointIndex::read(&bytes, footer, at, place)
            .map_err(|e| Error::decode(&self.path(id), root, e))
    }

    /// Stops the use of the segment's checkpoints and directories.
    pub(super) fn distrust(&self, id: SegmentId, error: &Error) {
        if self.distrusted.lock().insert(id) {
            tracing::warn!(%error, "the index of a segment is damaged; all its footers are read instead");
        }
        self.cache.states.forget(id);
    }

    /// The heads of the streams of a page in the checkpoint, by number.
    pub(in super::super) fn heads(
        &self,
        state: &SegmentState,
        page: PageNumber,
    ) -> Result<Vec<(StreamId, StreamHead)>> {
        let (first, last) = state.streams_of(page);
        self.heads_between(state, first, last)
    }

    fn heads_between(
        &self,
        state: &SegmentState,
        first: StreamId,
        last: StreamId,
    ) -> Result<Vec<(StreamId, StreamHead)>> {
        let Some(checkpoint) = state.checkpoint() else {
            return Ok(Vec::new());
        };
        let Some((offset, bytes)) = checkpoint.location_of_heads(first, last) else {
            return Ok(Vec::new());
        };
        let raw = self.read(state.segment(), offset, bytes)?;
        checkpoint
            .heads_in(first, last, &raw)
            .map_err(|e| Error::decode(&self.path(state.segment()), offset, e))
    }

    fn read_entries(&self, id: SegmentId, place: &PageLocation) -> Result<PageEntries> {
        let bytes = self.read(id, place.offset, place.bytes)?;
        PageEntries::decode(place, &bytes)
            .map_err(|e| Error::decode(&self.path(id), place.offset, e))
    }

    /// The complete state of a stream in a checkpoint.
    pub(super) fn full_state(&self, id: SegmentId, head: StreamHead) -> Result<StreamState> {
        let mut state = StreamState::default();
        for place in &head.pages {
            match self.read_entries(id, place)? {
                PageEntries::Leaves(leaves) => state.main.extend(leaves),
                PageEntries::Blocks(blocks) => state.blocks.extend(blocks),
            }
        }
        // A list is in pages or here, never in both.
        state.apply(&head.rest);
        state.blocks.sort_by_key(|b| (b.level, b.first_bucket));
        Ok(state)
    }

    /// The contents of a segment for a stream, for readers of a part of them.
    pub(crate) fn stream_contents(
        &self,
        state: &SegmentState,
        stream: StreamId,
    ) -> Result<Option<StreamContents>> {
        let page = state.page_of(stream);
        let Some(version) = state.version(page) else {
            return Ok(None);
        };
        if let Some(known) = self.cached(state, page, version) {
            return Ok(known.stream(stream).map(StreamContents::Full));
        }
        let key = (state.segment(), stream, version);
        if let Some(paged) = self.cache.paged_streams.get(&key) {
            return Ok(Some(StreamContents::Paged(paged)));
        }
        match self.paged(state, page, stream) {
            Ok(Some(paged)) => {
                let paged = Arc::new(paged);
                self.cache.paged_streams.insert(key, Arc::clone(&paged));
                return Ok(Some(StreamContents::Paged(paged)));
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        Ok(self.stream(state, stream)?.map(StreamContents::Full))
    }

    /// `None` when the stream is small: its complete state is read then.
    fn paged(
        &self,
        state: &SegmentState,
        page: PageNumber,
        stream: StreamId,
    ) -> Result<Option<PagedStream>> {
        let mut heads = self.heads_between(state, stream, stream)?;
        let Some((_, head)) = heads.pop().filter(|(_, head)| !head.pages.is_empty()) else {
            return Ok(None);
        };
        let Some(newest) = state.newest_footer() else {
            return Ok(None);
        };
        let mut changes = Vec::new();
        self.page_changes(state, page, Parts::State, |delta| {
            if delta.stream == stream {
                changes.push(delta);
            }
        })?;
        PagedStream::new((state.segment(), stream), newest, head, changes, self).map(Some)
    }

    /// Folds the footers up to one, ignoring checkpoints.
    fn state_of_footers(&self, id: SegmentId, newest: (u64, u32)) -> Result<SegmentState> {
        self.fold_back(id, newest, Footers::Full, &mut |_, _, _| Ok(None))
    }

    /// Locations of a partition's whole index, oldest first: each footer with the checkpoint before
    /// it, offset and length.
    pub(crate) fn indexes(&self, partition: &super::super::Partition) -> Result<Arc<[(u64, u32)]>> {
        let record = &partition.record;
        let newest = (record.footer_offset, record.footer_bytes);
        Ok(self
            .state_of_footers(partition.id(), newest)?
            .indexes()
            .collect())
    }

    /// Folds a page from the footers alone, since a part of the checkpoint is damaged.
    pub(super) fn page_of_footers(
        &self,
        state: &SegmentState,
        page: PageNumber,
        error: &Error,
    ) -> Result<BTreeMap<StreamId, StreamState>> {
        self.distrust(state.segment(), error);
        let newest = state.newest_footer().ok_or_else(|| error.clone())?;
        let plain = self.state_of_footers(state.segment(), newest)?;
        self.page_of(&plain, page)
    }

    /// Verifies that the newest checkpoint of the footers up to one equals their fold; does nothing
    /// without a checkpoint.
    pub(crate) fn verify_checkpoint(&self, id: SegmentId, newest: (u64, u32)) -> Result<()> {
        let mut used = None;
        let state = self.fold_back(id, newest, Footers::Full, &mut |footer, at, place| {
            used = Some(at.0);
            self.read_checkpoint(id, footer, at, place).map(Some)
        })?;
        let Some(offset) = used else {
            return Ok(());
        };
        let plain = self.state_of_footers(id, newest)?;
        let damage = |expected: String, found: String| {
            Err(Error::damage(Damage {
                file: self.path(id),
                offset,
                expected,
                found,
            }))
        };
        if !state.pages().eq(plain.pages()) || state.table != plain.table {
            let found = "different streams, or a different definition".into();
            return damage("a checkpoint that matches the footers".into(), found);
        }
        if state.sums.footer_bytes != plain.sums.footer_bytes {
            let expected = format!("{} bytes of index", plain.sums.footer_bytes);
            return damage(expected, format!("{}", state.sums.footer_bytes));
        }
        for page in state.pages() {
            let (found, expected) = (self.page_of(&state, page)?, self.page_of(&plain, page)?);
            if let Some((stream, _)) = expected.iter().find(|(s, held)| found.get(s) != Some(held))
            {
                return damage(
                    format!(
                        "a checkpoint that matches the footers for stream {}",
                        stream.0
                    ),
                    "different contents".into(),
                );
            }
        }
        Ok(())
    }
}

impl IndexPages for Store {
    fn entries(&self, segment: SegmentId, place: &PageLocation) -> Result<Arc<PageEntries>> {
        let key = FileOffset(segment, place.offset);
        if let Some(entries) = self.cache.index_pages.get(&key) {
            return Ok(entries);
        }
        let entries = Arc::new(self.read_entries(segment, place)?);
        self.cache.index_pages.insert(key, Arc::clone(&entries));
        Ok(entries)
    }

    fn fold(
        &self,
        segment: SegmentId,
        stream: StreamId,
        newest: (u64, u32),
        error: &Error,
    ) -> Result<Arc<StreamState>> {
        self.distrust(segment, error);
        let plain = self.state_of_footers(segment, newest)?;
        let found = self.stream(&plain, stream)?;
        Ok(found.unwrap_or_default())
    }
}
