//! Files for pinned chunks: `DIR/pins/N`.
//!
//! The files belong to the process that wrote them: no later process reads them, so they have no
//! stable format, are never synced, and the next opening removes leftovers of a crash. Rows are
//! stored as in the log.
//!
//! Invariants: a file is written once, and removed with the last chunk in it. Failure: changed
//! bytes are damage, by a checksum in memory.

use crate::common::error::Damage;
use crate::common::ids::Sequence;
use crate::device::tiers::OwnedTier;
use crate::memory::chunk::{Chunk, Sequences};
use crate::{Error, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::light::{decode_rows, encode_rows, within_limits};
use headwater_codec::{Cursor, PutBytes};
use headwater_io::{File, Files, OpenMode};
use headwater_types::invariant::part_of;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Approximate bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Folder of the files.
fn folder(dir: &Path) -> PathBuf {
    dir.join("pins")
}

/// Removes leftover files of a killed process.
pub(crate) fn remove_leftovers(files: &dyn Files, dir: &Path) -> Result<()> {
    let folder = folder(dir);
    let names = match files.list(&folder) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("list", &folder, error)),
    };
    for name in names {
        let path = folder.join(name);
        files
            .remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    Ok(())
}

/// Makes files for pinned chunks.
#[derive(Debug)]
pub(crate) struct PinnedChunkFiles {
    files: Arc<dyn Files>,
    folder: PathBuf,
    next: u64,
    bytes: Arc<AtomicU64>,
    /// True when the folder exists.
    has_folder: bool,
    /// The tier whose folder has the files: it stays locked while any exist, also when the database
    /// has left it.
    tier: Option<Arc<OwnedTier>>,
}

impl PinnedChunkFiles {
    pub(crate) fn new(files: Arc<dyn Files>, dir: &Path) -> PinnedChunkFiles {
        PinnedChunkFiles {
            files,
            folder: folder(dir),
            next: 0,
            bytes: Arc::default(),
            has_folder: false,
            tier: None,
        }
    }

    /// Uses the folder of a tier.
    pub(crate) fn in_tier(self, tier: Option<Arc<OwnedTier>>) -> PinnedChunkFiles {
        PinnedChunkFiles { tier, ..self }
    }

    /// Creates new files in another location from now on, in the folder of a tier or without one.
    /// Existing files are not moved.
    pub(crate) fn moved(
        &self,
        files: &Arc<dyn Files>,
        dir: &Path,
        tier: Option<Arc<OwnedTier>>,
    ) -> PinnedChunkFiles {
        PinnedChunkFiles {
            files: Arc::clone(files),
            folder: folder(dir),
            // Numbers are never reused.
            next: self.next,
            bytes: Arc::clone(&self.bytes),
            has_folder: false,
            tier,
        }
    }

    /// Bytes of all existing files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Writes chunks into a new file and returns their locations; `None` for a chunk that is too
    /// large for the codec.
    pub(crate) fn write<'a>(
        &mut self,
        chunks: impl Iterator<Item = &'a Chunk>,
    ) -> Result<Vec<Option<PinnedChunkLocation>>> {
        if !self.has_folder {
            self.files
                .create_dir_all(&self.folder)
                .map_err(|e| Error::io("create", &self.folder, e))?;
            self.has_folder = true;
        }
        let path = self.folder.join(self.next.to_string());
        self.next += 1;
        let file = self
            .files
            .open(&path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &path, e))?;
        let owner = Arc::new(PinnedChunkFile {
            path,
            files: Arc::clone(&self.files),
            bytes: AtomicU64::new(0),
            all: Arc::clone(&self.bytes),
            _tier: self.tier.clone(),
        });
        let mut places = Vec::new();
        let mut buffer = Vec::new();
        let mut written = 0u64;
        for chunk in chunks {
            if !within_limits(&chunk.rows) {
                places.push(None);
                continue;
            }
            let start = buffer.len();
            encode(chunk, &mut buffer);
            let content = part_of(&buffer, start.., "a chunk's bytes");
            places.push(Some(PinnedChunkLocation {
                file: Arc::clone(&owner),
                offset: written + start as u64,
                bytes: content.len(),
                checksum: crc32c(content),
                born: chunk.born,
            }));
            if buffer.len() >= WRITE_BYTES {
                owner.append(&*file, written, &buffer)?;
                written += buffer.len() as u64;
                buffer.clear();
            }
        }
        owner.append(&*file, written, &buffer)?;
        Ok(places)
    }
}

/// A file of pinned chunks, removed with the last one.
#[derive(Debug)]
pub(crate) struct PinnedChunkFile {
    path: PathBuf,
    files: Arc<dyn Files>,
    bytes: AtomicU64,
    /// Bytes of all files.
    all: Arc<AtomicU64>,
    /// Prevents other processes from taking its folder while the file exists.
    _tier: Option<Arc<OwnedTier>>,
}

impl PinnedChunkFile {
    fn append(&self, file: &dyn File, offset: u64, bytes: &[u8]) -> Result<()> {
        let count = bytes.len() as u64;
        self.bytes.fetch_add(count, Ordering::Relaxed);
        self.all.fetch_add(count, Ordering::Relaxed);
        file.write_all_at(offset, bytes)
            .map_err(|e| Error::io("write", &self.path, e))
    }
}

