//! The files of the log: zero-filled once, filled from the front, recycled when none of their
//! records is needed.
//!
//! Invariants: exactly one file is current; files in `full` have ascending generations below the
//! current one's and ascending sequences; before a file is left for the next, its bytes are on the
//! medium; before a record goes to a file, its header is. So generations on the medium have no
//! gaps, and a generation is never used twice. A file never changes its name. Sizes: files have the
//! configured size while much is written. A new log, an opening and a rest ([`LogFiles::rest`])
//! begin with a small file, and files grow from there, so that a database with few writes uses
//! little space. Failure: any error is passed up and the log latches.

use super::record::{FILE_HEADER_BYTES, FileHeader};
use crate::common::ids::Sequence;
use crate::{Error, ErrorKind, Result};
use headwater_io::{File, Files, OpenMode};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum files that are retained for recycling.
pub(super) const FREE_FILES_MAX: usize = 4;
/// The size of the first file of an opening, and of one after a rest.
const SMALL_FILE_BYTES: u64 = 256 << 10;
/// Size ratio of a file to the previous size.
const GROWTH: u64 = 4;
/// After an opening each file is of the next size: three files, of 5 MiB, come before those of 8.
const FILES_OF_A_SIZE_AT_FIRST: u32 = 1;
/// Number of files of one size after a rest, before they become larger: a database with few writes
/// has filled them and rested by then, and continues with the same files, whose bytes need not be
/// allocated again.
const FILES_OF_A_SIZE_AFTER_REST: u32 = 4;
/// Number of free files that stay through a rest.
const FREE_FILES_AT_REST: usize = 2;

#[derive(Debug)]
struct Current {
    number: u64,
    generation: u64,
    file: Arc<dyn File>,
    offset: u64,
    bytes: u64,
    last: Sequence,
    dirty: bool,
}

/// A file that accepts no more records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FullFile {
    pub(crate) number: u64,
    pub(crate) generation: u64,
    pub(crate) last: Sequence,
    /// End of its records.
    pub(crate) end: u64,
    pub(crate) bytes: u64,
}

/// A file with needed records, up to the end of the written ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPart {
    pub(crate) number: u64,
    pub(crate) generation: u64,
    /// Present end of its records.
    pub(crate) end: u64,
}

#[derive(Debug)]
pub(crate) struct LogFiles {
    files: Arc<dyn Files>,
    dir: PathBuf,
    /// The size that files have while much is written.
    file_bytes: u64,
    /// The size that new files have now.
    size: u64,
    /// Number of files started with this size.
    of_size: u32,
    /// Number of files to start before they become larger.
    files_of_a_size: u32,
    current: Option<Current>,
    full: VecDeque<FullFile>,
    free: Vec<(u64, u64)>,
    next_number: u64,
    next_generation: u64,
    pub(crate) bytes_written: u64,
    /// The last sequence of the newest freed file.
    floor: Sequence,
}

/// The size of the first file of a log whose files become as large as this.
pub(super) fn first_file_bytes(file_bytes: u64) -> u64 {
    file_bytes.min(SMALL_FILE_BYTES)
}

pub(crate) fn file_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.log"))
}

impl LogFiles {
    pub(crate) fn new(
        files: Arc<dyn Files>,
        dir: PathBuf,
        file_bytes: u64,
        full: VecDeque<FullFile>,
        free: Vec<(u64, u64)>,
        (next_number, next_generation): (u64, u64),
        floor: Sequence,
    ) -> LogFiles {
        LogFiles {
            files,
            dir,
            file_bytes,
            size: first_file_bytes(file_bytes),
            of_size: 0,
            files_of_a_size: FILES_OF_A_SIZE_AT_FIRST,
            current: None,
            full,
            free,
            next_number,
            next_generation,
            bytes_written: 0,
            floor,
        }
    }

    /// Continues in another location, which has no files. The files here are not needed any more.
    pub(crate) fn move_to(&mut self, files: &Arc<dyn Files>, dir: &Path) {
        self.files = Arc::clone(files);
        self.dir = dir.to_owned();
        self.current = None;
        self.full.clear();
        self.free.clear();
        self.begin_small(FILES_OF_A_SIZE_AT_FIRST);
    }

    fn begin_small(&mut self, files_of_a_size: u32) {
        self.size = first_file_bytes(self.file_bytes);
        self.of_size = 0;
        self.files_of_a_size = files_of_a_size;
    }

