//! Queries over a whole table that need no names of streams: the number of rows, and the streams
//! with the newest or the oldest rows.
//!
//! Reads go through the pages of the table's segments, not through its streams. Spans that are not
//! plain (rows that may replace others, are deleted, have expired or were aged away, events in
//! memory) are read by stream, with the same answers.
//!
//! Invariants: as `Snapshot::summary` counts rows and `Snapshot::last_row_in` finds them;
//! partitions of a shard share no instant, so the rows of a stream in a partition are counted
//! independently. Concurrency, failure: as in [`super`].

use super::Bins;
use super::ends::RangeEnd;
use super::single::{ResolvedStream, SingleSnapshot};
use super::summary::SummarySpec;
use crate::common::ids::{ShardIndex, StreamId};
use crate::metadata::catalog::{Table, decode_stream_key};
use crate::storage::segment::{LeafEntry, Partition, StreamState};
use crate::{Error, Result};
use headwater_types::{ClosedRange, StreamName, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Called while a loop goes through many streams: false ends the work, since the client
/// disconnected.
pub(super) type ContinueCheck<'a> = &'a mut dyn FnMut() -> bool;

/// Returns true for a stream that may be in the result, by name.
pub(super) type Accepts<'a> = &'a mut dyn FnMut(&StreamName) -> Result<bool>;

/// A request for the outermost rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutermostSpec {
    /// The requested instants, both ends included.
    pub range: ClosedRange,
    /// True for the newest rows, false for the oldest.
    pub newest: bool,
    /// Maximum number of streams.
    pub limit: usize,
}

impl OutermostSpec {
    /// Distance of an instant towards the end: larger is further out.
    pub(super) fn far(&self, at: Timestamp) -> i64 {
        match self.newest {
            true => at.as_nanos(),
            // The reverse order of instants, without an overflow.
            false => !at.as_nanos(),
        }
    }

    /// The end of the range to look from.
    pub(super) fn end(&self) -> RangeEnd {
        match self.newest {
            true => RangeEnd::Last,
            false => RangeEnd::First,
        }
    }
}

/// The search for the outermost rows of a table.
struct Search<'a, 'b> {
    snapshot: &'a SingleSnapshot,
    table: &'a Arc<Table>,
    accepts: Option<Accepts<'b>>,
    found: Outermost,
}

impl Search<'_, '_> {
    /// Distance of the outermost row of a stream.
    fn exact(&self, shard: &ShardQuery<'_>, stream: StreamId) -> Result<Option<i64>> {
        let spec = &self.found.spec;
        let side = spec.end();
        let at = self
            .snapshot
            .row_found(shard.stream(stream)?, spec.range, side)?;
        Ok(at.map(|at| spec.far(at)))
    }

    /// Adds a stream to the result, if it is accepted.
    fn take(&mut self, shard: &ShardQuery<'_>, stream: StreamId, far: i64) -> Result<()> {
        if !self.found.admits(far) {
            return Ok(());
        }
        if let Some(accepts) = &mut self.accepts {
            let name = self.snapshot.name_of(self.table, stream)?;
            if !name.map_or(Ok(false), |name| accepts(&name))? {
                return Ok(());
            }
        }
        self.found.put(far, stream, shard.index);
        Ok(())
    }

