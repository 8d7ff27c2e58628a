//! Reads pages: the contents of a segment for a range of streams, folded from its footers.
//!
//! For a page that is not cached each group that changed it has to be read, which takes a hundred
//! times as long as a lookup of one of its streams. A reader of all streams, one after the other,
//! reads the streams of one page first: so the most recently folded pages are cached unpacked. When
//! they are evicted they are packed ([`Page`]) and cached, as long as they fit. Reads of a part of
//! a large stream use [`super::stream_contents`].
//!
//! Invariants: a version of a page is in [`super::fresh_pages`] or among the packed ones, or has to
//! be folded; its contents are the same from each source. Concurrency, failure: as in [`super`].

use super::super::format::{Cover, Parts, StreamDelta};
use super::super::index::{PageNumber, SegmentState};
use super::super::page::Page;
use super::super::state::StreamState;
use super::Store;
use super::fresh_pages::{PageKey, Streams};
use super::read_cache::RecentPart;
use crate::common::ids::{Sequence, StreamId};
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Packs a page, and inserts it into the cache.
fn keep_packed(
    pages: &RecentPart<Page>,
    (id, page, version): PageKey,
    streams: &Streams,
) -> Arc<Page> {
    let content = Arc::new(Page::of(streams.iter().cloned()));
    let bytes = content.weight();
    pages.put((id, page), version, Arc::clone(&content), bytes);
    content
}

/// The state of a stream in a page.
fn found(streams: &[(StreamId, Arc<StreamState>)], stream: StreamId) -> Option<Arc<StreamState>> {
    let at = streams.binary_search_by_key(&stream, |(s, _)| *s).ok()?;
    streams.get(at).map(|(_, state)| Arc::clone(state))
}

/// A cached page.
pub(super) enum CachedPage {
    Fresh(Streams),
    Packed(Arc<Page>),
}

impl CachedPage {
    pub(super) fn stream(&self, stream: StreamId) -> Option<Arc<StreamState>> {
        match self {
            CachedPage::Fresh(streams) => found(streams, stream),
            CachedPage::Packed(page) => page.stream(stream),
        }
    }
}

impl Store {
    /// The contents of a segment for a stream.
    pub(crate) fn stream(
        &self,
        state: &SegmentState,
        stream: StreamId,
    ) -> Result<Option<Arc<StreamState>>> {
        let page = state.page_of(stream);
        let Some(version) = state.version(page) else {
            return Ok(None);
        };
        let key = (state.segment(), page, version);
        if let Some(known) = self.cached(state, page, version) {
            return Ok(known.stream(stream));
        }
        let streams = self.put_together(state, page)?;
        let found = found(&streams, stream);
        if let Some(((store, key), streams)) = self.cache.fresh.put(key, streams)
            && self.cache.pages.admits()
        {
            keep_packed(&self.cache.pages.of(store), key, &streams);
        }
        Ok(found)
    }

    /// A page, if it is cached.
    pub(super) fn cached(
        &self,
        state: &SegmentState,
        page: PageNumber,
        version: u64,
    ) -> Option<CachedPage> {
        let id = state.segment();
        if let Some(streams) = self.cache.fresh.get((id, page, version)) {
            return Some(CachedPage::Fresh(streams));
        }
        let packed = self.cache.pages.get((id, page), version)?;
        Some(CachedPage::Packed(packed))
    }

    /// The contents of a segment for the streams of a page.
    pub(crate) fn page(&self, state: &SegmentState, page: PageNumber) -> Result<Arc<Page>> {
        let id = state.segment();
        let Some(version) = state.version(page) else {
            return Ok(Arc::default());
        };
        if let Some(content) = self.cache.pages.get((id, page), version) {
            return Ok(content);
        }
        let key = (id, page, version);
        let streams = match self.cache.fresh.get(key) {
            Some(streams) => streams,
            None => self.put_together(state, page)?,
        };
        Ok(keep_packed(&self.cache.pages, key, &streams))
    }

    /// Passes on the contents of a segment for every stream of a page, by number. For readers that
    /// go through all pages once: nothing new is cached.
    pub(crate) fn each_stream(
        &self,
        state: &SegmentState,
        page: PageNumber,
        each: &mut dyn FnMut(StreamId, &StreamState) -> Result<()>,
    ) -> Result<()> {
        let id = state.segment();
        let Some(version) = state.version(page) else {
            return Ok(());
        };
        if let Some(content) = self.cache.pages.get((id, page), version) {
            return content.iter().try_for_each(|(s, state)| each(s, &state));
        }
        let streams = match self.cache.fresh.get((id, page, version)) {
            Some(streams) => streams,
            None => self.put_together(state, page)?,
        };
        streams.iter().try_for_each(|(s, state)| each(*s, state))
    }

