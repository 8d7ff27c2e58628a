//! The functions of PostgreSQL's catalog.
//!
//! Functions of the session itself, such as `current_user`, are replaced by texts when the
//! statement is rewritten; the functions here work on values of rows.

use super::format::{BYTES_MAX, Wrong};
use super::listing::Listing;
use super::names::{parts_of_name, quote_ident, quote_literal, read_name};
use super::pg_catalog::routine_oid;
use super::types::{PgType, format_type};
use super::udf::{function, missing, numbers, of_array, texts};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, ListBuilder, StringArray,
    StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;
use std::sync::Arc;

/// A function of one text.
fn of_text(name: &'static str, f: fn(&str) -> String) -> Arc<ScalarUDF> {
    function(name, DataType::Utf8, move |arrays, rows| {
        let texts = texts(arrays, 0, rows)?;
        let made: StringArray = texts.iter().map(|text| text.map(f)).collect();
        Ok(Arc::new(made) as ArrayRef)
    })
}

/// A function of one number that returns a text.
fn of_number(
    name: &'static str,
    f: impl Fn(i64) -> Option<String> + Send + Sync + 'static,
) -> Arc<ScalarUDF> {
    function(name, DataType::Utf8, move |arrays, rows| {
        let numbers = numbers(arrays, 0, rows)?;
        let made: StringArray = numbers.iter().map(|n| n.and_then(&f)).collect();
        Ok(Arc::new(made) as ArrayRef)
    })
}

fn always(name: &'static str, value: bool) -> Arc<ScalarUDF> {
    function(name, DataType::Boolean, move |_, rows| {
        Ok(Arc::new(BooleanArray::from(vec![value; rows])) as ArrayRef)
    })
}

fn never(name: &'static str, returns: DataType) -> Arc<ScalarUDF> {
    let of = returns.clone();
    function(name, returns, move |_, rows| {
        Ok(arrow::array::new_null_array(&of, rows))
    })
}

/// Descriptions of objects that do not exist here: always null.
const WITHOUT_TEXT: &[&str] = &[
    "obj_description",
    "pg_advisory_unlock_all",
    "pg_get_constraintdef",
    "pg_get_expr",
    "pg_get_function_arg_default",
    "pg_get_function_arguments",
    "pg_get_function_identity_arguments",
    "pg_get_function_result",
    "pg_get_function_sqlbody",
    "pg_get_functiondef",
    "pg_get_partition_constraintdef",
    "pg_get_partkeydef",
    "pg_get_ruledef",
    "pg_get_serial_sequence",
    "pg_get_statisticsobjdef_columns",
    "pg_get_triggerdef",
    "pg_tablespace_location",
    "shobj_description",
];

/// Sizes, which are reported elsewhere, and counts that are not maintained: always null, which
/// tools show as empty.
const WITHOUT_NUMBER: &[&str] = &[
    "pg_database_size",
    "pg_indexes_size",
    "pg_stat_get_numscans",
    "pg_relation_size",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
];

/// Visibility and privileges: every object that a session sees is visible, and a statement without
/// rights is refused when it runs.
const TRUE: &[&str] = &[
    "has_any_column_privilege",
    "has_column_privilege",
    "has_database_privilege",
    "has_function_privilege",
    "has_schema_privilege",
    "has_table_privilege",
    "pg_collation_is_visible",
    "pg_conversion_is_visible",
    "pg_function_is_visible",
    "pg_opclass_is_visible",
    "pg_operator_is_visible",
    "pg_opfamily_is_visible",
    "pg_statistics_obj_is_visible",
    "pg_ts_config_is_visible",
    "pg_ts_dict_is_visible",
    "pg_ts_parser_is_visible",
    "pg_ts_template_is_visible",
    "pg_type_is_visible",
];

const FALSE: &[&str] = &[
    "has_sequence_privilege",
    "pg_has_role",
    "pg_is_in_recovery",
    "pg_is_other_temp_schema",
    "pg_is_wal_replay_paused",
    "pg_relation_is_publishable",
    "row_security_active",
];

