//! Looks at the segment files that the metadata name, and puts them right after a crash.
//!
//! Invariants: nothing is changed before everything has been looked at; of a partition that cannot
//! be read nothing is changed at all.
//! Failure: a file that is missing, shorter than committed, or has another header makes its
//! partition unreadable, and no other.

use super::Recovery;
use crate::error::Damage;
use crate::ids::SegmentId;
use crate::log::{Access, Replayed};
use crate::meta::PartitionRecord;
use crate::named::NamedSnapshots;
use crate::segment::{Store, kept_name};
use crate::shard::Shard;
use crate::{Error, ErrorKind, Result};
use headwater_io::OpenMode;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Partitions as the metadata name them.
pub(super) type Named = [(SegmentId, PartitionRecord)];

/// Checks that every segment a commit names is there, as long as committed, and the one it should
/// be. Gives those that are not.
pub(super) fn look(
    store: &Store,
    partitions: &Named,
    access: Access<'_>,
) -> Result<HashMap<SegmentId, Error>> {
    let mut unreadable = HashMap::new();
    for (id, record) in partitions {
        let found = match store.file_bytes(*id)? {
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

/// The partitions of which nothing can be read.
pub(super) fn unreadable(shards: &[Shard]) -> HashSet<SegmentId> {
    let mut out = HashSet::new();
    for shard in shards {
        let state = shard.state.lock();
        let all = state.partitions.all();
        out.extend(all.filter(|p| p.unreadable.is_some()).map(|p| p.id()));
    }
    out
}

/// The names of the files beside the segments, theirs included.
pub(super) fn present(store: &Store) -> Result<Vec<String>> {
    let dir = store.dir();
    let names = store.files().list(dir);
    names.map_err(|e| Error::io("list", dir, e))
}

/// Removes those of the files `present` that are segments no commit names, and cuts the others back
/// to what is committed.
pub(super) fn settle(
    store: &Store,
    present: &[String],
    partitions: &Named,
    unreadable: &HashSet<SegmentId>,
    recovery: &mut Recovery,
    snapshots: &NamedSnapshots,
) -> Result<()> {
    let kept = settle_kept(store, present, partitions, snapshots)?;
    let named: HashSet<String> = partitions
        .iter()
        .map(|(id, _)| *id)
        .chain(kept)
        .map(|id| format!("{}.seg", id.0))
        .collect();
    let (files, dir) = (store.files(), store.dir());
    for name in present {
        if !named.contains(name) && name.ends_with(".seg") {
            let path = dir.join(name);
            files
                .remove(&path)
                .map_err(|e| Error::io("remove", &path, e))?;
            tracing::info!(path = %path.display(), "removed a segment file that no commit names");
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
            tracing::info!(path = %path.display(), from = len, to = record.committed_bytes, "cut back an uncommitted tail");
            recovery.files_truncated += 1;
        }
    }
    Ok(())
}

/// Segments that only snapshots name: beside each lies what says so, and beside no other.
fn settle_kept(
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
    let wanted: HashSet<String> = kept.iter().map(|id| kept_name(*id)).collect();
    for name in present {
        if name.ends_with(".kept") && !wanted.contains(name) {
            let path = dir.join(name);
            let removed = files.remove(&path);
            removed.map_err(|e| Error::io("remove", &path, e))?;
        }
    }
    for name in wanted.iter().filter(|name| !present.contains(name)) {
        let path = dir.join(name);
        match files.open(&path, OpenMode::CreateNew) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                tracing::warn!(path = %path.display(), %error, "cannot mark a segment that only snapshots keep");
            }
            _ => {}
        }
    }
    Ok(kept)
}

/// Says what the replay of the log found.
pub(super) fn report(dir: &Path, replayed: &Replayed, recovery: &mut Recovery) {
    if let Some((path, offset)) = &replayed.torn {
        recovery.torn_tail = true;
        tracing::info!(path = %path.display(), offset, "ignored a torn log tail: nothing behind it was acknowledged as synced");
    }
    if recovery.log_records > 0 {
        tracing::info!(
            dir = %dir.display(),
            records = recovery.log_records,
            events = recovery.events_replayed,
            "replayed the log"
        );
    }
}
