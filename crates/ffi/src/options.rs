//! Settings of opening.
//!
//! Invariants: fields are only ever added at the end, and `struct_size` says how many of them the
//! caller knows; the others keep their defaults. So a program that was compiled against an older
//! header works with a newer library.

use crate::status::{Outcome, guard, hw_error, invalid, out};
use crate::text::hw_str;
use headwater::{Durability, Options};
use std::path::PathBuf;
use std::time::Duration;

/// An acknowledged write is on the medium: it survives a power cut.
pub const HW_SYNCED: i32 = 0;
/// An acknowledged write was handed to the operating system, which is asked to store it every
/// durability_interval_ns: it survives the end of the process; a power cut loses at most about this
/// much time.
pub const HW_EVERY: i32 = 1;
/// An acknowledged write was handed to the operating system: it survives the end of the process,
/// not a power cut.
pub const HW_WRITTEN: i32 = 2;

/// Settings of hw_open. Fill it in with hw_options_init, change what should differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_options {
    /// Bytes of this struct, as the caller was compiled: hw_options_init writes what it was given.
    pub struct_size: usize,
    /// Read only: takes no lock, changes nothing, and works while another process owns the
    /// database. Default 0.
    pub read_only: u8,
    /// Refuse to make a new database. Default 0; a database that is opened read only must exist
    /// anyway.
    pub must_exist: u8,
    /// Shards of a new database, 1 to 64. Default: cores, at most 4.
    pub shards: u16,
    /// HW_SYNCED (default), HW_EVERY or HW_WRITTEN.
    pub durability: i32,
    /// With HW_EVERY: interval of syncs, ns. Default 1 s.
    pub durability_interval_ns: i64,
    /// Memory for events not yet in segments, for caches and for flushes. Default 64 MiB.
    pub memory_budget_bytes: usize,
    /// "adaptive" (default), "conventional", "separate:SHARE" …: see docs/operate/settings.md,
    /// late.policy. Empty = the default.
    pub late_policy: hw_str,
    /// A late buffer that does not fill is merged after this time, ns; below 0 = never. Default 10
    /// min.
    pub late_merge_interval_ns: i64,
    /// Maximum number of late runs of a stream in a partition. Default 16.
    pub late_runs_max: usize,
    /// Events of a leaf in tables that do not set it. Default 2,048.
    pub leaf_events: u32,
    /// Approximate number of events of a bucket of the base level. Default 128.
    pub bucket_events: u32,
    /// A new partition is sized to close near this. Default 128 MiB.
    pub partition_target_bytes: u64,
    /// A partition larger than this is split. Default 256 MiB.
    pub partition_bytes_max: u64,
    /// A partition is compacted when its rows of a stream are spread over this many groups. Default
    /// 256.
    pub groups_max: u32,
    /// Maximum number of segment files open at once. Default 256.
    pub open_files_max: u32,
    /// Maximum bytes that compaction writes per second; 0 = no limit (default).
    pub compaction_bytes_per_second: u64,
    /// Maximum bytes that automatic compaction writes per day; 0 = no limit (default).
    pub compaction_bytes_per_day: u64,
    /// Target size of log files; 0 = derived from the memory budget (default).
    pub log_file_bytes: u64,
    /// Maximum time that a write waits for memory before it fails with HW_BUSY, ns. Default 5 s.
    pub busy_timeout_ns: i64,
    /// Maximum size of a batch. Default 16 MiB.
    pub batch_bytes_max: usize,
    /// Maximum length of a string or byte value. Default 1 MiB.
    pub string_bytes_max: usize,
    /// Maximum number of fields of a table. Default 1,024.
    pub fields_max: usize,
    /// Maximum number of streams of a table. Default 10,000,000.
    pub streams_max: usize,
    /// Events further in the future than this are refused, ns; below 0 = never (default).
    pub max_future_ns: i64,
    /// Maximum space reserved for a full disk; it grows with the log, from 1 MiB. Default 8 MiB.
    pub reserve_bytes: u64,
    /// A forward jump of the clock by more than this is distrusted for a while, ns. Default 1 day.
    pub clock_jump_max_ns: i64,
    /// A clock that jumped is trusted again when new rows confirm it in several intervals of this
    /// length, ns. Default 1 hour.
    pub clock_settle_ns: i64,
    /// Maximum number of tables. Default 10,000.
    pub tables_max: usize,
    /// After this time without a write, ns, the events in memory are flushed and unneeded log files
    /// are released; below 0 = never. Default 30 s.
    pub idle_after_ns: i64,
    /// Folder of a fast tier, on a small fast device: see docs/operate/tiers.md. Empty (default) =
    /// the existing tier of the database, if any.
    pub fast_dir: hw_str,
    /// Parts of the database in the fast tier: "log", "pins", "index", "newest", or several with
    /// commas between them. Empty = "log,pins".
    pub fast_parts: hw_str,
    /// Maximum size of the tier, shared by its parts; 0 (default) = the limits of each part.
    pub fast_bytes: u64,
    /// Interval at which the log in a fast tier is copied to the bulk device, ns, which bounds the
    /// loss if the tier fails; below 0 = never (default).
    pub log_mirror_ns: i64,
    /// Maximum size of the index of segments there; 0 (default) = limited only by free space.
    pub fast_index_bytes: u64,
    /// Maximum size of the copies of the newest partitions there; 0 (default) = 32 times the memory
    /// budget, which is also the upper bound.
    pub fast_newest_bytes: u64,
    /// Copies of partitions older than this are dropped, ns; below 0 = by size alone (default).
    pub fast_newest_age_ns: i64,
    /// Named snapshots older than this are dropped automatically, ns; below 0 = never. Default 90
    /// days.
    pub snapshot_age_max_ns: i64,
    /// Maximum size of the files retained only for named snapshots; above it, the oldest is
    /// dropped. 0 = limited only by free space. Default 64 GiB.
    pub snapshot_bytes_max: u64,
    /// I/O of files: "file" by blocking calls, or "uring" with read-ahead through
    /// the kernel's io_uring. Empty = "file".
    pub io_backend: hw_str,
    /// Assignment of segments to queue sets: "load" or "interval". Empty = "load".
    pub queue_placement: hw_str,
    /// Number of leaves that a scan reads ahead. Default 8.
    pub read_ahead: u32,
    /// Queue sets for segment files; 0 (default) = none.
    pub queue_sets: u32,
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn optional_nanos(duration: Option<Duration>) -> i64 {
    duration.map_or(-1, nanos)
}

