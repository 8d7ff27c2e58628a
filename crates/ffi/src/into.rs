//! Rows of one field, copied into the caller's own memory: of one query, or of many at once.
//!
//! Invariants: what one call reads is of one snapshot. Nothing is written behind the memory that
//! the caller gives. Concurrency: any number of threads, each with memory of its own. Failure: what
//! was copied before an error means nothing.

use crate::handles;
use crate::query::{Query, hw_query};
use crate::scan::{one_stream, range};
use crate::snapshot::{hw_snapshot, view_of};
use crate::status::{Outcome, guard, hw_error, invalid, out, write_result};
use crate::text::slice;
use headwater::{ClosedRange, ColumnSlice, FieldType, RowBlock, Snapshot};

/// Numbers that are copied to a caller's memory.
trait Number: Copy {
    const TYPE: FieldType;
    fn of<'a>(column: &ColumnSlice<'a>) -> Option<&'a [Self]>;
}

impl Number for f64 {
    const TYPE: FieldType = FieldType::F64;
    fn of<'a>(column: &ColumnSlice<'a>) -> Option<&'a [f64]> {
        column.f64s()
    }
}

impl Number for i64 {
    const TYPE: FieldType = FieldType::I64;
    fn of<'a>(column: &ColumnSlice<'a>) -> Option<&'a [i64]> {
        column.i64s()
    }
}

impl Number for u64 {
    const TYPE: FieldType = FieldType::U64;
    fn of<'a>(column: &ColumnSlice<'a>) -> Option<&'a [u64]> {
        column.u64s()
    }
}

/// The caller's memory for times and values.
struct OutputSlices<'a, T> {
    times: &'a mut [std::mem::MaybeUninit<i64>],
    values: &'a mut [std::mem::MaybeUninit<T>],
    /// All rows of the range, also those beyond the capacity.
    count: usize,
}

impl<T: Number> OutputSlices<'_, T> {
    fn add(&mut self, rows: &RowBlock<'_>) -> Outcome<()> {
        if rows.width() != 1 {
            return Err(invalid(format!(
                "expected a query for one field, this one has {}",
                rows.width()
            )));
        }
        if let Some(found) = rows.field_type(0)
            && found != T::TYPE
        {
            return Err(invalid(format!(
                "expected a field of {}, found {found}",
                T::TYPE
            )));
        }
        // Rows without a value are left out.
        let Some(column) = rows.column(0) else {
            return Ok(());
        };
        let (times, values) = (rows.times(), T::of(&column).unwrap_or_default());
        if column.has_all() {
            let room = self.times.len().saturating_sub(self.count).min(times.len());
            if room > 0 {
                let at = self.count..self.count + room;
                self.times[at.clone()].write_copy_of_slice(&times[..room]);
                self.values[at].write_copy_of_slice(&values[..room]);
            }
            self.count += times.len();
            return Ok(());
        }
        for (row, (time, value)) in times.iter().zip(values).enumerate() {
            if column.is_present(row) {
                if let (Some(t), Some(v)) = (
                    self.times.get_mut(self.count),
                    self.values.get_mut(self.count),
                ) {
                    t.write(*time);
                    v.write(*value);
                }
                self.count += 1;
            }
        }
        Ok(())
    }

    /// Adds the rows of a query.
    fn read(&mut self, query: &Query, view: &Snapshot, range: ClosedRange) -> Outcome<()> {
        let found = one_stream(query)?.at(view)?;
        let mut added = Ok(());
        query.read_range(range, |spec| {
            found.visit(view, spec, |rows| {
                if added.is_ok() {
                    added = self.add(&rows);
                }
            })
        })?;
        added
    }
}

/// The caller's memory, to be written to.
fn output_slices<'a, T>(
    data: *mut T,
    count: usize,
    what: &str,
) -> Outcome<&'a mut [std::mem::MaybeUninit<T>]> {
    let checked = slice(
        data.cast_const().cast::<std::mem::MaybeUninit<T>>(),
        count,
        what,
    )?;
    if checked.is_empty() {
        return Ok(&mut []);
    }
    // SAFETY: pointer and count are as `slice` checked them; that the memory may be written to and
    // that nobody else uses it during the call is the caller's part of the contract.
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), count) })
}

