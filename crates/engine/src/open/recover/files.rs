//! Checks the segment files that the metadata name, and repairs them after a crash.
//!
//! Invariants: files are changed only after everything has been checked; files of an unreadable
//! partition are never changed. Failure: a file that is missing, shorter than committed, or has
//! another header makes only its own partition unreadable.

use super::Recovery;
use crate::common::error::Damage;
use crate::common::ids::SegmentId;
use crate::core::shard::Shard;
use crate::metadata::tables::{Meta, PartitionRecord};
use crate::storage::named_snapshots::NamedSnapshots;
use crate::storage::segment::{Store, marker_name, stub_name, stub_of};
use crate::wal::{Access, Replayed};
use crate::{Error, ErrorKind, Result};
use headwater_io::OpenMode;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Partitions as the metadata name them.
pub(super) type Named = [(SegmentId, PartitionRecord)];

/// Checks that every segment named by a commit exists, has its committed length and the expected
/// header. Returns the segments that fail.
pub(super) fn look(
    store: &Store,
    partitions: &Named,
    access: Access<'_>,
) -> Result<HashMap<SegmentId, Error>> {
    let mut unreadable = HashMap::new();
    for (id, record) in partitions {
        let len = match store.file_bytes(*id) {
            // Damage of the remaining parts of a segment whose rows were freed.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                unreadable.insert(*id, error);
                continue;
            }
            other => other?,
        };
        let found = match len {
            None => {
                if let Access::Reader(nothing_freed) = access {
                    // The owner may have removed it since the metadata were read.
                    nothing_freed()?;
                }
                Err(short(store, *id, record, "no file".into()))
            }
            Some(len) if len < record.committed_bytes => {
                Err(short(store, *id, record, format!("{len} bytes")))
            }
            Some(_) => store.verify_header(*id, record),
        };
        match found {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                unreadable.insert(*id, error);
            }
            other => other?,
        }
    }
    Ok(unreadable)
}

fn short(store: &Store, id: SegmentId, record: &PartitionRecord, found: String) -> Error {
    Error::damage(Damage {
        file: store.path(id),
        offset: record.committed_bytes,
        expected: format!("{} committed bytes", record.committed_bytes),
        found,
    })
}

/// The unreadable partitions.
pub(super) fn unreadable(shards: &[Shard]) -> HashSet<SegmentId> {
    let mut out = HashSet::new();
    for shard in shards {
        let state = shard.state.lock();
        let all = state.partitions.all();
        out.extend(all.filter(|p| p.unreadable.is_some()).map(|p| p.id()));
    }
    out
}

/// The names of the files in the folder of segments, including the segments.
pub(super) fn present(store: &Store) -> Result<Vec<String>> {
    let dir = store.dir();
    let names = store.files().list(dir);
    names.map_err(|e| Error::io("list", dir, e))
}

/// Removes files among `present` that are segments without a commit, and truncates the others to
/// their committed length.
pub(super) fn settle(
    store: &Store,
    present: &[String],
    partitions: &Named,
    unreadable: &HashSet<SegmentId>,
    recovery: &mut Recovery,
    snapshots: &NamedSnapshots,
) -> Result<()> {
    let kept = settle_snapshot_markers(store, present, partitions, snapshots)?;
    let all = partitions.iter().map(|(id, _)| *id).chain(kept);
    let mut named: HashSet<String> = HashSet::new();
    for id in all {
        let is_freed = store.stubs().is_freed(id);
        // Both files of an unreadable pair stay: a repair may need either one.
        if !is_freed || unreadable.contains(&id) {
            named.insert(format!("{}.seg", id.0));
        }
        if is_freed {
            named.insert(stub_name(id));
        }
    }
    let (files, dir) = (store.files(), store.dir());
    for name in present {
        let is_segment = name.ends_with(".seg") || stub_of(name).is_some();
        if !named.contains(name) && is_segment {
            let path = dir.join(name);
            store
                .stubs()
                .bare()
                .remove(&path)
                .map_err(|e| Error::io("remove", &path, e))?;
            tracing::info!(path = %path.display(), "removed an uncommitted segment file");
            recovery.files_removed += 1;
        }
    }
    for (id, record) in partitions.iter().filter(|(id, _)| !unreadable.contains(id)) {
        let path = store.path(*id);
        let file = files
            .open(&path, OpenMode::Write)
            .map_err(|e| Error::io("open", &path, e))?;
        let len = file.len().map_err(|e| Error::io("read", &path, e))?;
        if len > record.committed_bytes {
            file.set_len(record.committed_bytes)
                .map_err(|e| Error::io("truncate", &path, e))?;
            tracing::info!(path = %path.display(), from = len, to = record.committed_bytes, "truncated an uncommitted tail");
            recovery.files_truncated += 1;
        }
    }
    Ok(())
}

