//! Rows that a write sets aside, and the stable codes that say why.
//!
//! Invariants: a code never changes its meaning; messages may.

/// A row of a batch that was not stored, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Index of the entry in the batch.
    pub entry: usize,
    /// Index of the row in the entry.
    pub row: usize,
    /// Stable code.
    pub code: &'static str,
    /// The expectation, the value found, the remedy.
    pub message: String,
}

/// The value has another type than the field.
pub const REFUSED_TYPE: &str = "E_TYPE";
/// The timestamp lies before the retained rows of the table: its retention or its aging has passed
/// it, or only aggregates are retained there.
pub const REFUSED_ENDED: &str = "E_TIME_ENDED";
/// The timestamp lies too far in the future.
pub const REFUSED_FUTURE: &str = "E_TIME_FUTURE";
/// A name or a value is longer than allowed.
pub const REFUSED_STRING: &str = "E_LIMIT_STRING";
/// The table would have more fields than allowed.
pub const REFUSED_FIELDS: &str = "E_LIMIT_FIELDS";
/// The database would have more tables than allowed, or more to remember of them.
pub const REFUSED_TABLES: &str = "E_LIMIT_TABLES";
/// The table would have more streams than allowed.
pub const REFUSED_STREAMS: &str = "E_LIMIT_STREAMS";
/// A name of a table, tag or field is not allowed.
pub const REFUSED_NAME: &str = "E_NAME";
/// The partition of this time is damaged, and the log keeps as much for it as it may: repair the
/// database.
pub const REFUSED_UNREADABLE: &str = "E_UNREADABLE";

/// The position in its entry of a remaining row; `kept` are the positions of all that remain,
/// `None` = all rows do.
pub(crate) fn place_in_entry(kept: Option<&[usize]>, row: usize) -> usize {
    let Some(kept) = kept else { return row };
    let place = kept.get(row);
    assert!(
        place.is_some(),
        "row {row} of {} that are left of an entry",
        kept.len()
    );
    place.copied().unwrap_or(row)
}
