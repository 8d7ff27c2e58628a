//! The bytes of a state: docs/format/state.md.
//!
//! Invariants: accepted bytes give a state in which every number used is defined, and every
//! location is where the format allows it; they come from another machine.

use super::ends::{StateEnds, deletes, put_delete};
use super::{State, StateName, StatePartition};
use crate::common::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::metadata::catalog::{StreamRecord, Table};
use crate::metadata::tables::PartitionRecord;
use crate::storage::segment::HEADER_BYTES;
use crate::storage::tombstone::DeleteRecord;
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::ClosedRange;
use headwater_types::invariant::wide;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const MAGIC: [u8; 7] = *b"HWSTATE";
const VERSION: u8 = 3;
/// Only pending deletes were listed.
const VERSION_WITHOUT_ENDS: u8 = 2;
/// Names had no view.
const VERSION_WITHOUT_VIEWS: u8 = 1;
const WITHOUT_BASE: u8 = 0;
const AFTER: u8 = 1;
const CRC_BYTES: usize = 4;

/// Decoded parts of a state, or of a difference from one.
pub(super) struct Parts {
    name: StateName,
    /// The base state of the difference.
    pub(super) base: Option<StateName>,
    /// Number of openings that are unchanged from the base.
    unchanged_openings: usize,
    openings: Vec<(u64, u64)>,
    shards: u16,
    tables: Vec<Arc<Table>>,
    removed_streams: Vec<StreamId>,
    streams: Vec<StreamRecord>,
    deletes: Vec<(Sequence, DeleteRecord)>,
    newest_deletes: Vec<(TableId, Sequence)>,
    ends: StateEnds,
    removed_partitions: Vec<SegmentId>,
    partitions: Vec<NewPartition>,
}

struct NewPartition {
    id: SegmentId,
    record: PartitionRecord,
    /// Number of footers that are unchanged from the base.
    unchanged_footers: usize,
    footers: Vec<(u64, u32)>,
    uppers: Uppers,
}

/// Offsets of upper blocks: their distance before the footers.
enum Uppers {
    None,
    /// For the footers that are not in the base.
    OfNew(Vec<u64>),
    OfAll(Vec<u64>),
}

const NO_UPPERS: u8 = 0;
const UPPERS_OF_NEW: u8 = 1;
const UPPERS_OF_ALL: u8 = 2;

pub(super) fn encode(state: &State, known: Option<&State>) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u8(VERSION);
    out.put_u8(if known.is_some() { AFTER } else { WITHOUT_BASE });
    put_name(&state.name, &mut out);
    if let Some(known) = known {
        put_name(&known.name, &mut out);
    }
    put_openings(state, known, &mut out);
    out.put_varint(u64::from(state.shards));
    put_tables(state, known, &mut out);
    put_streams(state, known, &mut out);
    out.put_varint(wide(state.deletes.len()));
    for delete in &state.deletes {
        put_delete(delete, &mut out);
    }
    out.put_varint(wide(state.newest_deletes.len()));
    for (table, sequence) in &state.newest_deletes {
        out.put_varint(u64::from(table.0));
        out.put_varint(sequence.0);
    }
    state.ends.put(known, &mut out);
    put_partitions(state, known, &mut out);
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

fn put_name(name: &StateName, out: &mut Vec<u8>) {
    for number in [
        name.identity,
        name.incarnation,
        name.opening,
        name.number,
        name.sequence,
        name.view,
    ] {
        out.put_u64(number);
    }
}

fn put_openings(state: &State, known: Option<&State>, out: &mut Vec<u8>) {
    let known: &[(u64, u64)] = match known {
        Some(known) => &known.openings,
        None => &[],
    };
    let same = known.iter().zip(&state.openings);
    let same = same.take_while(|(a, b)| a == b).count();
    out.put_varint(wide(same));
    out.put_varint(wide(state.openings.len() - same));
    for (first, opening) in state.openings.iter().skip(same) {
        out.put_varint(*first);
        out.put_u64(*opening);
    }
}

