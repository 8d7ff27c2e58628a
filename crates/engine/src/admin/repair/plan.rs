//! Reads everything and decides the actions of a repair. Changes nothing.

use super::log::{Covers, LogScan, save};
use super::mend::{Mended, mend};
use super::overlay::{Overlay, Patch};
use super::rebuild::{Rebuilt, rebuild};
use super::scan::{ScannedSegment, Whole};
use super::{RepairFinding, RepairReport};
use crate::admin::check::{CheckReport, check};
use crate::common::error::Damage;
use crate::common::ids::{SegmentId, Sequence, StreamId};
use crate::device::layout::{log_dir, meta_path, segment_dir};
use crate::device::tiers::log_begun;
use crate::metadata::catalog::{Catalog, StreamIndex, Table, decode_stream_key};
use crate::metadata::tables::{Meta, MetaChange, PartitionRecord, copy::MetaCopy};
use crate::storage::segment::{LeafEntry, SegmentHeader, Store};
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
    /// Named snapshots that go, by number.
    pub(super) snapshots: Vec<u64>,
    pub(super) dangling: Dangling,
    pub(super) report: RepairReport,
}

/// Indexes, and tables that say something of theirs, by number, which mean nothing any more.
#[derive(Debug, Default)]
pub(super) struct Dangling {
    pub(super) dropped: Vec<u32>,
    pub(super) policies_gone: Vec<u32>,
}

impl Dangling {
    pub(super) fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.policies_gone.is_empty()
    }
}

