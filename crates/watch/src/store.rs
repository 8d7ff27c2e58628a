//! The file of a watch: its state when the file was begun, and the changes since.
//!
//! A file is rewritten when the changes are longer than the state they changed: into the other one
//! of two names, so that one of them is whole at any time. A change whose writing failed may be in
//! the file or not; so the next one begins a file.
//!
//! Invariants: every later opening finds the changes that [`Store::append`] returned for. A change
//! that a crash tore was never reported, and is cut off. Where bytes are damaged, the state before
//! them is taken, and reported numbers are not used again.
//! Concurrency: one owner of a watch at a time.
//! Failure: `io` errors of the device; the caller appends the change again.
//! Format: docs/format/watch.md.

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
/// A record's length and checksum.
const FRAME_BYTES: usize = 8;
/// Changes of less than this are not worth a new file.
const REWRITE_BYTES: u64 = 64 << 10;
/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The file of a watch.
#[derive(Debug)]
pub struct Store {
    files: Arc<dyn Files>,
    dir: PathBuf,
    id: u64,
    generation: u64,
    file: Option<Arc<dyn File>>,
    /// Where the next change goes.
    len: u64,
    /// Length of the file when it was begun.
    begun: u64,
}

/// A watch whose file was opened.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub store: Store,
    /// The persisted state.
    pub kept: Persisted,
    /// Description of the damage, if there was any.
    pub damage: Option<String>,
}

impl Store {
    /// Opens the file of a watch, or begins one with `new`.
    ///
    /// # Errors
    /// When the device cannot be read.
    pub fn open(
        files: Arc<dyn Files>,
        dir: &Path,
        id: u64,
        new: impl FnOnce() -> Persisted,
    ) -> io::Result<Opened> {
        files.create_dir_all(dir)?;
        let mut store = Store {
            files,
            dir: dir.to_owned(),
            id,
            generation: 0,
            file: None,
            len: 0,
            begun: 0,
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
            return Ok(Opened {
                store,
                kept: new(),
                damage,
            });
        };
        let mut kept = read.kept;
        store.generation = read.generation;
        store.begun = read.begun;
        if let Some(why) = read.damage {
            // The next change begins a file, so that nothing follows on damaged bytes.
            kept.leap();
            return Ok(Opened {
                store,
                kept,
                damage: Some(why),
            });
        }
        // A torn record is cut off: bytes that stay behind a shorter one must not be read as the
        // next.
        if read.file.len()? > read.len {
            read.file.set_len(read.len)?;
        }
        store.len = read.len;
        store.file = Some(read.file);
        Ok(Opened {
            store,
            kept,
            damage: None,
        })
    }

    /// Appends a change; `kept` is the state before it. The change is durable when this returns.
    ///
    /// # Errors
    /// When the device refuses it; the state is then as without the call.
    pub fn append(&mut self, kept: &Persisted, change: &Change) -> io::Result<()> {
        let changes = self.len.saturating_sub(self.begun);
        match &self.file {
            Some(file) if changes <= REWRITE_BYTES.max(2 * self.begun) => {
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

    /// Begins a file with the whole state.
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
        self.begun = self.len;
        self.file = Some(file);
        // The older one is not read any more: where it does not go now, it goes with the next.
        let _ = self.files.remove(&old);
        Ok(())
    }

    /// Removes the files of a watch that is no more.
    ///
    /// # Errors
    /// When the device refuses it.
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

    /// Reads a file: its state, or the reason why it is not valid.
    fn read(&self, path: &Path) -> io::Result<Result<Read, String>> {
        let file = self.files.open(path, OpenMode::Write)?;
        let len = file.len()?;
        let wrong = |why: &str| Ok(Err(format!("{}: {why}", path.display())));
        if len > FILE_BYTES_MAX {
            return wrong("it is longer than a file of a watch");
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(0, &mut bytes)?;
        Ok(decode(&bytes, self.id)
            .map(|read| Read {
                generation: read.generation,
                kept: read.kept,
                len: read.len,
                begun: read.begun,
                damage: read.damage.map(|why| format!("{}: {why}", path.display())),
                file,
            })
            .map_err(|why| format!("{}: {why}", path.display())))
    }
}

struct Read {
    generation: u64,
    kept: Persisted,
    len: u64,
    begun: u64,
    damage: Option<String>,
    file: Arc<dyn File>,
}

/// The bytes of a file, read.
#[derive(Debug)]
pub struct Decoded {
    /// Of two files, the one that counts has the greater.
    pub generation: u64,
    /// The persisted state.
    pub kept: Persisted,
    /// Up to where the bytes are good.
    pub len: u64,
    begun: u64,
    /// Damage behind it, unless a crash tore it.
    pub damage: Option<String>,
}

/// Reads the bytes of a file of a watch.
///
/// # Errors
/// In words, when nothing of it can be read.
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
        return Err("at 8: it is of another watch".to_owned());
    }
    let generation = word(16).ok_or("at 16: it ends too early")?;
    let (body, mut at) = record(bytes, HEAD_BYTES).ok_or("at 24: expected what is kept")?;
    let body = match body.split_first() {
        Some((&BASE, body)) => body,
        _ => return Err("at 32: expected what is kept".to_owned()),
    };
    let mut kept = Persisted::decode(body).map_err(|why| format!("at 32: {why}"))?;
    let begun = at;
    let mut damage = None;
    while at < bytes.len() {
        let Some((body, behind)) = record(bytes, at) else {
            // A crash tears the last record; one that is whole behind it says that this one was.
            if is_torn(bytes, at) {
                break;
            }
            damage = Some(format!("at {at}: a change does not fit its checksum"));
            break;
        };
        match Change::decode(body) {
            Ok(change) if kept.takes(&change) => kept.apply(&change),
            Ok(_) => {
                damage = Some(format!("at {at}: a change that does not follow"));
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
        kept,
        len: length(at),
        begun: length(begun),
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

/// The record at a location, and the location behind it.
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

/// Whether no whole record stands behind a broken one.
fn is_torn(bytes: &[u8], at: usize) -> bool {
    let len = bytes.get(at..at + 4).and_then(|len| len.try_into().ok());
    let len = len.map_or(0, u32::from_le_bytes);
    let behind = usize::try_from(len)
        .ok()
        .and_then(|len| at.checked_add(FRAME_BYTES)?.checked_add(len));
    behind.is_none_or(|behind| record(bytes, behind).is_none())
}
