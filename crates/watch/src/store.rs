//! The file of a watch: its state at the start of the file, and the changes since.
//!
//! A file is rewritten when its changes are longer than its initial state: into the other one of
//! two names, so that one of the two files is always complete. A change whose write failed may or
//! may not be in the file, so the next change starts a new file.
//!
//! Invariants: a change for which [`Store::append`] returned is present at every later start. A
//! change that a crash tore was never reported, and is cut off. If bytes are damaged, the state
//! before them is used, and reported numbers are not used again. Concurrency: one owner of a watch
//! at a time. Failure: `io` errors of the device; the caller appends the change again. Format:
//! docs/format/watch.md.

use crate::persisted::{Change, Persisted};
use headwater_codec::{PutBytes, checksum::crc32c};
use headwater_io::{File, Files, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 7] = b"HWWATCH";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 8 + 8 + 8;
const BASE: u8 = 1;
/// Bytes of a record's length and checksum.
const FRAME_BYTES: usize = 8;
/// Minimum length of changes, in bytes, before a file is rewritten.
const REWRITE_BYTES: u64 = 64 << 10;
/// Maximum length of a file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The file of a watch.
#[derive(Debug)]
pub struct Store {
    files: Arc<dyn Files>,
    dir: PathBuf,
    id: u64,
    generation: u64,
    file: Option<Arc<dyn File>>,
    /// Offset of the next change.
    len: u64,
    /// Length of the file when it was started.
    initial_len: u64,
}

/// A watch whose file is open.
#[derive(Debug)]
pub struct OpenWatch {
    /// The file.
    pub store: Store,
    /// The persisted state.
    pub state: Persisted,
    /// Description of the damage, if any.
    pub damage: Option<String>,
}

impl Store {
    /// Opens the file of a watch, or starts a file with `new`.
    ///
    /// # Errors
    /// When the device cannot be read.
    pub fn open(
        files: Arc<dyn Files>,
        dir: &Path,
        id: u64,
        new: impl FnOnce() -> Persisted,
    ) -> io::Result<OpenWatch> {
        files.create_dir_all(dir)?;
        let mut store = Store {
            files,
            dir: dir.to_owned(),
            id,
            generation: 0,
            file: None,
            len: 0,
            initial_len: 0,
        };
        let mut best: Option<Read> = None;
        let mut damage = None;
        for generation in [0, 1] {
            let path = store.path(generation);
            if !store.files.exists(&path)? {
                continue;
            }
            match store.read(&path)? {
                Ok(read) => {
                    if best.as_ref().is_none_or(|b| b.generation < read.generation) {
                        best = Some(read);
                    }
                }
                Err(why) => damage = Some(why),
            }
        }
        let Some(read) = best else {
            return Ok(OpenWatch {
                store,
                state: new(),
                damage,
            });
        };
        let mut state = read.state;
        store.generation = read.generation;
        store.initial_len = read.initial_len;
        if let Some(why) = read.damage {
            // The next change starts a new file, so that no change follows damaged bytes.
            state.leap();
            return Ok(OpenWatch {
                store,
                state,
                damage: Some(why),
            });
        }
        // A torn record is cut off: bytes after a shorter next record must not be read as a record.
        if read.file.len()? > read.len {
            read.file.set_len(read.len)?;
        }
        store.len = read.len;
        store.file = Some(read.file);
        Ok(OpenWatch {
            store,
            state,
            damage: None,
        })
    }

    /// Appends a change; `state` is the state before it. The change is durable when this returns.
    ///
    /// # Errors
    /// When the device fails to write; the state is then unchanged.
    pub fn append(&mut self, kept: &Persisted, change: &Change) -> io::Result<()> {
        let changes = self.len.saturating_sub(self.initial_len);
        match &self.file {
            Some(file) if changes <= REWRITE_BYTES.max(2 * self.initial_len) => {
                let mut body = Vec::new();
                change.encode(&mut body);
                let record = framed(&body);
                let written = file.write_and_sync(self.len, &record);
                if written.is_err() {
                    self.file = None;
                }
                written?;
                self.len += u64::try_from(record.len()).unwrap_or(u64::MAX);
                Ok(())
            }
            _ => {
                let mut after = kept.clone();
                after.apply(change);
                self.begin(&after)
            }
        }
    }

    /// Starts a file with the whole state.
    fn begin(&mut self, kept: &Persisted) -> io::Result<()> {
        self.file = None;
        let generation = self.generation + 1;
        let path = self.path(generation);
        if self.files.exists(&path)? {
            self.files.remove(&path)?;
        }
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.put_u64(self.id);
        bytes.put_u64(generation);
        let mut body = vec![BASE];
        body.extend_from_slice(&kept.encode());
        bytes.extend_from_slice(&framed(&body));
        let file = self.files.open(&path, OpenMode::CreateNew)?;
        file.write_and_sync(0, &bytes)?;
        self.files.sync_dir(&self.dir)?;
        let old = self.path(self.generation);
        self.generation = generation;
        self.len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.initial_len = self.len;
        self.file = Some(file);
        // The older file is no longer read: if its removal fails now, the next rewrite removes it.
        let _ = self.files.remove(&old);
        Ok(())
    }

