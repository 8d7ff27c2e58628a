//! Plan of the opening of a copy as a database: its metadata are made from the state, in memory.

use super::missed::MissedRanges;
use super::pack::PackFiles;
use super::receive::ROOT;
use super::retained::pieces;
use super::shown::ShardSpan;
use super::{Inner, elsewhere};
use crate::common::ids::{SegmentId, Sequence, ShardIndex, TableId};
use crate::device::layout::meta_path;
use crate::metadata::catalog::{Table, TableLifetime};
use crate::metadata::tables::{FixedContents, Meta};
use crate::open::recover::{
    CarriedRecords, Devices, LogPlan, Opening, OpeningPlan, Role, SegmentAccess, SegmentCheck,
    SegmentPlan,
};
use crate::replication::state::{State, StatePartition};
use crate::storage::segment::{MissedRange, PresentRanges, ShownStretch, StoreCache};
use crate::{Error, Options, Result};
use headwater_io::{Env, Media};
use headwater_types::{ByteRange, ClosedRange, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// The view of a copy that a reader opens, as of one instant.
pub(super) struct CopyView {
    state: Arc<State>,
    /// Tables with the lifetime policy of the copy.
    tables: Vec<Arc<Table>>,
    /// Partitions that are shown or retained, each with true for an older version.
    partitions: BTreeMap<SegmentId, (StatePartition, bool)>,
    files: Arc<PackFiles>,
    /// Partitions without any readable data in this copy.
    elsewhere: HashMap<SegmentId, Error>,
    /// Visible parts of partitions that are not shown as a whole.
    pieces: HashMap<SegmentId, Vec<ShownStretch>>,
    carried: CarriedRecords,
    /// Spans in which nothing is shown yet of what the state names.
    left_out: Vec<ShardSpan>,
}

impl CopyView {
    /// Takes the view of this instant.
    pub(super) fn at(copy: &Inner) -> CopyView {
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
        let files = PackFiles::new(Path::new(ROOT), segments).reporting_to(&copy.missed);
        let mut carried = CarriedRecords {
            deletes: state.deletes.clone(),
            ..CarriedRecords::default()
        };
        let pieces = pieces(
            receiving.retained.values(),
            &receiving.shown,
            &receiving.deleted,
        );
        let mut are_elsewhere = HashMap::new();
        for (partition, _) in partitions.values() {
            let pack = receiving.pack(partition.id);
            if !pack.has(ByteRange::new(0, partition.record.committed_bytes)) {
                carried.incomplete.insert(partition.id);
            }
            if !partition.frame().all(|range| pack.has(range)) {
                let why = elsewhere(partition.id);
                are_elsewhere.insert(partition.id, why);
            }
        }
        let tables = state.tables.iter().map(|table| {
            let retention_cutoff = receiving.subscription.cutoff(&table.lifetime);
            match retention_cutoff == table.lifetime.retention_cutoff {
                true => Arc::clone(table),
                false => {
                    carried
                        .cuts
                        .insert(table.id, table.lifetime.retention_cutoff);
                    let lifetime = TableLifetime {
                        retention_cutoff,
                        ..table.lifetime
                    };
                    let table = Table::clone(table);
                    Arc::new(Table { lifetime, ..table })
                }
            }
        });
        let tables = tables.collect();
        carried.tail = receiving.tail.records(state);
        CopyView {
            tables,
            state: Arc::clone(state),
            partitions,
            files: Arc::new(files),
            elsewhere: are_elsewhere,
            pieces,
            carried,
            left_out: receiving.left_out.clone(),
        }
    }

    /// True when records of the log after the state are shown.
    pub(super) fn has_tail(&self) -> bool {
        !self.carried.tail.is_empty()
    }

    /// Plans the opening of this view.
    pub(super) fn plan(
        self,
        copy: &Inner,
        options: &Options,
        cache: &StoreCache,
    ) -> Result<OpeningPlan<'static>> {
        let meta = metadata(&self);
        let env = Env {
            files: Arc::<PackFiles>::clone(&self.files),
            media: Media::default(),
            ..copy.env.clone()
        };
        let options = Options {
            dir: Path::new(ROOT).to_owned(),
            ..options.clone()
        };
        Ok(OpeningPlan {
            opening: Opening {
                meta: Arc::new(meta),
                devices: Devices::not_owned(&env, &options.dir),
                role: Role::Reader,
                env,
                options,
            },
            segments: SegmentPlan {
                access: SegmentAccess::OpenedOnRead,
                check: SegmentCheck::Checked(self.elsewhere),
                here: Some(Arc::new(CopyPresentRanges {
                    files: self.files,
                    missed: Arc::clone(&copy.missed),
                    shown: self.partitions,
                    left_out: self.left_out,
                })),
                pieces: self.pieces,
                cache: Some(cache.clone()),
            },
            log: LogPlan::Carried(self.carried),
            hashers: Some(copy.hashers.clone()),
            moment: None,
        })
    }
}

/// The present ranges of the partitions that a copy shows.
#[derive(Debug)]
struct CopyPresentRanges {
    files: Arc<PackFiles>,
    missed: Arc<MissedRanges>,
    /// Header, footers and checkpoints of shown or retained partitions, each with true for an older
    /// version.
    shown: BTreeMap<SegmentId, (StatePartition, bool)>,
    /// Spans in which nothing is shown yet of what the state names.
    left_out: Vec<ShardSpan>,
}

impl PresentRanges for CopyPresentRanges {
    fn missing(&self, segment: SegmentId, range: ByteRange) -> Vec<ByteRange> {
        match self.files.pack(segment) {
            Some(pack) => pack.missing(range),
            None => vec![range],
        }
    }

    fn missing_frame(&self, segment: SegmentId) -> Vec<ByteRange> {
        let frame = self.shown.get(&segment).map(|(shown, _)| shown.frame());
        let parts = frame.into_iter().flatten();
        parts.flat_map(|part| self.missing(segment, part)).collect()
    }

    fn is_older(&self, segment: SegmentId) -> bool {
        self.shown
            .get(&segment)
            .is_some_and(|(_, is_older)| *is_older)
    }

    fn left_out(
        &self,
        table: TableId,
        shard: ShardIndex,
        range: &ClosedRange,
    ) -> Option<Timestamp> {
        let of_shard = self.left_out.iter();
        let of_shard = of_shard.filter(|(of, at, _)| (*of, *at) == (table, shard));
        let met = of_shard.filter(|(.., span)| span.overlaps(range));
        met.map(|(.., span)| span.first.max(range.first)).min()
    }

    fn missed_frame(&self, segment: SegmentId) {
        for range in self.missing_frame(segment) {
            self.missed.put(MissedRange::of(segment, range));
        }
    }

    fn has_reader(&self) -> bool {
        MissedRanges::has_reader()
    }

    fn missed_too(&self, ranges: &[MissedRange]) {
        for missed in ranges {
            self.missed.put(*missed);
        }
    }
}

/// The metadata of a database with only the partitions that a copy shows.
fn metadata(looked: &CopyView) -> Meta {
    let state = &looked.state;
    let partitions = looked.partitions.iter();
    let contents = FixedContents {
        identity: state.name.identity,
        shards: state.shards,
        at: Sequence(state.name.sequence),
        tables: looked.tables.clone(),
        streams: Arc::clone(&state.streams),
        partitions: partitions
            .map(|(id, (p, _))| (*id, p.record.clone()))
            .collect(),
    };
    Meta::fixed(&meta_path(Path::new(ROOT)), contents)
}