    /// Adds the streams in memory, which mostly have the newest rows.
    fn memory(
        &mut self,
        shards: &[ShardQuery<'_>],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let range = self.found.spec.range;
        let mut in_memory: Vec<(i64, &ShardQuery<'_>, StreamId)> = Vec::new();
        for shard in shards {
            let meeting = shard.in_memory.iter();
            let meeting = meeting.filter(|(_, span)| span.overlaps(&range));
            let far = |span: &ClosedRange| self.found.end(span);
            in_memory.extend(meeting.map(|(stream, span)| (far(span), shard, *stream)));
        }
        in_memory.sort_unstable_by_key(|(far, _, stream)| (std::cmp::Reverse(*far), *stream));
        for (far, shard, stream) in in_memory {
            if !self.found.admits(far) || !goes_on() {
                break;
            }
            if let Some(far) = self.exact(shard, stream)? {
                self.take(shard, stream, far)?;
            }
        }
        Ok(())
    }

    /// Adds the streams of a partition; false when the caller cancelled.
    fn partition(
        &mut self,
        shard: &ShardQuery<'_>,
        partition: &Arc<Partition>,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let range = self.found.spec.range;
        let store = &self.snapshot.core().store;
        let state = store.state(partition)?;
        let is_plain = shard.is_plain(partition);
        for page in state.pages() {
            if !goes_on() {
                return Ok(false);
            }
            store.each_stream(&state, page, &mut |stream, held| {
                let meeting = leaves(held).map(LeafEntry::range);
                let meeting = meeting.filter(|span| span.overlaps(&range));
                let Some(far) = meeting.map(|span| self.found.end(&span)).max() else {
                    return Ok(());
                };
                // Another partition, or memory, has the stream with a row further out.
                if !self.found.admits(far) || self.found.contains(stream) {
                    return Ok(());
                }
                let is_inside = |l: &LeafEntry| l.range().intersect(&range) == l.range();
                let plain =
                    is_plain && shard.is_plain_state(stream, held) && leaves(held).all(is_inside);
                let far = if plain {
                    Some(far)
                } else {
                    self.exact(shard, stream)?
                };
                match far {
                    Some(far) => self.take(shard, stream, far),
                    None => Ok(()),
                }
            })?;
        }
        Ok(true)
    }
}

/// A shard, as seen by a query over a table.
struct ShardQuery<'a> {
    snapshot: &'a SingleSnapshot,
    table: &'a Arc<Table>,
    index: ShardIndex,
    /// Streams with events in memory, by number.
    in_memory: Vec<(StreamId, ClosedRange)>,
    /// True when deleted events of the table may still be stored.
    has_deletes: bool,
}

impl<'a> ShardQuery<'a> {
    fn all(snapshot: &'a SingleSnapshot, table: &'a Arc<Table>) -> Vec<ShardQuery<'a>> {
        let shards = snapshot.core().shards.indices();
        let seen = shards.zip(&snapshot.shards).map(|(index, seen)| {
            let mut deletes = seen.tombstones.iter();
            let in_memory = match snapshot.core().shards.get(index) {
                Ok(shard) => shard.state.lock().streams_of(table.id),
                Err(_) => Vec::new(),
            };
            ShardQuery {
                snapshot,
                table,
                index,
                in_memory,
                has_deletes: deletes.any(|t| t.table == table.id && t.sequence <= snapshot.at()),
            }
        });
        seen.collect()
    }

    fn stream(&self, stream: StreamId) -> Result<ResolvedStream<'a>> {
        self.snapshot.resolved(self.table, self.index, stream)
    }

    fn is_in_memory(&self, stream: StreamId) -> bool {
        let found = self.in_memory.binary_search_by_key(&stream, |(s, _)| *s);
        found.is_ok()
    }

    /// The partitions that meet a range, except those that need not be read.
    fn partitions(&self, range: &ClosedRange) -> Result<Vec<Arc<Partition>>> {
        let seen = self.stream(StreamId::default())?.snapshot;
        let mut gone: Vec<ClosedRange> = seen
            .tombstones
            .iter()
            .filter(|t| t.table == self.table.id && t.streams.is_none())
            .filter(|t| t.sequence <= self.snapshot.at())
            .map(|t| t.range)
            .collect();
        if let Some(last) = self.table.lifetime.retention_cutoff.last_before() {
            gone.push(ClosedRange::new(Timestamp::MIN, last));
        }
        let swallowed = |p: &Partition| {
            let inside = p.span().intersect(range);
            gone.iter().any(|gone| gone.intersect(&inside) == inside)
        };
        let all = seen.partitions.overlapping(self.table.id, range);
        let left = all.filter(|p| p.unreadable.is_none() || !swallowed(p));
        Ok(left.cloned().collect())
    }

    /// True when all rows of this partition that a reader sees are in its leaves, for streams
    /// without an entry in `state`.
    fn is_plain(&self, partition: &Partition) -> bool {
        !self.has_deletes
            && !self.table.lifetime.expires
            && partition.piece.is_none()
            && !self
                .table
                .lifetime
                .retention_cutoff
                .ends(partition.span().first)
    }

    fn is_plain_state(&self, stream: StreamId, state: &StreamState) -> bool {
        !state.is_aged()
            && (self.table.keeps_duplicates() || state.late.is_empty())
            && !self.is_in_memory(stream)
    }

    /// The rows of a stream in a range.
    fn rows(&self, stream: StreamId, range: ClosedRange) -> Result<u64> {
        let spec = SummarySpec {
            range,
            bins: Bins::Whole,
            fields: Vec::new(),
        };
        let bins = self.snapshot.summary_found(self.stream(stream)?, &spec)?;
        Ok(bins.iter().map(|bin| bin.rows).sum())
    }
}

fn leaves(state: &StreamState) -> impl Iterator<Item = &LeafEntry> {
    state.main.iter().chain(state.late.iter().flatten())
}

/// The result so far: the streams with the outermost rows.
struct Outermost {
    /// By distance, the nearest first.
    candidates: BTreeSet<(i64, StreamId, ShardIndex)>,
    spec: OutermostSpec,
    /// Distance that a row must reach to be among the results.
    floor: Option<i64>,
}

impl Outermost {
    /// The outermost instant of a span at the requested end, inside the range.
    fn end(&self, span: &ClosedRange) -> i64 {
        let inside = span.intersect(&self.spec.range);
        self.spec.far(if self.spec.newest {
            inside.last
        } else {
            inside.first
        })
    }