    /// Removes the files of a dropped watch.
    ///
    /// # Errors
    /// When the device fails to remove a file.
    pub fn remove(self) -> io::Result<()> {
        for generation in [0, 1] {
            let path = self.path(generation);
            if self.files.exists(&path)? {
                self.files.remove(&path)?;
            }
        }
        self.files.sync_dir(&self.dir)
    }

    fn path(&self, generation: u64) -> PathBuf {
        self.dir
            .join(format!("{:016x}.{}", self.id, generation % 2))
    }

    /// Reads a file: its state, or the reason for which it is invalid.
    fn read(&self, path: &Path) -> io::Result<Result<Read, String>> {
        let file = self.files.open(path, OpenMode::Write)?;
        let len = file.len()?;
        let wrong = |why: &str| Ok(Err(format!("{}: {why}", path.display())));
        if len > FILE_BYTES_MAX {
            return wrong("the file is longer than that of a watch can be");
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(0, &mut bytes)?;
        Ok(decode(&bytes, self.id)
            .map(|read| Read {
                generation: read.generation,
                state: read.state,
                len: read.len,
                initial_len: read.initial_len,
                damage: read.damage.map(|why| format!("{}: {why}", path.display())),
                file,
            })
            .map_err(|why| format!("{}: {why}", path.display())))
    }
}

struct Read {
    generation: u64,
    state: Persisted,
    len: u64,
    initial_len: u64,
    damage: Option<String>,
    file: Arc<dyn File>,
}

/// Decoded bytes of a file.
#[derive(Debug)]
pub struct Decoded {
    /// Generation; of the two files, the one with the greater generation is valid.
    pub generation: u64,
    /// The persisted state.
    pub state: Persisted,
    /// Length of the valid bytes.
    pub len: u64,
    initial_len: u64,
    /// Description of damage after the valid bytes; `None` also for a record torn by a crash.
    pub damage: Option<String>,
}

/// Decodes the bytes of a file of a watch.
///
/// # Errors
/// Reason as text, when no state can be decoded.
pub fn decode(bytes: &[u8], id: u64) -> Result<Decoded, String> {
    let word = |at: usize| -> Option<u64> {
        let word = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(word))
    };
    if bytes.get(..7) != Some(MAGIC) {
        return Err("at 0: expected the file of a watch".to_owned());
    }
    match bytes.get(7) {
        Some(&VERSION) => {}
        other => return Err(format!("at 7: expected version {VERSION}, found {other:?}")),
    }
    if word(8) != Some(id) {
        return Err("at 8: the file belongs to another watch".to_owned());
    }
    let generation = word(16).ok_or("at 16: the file is truncated")?;
    let (body, mut at) = record(bytes, HEAD_BYTES).ok_or("at 24: expected the base record")?;
    let body = match body.split_first() {
        Some((&BASE, body)) => body,
        _ => return Err("at 32: expected the base record".to_owned()),
    };
    let mut state = Persisted::decode(body).map_err(|why| format!("at 32: {why}"))?;
    let begun = at;
    let mut damage = None;
    while at < bytes.len() {
        let Some((body, behind)) = record(bytes, at) else {
            // A crash tears only the last record; a complete record after this one means damage.
            if is_torn(bytes, at) {
                break;
            }
            damage = Some(format!("at {at}: a change does not match its checksum"));
            break;
        };
        match Change::decode(body) {
            Ok(change) if state.can_apply(&change) => state.apply(&change),
            Ok(_) => {
                damage = Some(format!("at {at}: a change out of sequence"));
                break;
            }
            Err(why) => {
                damage = Some(format!("at {at}: {why}"));
                break;
            }
        }
        at = behind;
    }
    let length = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    Ok(Decoded {
        generation,
        state,
        len: length(at),
        initial_len: length(begun),
        damage,
    })
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + FRAME_BYTES);
    out.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    out.put_u32(crc32c(body));
    out.extend_from_slice(body);
    out
}

/// The record at an offset, and the offset after it.
fn record(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let len = usize::try_from(word(at)?).ok()?;
    let crc = word(at + 4)?;
    let begin = at + FRAME_BYTES;
    let end = begin.checked_add(len)?;
    let body = bytes.get(begin..end)?;
    (len > 0 && crc32c(body) == crc).then_some((body, end))
}

/// Whether no complete record follows a broken one.
fn is_torn(bytes: &[u8], at: usize) -> bool {
    let len = bytes.get(at..at + 4).and_then(|len| len.try_into().ok());
    let len = len.map_or(0, u32::from_le_bytes);
    let behind = usize::try_from(len)
        .ok()
        .and_then(|len| at.checked_add(FRAME_BYTES)?.checked_add(len));
    behind.is_none_or(|behind| record(bytes, behind).is_none())
}
