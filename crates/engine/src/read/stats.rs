//! Sizes, counts and write amplification of a database; `stat_table` describes each of them.

use crate::Result;
use crate::common::counters::Cause;
use crate::config::tier_shares::TierShares;
use crate::core::Core;
use crate::storage::fast_index::RepeatKind;
use headwater_types::invariant::wide;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Counters and sizes of a database. Sums are since the database was created, unless they say
/// "since opening".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Events stored or in memory; an event with several fields counts once.
    pub events: u64,
    /// Events in memory, not yet in segments.
    pub events_in_memory: u64,
    /// Events that arrived late among those in memory.
    pub late_events_in_memory: u64,
    /// Number of streams.
    pub streams: u64,
    /// Number of tables.
    pub tables: u64,
    /// Number of partitions.
    pub partitions: u64,
    /// Leaves of main runs.
    pub leaves: u64,
    /// Late runs that wait to be merged.
    pub late_runs: u64,
    /// Bytes of all files.
    pub disk_bytes: u64,
    /// Bytes of segments up to their committed lengths.
    pub segment_bytes: u64,
    /// Bytes of log files, including files retained for recycling.
    pub log_bytes: u64,
    /// Bytes of all files in the fast tier; 0 without one. Part of `disk_bytes`.
    pub fast_bytes: u64,
    /// Maximum bytes of the log in the fast tier; 0 without one.
    pub fast_bytes_max: u64,
    /// Bytes written to the fast tier since opening.
    pub fast_written_bytes: u64,
    /// Bytes written to all other media since opening.
    pub bulk_written_bytes: u64,
    /// Bytes of records in the log of a fast tier that are missing in its copy in bulk; 0 without
    /// such a copy.
    pub log_mirror_behind_bytes: u64,
    /// Bytes of the index of segments that the fast tier repeats. Part of `fast_bytes`.
    pub fast_index_bytes: u64,
    /// Reads of segments that the fast index answered since opening, in place of bulk.
    pub fast_index_reads: u64,
    /// Parts of the fast index that were invalid and dropped since opening.
    pub fast_index_dropped: u64,
    /// Number of times since opening that the fast tier had no space for more of the index.
    pub fast_index_refused: u64,
    /// Bytes of the newest segments that are completely in the fast tier. Part of `fast_bytes`.
    pub fast_newest_bytes: u64,
    /// Segments with a copy in the fast tier.
    pub fast_newest_segments: u64,
    /// Reads of segments that these copies answered since opening, in place of bulk.
    pub fast_newest_reads: u64,
    /// Copies that were invalid and dropped since opening.
    pub fast_newest_dropped: u64,
    /// Number of times since opening that the fast tier had no space for more copies.
    pub fast_newest_refused: u64,
    /// Named snapshots.
    pub snapshots: u64,
    /// Bytes of segments that only named snapshots retain. Part of `disk_bytes`.
    pub snapshot_bytes: u64,
    /// Maximum of `snapshot_bytes`; 0 without one.
    pub snapshot_bytes_max: u64,
    /// Partitions whose rows were freed, as another node has them ([`crate::Database::free_rows`]).
    pub partitions_freed: u64,
    /// Freed bytes of these partitions. Not part of `disk_bytes` and `segment_bytes`.
    pub freed_bytes: u64,
    /// Dead bytes of segments: nothing refers to them any more.
    pub dead_bytes: u64,
    /// Bytes of events in memory.
    pub memory_bytes: u64,
    /// Bytes of memory pinned only by open snapshots; not part of the writers' budget.
    pub pinned_bytes: u64,
    /// Bytes of files pinned only by open snapshots (`DIR/pins`).
    pub pinned_file_bytes: u64,
    /// Events accepted.
    pub events_accepted: u64,
    /// Bytes accepted: 8 for a timestamp or number, 1 for a boolean, the length of text.
    pub bytes_accepted: u64,
    /// Events written to leaves by their first storage, in order.
    pub events_flush: u64,
    /// Events written by merges of late events.
    pub events_merge: u64,
    /// Events written as late runs.
    pub events_late_run: u64,
    /// Events written when late runs were merged into main runs.
    pub events_fold: u64,
    /// Events written by compaction and splits.
    pub events_compaction: u64,
    /// Events written by deletes that removed part of a leaf.
    pub events_delete: u64,
    /// Bytes written to the log.
    pub bytes_log: u64,
    /// Bytes of leaves written.
    pub bytes_leaf: u64,
    /// Bytes of blocks and footers written.
    pub bytes_index: u64,
    /// Bytes of metadata written.
    pub bytes_meta: u64,
    /// Jobs that stored something.
    pub flushes: u64,
    /// Merges of late events and late runs into main runs.
    pub merges: u64,
    /// Syncs of the log since opening.
    pub log_syncs: u64,
    /// Median duration of the newest syncs of the log since opening.
    pub log_sync_median: Duration,
    /// Leaves read from files since opening.
    pub leaves_read: u64,
    /// Pages decoded since opening.
    pub pages_read: u64,
    /// Bucket blocks read from files since opening.
    pub blocks_read: u64,
    /// Bytes read from segments since opening.
    pub bytes_read: u64,
    /// Damaged leaves and blocks found since opening.
    pub damaged_parts: u64,
    /// Partitions known to be unreadable: [`crate::check`] checks all.
    pub partitions_unreadable: u64,
}

