//! The log of a fast tier, copied to bulk at intervals: if the tier is lost, the copied records are
//! not.
//!
//! The copy is at the location of the log without the tier, and is a log: each file has the same
//! generation and the same records as one in the tier, and is named by its generation. So an
//! opening without the tier finds a log there that ends a little earlier.
//!
//! Invariants: a file is in the copy only after all previous ones; of each file the copy has a
//! prefix that is synced before more is written. From the first acknowledgement of an opening on it
//! has only records of the log: a tier that loses power may lose bytes that were copied. Files that
//! are not needed any more are removed, and leftovers of an earlier tier are not mistaken for the
//! copy. Concurrency: one lock, held while files are copied; only rounds take it. Under it the ends
//! of the log's files are read, while the log goes on: a file that was recycled while it was read
//! is skipped. Failure: a round that failed is repeated; the copied files stay. A failed sync
//! latches the database, as any does.

use crate::device::layout::log_dir;
use crate::device::tiers::{BulkLog, OwnedTier};
use crate::wal::{FILE_HEADER_BYTES, FileHeader, Log, LogPart, log_path};
use crate::{Error, Options, Result};
use headwater_io::{Env, File, Files, OpenMode};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// The copy of an open database's log.
#[derive(Debug)]
pub(crate) struct Mirror {
    /// The time between rounds.
    pub(crate) interval: Duration,
    from: Arc<dyn Files>,
    from_dir: PathBuf,
    to: BulkLog,
    copies: Mutex<Copies>,
    /// End of the copied bytes of files, by generation.
    ends: Mutex<BTreeMap<u64, u64>>,
}

#[derive(Debug, Default)]
struct Copies {
    /// The log moved away: no more records are copied.
    is_ended: bool,
    /// True when the previous content of the folder was checked.
    is_begun: bool,
    /// Start of the newest round.
    newest_round: Option<Duration>,
    files: BTreeMap<u64, Copied>,
}

#[derive(Clone, Debug)]
struct Copied {
    file: Arc<dyn File>,
    /// End of its synced bytes.
    end: u64,
}

impl Mirror {
    /// The mirror of the options. If none is configured, an earlier copy is removed: it would
    /// become outdated.
    pub(crate) fn of(
        tier: Option<&OwnedTier>,
        env: &Env,
        options: &Options,
    ) -> Result<Option<Mirror>> {
        let Some(tier) = tier.filter(|owned| owned.tier.parts.log) else {
            return Ok(None);
        };
        let Some(interval) = options.log_mirror else {
            let BulkLog { files, dir } = &tier.bulk_log;
            let Some(names) = names(&tier.bulk_log)? else {
                return Ok(None);
            };
            for name in names {
                remove(&tier.bulk_log, &name)?;
            }
            // Also when the folder is empty: the process that removed the files may have been
            // killed before this sync.
            files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
            return Ok(None);
        };
        Ok(Some(Mirror {
            interval,
            from: Arc::clone(env.log_files()),
            from_dir: log_dir(env, &options.dir),
            to: tier.bulk_log.clone(),
            copies: Mutex::default(),
            ends: Mutex::default(),
        }))
    }