fn put_tables(state: &State, known: Option<&State>, out: &mut Vec<u8>) {
    let is_known = |table: &Table| {
        let known = known.and_then(|known| known.table(table.id));
        known.is_some_and(|known| **known == *table)
    };
    let new: Vec<_> = state.tables.iter().filter(|t| !is_known(t)).collect();
    out.put_varint(wide(new.len()));
    let mut bytes = Vec::new();
    for table in new {
        bytes.clear();
        table.encode(&mut bytes);
        out.put_prefixed(&bytes);
    }
}

/// Writes ascending numbers, each as the difference to the previous one.
fn put_rising(numbers: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
    out.put_varint(wide(numbers.len()));
    let mut before = 0;
    for number in numbers {
        out.put_varint(number.wrapping_sub(before));
        before = number;
    }
}

fn put_streams(state: &State, known: Option<&State>, out: &mut Vec<u8>) {
    let before: BTreeMap<StreamId, &StreamRecord> = known
        .iter()
        .flat_map(|known| known.streams.iter())
        .map(|record| (record.id, record))
        .collect();
    let now: BTreeSet<StreamId> = state.streams.iter().map(|r| r.id).collect();
    let gone: Vec<u64> = before
        .keys()
        .filter(|id| !now.contains(id))
        .map(|id| u64::from(id.0))
        .collect();
    put_rising(gone.into_iter(), out);
    let is_new = |record: &&StreamRecord| before.get(&record.id) != Some(record);
    let new: Vec<_> = state.streams.iter().filter(is_new).collect();
    out.put_varint(wide(new.len()));
    let mut bytes = Vec::new();
    for record in new {
        bytes.clear();
        record.encode(&mut bytes);
        out.put_prefixed(&bytes);
    }
}

fn put_partitions(state: &State, known: Option<&State>, out: &mut Vec<u8>) {
    let before = |id| known.and_then(|known| known.partition(id));
    let gone: Vec<u64> = known
        .iter()
        .flat_map(|known| &known.partitions)
        .filter(|p| state.partition(p.id).is_none())
        .map(|p| p.id.0)
        .collect();
    put_rising(gone.into_iter(), out);
    let new: Vec<_> = state
        .partitions
        .iter()
        .filter(|p| before(p.id) != Some(p))
        .collect();
    out.put_varint(wide(new.len()));
    let mut last = 0;
    for partition in new {
        out.put_varint(partition.id.0.wrapping_sub(last));
        last = partition.id.0;
        out.put_prefixed(&partition.record.encode());
        let known: &[(u64, u32)] = match before(partition.id) {
            Some(known) => &known.footers,
            None => &[],
        };
        let same = known.iter().zip(&*partition.footers);
        let same = same.take_while(|(a, b)| a == b).count();
        out.put_varint(wide(same));
        out.put_varint(wide(partition.footers.len() - same));
        let mut end = same
            .checked_sub(1)
            .and_then(|at| known.get(at))
            .map_or(HEADER_BYTES, |(at, len)| at.wrapping_add(u64::from(*len)));
        for (offset, bytes) in partition.footers.iter().skip(same) {
            out.put_varint(offset.wrapping_sub(end));
            out.put_varint(u64::from(*bytes));
            end = offset.wrapping_add(u64::from(*bytes));
        }
        put_uppers(partition, before(partition.id), same, out);
    }
}

fn put_uppers(
    partition: &StatePartition,
    known: Option<&StatePartition>,
    same: usize,
    out: &mut Vec<u8>,
) {
    if partition.uppers.is_empty() {
        return out.put_u8(NO_UPPERS);
    }
    let of_known = known.and_then(|known| known.uppers.get(..same));
    let goes_on = of_known.is_some_and(|of_known| partition.uppers.get(..same) == Some(of_known));
    out.put_u8(if goes_on {
        UPPERS_OF_NEW
    } else {
        UPPERS_OF_ALL
    });
    let all = partition.uppers.iter().zip(&*partition.footers);
    for (upper, (footer, _)) in all.skip(if goes_on { same } else { 0 }) {
        out.put_varint(footer.wrapping_sub(*upper));
    }
}

