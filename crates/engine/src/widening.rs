//! A field of integers becomes one of floats: only where no stored integer loses digits by it.
//!
//! Which integers a field holds say the extremes in the pyramids of its streams, so a look reads no
//! rows but those at the edges. It is made once per field, not on the way of writes that fit.
//!
//! Invariants: between the begin of a look and the definition that follows it, no integer that a
//! float cannot hold gets into the field: who is at the door with one is sent back (`busy`). What
//! a look found to be inexact stays so until somebody asks by `ALTER TABLE`.
//! Concurrency: looks are made by who holds [`Defining`], one at a time.

use crate::catalog::Table;
use crate::core::Core;
use crate::ids::TableId;
use crate::read::{AggregateSpec, Bins, PageStart, Snapshot};
use crate::{Error, ErrorKind, FieldSpec, Result};
use headwater_types::{ClosedRange, Column, Extremes, FieldId, FieldType, Values};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Up to here floats hold every integer.
const EXACT_MAX: u64 = 1 << 53;

/// Streams of a table at whose extremes a write looks; who alters the table looks at all.
pub(crate) const STREAMS_LOOKED_AT: u64 = 10_000;

/// Streams taken from the catalog at once.
const PAGE: usize = 1_000;

/// Who makes tables, adds fields or widens them, holds this from the first look at what there is
/// until the definitions are in force.
#[derive(Debug, Default)]
pub(crate) struct Defining {
    lock: Mutex<()>,
    /// Some field is being looked at: writers check their integers at the door.
    any: AtomicBool,
    state: Mutex<Looks>,
}

#[derive(Debug, Default)]
struct Looks {
    under_way: HashSet<(TableId, FieldId)>,
    inexact: HashSet<(TableId, FieldId)>,
}

/// What is being defined: until it is dropped, nobody else defines.
pub(crate) struct Turn<'a> {
    defining: &'a Defining,
    _guard: MutexGuard<'a, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.defining.state.lock().under_way.clear();
        self.defining.any.store(false, Ordering::Release);
    }
}

impl Defining {
    /// Waits for one's turn.
    pub(crate) fn begin(&self, core: &Core) -> Result<Turn<'_>> {
        let guard = self.lock.try_lock_for(core.options.busy_timeout);
        let guard = guard.ok_or_else(|| {
            Error::new(
                ErrorKind::Busy,
                "other writers are defining tables and fields, and do not get on: try again later",
            )
        })?;
        Ok(Turn {
            defining: self,
            _guard: guard,
        })
    }

    fn is_under_way(&self, table: TableId, field: FieldId) -> bool {
        self.any.load(Ordering::Acquire) && self.state.lock().under_way.contains(&(table, field))
    }

    /// True while integers are checked at the door.
    pub(crate) fn any_look(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}

/// What a look at the integers of a field found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integers {
    /// A float holds each of them.
    Exact,
    /// At least this one is beyond what floats hold.
    Inexact(i64),
    /// Not known: one was found to be inexact before, or there are too many streams, or a
    /// partition cannot be read.
    Unknown,
}

/// True for an integer of which no neighbour becomes the same float.
pub(crate) fn is_exact(value: i64) -> bool {
    value.unsigned_abs() <= EXACT_MAX
}

/// True when a float holds every present integer of a column.
pub(crate) fn all_exact(column: &Column) -> bool {
    match column.values() {
        Values::I64(values) => {
            let mut each = values.iter().enumerate();
            each.all(|(row, value)| is_exact(*value) || !column.is_present(row))
        }
        _ => true,
    }
}

/// Whether a field of integers holds only what floats hold. What is written from now on, as long as
/// the turn lasts, does not change that.
pub(crate) fn look(
    core: &Arc<Core>,
    _turn: &Turn<'_>,
    table: &Table,
    field: FieldId,
    streams_max: u64,
) -> Result<Integers> {
    let key = (table.id, field);
    let by_write = streams_max != u64::MAX;
    if by_write && core.defining.state.lock().inexact.contains(&key) {
        return Ok(Integers::Unknown);
    }
    let streams = core.catalog.stream_count(table.id);
    if streams > streams_max {
        return Ok(Integers::Unknown);
    }
    core.defining.state.lock().under_way.insert(key);
    core.defining.any.store(true, Ordering::Release);
    if streams == 0 {
        return Ok(Integers::Exact);
    }
    // Who came in before the mark is in memory after this, and seen once it is published.
    drop(core.door.shut());
    core.log.wait_published(core.log.newest())?;
    let found = match extremes(core, table, field) {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Integers::Unknown),
        found => found?,
    };
    let mut state = core.defining.state.lock();
    Ok(match found {
        None => {
            state.inexact.remove(&key);
            Integers::Exact
        }
        Some(value) => {
            state.inexact.insert(key);
            state.under_way.remove(&key);
            Integers::Inexact(value)
        }
    })
}

/// An extreme of the field that a float does not hold, if a stream has one.
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

/// Refuses to make fields of integers ones of floats where a stored value would lose digits.
pub(crate) fn check_widening(
    core: &Arc<Core>,
    turn: &Turn<'_>,
    name: &str,
    fields: &[FieldSpec],
) -> Result<()> {
    let Some(table) = core.catalog.table_named(name) else {
        return Ok(());
    };
    for wanted in fields.iter().filter(|f| f.field_type == FieldType::F64) {
        let id = table.field_id(&wanted.name);
        let Some((id, field)) = id.and_then(|id| Some((id, table.field(id)?))) else {
            continue;
        };
        if field.field_type != FieldType::I64 {
            continue;
        }
        let why = match look(core, turn, &table, id, u64::MAX)? {
            Integers::Exact => continue,
            Integers::Inexact(value) => {
                format!("holds {value}, which f64 (DOUBLE) cannot hold exactly")
            }
            Integers::Unknown => "cannot be read everywhere".to_owned(),
        };
        return Err(Error::invalid(format!(
            "field `{}` of table `{name}` {why}, and stays i64 (BIGINT): nothing was changed. Write fractions into another field",
            wanted.name
        )));
    }
    Ok(())
}

/// Sends a writer back whose integers are on their way into a field that has become one of floats
/// since they were checked, or is about to.
pub(crate) fn check_at_door(
    core: &Core,
    table: &Table,
    columns: &[(FieldId, Column)],
) -> Result<()> {
    for (id, column) in columns {
        if column.field_type() != FieldType::I64 {
            continue;
        }
        let Some(field) = table.field(*id) else {
            continue;
        };
        let widens =
            field.field_type == FieldType::F64 || core.defining.is_under_way(table.id, *id);
        if widens && !all_exact(column) {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "field `{}` of table `{}` became one of floats while the batch was checked: write it again",
                    field.name, table.name
                ),
            ));
        }
    }
    Ok(())
}
