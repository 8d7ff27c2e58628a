//! Reads everything readable in a damaged log.

use crate::common::ids::Sequence;
use crate::metadata::catalog::{AddedFields, StreamRecord, Table};
use crate::metadata::clock::EventSpan;
use crate::metadata::tables::{Meta, RetainedFor};
use crate::wal::{
    FILE_HEADER_BYTES, FILE_MAGIC, FileHeader, RECORD_HEADER_BYTES, RecordHeader, RecordKind,
    record_bytes, records_in,
};
use crate::{Error, Result};
use headwater_codec::Cursor;
use headwater_codec::checksum::crc32c;
use headwater_codec::light::decode_rows;
use headwater_io::{Files, OpenMode};
use headwater_types::ClosedRange;
use headwater_types::invariant::wide;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A record with its location.
#[derive(Clone)]
pub(super) struct FoundRecord {
    pub(super) generation: u64,
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

/// Everything readable in the log files.
#[derive(Default)]
pub(super) struct LogScan {
    pub(super) records: BTreeMap<Sequence, FoundRecord>,
    pub(super) files: Vec<PathBuf>,
    /// The sequence after which the oldest needed file begins, if its header can be read.
    pub(super) begins_after: Option<Sequence>,
    pub(super) newest_generation: u64,
    pub(super) newest_number: u64,
    /// Smaller generations are never reused.
    pub(super) known_generation: u64,
    /// Needed generations that are completely unreadable.
    pub(super) unreadable: Vec<u64>,
    /// Possible losses without a number, in words.
    pub(super) unknown: Vec<String>,
    /// Records with larger numbers were never acknowledged.
    pub(super) proven: Sequence,
}

/// The newest readable record in the log of a folder, in files from a generation on; `None` without
/// any.
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

/// Lists the possible generations of a file with a damaged header, ascending.
fn candidates(known: &[u64], (first_generation, known_generation): (u64, u64)) -> Vec<u64> {
    let newest = known.iter().copied().max().unwrap_or(0);
    let oldest = known.iter().copied().min().unwrap_or(0);
    (oldest.saturating_sub(8).max(1)..=newest + 2)
        .chain(first_generation..first_generation.saturating_add(8))
        .chain(first_generation..known_generation + 1)
        .filter(|g| !known.contains(g))
        .collect::<BTreeSet<u64>>()
        .into_iter()
        .collect()
}

/// Sorts files by generation, and leaves out those before `first_generation`. A file whose header
/// is damaged is identified by its records, at any offset: their checksums cover the generation.
fn by_generation(
    raws: Vec<Raw>,
    (first_generation, known_generation): (u64, u64),
) -> Vec<(u64, Raw)> {
    let known: Vec<u64> = raws
        .iter()
        .filter_map(|r| Some(r.header?.generation))
        .collect();
    let candidates = candidates(&known, (first_generation, known_generation));
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
    by_generation
}

impl LogScan {
    /// Reads every log file of a generation from `first_generation` on; files up to
    /// `known_generation` were started.
    pub(super) fn read(
        files: &dyn Files,
        dir: &Path,
        (first_generation, known_generation): (u64, u64),
    ) -> Result<LogScan> {
        let mut scan = LogScan::default();
        let raws = scan.read_files(files, dir)?;
        let known = raws.iter().filter_map(|r| Some(r.header?.generation));
        let newest = known.max().unwrap_or(0);
        let by_generation = by_generation(raws, (first_generation, known_generation));
        scan.newest_generation = by_generation.last().map_or(newest, |(g, _)| *g).max(newest);
        scan.known_generation = known_generation.max(first_generation);
        scan.unreadable = (first_generation.max(1)..=known_generation)
            .filter(|g| !by_generation.iter().any(|(found, _)| found == g))
            .collect();
        for (at, (generation, raw)) in by_generation.iter().enumerate() {
            scan.take_file(*generation, raw, at == 0);
        }
        Ok(scan)
    }

    /// Reads the log files of a folder, in the order of the directory listing.
    fn read_files(&mut self, files: &dyn Files, dir: &Path) -> Result<Vec<Raw>> {
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
            self.newest_number = self.newest_number.max(number);
            let path = dir.join(&name);
            let io = |e| Error::io("read", &path, e);
            let file = files.open(&path, OpenMode::Read).map_err(io)?;
            let len = file.len().map_err(io)?;
            let mut content = vec![0u8; usize::try_from(len).unwrap_or(0)];
            file.read_exact_at(0, &mut content).map_err(io)?;
            Error::check_version(&path, &content, &FILE_MAGIC)?;
            self.files.push(path);
            let header = FileHeader::decode(&content);
            raws.push(Raw { content, header });
        }
        Ok(raws)
    }

    /// Adds the records of a file, which follows the files added before, and records its possible
    /// losses.
    fn take_file(&mut self, generation: u64, raw: &Raw, is_oldest: bool) {
        let bytes = raw.content.len() as u64;
        if let Some(header) = raw.header {
            if bytes < header.bytes {
                self.unknown.push(format!(
                    "the log file of generation {generation}, truncated to {bytes} of {} bytes: the records after that are lost unless a segment contains their rows",
                    header.bytes
                ));
            }
            // Numbers from here on were reused, if they had been used before.
            drop(self.records.split_off(&Sequence(header.previous.0 + 1)));
            self.proven = self.proven.max(header.previous);
            if self.begins_after.is_none() && self.records.is_empty() {
                self.begins_after = Some(header.previous);
            }
        }
        let first = self.take_records(generation, &raw.content);
        // Elsewhere the numbers of the records have a gap.
        if is_oldest
            && raw.header.is_none()
            && let Some((offset, sequence)) = first.filter(|(o, _)| *o > FILE_HEADER_BYTES)
        {
            self.unknown.push(format!(
                "the log file of generation {generation} from its beginning to byte {offset}: the records before {} in this range are lost unless a segment contains their rows",
                sequence.0
            ));
        }
    }

    /// Reserves generations up to this one: they were used, even if their files are missing.
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
            // Written after all records up to that one were on the medium.
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

    /// Time spans of the rows of the log.
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

/// The producer's number before the rows of a record, and the rows.
pub(super) fn behind_number(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut cursor = Cursor::new(payload);
    cursor.text("producer").ok()?;
    cursor.varint("number").ok()?;
    payload.split_at_checked(cursor.offset())
}

/// Time span of the rows of a record, for each stream.
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

pub(super) fn stream_records(payload: &[u8]) -> Option<Vec<StreamRecord>> {
    let mut cursor = Cursor::new(payload);
    let count = cursor
        .varint_up_to(payload.len() as u64, "stream count")
        .ok()?;
    (0..count)
        .map(|_| StreamRecord::decode(&mut cursor).ok())
        .collect()
}

/// The highest sequence in the metadata.
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
