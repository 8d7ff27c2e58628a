//! Loads the deletes that are retained for copies and for named snapshots.

use crate::Result;
use crate::common::error::Error;
use crate::core::{Ends, NewestDeletes};
use crate::metadata::tables::{Meta, RetainedFor};
use crate::storage::named_snapshots::NamedSnapshots;

/// Loads deletes that copies have not confirmed, or that are newer than named snapshots.
pub(super) fn load_ends(
    meta: &Meta,
    newest: &NewestDeletes,
    kept_for: RetainedFor,
) -> Result<Ends> {
    let ends = Ends::default();
    let newest = newest.all().into_iter().map(|(_, sequence)| sequence).max();
    let loaded = ends.load(meta.ends(kept_for)?, newest.unwrap_or_default());
    loaded.map_err(|e| Error::decode(meta.path(), 0, e))?;
    Ok(ends)
}

/// Drops deletes retained for a snapshot whose creation or end was interrupted.
pub(super) fn settle_keepers(named: &NamedSnapshots, ends: &Ends) {
    let keepers: Vec<String> = named.all().iter().map(|s| s.keeper()).collect();
    for name in ends.others(&|name| keepers.iter().any(|k| k == name)) {
        ends.remove_copy(&name);
    }
}
