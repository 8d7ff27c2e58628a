//! Every setting of a database, described once: its name, its range, its purpose, and its getter
//! and setter in [`Options`].
//!
//! Flags, settings files and pages of servers, keyword arguments of Python and the completeness
//! checks of C and Go are made from this table.
//!
//! Invariants: a name, once released, keeps its meaning; every field of [`Options`] that an
//! embedder may set by name is in the table, with its default in [`Options::new`] alone.
//! Concurrency: constants and functions without state. Failure: [`SettingError`], with the expected
//! values.

use crate::config::backend::{IoBackend, QueuePlacement};
use crate::config::options::{Durability, Options};
use headwater_late::PolicyChoice;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Type and range of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// Bytes; where `or_none`, also no limit; where `or_zero`, also 0, which has a special meaning.
    Bytes {
        /// Minimum and maximum.
        range: RangeInclusive<u64>,
        /// True when unlimited is allowed.
        or_none: bool,
        /// True when 0 is allowed below the minimum.
        or_zero: bool,
    },
    /// A whole number.
    Count(RangeInclusive<u64>),
    /// A duration; where `or_none`, also none.
    Span {
        /// Minimum and maximum.
        range: RangeInclusive<Duration>,
        /// True when none is allowed.
        or_none: bool,
    },
    /// The guarantee of an acknowledged write; [`Durability::Every`] within this range.
    Durability(RangeInclusive<Duration>),
    /// A policy for late data.
    Policy,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A setting's value.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    /// Bytes or a count; `None` = no limit.
    Number(Option<u64>),
    /// A duration; `None` = none.
    Span(Option<Duration>),
    /// See [`Durability`].
    Durability(Durability),
    /// See [`PolicyChoice`].
    Policy(PolicyChoice),
    /// One of the words of its setting.
    Choice(String),
}

/// A value that is not allowed for a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The setting's name in [`Options`].
    pub field: &'static str,
    /// The allowed values, in words.
    pub expected: &'static str,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}", self.field, self.expected)
    }
}

impl std::error::Error for SettingError {}

/// One setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Name in servers, in flags, files and variables: `late.merge_interval`.
    pub key: &'static str,
    /// Name in programs, the field of [`Options`]: `late_merge_interval`.
    pub field: &'static str,
    /// Type and range of its value.
    pub kind: SettingKind,
    /// The allowed values in words, for messages and pages.
    pub allowed: &'static str,
    /// Its purpose, as a sentence.
    pub about: &'static str,
    get: fn(&Options) -> SettingValue,
    set: fn(&mut Options, SettingValue) -> Option<()>,
}

impl Setting {
    /// The setting with this field name.
    #[must_use]
    pub fn by_field(field: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.field == field)
    }

    /// Its value.
    #[must_use]
    pub fn get(&self, options: &Options) -> SettingValue {
        (self.get)(options)
    }

    /// Sets its value, without a check of its range: opening checks the values that the engine
    /// cannot work with.
    ///
    /// # Errors
    /// When the value is of another kind, or larger than the maximum of its field.
    pub fn set(&self, options: &mut Options, value: SettingValue) -> Result<(), SettingError> {
        (self.set)(options, value).ok_or(self.refusal())
    }

    /// Sets its value within its range, for front ends of people and files.
    ///
    /// # Errors
    /// When the value is of another kind, or outside of the range.
    pub fn set_within(
        &self,
        options: &mut Options,
        value: SettingValue,
    ) -> Result<(), SettingError> {
        let fits = match (&self.kind, &value) {
            (
                SettingKind::Bytes {
                    range,
                    or_none,
                    or_zero,
                },
                SettingValue::Number(number),
            ) => match number {
                None => *or_none,
                Some(0) => *or_zero || range.contains(&0),
                Some(number) => range.contains(number),
            },
            (SettingKind::Count(range), SettingValue::Number(Some(number))) => {
                range.contains(number)
            }
            (SettingKind::Span { range, or_none }, SettingValue::Span(span)) => match span {
                None => *or_none,
                Some(span) => range.contains(span),
            },
            (SettingKind::Durability(range), SettingValue::Durability(durability)) => {
                match durability {
                    Durability::Every(interval) => range.contains(interval),
                    Durability::Synced | Durability::Written => true,
                }
            }
            (SettingKind::Policy, SettingValue::Policy(_)) => true,
            (SettingKind::Choice(words), SettingValue::Choice(word)) => {
                words.contains(&word.as_str())
            }
            _ => false,
        };
        match fits {
            true => self.set(options, value),
            false => Err(self.refusal()),
        }
    }

    fn refusal(&self) -> SettingError {
        SettingError {
            field: self.field,
            expected: self.allowed,
        }
    }
}