fn duration(ns: i64, what: &str) -> Outcome<Duration> {
    let ns = u64::try_from(ns)
        .map_err(|_| invalid(format!("{what}: expected 0 or more, found {ns}")))?;
    Ok(Duration::from_nanos(ns))
}

fn optional_duration(ns: i64) -> Option<Duration> {
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

fn limit(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

fn flag(value: u8, what: &str) -> Outcome<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(invalid(format!("{what}: expected 0 or 1, found {other}"))),
    }
}

impl hw_options {
    /// The defaults.
    pub(crate) fn defaults() -> hw_options {
        let options = Options::new("");
        hw_options {
            struct_size: size_of::<hw_options>(),
            read_only: 0,
            must_exist: 0,
            shards: options.shards,
            durability: HW_SYNCED,
            durability_interval_ns: nanos(Duration::from_secs(1)),
            memory_budget_bytes: options.memory_budget_bytes,
            late_policy: hw_str::EMPTY,
            late_merge_interval_ns: optional_nanos(options.late_merge_interval),
            late_runs_max: options.late_runs_max,
            leaf_events: options.leaf_events,
            bucket_events: options.bucket_events,
            partition_target_bytes: options.partition_target_bytes,
            partition_bytes_max: options.partition_bytes_max,
            groups_max: options.groups_max,
            open_files_max: u32::try_from(options.open_files_max).unwrap_or(u32::MAX),
            compaction_bytes_per_second: options.compaction_bytes_per_second.unwrap_or(0),
            compaction_bytes_per_day: options.compaction_bytes_per_day.unwrap_or(0),
            log_file_bytes: options.log_file_bytes,
            busy_timeout_ns: nanos(options.busy_timeout),
            batch_bytes_max: options.batch_bytes_max,
            string_bytes_max: options.string_bytes_max,
            fields_max: options.fields_max,
            streams_max: options.streams_max,
            max_future_ns: optional_nanos(options.max_future),
            reserve_bytes: options.reserve_bytes,
            clock_jump_max_ns: nanos(options.clock_jump_max),
            clock_settle_ns: nanos(options.clock_settle),
            tables_max: options.tables_max,
            idle_after_ns: optional_nanos(options.idle_after),
            fast_dir: hw_str::EMPTY,
            fast_parts: hw_str::EMPTY,
            fast_bytes: 0,
            log_mirror_ns: optional_nanos(options.log_mirror),
            fast_index_bytes: 0,
            fast_newest_bytes: 0,
            fast_newest_age_ns: optional_nanos(options.fast_newest_age),
            snapshot_age_max_ns: optional_nanos(options.snapshot_age_max),
            snapshot_bytes_max: options.snapshot_bytes_max.unwrap_or(0),
            io_backend: hw_str::EMPTY,
            queue_placement: hw_str::EMPTY,
            read_ahead: u32::try_from(options.read_ahead).unwrap_or(u32::MAX),
            queue_sets: u32::try_from(options.queue_sets).unwrap_or(u32::MAX),
        }
    }

