//! Takes a backup.

use super::manifest::{self, Entry, Kind, Manifest};
use super::{copy, each_part};
use crate::care::look::look;
use crate::ids::SegmentId;
use crate::log::{Access, LogEnd, log_path, replay};
use crate::meta::Meta;
use crate::{Error, ErrorKind, Options, Result};
use headwater_io::{Env, File, Files, Lock, LockError, OpenMode};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a backup holds and what it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Number of the backup; the first into a folder is 1.
    pub number: u64,
    /// The newest record in it.
    pub sequence: u64,
    /// Files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Of these, the bytes that had to be copied: the rest was in the folder already.
    pub bytes_copied: u64,
}

/// Backs the database in `options.dir` up into the folder `to`: one state of it, with everything acknowledged before this call.
/// Works beside the owner of the database, in its process or in another, and without one. Into a folder that holds an older
/// backup of the same database, only what is new is copied; the older one counts until the new one is whole.
///
/// # Errors
/// `not_found` without a database, `invalid` when the folder holds something else, `locked` while another backup into it runs,
/// `busy` when the owner changes the database too fast, `corrupt`, `full`, `io`. The older backup is still good then.
pub fn backup(env: &Env, options: &Options, to: &Path) -> Result<BackupReport> {
    options.validate()?;
    let files = &*env.files;
    let target = Target::open(files, to)?;
    let path = options.dir.join("meta.redb");
    // Whatever does not fit together is copied again; what fitted is then found in the folder.
    let mut writing = look(files, &options.dir, |meta, meta_copy| {
        let identity = meta.identity()?;
        target.check_identity(identity)?;
        let mut writing = Writing::new(&target, identity);
        let segments = Segments::open(env, options, &meta)?;
        let log_dir = options.dir.join("log");
        let nothing_freed = || meta_copy.check_current(files, &path);
        let replayed = replay(
            &env.files,
            &log_dir,
            options.log_file_size(),
            meta.log_needed()?,
            Access::Reader(&nothing_freed),
            |_, _, _, _, _| Ok(()),
        )?;
        writing.sequence = replayed.last.0.max(meta.step_sequence()?.0);
        // redb closes the copy, so that what is backed up needs no repair.
        drop(meta);
        for end in &replayed.ends {
            writing.log(&log_dir, end)?;
        }
        for (id, file, source, bytes) in &segments.list {
            writing.segment(*id, &**file, source, *bytes)?;
        }
        writing.meta(&**meta_copy.file(), &path)?;
        Ok(writing)
    })?;
    writing.finish(env)
}

/// The segments of one state, held open as far as the limit allows.
struct Segments {
    list: Vec<(SegmentId, Arc<dyn File>, PathBuf, u64)>,
}

impl Segments {
    fn open(env: &Env, options: &Options, meta: &Meta) -> Result<Segments> {
        let mut list = Vec::new();
        for (id, record) in meta.partitions()? {
            let path = options.dir.join("segment").join(format!("{}.seg", id.0));
            let file: Arc<dyn File> = if list.len() < options.open_files_max {
                env.files
                    .open(&path, OpenMode::Read)
                    .map_err(|e| Error::io("open", &path, e))?
            } else {
                Arc::new(OpenedLate {
                    files: Arc::clone(&env.files),
                    path: path.clone(),
                })
            };
            list.push((id, file, path, record.committed_bytes));
        }
        Ok(Segments { list })
    }
}

/// A file that is opened for each read, beyond the number of files that may be open.
#[derive(Debug)]
struct OpenedLate {
    files: Arc<dyn Files>,
    path: PathBuf,
}

impl OpenedLate {
    fn file(&self) -> std::io::Result<Arc<dyn File>> {
        self.files.open(&self.path, OpenMode::Read)
    }
}

impl File for OpenedLate {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        self.file()?.read_at(offset, buf)
    }

    fn write_all_at(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.file()?.sync_data()
    }

    fn len(&self) -> std::io::Result<u64> {
        self.file()?.len()
    }

    fn set_len(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
}

/// The folder that backups go to.
struct Target<'a> {
    files: &'a dyn Files,
    dir: &'a Path,
    before: Option<Manifest>,
    number: u64,
    _lock: Box<dyn Lock>,
}

