//! Verifies all data of a database on its medium: lengths, headers, checksums, order, and that the
//! pyramid agrees with the rows. In bounded memory: one leaf, one block of buckets at a time.

mod indexes;

use crate::common::error::Damage;
use crate::common::ids::{SegmentId, StreamId};
use crate::core::Core;
use crate::open::reader::open_core;
use crate::open::snapshot_states::open_complete;
use crate::read::merge::{Merge, Source};
use crate::storage::segment::pyramid::{Bucket, Buckets, add_rows, from_block};
use crate::storage::segment::{BlockEntry, LeafEntry, Partition, StreamState};
use crate::{Error, ErrorKind, Options, Result};
use headwater_codec::Cursor;
use headwater_codec::light::decode_rows;
use headwater_io::Env;
use headwater_types::{Aggregate, Extremes, Level, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Damaged parts. Empty = the database is sound.
    pub damages: Vec<Damage>,
    /// Segments checked.
    pub segments: u64,
    /// Leaves decoded.
    pub leaves: u64,
    /// Leaves whose rows were freed: they are elsewhere, and were not checked.
    pub freed_leaves: u64,
    /// Blocks of buckets decoded and compared with the rows.
    pub blocks: u64,
    /// Runs of indexes compared with the rows.
    pub index_runs: u64,
    /// Rows of all runs.
    pub rows: u64,
    /// Log records read.
    pub log_records: u64,
    /// Named snapshots checked: of each the segments that are not part of the database any more.
    pub snapshots: u64,
    /// Names of the damaged ones among them.
    pub damaged_snapshots: Vec<String>,
}

impl CheckReport {
    /// True without damage.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }
}

/// Checks the database in `options.dir`: its state at the beginning of the call. Changes no file,
/// and works beside its owner.
///
/// # Errors
/// When it cannot be read: it does not exist, an I/O error, `busy` when its owner changes it too
/// fast. Damage is not an error but part of the report.
pub fn check(env: Env, options: Options) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let (core, recovery) = match open_core(&env, &options) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            report.damages.push(damage_of(&error));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    report.log_records = recovery.log_records;
    for shard in &core.shards {
        let partitions: Vec<Arc<Partition>> =
            shard.state.lock().partitions.all().cloned().collect();
        for partition in partitions {
            let mut checker = Checker {
                core: &core,
                partition: &partition,
                report: &mut report,
            };
            checker.partition()?;
        }
    }
    snapshots(&Arc::new(core), &mut report)?;
    Ok(report)
}

/// Checks the files that named snapshots keep beside the database.
fn snapshots(core: &Arc<Core>, report: &mut CheckReport) -> Result<()> {
    for snapshot in core.named.all() {
        report.snapshots += 1;
        let before = report.damages.len();
        match open_complete(core, &snapshot) {
            Ok(past) => {
                let kept: HashSet<SegmentId> = snapshot.replaced().map(|(id, _)| id).collect();
                past_partitions(&past, &kept, report)?;
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                report.damages.push(damage_of(&error));
            }
            Err(error) => return Err(error),
        }
        if report.damages.len() > before {
            report.damaged_snapshots.push(snapshot.record.name.clone());
        }
    }
    Ok(())
}

fn past_partitions(past: &Core, kept: &HashSet<SegmentId>, report: &mut CheckReport) -> Result<()> {
    for shard in &past.shards {
        let partitions: Vec<Arc<Partition>> =
            shard.state.lock().partitions.all().cloned().collect();
        // Other files are only checked for existence: their contents were already checked.
        let looked_at = |p: &&Arc<Partition>| kept.contains(&p.id()) || p.unreadable.is_some();
        for partition in partitions.iter().filter(looked_at) {
            let mut checker = Checker {
                core: past,
                partition,
                report: &mut *report,
            };
            checker.partition()?;
        }
    }
    Ok(())
}

fn damage_of(error: &Error) -> Damage {
    error.damaged().cloned().unwrap_or_else(|| Damage {
        file: "meta.redb".into(),
        offset: 0,
        expected: "valid metadata".into(),
        found: error.to_string(),
    })
}

struct Checker<'a> {
    core: &'a Core,
    partition: &'a Partition,
    report: &'a mut CheckReport,
}

