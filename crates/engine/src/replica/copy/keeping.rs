//! Retention by a copy of data that its source has removed because of its age: partitions that a
//! retention removed, and rows that aging removed. Newly written content never replaces older
//! content that the source removed.
//!
//! A partition that is no longer shown is retained in two kinds of stretches: where the source has
//! no data any more and its retention cutoff has passed, and where the source has only buckets left
//! and this copy has rows. Retained stretches are read beside the partitions that the state names;
//! other partitions are not shown there. Deletes by users at the source also apply to retained
//! stretches and to partitions shown in an earlier version: where the rows of a bucket are missing,
//! to the bucket as a whole.
//!
//! Invariants: a retained segment is not part of the state any more. In retained stretches all data
//! that tiles need is present. Every delete up to the state's sequence is carried out in them, or
//! they are not retained any longer. Concurrency: as for the copy. Failure: damaged partitions are
//! not retained.

use super::pack::Pack;
use super::receive::Receiving;
use super::retained::{Cause, Deleted, RetainedChange, RetainedPartition};
use crate::common::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::common::ranges::{overlapping, union, without};
use crate::metadata::catalog::TableLifetime;
use crate::replication::needed::{Reason, needed};
use crate::replication::state::{State, StateEnds, StatePartition};
use crate::replication::subscriptions::StreamShare;
use crate::storage::segment::{Partition, Store, StreamState};
use crate::storage::tombstone::DeleteRecord;
use crate::{Error, ErrorKind, Result};
use headwater_types::{ByteRange, ClosedRange, Level, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The next state of a retained partition.
enum Next {
    AsBefore,
    Nothing,
    Now(Box<RetainedPartition>),
}

/// A partition of a state, open as far as its bytes are present.
struct OpenPartition<'a> {
    receiving: &'a Receiving,
    partition: &'a StatePartition,
    store: Store,
    pack: Arc<Pack>,
}