impl Stats {
    /// Events written to leaves, for any cause.
    #[must_use]
    pub fn events_written(&self) -> u64 {
        self.events_flush
            + self.events_merge
            + self.events_late_run
            + self.events_fold
            + self.events_compaction
            + self.events_delete
    }

    /// Events written to leaves per event accepted: the papers' write amplification. 0 before the
    /// first event.
    #[must_use]
    pub fn wa_events(&self) -> f64 {
        ratio(self.events_written(), self.events_accepted)
    }

    /// Bytes written to the device, of any kind, per byte accepted. 0 before the first event.
    #[must_use]
    pub fn wa_bytes(&self) -> f64 {
        ratio(
            self.bytes_log + self.bytes_leaf + self.bytes_index + self.bytes_meta,
            self.bytes_accepted,
        )
    }

    /// Bytes of segments per event in them; 0 without any.
    #[must_use]
    pub fn bytes_per_event(&self) -> f64 {
        ratio(
            self.segment_bytes,
            self.events.saturating_sub(self.events_in_memory),
        )
    }

    pub(crate) fn collect(core: &Core) -> Result<Stats> {
        let mut stats = Stats {
            tables: wide(core.catalog.tables().len()),
            ..Stats::default()
        };
        stats.streams = core
            .catalog
            .tables()
            .iter()
            .map(|t| core.catalog.stream_count(t.id))
            .sum();
        for shard in &core.shards {
            let state = shard.state.lock();
            stats.events_in_memory += (state.flank_events + state.late_events) as u64;
            stats.late_events_in_memory += state.late_events as u64;
            for partition in state.partitions.all() {
                let record = &partition.record;
                stats.partitions += 1;
                stats.partitions_unreadable += u64::from(partition.unreadable.is_some());
                stats.events += record.events;
                stats.leaves += record.leaves;
                stats.late_runs += record.late_runs;
                stats.segment_bytes += record.committed_bytes;
                let is_freed = core.store.stubs().is_freed(partition.id());
                let dead = record.committed_bytes.saturating_sub(record.live_bytes);
                stats.dead_bytes += if is_freed { 0 } else { dead };
            }
        }
        stats.events += stats.events_in_memory;
        stats.count_freed(core)?;
        let log = core.log.stats();
        stats.log_bytes = log.disk_bytes;
        stats.log_syncs = log.syncs;
        stats.log_sync_median = log.sync_median;
        let counters = &core.counters;
        (stats.bytes_log, stats.bytes_meta) =
            core.commits
                .bytes_ever(counters, log.bytes_written, core.meta.written_bytes());
        stats.bytes_leaf = counters.bytes_leaf();
        stats.bytes_index = counters.bytes_index();
        stats.events_accepted = counters.events_accepted();
        stats.bytes_accepted = counters.bytes_accepted();
        stats.events_flush = counters.events_by_cause(Cause::Flush);
        stats.events_merge = counters.events_by_cause(Cause::Merge);
        stats.events_late_run = counters.events_by_cause(Cause::LateRun);
        stats.events_fold = counters.events_by_cause(Cause::Fold);
        stats.events_compaction = counters.events_by_cause(Cause::Compaction);
        stats.events_delete = counters.events_by_cause(Cause::Delete);
        stats.flushes = counters.flushes();
        stats.merges = counters.merges();
        let reads = &core.store.counters;
        stats.leaves_read = reads.leaves.load(Ordering::Relaxed);
        stats.pages_read = reads.pages.load(Ordering::Relaxed);
        stats.blocks_read = reads.blocks.load(Ordering::Relaxed);
        stats.bytes_read = reads.bytes.load(Ordering::Relaxed);
        stats.damaged_parts = reads.damaged.load(Ordering::Relaxed);
        stats.memory_bytes = core.memory.bytes() as u64;
        stats.pinned_bytes = core.shards.pinned_bytes().all as u64;
        stats.pinned_file_bytes = core.pin_files.lock().bytes();
        stats.snapshots = wide(core.named.all().len());
        stats.snapshot_bytes = core.named.retained_bytes();
        stats.snapshot_bytes_max = core.options.snapshot_bytes_max.unwrap_or(0);
        stats.disk_bytes = stats.segment_bytes
            + stats.snapshot_bytes
            + stats.log_bytes
            + stats.pinned_file_bytes
            + core.meta.file_bytes();
        stats.count_tiers(core);
        Ok(stats)
    }

