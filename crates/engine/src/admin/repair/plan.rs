//! Reads everything and decides the actions of a repair, without changes.

use super::log::LogScan;
use super::mend::{RemovedParts, mend};
use super::overlay::{Overlay, Patch};
use super::save_log::{Covers, save};
use super::scan::{ReadablePrefix, ScannedSegment};
use super::{RepairFinding, RepairReport};
use crate::admin::check::{CheckReport, check};
use crate::common::error::Damage;
use crate::common::ids::{SegmentId, Sequence, StreamId};
use crate::device::layout::{log_dir, meta_path, segment_dir};
use crate::device::tiers::log_begun;
use crate::metadata::catalog::{Catalog, StreamIndex, Table, decode_stream_key};
use crate::metadata::tables::PartitionRecord;
use crate::metadata::tables::{Meta, MetaChange, copy::MetaCopy};
use crate::storage::segment::{LeafEntry, ReadCache, SegmentHeader, Store};
use crate::wal::Needed;
use crate::{Error, ErrorKind, Options, Result};
use headwater_io::{Env, File};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Plan for the metadata.
pub(super) enum PlannedMeta {
    /// One commit changes them.
    Changed(Box<MetaChange>),
    /// The metadata are rebuilt.
    New(Arc<dyn File>),
}

pub(super) struct RepairPlan {
    pub(super) meta: PlannedMeta,
    pub(super) patches: BTreeMap<SegmentId, Patch>,
    /// Number and content of the new log file, if the log is rewritten.
    pub(super) log: Option<(u64, Vec<u8>)>,
    /// Named snapshots to drop, by number.
    pub(super) snapshots: Vec<u64>,
    pub(super) dangling: Dangling,
    pub(super) report: RepairReport,
}

/// Indexes, and tables with index policies, by number, that have lost their meaning.
#[derive(Debug, Default)]
pub(super) struct Dangling {
    pub(super) dropped: Vec<u32>,
    pub(super) removed_policies: Vec<u32>,
}

impl Dangling {
    pub(super) fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.removed_policies.is_empty()
    }
}

/// A plan that is being made.
pub(super) struct Planning<'a> {
    pub(super) env: &'a Env,
    pub(super) options: &'a Options,
    pub(super) dir: &'a Path,
    pub(super) meta_path: PathBuf,
    /// The future metadata, in memory.
    pub(super) file: Arc<dyn File>,
    change: MetaChange,
    pub(super) patches: BTreeMap<SegmentId, Patch>,
    log: Option<(u64, Vec<u8>)>,
    pub(super) quarantined: BTreeSet<PathBuf>,
    findings: Vec<RepairFinding>,
    pub(super) lost: Vec<String>,
    pub(super) snapshots: Vec<u64>,
    pub(super) dangling: Dangling,
    /// Segments whose rows were freed.
    pub(super) freed: Vec<SegmentId>,
    pub(super) next_segment: u64,
}