impl Drop for PinnedChunkFile {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        if let Err(error) = self.files.remove(&self.path) {
            // The next opening removes it.
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a file of pinned events");
        }
    }
}

/// Location of the rows of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct PinnedChunkLocation {
    file: Arc<PinnedChunkFile>,
    offset: u64,
    bytes: usize,
    checksum: u32,
    born: u64,
}

impl PinnedChunkLocation {
    pub(super) fn into_file(self) -> Arc<PinnedChunkFile> {
        self.file
    }

    pub(super) fn read(&self) -> Result<Arc<Chunk>> {
        let path = &self.file.path;
        let mut content = vec![0; self.bytes];
        self.file
            .files
            .open(path, OpenMode::Read)
            .and_then(|file| file.read_exact_at(self.offset, &mut content))
            .map_err(|e| Error::io("read", path, e))?;
        let damage = |expected: &str, found: String| {
            Error::damage(Damage {
                file: path.clone(),
                offset: self.offset,
                expected: expected.into(),
                found,
            })
        };
        let found = crc32c(&content);
        if found != self.checksum {
            let expected = format!("checksum {:08x}", self.checksum);
            return Err(damage(&expected, format!("{found:08x}")));
        }
        decode(&content, self.born)
            .ok_or_else(|| damage("rows as they were written", "others".into()))
    }
}

/// Encodes rows, then the number of sequences: one for all rows, or one for each.
fn encode(chunk: &Chunk, out: &mut Vec<u8>) {
    encode_rows(&chunk.rows, out);
    match &chunk.sequences {
        Sequences::One(one) => {
            out.put_varint(1);
            out.put_varint(one.0);
        }
        Sequences::Many(all) => {
            out.put_varint(all.len() as u64 + 1);
            for one in all {
                out.put_varint(one.0);
            }
        }
    }
}

fn decode(bytes: &[u8], born: u64) -> Option<Arc<Chunk>> {
    let mut cursor = Cursor::new(bytes);
    let rows = decode_rows(&mut cursor).ok()?;
    let mut number = || cursor.varint("a sequence").ok();
    let sequences = match number()? {
        1 => Sequences::One(Sequence(number()?)),
        count if count == rows.len() as u64 + 1 => {
            let all: Option<Vec<Sequence>> = (1..count).map(|_| number().map(Sequence)).collect();
            Sequences::Many(all?)
        }
        _ => return None,
    };
    Chunk::new(rows, sequences, born)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_io::MemoryFiles;
    use headwater_types::{Column, FieldId, Rows, Values};

    fn chunk(times: &[i64], sequences: Sequences) -> Arc<Chunk> {
        let nan = f64::from_bits(0x7ff8_0000_dead_beef);
        let values = times.iter().map(|t| if *t == 2 { nan } else { -0.0 });
        let values = Values::F64(values.collect());
        let rows = Rows {
            times: times.to_vec(),
            columns: vec![(FieldId(3), Column::from_values(values))],
        };
        Chunk::new(rows, sequences, 4).unwrap()
    }

    #[test]
    fn chunks_come_back_as_they_were_and_their_file_goes_with_the_last_of_them() {
        let dir = Path::new("/db");
        let memory = Arc::new(MemoryFiles::new());
        memory.create_dir_all(dir).unwrap();
        let mut files = PinnedChunkFiles::new(Arc::clone(&memory) as Arc<dyn Files>, dir);
        let chunks = [
            chunk(&[5, 2, 9], Sequences::One(Sequence(7))),
            chunk(
                &[1, 2],
                Sequences::Many(vec![Sequence(1 << 40), Sequence(3)]),
            ),
            chunk(&[1], Sequences::Many(vec![Sequence(6)])),
        ];
        let mut places = files.write(chunks.iter().map(|c| &**c)).unwrap();
        let bits = |chunk: &Chunk| match chunk.rows.columns[0].1.values() {
            Values::F64(values) => values.iter().map(|v| v.to_bits()).collect::<Vec<u64>>(),
            other => unreachable!("{other:?}"),
        };
        for (place, chunk) in places.iter().zip(&chunks) {
            let read = place.as_ref().unwrap().read().unwrap();
            assert_eq!((&read.rows.times, read.born), (&chunk.rows.times, 4));
            assert_eq!(bits(&read), bits(chunk));
            for row in 0..chunk.len() {
                assert_eq!(read.sequences.get(row), chunk.sequences.get(row));
            }
        }
        assert!(files.bytes() > 0);
        let path = dir.join("pins/0");
        let file = memory.open(&path, OpenMode::Write).unwrap();
        file.write_all_at(3, &[0xff]).unwrap();
        let error = places[0].as_ref().unwrap().read().unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
        places.truncate(1);
        assert_eq!(memory.list(&folder(dir)).unwrap(), ["0"]);
        places.clear();
        assert!(memory.list(&folder(dir)).unwrap().is_empty());
        assert_eq!(files.bytes(), 0);
        // Files that no process removed are removed by the next opening.
        let kept = files.write(chunks.iter().map(|c| &**c)).unwrap();
        remove_leftovers(&*memory, dir).unwrap();
        assert!(memory.list(&folder(dir)).unwrap().is_empty());
        drop(kept);
        remove_leftovers(&*memory, Path::new("/none")).unwrap();
    }
}
