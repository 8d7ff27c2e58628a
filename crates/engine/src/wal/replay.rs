//! Reads the log back at opening, and distinguishes a torn tail from damage.
//!
//! A record whose checks fail ends the log. The end is a torn tail when there is no evidence that
//! the record was ever on the medium; it is damage when a later record or file was written after
//! everything up to it had been synced, or a job was committed that needed it. A file that should
//! exist and is missing, or is shorter than its recorded length, is damage too: the metadata record
//! which files were started, and so does a record at any offset in a file without a header. A
//! reader beside an owner changes nothing, and checks that no file was recycled while it was read.
//! Records read here may never have been synced by the process that wrote them: they are synced
//! before they are used.

use super::files::{FREE_FILES_MAX, FullFile, LogFiles, file_path, first_file_bytes};
use super::record::{
    FILE_HEADER_BYTES, FILE_MAGIC, FileHeader, RECORD_HEADER_BYTES, RecordHeader, record_bytes,
};
use crate::common::error::Damage;
use crate::common::ids::Sequence;
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_io::{File, Files, OpenMode};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of a replay, apart from the replayed records.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) files: LogFiles,
    pub(crate) last: Sequence,
    pub(crate) records: u64,
    /// File and offset of a torn tail that has non-zero bytes.
    pub(crate) torn: Option<(PathBuf, u64)>,
    /// Ends of the records of each file, oldest first.
    pub(crate) ends: Vec<LogEnd>,
}

/// End of the records of a log file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    pub(crate) number: u64,
    pub(crate) generation: u64,
    pub(crate) offset: u64,
    /// Length of the file according to its header.
    pub(crate) file_bytes: u64,
    header: FileHeader,
}

impl LogEnd {
    /// Fails with `busy` when the file was recycled since.
    pub(crate) fn check_current(&self, file: &dyn File, path: &Path) -> Result<()> {
        still_same(file, &self.header, path)
    }
}

/// The part of the log that the metadata need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needed {
    /// Files of smaller generations are not needed.
    pub(crate) first_generation: u64,
    /// The newest generation known to be started; 0 = none.
    pub(crate) newest_generation: u64,
    /// Every record up to this one was written.
    pub(crate) sequence: Sequence,
}

impl Needed {
    /// The needed part, of a log whose files up to this generation are also known to be started.
    pub(crate) fn begun_up_to(self, generation: u64) -> Needed {
        Needed {
            newest_generation: self.newest_generation.max(generation),
            ..self
        }
    }
}

/// Kind of reader of the log.
#[derive(Clone, Copy)]
pub(crate) enum Access<'a> {
    /// The owner of the database, which continues after the records read.
    Owner,
    /// A reader that may read while an owner writes: changes no file. The check fails if files may
    /// have been freed since the metadata were read.
    Reader(&'a dyn Fn() -> Result<()>),
}

impl Access<'_> {
    fn is_owner(self) -> bool {
        matches!(self, Access::Owner)
    }
}

/// A needed log file.
#[derive(Clone, Copy)]
struct Candidate {
    number: u64,
    header: FileHeader,
    bytes: u64,
}

/// Reads every needed record in order of sequence.
pub(crate) fn replay(
    files: &Arc<dyn Files>,
    dir: &Path,
    file_bytes: u64,
    needed: Needed,
    access: Access<'_>,
    mut each: impl FnMut(Sequence, u8, &[u8], &Path, u64) -> Result<()>,
) -> Result<Replayed> {
    let source = LogSource { files, dir, access };
    let listing = LogListing::of(source, needed)?;
    check_complete(files, dir, &listing.candidates, &listing.headless, needed)?;
    if let Access::Reader(nothing_freed) = access {
        nothing_freed()?;
    }
    let floor = listing
        .candidates
        .first()
        .map_or(needed.sequence, |c| c.header.previous);
    let read = ReadLog::read(source, &listing.candidates, floor, &mut each)?;
    read.check_reaches(source, &listing.candidates, needed.sequence)?;
    let numbers = listing.next;
    let kept = listing.release(source, file_bytes)?;
    let files = LogFiles::new(
        Arc::clone(files),
        dir.to_owned(),
        file_bytes,
        read.full,
        kept,
        numbers,
        floor,
    );
    Ok(Replayed {
        files,
        last: read.progress.last,
        records: read.progress.records,
        torn: read.torn,
        ends: read.ends,
    })
}

