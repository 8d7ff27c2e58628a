//! A backup presented as a database: files to read, so that it can be checked without being
//! restored.

use super::each_part;
use super::manifest::{Entry, FileKind, Manifest};
use crate::admin::check::{CheckReport, check};
use crate::common::error::Damage;
use crate::{Error, Options, Result};
use headwater_io::{Env, File, Files, Lock, LockError, Media, OpenMode};
use headwater_types::invariant::first_mut;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Checks the backup in a folder: the checksum of every file, and then all of it as [`check`] does.
///
/// # Errors
/// `not_found` without a backup, `io`. Damage is not an error but part of the report.
pub fn verify_backup(env: &Env, dir: &Path) -> Result<CheckReport> {
    let manifest = Manifest::of(&*env.files, dir)?;
    let mut damages = Vec::new();
    for entry in &manifest.entries {
        damages.extend(verify(&*env.files, dir, entry)?);
    }
    let view = View {
        files: Arc::clone(&env.files),
        backup: dir.to_owned(),
        root: PathBuf::from("/"),
        manifest,
    };
    let env = Env {
        files: Arc::new(view),
        media: Media::default(),
        ..env.clone()
    };
    let mut report = check(env, Options::new("/"))?;
    report.damages.splice(0..0, damages);
    Ok(report)
}

pub(super) fn verify(files: &dyn Files, dir: &Path, entry: &Entry) -> Result<Option<Damage>> {
    let path = entry.path(dir);
    let damage = |offset: u64, expected: String, found: String| {
        Ok(Some(Damage {
            file: path.clone(),
            offset,
            expected,
            found,
        }))
    };
    let file = match files.open(&path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return damage(0, format!("{} bytes", entry.bytes), "no file".into());
        }
        other => other.map_err(|e| Error::io("open", &path, e))?,
    };
    let len = file.len().map_err(|e| Error::io("read", &path, e))?;
    if len < entry.bytes {
        return damage(
            len,
            format!("{} bytes", entry.bytes),
            format!("{len} bytes"),
        );
    }
    let crc = each_part((&*file, &path), 0, entry.bytes, 0, |_, _| Ok(()))?;
    if crc != entry.crc {
        let text = |crc: u32| format!("bytes with checksum {crc:08x}");
        return damage(0, text(entry.crc), text(crc));
    }
    Ok(None)
}

impl Manifest {
    /// The manifest of the backup in `dir`.
    pub(super) fn of(files: &dyn Files, dir: &Path) -> Result<Manifest> {
        Manifest::newest(files, dir)?.ok_or_else(|| {
            Error::not_found(format!(
                "{}: no backup here (no complete manifest)",
                dir.display()
            ))
        })
    }
}

#[derive(Debug)]
struct View {
    files: Arc<dyn Files>,
    backup: PathBuf,
    /// Virtual folder of the database.
    root: PathBuf,
    manifest: Manifest,
}

impl View {
    fn entry(&self, path: &Path) -> Option<&Entry> {
        let name = path.strip_prefix(&self.root).ok()?.to_str()?;
        self.manifest
            .entries
            .iter()
            .find(|e| e.restored_path() == Path::new(name))
    }
}

impl Entry {
    /// Path of the file in a database.
    pub(super) fn restored_path(&self) -> PathBuf {
        match self.kind {
            FileKind::Meta => PathBuf::from("meta.redb"),
            FileKind::Segment => PathBuf::from(format!("segment/{}.seg", self.id)),
            FileKind::Log => PathBuf::from(format!("log/{}.log", self.id)),
            FileKind::Stub => PathBuf::from(format!("segment/{}.stub", self.id)),
        }
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Files for View {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let entry = self.entry(path).ok_or(io::ErrorKind::NotFound)?;
        if mode != OpenMode::Read {
            return read_only();
        }
        let file = self.files.open(&entry.path(&self.backup), mode)?;
        Ok(Arc::new(ViewFile {
            file,
            bytes: entry.bytes,
            full_bytes: entry.full_bytes,
        }))
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = self
            .manifest
            .entries
            .iter()
            .map(|e| self.root.join(e.restored_path()))
            .filter(|p| p.parent() == Some(dir))
            .filter_map(|p| Some(p.file_name()?.to_str()?.to_owned()))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.entry(path).is_some())
    }

    fn lock(&self, _: &Path, _: &str) -> std::result::Result<Box<dyn Lock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }

    fn lock_file(&self, _: &Path) -> std::result::Result<Box<dyn Lock>, LockError> {
        Err(LockError::Io(io::ErrorKind::ReadOnlyFilesystem.into()))
    }
}

/// The copied part of a file, followed by zeros.
#[derive(Debug)]
struct ViewFile {
    file: Arc<dyn File>,
    bytes: u64,
    full_bytes: u64,
}

impl File for ViewFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let end = if offset < self.bytes {
            self.bytes
        } else {
            self.full_bytes.max(self.bytes)
        };
        let count = usize::try_from(end.saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(buf.len());
        let part = first_mut(buf, count, "bytes before an end");
        if offset < self.bytes {
            return self.file.read_at(offset, part);
        }
        part.fill(0);
        Ok(count)
    }

    fn write_all_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        read_only()
    }

    fn sync_data(&self) -> io::Result<()> {
        read_only()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.full_bytes.max(self.bytes))
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }
}