/// A plan in the making.
pub(super) struct Planning<'a> {
    pub(super) env: &'a Env,
    pub(super) options: &'a Options,
    pub(super) dir: &'a Path,
    pub(super) meta_path: PathBuf,
    /// The metadata as they will be, in memory.
    file: Arc<dyn File>,
    change: MetaChange,
    patches: BTreeMap<SegmentId, Patch>,
    log: Option<(u64, Vec<u8>)>,
    pub(super) quarantined: BTreeSet<PathBuf>,
    findings: Vec<RepairFinding>,
    pub(super) lost: Vec<String>,
    pub(super) snapshots: Vec<u64>,
    pub(super) dangling: Dangling,
    /// Segments whose rows were freed.
    pub(super) freed: Vec<SegmentId>,
    next_segment: u64,
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
            .ok_or_else(|| Error::internal("repair: planned metadata hold nothing"))
    }

    /// Changes the planned metadata.
    fn commit(&mut self, change: MetaChange) -> Result<()> {
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
            self.options.memory_budget_bytes / 4,
            self.options.open_files_max,
            1,
        )
        .with_freed(self.freed.iter().copied())
    }

    /// Reads every segment that the metadata name.
    fn segments_named(&mut self) -> Result<()> {
        let (partitions, tables, next) = {
            let meta = self.open_meta()?;
            self.freed = meta.freed()?.into_iter().map(|(id, _)| id).collect();
            (meta.partitions()?, meta.tables()?, meta.next_segment()?)
        };
        let ids = self.segment_ids()?;
        self.next_segment = ids.last().map_or(next, |id| next.max(id.0 + 1));
        let store = self.store();
        let mut change = MetaChange::default();
        for (id, record) in partitions {
            let Some(table) = tables.get(record.table.0 as usize) else {
                continue;
            };
            self.segment_named(&store, id, &record, table, &mut change)?;
        }
        change.next_segment = self.next_segment;
        self.commit(change)
    }

    fn segment_named(
        &mut self,
        store: &Store,
        id: SegmentId,
        record: &PartitionRecord,
        table: &Table,
        change: &mut MetaChange,
    ) -> Result<()> {
        let path = store.path(id);
        let held = format!("{} events of table `{}`", record.events, table.name);
        let segment =
            ScannedSegment::open(&self.segment_files(), self.dir, id, record.committed_bytes);
        let segment = match segment {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.lose_stub(id, &error, held, change);
                return Ok(());
            }
            other => other?,
        };
        let Some(mut segment) = segment else {
            self.find(
                damage(&path, 0, format!("a segment with {held}"), "no file"),
                "it is forgotten",
            );
            self.lost.push(format!("{held}, with segment {}", id.0));
            change.removed.push(id);
            return Ok(());
        };
        let is_cut = |whole: &Whole| whole.end() != record.committed_bytes;
        if segment.header.is_some() && segment.whole.as_ref().is_none_or(is_cut) {
            segment.whole = self.rescued(store, id, record)?.or(segment.whole);
        }
        let Some(whole) = segment.whole.take() else {
            self.find(
                damage(
                    &path,
                    0,
                    format!("a segment with {held}"),
                    if segment.is_other {
                        "the file of another segment"
                    } else {
                        "no footer that can be read"
                    },
                ),
                "the file goes to quarantine",
            );
            self.lost.push(format!("{held}, with segment {}", id.0));
            self.quarantined.insert(path);
            change.removed.push(id);
            return Ok(());
        };
        if whole.end() != record.committed_bytes {
            self.find(
                damage(
                    &path,
                    record.footer_offset,
                    format!("a footer that ends at {}", record.committed_bytes),
                    format!(
                        "the newest from which all footers can be read ends at {}",
                        whole.end()
                    ),
                ),
                "the segment goes back to that footer; the file as it is goes to quarantine",
            );
            self.lost.push(format!(
                "up to {} events of table `{}` that segment {} got last, unless the log has them",
                record.events.saturating_sub(whole.state.sums.events),
                table.name,
                id.0
            ));
            self.quarantined.insert(path.clone());
            for footer in &segment.cut_off {
                for delta in &footer.streams {
                    let entries = delta.added.iter().chain(delta.late_runs.iter().flatten());
                    for entry in entries {
                        self.lose(delta.stream, table, entry)?;
                    }
                }
            }
            // With the sequence of then: deletes that came later are carried out again.
            change
                .partitions
                .push((id, whole.record(&header_of(id, record))));
        }
        let mut header = header_of(id, record);
        let mut named = id;
        let is_bad = segment.header.is_none_or(|h| {
            (SegmentHeader {
                replaces: None,
                ..h
            }) != header
        });
        if self.freed.contains(&id) && (is_bad || self.place_in_file(id, whole.end())?.is_none()) {
            // It can be given neither another header nor an earlier end.
            let error = Error::damage(damage(
                &path,
                0,
                "the header and the newest footer of what stays of a segment",
                "other bytes",
            ));
            change.partitions.retain(|(other, _)| *other != id);
            self.lose_stub(id, &error, held, change);
            return Ok(());
        }
        if is_bad {
            // The header is among the bytes that never change while a file exists: a copy under a
            // new number gets a good one.
            named = SegmentId(self.next_segment);
            self.next_segment += 1;
            header.id = named;
            self.find(
                damage(&path, 0, "the header of this segment", "other bytes"),
                format!(
                    "a copy with a new header becomes segment {}; the file goes to quarantine",
                    named.0
                ),
            );
            self.quarantined.insert(path.clone());
            change.partitions.retain(|(other, _)| *other != id);
            change.partitions.push((named, whole.record(&header)));
            change.removed.push(id);
            let patch = Patch {
                copy_of: Some(id),
                header: Some(header.encode()),
                tail: Some((whole.end(), Vec::new())),
                is_of_stub: false,
            };
            self.patches.insert(named, patch);
        }
        let mended = {
            let meta = self.open_meta()?;
            let known = |stream| Ok(!meta.streams(&[stream])?.is_empty());
            mend(store, id, &header, &whole, table, false, &known)?
        };
        self.apply(&path, named, whole.end(), mended, table, change)
    }

    /// Adds the consequences of a segment's damage to the plan.
    fn apply(
        &mut self,
        path: &Path,
        named: SegmentId,
        end: u64,
        mended: Mended,
        table: &Table,
        change: &mut MetaChange,
    ) -> Result<()> {
        let (Some(footer), Some(record)) = (mended.footer, mended.record) else {
            return Ok(());
        };
        for found in mended.damages {
            self.find(
                found,
                "it is taken out of the segment; the file as it is goes to quarantine",
            );
        }
        for (stream, entry) in &mended.lost {
            self.lose(*stream, table, entry)?;
        }
        for (stream, has_rows) in mended.without_pyramid {
            if !has_rows {
                let name = self.name(stream, table)?;
                self.lost.push(format!(
                    "damaged aggregates of {name}, whose rows had been aged away"
                ));
            }
        }
        self.quarantined.insert(path.to_owned());
        change.partitions.retain(|(other, _)| *other != named);
        change.partitions.push((named, record));
        let place = self.place_in_file(named, end)?;
        let place = place.ok_or_else(|| Error::internal("repair: a footer below what stays"))?;
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

    fn lose(&mut self, stream: StreamId, table: &Table, entry: &LeafEntry) -> Result<()> {
        let name = self.name(stream, table)?;
        self.lost.push(format!(
            "{} rows of {name} from {} to {} (ns)",
            entry.count, entry.first, entry.last
        ));
        Ok(())
    }

    /// Makes the metadata from segments and log.
    fn rebuild_meta(&mut self, error: &Error) -> Result<()> {
        let found = error
            .damaged()
            .cloned()
            .unwrap_or_else(|| damage(&self.meta_path, 0, "sound metadata", error.to_string()));
        self.find(
            found,
            "rebuilt from segments and log, without named snapshots, which only they had; the present files go to quarantine",
        );
        let there = |path: &Path| {
            self.env
                .index_files()
                .exists(path)
                .map_err(|e| Error::io("look for", path, e))
        };
        if there(&self.meta_path)? {
            self.quarantined.insert(self.meta_path.clone());
        }
        self.freed = self.freed_by_files()?;
        let files = self.segment_files();
        let mut segments = Vec::new();
        let kept = self.kept_for_snapshots()?;
        if !kept.is_empty() {
            self.lost.push(format!(
                "named snapshots: {} segments that only they kept go with them",
                kept.len()
            ));
        }
        let ids = self.segment_ids()?.into_iter();
        for id in ids.filter(|id| !kept.contains(id)) {
            match ScannedSegment::open(&files, self.dir, id, u64::MAX) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let held = "what it held".to_owned();
                    self.lose_stub(id, &error, held, &mut MetaChange::default());
                }
                found => segments.extend(found?),
            }
        }
        self.next_segment = segments.iter().map(|s| s.id.0 + 1).max().unwrap_or(1);
        self.without_unfinished(&mut segments)?;
        for segment in &segments {
            if self.quarantined.contains(&segment.path) {
                continue;
            }
            if segment.header.is_none() || segment.whole.is_none() {
                let what = if segment.header.is_none() {
                    "header"
                } else {
                    "footer"
                };
                self.find(
                    damage(
                        &segment.path,
                        0,
                        format!("a segment with a {what}"),
                        "none that can be read",
                    ),
                    "the file goes to quarantine",
                );
                self.quarantined.insert(segment.path.clone());
                self.lost
                    .push(format!("what segment {} held", segment.id.0));
            }
        }
        let log = LogScan::read(
            &**self.env.log_files(),
            &log_dir(self.env, self.dir),
            (0, 0),
        )?;
        let Rebuilt {
            file,
            floor,
            step_sequence,
            superseded,
            in_force,
        } = rebuild(&self.meta_path, &segments, &log, self.env)?;
        self.file = file;
        for (id, why) in superseded {
            let path = self.dir.join("segment").join(format!("{}.seg", id.0));
            self.find(
                damage(&path, 0, "a segment in force", why),
                "the file goes to quarantine",
            );
            self.quarantined.insert(path);
        }
        let (tables, named) = {
            let meta = self.open_meta()?;
            (meta.tables()?, meta.partitions()?)
        };
        self.name_freed(&named)?;
        let store = self.store();
        let mut change = MetaChange::default();
        for segment in segments.iter().filter(|s| in_force.contains(&s.id)) {
            let (Some(header), Some(whole)) = (&segment.header, &segment.whole) else {
                continue;
            };
            if let Some(table) = tables.get(header.table.0 as usize) {
                let mended = {
                    let meta = self.open_meta()?;
                    let known = |stream| Ok(!meta.streams(&[stream])?.is_empty());
                    mend(&store, segment.id, header, whole, table, false, &known)?
                };
                self.apply(
                    &segment.path,
                    segment.id,
                    whole.end(),
                    mended,
                    table,
                    &mut change,
                )?;
            }
        }
        change.next_segment = self.next_segment;
        self.commit(change)?;
        let mut covers = Covers::new();
        for footer in segments
            .iter()
            .filter_map(|s| s.whole.as_ref())
            .flat_map(|w| &w.footers)
        {
            for delta in &footer.streams {
                covers
                    .entry(delta.stream)
                    .or_default()
                    .extend(delta.covers.iter().copied());
            }
        }
        self.save_log(floor, step_sequence, (0, 0), &covers)
    }

    fn save_log(
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

    /// Writes the readable part of the log to a new file whose records go up to this one.
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

    /// Checks the database as planned, and deals with the findings: the log, and aggregates that do
    /// not fit their rows.
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
                "the readable part of the log is written to a new file; the old files go to quarantine",
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
            // This one is mended already: its aggregates were taken out with its leaves.
            if self.patches.contains_key(id) {
                continue;
            }
            let segment =
                ScannedSegment::open(&self.segment_files(), self.dir, *id, record.committed_bytes)?;
            let Some(segment) = segment else { continue };
            let table = tables.get(record.table.0 as usize);
            if let (Some(whole), Some(table)) = (&segment.whole, table) {
                let header = header_of(*id, record);
                let mended = {
                    let meta = self.open_meta()?;
                    let known = |stream| Ok(!meta.streams(&[stream])?.is_empty());
                    mend(&store, *id, &header, whole, table, true, &known)?
                };
                for found in report.damages.iter().filter(|d| d.file == segment.path) {
                    self.find(
                        found.clone(),
                        "stored aggregates of the segment are given up: rows are read instead",
                    );
                }
                self.apply(&segment.path, *id, whole.end(), mended, table, &mut change)?;
            }
        }
        self.commit(change)?;
        check(self.overlay(), self.options.clone())
    }
}

fn header_of(id: SegmentId, record: &PartitionRecord) -> SegmentHeader {
    SegmentHeader {
        id,
        table: record.table,
        shard: record.shard,
        level: record.level,
        bucket: record.bucket,
        replaces: None,
    }
}