fn read_into<T: Number>(
    query: hw_query,
    snapshot: hw_snapshot,
    range: ClosedRange,
    times: *mut i64,
    values: *mut T,
    capacity: usize,
    count: *mut usize,
) -> Outcome<()> {
    out(count, "row_count")?;
    let query = handles::get::<Query>(query)?;
    let mut places = OutputSlices {
        times: output_slices(times, capacity, "times_ns")?,
        values: output_slices(values, capacity, "values")?,
        count: 0,
    };
    let view = view_of(&query.store, snapshot)?;
    places.read(&query, &view, range)?;
    write_result(count, places.count, "row_count")
}

/// The times and values of a query for one field of one stream, copied to the caller's memory; rows
/// without a value are left out. row_count gets the number of rows there are: when that is more
/// than capacity, the first of them were copied; call again with memory for all, or from the last
/// time on. HW_INVALID when the field is of another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_read_f64(
    query: hw_query,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    times_ns: *mut i64,
    values: *mut f64,
    capacity: usize,
    row_count: *mut usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let range = range(first_ns, last_ns);
        read_into(
            query, snapshot, range, times_ns, values, capacity, row_count,
        )
    })
}

/// As hw_read_f64, of signed integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_read_i64(
    query: hw_query,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    times_ns: *mut i64,
    values: *mut i64,
    capacity: usize,
    row_count: *mut usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let range = range(first_ns, last_ns);
        read_into(
            query, snapshot, range, times_ns, values, capacity, row_count,
        )
    })
}

/// As hw_read_f64, of unsigned integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_read_u64(
    query: hw_query,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    times_ns: *mut i64,
    values: *mut u64,
    capacity: usize,
    row_count: *mut usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let range = range(first_ns, last_ns);
        read_into(
            query, snapshot, range, times_ns, values, capacity, row_count,
        )
    })
}

fn read_many_into<T: Number>(
    queries: &[hw_query],
    snapshot: hw_snapshot,
    range: ClosedRange,
    times: *mut i64,
    values: *mut T,
    capacity: usize,
    row_counts: *mut usize,
) -> Outcome<()> {
    let counts = output_slices(row_counts, queries.len(), "row_counts")?;
    let mut places = OutputSlices {
        times: output_slices(times, capacity, "times_ns")?,
        values: output_slices(values, capacity, "values")?,
        count: 0,
    };
    let mut shared = None;
    for (query, count) in queries.iter().zip(counts) {
        let query = handles::get::<Query>(*query)?;
        let (store, view) = match &shared {
            Some(shared) => shared,
            None => {
                let view = view_of(&query.store, snapshot)?;
                &*shared.insert((query.store.clone(), view))
            }
        };
        if !query.store.ptr_eq(store) {
            return Err(invalid("the queries belong to different databases"));
        }
        let before = places.count;
        places.read(&query, view, range)?;
        count.write(places.count - before);
    }
    Ok(())
}

/// As hw_read_f64 for each of many queries of one database, all in one snapshot. The rows of a
/// query stand behind those of the one before; row_counts gets the number of rows that there are of
/// each. When their sum is more than capacity, the first of them all were copied: call again with
/// memory for all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_read_many_f64(
    queries: *const hw_query,
    query_count: usize,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    times_ns: *mut i64,
    values: *mut f64,
    capacity: usize,
    row_counts: *mut usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let range = range(first_ns, last_ns);
        let queries = slice(queries, query_count, "queries")?;
        read_many_into(
            queries, snapshot, range, times_ns, values, capacity, row_counts,
        )
    })
}

/// As hw_read_many_f64, of signed integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_read_many_i64(
    queries: *const hw_query,
    query_count: usize,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    times_ns: *mut i64,
    values: *mut i64,
    capacity: usize,
    row_counts: *mut usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let range = range(first_ns, last_ns);
        let queries = slice(queries, query_count, "queries")?;
        read_many_into(
            queries, snapshot, range, times_ns, values, capacity, row_counts,
        )
    })
}

/// As hw_read_many_f64, of unsigned integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_read_many_u64(
    queries: *const hw_query,
    query_count: usize,
    snapshot: hw_snapshot,
    first_ns: i64,
    last_ns: i64,
    times_ns: *mut i64,
    values: *mut u64,
    capacity: usize,
    row_counts: *mut usize,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        let range = range(first_ns, last_ns);
        let queries = slice(queries, query_count, "queries")?;
        read_many_into(
            queries, snapshot, range, times_ns, values, capacity, row_counts,
        )
    })
}
