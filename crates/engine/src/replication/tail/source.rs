//! The tail of an open database, read from its log.
//!
//! Concurrency: the log goes on meanwhile, and a file that is not needed any more may be reused
//! while it is read. The checksum of each record covers its generation, so that this is detected,
//! and reading begins again.

use super::filter::Filter;
use super::{Tail, TailMark, TailPoint, TailRecord};
use crate::common::ids::Sequence;
use crate::core::Core;
use crate::device::layout::log_dir;
use crate::replication::subscriptions::ReplicationRules;
use crate::wal::{
    FILE_HEADER_BYTES, LogPart, RECORD_HEADER_BYTES, RecordHeader, log_path, record_bytes,
};
use crate::{Error, ErrorKind, Result};
use headwater_codec::checksum::crc32c;
use headwater_io::{File, OpenMode};
use headwater_types::invariant::wide;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a log file that are read at a time, if no record is larger.
const READ_BYTES: u64 = 256 << 10;
/// Maximum attempts.
const LOOKS_MAX: usize = 8;

/// Request for the tail of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailRequest {
    /// The extent of the known tail; `None` = no tail is known.
    pub last_point: Option<TailPoint>,
    /// The sequence of the known state, which has every definition and delete up to there.
    pub state: u64,
    /// Approximate bytes of records to return.
    pub bytes_max: usize,
    /// Backlog above which the oldest events are left out.
    pub backlog_max: usize,
}

/// End of the last scan in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLocation {
    generation: u64,
    offset: u64,
    point: TailPoint,
}

/// The records in the log of a database after the known records of a copy:
/// [`crate::Database::tail`].
pub(crate) fn tail(
    core: &Core,
    ask: &TailRequest,
    rules: &ReplicationRules,
    place: &mut Option<LogLocation>,
) -> Result<Tail> {
    core.log.check()?;
    for _ in 0..LOOKS_MAX {
        let from = place.take().filter(|p| Some(p.point) == ask.last_point);
        if let Some((tail, at)) = look(core, ask, rules, from)? {
            *place = at;
            return Ok(tail);
        }
    }
    Err(Error::new(
        ErrorKind::Busy,
        format!(
            "{}: the log changes faster than its tail can be read: try again",
            core.options.dir.display()
        ),
    ))
}

/// The records of one scan of the log.
struct TailScan<'a> {
    filter: Filter<'a>,
    request: &'a TailRequest,
    /// The record after which to continue, until it is reached.
    looked_for: Option<TailMark>,
    after: Sequence,
    /// Records, each with the location after it.
    records: VecDeque<(TailRecord, FilePosition)>,
    /// Definitions and deletes before the first of these, where events were left out.
    defining: Vec<TailRecord>,
    bytes: usize,
    skipped: Option<Sequence>,
}

impl TailScan<'_> {
    fn take(&mut self, record: LogRecord<'_>, behind: FilePosition) -> Result<()> {
        let (sequence, kind, payload) = record;
        if let Some(mark) = self.looked_for
            && sequence.0 == mark.sequence
        {
            let record = self.filter.pass(sequence, kind, payload)?;
            if record.is_some_and(|record| record.mark() == mark) {
                self.looked_for = None;
            }
            return Ok(());
        }
        if sequence <= self.after {
            return Ok(());
        }
        let Some(record) = self.filter.pass(sequence, kind, payload)? else {
            return Ok(());
        };
        self.bytes += record.bytes();
        self.records.push_back((record, behind));
        if self.bytes > self.request.backlog_max {
            // To half of it, so that this does not run for each record.
            while self.bytes > self.request.backlog_max / 2
                && let Some((oldest, _)) = self.records.pop_front()
            {
                self.bytes -= oldest.bytes();
                match oldest.has_events() {
                    true => self.skipped = Some(oldest.sequence),
                    false => self.defining.push(oldest),
                }
            }
        }
        Ok(())
    }
}

/// One attempt; `None` when the log changed meanwhile, or does not have the requested records.
fn look(
    core: &Core,
    request: &TailRequest,
    rules: &ReplicationRules,
    from: Option<LogLocation>,
) -> Result<Option<(Tail, Option<LogLocation>)>> {
    // Before the number of the state: events that are not in memory now are in the state that is
    // named then.
    let floor = Sequence(core.first_needed().0.saturating_sub(1));
    let lineage = core.meta.lineage()?;
    let until = core.log.synced();
    let held_behind = core.log.sequence_before(core.commits.log_generation());
    let begin = Sequence(floor.0.min(request.state).max(held_behind.0));
    // No record was left out after the known ones, if the log still has all of them.
    let known = request.last_point.filter(|known| {
        let is_held = |sequence: u64| held_behind.0 <= sequence && sequence <= until.0;
        is_held(known.until) && known.last.is_none_or(|last| held_behind.0 < last.sequence)
    });
    let is_placed = from.is_some() && known.is_some();
    let mut found = TailScan {
        filter: Filter::new(core, rules),
        request,
        looked_for: known.and_then(|known| known.last).filter(|_| !is_placed),
        after: known.map_or(begin, |known| Sequence(known.until)),
        records: VecDeque::new(),
        defining: Vec::new(),
        bytes: 0,
        skipped: None,
    };
    let from = from.filter(|_| is_placed);
    let read = read(core, from, until, &mut |record, behind| {
        found.take(record, behind)
    })?;
    let Some(end) = read else {
        return Ok(None);
    };
    if found.looked_for.is_some() {
        // The log has another record of that number, or none: the tail begins again.
        let anew = TailRequest {
            last_point: None,
            ..*request
        };
        return look(core, &anew, rules, None);
    }
    let history = (lineage.identity, lineage.incarnation);
    Ok(Some(tail_of(
        found,
        history,
        (lineage.number, floor),
        until,
        end,
    )))
}

