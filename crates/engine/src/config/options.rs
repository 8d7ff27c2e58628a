//! Settings of a database: plain data.

use crate::config::backend::{IoBackend, QueuePlacement};
use crate::device::tiers::TierParts;
use headwater_late::{FlushRule, PolicyChoice};
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

/// Guarantee of an acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged means on the medium: survives a power cut. The default.
    Synced,
    /// Acknowledged means passed to the operating system, and synced at least this often: survives
    /// `kill -9`; a power cut loses at most about this much time.
    Every(Duration),
    /// Acknowledged means passed to the operating system: survives `kill -9`, not a power cut.
    Written,
}

/// Log length, in multiples of the memory budget, above which old events are flushed to shorten it.
const LOG_BUDGETS_MAX: u64 = 4;

/// Settings of [`crate::Database::open`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the database; created if missing.
    pub dir: PathBuf,
    /// Refuse to create a new database when the directory does not have one. Default false.
    pub must_exist: bool,
    /// Memory for events not yet in segments, for caches and for flushes, in bytes. Default 64 MiB,
    /// at least 1 MiB.
    pub memory_budget_bytes: usize,
    /// Shards of a new database (an existing one keeps its own number). Default min(cores, 4).
    pub shards: u16,
    /// The guarantee of an acknowledgement. Default [`Durability::Synced`].
    pub durability: Durability,
    /// Late-data policy: how in-order and late events share memory, which events a flush retains,
    /// which leaves a merge rewrites. Default adaptive: each shard chooses the policy with the
    /// least predicted writes.
    pub late_policy: PolicyChoice,
    /// A late buffer that does not fill is merged after this time; `None` = it waits. At least 1 s,
    /// default 10 min.
    pub late_merge_interval: Option<Duration>,
    /// When and how buffers are flushed. Default [`FlushRule::Production`].
    pub flush_rule: FlushRule,
    /// Maximum late runs of a stream in a partition before they are merged; 0 = late events are
    /// always merged. Default 16.
    pub late_runs_max: usize,
    /// Target size of a new partition in bytes. Default 128 MiB.
    pub partition_target_bytes: u64,
    /// A partition larger than this is split. Default 256 MiB.
    pub partition_bytes_max: u64,
    /// Events of a leaf in tables without a setting of their own. Default 2,048.
    pub leaf_events: u32,
    /// Approximate events of a bucket of the pyramid's base level; streams with fewer than twice as
    /// many rows in a partition have no pyramid there. 4 to 4,096, default 128.
    pub bucket_events: u32,
    /// A partition is compacted when its rows of a stream are spread over this many groups. Default
    /// 256.
    pub groups_max: u32,
    /// Maximum bytes per second that compaction writes, for devices that wear out or are slow;
    /// `None` = no limit.
    pub compaction_bytes_per_second: Option<u64>,
    /// Maximum bytes per day (UTC) that automatic compaction writes, one partition always being
    /// allowed; `None` = no limit. Calls to [`crate::Database::compact`] count, but are never
    /// limited.
    pub compaction_bytes_per_day: Option<u64>,
    /// A forward jump of the clock by more than this is distrusted for a while: retention, aging
    /// and expiry wait. Default 1 day.
    pub clock_jump_max: Duration,
    /// A clock that jumped is trusted again when new rows confirm it in several intervals of this
    /// length. Default 1 hour.
    pub clock_settle: Duration,
    /// When there were no writes for this long, and a MiB of the log before, the events in memory
    /// are flushed, and unneeded log files are released; `None` = never. Default 30 s.
    pub idle_after: Option<Duration>,
    /// The folder of a fast tier, on a small fast medium: taken into use at the opening, if
    /// necessary. `None` = the existing tier of the database, if any. Default none.
    pub fast_dir: Option<PathBuf>,
    /// The parts to put in [`Options::fast_dir`]. Default the log, and rows that exceed memory.
    pub fast_parts: TierParts,
    /// Limit of the fast tier, in bytes. The log has at most half of it where the index or the
    /// newest segments are there too, of the rest the index has a quarter beside the newest
    /// segments; pinned rows are not limited. `None` = only by the limits of each part, four times
    /// the memory budget for the log. Default none.
    pub fast_bytes: Option<u64>,
    /// Limit of the index of segments in the fast tier, in bytes, if the tier contains it; the rest
    /// is read in bulk. `None` = as much as there is space for. Default none.
    pub fast_index_bytes: Option<u64>,
    /// Limit of copies of the newest segments in the fast tier, in bytes, if the tier contains
    /// them; older ones are read in bulk. `None` = 32 times the memory budget, which is also the
    /// maximum. Default none.
    pub fast_newest_bytes: Option<u64>,
    /// Segments whose span of time ended longer ago than this are not copied to the fast tier;
    /// `None` = as many as there is space for. Default none.
    pub fast_newest_age: Option<Duration>,
    /// Interval of copying the log in a fast tier to bulk, so that the loss of a tier costs little;
    /// `None` = never. Default none.
    pub log_mirror: Option<Duration>,
    /// Target size of log files, in bytes; 0 = derived from the memory budget. The first one has at
    /// most 256 KiB, and each is four times as large as the previous one. Default 0.
    pub log_file_bytes: u64,
    /// Maximum time that a write waits for memory before it fails with `busy`. Default 5 s.
    pub busy_timeout: Duration,
    /// Maximum size of a batch in bytes. Default 16 MiB.
    pub batch_bytes_max: usize,
    /// Maximum length of a string or byte value. Default 1 MiB.
    pub string_bytes_max: usize,
    /// Maximum number of tables. Default 10,000. The definitions of all tables, with their fields,
    /// may use a quarter of the memory budget.
    pub tables_max: usize,
    /// Maximum fields of a table. Default 1,024.
    pub fields_max: usize,
    /// Maximum streams of a table. Default 10,000,000.
    pub streams_max: usize,
    /// Events further in the future than this are refused; `None` = never (the library's
    /// default).
    pub max_future: Option<Duration>,
    /// Maximum space reserved for a full disk (`DIR/reserve`), in bytes, so that accepted writes
    /// can be flushed and deletes work; it grows with the log, from 1 MiB. 0 = none. Default 8 MiB.
    pub reserve_bytes: u64,
    /// Named snapshots older than this are dropped automatically; `None` = never. At least 1 s,
    /// default 90 days.
    pub snapshot_age_max: Option<Duration>,
    /// Limit of files retained only for named snapshots, in bytes; above it, the oldest is dropped.
    /// `None` = as much as there is space for. Default 64 GiB.
    pub snapshot_bytes_max: Option<u64>,
    /// Maximum segment files open at once. Default 256.
    pub open_files_max: usize,
    /// System calls for reading and writing files. Default [`IoBackend::File`].
    pub io_backend: IoBackend,
    /// Number of leaves that a scan requests at once, ahead of its reader; 1 = it waits for each.
    /// The number matters where reads proceed in the background: with [`IoBackend::Uring`], or with
    /// queue sets. At most 64, default 8.
    pub read_ahead: usize,
    /// Queue sets for segment files, each with a thread, which serve reads before flushes and
    /// flushes before compaction; 0 = every call is passed to the system directly. At most 64,
    /// default 0.
    pub queue_sets: usize,
    /// Assignment of segments to queue sets. Default [`QueuePlacement::Load`].
    pub queue_placement: QueuePlacement,
    /// Maximum entries of a page of a segment's index; the smaller it is, the more often
    /// checkpoints of the index are written. 4 to 4,096, default 256; other values are for tests.
    pub index_page_entries: usize,
}