/// Getter and setter of a number, of a field of any integer type.
macro_rules! number {
    ($field:ident) => {
        (
            |options: &Options| SettingValue::Number(u64::try_from(options.$field).ok()),
            |options: &mut Options, value| match value {
                SettingValue::Number(Some(number)) => {
                    options.$field = number.try_into().ok()?;
                    Some(())
                }
                _ => None,
            },
        )
    };
}

/// Getter and setter of a limit, of a field that may be `None`.
macro_rules! limit {
    ($field:ident) => {
        (
            |options: &Options| SettingValue::Number(options.$field),
            |options: &mut Options, value| match value {
                SettingValue::Number(number) => {
                    options.$field = number;
                    Some(())
                }
                _ => None,
            },
        )
    };
}

/// Getter and setter of a duration, of a field that always has one.
macro_rules! span {
    ($field:ident) => {
        (
            |options: &Options| SettingValue::Span(Some(options.$field)),
            |options: &mut Options, value| match value {
                SettingValue::Span(Some(span)) => {
                    options.$field = span;
                    Some(())
                }
                _ => None,
            },
        )
    };
}

/// Getter and setter of a duration, of a field that may be `None`.
macro_rules! optional_span {
    ($field:ident) => {
        (
            |options: &Options| SettingValue::Span(options.$field),
            |options: &mut Options, value| match value {
                SettingValue::Span(span) => {
                    options.$field = span;
                    Some(())
                }
                _ => None,
            },
        )
    };
}

macro_rules! settings {
    ($($key:literal $how:ident($field:ident), $kind:expr, $allowed:expr, $about:literal;)*) => {
        &[$({
            const HOW: (
                fn(&Options) -> SettingValue,
                fn(&mut Options, SettingValue) -> Option<()>,
            ) = $how!($field);
            Setting {
                key: $key,
                field: stringify!($field),
                kind: $kind,
                allowed: $allowed,
                about: $about,
                get: HOW.0,
                set: HOW.1,
            }
        }),*]
    };
}

const fn bytes(least: u64, most: u64) -> SettingKind {
    SettingKind::Bytes {
        range: least..=most,
        or_none: false,
        or_zero: false,
    }
}

const LIMIT: SettingKind = SettingKind::Bytes {
    range: KIB..=1024 * GIB,
    or_none: true,
    or_zero: false,
};

const fn count(least: u64, most: u64) -> SettingKind {
    SettingKind::Count(least..=most)
}

const fn within(least: Duration, most: Duration) -> SettingKind {
    SettingKind::Span {
        range: least..=most,
        or_none: false,
    }
}

const fn within_or_none(least: Duration, most: Duration) -> SettingKind {
    SettingKind::Span {
        range: least..=most,
        or_none: true,
    }
}

macro_rules! durability {
    ($field:ident) => {
        (
            |options: &Options| SettingValue::Durability(options.$field),
            |options: &mut Options, value| match value {
                SettingValue::Durability(durability) => {
                    options.$field = durability;
                    Some(())
                }
                _ => None,
            },
        )
    };
}

macro_rules! policy {
    ($field:ident) => {
        (
            |options: &Options| SettingValue::Policy(options.$field.clone()),
            |options: &mut Options, value| match value {
                SettingValue::Policy(policy) => {
                    options.$field = policy;
                    Some(())
                }
                _ => None,
            },
        )
    };
}

macro_rules! choice {
    ($field:ident) => {
        (
            |options: &Options| SettingValue::Choice(options.$field.to_string()),
            |options: &mut Options, value| match value {
                SettingValue::Choice(word) => {
                    options.$field = word.parse().ok()?;
                    Some(())
                }
                _ => None,
            },
        )
    };
}