impl Checker<'_> {
    /// Records damage and continues; other errors end the check.
    fn note<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let damage = damage_of(&error);
                if !self.report.damages.contains(&damage) {
                    self.report.damages.push(damage);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn expect(
        &mut self,
        holds: bool,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        if !holds {
            self.report.damages.push(Damage {
                file: self.partition.file.path().to_owned(),
                offset,
                expected: expected.into(),
                found: found.into(),
            });
        }
    }

    fn partition(&mut self) -> Result<()> {
        self.report.segments += 1;
        if let Some(error) = &self.partition.unreadable {
            let unreadable: Result<()> = Err(error.clone());
            self.note(unreadable)?;
            return Ok(());
        }
        let (store, record) = (&self.core.store, &self.partition.record);
        let newest = (record.footer_offset, record.footer_bytes);
        let checkpoint = store.verify_checkpoint(self.partition.id(), newest);
        self.note(checkpoint)?;
        let state = self.core.store.state(self.partition);
        let Some(state) = self.note(state)? else {
            return Ok(());
        };
        let record = &self.partition.record;
        let footer = record.footer_offset;
        let (mut events, mut all_read) = (0, true);
        for number in state.pages() {
            let page = self.core.store.page(&state, number);
            let Some(page) = self.note(page)? else {
                all_read = false;
                continue;
            };
            let ids: Vec<StreamId> = page.iter().map(|(id, _)| id).collect();
            let known = self.core.catalog.stream_keys(&*self.core.meta, &ids)?;
            for (id, stream) in page.iter() {
                events += stream.rows();
                let holds = stream.rows() > 0 || stream.is_aged();
                self.expect(
                    known.contains_key(&id) || !holds,
                    footer,
                    "a stream listed in the metadata",
                    format!("stream {}", id.0),
                );
                self.stream(&stream)?;
            }
        }
        self.expect(
            events == record.events || !all_read,
            footer,
            format!("{} events", record.events),
            format!("{events}"),
        );
        if all_read {
            self.indexes()?;
        }
        Ok(())
    }

    fn stream(&mut self, state: &StreamState) -> Result<()> {
        for run in std::iter::once(&state.main).chain(&state.late) {
            for pair in run.windows(2) {
                if let [a, b] = pair {
                    self.expect(
                        a.last <= b.first,
                        b.offset,
                        format!("a leaf that begins at {} or later", a.last),
                        format!("a leaf that begins at {}", b.first),
                    );
                }
            }
            for leaf in run {
                self.leaf(leaf)?;
            }
        }
        if let Some(bytes) = &state.last_row {
            let row = decode_rows(&mut Cursor::new(bytes));
            let time = row.as_ref().ok().and_then(|r| r.times.first().copied());
            let time = time.map(Timestamp::from_nanos);
            self.expect(
                time == state.main_end(),
                self.partition.record.footer_offset,
                format!("the newest row, of {:?}", state.main_end()),
                format!("{time:?}"),
            );
        }
        if state.is_aged() {
            // There are no rows to compare them with.
            for entry in &state.blocks {
                self.report.blocks += 1;
                let block = self.core.store.block(self.partition.id(), entry);
                self.note(block)?;
            }
        } else if let Some(base) = state.base.filter(|b| *b != Level::MAX) {
            let blocks = state.blocks.clone();
            let mut rows = 0;
            for entry in &blocks {
                rows += self.block(state, base, entry)?;
            }
            self.expect(
                rows == state.main_rows(),
                self.partition.record.footer_offset,
                format!("base buckets of {} rows", state.main_rows()),
                format!("{rows}"),
            );
        }
        Ok(())
    }

    fn leaf(&mut self, entry: &LeafEntry) -> Result<()> {
        self.report.leaves += 1;
        let table = self.core.catalog.table(self.partition.record.table);
        let Some(table) = table else {
            return Err(Error::internal(
                "check: a partition refers to an unknown table",
            ));
        };
        let span = self.partition.record.span();
        self.expect(
            span.contains(entry.range().first) && span.contains(entry.range().last),
            entry.offset,
            format!("a leaf inside {span:?}"),
            format!("{:?}", entry.range()),
        );
        let rows =
            self.core
                .store
                .leaf_rows(self.partition.id(), entry, 0..entry.count as usize, &table);
        if rows
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::Elsewhere)
        {
            self.report.freed_leaves += 1;
            return Ok(());
        }
        let Some(rows) = self.note(rows)? else {
            return Ok(());
        };
        self.report.rows += rows.len() as u64;
        let instant = |time: Option<&i64>| time.map(|t| Timestamp::from_nanos(*t));
        let ends = (instant(rows.times.first()), instant(rows.times.last()));
        self.expect(
            ends == (Some(entry.first), Some(entry.last)) && rows.len() == entry.count as usize,
            entry.offset,
            format!(
                "{} rows from {} to {}",
                entry.count, entry.first, entry.last
            ),
            format!("{} rows from {:?} to {:?}", rows.len(), ends.0, ends.1),
        );
        let sorted = if table.keeps_duplicates() {
            rows.times.is_sorted()
        } else {
            rows.times.windows(2).all(|w| matches!(w, [a, b] if a < b))
        };
        self.expect(
            sorted,
            entry.offset,
            "rows in time order",
            "rows out of order",
        );
        Ok(())
    }

    /// Compares a block with its rows; returns the number of rows it counts, 0 above the base
    /// level.
    fn block(&mut self, state: &StreamState, base: Level, entry: &BlockEntry) -> Result<u64> {
        self.report.blocks += 1;
        let block = self.core.store.block(self.partition.id(), entry);
        let Some(block) = self.note(block)? else {
            return Ok(0);
        };
        let table = self.core.catalog.table(self.partition.record.table);
        let Some(table) = table else {
            return Err(Error::internal(
                "check: a partition refers to an unknown table",
            ));
        };
        let span = entry.level.span(entry.first_bucket, entry.last_bucket);
        let mut stored = from_block(&block, &table);
        let rows: u64 = stored.values().map(|b| b.rows).sum();
        if entry.level > base {
            stored.retain(|number, _| {
                let span = entry.level.bucket_span(*number);
                !state.stale.iter().any(|s| s.overlaps(&span))
            });
        }
        let leaves = state
            .main
            .iter()
            .filter(|l| l.range().overlaps(&span))
            .copied();
        let sources = vec![Source::leaves(self.partition.id(), leaves)];
        let mut merge = Merge::new(&self.core.store, &table, span, None, sources);
        let mut expected = Buckets::new();
        loop {
            match merge.next_rows() {
                Ok(Some(rows)) => add_rows(&mut expected, entry.level, &rows),
                Ok(None) => break,
                // Reported with its leaf, or freed; without the rows a comparison is impossible.
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Elsewhere) => {
                    return Ok(if entry.level == base { rows } else { 0 });
                }
                Err(error) => return Err(error),
            }
        }
        for (number, bucket) in &stored {
            let same = expected.get(number).is_some_and(|e| same_bucket(e, bucket));
            self.expect(
                same,
                entry.offset,
                format!(
                    "bucket {number} of level {}: {:?}",
                    entry.level.get(),
                    expected.get(number)
                ),
                format!("{bucket:?}"),
            );
        }
        if entry.level == base {
            let missing = expected.keys().find(|n| !stored.contains_key(n));
            self.expect(
                missing.is_none(),
                entry.offset,
                format!("base bucket {missing:?}"),
                "no such bucket",
            );
            return Ok(rows);
        }
        Ok(0)
    }
}