    /// The caller's options, with defaults for the fields it does not know. NULL = the defaults.
    pub(crate) fn read(options: *const hw_options) -> Outcome<hw_options> {
        let mut read = hw_options::defaults();
        if options.is_null() {
            return Ok(read);
        }
        if !options.is_aligned() {
            return Err(invalid("options: the pointer is not aligned"));
        }
        // SAFETY: not NULL, aligned; every version of the struct begins with its size.
        let size = unsafe { (&raw const (*options).struct_size).read() };
        check_size(size)?;
        // SAFETY: the caller says that its struct has this many bytes, and ours has as many, as
        // checked.
        unsafe {
            std::ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut read).cast::<u8>(), size);
        }
        Ok(read)
    }

    /// As the engine takes them, and whether to open read only.
    pub(crate) fn settings(&self, dir: PathBuf) -> Outcome<(Options, bool)> {
        let mut options = Options::new(dir);
        options.must_exist = flag(self.must_exist, "must_exist")?;
        options.memory_budget_bytes = self.memory_budget_bytes;
        options.shards = self.shards;
        options.durability = match self.durability {
            HW_SYNCED => Durability::Synced,
            HW_EVERY => {
                let interval = duration(self.durability_interval_ns, "durability_interval_ns")?;
                if interval.is_zero() {
                    return Err(invalid("durability_interval_ns: expected more than 0"));
                }
                Durability::Every(interval)
            }
            HW_WRITTEN => Durability::Written,
            other => {
                return Err(invalid(format!(
                    "durability: expected HW_SYNCED, HW_EVERY or HW_WRITTEN, found {other}"
                )));
            }
        };
        let policy = self.late_policy.read("late_policy")?;
        if !policy.is_empty() {
            options.late_policy = policy.parse().map_err(headwater::Error::from)?;
        }
        options.late_merge_interval = optional_duration(self.late_merge_interval_ns);
        options.late_runs_max = self.late_runs_max;
        options.leaf_events = self.leaf_events;
        options.bucket_events = self.bucket_events;
        options.partition_target_bytes = self.partition_target_bytes;
        options.partition_bytes_max = self.partition_bytes_max;
        options.groups_max = self.groups_max;
        options.open_files_max = self.open_files_max as usize;
        options.compaction_bytes_per_second = limit(self.compaction_bytes_per_second);
        options.compaction_bytes_per_day = limit(self.compaction_bytes_per_day);
        options.log_file_bytes = self.log_file_bytes;
        options.busy_timeout = duration(self.busy_timeout_ns, "busy_timeout_ns")?;
        options.batch_bytes_max = self.batch_bytes_max;
        options.string_bytes_max = self.string_bytes_max;
        options.fields_max = self.fields_max;
        options.streams_max = self.streams_max;
        options.max_future = optional_duration(self.max_future_ns);
        options.reserve_bytes = self.reserve_bytes;
        options.clock_jump_max = duration(self.clock_jump_max_ns, "clock_jump_max_ns")?;
        options.clock_settle = duration(self.clock_settle_ns, "clock_settle_ns")?;
        options.tables_max = self.tables_max;
        options.idle_after = optional_duration(self.idle_after_ns);
        let fast_dir = self.fast_dir.read("fast_dir")?;
        options.fast_dir = (!fast_dir.is_empty()).then(|| PathBuf::from(fast_dir));
        let fast_parts = self.fast_parts.read("fast_parts")?;
        if !fast_parts.is_empty() {
            options.fast_parts = fast_parts.parse()?;
        }
        options.fast_bytes = limit(self.fast_bytes);
        options.log_mirror = optional_duration(self.log_mirror_ns);
        options.fast_index_bytes = limit(self.fast_index_bytes);
        options.fast_newest_bytes = limit(self.fast_newest_bytes);
        options.fast_newest_age = optional_duration(self.fast_newest_age_ns);
        options.snapshot_age_max = optional_duration(self.snapshot_age_max_ns);
        options.snapshot_bytes_max = limit(self.snapshot_bytes_max);
        self.set_ways(&mut options)?;
        Ok((options, flag(self.read_only, "read_only")?))
    }

    /// The ways to the medium.
    fn set_ways(&self, options: &mut Options) -> Outcome<()> {
        let io_backend = self.io_backend.read("io_backend")?;
        if !io_backend.is_empty() {
            options.io_backend = io_backend.parse()?;
        }
        let placement = self.queue_placement.read("queue_placement")?;
        if !placement.is_empty() {
            options.queue_placement = placement.parse()?;
        }
        // What does not fit is beyond what opening takes.
        options.read_ahead = usize::try_from(self.read_ahead).unwrap_or(usize::MAX);
        options.queue_sets = usize::try_from(self.queue_sets).unwrap_or(usize::MAX);
        Ok(())
    }
}

/// A size that some version of the struct has: whole, and none of a newer one.
fn check_size(size: usize) -> Outcome<()> {
    let (least, most) = (size_of::<usize>() * 2, size_of::<hw_options>());
    if size < least || size > most {
        return Err(invalid(format!(
            "options.struct_size: expected {least} to {most}, found {size}: fill in the options with hw_options_init, and use a library that is not older than the header"
        )));
    }
    Ok(())
}

/// Fills in the defaults. struct_size is sizeof(hw_options): the header has a macro,
/// HW_OPTIONS_INIT, that gives it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_options_init(
    options: *mut hw_options,
    struct_size: usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(options, "options")?;
        check_size(struct_size)?;
        let mut defaults = hw_options::defaults();
        defaults.struct_size = struct_size;
        // SAFETY: not NULL and aligned; the caller's struct has `struct_size` bytes, and ours at
        // least as many.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const defaults).cast::<u8>(),
                options.cast::<u8>(),
                struct_size,
            );
        }
        Ok(())
    })
}