/// Forgets freed segments that are not referenced any more.
pub(super) fn forget_freed(
    meta: &Meta,
    partitions: &Named,
    snapshots: &NamedSnapshots,
) -> Result<()> {
    let mut named: HashSet<SegmentId> = partitions.iter().map(|(id, _)| *id).collect();
    for snapshot in snapshots.all() {
        named.extend(snapshot.record.segments.iter().map(|(id, _)| *id));
    }
    let freed = meta.freed()?.into_iter().map(|(id, _)| id);
    let gone: Vec<SegmentId> = freed.filter(|id| !named.contains(id)).collect();
    match gone.is_empty() {
        true => Ok(()),
        false => meta.change_freed(&[], &gone, None),
    }
}

/// Segments that only snapshots name: each has a marker file beside it, and other segments have
/// none.
fn settle_snapshot_markers(
    store: &Store,
    present: &[String],
    partitions: &Named,
    snapshots: &NamedSnapshots,
) -> Result<HashSet<SegmentId>> {
    let live: HashSet<SegmentId> = partitions.iter().map(|(id, _)| *id).collect();
    let mut kept = HashSet::new();
    for snapshot in snapshots.all() {
        let segments = snapshot.record.segments.iter().map(|(id, _)| *id);
        kept.extend(segments.filter(|id| !live.contains(id)));
    }
    let (files, dir) = (store.files(), store.dir());
    let wanted: HashSet<String> = kept.iter().map(|id| marker_name(*id)).collect();
    for name in present {
        if name.ends_with(".kept") && !wanted.contains(name) {
            let path = dir.join(name);
            let removed = files.remove(&path);
            removed.map_err(|e| Error::io("remove", &path, e))?;
        }
    }
    let missing: Vec<&String> = wanted.iter().filter(|n| !present.contains(n)).collect();
    for name in &missing {
        let path = dir.join(name);
        match files.open(&path, OpenMode::CreateNew) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                tracing::warn!(path = %path.display(), %error, "cannot mark a segment that only snapshots retain");
            }
            _ => {}
        }
    }
    if !missing.is_empty() {
        files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    }
    Ok(kept)
}

/// Logs the result of the replay of the log. A reader replays repeatedly, perhaps in the middle of
/// a write, and does not report it in the usual log.
pub(super) fn report(dir: &Path, is_owner: bool, replayed: &Replayed, recovery: &mut Recovery) {
    if let Some((path, offset)) = &replayed.torn {
        recovery.torn_tail = true;
        if is_owner {
            tracing::info!(path = %path.display(), offset, "ignored a torn log tail: nothing after it was acknowledged as synced");
        }
    }
    let (dir, records, events) = (
        dir.display(),
        recovery.log_records,
        recovery.events_replayed,
    );
    match (records > 0, is_owner) {
        (false, _) => {}
        (true, true) => tracing::info!(%dir, records, events, "replayed the log"),
        (true, false) => tracing::debug!(%dir, records, events, "read the log"),
    }
}
