//! Rows that cannot be stored, and how many that can are stored at once.

use crate::sessions::errors::{Failure, error};

/// Rows that are passed to the query crate at once.
pub(in crate::sessions) const BATCH_ROWS: usize = 1_024;
/// Bytes of their fields, about, above which fewer are.
pub(in crate::sessions) const BATCH_BYTES: usize = 1 << 20;

/// Reason for refusing a row.
pub(in crate::sessions) struct Unfit {
    /// The line or the row, and its number.
    pub(in crate::sessions) position: (&'static str, u64),
    pub(in crate::sessions) sqlstate: &'static str,
    pub(in crate::sessions) message: String,
}

impl Unfit {
    /// The error for the client; `stored` states which rows were stored.
    pub(in crate::sessions) fn at(self, table: &str, stored: Option<String>) -> Failure {
        let (unit, number) = self.position;
        let text = format!("COPY {table}, {unit} {number}: {}", self.message);
        let mut notice = error(self.sqlstate, text);
        notice.detail = stored;
        notice.into()
    }
}