/// All functions, for a session that sees the tables of `listing`.
#[must_use]
pub fn functions(listing: &Arc<dyn Listing>) -> Vec<Arc<ScalarUDF>> {
    let mut all: Vec<Arc<ScalarUDF>> = Vec::new();
    all.extend(WITHOUT_TEXT.iter().map(|name| never(name, DataType::Utf8)));
    all.extend(
        WITHOUT_NUMBER
            .iter()
            .map(|name| never(name, DataType::Int64)),
    );
    all.extend(TRUE.iter().map(|name| always(name, true)));
    all.extend(FALSE.iter().map(|name| always(name, false)));
    let user = listing.user();
    all.extend([
        of_text("quote_ident", quote_ident),
        of_text("quote_literal", quote_literal),
        type_name(),
        of_number("pg_get_userbyid", move |_| Some(user.clone())),
        of_number("pg_encoding_to_char", |_| Some("UTF8".to_owned())),
        of_number("pg_size_pretty", |bytes| Some(format!("{bytes} bytes"))),
        of_number("pg_regnamespace_name", |oid| {
            let name = match oid {
                11 => "pg_catalog",
                2200 => "public",
                13_000 => "information_schema",
                _ => return Some(oid.to_string()),
            };
            Some(name.to_owned())
        }),
        regtype_oid("pg_regtype_oid", true),
        regtype_oid("to_regtype", false),
        regnamespace_oid(),
        regproc_oid(),
        numbered(),
        parse_ident(),
        format(),
    ]);
    all.extend(super::relation_functions::functions(listing));
    all.push(current_setting(listing));
    all
}

/// A setting of the session whose name is computed when the statement runs.
fn current_setting(listing: &Arc<dyn Listing>) -> Arc<ScalarUDF> {
    let listing = Arc::clone(listing);
    function("current_setting", DataType::Utf8, move |arrays, rows| {
        let variables = listing.variables();
        let lenient = match arrays.get(1) {
            Some(array) => cast(array, &DataType::Boolean)?,
            None => Arc::new(BooleanArray::from(vec![false; rows])),
        };
        let lenient = lenient.as_boolean();
        let made = texts(arrays, 0, rows)?
            .iter()
            .enumerate()
            .map(|(row, name)| match name.map(|name| variables.get(name)) {
                None => Ok(None),
                Some(Ok(value)) => Ok(Some(value.to_owned())),
                Some(Err(_)) if lenient.is_valid(row) && lenient.value(row) => Ok(None),
                Some(Err(why)) => Err(missing(why.sqlstate(), "unknown_setting", why.to_string())),
            })
            .collect::<Result<StringArray>>()?;
        Ok(Arc::new(made) as ArrayRef)
    })
}

/// The name of a type by its number and its modifier.
fn type_name() -> Arc<ScalarUDF> {
    function("format_type", DataType::Utf8, |arrays, rows| {
        let (oids, modifiers) = (numbers(arrays, 0, rows)?, numbers(arrays, 1, rows)?);
        let both = oids.iter().zip(modifiers.iter());
        let made: StringArray = both
            .map(|(oid, modifier)| oid.map(|oid| format_type(oid, modifier)))
            .collect();
        of_array(made)
    })
}

/// OID of a type by its name; null or an error if the type does not exist.
fn regtype_oid(name: &'static str, strict: bool) -> Arc<ScalarUDF> {
    function(name, DataType::Int64, move |arrays, rows| {
        let made = texts(arrays, 0, rows)?
            .iter()
            .map(|text| {
                let Some(text) = text else { return Ok(None) };
                let name = read_name(text).1;
                let (element, array) = match name.strip_suffix("[]") {
                    Some(element) => (element, true),
                    None => (name.as_str(), false),
                };
                match PgType::named(element) {
                    Some(pg) if array => Ok(Some(i64::from(pg.array))),
                    Some(pg) => Ok(Some(i64::from(pg.oid))),
                    None if !strict => Ok(None),
                    None => Err(missing(
                        "42704",
                        "invalid_value",
                        format!("type \"{text}\" does not exist"),
                    )),
                }
            })
            .collect::<Result<Int64Array>>()?;
        Ok(Arc::new(made) as ArrayRef)
    })
}

/// The number of a schema by its name.
fn regnamespace_oid() -> Arc<ScalarUDF> {
    function("pg_regnamespace_oid", DataType::Int64, |arrays, rows| {
        let made = texts(arrays, 0, rows)?
            .iter()
            .map(|text| match text {
                None => Ok(None),
                Some(text) => match read_name(text).1.as_str() {
                    "pg_catalog" => Ok(Some(11)),
                    "public" => Ok(Some(2200)),
                    "information_schema" => Ok(Some(13_000)),
                    name => match name.parse::<i64>() {
                        Ok(number) => Ok(Some(number)),
                        Err(_) => Err(missing(
                            "3F000",
                            "unknown_table",
                            format!("schema \"{text}\" does not exist"),
                        )),
                    },
                },
            })
            .collect::<Result<Int64Array>>()?;
        Ok(Arc::new(made) as ArrayRef)
    })
}

