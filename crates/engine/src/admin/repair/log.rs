//! Saves the readable part of a damaged log into one new file.
//!
//! Invariants: sequences stay the same, since covers refer to them; where a record is lost, an
//! empty one takes its number. A record that uses a lost definition is kept without the parts that
//! depend on it.

use crate::common::ids::{Sequence, StreamId};
use crate::memory::expiry::owner_of;
use crate::metadata::catalog::{AddedFields, StreamIndex, StreamRecord, Table};
use crate::metadata::clock::EventSpan;
use crate::metadata::tables::{Meta, RetainedFor};
use crate::storage::segment::Cover;
use crate::storage::tombstone::DeleteRecord;
use crate::wal::{
    FILE_HEADER_BYTES, FILE_MAGIC, FileHeader, RECORD_HEADER_BYTES, RecordHeader, RecordKind, pad,
    record_bytes, records_in,
};
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::light::{decode_rows, encode_rows};
use headwater_codec::{Cursor, PutBytes};
use headwater_io::{Files, OpenMode};
use headwater_types::invariant::wide;
use headwater_types::{ClosedRange, FieldId, Rows, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Covers of streams in segments.
pub(super) type Covers = HashMap<StreamId, Vec<Cover>>;

/// A record as it was found.
#[derive(Clone)]
pub(super) struct FoundRecord {
    generation: u64,
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

/// Everything that can be read of the log files.
#[derive(Default)]
pub(super) struct LogScan {
    pub(super) records: BTreeMap<Sequence, FoundRecord>,
    pub(super) files: Vec<PathBuf>,
    /// Where the oldest file needed begins, if its header can be read.
    begins_after: Option<Sequence>,
    newest_generation: u64,
    newest_number: u64,
    /// No smaller generation is given again.
    known_generation: u64,
    /// Generations that are needed, and of which nothing can be read.
    gone: Vec<u64>,
    /// Possible losses without a number, in words.
    unknown: Vec<String>,
    /// Records with larger numbers were never acknowledged.
    proven: Sequence,
}

/// The newest record that can be read in the log of a folder, in files from a generation on; `None`
/// without any.
pub(super) fn newest_record(
    files: &dyn Files,
    dir: &Path,
    first_generation: u64,
) -> Result<Option<Sequence>> {
    let scan = LogScan::read(files, dir, (first_generation, 0))?;
    Ok(scan.records.last_key_value().map(|(sequence, _)| *sequence))
}

struct Raw {
    content: Vec<u8>,
    header: Option<FileHeader>,
}

impl LogScan {
    /// Reads every log file of a generation from `first_generation` on; files up to
    /// `known_generation` were begun.
    pub(super) fn read(
        files: &dyn Files,
        dir: &Path,
        (first_generation, known_generation): (u64, u64),
    ) -> Result<LogScan> {
        let mut scan = LogScan::default();
        let mut raws: Vec<Raw> = Vec::new();
        let names = match files.list(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|e| Error::io("list", dir, e))?,
        };
        for name in names {
            let Some(number) = name
                .strip_suffix(".log")
                .and_then(|n| n.parse::<u64>().ok())
            else {
                continue;
            };
            scan.newest_number = scan.newest_number.max(number);
            let path = dir.join(&name);
            let io = |e| Error::io("read", &path, e);
            let file = files.open(&path, OpenMode::Read).map_err(io)?;
            let len = file.len().map_err(io)?;
            let mut content = vec![0u8; usize::try_from(len).unwrap_or(0)];
            file.read_exact_at(0, &mut content).map_err(io)?;
            Error::check_version(&path, &content, &FILE_MAGIC)?;
            scan.files.push(path);
            let header = FileHeader::decode(&content);
            raws.push(Raw { content, header });
        }
        // A file whose header is damaged is known by its records, wherever they stand: their
        // checksums cover the generation.
        let known: Vec<u64> = raws
            .iter()
            .filter_map(|r| Some(r.header?.generation))
            .collect();
        let newest = known.iter().copied().max().unwrap_or(0);
        let oldest = known.iter().copied().min().unwrap_or(0);
        let candidates: Vec<u64> = (oldest.saturating_sub(8).max(1)..=newest + 2)
            .chain(first_generation..first_generation.saturating_add(8))
            .chain(first_generation..known_generation + 1)
            .filter(|g| !known.contains(g))
            .collect::<BTreeSet<u64>>()
            .into_iter()
            .collect();
        let mut by_generation: Vec<(u64, Raw)> = Vec::new();
        for raw in raws {
            let first = raw
                .content
                .get(FILE_HEADER_BYTES as usize..)
                .unwrap_or_default();
            let generation = match raw.header {
                Some(header) => Some(header.generation),
                None => candidates
                    .iter()
                    .copied()
                    .find(|g| records_in(*g, first, 0).next().is_some()),
            };
            if let Some(generation) = generation.filter(|g| *g >= first_generation) {
                by_generation.push((generation, raw));
            }
        }
        by_generation.sort_by_key(|(g, _)| *g);
        scan.newest_generation = by_generation.last().map_or(newest, |(g, _)| *g).max(newest);
        scan.known_generation = known_generation.max(first_generation);
        scan.gone = (first_generation.max(1)..=known_generation)
            .filter(|g| !by_generation.iter().any(|(found, _)| found == g))
            .collect();
        for (at, (generation, raw)) in by_generation.iter().enumerate() {
            let bytes = raw.content.len() as u64;
            if let Some(header) = raw.header {
                if bytes < header.bytes {
                    scan.unknown.push(format!(
                        "the log file of generation {generation}, of which {bytes} of {} bytes are there: records behind them \
                         are lost, unless a segment has what they held",
                        header.bytes
                    ));
                }
                // Numbers from here on were given again, if they had been given before.
                drop(scan.records.split_off(&Sequence(header.previous.0 + 1)));
                scan.proven = scan.proven.max(header.previous);
                if scan.begins_after.is_none() && scan.records.is_empty() {
                    scan.begins_after = Some(header.previous);
                }
            }
            let first = scan.take_records(*generation, &raw.content);
            // Elsewhere the numbers of the records have a gap.
            if at == 0
                && raw.header.is_none()
                && let Some((offset, sequence)) = first.filter(|(o, _)| *o > FILE_HEADER_BYTES)
            {
                scan.unknown.push(format!(
                    "the log file of generation {generation} from its beginning to byte {offset}: records before {} that stood \
                     there are lost, unless a segment has what they held",
                    sequence.0
                ));
            }
        }
        Ok(scan)
    }

    /// Generations up to this one were given, whether a file of them is found or not.
    pub(super) fn give_no_generation_again(&mut self, generation: u64) {
        self.known_generation = self.known_generation.max(generation);
    }

    /// Returns the offset and the number of the first record.
    fn take_records(&mut self, generation: u64, content: &[u8]) -> Option<(u64, Sequence)> {
        let mut first = None;
        let mut offset = FILE_HEADER_BYTES as usize;
        while let Some(rest) = content
            .get(offset..)
            .filter(|r| r.len() >= RECORD_HEADER_BYTES)
        {
            let found = RecordHeader::decode(generation, rest).and_then(|header| {
                let end = RECORD_HEADER_BYTES.checked_add(header.payload_bytes as usize)?;
                let payload = rest.get(RECORD_HEADER_BYTES..end)?;
                Some((header, payload, crc32c(payload) == header.payload_crc))
            });
            let Some((header, payload, whole)) = found else {
                offset += 8;
                continue;
            };
            first.get_or_insert((offset as u64, header.sequence));
            // Written after everything up to there was on the medium.
            self.proven = self.proven.max(header.synced);
            if whole {
                let found = FoundRecord {
                    generation,
                    kind: header.kind,
                    payload: payload.to_vec(),
                };
                self.records.insert(header.sequence, found);
            }
            offset += record_bytes(payload.len());
        }
        first
    }

    /// When the rows of the log lie, in stretches.
    pub(super) fn spans(&self) -> impl Iterator<Item = EventSpan> {
        self.records.values().flat_map(|record| {
            let rows = match RecordKind::from_number(record.kind) {
                Some(RecordKind::Write) => Some(record.payload.as_slice()),
                Some(RecordKind::NumberedWrite) => behind_number(&record.payload).map(|(_, r)| r),
                _ => None,
            };
            rows.map(row_spans).unwrap_or_default()
        })
    }

    /// Definitions of tables, fields added to them, and definitions of streams, by sequence.
    pub(super) fn definitions(&self) -> LoggedDefinitions {
        let (mut tables, mut added, mut streams) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, record) in &self.records {
            let mut cursor = Cursor::new(&record.payload);
            match RecordKind::from_number(record.kind) {
                Some(RecordKind::Table) => {
                    tables.extend(Table::decode(&mut cursor).ok().map(|t| (*sequence, t)));
                }
                Some(RecordKind::Fields) => {
                    added.extend(
                        AddedFields::decode(&mut cursor)
                            .ok()
                            .map(|f| (*sequence, f)),
                    );
                }
                Some(RecordKind::Streams) => {
                    streams.extend(stream_records(&record.payload).unwrap_or_default());
                }
                _ => {}
            }
        }
        LoggedDefinitions {
            tables,
            added,
            streams,
        }
    }
}