impl Options {
    /// The defaults, for the database in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Options {
            dir: dir.into(),
            must_exist: false,
            memory_budget_bytes: 64 << 20,
            shards: u16::try_from(cores.min(4)).unwrap_or(1),
            durability: Durability::Synced,
            late_policy: PolicyChoice::default(),
            late_merge_interval: Some(Duration::from_secs(600)),
            flush_rule: FlushRule::Production,
            late_runs_max: 16,
            partition_target_bytes: 128 << 20,
            partition_bytes_max: 256 << 20,
            leaf_events: 2048,
            bucket_events: 128,
            groups_max: 256,
            compaction_bytes_per_second: None,
            compaction_bytes_per_day: None,
            clock_jump_max: Duration::from_secs(86_400),
            clock_settle: Duration::from_secs(3600),
            idle_after: Some(Duration::from_secs(30)),
            fast_dir: None,
            fast_parts: TierParts {
                log: true,
                pins: true,
                index: false,
                newest: false,
            },
            fast_bytes: None,
            fast_index_bytes: None,
            fast_newest_bytes: None,
            fast_newest_age: None,
            log_mirror: None,
            log_file_bytes: 0,
            busy_timeout: Duration::from_secs(5),
            batch_bytes_max: 16 << 20,
            string_bytes_max: 1 << 20,
            tables_max: 10_000,
            fields_max: 1024,
            streams_max: 10_000_000,
            max_future: None,
            reserve_bytes: 8 << 20,
            snapshot_age_max: Some(Duration::from_secs(90 * 86_400)),
            snapshot_bytes_max: Some(64 << 30),
            open_files_max: 256,
            io_backend: IoBackend::File,
            read_ahead: 8,
            queue_sets: 0,
            queue_placement: QueuePlacement::Load,
            index_page_entries: 256,
        }
    }

    /// Checks every setting against its allowed range.
    pub(crate) fn validate(&self) -> crate::Result<()> {
        check(
            self.memory_budget_bytes >= 1 << 20,
            "memory_budget_bytes must be at least 1 MiB (1048576)",
            &self.memory_budget_bytes,
        )?;
        check(
            (1..=64).contains(&self.shards),
            "shards must be 1 to 64",
            &self.shards,
        )?;
        check(
            self.batch_bytes_max >= 1024,
            "batch_bytes_max must be at least 1024",
            &self.batch_bytes_max,
        )?;
        self.validate_layout()?;
        check(
            self.compaction_bytes_per_second.is_none_or(|b| b >= 1024),
            "compaction_bytes_per_second must be at least 1024",
            &self.compaction_bytes_per_second.unwrap_or_default(),
        )?;
        self.late_policy.validate()?;
        at_least_a_second("late_merge_interval", self.late_merge_interval)?;
        at_least_a_second("idle_after", self.idle_after)?;
        at_least_a_second("snapshot_age_max", self.snapshot_age_max)?;
        check(
            self.log_mirror
                .is_none_or(|interval| interval >= Duration::from_millis(10)),
            "log_mirror must be at least 10 ms, or none",
            &self.log_mirror.unwrap_or_default(),
        )?;
        check(
            (1..=64).contains(&self.read_ahead),
            "read_ahead must be 1 to 64",
            &self.read_ahead,
        )?;
        check(
            self.queue_sets <= 64,
            "queue_sets must be 0 to 64",
            &self.queue_sets,
        )?;
        check(
            self.late_runs_max <= 1024,
            "late_runs_max must be 0 to 1024",
            &self.late_runs_max,
        )
    }

    /// Checks the sizes of partitions, leaves, buckets, and pages.
    fn validate_layout(&self) -> crate::Result<()> {
        check(
            (16..=65_536).contains(&self.leaf_events),
            "leaf_events must be 16 to 65536",
            &self.leaf_events,
        )?;
        check(
            self.partition_bytes_max >= self.partition_target_bytes,
            &format!(
                "partition_bytes_max must not be below partition_target_bytes ({})",
                self.partition_target_bytes
            ),
            &self.partition_bytes_max,
        )?;
        check(
            (4..=4096).contains(&self.bucket_events),
            "bucket_events must be 4 to 4096",
            &self.bucket_events,
        )?;
        check(
            (4..=4096).contains(&self.index_page_entries),
            "index_page_entries must be 4 to 4096",
            &self.index_page_entries,
        )?;
        check(
            self.groups_max >= 2,
            "groups_max must be at least 2",
            &self.groups_max,
        )
    }

    /// Log length above which old events are flushed to shorten it, where nothing else limits it.
    pub(crate) fn log_bytes_usual(&self) -> u64 {
        LOG_BUDGETS_MAX * self.memory_budget_bytes as u64
    }

    /// Bytes of one log file.
    pub(crate) fn log_file_size(&self) -> u64 {
        match self.log_file_bytes {
            0 => (self.memory_budget_bytes as u64 / 8).clamp(256 << 10, 16 << 20),
            n => n.max(4096),
        }
    }
}