    /// Counts freed rows, which take no space here.
    fn count_freed(&mut self, core: &Core) -> Result<()> {
        let freed = core.freed_rows()?;
        self.partitions_freed = freed.partitions;
        self.freed_bytes = freed.bytes;
        self.segment_bytes = self.segment_bytes.saturating_sub(freed.bytes);
        Ok(())
    }

    /// Counts bytes in the fast tier, and bytes written to each device.
    fn count_tiers(&mut self, core: &Core) {
        let placed = core.placing.now();
        let media = &placed.env.media;
        let fast = [
            (&media.log_root, self.log_bytes),
            (&media.pins_root, self.pinned_file_bytes),
        ];
        let fast = fast.into_iter().filter(|(root, _)| root.is_some());
        self.fast_bytes = fast.map(|(_, bytes)| bytes).sum();
        if let Some(index) = core.store.repeats().get(RepeatKind::Index) {
            self.fast_index_bytes = index.bytes();
            self.fast_index_reads = index.counters.reads.load(Ordering::Relaxed);
            self.fast_index_dropped = index.counters.dropped.load(Ordering::Relaxed);
            self.fast_index_refused = index.counters.refused.load(Ordering::Relaxed);
            self.fast_bytes += self.fast_index_bytes;
            self.disk_bytes += self.fast_index_bytes;
        }
        if let Some(newest) = core.store.repeats().get(RepeatKind::Newest) {
            self.fast_newest_bytes = newest.bytes();
            self.fast_newest_segments = newest.file_count();
            self.fast_newest_reads = newest.counters.reads.load(Ordering::Relaxed);
            self.fast_newest_dropped = newest.counters.dropped.load(Ordering::Relaxed);
            self.fast_newest_refused = newest.counters.refused.load(Ordering::Relaxed);
            self.fast_bytes += self.fast_newest_bytes;
            self.disk_bytes += self.fast_newest_bytes;
        }
        if let Some(owned) = &placed.tier {
            self.fast_written_bytes = owned.written.load(Ordering::Relaxed);
            let share = TierShares::of(&core.options, owned.tier.parts).log;
            self.fast_bytes_max = share.unwrap_or(0);
        }
        self.bulk_written_bytes = core.guard.bulk_written().load(Ordering::Relaxed);
        self.log_mirror_behind_bytes = placed.mirror.as_ref().map_or(0, |mirror| {
            mirror.bytes_behind(&core.log, core.commits.log_generation())
        });
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}
