//! Under which conditions events are stored: as on a machine, or exactly as in the papers.
//!
//! Invariants: fixed when a database is opened. Code that stores differently under exact conditions
//! asks here, and never reads the setting itself.
//! Failure: none.

use crate::Options;
use headwater_late::FlushRule;

/// The conditions of an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineMode {
    /// The events that a memory holds which is counted in events; `None` = in bytes.
    memory_events: Option<u32>,
}

impl EngineMode {
    pub(crate) fn of(rule: FlushRule) -> EngineMode {
        EngineMode {
            memory_events: match rule {
                FlushRule::Production => None,
                FlushRule::LabExact { memory_events } => Some(memory_events),
            },
        }
    }

    /// True when events are counted and neither bytes nor the clock matter, so that the writes can
    /// be repeated and compared with the papers: a job follows the insertion that filled a buffer,
    /// leaves are cut full, and partitions neither end nor are compacted.
    pub(crate) fn is_exact(self) -> bool {
        self.memory_events.is_some()
    }

    /// The events that a shard's memory holds, under exact conditions.
    pub(crate) fn memory_events(self) -> Option<u32> {
        self.memory_events
    }

    /// The size at which a new partition is to close. The papers know one run and no partitions.
    pub(crate) fn partition_target_bytes(self, options: &Options) -> u64 {
        if self.is_exact() {
            u64::MAX
        } else {
            options.partition_target_bytes
        }
    }
}