    /// Sets the size of the next file, in which `needed` bytes are needed at once.
    fn grow(&mut self, needed: u64) {
        let is_next = self.of_size >= self.files_of_a_size;
        let mut size = if is_next {
            self.size * GROWTH
        } else {
            self.size
        };
        // A large group means that much is written.
        while size < needed.min(self.file_bytes) {
            size *= GROWTH;
        }
        let size = size.min(self.file_bytes);
        if size != self.size {
            self.size = size;
            self.of_size = 0;
        }
    }

    /// Bytes of records one file can take.
    pub(crate) fn room(&self) -> u64 {
        self.file_bytes - FILE_HEADER_BYTES
    }

    /// The generation of the records of the next [`LogFiles::append`] of `bytes` bytes; begins a
    /// new file if they do not fit the current one.
    pub(crate) fn prepare(&mut self, bytes: u64, previous: Sequence) -> Result<u64> {
        if let Some(current) = &self.current
            && current.offset + bytes <= current.bytes
        {
            return Ok(current.generation);
        }
        self.begin_file(bytes, previous)
    }

    fn begin_file(&mut self, bytes: u64, previous: Sequence) -> Result<u64> {
        let needed = FILE_HEADER_BYTES + bytes;
        self.grow(needed);
        let recycled = self
            .free
            .iter()
            .position(|(_, size)| *size >= needed)
            .map(|at| self.free.swap_remove(at));
        let (number, size, file) = match recycled {
            Some((number, size)) => {
                let path = file_path(&self.dir, number);
                let file = self
                    .files
                    .open(&path, OpenMode::Write)
                    .map_err(|e| Error::io("open", &path, e))?;
                (number, size, file)
            }
            None => match self.create_file(needed.max(self.size)) {
                // On a nearly full disk a shorter file may suffice.
                Err(error) if error.kind() == ErrorKind::Full && needed < self.size => {
                    self.remove_file(self.next_number - 1)?;
                    self.create_file(needed)?
                }
                other => other?,
            },
        };
        self.leave_current()?;
        let generation = self.next_generation;
        self.next_generation += 1;
        let header = FileHeader {
            generation,
            previous,
            bytes: size,
        };
        let path = file_path(&self.dir, number);
        file.write_all_at(0, &header.encode())
            .map_err(|e| Error::io("write", &path, e))?;
        // If records were written before the header, a crash could lose the header alone, and the
        // next process would reuse its generation, with valid checksums of the leftover records.
        file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
        self.bytes_written += FILE_HEADER_BYTES;
        self.current = Some(Current {
            number,
            generation,
            file,
            offset: FILE_HEADER_BYTES,
            bytes: size,
            last: previous,
            dirty: false,
        });
        self.of_size = self.of_size.saturating_add(1);
        Ok(generation)
    }

    /// Closes the current file to records; the next record begins another file.
    pub(crate) fn leave_current(&mut self) -> Result<()> {
        self.sync()?;
        if let Some(old) = self.current.take() {
            self.full.push_back(FullFile {
                number: old.number,
                generation: old.generation,
                last: old.last,
                end: old.offset,
                bytes: old.bytes,
            });
        }
        Ok(())
    }

    fn create_file(&mut self, size: u64) -> Result<(u64, u64, Arc<dyn File>)> {
        let number = self.next_number;
        self.next_number += 1;
        let path = file_path(&self.dir, number);
        let write = |e| Error::io("create", &path, e);
        let file = self.files.open(&path, OpenMode::CreateNew).map_err(write)?;
        let zeros = vec![0u8; usize::try_from(size.min(1 << 20)).unwrap_or(1 << 20)];
        let mut offset = 0;
        while offset < size {
            let len = (size - offset).min(zeros.len() as u64);
            let part = zeros
                .get(..usize::try_from(len).unwrap_or(0))
                .unwrap_or_default();
            file.write_all_at(offset, part).map_err(write)?;
            offset += len;
        }
        file.sync_data().map_err(write)?;
        self.files
            .sync_dir(&self.dir)
            .map_err(|e| Error::io("sync", &self.dir, e))?;
        Ok((number, size, file))
    }

    /// Writes whole records, for which [`LogFiles::prepare`] allocated space.
    pub(crate) fn append(&mut self, bytes: &[u8], last: Sequence) -> Result<()> {
        let Some(current) = &mut self.current else {
            return Err(Error::internal("log: append without a current file"));
        };
        let path = file_path(&self.dir, current.number);
        current.dirty = true;
        current
            .file
            .write_all_at(current.offset, bytes)
            .map_err(|e| Error::io("write", &path, e))?;
        current.offset += bytes.len() as u64;
        current.last = last;
        self.bytes_written += bytes.len() as u64;
        Ok(())
    }

