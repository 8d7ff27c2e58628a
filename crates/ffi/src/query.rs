//! Prepared queries: which streams, which fields, which values; asked for as many ranges as one
//! likes.

use crate::column::hw_value;
use crate::database::{Store, hw_db};
use crate::handles::{self, Handled};
use crate::rows::FieldNames;
use crate::status::{Outcome, guard, hw_error, invalid, out, write_result};
use crate::stream::{Stream, hw_stream};
use crate::text::{by_key, hw_str, hw_tag, names, slice, tags};
use headwater::{ClosedRange, Comparison, Filter, ScanSpec};
use std::sync::{Arc, Mutex, Weak};

/// A prepared query. To end with hw_release.
pub type hw_query = u64;

/// The value is equal to the one given.
pub const HW_EQUAL: i32 = 1;
/// Not equal; a NaN is not equal to anything.
pub const HW_NOT_EQUAL: i32 = 2;
/// Less than the value.
pub const HW_LESS: i32 = 3;
/// Less than the value, or equal.
pub const HW_LESS_OR_EQUAL: i32 = 4;
/// Greater than the value.
pub const HW_GREATER: i32 = 5;
/// Greater than the value, or equal.
pub const HW_GREATER_OR_EQUAL: i32 = 6;

/// A condition on one field. Rows without a value in it never match.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hw_filter {
    /// The field.
    pub field: hw_str,
    /// HW_EQUAL …
    pub comparison: i32,
    /// The value to compare with, of the field's type; an integer is taken for a field of doubles
    /// too.
    pub value: hw_value,
}

/// Streams that a query reads.
pub(crate) enum Subject {
    Stream(Arc<Stream>),
    Table {
        table: String,
        /// Tags, each with the values that it may have.
        tags: Vec<(String, Vec<String>)>,
    },
}

/// A prepared query behind a handle.
pub(crate) struct Query {
    pub(crate) store: Weak<Store>,
    pub(crate) subject: Subject,
    spec: ScanSpec,
    /// A copy to put a range into.
    spare: Mutex<ScanSpec>,
    /// Names of the fields asked for; `None` = all.
    pub(crate) names: Option<FieldNames>,
}

impl Handled for Query {
    const KIND: &'static str = "a query";
}

impl Query {
    /// Reads a range. Names are only copied when another thread reads at the same instant.
    pub(crate) fn read_range<T>(
        &self,
        range: ClosedRange,
        read: impl FnOnce(&ScanSpec) -> headwater::Result<T>,
    ) -> Outcome<T> {
        if let Ok(mut spec) = self.spare.try_lock() {
            spec.range = range;
            return Ok(read(&spec)?);
        }
        let spec = ScanSpec {
            range,
            ..self.spec.clone()
        };
        Ok(read(&spec)?)
    }
}

/// The fields and filters of each stream as the caller gives them.
fn columns_of(
    fields: *const hw_str,
    field_count: usize,
    filters: *const hw_filter,
    filter_count: usize,
) -> Outcome<ScanSpec> {
    let fields = names(fields, field_count, "fields")?;
    let filters = slice(filters, filter_count, "filters")?.iter().map(|f| {
        let field = f.field.read("filter field")?;
        let comparison = match f.comparison {
            HW_EQUAL => Comparison::Equal,
            HW_NOT_EQUAL => Comparison::NotEqual,
            HW_LESS => Comparison::Less,
            HW_LESS_OR_EQUAL => Comparison::LessOrEqual,
            HW_GREATER => Comparison::Greater,
            HW_GREATER_OR_EQUAL => Comparison::GreaterOrEqual,
            other => {
                return Err(invalid(format!(
                    "filter on `{field}`: expected a comparison HW_EQUAL (1) to HW_GREATER_OR_EQUAL (6), found {other}"
                )));
            }
        };
        Ok(Filter {
            field: field.to_owned(),
            comparison,
            value: f.value.read(&format!("filter on `{field}`"))?,
        })
    });
    Ok(ScanSpec {
        filters: filters.collect::<Outcome<_>>()?,
        fields: (!fields.is_empty()).then_some(fields),
        ..ScanSpec::default()
    })
}

fn register_query(store: Weak<Store>, subject: Subject, spec: ScanSpec) -> hw_query {
    let boxed = |names: &Vec<String>| names.iter().map(|n| n.as_str().into()).collect();
    let query = Query {
        store,
        subject,
        names: spec.fields.as_ref().map(boxed),
        spare: Mutex::new(spec.clone()),
        spec,
    };
    handles::register(query).0
}

/// A query for rows of one stream: these fields in this order (none = all, in the order they were
/// added), of rows for which all filters hold. The database is read when the query runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_query_stream(
    stream: hw_stream,
    fields: *const hw_str,
    field_count: usize,
    filters: *const hw_filter,
    filter_count: usize,
    query: *mut hw_query,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(query, "query")?;
        let stream = handles::get::<Stream>(stream)?;
        let spec = columns_of(fields, field_count, filters, filter_count)?;
        let store = Weak::clone(&stream.store);
        write_result(
            query,
            register_query(store, Subject::Stream(stream), spec),
            "query",
        )
    })
}

/// As hw_query_stream, for the streams of a table that have these tags; no tags = all of them. A
/// key that comes several times may have any of its values. For hw_scan_open and hw_replay_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_query_table(
    db: hw_db,
    table: hw_str,
    tags: *const hw_tag,
    tag_count: usize,
    fields: *const hw_str,
    field_count: usize,
    filters: *const hw_filter,
    filter_count: usize,
    query: *mut hw_query,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        out(query, "query")?;
        let store = handles::get::<Store>(db)?;
        let subject = Subject::Table {
            table: table.read("table")?.to_owned(),
            tags: by_key(self::tags(tags, tag_count)?),
        };
        let spec = columns_of(fields, field_count, filters, filter_count)?;
        write_result(
            query,
            register_query(Arc::downgrade(&store), subject, spec),
            "query",
        )
    })
}