/// Refuses a value that breaks a rule.
fn check(is_met: bool, rule: &str, found: &dyn Debug) -> crate::Result<()> {
    match is_met {
        true => Ok(()),
        false => Err(crate::Error::invalid(format!("{rule}, found {found:?}"))),
    }
}

fn at_least_a_second(name: &str, found: Option<Duration>) -> crate::Result<()> {
    let found = found.unwrap_or(Duration::MAX);
    check(
        found >= Duration::from_secs(1),
        &format!("{name} must be at least 1 second, or none"),
        &found,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_refused_setting_is_named_with_its_value() {
        let options = || Options::new("db");
        for (options, text) in [
            (
                Options {
                    idle_after: Some(Duration::from_millis(20)),
                    ..options()
                },
                "idle_after must be at least 1 second, or none, found 20ms",
            ),
            (
                Options {
                    partition_target_bytes: 4_096,
                    partition_bytes_max: 1_024,
                    ..options()
                },
                "partition_bytes_max must not be below partition_target_bytes (4096), found 1024",
            ),
            (
                Options {
                    compaction_bytes_per_second: Some(7),
                    ..options()
                },
                "compaction_bytes_per_second must be at least 1024, found 7",
            ),
        ] {
            let error = options.validate().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(options().validate().is_ok());
    }
}