impl OpenPartition<'_> {
    fn is_here(&self, offset: u64, bytes: u32) -> bool {
        self.pack.has(ByteRange::at(offset, u64::from(bytes)))
    }

    fn each(&self, each: &mut dyn FnMut(StreamId, &StreamState) -> Result<()>) -> Result<()> {
        let file = self.store.segment_file(self.partition.id);
        let opened = Partition::new(self.partition.record.clone(), file);
        let state = self.store.state(&opened)?;
        for page in state.pages() {
            self.store
                .each_stream(&state, page, &mut |stream, held| each(stream, held))?;
        }
        Ok(())
    }

    /// True when all data that tiles need is present.
    fn has_summaries(&self) -> Result<bool> {
        let receiving = self.receiving;
        let (id, table) = (self.partition.id, self.partition.record.table);
        let subscription = &receiving.subscription;
        if subscription.of_table(table).want == StreamShare::Nothing {
            return Ok(false);
        }
        // Pending deletes would require rows: without rows, whole buckets are deleted here.
        let without_deletes = State {
            name: receiving.state.name,
            openings: Vec::new(),
            shards: receiving.state.shards,
            tables: receiving.state.tables.clone(),
            streams: Arc::default(),
            deletes: Vec::new(),
            newest_deletes: Vec::new(),
            ends: StateEnds::default(),
            partitions: Vec::new(),
        };
        let (store, file) = (&self.store, self.store.segment_file(id));
        let found = needed(store, &without_deletes, self.partition, &file, subscription)?;
        let mut summaries = found.ranges.iter();
        let are_here = summaries.all(|wanted| {
            let range = &wanted.range;
            wanted.reason != Reason::Summaries || self.pack.has(range.byte_range())
        });
        Ok(found.is_complete && are_here)
    }

    /// Ranges with content, and ranges whose rows are present; sorted, disjoint.
    fn content(&self) -> Result<(Vec<ClosedRange>, Vec<ClosedRange>)> {
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        self.each(&mut |_, held| {
            for leaf in held.main.iter().chain(held.late.iter().flatten()) {
                all.push(leaf.range());
                if self.is_here(leaf.offset, leaf.bytes) {
                    rows.push(leaf.range());
                }
            }
            if held.is_aged() {
                let spans = held.blocks.iter();
                all.extend(spans.map(|b| b.level.span(b.first_bucket, b.last_bucket)));
            }
            Ok(())
        })?;
        Ok((union(all), union(rows)))
    }

    /// The form of a delete that can be carried out in the present bytes.
    fn carried_out(&self, delete: &(Sequence, DeleteRecord)) -> Result<Vec<Deleted>> {
        let (sequence, record) = delete;
        let span = self.partition.record.span();
        let tombstone = record.tombstone(*sequence);
        let mut by_range: BTreeMap<(Timestamp, Timestamp), Vec<StreamId>> = BTreeMap::new();
        self.each(&mut |stream, held| {
            if tombstone.concerns(record.table, stream) {
                let range = self.widened(held, &record.range.intersect(&span), &span);
                let range = (range.first, range.last);
                by_range.entry(range).or_default().push(stream);
            }
            Ok(())
        })?;
        let is_of_all = record.streams.is_none() && by_range.len() == 1;
        let deleted = by_range.into_iter().map(|((first, last), mut streams)| {
            streams.sort_unstable();
            let record = DeleteRecord {
                streams: (!is_of_all).then(|| streams.into()),
                range: ClosedRange::new(first, last),
                drops_streams: false,
                ..*record
            };
            (*sequence, record)
        });
        Ok(deleted.collect())
    }

    /// A range, extended at its ends to whole indivisible stretches.
    fn widened(&self, held: &StreamState, range: &ClosedRange, span: &ClosedRange) -> ClosedRange {
        let mut out = *range;
        if range.first > span.first {
            out.first = self.around(held, range.first, span).first;
        }
        if range.last < span.last {
            out.last = self.around(held, range.last, span).last;
        }
        out
    }

    /// The smallest stretch around an instant whose contents are known.
    fn around(&self, held: &StreamState, at: Timestamp, span: &ClosedRange) -> ClosedRange {
        let instant = ClosedRange::new(at, at);
        let Some(base) = held.base.filter(|base| *base != Level::MAX) else {
            // There are only rows, and they are present.
            return instant;
        };
        let bucket = base.bucket_span(base.bucket_of(at));
        let mut leaves = held.main.iter().filter(|l| l.range().overlaps(&bucket));
        if !held.is_aged() && leaves.all(|leaf| self.is_here(leaf.offset, leaf.bytes)) {
            return instant;
        }
        let mut levels: Vec<Level> = held.blocks.iter().map(|block| block.level).collect();
        levels.dedup();
        let known = levels.into_iter().find(|level| {
            let number = level.bucket_of(at);
            let holds = |b: &&crate::storage::segment::BlockEntry| {
                (b.first_bucket..=b.last_bucket).contains(&number)
            };
            let block = held.blocks_of(*level).iter().find(holds);
            block.is_some_and(|block| self.is_here(block.offset, block.bytes))
        });
        known.map_or(*span, |level| {
            let bucket = level.bucket_span(level.bucket_of(at));
            bucket.intersect(span)
        })
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Elsewhere)
}

/// Replaces damaged data by `otherwise`: it is not retained.
fn unless_damaged<T>(result: Result<T>, otherwise: T) -> Result<T> {
    match result {
        Err(error) if is_damage(&error) => {
            tracing::warn!(%error, "cannot retain data that the source has removed");
            Ok(otherwise)
        }
        other => other,
    }
}

impl Receiving {
    fn opened<'a>(&'a self, partition: &'a StatePartition) -> OpenPartition<'a> {
        OpenPartition {
            receiving: self,
            partition,
            store: self.store(&[partition]),
            pack: self.pack(partition.id),
        }
    }