/// The files in the folder of a log.
struct LogListing {
    /// Needed files, by generation.
    candidates: Vec<Candidate>,
    /// Files without needed records, by number, with their bytes.
    freed: Vec<(u64, u64)>,
    /// Files without a readable header, by number.
    headless: Vec<u64>,
    /// Number and generation of the next file.
    next: (u64, u64),
}

impl LogListing {
    /// Lists the files, and reads their headers.
    fn of(source: LogSource<'_>, needed: Needed) -> Result<LogListing> {
        let LogSource { files, dir, .. } = source;
        let first_generation = needed.first_generation;
        let mut listing = LogListing {
            candidates: Vec::new(),
            freed: Vec::new(),
            headless: Vec::new(),
            next: (1, first_generation.max(needed.newest_generation + 1)),
        };
        for name in files.list(dir).map_err(|e| Error::io("list", dir, e))? {
            let Some(number) = name
                .strip_suffix(".log")
                .and_then(|n| n.parse::<u64>().ok())
            else {
                continue;
            };
            let (header, bytes) = read_header(source, number)?;
            listing.add(number, header, bytes, first_generation);
        }
        listing.candidates.sort_by_key(|c| c.header.generation);
        Ok(listing)
    }

    /// Adds a file; generations from `first_generation` on are needed.
    fn add(&mut self, number: u64, header: Option<FileHeader>, bytes: u64, first_generation: u64) {
        let (next_number, next_generation) = &mut self.next;
        *next_number = (*next_number).max(number + 1);
        match header {
            Some(header) if header.generation >= first_generation => {
                *next_generation = (*next_generation).max(header.generation + 1);
                self.candidates.push(Candidate {
                    number,
                    header,
                    bytes,
                });
            }
            Some(_) => self.freed.push((number, bytes)),
            None => self.headless.push(number),
        }
    }

    /// Removes the files that are never used again, if the owner reads, and returns the other free
    /// files.
    fn release(self, source: LogSource<'_>, file_bytes: u64) -> Result<Vec<(u64, u64)>> {
        let LogSource { files, dir, access } = source;
        let mut headless = self.headless;
        // The log begins small again: a larger file, or one made for a large record, might never be
        // used again.
        let mut kept = Vec::new();
        for (number, bytes) in self.freed {
            if bytes == first_file_bytes(file_bytes) && kept.len() < FREE_FILES_MAX {
                kept.push((number, bytes));
            } else {
                headless.push(number);
            }
        }
        // A header is written after the syncs of a file and of its name. Without a header, one of
        // them may have failed, which a later sync does not repair: such a file is never used
        // again.
        for number in headless.into_iter().filter(|_| access.is_owner()) {
            let path = file_path(dir, number);
            files
                .remove(&path)
                .map_err(|e| Error::io("remove", &path, e))?;
        }
        Ok(kept)
    }
}

/// Reads the header of a log file, if it has one, and its length.
fn read_header(source: LogSource<'_>, number: u64) -> Result<(Option<FileHeader>, u64)> {
    let LogSource { files, dir, .. } = source;
    let path = file_path(dir, number);
    let file = files
        .open(&path, OpenMode::Read)
        .map_err(|e| Error::io("open", &path, e))?;
    let bytes = file.len().map_err(|e| Error::io("read", &path, e))?;
    let mut header = [0u8; FILE_HEADER_BYTES as usize];
    let header = if bytes >= FILE_HEADER_BYTES {
        file.read_exact_at(0, &mut header)
            .map_err(|e| Error::io("read", &path, e))?;
        Error::check_version(&path, &header, &FILE_MAGIC)?;
        FileHeader::decode(&header)
    } else {
        None
    };
    Ok((header, bytes))
}

/// The files of a log, read to the end of their records.
struct ReadLog {
    progress: ReplayProgress,
    full: VecDeque<FullFile>,
    torn: Option<(PathBuf, u64)>,
    ends: Vec<LogEnd>,
}