pub(super) fn damage(
    file: &Path,
    offset: u64,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Damage {
    Damage {
        file: file.to_owned(),
        offset,
        expected: expected.into(),
        found: found.into(),
    }
}

impl RepairPlan {
    pub(super) fn make(env: &Env, options: &Options) -> Result<RepairPlan> {
        let dir = options.dir.as_path();
        let meta_path = meta_path(dir);
        let files = &**env.index_files();
        let sound = MetaCopy::take(files, &meta_path).and_then(|copy| {
            let meta = Meta::open(&meta_path, Arc::clone(copy.file()))?;
            let meta = meta.ok_or_else(|| {
                Error::damage(damage(
                    &meta_path,
                    0,
                    "metadata with a format version",
                    "none",
                ))
            })?;
            // All of it can be decoded.
            Catalog::new().load(meta.definitions()?);
            meta.partitions()?;
            meta.dropped()?;
            for table in meta.tables()? {
                meta.streams_of(table.id)?;
            }
            Ok(copy)
        });
        let (file, broken) = match sound {
            Ok(copy) => (Arc::clone(copy.file()), None),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => {
                let memory = headwater_io::MemoryFiles::new();
                let empty = headwater_io::Files::open(
                    &memory,
                    Path::new("/meta.redb"),
                    headwater_io::OpenMode::CreateNew,
                )
                .map_err(|e| Error::io("create", &meta_path, e))?;
                (empty, Some(error))
            }
            Err(error) => return Err(error),
        };
        let mut planning = Planning {
            env,
            options,
            dir,
            meta_path,
            file,
            change: MetaChange::default(),
            patches: BTreeMap::new(),
            log: None,
            quarantined: BTreeSet::new(),
            findings: Vec::new(),
            lost: Vec::new(),
            snapshots: Vec::new(),
            dangling: Dangling::default(),
            freed: Vec::new(),
            next_segment: 0,
        };
        let is_new = broken.is_some();
        match broken {
            Some(error) => planning.rebuild_meta(&error)?,
            None => planning.segments_named()?,
        }
        let after = planning.log_and_check(is_new)?;
        let mut after = planning.without_broken_snapshots(after)?;
        if planning.without_dangling()? {
            after = check(planning.overlay(), options.clone())?;
        }
        let quarantined = std::mem::take(&mut planning.quarantined).into_iter();
        let quarantined: BTreeSet<PathBuf> = quarantined.map(|p| planning.on_medium(p)).collect();
        let meta = if is_new {
            PlannedMeta::New(planning.file)
        } else {
            PlannedMeta::Changed(Box::new(planning.change))
        };
        Ok(RepairPlan {
            meta,
            patches: planning.patches,
            log: planning.log,
            snapshots: planning.snapshots,
            dangling: planning.dangling,
            report: RepairReport {
                findings: planning.findings,
                lost: planning.lost,
                quarantined: quarantined.into_iter().collect(),
                after,
            },
        })
    }
}

impl Planning<'_> {
    pub(super) fn find(&mut self, damage: Damage, action: impl Into<String>) {
        self.findings.push(RepairFinding {
            damage,
            action: action.into(),
        });
    }

    pub(super) fn open_meta(&self) -> Result<Meta> {
        Meta::open(&self.meta_path, Arc::clone(&self.file))?
            .ok_or_else(|| Error::internal("repair: the planned metadata is empty"))
    }

    /// Changes the planned metadata.
    pub(super) fn commit(&mut self, change: MetaChange) -> Result<()> {
        self.open_meta()?.commit(&change)?;
        self.change.partitions.extend(change.partitions);
        self.change.removed.extend(change.removed);
        self.change.next_segment = self.change.next_segment.max(change.next_segment);
        self.change.log_first_generation = self
            .change
            .log_first_generation
            .max(change.log_first_generation);
        self.change.log_newest_generation = self
            .change
            .log_newest_generation
            .max(change.log_newest_generation);
        Ok(())
    }

    pub(super) fn store(&self) -> Store {
        Store::new(
            Arc::clone(self.env.segment_files()),
            segment_dir(self.dir),
            ReadCache::alone(
                self.options.memory_budget_bytes / 4,
                self.options.open_files_max,
                1,
            ),
            self.options.open_files_max,
            1,
        )
        .with_freed(self.freed.iter().copied())
    }

    /// Reads everything in a segment, of the streams that the planned metadata know. `header` is
    /// its future header.
    pub(super) fn mended(
        &self,
        store: &Store,
        (id, header): (SegmentId, &SegmentHeader),
        whole: &ReadablePrefix,
        table: &Table,
        distrusted: bool,
    ) -> Result<RemovedParts> {
        let meta = self.open_meta()?;
        let known = |stream| Ok(!meta.streams(&[stream])?.is_empty());
        mend(store, id, header, whole, table, distrusted, &known)
    }

    /// Adds the consequences of a segment's damage to the plan.
    pub(super) fn apply(
        &mut self,
        path: &Path,
        named: SegmentId,
        end: u64,
        mended: RemovedParts,
        table: &Table,
        change: &mut MetaChange,
    ) -> Result<()> {
        let (Some(footer), Some(record)) = (mended.footer, mended.record) else {
            return Ok(());
        };
        for found in mended.damages {
            self.find(
                found,
                "it is removed from the segment; the present file is moved to quarantine",
            );
        }
        for (stream, entry) in &mended.lost {
            self.lose(*stream, table, entry)?;
        }
        for (stream, has_rows) in mended.without_pyramid {
            if !has_rows {
                let name = self.name(stream, table)?;
                self.lost.push(format!(
                    "damaged aggregates of {name}, whose rows were removed by aging"
                ));
            }
        }
        self.quarantined.insert(path.to_owned());
        change.partitions.retain(|(other, _)| *other != named);
        change.partitions.push((named, record));
        let place = self.offset_in_file(named, end)?;
        let place = place
            .ok_or_else(|| Error::internal("repair: a footer lies before the retained part"))?;
        let is_of_stub = self.freed.contains(&named);
        let patch = self.patches.entry(named).or_default();
        patch.tail = Some((place, footer));
        patch.is_of_stub = is_of_stub;
        Ok(())
    }

    fn name(&self, stream: StreamId, table: &Table) -> Result<String> {
        let record = self.open_meta()?.streams(&[stream])?.pop();
        let name = record.and_then(|r| decode_stream_key(&table.name, &r.key).ok());
        Ok(name.map_or_else(|| format!("stream number {}", stream.0), |n| n.to_string()))
    }

    pub(super) fn lose(
        &mut self,
        stream: StreamId,
        table: &Table,
        entry: &LeafEntry,
    ) -> Result<()> {
        let name = self.name(stream, table)?;
        self.lost.push(format!(
            "{} rows of {name} from {} to {} (ns)",
            entry.count, entry.first, entry.last
        ));
        Ok(())
    }

    pub(super) fn save_log(
        &mut self,
        floor: Sequence,
        step_sequence: Sequence,
        begun: (u64, u64),
        covers: &Covers,
    ) -> Result<()> {
        let mut scan = LogScan::read(&**self.env.log_files(), &log_dir(self.env, self.dir), begun)?;
        scan.give_no_generation_again(log_begun(self.env)?);
        let saved = {
            let meta = self.open_meta()?;
            save(&scan, &meta, (floor, step_sequence), covers)?
        };
        self.quarantined.extend(scan.files.iter().cloned());
        self.lost.extend(saved.lost);
        self.log = Some((saved.number, saved.content));
        self.commit(MetaChange {
            log_first_generation: saved.generation,
            log_newest_generation: saved.generation,
            ..MetaChange::default()
        })
    }

    pub(super) fn log_folder(&self) -> PathBuf {
        log_dir(self.env, self.dir)
    }

    /// Plans to write the readable part of the log to a new file whose records end at this
    /// sequence.
    pub(super) fn take_numbers_up_to(&mut self, sequence: Sequence) -> Result<()> {
        let needed = self.log_needed()?;
        let begun = (needed.first_generation, needed.newest_generation);
        let up_to = needed.sequence.max(sequence);
        self.save_log(Sequence(0), up_to, begun, &Covers::new())
    }

    /// The needed part of the log, by the metadata and the fast tier.
    fn log_needed(&self) -> Result<Needed> {
        let needed = self.open_meta()?.log_needed()?;
        Ok(needed.begun_up_to(log_begun(self.env)?))
    }

    pub(super) fn overlay(&self) -> Env {
        self.env.map_files(|files| {
            Arc::new(Overlay {
                files: Arc::clone(files),
                dir: self.dir.to_owned(),
                log_dir: log_dir(self.env, self.dir),
                meta: Arc::clone(&self.file),
                patches: self.patches.clone(),
                log: self.log.clone(),
            })
        })
    }

    /// Checks the database as planned, and handles the findings: the log, and aggregates that do
    /// not match their rows.
    fn log_and_check(&mut self, is_new: bool) -> Result<CheckReport> {
        let mut report = check(self.overlay(), self.options.clone())?;
        let log_dir = log_dir(self.env, self.dir);
        let in_log = |d: &Damage| d.file.starts_with(&log_dir);
        if let Some(found) = report.damages.iter().find(|d| in_log(d)).cloned()
            && self.log.is_none()
            && !is_new
        {
            self.find(
                found,
                "the readable part of the log is written to a new file; the old files are moved to quarantine",
            );
            let needed = self.log_needed()?;
            let begun = (needed.first_generation, needed.newest_generation);
            self.save_log(Sequence(0), needed.sequence, begun, &Covers::new())?;
            report = check(self.overlay(), self.options.clone())?;
        }
        let distrusted: BTreeSet<SegmentId> = report
            .damages
            .iter()
            .filter_map(|d| {
                d.file
                    .file_name()?
                    .to_str()?
                    .strip_suffix(".seg")?
                    .parse()
                    .ok()
            })
            .map(SegmentId)
            .collect();
        if distrusted.is_empty() {
            return Ok(report);
        }
        let (partitions, tables) = {
            let meta = self.open_meta()?;
            (meta.partitions()?, meta.tables()?)
        };
        let store = self.store();
        let mut change = MetaChange::default();
        for (id, record) in partitions.iter().filter(|(id, _)| distrusted.contains(id)) {
            // Already mended: its aggregates were removed with its leaves.
            if self.patches.contains_key(id) {
                continue;
            }
            let segment =
                ScannedSegment::open(&self.segment_files(), self.dir, *id, record.committed_bytes)?;
            let Some(segment) = segment else { continue };
            let table = tables.get(record.table.0 as usize);
            if let (Some(whole), Some(table)) = (&segment.readable, table) {
                let header = header_of(*id, record);
                let mended = self.mended(&store, (*id, &header), whole, table, true)?;
                for found in report.damages.iter().filter(|d| d.file == segment.path) {
                    self.find(
                        found.clone(),
                        "the aggregates of the segment are discarded; its rows are read instead",
                    );
                }
                self.apply(&segment.path, *id, whole.end(), mended, table, &mut change)?;
            }
        }
        self.commit(change)?;
        check(self.overlay(), self.options.clone())
    }
}

/// Returns the header that a segment should have.
pub(super) fn header_of(id: SegmentId, record: &PartitionRecord) -> SegmentHeader {
    SegmentHeader {
        id,
        table: record.table,
        shard: record.shard,
        level: record.level,
        bucket: record.bucket,
        replaces: None,
    }
}
