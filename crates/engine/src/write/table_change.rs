//! Changes of a table after it was made, and the bounds of its numbers.
//!
//! Failure: a number out of its bounds is `invalid`, and the table does not change.

use crate::{Duplicates, Error, FieldSpec, Result};
use std::time::Duration;

/// Changes to a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableChange {
    /// Another leaf size.
    pub leaf_events: Option<u32>,
    /// Another treatment of equal timestamps; only before the first write.
    pub duplicates: Option<Duplicates>,
    /// Another retention; `Some(None)` = rows are kept for ever. Removed rows are not restored;
    /// rows that were hidden but not removed yet become visible again.
    pub retention: Option<Option<Duration>>,
    /// Another lifetime of rows before only their aggregates are retained; `Some(None)` = for ever.
    pub raw_for: Option<Option<Duration>>,
    /// Fields to add; f64 for an existing i64 field widens it where no stored value loses digits by
    /// it.
    pub add_fields: Vec<FieldSpec>,
    /// Tag keys to declare.
    pub add_tags: Vec<String>,
}

pub(crate) fn leaf_events(wanted: Option<u32>, default: u32) -> Result<u32> {
    let events = wanted.unwrap_or(default);
    if !(16..=65_536).contains(&events) {
        return Err(Error::invalid(format!(
            "leaf_events must be 16 to 65536, found {events}"
        )));
    }
    Ok(events)
}

/// The shortest lifetime that can be set.
const LIFE_MIN: Duration = Duration::from_secs(1);

pub(crate) fn life_span(what: &str, wanted: Option<Duration>) -> Result<Option<Duration>> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    match i64::try_from(wanted.as_nanos()) {
        Ok(_) if wanted >= LIFE_MIN => Ok(Some(wanted)),
        _ => Err(Error::invalid(format!(
            "{what} must be 1 s to 292 years, found {wanted:?}"
        ))),
    }
}