/// Replaces the checksum of bytes by the right one: for the fuzz target.
#[cfg(fuzzing)]
pub(super) fn put_checksum_right(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len().saturating_sub(CRC_BYTES));
    let crc = crc32c(bytes);
    bytes.put_u32(crc);
}

pub(super) fn decode(bytes: &[u8]) -> Result<Parts, DecodeError> {
    let wrong = |expected| DecodeError {
        expected,
        offset: 0,
    };
    let Some((body, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
        return Err(wrong("a state of at least four bytes"));
    };
    let mut cursor = Cursor::new(body);
    if cursor.take(MAGIC.len(), "the magic of a state")? != MAGIC {
        return Err(wrong("the magic of a state"));
    }
    let version = cursor.u8("version of a state")?;
    if !(VERSION_WITHOUT_VIEWS..=VERSION).contains(&version) {
        return Err(wrong("a state of version 1 to 3"));
    }
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(wrong("a state with a valid checksum"));
    }
    let kind = cursor.u8("kind of a state")?;
    let name = name(version, &mut cursor)?;
    let base = match kind {
        WITHOUT_BASE => None,
        AFTER => Some(self::name(version, &mut cursor)?),
        _ => return Err(cursor.expected("kind 0 or 1 of a state")),
    };
    let parts = Parts {
        name,
        base,
        unchanged_openings: cursor.varint_up_to(u64::from(u32::MAX), "number of known openings")?,
        openings: openings(&mut cursor)?,
        shards: small(&mut cursor, "number of shards")?,
        tables: tables(&mut cursor)?,
        removed_streams: rising(&mut cursor, "removed stream")?
            .into_iter()
            .map(|id| u32::try_from(id).map(StreamId))
            .collect::<Result<_, _>>()
            .map_err(|_| wrong("a stream number below 2^32"))?,
        streams: streams(&mut cursor)?,
        deletes: deletes(&mut cursor)?,
        newest_deletes: newest_deletes(&mut cursor)?,
        ends: match version {
            ..=VERSION_WITHOUT_ENDS => StateEnds::unknown(name.sequence),
            _ => StateEnds::decode(&mut cursor)?,
        },
        removed_partitions: rising(&mut cursor, "removed segment")?
            .into_iter()
            .map(SegmentId)
            .collect(),
        partitions: partitions(version, &mut cursor)?,
    };
    cursor.finish()?;
    Ok(parts)
}

fn name(version: u8, cursor: &mut Cursor<'_>) -> Result<StateName, DecodeError> {
    Ok(StateName {
        identity: cursor.u64("identity")?,
        incarnation: cursor.u64("incarnation")?,
        opening: cursor.u64("opening")?,
        number: cursor.u64("state number")?,
        sequence: cursor.u64("sequence")?,
        view: match version {
            VERSION_WITHOUT_VIEWS => 0,
            _ => cursor.u64("view")?,
        },
    })
}

fn small(cursor: &mut Cursor<'_>, expected: &'static str) -> Result<u16, DecodeError> {
    let number = cursor.varint(expected)?;
    u16::try_from(number).map_err(|_| cursor.expected(expected))
}

fn number(cursor: &mut Cursor<'_>, expected: &'static str) -> Result<u32, DecodeError> {
    let number = cursor.varint(expected)?;
    u32::try_from(number).map_err(|_| cursor.expected(expected))
}

/// Decodes the number of the items that follow, each of at least one byte.
fn count(cursor: &mut Cursor<'_>, expected: &'static str) -> Result<usize, DecodeError> {
    cursor.varint_up_to(wide(cursor.remaining()), expected)
}

fn rising(cursor: &mut Cursor<'_>, expected: &'static str) -> Result<Vec<u64>, DecodeError> {
    let count = count(cursor, expected)?;
    let mut out = Vec::new();
    let mut before = 0u64;
    for _ in 0..count {
        let step = cursor.varint(expected)?;
        let Some(next) = before
            .checked_add(step)
            .filter(|_| step > 0 || out.is_empty())
        else {
            return Err(cursor.expected(expected));
        };
        before = next;
        out.push(next);
    }
    Ok(out)
}

