//! Settings of the engine, as far as a server lets one set them.

use super::table::{Setting, UP_TO_A_DAY, duration_within, size_within, within};
use super::values::{parse_count, parse_duration, parse_size, show_duration, show_size};
use headwater::{Durability, PolicyChoice};
use std::time::Duration;

const NONE: &str = "none";

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "memory_budget",
        kind: "SIZE",
        allowed: "1MiB to 1024GiB",
        about: "Memory for events not yet in segments, for caches and for flushes.",
        set: |s, text| {
            size_within(text, 1 << 20..=1 << 40).map(|n| s.engine.memory_budget_bytes = n)
        },
        show: |s| show_size(s.engine.memory_budget_bytes as u64),
    },
    Setting {
        key: "durability",
        kind: "HOW",
        allowed: "synced, written, or the longest time between syncs (a duration of 1ms to 1h)",
        about: "What an acknowledged write has survived: synced = a power cut; written = the end of the process; a duration = the end of the process, and of a power cut all but about this much time.",
        set: |s, text| {
            s.engine.durability = match text {
                "synced" => Durability::Synced,
                "written" => Durability::Written,
                _ => Durability::Every(duration_within(
                    text,
                    Duration::from_millis(1)..=Duration::from_secs(3600),
                )?),
            };
            Ok(())
        },
        show: |s| match s.engine.durability {
            Durability::Synced => "synced".to_owned(),
            Durability::Written => "written".to_owned(),
            Durability::Every(interval) => show_duration(interval),
        },
    },
    Setting {
        key: "shards",
        kind: "N",
        allowed: "1 to 64",
        about: "Shards of a new database; an existing one keeps its own number.",
        set: |s, text| within(parse_count(text)?, 1..=64).map(|n| s.engine.shards = n),
        show: |s| s.engine.shards.to_string(),
    },
    Setting {
        key: "max_future",
        kind: "DURATION",
        allowed: "a duration, or none",
        about: "Events later than the clock by more than this are refused, since one wrong clock would spoil what is newest.",
        set: |s, text| {
            s.engine.max_future = match text {
                NONE => None,
                _ => Some(parse_duration(text)?),
            };
            Ok(())
        },
        show: |s| {
            s.engine
                .max_future
                .map_or_else(|| NONE.to_owned(), show_duration)
        },
    },
    Setting {
        key: "late.policy",
        kind: "POLICY",
        allowed: PolicyChoice::ALLOWED,
        about: "How in-order and late events share memory, and what a flush keeps back; adaptive = as is predicted to write least.",
        set: |s, text| {
            s.engine.late_policy = text
                .parse::<PolicyChoice>()
                .map_err(|error| error.to_string())?;
            Ok(())
        },
        show: |s| s.engine.late_policy.to_string(),
    },
    Setting {
        key: "late.merge_interval",
        kind: "DURATION",
        allowed: "1s to 365d, or none",
        about: "Late events that do not fill their buffer are merged after this time.",
        set: |s, text| {
            s.engine.late_merge_interval = match text {
                NONE => None,
                _ => Some(duration_within(
                    text,
                    Duration::from_secs(1)..=Duration::from_secs(365 * 86_400),
                )?),
            };
            Ok(())
        },
        show: |s| {
            s.engine
                .late_merge_interval
                .map_or_else(|| NONE.to_owned(), show_duration)
        },
    },
    Setting {
        key: "late.runs_max",
        kind: "N",
        allowed: "0 to 1024",
        about: "Most late runs of a stream in a partition before they are folded; 0 = late events are always merged.",
        set: |s, text| within(parse_count(text)?, 0..=1024).map(|n| s.engine.late_runs_max = n),
        show: |s| s.engine.late_runs_max.to_string(),
    },
    Setting {
        key: "batch_max",
        kind: "SIZE",
        allowed: "1KiB to 1GiB",
        about: "Largest batch that is stored at once.",
        set: |s, text| size_within(text, 1 << 10..=1 << 30).map(|n| s.engine.batch_bytes_max = n),
        show: |s| show_size(s.engine.batch_bytes_max as u64),
    },
    Setting {
        key: "string_max",
        kind: "SIZE",
        allowed: "1 to 64MiB",
        about: "Longest string or byte value.",
        set: |s, text| size_within(text, 1..=64 << 20).map(|n| s.engine.string_bytes_max = n),
        show: |s| show_size(s.engine.string_bytes_max as u64),
    },
    Setting {
        key: "tables_max",
        kind: "N",
        allowed: "1 to 1000000",
        about: "Most tables. The definitions of all, with their fields, may take a quarter of the memory budget.",
        set: |s, text| within(parse_count(text)?, 1..=1_000_000).map(|n| s.engine.tables_max = n),
        show: |s| s.engine.tables_max.to_string(),
    },
    Setting {
        key: "fields_max",
        kind: "N",
        allowed: "1 to 65535",
        about: "Most fields of a table.",
        set: |s, text| within(parse_count(text)?, 1..=65_535).map(|n| s.engine.fields_max = n),
        show: |s| s.engine.fields_max.to_string(),
    },
    Setting {
        key: "streams_max",
        kind: "N",
        allowed: "1 to 1000000000",
        about: "Most streams of a table.",
        set: |s, text| {
            within(parse_count(text)?, 1..=1_000_000_000).map(|n| s.engine.streams_max = n)
        },
        show: |s| s.engine.streams_max.to_string(),
    },
    Setting {
        key: "busy_timeout",
        kind: "DURATION",
        allowed: "1ms to 1h",
        about: "Longest wait of a write for memory before it is answered 503.",
        set: |s, text| {
            duration_within(text, Duration::from_millis(1)..=Duration::from_secs(3600))
                .map(|d| s.engine.busy_timeout = d)
        },
        show: |s| show_duration(s.engine.busy_timeout),
    },
    Setting {
        key: "log_file",
        kind: "SIZE",
        allowed: "0, or 4KiB to 1GiB",
        about: "Size of a file of the commit log; 0 = by the memory budget.",
        set: |s, text| {
            let bytes = parse_size(text)?;
            if bytes != 0 {
                size_within(text, 4 << 10..=1 << 30)?;
            }
            s.engine.log_file_bytes = bytes;
            Ok(())
        },
        show: |s| show_size(s.engine.log_file_bytes),
    },
    Setting {
        key: "reserve",
        kind: "SIZE",
        allowed: "0 to 1GiB",
        about: "Space kept free for a full disk, so that what was taken in can be stored and deletes work.",
        set: |s, text| size_within(text, 0..=1 << 30).map(|n| s.engine.reserve_bytes = n as u64),
        show: |s| show_size(s.engine.reserve_bytes),
    },
    Setting {
        key: "open_files_max",
        kind: "N",
        allowed: "8 to 1000000",
        about: "Segment files held open at once.",
        set: |s, text| {
            within(parse_count(text)?, 8..=1_000_000).map(|n| s.engine.open_files_max = n)
        },
        show: |s| s.engine.open_files_max.to_string(),
    },
    Setting {
        key: "partition.target",
        kind: "SIZE",
        allowed: "64KiB to 16GiB, not above partition.max",
        about: "A new partition is sized to close near this.",
        set: |s, text| {
            size_within(text, 64 << 10..=16 << 30)
                .map(|n| s.engine.partition_target_bytes = n as u64)
        },
        show: |s| show_size(s.engine.partition_target_bytes),
    },
    Setting {
        key: "partition.max",
        kind: "SIZE",
        allowed: "64KiB to 16GiB",
        about: "A partition larger than this is split.",
        set: |s, text| {
            size_within(text, 64 << 10..=16 << 30).map(|n| s.engine.partition_bytes_max = n as u64)
        },
        show: |s| show_size(s.engine.partition_bytes_max),
    },
    Setting {
        key: "leaf_events",
        kind: "N",
        allowed: "16 to 65536",
        about: "Events of a leaf, the unit of compression, in tables that do not say otherwise.",
        set: |s, text| within(parse_count(text)?, 16..=65_536).map(|n| s.engine.leaf_events = n),
        show: |s| s.engine.leaf_events.to_string(),
    },
    Setting {
        key: "bucket_events",
        kind: "N",
        allowed: "4 to 4096",
        about: "Events of a bucket of the pyramid's base level, about.",
        set: |s, text| within(parse_count(text)?, 4..=4096).map(|n| s.engine.bucket_events = n),
        show: |s| s.engine.bucket_events.to_string(),
    },
    Setting {
        key: "compaction.groups_max",
        kind: "N",
        allowed: "2 to 65536",
        about: "A partition with this many groups is compacted.",
        set: |s, text| within(parse_count(text)?, 2..=65_536).map(|n| s.engine.groups_max = n),
        show: |s| s.engine.groups_max.to_string(),
    },
    Setting {
        key: "compaction.bytes_per_second",
        kind: "SIZE",
        allowed: "1KiB to 1024GiB, or none",
        about: "Most that compaction writes a second, for media that wear out or are slow.",
        set: |s, text| limit(text).map(|n| s.engine.compaction_bytes_per_second = n),
        show: |s| show_limit(s.engine.compaction_bytes_per_second),
    },
    Setting {
        key: "compaction.bytes_per_day",
        kind: "SIZE",
        allowed: "1KiB to 1024GiB, or none",
        about: "Most that compaction writes of its own accord in a day (UTC); one partition is always allowed.",
        set: |s, text| limit(text).map(|n| s.engine.compaction_bytes_per_day = n),
        show: |s| show_limit(s.engine.compaction_bytes_per_day),
    },
    Setting {
        key: "clock.jump_max",
        kind: "DURATION",
        allowed: "1s to 36500d",
        about: "A clock that jumps forward by more than this is not believed for a while: retention, aging and expiry wait.",
        set: |s, text| {
            duration_within(
                text,
                Duration::from_secs(1)..=Duration::from_secs(36_500 * 86_400),
            )
            .map(|d| s.engine.clock_jump_max = d)
        },
        show: |s| show_duration(s.engine.clock_jump_max),
    },
    Setting {
        key: "clock.settle",
        kind: "DURATION",
        allowed: "1s to 1d",
        about: "A clock that jumped is believed when new rows bear it out in several stretches of time of this length.",
        set: |s, text| duration_within(text, UP_TO_A_DAY).map(|d| s.engine.clock_settle = d),
        show: |s| show_duration(s.engine.clock_settle),
    },
];

fn limit(text: &str) -> Result<Option<u64>, String> {
    if text == NONE {
        return Ok(None);
    }
    size_within(text, 1 << 10..=1 << 40).map(|n| Some(n as u64))
}

fn show_limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| NONE.to_owned(), show_size)
}
