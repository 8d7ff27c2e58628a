//! Limits of the writes of compaction: per second, and per day for compaction in the background.

use crate::core::Core;
use std::time::Duration;

/// True when the background may write this many more bytes for compaction today.
pub(crate) fn may_compact(core: &Core, bytes: u64) -> bool {
    let Some(daily) = core.options.compaction_bytes_per_day else {
        return true;
    };
    let written = core.compaction.written();
    let spent = if written.day == today(core) {
        written.bytes
    } else {
        0
    };
    // One partition a day is always allowed, however large it is.
    spent == 0 || spent.saturating_add(bytes) <= daily
}

/// Days since 1970 UTC.
fn today(core: &Core) -> u64 {
    (core.env.clock.now().as_nanos().max(0) / 86_400_000_000_000).unsigned_abs()
}

/// Counts bytes written for compaction, and enforces the rate.
pub(super) fn note_compacted(core: &Core, bytes: u64) {
    core.compaction.note_written(today(core), bytes);
    if let Some(rate) = core.options.compaction_bytes_per_second
        && core.signals.has_threads()
    {
        let pause = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        core.signals.pause(&*core.env.clock, pause);
    }
}