    /// Makes everything appended durable. True when there was something to sync.
    pub(crate) fn sync(&mut self) -> Result<bool> {
        let Some(current) = &mut self.current else {
            return Ok(false);
        };
        if !current.dirty {
            return Ok(false);
        }
        let path = file_path(&self.dir, current.number);
        current
            .file
            .sync_data()
            .map_err(|e| Error::io("sync", &path, e))?;
        current.dirty = false;
        Ok(true)
    }

    /// The generation of the oldest file with a record at or after `needed`, without changing
    /// anything.
    pub(crate) fn first_generation_needed(&self, needed: Sequence) -> u64 {
        self.full
            .iter()
            .find(|f| f.last >= needed)
            .map(|f| f.generation)
            .or(self.current.as_ref().map(|c| c.generation))
            .unwrap_or(self.next_generation)
    }

    /// The last sequence of the files below a generation; 0 without such files.
    pub(crate) fn sequence_before(&self, generation: u64) -> Sequence {
        let below = self
            .full
            .iter()
            .rev()
            .find(|f| f.generation < generation)
            .map(|f| f.last);
        below.unwrap_or(self.floor)
    }

    /// Releases files that a database without writes does not need: files begin small again, and
    /// only a few small free ones stay.
    pub(crate) fn rest(&mut self) -> Result<()> {
        self.begin_small(FILES_OF_A_SIZE_AFTER_REST);
        self.keep_free(FREE_FILES_AT_REST).map(drop)
    }

    /// Releases all files that no record needs, on a full disk. True when there was at least one.
    pub(crate) fn give_back(&mut self) -> Result<bool> {
        self.begin_small(FILES_OF_A_SIZE_AFTER_REST);
        self.keep_free(0)
    }

    /// Removes free files, except some small ones. True when there were any to remove.
    fn keep_free(&mut self, most: usize) -> Result<bool> {
        let mut kept = 0;
        let free = std::mem::take(&mut self.free);
        let (stay, go): (Vec<_>, Vec<_>) = free.into_iter().partition(|(_, bytes)| {
            let stays = *bytes <= SMALL_FILE_BYTES && kept < most;
            kept += usize::from(stays);
            stays
        });
        self.free = stay;
        for (number, _) in &go {
            self.remove_file(*number)?;
        }
        self.sync_dir_if(!go.is_empty())?;
        Ok(!go.is_empty())
    }

    /// True when the current file is larger than a first one.
    pub(crate) fn is_current_large(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|c| c.bytes > SMALL_FILE_BYTES)
    }

    /// True when there is a file of a generation before this one that accepts no more records.
    pub(crate) fn has_full_below(&self, generation: u64) -> bool {
        self.full.iter().any(|file| file.generation < generation)
    }

    fn remove_file(&self, number: u64) -> Result<()> {
        let path = file_path(&self.dir, number);
        self.files
            .remove(&path)
            .map_err(|e| Error::io("remove", &path, e))
    }

    fn sync_dir_if(&self, changed: bool) -> Result<()> {
        if !changed {
            return Ok(());
        }
        self.files
            .sync_dir(&self.dir)
            .map_err(|e| Error::io("sync", &self.dir, e))
    }

    /// Frees files below a generation that the metadata no longer names.
    pub(crate) fn recycle_below(&mut self, generation: u64) -> Result<()> {
        let mut removed = false;
        while let Some(file) = self.full.front().copied()
            && file.generation < generation
        {
            let keep = self.free.len() < FREE_FILES_MAX && file.bytes == self.size;
            if keep {
                self.free.push((file.number, file.bytes));
            } else {
                self.remove_file(file.number)?;
                removed = true;
            }
            self.floor = file.last;
            self.full.pop_front();
        }
        self.sync_dir_if(removed)
    }

    /// Files from a generation on, oldest first.
    pub(crate) fn parts_from(&self, generation: u64) -> Vec<LogPart> {
        let full = self.full.iter().map(|f| (f.number, f.generation, f.end));
        let current = self.current.iter();
        let current = current.map(|c| (c.number, c.generation, c.offset));
        full.chain(current)
            .filter(|(_, begun, _)| *begun >= generation)
            .map(|(number, generation, end)| LogPart {
                number,
                generation,
                end,
            })
            .collect()
    }

    /// Bytes of files with records still needed.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.full.iter().map(|f| f.bytes).sum::<u64>()
            + self.current.as_ref().map_or(0, |c| c.offset)
    }

    /// Bytes of all files on the medium.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.full.iter().map(|f| f.bytes).sum::<u64>()
            + self.free.iter().map(|f| f.1).sum::<u64>()
            + self.current.as_ref().map_or(0, |c| c.bytes)
    }
}
