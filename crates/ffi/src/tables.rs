//! Tables: declaring, changing and listing them, and ending what they hold.

use crate::column::field_type;
use crate::database::{Store, hw_db};
use crate::handles;
use crate::json;
use crate::status::{Outcome, guard, hw_error, invalid, out, write_result};
use crate::text::{hw_str, hw_tag, hw_text, slice, tags};
use headwater::{ClosedRange, DeleteSpec, Duplicates, FieldSpec, TableChange, TableSpec};
use serde_json::Value;
use std::time::Duration;

/// Of equal timestamps the later write wins, field by field.
pub const HW_DUPLICATES_LAST: i32 = 1;
/// Rows of equal timestamps are all stored, in order of arrival.
pub const HW_DUPLICATES_KEEP: i32 = 2;
/// Rows live for ever: for retention_ns and raw_for_ns of hw_table.
pub const HW_FOR_EVER: i64 = -1;

/// A field to declare.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_field {
    /// Its name.
    pub name: hw_str,
    /// HW_F64 …
    pub value_type: i32,
}

/// A table to declare, or changes to one. All zeros = the defaults, or no change.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_table {
    /// HW_DUPLICATES_LAST or HW_DUPLICATES_KEEP; 0 = the default, which is HW_DUPLICATES_LAST, or
    /// no change. A change is possible only before the first write.
    pub duplicates: i32,
    /// Events of a full leaf, 16 to 65,536; 0 = the database's default, or no change.
    pub leaf_events: u32,
    /// Rows older than this are removed, ns; HW_FOR_EVER; 0 = for ever, or no change.
    pub retention_ns: i64,
    /// Rows older than this are removed and leave their aggregates, ns; HW_FOR_EVER; 0 = for ever,
    /// or no change.
    pub raw_for_ns: i64,
    /// Fields to declare, or to add; a field of HW_I64 may be given as HW_F64, which widens it.
    /// More fields may come with writes.
    pub fields: *const hw_field,
    /// Their number.
    pub field_count: usize,
}

/// `None` = not given; `Some(None)` = for ever.
fn optional_duration(ns: i64, what: &str) -> Outcome<Option<Option<Duration>>> {
    match ns {
        0 => Ok(None),
        HW_FOR_EVER => Ok(Some(None)),
        _ => match u64::try_from(ns) {
            Ok(ns) => Ok(Some(Some(Duration::from_nanos(ns)))),
            Err(_) => Err(invalid(format!(
                "{what}: expected a time above 0, or 0, or HW_FOR_EVER (-1), found {ns}"
            ))),
        },
    }
}

fn read(table: *const hw_table) -> Outcome<TableChange> {
    if table.is_null() {
        return Ok(TableChange::default());
    }
    let mut change = TableChange::default();
    for table in slice(table, 1, "table")? {
        change.duplicates = match table.duplicates {
            0 => None,
            HW_DUPLICATES_LAST => Some(Duplicates::Last),
            HW_DUPLICATES_KEEP => Some(Duplicates::Keep),
            other => {
                return Err(invalid(format!(
                    "duplicates: expected 0, HW_DUPLICATES_LAST or HW_DUPLICATES_KEEP, found {other}"
                )));
            }
        };
        change.leaf_events = (table.leaf_events > 0).then_some(table.leaf_events);
        change.retention = optional_duration(table.retention_ns, "retention_ns")?;
        change.raw_for = optional_duration(table.raw_for_ns, "raw_for_ns")?;
        for field in slice(table.fields, table.field_count, "fields")? {
            let name = field.name.read("field name")?;
            change.add_fields.push(FieldSpec {
                name: name.to_owned(),
                field_type: field_type(field.value_type, &format!("field `{name}`"))?,
            });
        }
    }
    Ok(change)
}

/// Declares a table. spec NULL = with the defaults. Writing to a table that is not there makes one
/// too. HW_INVALID when there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_table_create(
    db: hw_db,
    name: hw_str,
    spec: *const hw_table,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let change = read(spec)?;
        let spec = TableSpec {
            duplicates: change.duplicates.unwrap_or_default(),
            leaf_events: change.leaf_events,
            fields: change.add_fields,
            retention: change.retention.flatten(),
            raw_for: change.raw_for.flatten(),
            ..TableSpec::new(name.read("name")?)
        };
        handles::get::<Store>(db)?.owner()?.create_table(&spec)?;
        Ok(())
    })
}

/// Changes a table; what is stored stays as it is. HW_NOT_FOUND without one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_table_alter(
    db: hw_db,
    name: hw_str,
    change: *const hw_table,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let change = read(change)?;
        let store = handles::get::<Store>(db)?;
        store.owner()?.alter_table(name.read("name")?, &change)?;
        Ok(())
    })
}

/// Drops a table with all its streams and events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_table_drop(db: hw_db, name: hw_str, error: *mut hw_error) -> i32 {
    guard(error, || {
        let store = handles::get::<Store>(db)?;
        Ok(store.owner()?.drop_table(name.read("name")?)?)
    })
}

/// The tables, as a JSON list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_tables(db: hw_db, text: *mut hw_text, error: *mut hw_error) -> i32 {
    guard(error, || {
        out(text, "text")?;
        let tables = handles::get::<Store>(db)?.tables();
        let list = Value::Array(tables.iter().map(json::table).collect());
        write_result(text, hw_text::make(list.to_string()), "text")
    })
}

/// Writes a number that the caller may not want to know.
fn give_count(to: *mut u64, count: u64) -> Outcome<()> {
    if to.is_null() {
        return Ok(());
    }
    write_result(to, count, "stream_count")
}

/// Deletes the events from first_ns to last_ns, both included, of the streams of a table that have
/// these tags; no tags = all of them. Only events written before this call are deleted: later
/// writes stay. stream_count gets the number of streams concerned; NULL = not returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_delete(
    db: hw_db,
    table: hw_str,
    tags: *const hw_tag,
    tag_count: usize,
    first_ns: i64,
    last_ns: i64,
    stream_count: *mut u64,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let spec = DeleteSpec {
            table: table.read("table")?.to_owned(),
            tags: self::tags(tags, tag_count)?,
            range: ClosedRange::nanos(first_ns, last_ns),
        };
        let count = handles::get::<Store>(db)?.owner()?.delete(&spec)?;
        give_count(stream_count, count)
    })
}

/// Drops the streams of a table that have these tags, at least one tag, with all their events.
/// stream_count gets their number; NULL = not returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_drop_streams(
    db: hw_db,
    table: hw_str,
    tags: *const hw_tag,
    tag_count: usize,
    stream_count: *mut u64,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let tags = self::tags(tags, tag_count)?;
        let store = handles::get::<Store>(db)?;
        let count = store.owner()?.drop_streams(table.read("table")?, &tags)?;
        give_count(stream_count, count)
    })
}