fn openings(cursor: &mut Cursor<'_>) -> Result<Vec<(u64, u64)>, DecodeError> {
    let count = count(cursor, "number of new openings")?;
    let mut out = Vec::new();
    for _ in 0..count {
        out.push((
            cursor.varint("first state of an opening")?,
            cursor.u64("opening")?,
        ));
    }
    Ok(out)
}

fn tables(cursor: &mut Cursor<'_>) -> Result<Vec<Arc<Table>>, DecodeError> {
    let count = count(cursor, "number of new tables")?;
    let mut out: Vec<Arc<Table>> = Vec::new();
    for _ in 0..count {
        let mut bytes = Cursor::new(cursor.prefixed("table definition")?);
        let table = Table::decode(&mut bytes)?;
        if out.last().is_some_and(|last| last.id >= table.id) {
            return Err(cursor.expected("tables in ascending order"));
        }
        out.push(Arc::new(table));
    }
    Ok(out)
}

fn streams(cursor: &mut Cursor<'_>) -> Result<Vec<StreamRecord>, DecodeError> {
    let count = count(cursor, "number of new streams")?;
    let mut out: Vec<StreamRecord> = Vec::new();
    for _ in 0..count {
        let mut bytes = Cursor::new(cursor.prefixed("stream record")?);
        let record = StreamRecord::decode(&mut bytes)?;
        bytes.finish()?;
        if out.last().is_some_and(|last| last.id >= record.id) {
            return Err(cursor.expected("streams in ascending order"));
        }
        out.push(record);
    }
    Ok(out)
}

fn newest_deletes(cursor: &mut Cursor<'_>) -> Result<Vec<(TableId, Sequence)>, DecodeError> {
    let count = count(cursor, "number of tables with deletes")?;
    let mut out: Vec<(TableId, Sequence)> = Vec::new();
    for _ in 0..count {
        let table = TableId(number(cursor, "a table with deletes")?);
        if out.last().is_some_and(|(last, _)| *last >= table) {
            return Err(cursor.expected("tables with deletes in ascending order"));
        }
        out.push((
            table,
            Sequence(cursor.varint("sequence of a newest delete")?),
        ));
    }
    Ok(out)
}

fn partitions(version: u8, cursor: &mut Cursor<'_>) -> Result<Vec<NewPartition>, DecodeError> {
    let count = count(cursor, "number of new partitions")?;
    let mut out: Vec<NewPartition> = Vec::new();
    let mut before = 0u64;
    for _ in 0..count {
        let step = cursor.varint("segment id")?;
        let Some(id) = before
            .checked_add(step)
            .filter(|_| step > 0 || out.is_empty())
        else {
            return Err(cursor.expected("partitions in ascending order"));
        };
        before = id;
        let record = PartitionRecord::decode(cursor.prefixed("partition record")?)?;
        let unchanged_footers =
            cursor.varint_up_to(u64::from(u32::MAX), "number of known footers")?;
        let more = self::count(cursor, "number of footers")?;
        let mut footers = Vec::new();
        for _ in 0..more {
            // The distance to the previous part: known when the two are combined.
            let gap = cursor.varint("offset of a footer")?;
            footers.push((gap, number(cursor, "length of a footer")?));
        }
        let uppers = match version {
            VERSION_WITHOUT_VIEWS => Uppers::None,
            _ => uppers(unchanged_footers, more, cursor)?,
        };
        out.push(NewPartition {
            id: SegmentId(id),
            record,
            unchanged_footers,
            footers,
            uppers,
        });
    }
    Ok(out)
}

fn distances(count: usize, cursor: &mut Cursor<'_>) -> Result<Vec<u64>, DecodeError> {
    let each = (0..count).map(|_| cursor.varint("bytes of upper blocks"));
    each.collect()
}

