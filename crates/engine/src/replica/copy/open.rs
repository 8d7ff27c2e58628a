//! A copy as a database to read: its metadata are made of the state, in memory.

use super::pack::{MissedRanges, PackFiles};
use super::receive::ROOT;
use super::retained::pieces;
use super::{Inner, elsewhere};
use crate::common::ids::{SegmentId, Sequence};
use crate::core::Core;
use crate::device::layout::meta_path;
use crate::metadata::catalog::{Life, Table};
use crate::metadata::tables::Meta;
use crate::open::recover::{CopyParts, MetaInMemory, OpenedBy, load};
use crate::replication::state::{State, StatePartition};
use crate::replication::tail::TailRecord;
use crate::storage::segment::{Here, MissedRange};
use crate::{Options, Result};
use headwater_io::{Env, Media};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The view of a copy that a reader opens, as of one instant.
struct CopyView {
    state: Arc<State>,
    /// Tables as they live here.
    tables: Vec<Arc<Table>>,
    /// Partitions that are shown or retained, each with whether it is an older version.
    partitions: BTreeMap<SegmentId, (StatePartition, bool)>,
    files: Arc<PackFiles>,
    tail: Vec<TailRecord>,
    parts: CopyParts,
}

impl CopyView {
    fn at(copy: &Inner) -> CopyView {
        let receiving = copy.receiving.lock();
        let state = &receiving.state;
        let shown = receiving.shown.iter().map(|partition| {
            let now = state.partition(partition.id);
            let is_older = !now.is_some_and(|now| now.is_same(partition));
            (partition.id, (partition.clone(), is_older))
        });
        let retained = receiving.retained.values().map(|part| {
            let is_older = part.is_older(state);
            (part.partition.id, (part.partition.clone(), is_older))
        });
        let partitions: BTreeMap<_, _> = shown.chain(retained).collect();
        let segments = partitions.values();
        let segments =
            segments.map(|(p, _)| (p.id, receiving.pack(p.id), p.record.committed_bytes));
        let files = PackFiles::new(Path::new(ROOT), segments).telling(&copy.missed);
        let mut parts = CopyParts {
            deletes: state.deletes.clone(),
            pieces: pieces(
                receiving.retained.values(),
                &receiving.shown,
                &receiving.deleted,
            ),
            ..CopyParts::default()
        };
        for (partition, _) in partitions.values() {
            let pack = receiving.pack(partition.id);
            let is_missing = |(at, len)| !pack.missing(at, len).is_empty();
            if is_missing((0, partition.record.committed_bytes)) {
                parts.lacking.insert(partition.id);
            }
            if partition.frame().any(is_missing) {
                let why = elsewhere(partition.id);
                parts.elsewhere.insert(partition.id, why);
            }
        }
        let tables = state.tables.iter().map(|table| {
            let cut = receiving.subscription.cutoff(&table.life);
            match cut == table.life.cut {
                true => Arc::clone(table),
                false => {
                    parts.cuts.insert(table.id, table.life.cut);
                    let life = Life { cut, ..table.life };
                    let table = Table::clone(table);
                    Arc::new(Table { life, ..table })
                }
            }
        });
        CopyView {
            tables: tables.collect(),
            state: Arc::clone(state),
            tail: receiving.tail.records(state),
            partitions,
            files: Arc::new(files),
            parts,
        }
    }
}

pub(super) fn open(copy: &Inner, options: &Options) -> Result<Core> {
    let looked = CopyView::at(copy);
    if looked.tail.is_empty() {
        return opened(copy, options, looked);
    }
    match opened(copy, options, looked) {
        Err(error) => {
            tracing::warn!(%error, "what was sent along of newest events cannot be shown: it is left out");
            copy.receiving.lock().tail.drop_all();
            opened(copy, options, CopyView::at(copy))
        }
        core => core,
    }
}

fn opened(copy: &Inner, options: &Options, looked: CopyView) -> Result<Core> {
    let meta = metadata(&looked)?;
    let parts = CopyParts {
        here: Some(Arc::new(CopyHere {
            files: Arc::clone(&looked.files),
            missed: Arc::clone(&copy.missed),
            shown: looked.partitions,
        })),
        hashers: Some(copy.hashers.clone()),
        tail: looked.tail,
        ..looked.parts
    };
    let env = Env {
        files: looked.files,
        media: Media::default(),
        ..copy.env.clone()
    };
    let options = Options {
        dir: Path::new(ROOT).to_owned(),
        ..options.clone()
    };
    Ok(load(env, options, meta, OpenedBy::Copy(parts))?.0)
}

/// The present ranges of the partitions that a copy shows.
#[derive(Debug)]
struct CopyHere {
    files: Arc<PackFiles>,
    missed: Arc<MissedRanges>,
    /// Header, footers and checkpoints of shown or retained partitions, and whether each is an
    /// older version.
    shown: BTreeMap<SegmentId, (StatePartition, bool)>,
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

/// The metadata of a database with only the partitions that a copy shows.
fn metadata(looked: &CopyView) -> Result<Meta> {
    let state = &looked.state;
    let partitions = looked.partitions.iter();
    let in_memory = MetaInMemory {
        identity: state.name.identity,
        shards: state.shards,
        at: Sequence(state.name.sequence),
        tables: looked.tables.clone(),
        streams: state.streams.clone(),
        partitions: partitions
            .map(|(id, (p, _))| (*id, p.record.clone()))
            .collect(),
    };
    in_memory.make(&meta_path(Path::new(ROOT)))
}