/// The producer's number before the rows of a record, and those.
fn behind_number(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut cursor = Cursor::new(payload);
    cursor.text("producer").ok()?;
    cursor.varint("number").ok()?;
    payload.split_at_checked(cursor.offset())
}

/// When the rows of a record lie, for each stream.
fn row_spans(payload: &[u8]) -> Vec<EventSpan> {
    let mut spans = Vec::new();
    let mut cursor = Cursor::new(payload);
    let count = cursor.varint_up_to(wide(payload.len()), "entry count");
    for _ in 0..count.unwrap_or(0) {
        // Unreadable records are reported where records are saved.
        let stream = cursor.varint_up_to(u64::from(u32::MAX), "stream id");
        let (Ok(_), Ok(rows)) = (stream, decode_rows(&mut cursor)) else {
            break;
        };
        if let (Some(first), Some(last)) = (rows.times.iter().min(), rows.times.iter().max()) {
            spans.push(EventSpan {
                range: ClosedRange::nanos(*first, *last),
                events: wide(rows.times.len()),
            });
        }
    }
    spans
}

/// Definitions of tables and streams in the log, by sequence.
pub(super) struct LoggedDefinitions {
    pub(super) tables: Vec<(Sequence, Table)>,
    pub(super) added: Vec<(Sequence, AddedFields)>,
    pub(super) streams: Vec<StreamRecord>,
}

