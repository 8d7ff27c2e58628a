//! Reads pages: the contents of a segment for a range of streams, folded from its footers.
//!
//! For a page that is not cached each group that changed it has to be read, which takes a hundred
//! times as long as a lookup of one of its streams. A reader of all streams, one after the other,
//! reads the streams of one page first: so the most recently folded pages are cached unpacked. When
//! they are evicted they are packed ([`Page`]) and cached, as long as they fit. Reads of a part of
//! a large stream use [`super::stream_contents`].
//!
//! Invariants: a version of a page is in [`FreshPages`] or among the packed ones, or has to be
//! folded; its contents are the same from each source. Concurrency, failure: as in [`super`].

use super::super::format::{Cover, Parts, StreamDelta};
use super::super::index::{PageNumber, SegmentState};
use super::super::page::Page;
use super::super::state::StreamState;
use super::Store;
use crate::common::ids::{SegmentId, Sequence, StreamId};
use crate::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A version of a page, by the offset of the newest footer that changed it.
type PageKey = (SegmentId, PageNumber, u64);

/// The streams of a page, sorted.
pub(super) type Streams = Arc<Vec<(StreamId, Arc<StreamState>)>>;

/// A few pages, unpacked.
#[derive(Debug)]
pub(super) struct FreshPages {
    count_max: usize,
    pages: Mutex<VecDeque<(PageKey, Streams)>>,
}

impl FreshPages {
    pub(super) fn new(count_max: usize) -> FreshPages {
        FreshPages {
            count_max,
            pages: Mutex::default(),
        }
    }

    fn get(&self, key: PageKey) -> Option<Streams> {
        let pages = self.pages.lock();
        let (_, streams) = pages.iter().find(|(k, _)| *k == key)?;
        Some(Arc::clone(streams))
    }

    /// Inserts a page; returns the evicted one.
    fn put(&self, key: PageKey, streams: Streams) -> Option<(PageKey, Streams)> {
        let mut pages = self.pages.lock();
        if pages.iter().any(|(k, _)| *k == key) {
            // Two readers have folded the page at the same time.
            return None;
        }
        pages.push_back((key, streams));
        if pages.len() > self.count_max {
            pages.pop_front()
        } else {
            None
        }
    }

    /// Removes the pages of a segment.
    pub(super) fn forget(&self, id: SegmentId) {
        self.pages
            .lock()
            .retain(|((segment, ..), _)| *segment != id);
    }
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
        if let Some(known) = self.known(state, page, version) {
            return Ok(known.stream(stream));
        }
        let streams = self.put_together(state, page)?;
        let found = found(&streams, stream);
        if let Some((key, streams)) = self.fresh.put(key, streams)
            && self.pages.admits()
        {
            self.keep_packed(key, &streams);
        }
        Ok(found)
    }

    /// A page, if it is cached.
    pub(super) fn known(
        &self,
        state: &SegmentState,
        page: PageNumber,
        version: u64,
    ) -> Option<CachedPage> {
        let id = state.segment();
        if let Some(streams) = self.fresh.get((id, page, version)) {
            return Some(CachedPage::Fresh(streams));
        }
        let packed = self.pages.get((id, page), version)?;
        Some(CachedPage::Packed(packed))
    }

    /// The contents of a segment for the streams of a page.
    pub(crate) fn page(&self, state: &SegmentState, page: PageNumber) -> Result<Arc<Page>> {
        let id = state.segment();
        let Some(version) = state.version(page) else {
            return Ok(Arc::default());
        };
        if let Some(content) = self.pages.get((id, page), version) {
            return Ok(content);
        }
        let key = (id, page, version);
        let streams = match self.fresh.get(key) {
            Some(streams) => streams,
            None => self.put_together(state, page)?,
        };
        Ok(self.keep_packed(key, &streams))
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
        if let Some(content) = self.pages.get((id, page), version) {
            return content.iter().try_for_each(|(s, state)| each(s, &state));
        }
        let streams = match self.fresh.get((id, page, version)) {
            Some(streams) => streams,
            None => self.put_together(state, page)?,
        };
        streams.iter().try_for_each(|(s, state)| each(*s, state))
    }

    fn keep_packed(&self, (id, page, version): PageKey, streams: &Streams) -> Arc<Page> {
        let content = Arc::new(Page::of(streams.iter().cloned()));
        self.pages
            .put((id, page), version, Arc::clone(&content), content.weight());
        content
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
            streams.insert(stream, self.whole(state.segment(), head)?);
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
            let (offset, bytes) = group.place(page).ok_or_else(|| {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(segment: u64, page: PageNumber, version: u64) -> PageKey {
        (SegmentId(segment), page, version)
    }

    #[test]
    fn the_first_page_makes_room_and_is_handed_back() {
        let fresh = FreshPages::new(2);
        let of = |stream: u32| Arc::new(vec![(StreamId(stream), Arc::default())]);
        let keys = [key(7, 0, 64), key(7, 1, 64), key(7, 1, 99), key(8, 1, 64)];
        assert!(fresh.put(keys[0], of(0)).is_none());
        assert!(fresh.put(keys[1], of(1)).is_none());
        // The same page once more: nothing is evicted.
        assert!(fresh.put(keys[0], of(5)).is_none());
        let streams = fresh.get(keys[0]).unwrap();
        assert!(found(&streams, StreamId(0)).is_some() && found(&streams, StreamId(5)).is_none());
        // Another version of a page is another entry.
        assert_eq!(fresh.put(keys[2], of(2)).unwrap().0, keys[0]);
        assert!(fresh.get(keys[0]).is_none() && fresh.get(keys[1]).is_some());
        assert_eq!(fresh.put(keys[3], of(3)).unwrap().0, keys[1]);
        fresh.forget(SegmentId(7));
        assert!(fresh.get(keys[2]).is_none() && fresh.get(keys[3]).is_some());
    }
}