impl ReadLog {
    /// Reads the records after `floor`, file after file.
    fn read(
        source: LogSource<'_>,
        candidates: &[Candidate],
        floor: Sequence,
        each: &mut impl FnMut(Sequence, u8, &[u8], &Path, u64) -> Result<()>,
    ) -> Result<ReadLog> {
        let LogSource { files, dir, access } = source;
        let mut log = ReadLog {
            progress: ReplayProgress {
                last: floor,
                records: 0,
            },
            full: VecDeque::new(),
            torn: None,
            ends: Vec::new(),
        };
        for (index, candidate) in candidates.iter().enumerate() {
            let (last, previous) = (log.progress.last, candidate.header.previous);
            if previous > last && index > 0 {
                return Err(missing(&file_path(dir, candidate.number), last, previous));
            }
            let next_previous = candidates.get(index + 1).map(|c| c.header.previous);
            let end = read_file(source, candidate, &mut log.progress, next_previous, each)?;
            if end.torn {
                log.torn = Some((file_path(dir, candidate.number), end.offset));
            }
            if next_previous.is_none() && access.is_owner() {
                write_again(files, &file_path(dir, candidate.number), end.offset)?;
            }
            log.add(candidate, end.offset);
        }
        Ok(log)
    }

    /// Adds a file whose records end at an offset.
    fn add(&mut self, candidate: &Candidate, offset: u64) {
        self.ends.push(LogEnd {
            number: candidate.number,
            generation: candidate.header.generation,
            offset,
            file_bytes: candidate.header.bytes,
            header: candidate.header,
        });
        self.full.push_back(FullFile {
            number: candidate.number,
            generation: candidate.header.generation,
            last: self.progress.last,
            end: offset,
            bytes: candidate.bytes,
        });
    }

    /// Fails when records are missing that the metadata refer to.
    fn check_reaches(
        &self,
        source: LogSource<'_>,
        candidates: &[Candidate],
        needed: Sequence,
    ) -> Result<()> {
        let (dir, last) = (source.dir, self.progress.last);
        if last >= needed {
            return Ok(());
        }
        let (path, offset) = match (&self.torn, candidates.last()) {
            (Some(torn), _) => torn.clone(),
            (None, newest) => (
                newest.map_or_else(|| dir.to_owned(), |c| file_path(dir, c.number)),
                0,
            ),
        };
        Err(Error::damage(Damage {
            file: path,
            offset,
            expected: format!(
                "log records up to sequence {}, which the metadata refer to",
                needed.0
            ),
            found: format!("none after {}", last.0),
        }))
    }
}

/// Checks that generations have no gaps from the first needed one to the newest started, and that
/// every file has its recorded length.
fn check_complete(
    files: &Arc<dyn Files>,
    dir: &Path,
    candidates: &[Candidate],
    headless: &[u64],
    needed: Needed,
) -> Result<()> {
    let mut expected = needed.first_generation.max(1);
    for candidate in candidates {
        let path = file_path(dir, candidate.number);
        if candidate.header.generation != expected {
            let found = format!(
                "only this one, of generation {}",
                candidate.header.generation
            );
            return Err(lost_file(
                files,
                dir,
                headless,
                expected,
                Some((path, found)),
            )?);
        }
        if candidate.bytes < candidate.header.bytes {
            return Err(Error::damage(Damage {
                file: path,
                offset: candidate.bytes,
                expected: format!("a log file of {} bytes", candidate.header.bytes),
                found: format!("{} bytes", candidate.bytes),
            }));
        }
        expected += 1;
    }
    if expected <= needed.newest_generation {
        return Err(lost_file(files, dir, headless, expected, None)?);
    }
    // A header is on the medium before its file's records: a record of the next generation proves
    // that there was one. The metadata of a database written by an older version do not record it.
    match holder_of(files, dir, headless, expected)? {
        Some(path) => Err(headless_file(path, expected)),
        None => Ok(()),
    }
}

/// Error for a started file that has no header any more.
fn headless_file(path: PathBuf, generation: u64) -> Error {
    Error::damage(Damage {
        file: path,
        offset: 0,
        expected: format!("the header of a log file of generation {generation}"),
        found: "bytes whose checksum does not match, although the file's records are of that generation".into(),
    })
}