fn same_bucket(a: &Bucket, b: &Bucket) -> bool {
    a.rows == b.rows
        && a.fields.len() == b.fields.len()
        && a.fields
            .iter()
            .zip(&b.fields)
            .all(|((fa, ta, x), (fb, tb, y))| fa == fb && ta == tb && same_aggregate(x, y))
}

/// Equal in exact fields, close in mean and deviation (law 3).
fn same_aggregate(a: &Aggregate, b: &Aggregate) -> bool {
    let exact = |x: &Aggregate| {
        (
            x.count,
            x.nan,
            x.positive_infinite,
            x.negative_infinite,
            x.sum,
            x.time_sum,
        )
    };
    let extremes = match (a.extremes, b.extremes) {
        (Extremes::F64(l, h), Extremes::F64(m, i)) => {
            l.to_bits() == m.to_bits() && h.to_bits() == i.to_bits()
        }
        (x, y) => x == y,
    };
    let largest = match a.extremes {
        Extremes::F64(l, h) => l.abs().max(h.abs()),
        Extremes::I64(l, h) => l.unsigned_abs().max(h.unsigned_abs()) as f64,
        Extremes::U64(_, h) => h as f64,
        Extremes::None => 0.0,
    };
    let close = |x: Option<f64>, y: Option<f64>, scale: f64| match (x, y) {
        (Some(x), Some(y)) => x == y || (x - y).abs() <= 2e-12 * scale || !scale.is_finite(),
        (x, y) => x.is_none() && y.is_none(),
    };
    let spread = a.mean().unwrap_or(0.0).hypot(a.stddev().unwrap_or(0.0));
    exact(a) == exact(b)
        && extremes
        && close(a.mean(), b.mean(), largest)
        && close(a.stddev(), b.stddev(), spread)
}
