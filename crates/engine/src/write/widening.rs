//! An integer field is widened to floats only where no stored integer loses digits by it.
//!
//! The extremes in the pyramids of a field's streams show its range of integers, so a check reads
//! only the rows at the edges. One check is made per field, outside the path of writes that fit.
//!
//! Invariants: between the start of a check and the following definition, no integer that a float
//! cannot represent gets into the field: a writer that enters with one is refused (`busy`). A field
//! found to be inexact stays so until `ALTER TABLE` checks it again. Concurrency: checks are made
//! under a [`Turn`], one at a time.

use crate::core::{Core, Turn};
use crate::metadata::catalog::Table;
use crate::read::{AggregateSpec, Bins, PageStart, Snapshot};
use crate::{Error, ErrorKind, FieldSpec, Result};
use headwater_types::{ClosedRange, Column, Extremes, FieldId, FieldType, Values};
use std::sync::Arc;

/// Bound up to which floats represent every integer.
const EXACT_MAX: u64 = 1 << 53;

/// Streams of a table whose extremes a write checks; `ALTER TABLE` checks all.
pub(crate) const STREAMS_LOOKED_AT: u64 = 10_000;

/// Streams read from the catalog at a time.
const PAGE: usize = 1_000;

/// Result of a check of the integers of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integers {
    /// A float represents each of them.
    Exact,
    /// At least this one is beyond the exact integers of floats.
    Inexact(i64),
    /// Not known: the field was found to be inexact before, or there are too many streams, or a
    /// partition cannot be read.
    Unknown,
}

/// True for an integer without a neighbour that becomes the same float.
pub(crate) fn is_exact(value: i64) -> bool {
    value.unsigned_abs() <= EXACT_MAX
}

/// True when a float represents every present integer of a column.
pub(crate) fn all_exact(column: &Column) -> bool {
    match column.values() {
        Values::I64(values) => {
            let mut each = values.iter().enumerate();
            each.all(|(row, value)| is_exact(*value) || !column.is_present(row))
        }
        _ => true,
    }
}

/// Checks if an integer field has only values that floats represent. Later writes, while the turn
/// lasts, do not change the result.
pub(crate) fn look(
    core: &Arc<Core>,
    _turn: &Turn<'_>,
    table: &Table,
    field: FieldId,
    streams_max: u64,
) -> Result<Integers> {
    let by_write = streams_max != u64::MAX;
    if by_write && core.defining.was_inexact(table.id, field) {
        return Ok(Integers::Unknown);
    }
    let streams = core.catalog.stream_count(table.id);
    if streams > streams_max {
        return Ok(Integers::Unknown);
    }
    core.defining.begin_look(table.id, field);
    if streams == 0 {
        return Ok(Integers::Exact);
    }
    // The rows of a writer that entered before the check was announced are in memory after this,
    // and visible once the writer's record is published.
    drop(core.write_barrier.close());
    core.log.wait_published(core.log.newest())?;
    let found = match extremes(core, table, field) {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Integers::Unknown),
        found => found?,
    };
    core.defining.end_look(table.id, field, found.is_none());
    Ok(found.map_or(Integers::Exact, Integers::Inexact))
}

/// An extreme of the field that a float cannot represent, if a stream has one.
fn extremes(core: &Arc<Core>, table: &Table, field: FieldId) -> Result<Option<i64>> {
    let Some(name) = table.field(field).map(|f| f.name.as_str()) else {
        return Ok(None);
    };
    let snapshot = Snapshot::open(Arc::clone(core));
    let spec = AggregateSpec {
        range: ClosedRange::ALL,
        bins: Bins::Whole,
        first_last: false,
    };
    let mut start = Some(PageStart::default());
    while let Some(from) = start {
        let page = snapshot.handles_from(&table.name, from, PAGE)?;
        for stream in &page.streams {
            for bin in stream.aggregate(&snapshot, name, &spec)? {
                if let Extremes::I64(least, most) = bin.aggregate.extremes
                    && let Some(beyond) = [most, least].into_iter().find(|v| !is_exact(*v))
                {
                    return Ok(Some(beyond));
                }
            }
        }
        start = page.next;
    }
    Ok(None)
}

/// Refuses to widen integer fields to floats where a stored value would lose digits.
pub(crate) fn check_widening(
    core: &Arc<Core>,
    turn: &Turn<'_>,
    name: &str,
    fields: &[FieldSpec],
) -> Result<()> {
    let Some(table) = core.catalog.table_named(name) else {
        return Ok(());
    };
    let floats = fields.iter().filter(|f| f.field_type == FieldType::F64);
    let widened = floats.filter_map(|wanted| {
        let id = table.field_id(&wanted.name)?;
        let is_widened = table.field(id)?.field_type == FieldType::I64;
        is_widened.then_some((wanted, id))
    });
    for (wanted, id) in widened {
        let why = match look(core, turn, &table, id, u64::MAX)? {
            Integers::Exact => continue,
            Integers::Inexact(value) => {
                format!("contains {value}, which f64 (DOUBLE) cannot represent exactly")
            }
            Integers::Unknown => "cannot be read everywhere".to_owned(),
        };
        return Err(Error::invalid(format!(
            "field `{}` of table `{name}` {why}, and remains i64 (BIGINT): nothing was changed. Write fractions into another field",
            wanted.name
        )));
    }
    Ok(())
}

/// Refuses a writer with integers for a field that has been widened to floats since they were
/// checked, or is about to be.
pub(crate) fn check_before_entry(
    core: &Core,
    table: &Table,
    columns: &[(FieldId, Column)],
) -> Result<()> {
    let integers = columns
        .iter()
        .filter(|(_, column)| column.field_type() == FieldType::I64);
    let known = integers.filter_map(|(id, column)| Some((id, column, table.field(*id)?)));
    for (id, column, field) in known {
        let widens =
            field.field_type == FieldType::F64 || core.defining.is_in_progress(table.id, *id);
        if widens && !all_exact(column) {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "field `{}` of table `{}` became a float field while the batch was checked: write it again",
                    field.name, table.name
                ),
            ));
        }
    }
    Ok(())
}