    /// True when a round is due: the caller makes it.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let newest = self.copies.lock().newest_round;
        newest.is_none_or(|at| now.saturating_sub(at) >= self.interval)
    }

    /// Before the first acknowledgement: removes records from the copy that are not in the log.
    pub(crate) fn begin(&self, log: &Log, first_needed: u64) -> Result<()> {
        self.begin_in(&mut self.copies.lock(), log, first_needed)
    }

    fn begin_in(&self, copies: &mut Copies, log: &Log, first_needed: u64) -> Result<()> {
        let BulkLog { files, dir } = &self.to;
        let parts = log.parts_from(first_needed);
        let mut kept = BTreeMap::new();
        for (generation, copy) in self.take_up()? {
            let name = name_of(generation);
            let part = parts.iter().find(|part| part.generation == generation);
            let Some(part) = part else {
                remove(&self.to, &name)?;
                continue;
            };
            let path = dir.join(&name);
            let failed = |e| Error::io("truncate", &path, e);
            // Also if the copy was truncated: the sync of an earlier truncation may have failed.
            let len = copy.file.len().map_err(failed)?.min(part.end);
            copy.file.set_len(len).map_err(failed)?;
            copy.file.sync_data().map_err(failed)?;
            kept.insert(generation, copy);
        }
        files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        copies.files = kept;
        copies.is_begun = true;
        Ok(())
    }

    /// Copies new records of the log, and removes files that are not needed any more: all of
    /// generations before `first_needed`.
    pub(crate) fn round(&self, log: &Log, first_needed: u64, now: Duration) -> Result<()> {
        let mut copies = self.copies.lock();
        copies.newest_round = Some(now);
        if copies.is_ended {
            return Ok(());
        }
        if !copies.is_begun {
            self.begin_in(&mut copies, log, first_needed)?;
        }
        let parts = log.parts_from(first_needed);
        for part in &parts {
            let is_whole = copies
                .files
                .get(&part.generation)
                .is_some_and(|copy| copy.end >= part.end);
            if !is_whole && !self.copy(&mut copies, part)? {
                break;
            }
        }
        let needed = |generation: &u64| parts.iter().any(|part| part.generation == *generation);
        let gone = copies.files.keys().copied().filter(|g| !needed(g));
        for generation in gone.collect::<Vec<u64>>() {
            remove(&self.to, &name_of(generation))?;
            copies.files.remove(&generation);
            self.ends.lock().remove(&generation);
        }
        Ok(())
    }

    /// Ends the mirror because the log moves away: when this returns, the copy is not written any
    /// more.
    pub(crate) fn end(&self) {
        self.copies.lock().is_ended = true;
    }

    /// Bytes of records in the log that are not in the copy.
    pub(crate) fn bytes_behind(&self, log: &Log, first_needed: u64) -> u64 {
        let parts = log.parts_from(first_needed);
        let ends = self.ends.lock();
        parts
            .iter()
            .map(|part| {
                let copied = ends.get(&part.generation).copied();
                part.end.saturating_sub(copied.unwrap_or(FILE_HEADER_BYTES))
            })
            .sum()
    }

    /// Continues files that an earlier process copied, and removes all others.
    fn take_up(&self) -> Result<BTreeMap<u64, Copied>> {
        let BulkLog { files, dir } = &self.to;
        files
            .create_dir_all(dir)
            .map_err(|e| Error::io("create", dir, e))?;
        let mut found = BTreeMap::new();
        for name in names(&self.to)?.unwrap_or_default() {
            let path = dir.join(&name);
            let file = files
                .open(&path, OpenMode::Write)
                .map_err(|e| Error::io("open", &path, e))?;
            match header_of(&*file, &path)? {
                Some(header) if name_of(header.generation) == name => {
                    // Its last sync may have failed: all of it is rewritten.
                    found.insert(header.generation, Copied { file, end: 0 });
                }
                _ => remove(&self.to, &name)?,
            }
        }
        Ok(found)
    }

    /// Copies a file up to the end of its records. False when the log has recycled or removed it:
    /// it is not needed any more.
    fn copy(&self, copies: &mut Copies, part: &LogPart) -> Result<bool> {
        let path = log_path(&self.from_dir, part.number);
        let source = match self.from.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other.map_err(|e| Error::io("open", &path, e))?,
        };
        let Some(header) = self.current_header(&*source, &path, part)? else {
            return Ok(false);
        };
        let copy = match copies.files.get(&part.generation) {
            Some(copy) => copy.clone(),
            None => {
                let copy = self.make(&header)?;
                copies.files.insert(part.generation, copy.clone());
                copy
            }
        };
        let to = self.to.dir.join(name_of(part.generation));
        let failed = |e| Error::io("write", &to, e);
        if copy.end == 0 {
            let header = header_of_copy(&header).encode();
            copy.file.write_all_at(0, &header).map_err(failed)?;
        }
        let mut at = copy.end.max(FILE_HEADER_BYTES);
        let mut piece = Vec::new();
        while at < part.end {
            let count = (part.end - at).min(PIECE_BYTES);
            piece.resize(usize::try_from(count).unwrap_or(0), 0);
            source
                .read_exact_at(at, &mut piece)
                .map_err(|e| Error::io("read", &path, e))?;
            if self.current_header(&*source, &path, part)?.is_none() {
                return Ok(false);
            }
            copy.file.write_all_at(at, &piece).map_err(failed)?;
            at += count;
        }
        // Records that an earlier process read before its log was synced may never have become
        // durable there.
        if copy.file.len().map_err(failed)? > part.end {
            copy.file.set_len(part.end).map_err(failed)?;
        }
        copy.file.sync_data().map_err(failed)?;
        self.ends.lock().insert(part.generation, part.end);
        let end = part.end;
        copies.files.insert(part.generation, Copied { end, ..copy });
        Ok(true)
    }

    /// The header of a file of the log, while its generation is unchanged.
    fn current_header(
        &self,
        source: &dyn File,
        path: &Path,
        part: &LogPart,
    ) -> Result<Option<FileHeader>> {
        let header = header_of(source, path)?;
        Ok(header.filter(|header| header.generation == part.generation))
    }

    /// Creates a file of the copy.
    fn make(&self, header: &FileHeader) -> Result<Copied> {
        let BulkLog { files, dir } = &self.to;
        let name = name_of(header.generation);
        let path = dir.join(&name);
        let failed = |e| Error::io("create", &path, e);
        let file = match files.open(&path, OpenMode::CreateNew) {
            // A leftover of a round that failed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove(&self.to, &name)?;
                files.open(&path, OpenMode::CreateNew)
            }
            other => other,
        };
        let file = file.map_err(failed)?;
        // The name first: a file with a header has a durable name.
        files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        let header = header_of_copy(header).encode();
        file.write_all_at(0, &header).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        Ok(Copied {
            file,
            end: FILE_HEADER_BYTES,
        })
    }
}

/// A file of the copy grows with its records: its header does not preallocate any length.
fn header_of_copy(header: &FileHeader) -> FileHeader {
    FileHeader {
        bytes: FILE_HEADER_BYTES,
        ..*header
    }
}

fn name_of(generation: u64) -> String {
    format!("{generation}.log")
}

/// The names of the files in the folder; `None` when it does not exist.
fn names(log: &BulkLog) -> Result<Option<Vec<String>>> {
    match log.files.list(&log.dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|e| Error::io("list", &log.dir, e)),
    }
}

fn remove(log: &BulkLog, name: &str) -> Result<()> {
    let path = log.dir.join(name);
    match log.files.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", &path, error))
        }
        _ => Ok(()),
    }
}

fn header_of(file: &dyn File, path: &Path) -> Result<Option<FileHeader>> {
    let mut bytes = [0u8; 64];
    match file.read_exact_at(0, &mut bytes) {
        Ok(()) => Ok(FileHeader::decode(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}