    /// The changes of retained data, when `shown` is shown from now on, and `before` was the
    /// previous state.
    pub(super) fn retained_change(
        &self,
        shown: &[StatePartition],
        before: &State,
    ) -> Result<RetainedChange> {
        let mut change = RetainedChange::default();
        for (id, retained) in &self.retained {
            match unless_damaged(self.retain_further(retained, before), Next::Nothing)? {
                Next::AsBefore => {}
                Next::Nothing => change.removed.push(*id),
                Next::Now(next) => change.put.push(*next),
            }
        }
        let is_gone = |p: &&StatePartition| shown.iter().all(|now| now.id != p.id);
        let is_unnamed = |p: &&StatePartition| self.state.partition(p.id).is_none();
        let gone = self.shown.iter().filter(is_gone).filter(is_unnamed);
        for partition in gone {
            let retained = unless_damaged(self.ended(partition, before), None)?;
            change.put.extend(retained);
        }
        Ok(change)
    }

    /// The lifetime policy of a table whose data may be retained.
    fn retained_policy(&self, table: TableId) -> Option<TableLifetime> {
        let lifetime = self.state.table(table).map(|table| table.lifetime);
        lifetime.filter(|lifetime| !lifetime.dropped && self.subscription.retains())
    }

    /// True when the lifetime of a table's retained data has ended here, too.
    fn has_ended(&self, lifetime: &TableLifetime) -> impl Fn(Cause, Timestamp) -> bool + use<> {
        let aged_to = lifetime.aged_to.max(lifetime.aged_to_max);
        let cut = self.subscription.retained_from(lifetime.retention_cutoff);
        let aged_to = self.subscription.retained_from(aged_to);
        move |cause, last| match cause {
            Cause::Cut => cut.ends(last),
            Cause::Aged => aged_to.ends(last),
        }
    }

    /// Deletes since a state that may concern a partition which this state does not name; `None`
    /// when they are not known.
    fn deletes_since(&self, partition: &StatePartition, before: &State) -> Option<Vec<Deleted>> {
        let (record, state) = (&partition.record, &self.state);
        let told = Sequence(before.name.sequence);
        let newest = state.newest_delete(record.table);
        let since = state.ends.since(told, (record.table, newest))?;
        let named = before.partition(partition.id);
        let is_named = named.is_some_and(|named| named.is_same(partition));
        // Deletes that were pending then were listed beside the named partitions.
        let waiting = before.deletes.iter().filter(|_| is_named).cloned();
        let span = record.span();
        let concerns = |(sequence, delete): &Deleted| {
            *sequence > record.sequence
                && delete.table == record.table
                && delete.range.overlaps(&span)
        };
        Some(waiting.chain(since).filter(concerns).collect())
    }

    /// True when the deletes in a partition that was shown until now are known.
    pub(super) fn deletes_known(&self, partition: &StatePartition, before: &State) -> bool {
        self.deletes_since(partition, before).is_some()
    }

    /// The forms of deletes that can be carried out in a partition.
    fn carried_out(
        &self,
        partition: &StatePartition,
        deletes: Vec<Deleted>,
    ) -> Result<Vec<Deleted>> {
        let opened = self.opened(partition);
        let mut out = Vec::new();
        for delete in deletes {
            match opened.carried_out(&delete) {
                // Its contents cannot be distinguished at all.
                Err(error) if is_damage(&error) => {
                    let (sequence, record) = delete;
                    let range = partition.record.span();
                    let streams = None;
                    let record = DeleteRecord {
                        streams,
                        range,
                        ..record
                    };
                    out.push((sequence, record));
                }
                carried_out => out.extend(carried_out?),
            }
        }
        Ok(out)
    }

    /// The deletes in partitions that are shown in a version which the state does not name.
    pub(super) fn deleted_of(
        &self,
        shown: &[StatePartition],
        before: &State,
    ) -> Result<BTreeMap<SegmentId, Vec<Deleted>>> {
        let is_named = |p: &&StatePartition| {
            let named = self.state.partition(p.id);
            named.is_some_and(|named| named.is_same(p))
        };
        let mut deleted = BTreeMap::new();
        for partition in shown.iter().filter(|p| !is_named(p)) {
            let known = self.deleted.get(&partition.id).cloned();
            let mut all = known.unwrap_or_default();
            let deletes_since = self.deletes_since(partition, before).unwrap_or_default();
            all.extend(self.carried_out(partition, deletes_since)?);
            if !all.is_empty() {
                deleted.insert(partition.id, all);
            }
        }
        Ok(deleted)
    }