fn stream_records(payload: &[u8]) -> Option<Vec<StreamRecord>> {
    let mut cursor = Cursor::new(payload);
    let count = cursor
        .varint_up_to(payload.len() as u64, "stream count")
        .ok()?;
    (0..count)
        .map(|_| StreamRecord::decode(&mut cursor).ok())
        .collect()
}

/// The new log.
pub(super) struct SavedLog {
    pub(super) number: u64,
    pub(super) generation: u64,
    pub(super) content: Vec<u8>,
    /// The losses, in words.
    pub(super) lost: Vec<String>,
}

/// Puts the records after `floor` into a new file that follows on `step_sequence`.
pub(super) fn save(
    scan: &LogScan,
    meta: &Meta,
    (floor, step_sequence): (Sequence, Sequence),
    covers: &Covers,
) -> Result<SavedLog> {
    let mut lost = Vec::new();
    let mut known = KnownDefinitions::of(meta, covers, scan)?;
    let mut kept: BTreeMap<Sequence, (RecordKind, Vec<u8>)> = BTreeMap::new();
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
                "log record {} is of kind {}, which this version does not know: repair with the version of Headwater that wrote it",
                sequence.0, record.kind
            )));
        };
        let meant = known.still_meant(kind, &record.payload, *sequence, &mut lost)?;
        kept.insert(*sequence, meant);
    }
    let first = kept.first_key_value().map(|(s, _)| *s);
    let start = match (first, scan.begins_after) {
        (Some(first), Some(begins)) if begins.0.max(floor.0) + 1 < first.0 => {
            missing(&mut lost, begins.0.max(floor.0) + 1, first.0 - 1);
            first.0
        }
        (Some(first), _) => first.0,
        (None, _) => step_sequence.max(floor).0 + 1,
    };
    // Numbers that the metadata name were given, though no record of them is found.
    let end = last
        .unwrap_or(Sequence(start - 1))
        .max(step_sequence)
        .max(floor)
        .max(highest_named(meta)?);
    let mut content = vec![0u8; FILE_HEADER_BYTES as usize];
    let generation = scan.newest_generation.max(scan.known_generation) + 1;
    let mut gap: Option<(u64, u64)> = None;
    for number in start..=end.0 {
        // An empty batch takes the number of a record that is lost.
        let empty = (RecordKind::Write, vec![0u8]);
        let known = kept.remove(&Sequence(number));
        gap = match (&known, gap) {
            (None, None) => Some((number, number)),
            (None, Some((from, _))) => Some((from, number)),
            (Some(_), Some((from, to))) => {
                missing(&mut lost, from, to);
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
        .encode(generation, &mut content);
        content.extend_from_slice(&payload);
        pad(&mut content);
    }
    if let Some((from, to)) = gap {
        missing(&mut lost, from, to);
    }
    lost.extend(scan.unknown.iter().cloned());
    for generation in &scan.gone {
        lost.push(format!(
            "the log file of generation {generation}: it is gone, or nothing in it can be read; what its records held is not known, \
             unless a segment has it"
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

fn missing(lost: &mut Vec<String>, from: u64, to: u64) {
    lost.push(if from == to {
        format!("log record {from}: its content is not known, unless a segment has it")
    } else {
        format!("log records {from} to {to}: their content is not known, unless a segment has it")
    });
}

/// Number of fields in rows, without the expiries.
fn fields_in(rows: &Rows) -> usize {
    let fields = rows.columns.iter();
    fields
        .filter(|(field, _)| owner_of(*field).is_none())
        .count()
}

/// Definitions as they are when a record is read.
struct KnownDefinitions<'a> {
    meta: &'a Meta,
    /// Fields by table.
    tables: Vec<usize>,
    streams: HashMap<StreamId, Option<usize>>,
    covers: &'a Covers,
    /// Streams that were dropped, with the newest sequence at which.
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

    /// The payload, without references to a definition that is lost.
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
                            "fields of table {} (log record {}): what they were added to is lost",
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
            // The expiries of a field stay and go with it.
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

/// The highest sequence that the metadata name.
pub(super) fn highest_named(meta: &Meta) -> Result<Sequence> {
    let mut all: Vec<Sequence> = Vec::new();
    let deletes = meta.newest_deletes()?;
    all.extend(deletes.into_iter().map(|(_, sequence)| sequence));
    let producers = meta.producers()?;
    all.extend(producers.into_iter().map(|(_, _, sequence)| sequence));
    all.extend(meta.removed()?.into_iter().map(|mark| mark.sequence));
    for kept_for in [RetainedFor::Copies, RetainedFor::Snapshots] {
        let kept = meta.ends(kept_for)?.deletes;
        all.extend(kept.into_iter().map(|(sequence, _)| sequence));
    }
    Ok(all.into_iter().max().unwrap_or_default())
}