    fn put_together(&self, state: &SegmentState, page: PageNumber) -> Result<Streams> {
        let streams = match self.page_of(state, page) {
            Err(error) if error.kind() == ErrorKind::Corrupt && state.checkpoint().is_some() => {
                self.page_of_footers(state, page, &error)?
            }
            streams => streams?,
        };
        let streams = streams.into_iter();
        Ok(Arc::new(
            streams.map(|(s, state)| (s, Arc::new(state))).collect(),
        ))
    }

    /// The heads of the streams of a page in the checkpoint, and the changes by groups since.
    pub(super) fn page_of(
        &self,
        state: &SegmentState,
        page: PageNumber,
    ) -> Result<BTreeMap<StreamId, StreamState>> {
        let mut streams: BTreeMap<StreamId, StreamState> = BTreeMap::new();
        for (stream, head) in self.heads(state, page)? {
            streams.insert(stream, self.full_state(state.segment(), head)?);
        }
        self.page_changes(state, page, Parts::State, |delta| {
            streams.entry(delta.stream).or_default().take(delta);
        })?;
        Ok(streams)
    }

    /// The changes of the streams of a page by groups since the checkpoint, oldest first.
    pub(super) fn page_changes(
        &self,
        state: &SegmentState,
        page: PageNumber,
        parts: Parts,
        mut each: impl FnMut(StreamDelta),
    ) -> Result<()> {
        let id = state.segment();
        for group in state.groups_of(page) {
            let (offset, bytes) = group.location(page).ok_or_else(|| {
                Error::internal(format!("a group without page {} that it changed", page))
            })?;
            let raw = self.read(id, offset, bytes)?;
            group
                .each_change(page, &raw, parts, &mut each)
                .map_err(|e| {
                    let error = Error::decode(&self.path(id), offset, e);
                    // With a directory, an earlier reader may not have checked the whole footer.
                    self.distrust(id, &error);
                    error
                })?;
        }
        Ok(())
    }

    /// Covers of the streams of a page with a sequence above `after`.
    pub(crate) fn page_covers(
        &self,
        state: &SegmentState,
        page: PageNumber,
        after: Sequence,
    ) -> Result<Vec<(StreamId, Cover)>> {
        let mut out = Vec::new();
        self.page_changes(state, page, Parts::All, |delta| {
            let newer = delta.covers.iter().filter(|c| c.sequence > after);
            out.extend(newer.map(|c| (delta.stream, *c)));
        })?;
        // A checkpoint has no covers. Covers that replay may need are in the newest groups.
        if let Some(checkpoint) = state.checkpoint()
            && checkpoint.front.sequence > after
        {
            let before = self.covers_from(state.segment(), checkpoint.footer, after)?;
            let of_page = |(stream, _): &(StreamId, Cover)| state.page_of(*stream) == page;
            out.extend(before.into_iter().filter(of_page));
        }
        Ok(out)
    }
}

/// Looks up streams of a state one after the other, by number, and remembers their pages as of
/// before a job.
pub(crate) struct PageCursor<'a> {
    store: &'a Store,
    state: &'a SegmentState,
    touched: Vec<(PageNumber, Arc<Page>)>,
}

impl<'a> PageCursor<'a> {
    pub(crate) fn new(store: &'a Store, state: &'a SegmentState) -> PageCursor<'a> {
        PageCursor {
            store,
            state,
            touched: Vec::new(),
        }
    }

    /// The contents of the segment for a stream, whose number is not below the previous one.
    pub(crate) fn stream(&mut self, stream: StreamId) -> Result<Option<Arc<StreamState>>> {
        let number = self.state.page_of(stream);
        if let Some((last, page)) = self.touched.last()
            && *last == number
        {
            return Ok(page.stream(stream));
        }
        let page = self.store.page(self.state, number)?;
        let found = page.stream(stream);
        self.touched.push((number, page));
        Ok(found)
    }

    /// The pages that were looked up, sorted.
    pub(crate) fn touched(self) -> Vec<(PageNumber, Arc<Page>)> {
        self.touched
    }
}