fn uppers(known: usize, new: usize, cursor: &mut Cursor<'_>) -> Result<Uppers, DecodeError> {
    let all = known.saturating_add(new);
    match cursor.u8("kind of upper blocks")? {
        NO_UPPERS => Ok(Uppers::None),
        UPPERS_OF_NEW => Ok(Uppers::OfNew(distances(new, cursor)?)),
        UPPERS_OF_ALL => Ok(Uppers::OfAll(distances(all, cursor)?)),
        _ => Err(cursor.expected("0, 1 or 2")),
    }
}

impl NewPartition {
    fn complete(self, before: Option<&StatePartition>) -> Result<StatePartition, String> {
        let unfit = |what: &str| format!("segment {}: {what}", self.id.0);
        let known: &[(u64, u32)] = match before {
            Some(before) => &before.footers,
            None => &[],
        };
        let Some(same) = known.get(..self.unchanged_footers) else {
            return Err(unfit("more unchanged footers than the previous state has"));
        };
        let mut footers = same.to_vec();
        let mut end = same
            .last()
            .map_or(HEADER_BYTES, |(at, len)| at.saturating_add(u64::from(*len)));
        for (gap, bytes) in &self.footers {
            let place = end.checked_add(*gap).and_then(|offset| {
                let end = offset.checked_add(u64::from(*bytes))?;
                Some((offset, end))
            });
            let Some((offset, next)) = place else {
                return Err(unfit("a footer that ends beyond 2^64"));
            };
            footers.push((offset, *bytes));
            end = next;
        }
        let record = &self.record;
        // A checkpoint may precede a footer.
        let newest = footers
            .last()
            .filter(|(from, _)| *from <= record.footer_offset);
        let footer_end = record
            .footer_offset
            .checked_add(u64::from(record.footer_bytes));
        if newest.is_none() || footer_end != Some(end) {
            return Err(unfit("the newest footer is not the last one"));
        }
        if end != record.committed_bytes {
            return Err(unfit(
                "the newest footer does not end at the committed length",
            ));
        }
        let uppers = self.complete_uppers(before, &footers);
        let uppers = uppers.ok_or_else(|| unfit("upper blocks outside of all groups"))?;
        if uppers.is_empty() == self.record.chain.is_some() {
            return Err(unfit(
                "a hash chain without groups, or groups without a hash chain",
            ));
        }
        Ok(StatePartition {
            id: self.id,
            record: self.record,
            footers: footers.into(),
            uppers: uppers.into(),
        })
    }

    /// Offsets of the upper blocks inside each group.
    fn complete_uppers(
        &self,
        before: Option<&StatePartition>,
        footers: &[(u64, u32)],
    ) -> Option<Vec<u64>> {
        let (mut all, distances) = match &self.uppers {
            Uppers::None => return Some(Vec::new()),
            Uppers::OfAll(distances) => (Vec::new(), distances),
            Uppers::OfNew(distances) => {
                let known: &[u64] = match before {
                    Some(before) => &before.uppers,
                    None => &[],
                };
                (known.get(..self.unchanged_footers)?.to_vec(), distances)
            }
        };
        let behind = footers.iter().skip(all.len());
        for ((footer, _), distance) in behind.zip(distances) {
            all.push(footer.checked_sub(*distance)?);
        }
        let ends = footers.iter().map(|(at, len)| at + u64::from(*len));
        let starts = std::iter::once(HEADER_BYTES).chain(ends);
        let fit = all.iter().zip(starts).all(|(upper, start)| *upper >= start);
        (fit && all.len() == footers.len()).then_some(all)
    }
}

impl Parts {
    /// The state, without a base.
    pub(super) fn full(self) -> Result<State, String> {
        if !self.removed_streams.is_empty() || !self.removed_partitions.is_empty() {
            return Err("a full state with removed entries".to_owned());
        }
        let nothing = State {
            name: self.name,
            openings: Vec::new(),
            shards: self.shards,
            tables: Vec::new(),
            streams: Arc::default(),
            deletes: Vec::new(),
            newest_deletes: Vec::new(),
            ends: StateEnds::default(),
            partitions: Vec::new(),
        };
        self.after(&nothing)
    }