/// OID of a function by its name: `pg_proc` is empty.
fn regproc_oid() -> Arc<ScalarUDF> {
    function("pg_regproc_oid", DataType::Int64, |arrays, rows| {
        let made = texts(arrays, 0, rows)?
            .iter()
            .map(|text| match text.map(|text| (text, text.parse::<i64>())) {
                None => Ok(None),
                Some((_, Ok(number))) => Ok(Some(number)),
                // No function.
                Some(("-", Err(_))) => Ok(Some(0)),
                Some((text, Err(_))) if routine_oid(text).is_some() => {
                    Ok(routine_oid(text).map(i64::from))
                }
                Some((text, Err(_))) => Err(missing(
                    "42883",
                    "unknown_function",
                    format!("function \"{text}\" does not exist"),
                )),
            })
            .collect::<Result<Int64Array>>()?;
        Ok(Arc::new(made) as ArrayRef)
    })
}

/// `format`, whose pattern may differ in each row.
fn format() -> Arc<ScalarUDF> {
    function("format", DataType::Utf8, |arrays, rows| {
        let all = (0..arrays.len())
            .map(|index| texts(arrays, index, rows))
            .collect::<Result<Vec<_>>>()?;
        let Some((patterns, values)) = all.split_first() else {
            return Err(missing(
                "42883",
                "unknown_function",
                "format: expected a pattern, as in format('%s', id)".to_owned(),
            ));
        };
        let made = (0..rows).map(|row| {
            if patterns.is_null(row) {
                return Ok(None);
            }
            let values: Vec<Option<&str>> = values
                .iter()
                .map(|values| values.is_valid(row).then(|| values.value(row)))
                .collect();
            let text = patterns.value(row);
            super::format::format(text, &values)
                .map(Some)
                .map_err(|wrong| {
                    let why = match wrong {
                        Wrong::TooLong => {
                            let told = format!("format: a text of more than {BYTES_MAX} bytes");
                            return missing("54000", "too_large", told);
                        }
                        Wrong::TooFew => {
                            "there are fewer arguments than the pattern needs".to_owned()
                        }
                        Wrong::NoName => "%I takes a name, found NULL".to_owned(),
                        Wrong::Unknown(Some(kind)) => {
                            format!("expected %s, %I, %L or %%, found %{kind}")
                        }
                        Wrong::Unknown(None) => {
                            "expected %s, %I, %L or %%, found its end".to_owned()
                        }
                    };
                    missing("22023", "invalid_value", format!("format('{text}'): {why}"))
                })
        });
        let made: ArrayRef = Arc::new(made.collect::<Result<StringArray>>()?);
        Ok(made)
    })
}

/// The parts of a name, which may be quoted.
fn parse_ident() -> Arc<ScalarUDF> {
    let returns = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    function("parse_ident", returns, |arrays, rows| {
        let mut made = ListBuilder::new(StringBuilder::new());
        for text in &texts(arrays, 0, rows)? {
            made.append_option(text.map(|text| parts_of_name(text).into_iter().map(Some)));
        }
        Ok(Arc::new(made.finish()) as ArrayRef)
    })
}

/// `_pg_expandarray`, with which tools split keys: a list of the elements with their indexes, which
/// `unnest` turns into rows.
fn numbered() -> Arc<ScalarUDF> {
    let fields = Fields::from(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("n", DataType::Int64, true),
    ]);
    let element = Arc::new(Field::new_list_field(
        DataType::Struct(fields.clone()),
        true,
    ));
    let returns = DataType::List(Arc::clone(&element));
    function("pg_numbered", returns, move |arrays, rows| {
        let (mut values, mut places) = (Vec::new(), Vec::new());
        let mut lengths = Vec::with_capacity(rows);
        let lists = arrays.first().and_then(|array| array.as_list_opt::<i32>());
        for row in 0..rows {
            let before = values.len();
            if let Some(lists) = lists.filter(|lists| lists.is_valid(row)) {
                let list = lists.value(row);
                let count = list.len();
                values.extend(numbers(&[list], 0, count)?.iter());
                places.extend((1..).take(count).map(Some::<i64>));
            }
            lengths.push(values.len() - before);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(values)),
            Arc::new(Int64Array::from(places)),
        ];
        let elements = StructArray::try_new(fields.clone(), columns, None)?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let made = ListArray::try_new(Arc::clone(&element), offsets, Arc::new(elements), None)?;
        of_array(made)
    })
}