/// All settings, in the order of pages.
pub static SETTINGS: &[Setting] = settings! {
    "memory_budget" number(memory_budget_bytes), bytes(MIB, 1024 * GIB), "1MiB to 1024GiB",
        "Memory for events not yet in segments, for caches and for flushes.";
    "durability" durability(durability),
        SettingKind::Durability(Duration::from_millis(1)..=HOUR),
        "synced, written, or the longest time between syncs (a duration of 1ms to 1h)",
        "What an acknowledged write survives: synced = a power failure; written = a crash of the process; a duration = a crash of the process, and a power failure except for writes of about the last such interval.";
    "shards" number(shards), count(1, 64), "1 to 64",
        "Shards of a new database; an existing one keeps its own number.";
    "max_future" optional_span(max_future), within_or_none(Duration::from_nanos(1), Duration::MAX),
        "a duration, or none",
        "Events further in the future than this are refused, so that one wrong clock does not spoil the newest values.";
    "late.policy" policy(late_policy), SettingKind::Policy, PolicyChoice::ALLOWED,
        "How in-order and late events share memory, and which events a flush retains in memory; adaptive = the policy with the least predicted writes.";
    "late.merge_interval" optional_span(late_merge_interval),
        within_or_none(SECOND, Duration::from_secs(365 * 86_400)), "1s to 365d, or none",
        "Late events that do not fill their buffer are merged after this time.";
    "late.runs_max" number(late_runs_max), count(0, 1024), "0 to 1024",
        "Maximum number of late runs of a stream in a partition before they are folded; 0 = late events are always merged.";
    "batch_max" number(batch_bytes_max), bytes(KIB, GIB), "1KiB to 1GiB",
        "Maximum size of a batch.";
    "string_max" number(string_bytes_max), bytes(1, 64 * MIB), "1 to 64MiB",
        "Maximum length of a string or byte value.";
    "tables_max" number(tables_max), count(1, 1_000_000), "1 to 1000000",
        "Maximum number of tables. The definitions of all tables, with their fields, may take a quarter of the memory budget.";
    "fields_max" number(fields_max), count(1, 65_535), "1 to 65535", "Maximum number of fields of a table.";
    "streams_max" number(streams_max), count(1, 1_000_000_000), "1 to 1000000000",
        "Maximum number of streams of a table.";
    "busy_timeout" span(busy_timeout), within(Duration::from_millis(1), HOUR), "1ms to 1h",
        "Maximum time that a write waits for memory before it is answered 503.";
    "log_file" number(log_file_bytes),
        SettingKind::Bytes { range: 4 * KIB..=GIB, or_none: false, or_zero: true },
        "0, or 4KiB to 1GiB",
        "Target size of a commit log file; 0 = derived from the memory budget. The first file has at most 256 KiB.";
    "idle_after" optional_span(idle_after),
        within_or_none(SECOND, Duration::from_secs(365 * 86_400)), "1s to 365d, or none",
        "After this time without a write, the events in memory are flushed and unneeded log files are released.";
    "tier.fast_size" limit(fast_bytes),
        SettingKind::Bytes { range: MIB..=1024 * GIB, or_none: true, or_zero: false },
        "1MiB to 1024GiB, or none",
        "Maximum size of a fast tier, without rows pinned by snapshots: the log has at most half of it where index or newest are placed there, the index a quarter of the rest beside newest; none = only the limits of each part, four times the memory budget for the log.";
    "tier.index_size" limit(fast_index_bytes),
        SettingKind::Bytes { range: MIB..=1024 * GIB, or_none: true, or_zero: false },
        "1MiB to 1024GiB, or none",
        "Maximum size of the index of segments in a fast tier, if it is placed there; none = limited only by free space.";
    "tier.newest_size" limit(fast_newest_bytes),
        SettingKind::Bytes { range: MIB..=1024 * GIB, or_none: true, or_zero: false },
        "1MiB to 1024GiB, or none",
        "Maximum size of the copies of the newest partitions in a fast tier, if they are placed there; none = 32 times the memory budget, which is also the upper bound.";
    "tier.newest_age" optional_span(fast_newest_age),
        within_or_none(SECOND, Duration::from_secs(100 * 365 * 86_400)), "1s to 36500d, or none",
        "Partitions whose time span ended longer ago than this are not copied to a fast tier; none = limited only by free space.";
    "tier.log_mirror" optional_span(log_mirror),
        within_or_none(Duration::from_millis(10), HOUR), "10ms to 1h, or none",
        "Interval at which the commit log in a fast tier is copied to the bulk device, which bounds the loss if the tier fails; none = never.";
    "reserve" number(reserve_bytes), bytes(0, GIB), "0 to 1GiB",
        "Maximum space reserved for a full disk, so that accepted writes can be flushed and deletes work; the reserve grows with the commit log, from 1 MiB.";
    "snapshots.age_max" optional_span(snapshot_age_max),
        within_or_none(SECOND, Duration::from_secs(36_500 * 86_400)), "1s to 36500d, or none",
        "Named snapshots older than this are dropped automatically; none = never.";
    "snapshots.bytes_max" limit(snapshot_bytes_max), LIMIT, "1KiB to 1024GiB, or none",
        "Maximum size of the files retained only for named snapshots; above it, the oldest snapshot is dropped.";
    "open_files_max" number(open_files_max), count(8, 1_000_000), "8 to 1000000",
        "Maximum number of segment files open at once.";
    "io.backend" choice(io_backend), SettingKind::Choice(IoBackend::WORDS), "file or uring",
        "How files are read and written: file = by blocking calls; uring = likewise, with the read-ahead of scans through the kernel's io_uring where available.";
    "io.read_ahead" number(read_ahead), count(1, 64), "1 to 64",
        "Number of leaves that a scan reads ahead, where reads proceed in the background: with io.backend uring, or with queue sets.";
    "io.queue_sets" number(queue_sets), count(0, 64), "0 to 64",
        "Queue sets for segment files, each with a thread, which serve reads before flushes and flushes before compaction; 0 = none.";
    "io.placement" choice(queue_placement), SettingKind::Choice(QueuePlacement::WORDS),
        "load or interval",
        "Queue set that a segment is assigned to: load = the least loaded one; interval = the one whose segments are read least often on average.";
    "partition.target" number(partition_target_bytes), bytes(64 * KIB, 16 * GIB),
        "64KiB to 16GiB, not above partition.max", "A new partition is sized to close near this.";
    "partition.max" number(partition_bytes_max), bytes(64 * KIB, 16 * GIB), "64KiB to 16GiB",
        "A partition larger than this is split.";
    "leaf_events" number(leaf_events), count(16, 65_536), "16 to 65536",
        "Events of a leaf, the unit of compression, in tables that do not set it.";
    "bucket_events" number(bucket_events), count(4, 4096), "4 to 4096",
        "Target number of events per bucket at the lowest level of the pyramid.";
    "compaction.groups_max" number(groups_max), count(2, 65_536), "2 to 65536",
        "A partition is compacted when its rows of a stream are spread over this many groups.";
    "compaction.bytes_per_second" limit(compaction_bytes_per_second), LIMIT,
        "1KiB to 1024GiB, or none",
        "Maximum bytes that compaction writes per second, for devices that wear out or are slow.";
    "compaction.bytes_per_day" limit(compaction_bytes_per_day), LIMIT, "1KiB to 1024GiB, or none",
        "Maximum bytes that automatic compaction writes per day (UTC); one partition is always allowed.";
    "clock.jump_max" span(clock_jump_max), within(SECOND, Duration::from_secs(36_500 * 86_400)),
        "1s to 36500d",
        "A forward jump of the clock by more than this is distrusted for a while: retention, aging and expiry wait.";
    "clock.settle" span(clock_settle), within(SECOND, DAY), "1s to 1d",
        "A clock that jumped is trusted again when new rows confirm it in several intervals of this length.";
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Fields of [`Options`] that are not set by name: the location of the database, whether it may
    /// be created, the parts in a fast tier, and fields that only experiments and tests change.
    const OTHERS: [&str; 6] = [
        "dir",
        "must_exist",
        "fast_dir",
        "fast_parts",
        "flush_rule",
        "index_page_entries",
    ];

    #[test]
    fn every_field_of_the_options_is_described_or_named_here() {
        let shown = format!("{:#?}", Options::new("x"));
        let fields: Vec<&str> = shown
            .lines()
            .filter_map(|line| line.strip_prefix("    ")?.split_once(": "))
            .map(|(name, _)| name)
            .filter(|name| !name.starts_with(' '))
            .collect();
        assert!(fields.len() > 20, "{fields:?}");
        for field in &fields {
            let is_there = Setting::by_field(field).is_some() || OTHERS.contains(field);
            assert!(is_there, "{field} is in no table");
        }
        assert_eq!(fields.len(), SETTINGS.len() + OTHERS.len());
    }

    #[test]
    fn what_is_put_is_read_back_and_defaults_are_within_their_ranges() {
        let defaults = Options::new("x");
        for setting in SETTINGS {
            let mut options = Options::new("x");
            let value = setting.get(&defaults);
            setting.set_within(&mut options, value.clone()).unwrap();
            assert_eq!(setting.get(&options), value, "{}", setting.key);
            let other = match value {
                SettingValue::Span(_) => SettingValue::Number(Some(1)),
                _ => SettingValue::Span(None),
            };
            let error = setting.set(&mut options, other).unwrap_err();
            assert!(error.to_string().contains(setting.allowed), "{error}");
        }
        let mut options = Options::new("x");
        let leaf = Setting::by_field("leaf_events").unwrap();
        for wrong in [0, 15, 65_537, u64::MAX] {
            let value = SettingValue::Number(Some(wrong));
            assert!(leaf.set_within(&mut options, value).is_err(), "{wrong}");
        }
        let too_large = SettingValue::Number(Some(1 << 40));
        assert!(leaf.set(&mut options, too_large).is_err());
    }
}
