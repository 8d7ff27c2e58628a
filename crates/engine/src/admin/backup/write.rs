//! Takes a backup.

use super::copy;
use super::front::EarlierCopy;
use super::manifest::{self, Entry, FileKind, Manifest};
use super::source::SegmentSource;
use super::target::BackupFolder;
use crate::common::error::Damage;
use crate::common::ids::SegmentId;
use crate::device::layout::{log_dir, meta_path, segment_dir};
use crate::device::tiers::{located, log_begun};
use crate::metadata::tables::copy::look;
use crate::metadata::tables::{Meta, PartitionRecord};
use crate::open::snapshot_states::retained_segments;
use crate::storage::segment::{ReadCache, Store};
use crate::wal::{Access, LogEnd, log_path, replay};
use crate::{Error, Options, Result};
use headwater_io::{Env, File, Files, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Contents of a backup, and its cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Number of the backup; the first into a folder is 1.
    pub number: u64,
    /// The newest record in it.
    pub sequence: u64,
    /// Number of files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Number of these bytes that had to be copied: the rest was already in the folder.
    pub bytes_copied: u64,
    /// Files that were already in the folder, and whose checksums were compared.
    pub files_verified: u64,
    /// Number of these files that were damaged or missing, and were copied again.
    pub files_mended: u64,
    /// Damage of the database: unreadable parts of these files are not in the backup, or only in
    /// the version of an older backup.
    pub damages: Vec<Damage>,
}

/// Options of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupOptions {
    /// Compares the checksums of all files that are already in the folder, and copies damaged ones
    /// again. Otherwise only an eighth of them, in rotation, and the growing files.
    pub verify: bool,
}

/// Backs the database in `options.dir` up into the folder `to`: one state of it, with everything
/// acknowledged before this call. Works beside the owner of the database, in its process or in
/// another, and without one. Into a folder with an older backup of the same database, only new
/// bytes are copied; the older one is valid until the new one is complete.
///
/// # Errors
/// `not_found` without a database, `invalid` when the folder has other contents, `locked` while
/// another backup into it runs, `busy` when the owner changes the database too fast, `corrupt`,
/// `full`, `io`. The older backup is still good then.
pub fn backup(env: &Env, options: &Options, to: &Path) -> Result<BackupReport> {
    backup_with(env, options, to, &BackupOptions::default())
}

/// Backs up like [`backup`], with options.
///
/// # Errors
/// As [`backup`].
pub fn backup_with(
    env: &Env,
    options: &Options,
    to: &Path,
    how: &BackupOptions,
) -> Result<BackupReport> {
    options.validate()?;
    let target = BackupFolder::open(env, to)?;
    let path = meta_path(&options.dir);
    // Files that do not fit together are copied again; the others are then found in the folder.
    let mut writing = look(env, &options.dir, |meta, meta_copy| {
        // At each attempt: the owner may have moved the log since the last one.
        let env = &located(env, &options.dir)?;
        let identity = meta.identity()?;
        target.check_identity(identity)?;
        let mut writing = Writing::new(&target, identity, *how);
        let segments = Segments::open(env, options, &meta)?;
        let log_dir = log_dir(env, &options.dir);
        let nothing_freed = || meta_copy.check_current(&**env.index_files(), &path);
        let replayed = replay(
            env.log_files(),
            &log_dir,
            options.log_file_size(),
            meta.log_needed()?.begun_up_to(log_begun(env)?),
            Access::Reader(&nothing_freed),
            |_, _, _, _, _| Ok(()),
        )?;
        writing.sequence = replayed.last.0.max(meta.step_sequence()?.0);
        // redb closes the copy, so that the backup needs no repair.
        drop(meta);
        for end in &replayed.ends {
            writing.log(&**env.log_files(), &log_dir, end)?;
        }
        for (id, record) in &segments.list {
            let source = SegmentSource {
                store: &segments.store,
                id: *id,
                record,
            };
            if source.bytes()?.is_none() {
                // The owner may have removed it since the metadata were read.
                nothing_freed()?;
            }
            writing.segment(&source)?;
        }
        writing.meta(&**meta_copy.file(), &path)?;
        Ok(writing)
    })?;
    writing.finish(env)
}

/// The segments of one state, open as far as the limit allows.
struct Segments {
    list: Vec<(SegmentId, PartitionRecord)>,
    store: Store,
}

