//! The manifest of a backup: its bytes, and finding the newest one.
//! Format: docs/format/backup.md.

use crate::common::error::Damage;
use crate::{Error, ErrorKind, Result};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_io::{Files, OpenMode};
use headwater_types::Timestamp;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 7] = *b"HWBACK\x00";
const VERSION: u8 = 1;
/// Version with segments whose rows were freed.
const VERSION_WITH_STUBS: u8 = 2;
/// Maximum bytes of a manifest, which names one file per segment: bounds the read of a file that
/// claims to be one.
const BYTES_MAX: u64 = 1 << 30;

/// Kind of the original of a file in a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FileKind {
    Meta = 1,
    Segment = 2,
    Log = 3,
    /// The remaining parts of a segment whose rows were freed.
    Stub = 4,
}

impl FileKind {
    const ALL: [FileKind; 4] = [
        FileKind::Meta,
        FileKind::Segment,
        FileKind::Log,
        FileKind::Stub,
    ];

    /// The folder of the backup that holds such files.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            FileKind::Meta => "meta",
            FileKind::Segment => "segment",
            FileKind::Log => "log",
            FileKind::Stub => "stub",
        }
    }

    pub(crate) fn folders() -> impl Iterator<Item = &'static str> {
        FileKind::ALL.into_iter().map(FileKind::folder)
    }
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: FileKind,
    /// Segment id or log generation; 0 for the metadata.
    pub(crate) id: u64,
    /// Name in the folder of its kind.
    pub(crate) name: String,
    /// Valid bytes; the rest of the file has no meaning.
    pub(crate) bytes: u64,
    /// Length of the file in a database: zeros follow the bytes.
    pub(crate) full_bytes: u64,
    /// CRC-32C of the bytes.
    pub(crate) crc: u32,
}

impl Entry {
    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(self.kind.folder()).join(&self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Increases with every backup into the folder.
    pub(crate) number: u64,
    /// The identity of the database.
    pub(crate) identity: u64,
    /// Sequence of its newest record.
    pub(crate) sequence: u64,
    /// When it was taken, by the clock of the machine.
    pub(crate) created_at: Timestamp,
    pub(crate) entries: Vec<Entry>,
}

pub(crate) fn folder(dir: &Path) -> PathBuf {
    dir.join("manifest")
}

pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    folder(dir).join(format!("{number}.manifest"))
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let has_stubs = self
            .entries
            .iter()
            .any(|entry| entry.kind == FileKind::Stub);
        out.put_u8(match has_stubs {
            true => VERSION_WITH_STUBS,
            false => VERSION,
        });
        out.put_u64(self.number);
        out.put_u64(self.identity);
        out.put_u64(self.sequence);
        out.put_i64(self.created_at.as_nanos());
        out.put_varint(self.entries.len() as u64);
        for entry in &self.entries {
            out.put_u8(entry.kind as u8);
            out.put_varint(entry.id);
            out.put_prefixed(entry.name.as_bytes());
            out.put_varint(entry.bytes);
            out.put_varint(entry.full_bytes);
            out.put_u32(entry.crc);
        }
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Manifest, DecodeError> {
        let at = bytes.len().saturating_sub(4);
        let (body, trailer) = bytes.split_at(at);
        if Cursor::new(trailer).u32("manifest checksum")? != crc32c(body) {
            return Err(DecodeError {
                expected: "a manifest with a valid checksum",
                offset: at,
            });
        }
        let mut cursor = Cursor::new(body);
        if cursor.take(7, "manifest magic")? != MAGIC {
            return Err(DecodeError {
                expected: "the magic of a manifest",
                offset: 0,
            });
        }
        let version = cursor.u8("manifest version")?;
        if !(VERSION..=VERSION_WITH_STUBS).contains(&version) {
            return Err(DecodeError {
                expected: "manifest version 1 or 2 (a newer version needs a newer Headwater)",
                offset: 7,
            });
        }
        let number = cursor.u64("backup number")?;
        let identity = cursor.u64("identity")?;
        let sequence = cursor.u64("sequence")?;
        let created_at = Timestamp::from_nanos(cursor.i64("time")?);
        let count = cursor.varint_up_to(cursor.remaining() as u64, "file count")?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let number = cursor.u8("file kind")?;
            let Some(kind) = FileKind::ALL.into_iter().find(|k| *k as u8 == number) else {
                return Err(cursor.expected("file kind 1 to 4"));
            };
            let id = cursor.varint("file id")?;
            let name = cursor.text("file name")?.to_owned();
            if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
                return Err(cursor.expected("a plain file name"));
            }
            entries.push(Entry {
                kind,
                id,
                name,
                bytes: cursor.varint("file length")?,
                full_bytes: cursor.varint("full file length")?,
                crc: cursor.u32("file checksum")?,
            });
        }
        cursor.finish()?;
        Ok(Manifest {
            number,
            identity,
            sequence,
            created_at,
            entries,
        })
    }

    pub(crate) fn find(&self, kind: FileKind, id: u64) -> Option<&Entry> {
        self.entries.iter().find(|e| e.kind == kind && e.id == id)
    }

    /// The newest valid manifest of the backup in `dir`.
    ///
    /// # Errors
    /// `corrupt` when there are manifests and all of them are invalid.
    pub(crate) fn newest(files: &dyn Files, dir: &Path) -> Result<Option<Manifest>> {
        let folder = folder(dir);
        let names = match files.list(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|e| Error::io("list", &folder, e))?,
        };
        let mut numbers: Vec<u64> = names
            .iter()
            .filter_map(|n| n.strip_suffix(".manifest")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let largest = numbers.last().copied().unwrap_or(0);
        let mut first_error = None;
        for number in numbers.into_iter().rev() {
            match Manifest::read(files, dir, number) {
                Ok(manifest) => return Ok(Some(manifest)),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::debug!(%error, "the manifest is incomplete; the previous one is used");
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        // The first backup, interrupted while its manifest was written, leaves an incomplete
        // manifest, and no backup.
        match first_error {
            Some(error) if largest > 1 => Err(error),
            _ => Ok(None),
        }
    }

    fn read(files: &dyn Files, dir: &Path, number: u64) -> Result<Manifest> {
        let path = path(dir, number);
        let io = |e| Error::io("read", &path, e);
        let file = files.open(&path, OpenMode::Read).map_err(io)?;
        let len = file.len().map_err(io)?;
        let damaged = |expected: &str, found: String| {
            Error::damage(Damage {
                file: path.clone(),
                offset: 0,
                expected: expected.to_owned(),
                found,
            })
        };
        if len > BYTES_MAX {
            return Err(damaged("a manifest below 1 GiB", format!("{len} bytes")));
        }
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(0, &mut bytes).map_err(io)?;
        let manifest = Manifest::decode(&bytes).map_err(|e| Error::decode(&path, 0, e))?;
        if manifest.number != number {
            return Err(damaged(
                "the backup number of its file name",
                format!("number {}", manifest.number),
            ));
        }
        Ok(manifest)
    }
}
/// For the fuzz target only.
#[cfg(fuzzing)]
pub(crate) fn fuzz_manifest(bytes: &[u8], repair: bool) {
    let mut bytes = bytes.to_vec();
    if repair {
        let crc = crc32c(&bytes);
        bytes.put_u32(crc);
    }
    if let Ok(manifest) = Manifest::decode(&bytes) {
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }
}