    /// The state, based on the known one.
    pub(super) fn after(self, known: &State) -> Result<State, String> {
        if (self.name.identity, self.name.incarnation)
            != (known.name.identity, known.name.incarnation)
        {
            return Err("another incarnation than the previous state".to_owned());
        }
        let Some(same) = known.openings.get(..self.unchanged_openings) else {
            return Err("unknown openings".to_owned());
        };
        let openings = same.iter().copied().chain(self.openings).collect();
        let mut tables: BTreeMap<TableId, Arc<Table>> =
            known.tables.iter().map(|t| (t.id, Arc::clone(t))).collect();
        tables.extend(self.tables.into_iter().map(|t| (t.id, t)));
        let streams = streams_after(&known.streams, &self.removed_streams, self.streams);
        let mut partitions: BTreeMap<SegmentId, StatePartition> =
            known.partitions.iter().map(|p| (p.id, p.clone())).collect();
        for id in &self.removed_partitions {
            partitions.remove(id);
        }
        for partition in self.partitions {
            let id = partition.id;
            let complete = partition.complete(partitions.get(&id))?;
            partitions.insert(id, complete);
        }
        let state = State {
            name: self.name,
            openings,
            shards: self.shards,
            tables: tables.into_values().collect(),
            streams,
            deletes: self.deletes,
            newest_deletes: self.newest_deletes,
            ends: self.ends.after(known),
            partitions: partitions.into_values().collect(),
        };
        fits(&state).map(|()| state)
    }
}

/// Streams after some were removed and others added, by number; shared where nothing changes.
fn streams_after(
    known: &Arc<[StreamRecord]>,
    removed: &[StreamId],
    added: Vec<StreamRecord>,
) -> Arc<[StreamRecord]> {
    if removed.is_empty() && added.is_empty() {
        return Arc::clone(known);
    }
    let mut streams: BTreeMap<StreamId, StreamRecord> = known
        .iter()
        .map(|record| (record.id, record.clone()))
        .collect();
    for id in removed {
        streams.remove(id);
    }
    streams.extend(added.into_iter().map(|record| (record.id, record)));
    streams.into_values().collect()
}

/// Checks that everything used is defined, and that partitions are disjoint.
fn fits(state: &State) -> Result<(), String> {
    let dense = (0u32..).zip(&state.tables).all(|(n, t)| t.id.0 == n);
    if !dense {
        return Err("table numbers that are not consecutive".to_owned());
    }
    if state.shards == 0 {
        return Err("no shards".to_owned());
    }
    let firsts = state.openings.windows(2);
    let mut pairs = firsts.filter_map(|pair| pair.first().zip(pair.last()));
    let newest = state.openings.last();
    if !pairs.all(|((before, _), (after, _))| before < after)
        || newest.is_none_or(|(first, opening)| {
            *first > state.name.number || *opening != state.name.opening
        })
    {
        return Err("openings that do not lead to the state".to_owned());
    }
    for record in state.streams.iter() {
        let key = record
            .key
            .first_chunk::<4>()
            .map(|id| u32::from_be_bytes(*id));
        if state.table(record.table).is_none()
            || record.shard.0 >= state.shards
            || key != Some(record.table.0)
        {
            return Err(format!(
                "stream {} of an unknown table or shard",
                record.id.0
            ));
        }
    }
    let mut spans: Vec<(TableId, u16, ClosedRange)> = Vec::with_capacity(state.partitions.len());
    for partition in &state.partitions {
        let record = &partition.record;
        if state.table(record.table).is_none() || record.shard.0 >= state.shards {
            return Err(format!(
                "segment {} of an unknown table or shard",
                partition.id.0
            ));
        }
        spans.push((record.table, record.shard.0, record.span()));
    }
    spans.sort_by_key(|(table, shard, span)| (*table, *shard, span.first));
    let meet = spans.windows(2).any(|pair| match pair {
        [(a, b, before), (c, d, after)] => (a, b) == (c, d) && before.overlaps(after),
        _ => false,
    });
    if meet {
        return Err("overlapping partitions of a shard".to_owned());
    }
    Ok(())
}
