//! A copy as a database to read: its metadata are made of the state, in memory.

use super::pack::{MissedRanges, PackFiles};
use super::receive::ROOT;
use super::{Inner, elsewhere};
use crate::catalog::Definition;
use crate::core::Core;
use crate::ids::{SegmentId, Sequence};
use crate::layout::meta_path;
use crate::meta::{Meta, MetaChange};
use crate::recover::{CopyParts, OpenedBy, load};
use crate::segment::{Here, MissedRange};
use crate::state::{State, StatePartition};
use crate::{Error, Options, Result};
use headwater_io::{Env, Files, Media, MemoryFiles, OpenMode};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(super) fn open(copy: &Inner, options: &Options) -> Result<Core> {
    let root = Path::new(ROOT);
    let (state, shown, files, parts) = {
        let receiving = copy.receiving.lock();
        let shown = receiving.shown.clone();
        let segments = shown
            .iter()
            .map(|p| (p.id, receiving.pack(p.id), p.record.committed_bytes));
        let mut parts = CopyParts {
            deletes: receiving.state.deletes.clone(),
            ..CopyParts::default()
        };
        for partition in &shown {
            let pack = receiving.pack(partition.id);
            let lacks = |(at, len)| !pack.missing(at, len).is_empty();
            if partition.frame().any(lacks) {
                let why = elsewhere(partition.id);
                parts.elsewhere.insert(partition.id, why);
            }
        }
        let files = PackFiles::new(root, segments).telling(&copy.missed);
        (Arc::clone(&receiving.state), shown, Arc::new(files), parts)
    };
    let parts = CopyParts {
        here: Some(Arc::new(CopyHere::new(copy, &state, &shown, &files))),
        hashers: Some(copy.hashers.clone()),
        ..parts
    };
    let env = Env {
        files,
        media: Media::default(),
        ..copy.env.clone()
    };
    let options = Options {
        dir: root.to_owned(),
        ..options.clone()
    };
    let meta = metadata(&state, shown)?;
    Ok(load(env, options, meta, OpenedBy::Copy(parts))?.0)
}

/// What is here of what a copy shows.
#[derive(Debug)]
struct CopyHere {
    files: Arc<PackFiles>,
    missed: Arc<MissedRanges>,
    /// Header, footers and checkpoints of what is shown, and whether it is an older version.
    shown: BTreeMap<SegmentId, (StatePartition, bool)>,
}

impl CopyHere {
    fn new(
        copy: &Inner,
        state: &State,
        shown: &[StatePartition],
        files: &Arc<PackFiles>,
    ) -> CopyHere {
        let shown = shown.iter().map(|partition| {
            let now = state.partition(partition.id);
            let is_older = !now.is_some_and(|now| now.is_same(partition));
            (partition.id, (partition.clone(), is_older))
        });
        CopyHere {
            files: Arc::clone(files),
            missed: Arc::clone(&copy.missed),
            shown: shown.collect(),
        }
    }
}

impl Here for CopyHere {
    fn missing(&self, segment: SegmentId, offset: u64, bytes: u64) -> Vec<(u64, u64)> {
        match self.files.pack(segment) {
            Some(pack) => pack.missing(offset, bytes),
            None => vec![(offset, bytes)],
        }
    }

    fn missing_frame(&self, segment: SegmentId) -> Vec<(u64, u64)> {
        let frame = self.shown.get(&segment).map(|(shown, _)| shown.frame());
        let parts = frame.into_iter().flatten();
        let missing = parts.flat_map(|(at, bytes)| self.missing(segment, at, bytes));
        missing.collect()
    }

    fn is_older(&self, segment: SegmentId) -> bool {
        self.shown
            .get(&segment)
            .is_some_and(|(_, is_older)| *is_older)
    }

    fn missed_frame(&self, segment: SegmentId) {
        for (offset, bytes) in self.missing_frame(segment) {
            let segment = segment.0;
            self.missed.put(MissedRange {
                segment,
                offset,
                bytes,
            });
        }
    }
}

/// The metadata of a database that has nothing but what a copy shows.
fn metadata(state: &State, shown: Vec<StatePartition>) -> Result<Meta> {
    let path = meta_path(Path::new(ROOT));
    let file = MemoryFiles::new()
        .open(&path, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", &path, e))?;
    let meta = Meta::create(&path, file, state.shards, state.name.identity)?;
    let at = Sequence(state.name.sequence);
    let tables = state.tables.iter().map(Arc::clone).map(Definition::Table);
    let streams = state.streams.iter().cloned().map(Arc::new);
    let definitions = tables.chain(streams.map(Definition::Stream));
    let newest = state.streams.last();
    let segments = shown.iter().map(|p| SegmentId(p.id.0.saturating_add(1)));
    meta.commit(&MetaChange {
        step_sequence: at,
        definitions: definitions.map(|d| (at, d)).collect(),
        next_stream: newest.map_or(0, |record| record.id.0.saturating_add(1)),
        next_segment: segments.max().map_or(1, |id| id.0),
        partitions: shown.into_iter().map(|p| (p.id, p.record)).collect(),
        ..MetaChange::default()
    })?;
    Ok(meta)
}
