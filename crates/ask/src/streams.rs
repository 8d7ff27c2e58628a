//! Streams that a client may read.

use crate::access::Access;
use crate::budget::Budget;
use crate::error::{Error, ok_if_found};
use headwater::{ClosedRange, Snapshot, StreamName};

/// Number of names that are checked together.
const NAMES_AT_ONCE: usize = 4_096;

/// The tables that may have streams for the client, by name.
pub(crate) fn tables(snapshot: &Snapshot, access: &dyn Access) -> Vec<String> {
    let mut tables = snapshot.table_names();
    tables.retain(|table| access.reads_some_of(table));
    tables
}

/// Passes the streams of a table that the client may read to `each`, in the order of the catalog,
/// until it returns false.
///
/// # Errors
/// When the budget is exhausted, and errors of `each` and the engine.
pub(crate) fn walk(
    snapshot: &Snapshot,
    access: &dyn Access,
    table: &str,
    budget: &Budget,
    each: &mut dyn FnMut(StreamName) -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut last: Option<StreamName> = None;
    loop {
        budget.check()?;
        let page = ok_if_found(snapshot.streams_after(table, last.as_ref(), NAMES_AT_ONCE))?;
        let Some(page) = page.filter(|p| !p.is_empty()) else {
            return Ok(());
        };
        let is_last = page.len() < NAMES_AT_ONCE;
        last = page.last().cloned();
        for stream in page {
            if access.reads(stream.table(), stream.tags()) && !each(stream)? {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

/// The instants between the first and the last event of a stream; empty without events.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn extent(snapshot: &Snapshot, stream: &StreamName) -> Result<ClosedRange, Error> {
    let Some(info) = ok_if_found(snapshot.stream_info(stream))? else {
        return Ok(ClosedRange::EMPTY);
    };
    Ok(match (info.first, info.last) {
        (Some(first), Some(last)) => ClosedRange::new(first, last),
        _ => ClosedRange::EMPTY,
    })
}