impl Segments {
    fn open(env: &Env, options: &Options, meta: &Meta) -> Result<Segments> {
        let mut list = meta.partitions()?;
        list.extend(retained_segments(meta)?);
        let mut store = Store::new(
            Arc::clone(env.segment_files()),
            segment_dir(&options.dir),
            ReadCache::alone(CACHE_BYTES, options.open_files_max / 2, 1),
            options.open_files_max / 2,
            1,
        )
        .with_freed(meta.freed()?.into_iter().map(|(id, _)| id));
        store.pin(list.iter().map(|(id, _)| *id))?;
        Ok(Segments { list, store })
    }
}

/// Cache bytes of a backup: leaves are read once, if at all.
const CACHE_BYTES: usize = 1 << 20;

/// A backup being written: everything except its manifest.
struct Writing<'a> {
    target: &'a BackupFolder<'a>,
    identity: u64,
    sequence: u64,
    how: BackupOptions,
    entries: Vec<Entry>,
    bytes_copied: u64,
    files_verified: u64,
    files_mended: u64,
    damages: Vec<Damage>,
}

impl<'a> Writing<'a> {
    fn new(target: &'a BackupFolder<'a>, identity: u64, how: BackupOptions) -> Writing<'a> {
        Writing {
            target,
            identity,
            sequence: 0,
            how,
            entries: Vec::new(),
            bytes_copied: 0,
            files_verified: 0,
            files_mended: 0,
            damages: Vec::new(),
        }
    }

    /// The copy in the folder that these bytes continue, if it is good.
    fn front(
        &mut self,
        kind: FileKind,
        id: u64,
        source: (&dyn File, &Path),
        bytes: u64,
    ) -> Result<Option<Entry>> {
        let Some(copied) = EarlierCopy::find(self.target, kind, id) else {
            return Ok(None);
        };
        let fits = copied.entry.bytes <= bytes && copied.is_front_of(source)?;
        let grows = copied.entry.bytes < bytes;
        let is_looked_at = !fits || grows || self.how.verify || self.is_turn_of(id);
        let is_good = !is_looked_at || self.verified(&copied)?;
        Ok((fits && is_good).then_some(copied.entry))
    }

    /// True for one file in each [`TURNS`] consecutive numbers, in rotation.
    fn is_turn_of(&self, id: u64) -> bool {
        id.wrapping_add(self.target.number).is_multiple_of(TURNS)
    }

    /// Compares the checksum of an earlier copy.
    fn verified(&mut self, copied: &EarlierCopy<'_>) -> Result<bool> {
        self.files_verified += 1;
        let damage = copied.damage()?;
        if let Some(damage) = &damage {
            tracing::warn!(%damage, "a file of the backup is damaged: it is copied again");
            self.files_mended += 1;
        }
        Ok(damage.is_none())
    }

    fn file(
        &mut self,
        kind: FileKind,
        id: u64,
        source: (&dyn File, &Path),
        bytes: u64,
        full_bytes: u64,
        front: Option<Entry>,
    ) -> Result<()> {
        let target = self.target;
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
                // Bytes after the end in the older backup are leftovers of an interrupted one.
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
                    FileKind::Meta => "redb",
                    FileKind::Segment => "seg",
                    FileKind::Log => "log",
                    FileKind::Stub => "stub",
                };
                let name = format!("{id}-{}.{ending}", target.number);
                let path = target.dir.join(kind.folder()).join(&name);
                // A leftover of the previous attempt.
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

    /// Backs up a segment. If it is damaged, and the folder has a good copy of an earlier state of
    /// it, that copy stays.
    fn segment(&mut self, source: &SegmentSource<'_>) -> Result<()> {
        if source.store.stubs().is_freed(source.id) {
            return self.freed_segment(source);
        }
        let path = source.store.path(source.id);
        let Some(bytes) = source.bytes()? else {
            return self.damaged_segment(source, None);
        };
        let file = source.store.cached_file(source.id)?;
        if source.damage_at_front()?.is_some() {
            return self.damaged_segment(source, Some(&*file));
        }
        if let Some(copied) = EarlierCopy::find(self.target, FileKind::Segment, source.id.0) {
            let goes_on = copied.entry.bytes <= bytes && copied.is_front_of((&*file, &path))?;
            // Other bytes than before: of another history, or damaged since.
            let found = match goes_on {
                true if copied.entry.bytes == bytes => None,
                true => source.damage_in_footers()?,
                false => source.damage_anywhere()?,
            };
            if found.is_some() {
                return self.damaged_segment(source, Some(&*file));
            }
        } else if let Some(damage) = source.damage_in_footers()? {
            self.damages.push(damage);
        }
        let front = self.front(FileKind::Segment, source.id.0, (&*file, &path), bytes)?;
        self.file(
            FileKind::Segment,
            source.id.0,
            (&*file, &path),
            bytes,
            bytes,
            front,
        )
    }

    /// Copies the remaining parts of a segment whose rows were freed, and its groups added since.
    fn freed_segment(&mut self, source: &SegmentSource<'_>) -> Result<()> {
        let stubs = source.store.stubs();
        let path = stubs.stub_path(source.id);
        let read = |e| Error::io("read", &path, e);
        let mut damage = source.damage_of_stub()?;
        if damage.is_none() {
            damage = source.damage_in_footers()?;
        }
        let is_there = source.damage_of_stub()?.is_none();
        self.damages.extend(damage);
        if !is_there {
            return Ok(());
        }
        let Some((base, tail_at)) = stubs.tail(source.id).map_err(read)? else {
            return Ok(());
        };
        let appended = source.record.committed_bytes.saturating_sub(base);
        let bytes = tail_at.saturating_add(appended);
        let file = stubs.bare().open(&path, OpenMode::Read).map_err(read)?;
        let front = self.front(FileKind::Stub, source.id.0, (&*file, &path), bytes)?;
        let from = (&*file, path.as_path());
        self.file(FileKind::Stub, source.id.0, from, bytes, bytes, front)
    }

    /// Backs up a segment with damage: the good copy of an earlier state, or the remaining bytes.
    fn damaged_segment(
        &mut self,
        source: &SegmentSource<'_>,
        file: Option<&dyn File>,
    ) -> Result<()> {
        let mut all = source.damage_at_front()?;
        if all.is_none() {
            all = source.damage_in_footers()?;
        }
        let can_go_on = all.is_none();
        if all.is_none() {
            all = source.damage_anywhere()?;
        }
        self.damages.extend(all);
        let path = source.store.path(source.id);
        let bytes = source.bytes()?.unwrap_or_default();
        let mut front = None;
        if let Some(copied) = EarlierCopy::find(self.target, FileKind::Segment, source.id.0)
            && copied.entry.bytes <= source.record.committed_bytes
            && self.verified(&copied)?
        {
            match file {
                // Its footers can be read: they show whether it continues the copy.
                Some(file) if can_go_on => {
                    if copied.ends_alike((file, &path))? {
                        front = Some(copied.entry);
                    }
                }
                _ => {
                    self.entries.push(copied.entry);
                    return Ok(());
                }
            }
        }
        match file {
            Some(file) => {
                let id = source.id.0;
                self.file(FileKind::Segment, id, (file, &path), bytes, bytes, front)
            }
            None => Ok(()),
        }
    }

    fn meta(&mut self, file: &dyn File, path: &Path) -> Result<()> {
        let bytes = file.len().map_err(|e| Error::io("read", path, e))?;
        self.file(FileKind::Meta, 0, (file, path), bytes, bytes, None)
    }

    /// Copies the records of a log file, without bytes of a torn tail after them.
    fn log(&mut self, files: &dyn Files, log_dir: &Path, end: &LogEnd) -> Result<()> {
        let path = log_path(log_dir, end.number);
        let file = files
            .open(&path, OpenMode::Read)
            .map_err(|e| Error::io("open", &path, e))?;
        let id = end.generation;
        let front = self.front(FileKind::Log, id, (&*file, &path), end.offset)?;
        let (bytes, full_bytes) = (end.offset, end.file_bytes);
        self.file(FileKind::Log, id, (&*file, &path), bytes, full_bytes, front)?;
        end.check_current(&*file, &path)
    }

    /// Makes the written files the valid backup.
    fn finish(&mut self, env: &Env) -> Result<BackupReport> {
        let target = self.target;
        for folder in FileKind::folders() {
            target.sync_dir(&target.dir.join(folder))?;
        }
        let manifest = Manifest {
            number: target.number,
            identity: self.identity,
            sequence: self.sequence,
            created_at: env.clock.now(),
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
            files_verified: self.files_verified,
            files_mended: self.files_mended,
            damages: std::mem::take(&mut self.damages),
        })
    }
}

/// Number of backups within which the checksum of each file in the folder is compared at least
/// once.
const TURNS: u64 = 8;