/// The error for a missing file of a generation. `behind` is the file found in its place.
fn lost_file(
    files: &Arc<dyn Files>,
    dir: &Path,
    headless: &[u64],
    generation: u64,
    behind: Option<(PathBuf, String)>,
) -> Result<Error> {
    if let Some(path) = holder_of(files, dir, headless, generation)? {
        return Ok(headless_file(path, generation));
    }
    Ok(Error::damage(match (behind, headless) {
        (Some((path, found)), _) => Damage {
            file: path,
            offset: 8,
            expected: format!("a log file of generation {generation} before this one"),
            found,
        },
        (None, [number, ..]) => Damage {
            file: file_path(dir, *number),
            offset: 0,
            expected: format!(
                "the header of a log file of generation {generation}, which is known to exist"
            ),
            found: "no readable header, in this file or another".into(),
        },
        (None, []) => Damage {
            file: dir.to_owned(),
            offset: 0,
            expected: format!("a log file of generation {generation}, which is known to exist"),
            found: "no such file".into(),
        },
    }))
}

/// The file without a header that contains a record of a generation, at any offset.
fn holder_of(
    files: &Arc<dyn Files>,
    dir: &Path,
    headless: &[u64],
    generation: u64,
) -> Result<Option<PathBuf>> {
    for number in headless {
        let path = file_path(dir, *number);
        let content = read_bytes(files, &path)?;
        let records = content
            .get(FILE_HEADER_BYTES as usize..)
            .unwrap_or_default();
        if records_in(generation, records, 0).next().is_some() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn read_bytes(files: &Arc<dyn Files>, path: &Path) -> Result<Vec<u8>> {
    let io = |e| Error::io("read", path, e);
    let file = files
        .open(path, OpenMode::Read)
        .map_err(|e| Error::io("open", path, e))?;
    let bytes = file.len().map_err(io)?;
    let mut content = vec![0u8; usize::try_from(bytes).unwrap_or(0)];
    file.read_exact_at(0, &mut content).map_err(io)?;
    Ok(content)
}

/// Rewrites the first bytes of the newest file unchanged, and syncs them.
///
/// The process that wrote them may have been killed before its last sync, or that sync may have
/// failed, after which the system shows bytes that it will never write. Older files were synced
/// before the next was started.
fn write_again(files: &Arc<dyn Files>, path: &Path, bytes: u64) -> Result<()> {
    let file = files
        .open(path, OpenMode::Write)
        .map_err(|e| Error::io("open", path, e))?;
    let mut content = vec![0u8; usize::try_from(bytes).unwrap_or(0)];
    file.read_exact_at(0, &mut content)
        .map_err(|e| Error::io("read", path, e))?;
    file.write_all_at(0, &content)
        .map_err(|e| Error::io("write", path, e))?;
    file.sync_data().map_err(|e| Error::io("sync", path, e))
}

fn missing(path: &Path, last: Sequence, previous: Sequence) -> Error {
    Error::damage(Damage {
        file: path.to_owned(),
        offset: 16,
        expected: format!(
            "records up to sequence {} in the log files before",
            previous.0
        ),
        found: format!("records up to {}", last.0),
    })
}

/// End of the records of a file.
struct End {
    offset: u64,
    /// There are non-zero bytes after the last record.
    torn: bool,
}

/// Checks that the file was not recycled. A recycled file gets its header before any record: while
/// the header is unchanged, the records that were read are of this use.
fn still_same(file: &dyn File, expected: &FileHeader, path: &Path) -> Result<()> {
    let mut header = [0u8; FILE_HEADER_BYTES as usize];
    file.read_exact_at(0, &mut header)
        .map_err(|e| Error::io("read", path, e))?;
    if FileHeader::decode(&header) == Some(*expected) {
        return Ok(());
    }
    Err(Error::new(
        crate::ErrorKind::Busy,
        format!("{} was recycled while it was read", path.display()),
    ))
}

/// The log that is replayed.
#[derive(Clone, Copy)]
struct LogSource<'a> {
    files: &'a Arc<dyn Files>,
    dir: &'a Path,
    access: Access<'a>,
}

/// Progress of a replay.
struct ReplayProgress {
    /// The newest record read, or the record after which the log begins.
    last: Sequence,
    records: u64,
}

/// Reads one file. `next_previous` is the record after which the next file begins.
fn read_file(
    source: LogSource<'_>,
    candidate: &Candidate,
    progress: &mut ReplayProgress,
    next_previous: Option<Sequence>,
    each: &mut impl FnMut(Sequence, u8, &[u8], &Path, u64) -> Result<()>,
) -> Result<End> {
    let LogSource { files, dir, access } = source;
    let path = file_path(dir, candidate.number);
    let file = files
        .open(&path, OpenMode::Read)
        .map_err(|e| Error::io("open", &path, e))?;
    let mut content = vec![0u8; usize::try_from(candidate.bytes).unwrap_or(0)];
    file.read_exact_at(0, &mut content)
        .map_err(|e| Error::io("read", &path, e))?;
    if !access.is_owner() {
        still_same(&*file, &candidate.header, &path)?;
    }
    let generation = candidate.header.generation;
    let mut offset = FILE_HEADER_BYTES as usize;
    loop {
        let rest = content.get(offset..).unwrap_or_default();
        if next_previous == Some(progress.last) {
            // Later records were not acknowledged when the next file was started, and their numbers
            // were reused.
            return Ok(End {
                offset: offset as u64,
                torn: false,
            });
        }
        let expected = Sequence(progress.last.0 + 1);
        let record = RecordHeader::decode(generation, rest)
            .filter(|h| h.sequence == expected)
            .and_then(|h| {
                let end = RECORD_HEADER_BYTES.checked_add(h.payload_bytes as usize)?;
                let payload = rest.get(RECORD_HEADER_BYTES..end)?;
                (crc32c(payload) == h.payload_crc).then_some((h, payload))
            });
        let Some((header, payload)) = record else {
            if next_previous.is_some_and(|p| p >= expected)
                || synced_later(generation, rest, expected)
            {
                return Err(Error::damage(Damage {
                    file: path,
                    offset: offset as u64,
                    expected: format!("the log record with sequence {}", expected.0),
                    found: "bytes whose checksum does not match, although later records show that it was synced".into(),
                }));
            }
            return Ok(End {
                offset: offset as u64,
                torn: rest.iter().any(|b| *b != 0),
            });
        };
        each(header.sequence, header.kind, payload, &path, offset as u64)?;
        progress.records += 1;
        progress.last = header.sequence;
        offset += record_bytes(payload.len());
    }
}

/// True when a later record was written after `expected` had been synced.
fn synced_later(generation: u64, rest: &[u8], expected: Sequence) -> bool {
    records_in(generation, rest, 8).any(|h| h.synced >= expected)
}

/// The headers of records of a generation, at any offset from a start on.
pub(crate) fn records_in(
    generation: u64,
    bytes: &[u8],
    from: usize,
) -> impl Iterator<Item = RecordHeader> {
    let places = from..(bytes.len() + 1).saturating_sub(RECORD_HEADER_BYTES);
    places.step_by(8).filter_map(move |at| {
        let bytes = bytes.get(at..)?;
        // Most offsets have zeros, or the middle of a payload: skip them without a checksum.
        let is_like = bytes.get(25..28) == Some(&[0; 3]) && bytes.get(24) != Some(&0);
        is_like
            .then(|| RecordHeader::decode(generation, bytes))
            .flatten()
    })
}

/// Replays a log made of one file with these bytes.
#[cfg(fuzzing)]
pub(crate) fn fuzz_file(bytes: &[u8]) {
    let env = headwater_io::Env::memory();
    let dir = std::path::Path::new("/log");
    let path = dir.join("1.log");
    let put = || {
        env.files.create_dir_all(dir)?;
        env.files
            .open(&path, headwater_io::OpenMode::CreateNew)?
            .write_all_at(0, bytes)
    };
    if put().is_ok() {
        let size = bytes.len() as u64;
        drop(replay(
            &env.files,
            dir,
            size,
            Needed::default(),
            Access::Owner,
            |_, _, _, _, _| Ok(()),
        ));
    }
}