    /// Continues to retain a partition, except for expired and deleted data.
    fn retain_further(&self, retained: &RetainedPartition, before: &State) -> Result<Next> {
        let Some(lifetime) = self.retained_policy(retained.partition.record.table) else {
            return Ok(Next::Nothing);
        };
        let Some(deletes) = self.deletes_since(&retained.partition, before) else {
            tracing::warn!(
                segment = retained.partition.id.0,
                "the source no longer reports the deletes; retained data is dropped"
            );
            return Ok(Next::Nothing);
        };
        let has_ended = self.has_ended(&lifetime);
        let mut stretches = retained.stretches.iter();
        if deletes.is_empty() && !stretches.any(|(cause, range)| has_ended(*cause, range.last)) {
            return Ok(Next::AsBefore);
        }
        let mut retained = retained.clone();
        retained.end(&has_ended);
        retained.take(self.carried_out(&retained.partition, deletes)?);
        Ok(match retained.stretches.is_empty() {
            true => Next::Nothing,
            false => Next::Now(Box::new(retained)),
        })
    }

    /// The retained stretches of a partition that is not shown any more.
    fn ended(
        &self,
        partition: &StatePartition,
        before: &State,
    ) -> Result<Option<RetainedPartition>> {
        let Some(lifetime) = self.retained_policy(partition.record.table) else {
            return Ok(None);
        };
        let Some(deletes) = self.deletes_since(partition, before) else {
            return Ok(None);
        };
        let mut retained = RetainedPartition {
            partition: partition.clone(),
            stretches: self.cut_away(partition, &lifetime)?,
            deletes: Vec::new(),
        };
        retained.end(&self.has_ended(&lifetime));
        if retained.stretches.is_empty() {
            return Ok(None);
        }
        let deleted = self.deleted.get(&partition.id);
        retained.take(deleted.map_or_else(Vec::new, Vec::clone));
        retained.take(self.carried_out(partition, deletes)?);
        Ok(Some(retained).filter(|part| !part.stretches.is_empty()))
    }

    /// The stretches of a partition that the source has removed, and that can be retained.
    fn cut_away(
        &self,
        partition: &StatePartition,
        lifetime: &TableLifetime,
    ) -> Result<Vec<(Cause, ClosedRange)>> {
        let record = &partition.record;
        let span = record.span();
        let now = self.state.partitions.iter().map(|p| &p.record);
        let now: Vec<_> = now
            .filter(|now| (now.table, now.shard) == (record.table, record.shard))
            .filter(|now| !now.is_empty() && now.span().overlaps(&span))
            .collect();
        let held = union(now.iter().map(|now| now.span()).collect());
        let before_cut = lifetime.retention_cutoff.last_before();
        let before_cut = before_cut.map(|last| ClosedRange::new(Timestamp::MIN, last));
        let before_cut = before_cut.map_or(ClosedRange::EMPTY, |all| all.intersect(&span));
        let aged = now.iter().filter(|now| now.aged && !record.aged);
        let aged = union(aged.map(|now| now.span().intersect(&span)).collect());
        // An aging leaves out rows before the cutoff.
        let cut: Vec<ClosedRange> = match before_cut.is_empty() {
            true => Vec::new(),
            false => without(&[before_cut], &without(&held, &aged)),
        };
        let aged = without(&aged, &cut);
        if cut.is_empty() && aged.is_empty() {
            return Ok(Vec::new());
        }
        let opened = self.opened(partition);
        if !opened.has_summaries()? {
            return Ok(Vec::new());
        }
        let (content, rows) = opened.content()?;
        let has = |of: &[ClosedRange], range: &ClosedRange| !overlapping(of, range).is_empty();
        let cut = cut.into_iter().filter(|range| has(&content, range));
        let aged = aged.into_iter().filter(|range| has(&rows, range));
        let cut = cut.map(|range| (Cause::Cut, range));
        let mut all: Vec<_> = cut.chain(aged.map(|range| (Cause::Aged, range))).collect();
        all.sort_by_key(|(_, range)| range.first);
        Ok(all)
    }
}
