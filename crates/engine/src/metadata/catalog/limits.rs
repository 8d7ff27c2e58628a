//! Limits of definitions.
//!
//! Invariant: a limit refuses new definitions, but never an existing one.

use super::table::Table;
use crate::Options;
use crate::common::ids::Sequence;
use std::fmt;
use std::sync::Arc;

/// Limits of the number of tables, and of the memory of their definitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableLimits {
    pub(crate) tables: usize,
    pub(crate) bytes: usize,
}

impl TableLimits {
    /// Limits from the settings. The definitions of all tables may use a quarter of the memory
    /// budget.
    pub(crate) fn of(options: &Options) -> TableLimits {
        TableLimits {
            tables: options.tables_max,
            bytes: options.memory_budget_bytes / 4,
        }
    }
}

/// Outcome of a definition.
pub(crate) enum Defined {
    /// The present table, and the sequence of its record, if it changed.
    As(Arc<Table>, Option<Sequence>),
    /// Not defined: a limit was reached.
    Not(LimitExceeded),
}

/// A limit that a definition would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    /// Maximum number of tables.
    Tables(usize),
    /// Maximum bytes of definitions.
    Bytes(usize),
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitExceeded::Tables(most) => write!(
                f,
                "there are already {most} tables, the maximum (setting tables_max): check whether table names contain what should be a tag"
            ),
            LimitExceeded::Bytes(most) => write!(
                f,
                "the definitions of all tables and fields already take {most} bytes, the maximum (a quarter of the memory budget): raise the memory budget (memory_budget_bytes; on the server, memory_budget), or use tags instead of field names"
            ),
        }
    }
}
