//! The engine mode: behaves as on a machine, or exactly as the papers describe.
//!
//! Invariants: fixed when a database is opened. Code that stores differently in exact mode checks
//! it here, and never reads the setting itself. Failure: none.

use crate::Options;
use headwater_late::FlushRule;

/// The engine mode of an open database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineMode {
    /// Capacity of a memory that is counted in events; `None` = it is counted in bytes.
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

    /// Capacity of a shard's memory in events, in exact mode.
    pub(crate) fn memory_events(self) -> Option<u32> {
        self.memory_events
    }

    /// The target size of a new partition. The papers have one run and no partitions.
    pub(crate) fn partition_target_bytes(self, options: &Options) -> u64 {
        if self.is_exact() {
            u64::MAX
        } else {
            options.partition_target_bytes
        }
    }
}
