//! Saves the readable part of a damaged log into one new file.
//!
//! Invariants: sequences stay the same, since covers refer to them; a lost record is replaced by an
//! empty one with its number. A record that uses a lost definition is kept without the parts that
//! depend on it.

use super::log::{LogScan, behind_number, highest_named, stream_records};
use crate::common::ids::{Sequence, StreamId};
use crate::memory::expiry::owner_of;
use crate::metadata::catalog::{AddedFields, StreamIndex, StreamRecord, Table};
use crate::metadata::tables::Meta;
use crate::storage::segment::Cover;
use crate::storage::tombstone::DeleteRecord;
use crate::wal::{FILE_HEADER_BYTES, FileHeader, RecordHeader, RecordKind, pad};
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::light::{decode_rows, encode_rows};
use headwater_codec::{Cursor, PutBytes};
use headwater_types::{FieldId, Rows, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

/// Covers of streams in segments.
pub(super) type Covers = HashMap<StreamId, Vec<Cover>>;

/// The new log.
pub(super) struct SavedLog {
    pub(super) number: u64,
    pub(super) generation: u64,
    pub(super) content: Vec<u8>,
    /// The losses, in words.
    pub(super) lost: Vec<String>,
}

/// Writes the records after `floor` into a new file that follows `step_sequence`.
pub(super) fn save(
    scan: &LogScan,
    meta: &Meta,
    (floor, step_sequence): (Sequence, Sequence),
    covers: &Covers,
) -> Result<SavedLog> {
    let mut lost = Vec::new();
    let known = KnownDefinitions::of(meta, covers, scan)?;
    let Acknowledged { records, last } =
        Acknowledged::of(scan, known, (floor, step_sequence), &mut lost)?;
    let first = records.first_key_value().map(|(s, _)| *s);
    let start = match (first, scan.begins_after) {
        (Some(first), Some(begins)) if begins.0.max(floor.0) + 1 < first.0 => {
            missing(&mut lost, begins.0.max(floor.0) + 1, first.0 - 1);
            first.0
        }
        (Some(first), _) => first.0,
        (None, _) => step_sequence.max(floor).0 + 1,
    };
    // Numbers in the metadata were used, even if their records are missing.
    let end = last
        .unwrap_or(Sequence(start - 1))
        .max(step_sequence)
        .max(floor)
        .max(highest_named(meta)?);
    let mut content = vec![0u8; FILE_HEADER_BYTES as usize];
    let generation = scan.newest_generation.max(scan.known_generation) + 1;
    put_records(&mut content, generation, start..=end.0, records, &mut lost)?;
    lost.extend(scan.unknown.iter().cloned());
    for generation in &scan.unreadable {
        lost.push(format!(
            "the log file of generation {generation}, which is missing or unreadable: the contents of its records are unknown unless a segment contains them"
        ));
    }
    let header = FileHeader {
        generation,
        previous: Sequence(start - 1),
        bytes: content.len() as u64,
    };
    if let Some(place) = content.get_mut(..FILE_HEADER_BYTES as usize) {
        place.copy_from_slice(&header.encode());
    }
    Ok(SavedLog {
        number: scan.newest_number + 1,
        generation,
        content,
        lost,
    })
}

/// Records that may have been acknowledged.
struct Acknowledged {
    records: BTreeMap<Sequence, (RecordKind, Vec<u8>)>,
    /// The number of the newest record.
    last: Option<Sequence>,
}

impl Acknowledged {
    /// Collects the records after `floor`, each without references to a lost definition.
    fn of(
        scan: &LogScan,
        mut known: KnownDefinitions<'_>,
        (floor, step_sequence): (Sequence, Sequence),
        lost: &mut Vec<String>,
    ) -> Result<Acknowledged> {
        let mut records = BTreeMap::new();
        let proven = scan.proven.max(step_sequence);
        let newest = scan.newest_generation;
        let mut last: Option<Sequence> = None;
        for (sequence, record) in scan.records.range(Sequence(floor.0 + 1)..) {
            if let Some(last) = last
                && sequence.0 > last.0 + 1
                && record.generation == newest
                && last >= proven
            {
                // A torn tail: the rest was never acknowledged.
                break;
            }
            last = Some(*sequence);
            let Some(kind) = RecordKind::from_number(record.kind) else {
                return Err(Error::invalid(format!(
                    "log record {} has the unknown kind {}: run the repair with the version of Headwater that wrote it",
                    sequence.0, record.kind
                )));
            };
            let meant = known.still_meant(kind, &record.payload, *sequence, lost)?;
            records.insert(*sequence, meant);
        }
        Ok(Acknowledged { records, last })
    }
}

/// Appends a record for every number, an empty one for each missing record.
fn put_records(
    content: &mut Vec<u8>,
    generation: u64,
    numbers: RangeInclusive<u64>,
    mut records: BTreeMap<Sequence, (RecordKind, Vec<u8>)>,
    lost: &mut Vec<String>,
) -> Result<()> {
    let mut gap: Option<(u64, u64)> = None;
    for number in numbers {
        // An empty batch takes the number of a lost record.
        let empty = (RecordKind::Write, vec![0u8]);
        let known = records.remove(&Sequence(number));
        gap = match (&known, gap) {
            (None, None) => Some((number, number)),
            (None, Some((from, _))) => Some((from, number)),
            (Some(_), Some((from, to))) => {
                missing(lost, from, to);
                None
            }
            (Some(_), None) => None,
        };
        let (kind, payload) = known.unwrap_or(empty);
        RecordHeader {
            payload_bytes: u32::try_from(payload.len())
                .map_err(|_| Error::internal("repair: a record over 4 GiB"))?,
            payload_crc: crc32c(&payload),
            sequence: Sequence(number),
            synced: Sequence(number - 1),
            kind: kind as u8,
        }
        .encode(generation, content);
        content.extend_from_slice(&payload);
        pad(content);
    }
    if let Some((from, to)) = gap {
        missing(lost, from, to);
    }
    Ok(())
}

/// Reports records with unknown content.
fn missing(lost: &mut Vec<String>, from: u64, to: u64) {
    lost.push(if from == to {
        format!("log record {from}: its content is unknown unless a segment contains it")
    } else {
        format!("log records {from} to {to}: their content is unknown unless a segment contains it")
    });
}

/// Number of fields in rows, without the expiries.
fn fields_in(rows: &Rows) -> usize {
    let fields = rows.columns.iter();
    fields
        .filter(|(field, _)| owner_of(*field).is_none())
        .count()
}

/// Definitions in force when a record is read.
struct KnownDefinitions<'a> {
    meta: &'a Meta,
    /// Fields by table.
    tables: Vec<usize>,
    streams: HashMap<StreamId, Option<usize>>,
    covers: &'a Covers,
    /// Streams that were dropped, with the newest sequence of their drop.
    ended: HashMap<StreamId, Sequence>,
}