/// The requested amount of the records.
fn tail_of(
    found: TailScan<'_>,
    history: (u64, u64),
    (number, floor): (u64, Sequence),
    until: Sequence,
    end: Option<FilePosition>,
) -> (Tail, Option<LogLocation>) {
    let TailScan { request, after, .. } = found;
    let mut records = found.defining;
    let mut bytes: usize = records.iter().map(TailRecord::bytes).sum();
    let mut left = found.records.into_iter();
    let mut place = None;
    for (record, behind) in left.by_ref() {
        bytes += record.bytes();
        place = Some(behind);
        records.push(record);
        if bytes >= request.bytes_max {
            break;
        }
    }
    let is_newest = left.next().is_none();
    let until = match (is_newest, records.last()) {
        (false, Some(last)) => last.sequence,
        _ => until.max(after),
    };
    let known = request.last_point.filter(|known| known.until == after.0);
    let point = TailPoint {
        until: until.0,
        last: match records.last() {
            Some(last) => Some(last.mark()),
            None => known.and_then(|known| known.last),
        },
    };
    let place = if is_newest { end } else { place };
    let place = place.map(|(generation, offset)| LogLocation {
        generation,
        offset,
        point,
    });
    let tail = Tail {
        history,
        number,
        floor,
        after,
        until,
        skipped: found.skipped,
        is_newest,
        records,
    };
    (tail, place)
}

/// A location in the log: the generation of its file, and the offset.
type FilePosition = (u64, u64);
/// A record in the log: its sequence, its kind, its payload.
type LogRecord<'a> = (Sequence, u8, &'a [u8]);
/// Callback for a record, and the location after it.
type Take<'a> = dyn FnMut(LogRecord<'_>, FilePosition) -> Result<()> + 'a;

/// Passes on the records up to `until` from a location on, or all records of the log; returns the
/// end: generation and offset, if there is a file. `None` when the location is overwritten, or a
/// file was reused meanwhile.
#[allow(
    clippy::option_option,
    reason = "there may be no file, and there may be no answer"
)]
fn read(
    core: &Core,
    from: Option<LogLocation>,
    until: Sequence,
    take: &mut Take<'_>,
) -> Result<Option<Option<FilePosition>>> {
    let placed = core.placing.now();
    let dir = log_dir(&placed.env, &core.options.dir);
    let parts = core.log.parts_from(core.commits.log_generation());
    let first = match from {
        None => 0,
        Some(place) => {
            let here = parts.iter().position(|p| p.generation == place.generation);
            let Some(here) = here else {
                return Ok(None);
            };
            here
        }
    };
    let mut end = None;
    for part in parts.iter().skip(first) {
        let offset = match from {
            Some(place) if place.generation == part.generation => place.offset,
            _ => FILE_HEADER_BYTES,
        };
        let path = log_path(&dir, part.number);
        let file = match placed.env.log_files().open(&path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io("open", &path, e))?,
        };
        let Some(at) = read_part(&file, &path, part, (offset, until), take)? else {
            return Ok(None);
        };
        end = Some((part.generation, at));
    }
    Ok(Some(end))
}

fn read_part(
    file: &Arc<dyn File>,
    path: &Path,
    part: &LogPart,
    (offset, until): (u64, Sequence),
    take: &mut Take<'_>,
) -> Result<Option<u64>> {
    let mut at = offset;
    let mut piece = Vec::new();
    let mut wanted = READ_BYTES;
    while at < part.end {
        let count = (part.end - at).min(wanted);
        piece.resize(usize::try_from(count).unwrap_or(usize::MAX), 0);
        match file.read_exact_at(at, &mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other.map_err(|e| Error::io("read", path, e))?,
        }
        let mut used = 0;
        wanted = READ_BYTES;
        while let Some(rest) = piece.get(used..).filter(|rest| !rest.is_empty()) {
            let Some(header) = RecordHeader::decode(part.generation, rest) else {
                if rest.len() < RECORD_HEADER_BYTES && used > 0 {
                    break;
                }
                return Ok(None);
            };
            let payload_bytes = usize::try_from(header.payload_bytes).unwrap_or(usize::MAX);
            let whole = record_bytes(payload_bytes);
            let payload = rest.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + payload_bytes);
            let Some(payload) = payload.filter(|_| whole <= rest.len()) else {
                wanted = READ_BYTES.max(wide(whole));
                if at + wide(used + whole) > part.end {
                    return Ok(None);
                }
                break;
            };
            if header.sequence > until {
                return Ok(Some(at + wide(used)));
            }
            if crc32c(payload) != header.payload_crc {
                return Ok(None);
            }
            used += whole;
            let behind = (part.generation, at + wide(used));
            take((header.sequence, header.kind, payload), behind)?;
        }
        at += wide(used);
    }
    Ok(Some(at))
}
