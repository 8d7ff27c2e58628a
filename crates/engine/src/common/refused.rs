//! Rows that a write refuses, and the stable codes of the reasons.
//!
//! Invariants: a code never changes its meaning; messages may.

/// A refused row of a batch, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Index of the entry in the batch.
    pub entry: usize,
    /// Index of the row in the entry.
    pub row: usize,
    /// Stable code.
    pub code: &'static str,
    /// The expectation, the actual value, the remedy.
    pub message: String,
}

/// The value has another type than the field.
pub const REFUSED_TYPE: &str = "E_TYPE";
/// The timestamp is before the retained rows of the table: its retention or its aging has passed
/// it, or only aggregates are retained there.
pub const REFUSED_ENDED: &str = "E_TIME_ENDED";
/// The timestamp is too far in the future.
pub const REFUSED_FUTURE: &str = "E_TIME_FUTURE";
/// A name or a value is longer than allowed.
pub const REFUSED_STRING: &str = "E_LIMIT_STRING";
/// The table would have more fields than allowed.
pub const REFUSED_FIELDS: &str = "E_LIMIT_FIELDS";
/// The database would have more tables, or more bytes of definitions, than allowed.
pub const REFUSED_TABLES: &str = "E_LIMIT_TABLES";
/// The table would have more streams than allowed.
pub const REFUSED_STREAMS: &str = "E_LIMIT_STREAMS";
/// A name of a table, tag or field is not allowed.
pub const REFUSED_NAME: &str = "E_NAME";
/// The partition of this time is damaged, and the log retains its maximum for it: repair the
/// database.
pub const REFUSED_UNREADABLE: &str = "E_UNREADABLE";

/// The position of a remaining row in its entry; `kept` has the positions of all remaining rows,
/// `None` = all rows remain.
pub(crate) fn position_in_entry(kept: Option<&[usize]>, row: usize) -> usize {
    let Some(kept) = kept else { return row };
    let place = kept.get(row);
    assert!(
        place.is_some(),
        "row {row} of {} that are left of an entry",
        kept.len()
    );
    place.copied().unwrap_or(row)
}