impl<'a> KnownDefinitions<'a> {
    fn of(meta: &'a Meta, covers: &'a Covers, scan: &LogScan) -> Result<KnownDefinitions<'a>> {
        let tables = meta.tables()?.iter().map(|t| t.fields.len()).collect();
        let mut streams = HashMap::new();
        for (_, record) in meta.dropped()? {
            streams.insert(record.id, Some(record.table.0 as usize));
        }
        let mut ended = HashMap::new();
        for (sequence, record) in &scan.records {
            if RecordKind::from_number(record.kind) != Some(RecordKind::Delete) {
                continue;
            }
            if let Ok(delete) = DeleteRecord::decode(&mut Cursor::new(&record.payload))
                && delete.drops_streams
            {
                let list = delete.streams.as_deref().unwrap_or_default();
                ended.extend(list.iter().map(|stream| (*stream, *sequence)));
            }
        }
        Ok(KnownDefinitions {
            meta,
            tables,
            streams,
            covers,
            ended,
        })
    }

    fn table_of(&mut self, stream: StreamId) -> Result<Option<usize>> {
        if let Some(known) = self.streams.get(&stream) {
            return Ok(*known);
        }
        let found = self.meta.streams(&[stream])?.pop();
        let table = found.map(|r| r.table.0 as usize);
        self.streams.insert(stream, table);
        Ok(table)
    }

    /// The payload, without references to a lost definition.
    fn still_meant(
        &mut self,
        kind: RecordKind,
        payload: &[u8],
        sequence: Sequence,
        lost: &mut Vec<String>,
    ) -> Result<(RecordKind, Vec<u8>)> {
        // An empty batch.
        let nothing = (RecordKind::Write, vec![0u8]);
        match kind {
            RecordKind::Table => {
                let Ok(table) = Table::decode(&mut Cursor::new(payload)) else {
                    return Ok(nothing);
                };
                let at = table.id.0 as usize;
                let count = self.tables.len();
                match self.tables.get_mut(at) {
                    Some(fields) => *fields = table.fields.len().max(*fields),
                    None if at == count => self.tables.push(table.fields.len()),
                    None => {
                        lost.push(format!(
                            "table `{}` (log record {}): a table defined before it is lost",
                            table.name, sequence.0
                        ));
                        return Ok(nothing);
                    }
                }
                Ok((kind, payload.to_vec()))
            }
            RecordKind::Fields => {
                let Ok(added) = AddedFields::decode(&mut Cursor::new(payload)) else {
                    return Ok(nothing);
                };
                match self.tables.get_mut(added.table.0 as usize) {
                    Some(fields) if added.first as usize <= *fields => {
                        *fields = added.end().max(*fields);
                        Ok((kind, payload.to_vec()))
                    }
                    _ => {
                        lost.push(format!(
                            "fields of table {} (log record {}): the definition that they extend is lost",
                            added.table.0, sequence.0
                        ));
                        Ok(nothing)
                    }
                }
            }
            RecordKind::Streams => {
                let records = stream_records(payload).unwrap_or_default();
                let mut out = Vec::new();
                let kept: Vec<&StreamRecord> = records
                    .iter()
                    .filter(|r| (r.table.0 as usize) < self.tables.len())
                    .collect();
                out.put_varint(kept.len() as u64);
                for record in kept {
                    self.streams
                        .insert(record.id, Some(record.table.0 as usize));
                    record.encode(&mut out);
                }
                Ok((kind, out))
            }
            RecordKind::Write => Ok((kind, self.rows_still_meant(payload, sequence, lost)?)),
            RecordKind::NumberedWrite => {
                let Some((number, rows)) = behind_number(payload) else {
                    return Ok(nothing);
                };
                let mut out = number.to_vec();
                out.extend(self.rows_still_meant(rows, sequence, lost)?);
                Ok((kind, out))
            }
            RecordKind::Delete => Ok((kind, payload.to_vec())),
        }
    }

    fn rows_still_meant(
        &mut self,
        payload: &[u8],
        sequence: Sequence,
        lost: &mut Vec<String>,
    ) -> Result<Vec<u8>> {
        let mut cursor = Cursor::new(payload);
        let count = cursor
            .varint_up_to(payload.len() as u64, "entry count")
            .unwrap_or(0);
        let mut entries: Vec<u8> = Vec::new();
        let mut kept = 0u64;
        let mut changed = false;
        for _ in 0..count {
            let Ok(id) = cursor.varint_up_to(u64::from(u32::MAX), "stream id") else {
                changed = true;
                break;
            };
            let Ok(mut rows) = decode_rows(&mut cursor) else {
                changed = true;
                break;
            };
            let stream = StreamId(id as u32);
            let fields = match self.table_of(stream)? {
                Some(table) => self.tables.get(table).copied().unwrap_or(0),
                None => {
                    changed = true;
                    let covers = self
                        .covers
                        .get(&stream)
                        .map(Vec::as_slice)
                        .unwrap_or_default();
                    let missing = rows
                        .times
                        .iter()
                        .filter(|t| {
                            let time = Timestamp::from_nanos(**t);
                            !covers
                                .iter()
                                .any(|c| c.sequence >= sequence && c.range.contains(time))
                        })
                        .count();
                    let is_gone = self.ended.get(&stream).is_some_and(|end| *end > sequence);
                    if missing == 0 || is_gone {
                        continue;
                    }
                    lost.push(format!(
                        "{missing} rows of stream number {id} (log record {}): its definition is lost, or it was dropped",
                        sequence.0
                    ));
                    continue;
                }
            };
            let before = rows.columns.len();
            let before_of_fields = fields_in(&rows);
            // The expiries of a field are kept or removed with it.
            let is_known = |field: FieldId| (owner_of(field).unwrap_or(field).0 as usize) < fields;
            rows.columns.retain(|(field, _)| is_known(*field));
            changed |= rows.columns.len() < before;
            let gone = before_of_fields - fields_in(&rows);
            if gone > 0 {
                lost.push(format!(
                    "{gone} fields of {} rows of stream number {id} (log record {}): their definitions are lost",
                    rows.len(),
                    sequence.0
                ));
            }
            if rows.columns.is_empty() {
                continue;
            }
            kept += 1;
            entries.put_varint(id as u64);
            encode_rows(&rows, &mut entries);
        }
        if !changed {
            return Ok(payload.to_vec());
        }
        let mut out = Vec::new();
        out.put_varint(kept);
        out.extend_from_slice(&entries);
        Ok(out)
    }
}