    /// True when a row at this distance would be among the results.
    fn admits(&self, far: i64) -> bool {
        self.floor.is_none_or(|floor| floor < far)
            && (self.candidates.len() < self.spec.limit
                || self.candidates.first().is_some_and(|h| h.0 < far))
    }

    fn contains(&self, stream: StreamId) -> bool {
        self.candidates.iter().any(|(_, held, _)| *held == stream)
    }

    fn put(&mut self, far: i64, stream: StreamId, shard: ShardIndex) {
        self.candidates.insert((far, stream, shard));
        if self.candidates.len() > self.spec.limit {
            self.candidates.pop_first();
        }
    }
}

impl SingleSnapshot {
    pub(super) fn resolved<'a>(
        &'a self,
        table: &'a Arc<Table>,
        shard_index: ShardIndex,
        stream: StreamId,
    ) -> Result<ResolvedStream<'a>> {
        let Some(seen) = self.shards.get(usize::from(shard_index.0)) else {
            return Err(Error::internal("a snapshot without one of the shards"));
        };
        Ok(ResolvedStream {
            table,
            stream,
            shard_index,
            shard: self.core().shards.get(shard_index)?,
            snapshot: seen,
        })
    }

    /// As `Snapshot::row_count`.
    pub(super) fn row_count(
        &self,
        table: &str,
        range: ClosedRange,
        goes_on: ContinueCheck<'_>,
    ) -> Result<Option<u64>> {
        let table = self.table(table)?;
        let mut rows = 0;
        for shard in ShardQuery::all(self, table) {
            for (stream, _) in &shard.in_memory {
                if !goes_on() {
                    return Ok(None);
                }
                rows += shard.rows(*stream, range)?;
            }
            for partition in shard.partitions(&range)? {
                let store = &self.core().store;
                let state = store.state(&partition)?;
                let inside = partition.span().intersect(&range);
                let is_plain = shard.is_plain(&partition);
                for page in state.pages() {
                    if !goes_on() {
                        return Ok(None);
                    }
                    store.each_stream(&state, page, &mut |stream, held| {
                        if shard.is_in_memory(stream) {
                            return Ok(());
                        }
                        let is_inside = |l: &LeafEntry| l.range().intersect(&range) == l.range();
                        let plain = is_plain
                            && shard.is_plain_state(stream, held)
                            && leaves(held).all(is_inside);
                        rows += match plain {
                            true => leaves(held).map(|l| u64::from(l.count)).sum(),
                            false => shard.rows(stream, inside)?,
                        };
                        Ok(())
                    })?;
                }
            }
        }
        Ok(Some(rows))
    }

    /// As `Snapshot::outermost_streams`.
    pub(super) fn outermost_streams(
        &self,
        table: &str,
        spec: &OutermostSpec,
        accepts: Option<Accepts<'_>>,
        goes_on: ContinueCheck<'_>,
    ) -> Result<Vec<StreamName>> {
        let found = self.outermost(table, spec, accepts, goes_on, None)?;
        let names = found.into_iter().flatten();
        Ok(names.map(|(_, name)| name).collect())
    }

    /// The streams with their distances, the furthest first; only distances beyond `floor`. `None`
    /// when the caller cancelled.
    pub(super) fn outermost(
        &self,
        table: &str,
        spec: &OutermostSpec,
        accepts: Option<Accepts<'_>>,
        goes_on: ContinueCheck<'_>,
        floor: Option<i64>,
    ) -> Result<Option<Vec<(i64, StreamName)>>> {
        let table = self.table(table)?;
        if spec.limit == 0 || spec.range.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let shards = ShardQuery::all(self, table);
        let mut search = Search {
            snapshot: self,
            table,
            accepts,
            found: Outermost {
                candidates: BTreeSet::new(),
                spec: *spec,
                floor,
            },
        };
        search.memory(&shards, goes_on)?;
        let mut partitions = Vec::new();
        for shard in &shards {
            let own = shard.partitions(&spec.range)?.into_iter();
            partitions.extend(own.map(|p| (search.found.end(&p.span()), shard, p)));
        }
        partitions.sort_by_key(|(far, ..)| std::cmp::Reverse(*far));
        for (far, shard, partition) in partitions {
            if !search.found.admits(far) {
                break;
            }
            if !search.partition(shard, &partition, goes_on)? {
                return Ok(None);
            }
        }
        let mut names = Vec::with_capacity(search.found.candidates.len());
        for (far, stream, _) in search.found.candidates.iter().rev() {
            let name = self.name_of(table, *stream)?;
            names.extend(name.map(|name| (*far, name)));
        }
        Ok(Some(names))
    }

    fn name_of(&self, table: &Table, stream: StreamId) -> Result<Option<StreamName>> {
        let core = self.core();
        let Some(key) = core.catalog.stream_key_of(&*core.meta, stream)? else {
            return Ok(None);
        };
        let name = decode_stream_key(&table.name, &key);
        name.map(Some)
            .map_err(|e| Error::decode(core.meta.path(), 0, e))
    }
}