impl<'a> Target<'a> {
    fn open(files: &'a dyn Files, dir: &'a Path) -> Result<Target<'a>> {
        let exists = |path: &Path| {
            files
                .exists(path)
                .map_err(|e| Error::io("look for", path, e))
        };
        if exists(&dir.join("meta.redb"))? {
            return Err(Error::invalid(format!(
                "{} holds a database, not a backup: name another folder",
                dir.display()
            )));
        }
        if !exists(&manifest::folder(dir))? && exists(dir)? {
            let names = files.list(dir).map_err(|e| Error::io("list", dir, e))?;
            if names.iter().any(|n| n != "lock") {
                return Err(Error::invalid(format!(
                    "{} holds files that are no backup: name an empty folder or an older backup",
                    dir.display()
                )));
            }
        }
        let create = |path: &Path| {
            files
                .create_dir_all(path)
                .map_err(|e| Error::io("create", path, e))
        };
        create(dir)?;
        let lock = take_lock(files, dir)?;
        create(&manifest::folder(dir))?;
        for folder in Kind::folders() {
            create(&dir.join(folder))?;
        }
        let before = Manifest::newest(files, dir)?;
        let target = Target {
            files,
            dir,
            number: before.as_ref().map_or(1, |b| b.number + 1),
            before,
            _lock: lock,
        };
        target.remove_unnamed(target.before.as_ref())?;
        Ok(target)
    }

    fn check_identity(&self, identity: u64) -> Result<()> {
        match &self.before {
            Some(before) if before.identity != identity => Err(Error::invalid(format!(
                "{} holds backups of another database: name another folder",
                self.dir.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Removes what `manifest` does not name: left over from a backup that was cut short, or part of an older one.
    fn remove_unnamed(&self, manifest: Option<&Manifest>) -> Result<()> {
        let number = manifest.map(|m| m.number);
        let folder = manifest::folder(self.dir);
        // Older manifests go before their files: no valid one ever names what is gone.
        self.remove_from(&folder, |name| {
            name.strip_suffix(".manifest").and_then(|n| n.parse().ok()) == number
                && number.is_some()
        })?;
        for kind in [Kind::Meta, Kind::Segment, Kind::Log] {
            let named: HashSet<&str> = manifest
                .iter()
                .flat_map(|m| &m.entries)
                .filter(|e| e.kind == kind)
                .map(|e| e.name.as_str())
                .collect();
            self.remove_from(&self.dir.join(kind.folder()), |name| named.contains(name))?;
        }
        Ok(())
    }

    fn remove_from(&self, folder: &Path, keep: impl Fn(&str) -> bool) -> Result<()> {
        let mut removed = false;
        for name in self
            .files
            .list(folder)
            .map_err(|e| Error::io("list", folder, e))?
        {
            if !keep(&name) {
                let path = folder.join(&name);
                self.files
                    .remove(&path)
                    .map_err(|e| Error::io("remove", &path, e))?;
                removed = true;
            }
        }
        if removed {
            self.sync_dir(folder)
        } else {
            Ok(())
        }
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        self.files
            .sync_dir(folder)
            .map_err(|e| Error::io("sync", folder, e))
    }
}

fn take_lock(files: &dyn Files, dir: &Path) -> Result<Box<dyn Lock>> {
    let path = dir.join("lock");
    files
        .lock(&path, &format!("pid {}", std::process::id()))
        .map_err(|error| match error {
            LockError::Held { owner_text } | LockError::HeldHere { owner_text } => Error::new(
                ErrorKind::Locked,
                format!(
                    "another backup into {} runs ({owner_text}): wait for it",
                    dir.display()
                ),
            ),
            LockError::Io(error) => Error::io("lock", &path, error),
            other => Error::new(
                ErrorKind::Io,
                format!("cannot lock {}: {other}", path.display()),
            ),
        })
}

/// A backup being written: everything but its manifest.
struct Writing<'a> {
    target: &'a Target<'a>,
    identity: u64,
    sequence: u64,
    entries: Vec<Entry>,
    bytes_copied: u64,
}

impl<'a> Writing<'a> {
    fn new(target: &'a Target<'a>, identity: u64) -> Writing<'a> {
        Writing {
            target,
            identity,
            sequence: 0,
            entries: Vec::new(),
            bytes_copied: 0,
        }
    }

    /// The file of the older backup that goes on with these bytes, if its bytes are the front of them.
    fn front(
        &self,
        kind: Kind,
        id: u64,
        source: &dyn File,
        path: &Path,
        bytes: u64,
    ) -> Result<Option<Entry>> {
        let known = self.target.before.as_ref().and_then(|m| m.find(kind, id));
        let Some(known) = known.filter(|e| e.bytes <= bytes) else {
            return Ok(None);
        };
        let copy_path = known.path(self.target.dir);
        let copied = match self.target.files.open(&copy_path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io("open", &copy_path, e))?,
        };
        let len = copied.len().map_err(|e| Error::io("read", &copy_path, e))?;
        if len < known.bytes {
            return Ok(None);
        }
        // After a restore, or a power cut that took a commit which the backup had seen, the same name can hold other bytes.
        // Every group of a segment ends with a footer that has a checksum and the sequence of its step, and every record of
        // the log has both: histories that differ, differ there.
        let tail = known.bytes.saturating_sub(TAIL_BYTES);
        let crc = |file: &dyn File, path: &Path| {
            let head = each_part((file, path), 0, tail.min(64), 0, |_, _| Ok(()))?;
            each_part((file, path), tail, known.bytes, head, |_, _| Ok(()))
        };
        if crc(source, path)? == crc(&*copied, &copy_path)? {
            Ok(Some(known.clone()))
        } else {
            Ok(None)
        }
    }

    fn file(
        &mut self,
        kind: Kind,
        id: u64,
        source: (&dyn File, &Path),
        bytes: u64,
        full_bytes: u64,
    ) -> Result<()> {
        let target = self.target;
        let front = if kind == Kind::Meta {
            None
        } else {
            self.front(kind, id, source.0, source.1, bytes)?
        };
        let io = |path: &Path, what: &'static str| {
            let path = path.to_owned();
            move |e| Error::io(what, &path, e)
        };
        let entry = match front {
            Some(front) if front.bytes == bytes => Entry {
                full_bytes,
                ..front
            },
            Some(front) => {
                let path = front.path(target.dir);
                let file = target
                    .files
                    .open(&path, OpenMode::Write)
                    .map_err(io(&path, "open"))?;
                // Bytes behind those the older backup counts are left over from one that was cut short.
                file.set_len(front.bytes).map_err(io(&path, "truncate"))?;
                let crc = copy(source, (&*file, &path), front.bytes, bytes, front.crc)?;
                file.sync_data().map_err(io(&path, "sync"))?;
                self.bytes_copied += bytes - front.bytes;
                Entry {
                    bytes,
                    full_bytes,
                    crc,
                    ..front
                }
            }
            None => {
                let ending = match kind {
                    Kind::Meta => "redb",
                    Kind::Segment => "seg",
                    Kind::Log => "log",
                };
                let name = format!("{id}-{}.{ending}", target.number);
                let path = target.dir.join(kind.folder()).join(&name);
                // Left there by the look before this one.
                match target.files.remove(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(Error::io("remove", &path, error));
                    }
                    _ => {}
                }
                let file = target
                    .files
                    .open(&path, OpenMode::CreateNew)
                    .map_err(io(&path, "create"))?;
                let crc = copy(source, (&*file, &path), 0, bytes, 0)?;
                file.sync_data().map_err(io(&path, "sync"))?;
                self.bytes_copied += bytes;
                Entry {
                    kind,
                    id,
                    name,
                    bytes,
                    full_bytes,
                    crc,
                }
            }
        };
        self.entries.push(entry);
        Ok(())
    }

    fn segment(&mut self, id: SegmentId, file: &dyn File, path: &Path, bytes: u64) -> Result<()> {
        self.file(Kind::Segment, id.0, (file, path), bytes, bytes)
    }

    fn meta(&mut self, file: &dyn File, path: &Path) -> Result<()> {
        let bytes = file.len().map_err(|e| Error::io("read", path, e))?;
        self.file(Kind::Meta, 0, (file, path), bytes, bytes)
    }

    /// The records of a log file, without what a torn tail left behind them.
    fn log(&mut self, log_dir: &Path, end: &LogEnd) -> Result<()> {
        let path = log_path(log_dir, end.number);
        let file = self
            .target
            .files
            .open(&path, OpenMode::Read)
            .map_err(|e| Error::io("open", &path, e))?;
        self.file(
            Kind::Log,
            end.generation,
            (&*file, &path),
            end.offset,
            end.file_bytes,
        )?;
        end.check_current(&*file, &path)
    }

    /// Makes what was written the backup.
    fn finish(&mut self, env: &Env) -> Result<BackupReport> {
        let target = self.target;
        for folder in Kind::folders() {
            target.sync_dir(&target.dir.join(folder))?;
        }
        let manifest = Manifest {
            number: target.number,
            identity: self.identity,
            sequence: self.sequence,
            taken: env.clock.now(),
            entries: std::mem::take(&mut self.entries),
        };
        let path = manifest::path(target.dir, manifest.number);
        let file = target
            .files
            .open(&path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &path, e))?;
        file.write_all_at(0, &manifest.encode())
            .and_then(|()| file.sync_data())
            .map_err(|e| Error::io("write", &path, e))?;
        target.sync_dir(&manifest::folder(target.dir))?;
        target.remove_unnamed(Some(&manifest))?;
        Ok(BackupReport {
            number: manifest.number,
            sequence: manifest.sequence,
            files: manifest.entries.len() as u64,
            bytes: manifest.entries.iter().map(|e| e.bytes).sum(),
            bytes_copied: self.bytes_copied,
        })
    }
}

/// Bytes at the end of what is copied already that are compared before anything is put behind them.
const TAIL_BYTES: u64 = 64 << 10;
