//! The functions of PostgreSQL's catalog.
//!
//! Those that ask about the session itself, such as `current_user`, are put into the statement as
//! texts when it is rewritten; these here work on values of rows.

use super::columns::{self, CATALOG, INFORMATION};
use super::format::{BYTES_MAX, Wrong};
use super::listing::Listing;
use super::names::{oids, parts_of_name, quote_ident, quote_literal, read_name};
use super::pg_catalog::{describe, routine_oid};
use super::types::{PgType, format_type};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, ListBuilder, StringArray,
    StringBuilder, StructArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

type Run = Arc<dyn Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync>;

/// A function over arrays, known by its name.
struct Function {
    name: &'static str,
    returns: DataType,
    signature: Signature,
    run: Run,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.run, &other.run)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args
            .args
            .iter()
            .map(|value| value.to_array(rows))
            .collect::<Result<Vec<_>>>()?;
        (self.run)(&arrays, rows).map(ColumnarValue::Array)
    }
}

fn function(
    name: &'static str,
    returns: DataType,
    run: impl Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync + 'static,
) -> Arc<ScalarUDF> {
    let any = vec![
        datafusion::logical_expr::TypeSignature::Nullary,
        datafusion::logical_expr::TypeSignature::VariadicAny,
    ];
    Arc::new(ScalarUDF::new_from_impl(Function {
        name,
        returns,
        signature: Signature::one_of(any, Volatility::Stable),
        run: Arc::new(run),
    }))
}

/// An argument as texts; nulls where there is none.
fn texts(arrays: &[ArrayRef], index: usize, rows: usize) -> Result<StringArray> {
    let Some(array) = arrays.get(index) else {
        return Ok(StringArray::new_null(rows));
    };
    let array = cast(array, &DataType::Utf8)?;
    array
        .as_any()
        .downcast_ref::<StringArray>()
        .cloned()
        .ok_or_else(|| exec_datafusion_err!("a text is expected"))
}

/// An argument as whole numbers; nulls where there is none, or it is no number.
fn numbers(arrays: &[ArrayRef], index: usize, rows: usize) -> Result<Int64Array> {
    let Some(array) = arrays.get(index) else {
        return Ok(Int64Array::new_null(rows));
    };
    let array = cast(array, &DataType::Int64)?;
    array
        .as_any()
        .downcast_ref::<Int64Array>()
        .cloned()
        .ok_or_else(|| exec_datafusion_err!("a whole number is expected"))
}

/// There is nothing of this name.
fn missing(sqlstate: &'static str, code: &'static str, message: String) -> DataFusionError {
    headwater_query::Error::new(code, sqlstate, message).into()
}

/// A function of one text.
fn of_text(name: &'static str, f: fn(&str) -> String) -> Arc<ScalarUDF> {
    function(name, DataType::Utf8, move |arrays, rows| {
        let texts = texts(arrays, 0, rows)?;
        let made: StringArray = texts.iter().map(|text| text.map(f)).collect();
        Ok(Arc::new(made) as ArrayRef)
    })
}

/// A function of one number that gives a text.
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

/// Tells of things there are none of here: always null.
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
    "pg_get_indexdef",
    "pg_get_partition_constraintdef",
    "pg_get_partkeydef",
    "pg_get_ruledef",
    "pg_get_serial_sequence",
    "pg_get_statisticsobjdef_columns",
    "pg_get_triggerdef",
    "pg_get_viewdef",
    "pg_tablespace_location",
    "shobj_description",
];

/// Sizes, which are told elsewhere, and counts that nobody keeps: always null, which tools show as
/// nothing.
const WITHOUT_NUMBER: &[&str] = &[
    "pg_database_size",
    "pg_indexes_size",
    "pg_stat_get_numscans",
    "pg_relation_size",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
];

/// What one sees is visible, and what one may not do is told when it is tried.
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
    "pg_table_is_visible",
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

/// All functions, for a session that sees what `listing` lists.
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
        of_number("format_type", |oid| Some(format_type(oid))),
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
        expand_array(),
        parse_ident(),
        format(),
    ]);
    all.extend(of_tables(listing));
    all.extend([col_description(listing), current_setting(listing)]);
    all
}

/// Numbers of tables to names and back.
fn of_tables(listing: &Arc<dyn Listing>) -> [Arc<ScalarUDF>; 3] {
    let names = Arc::clone(listing);
    let name = function("pg_regclass_name", DataType::Utf8, move |arrays, rows| {
        let tables = names.tables()?;
        let known = oids(tables.iter().map(|table| table.name.as_str()));
        let numbers = numbers(arrays, 0, rows)?;
        let made: StringArray = numbers
            .iter()
            .map(|number| {
                let number = number?;
                let oid = u32::try_from(number).unwrap_or_default();
                let own = CATALOG.iter().chain(INFORMATION).find(|t| t.oid == oid);
                Some(match (known.get(&oid), own, number) {
                    (Some(name), _, _) => quote_ident(name),
                    (None, Some(table), _) => table.name.to_owned(),
                    (None, None, 0) => "-".to_owned(),
                    (None, None, number) => number.to_string(),
                })
            })
            .collect();
        Ok(Arc::new(made) as ArrayRef)
    });
    let numbers_of = |name: &'static str, strict: bool| {
        let listing = Arc::clone(listing);
        function(name, DataType::Int64, move |arrays, rows| {
            let tables = listing.tables()?;
            let known = oids(tables.iter().map(|table| table.name.as_str()));
            let find = |text: &str| -> Option<u32> {
                let (schema, name) = read_name(text);
                let own = columns::find(schema.as_deref(), &name).map(|(_, table)| table.oid);
                let shown = match schema.as_deref() {
                    None | Some("public") => known.iter().find(|(_, known)| **known == name),
                    Some(_) => None,
                };
                shown.map(|(oid, _)| *oid).or(own)
            };
            let made = texts(arrays, 0, rows)?
                .iter()
                .map(|text| match text {
                    None => Ok(None),
                    Some(text) => match (find(text), text.parse::<i64>()) {
                        (Some(oid), _) => Ok(Some(i64::from(oid))),
                        (None, Ok(number)) => Ok(Some(number)),
                        (None, Err(_)) if strict => Err(missing(
                            "42P01",
                            "unknown_table",
                            format!("relation \"{text}\" does not exist"),
                        )),
                        (None, Err(_)) => Ok(None),
                    },
                })
                .collect::<Result<Int64Array>>()?;
            Ok(Arc::new(made) as ArrayRef)
        })
    };
    [
        name,
        numbers_of("pg_regclass_oid", true),
        numbers_of("to_regclass", false),
    ]
}

/// What a column is: a tag, a field or the time.
fn col_description(listing: &Arc<dyn Listing>) -> Arc<ScalarUDF> {
    let listing = Arc::clone(listing);
    function("col_description", DataType::Utf8, move |arrays, rows| {
        let tables = listing.tables()?;
        let known = oids(tables.iter().map(|table| table.name.as_str()));
        let (oids, columns) = (numbers(arrays, 0, rows)?, numbers(arrays, 1, rows)?);
        let describe = |oid: Option<i64>, column: Option<i64>| {
            let name = known.get(&u32::try_from(oid?).ok()?)?;
            let table = tables.iter().find(|table| table.name == *name)?;
            let index = usize::try_from(column?.checked_sub(1)?).ok()?;
            let (_, data_type, what) = table.columns.get(index)?;
            Some(describe(what, data_type))
        };
        let made: StringArray = oids
            .iter()
            .zip(columns.iter())
            .map(|(oid, column)| describe(oid, column))
            .collect();
        Ok(Arc::new(made) as ArrayRef)
    })
}

/// A setting of the session whose name is only known when the statement runs.
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

/// The number of a type by its name; null or an error where there is none.
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

/// The number of a function by its name: `pg_proc` lists none.
fn regproc_oid() -> Arc<ScalarUDF> {
    function("pg_regproc_oid", DataType::Int64, |arrays, rows| {
        let made = texts(arrays, 0, rows)?
            .iter()
            .map(|text| match text.map(|text| (text, text.parse::<i64>())) {
                None => Ok(None),
                Some((_, Ok(number))) => Ok(Some(number)),
                // There is none.
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

/// `format`, whose pattern may be another one in each row.
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
                        Wrong::TooFew => "it asks for more values than there are".to_owned(),
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

/// `_pg_expandarray`, by which tools take keys apart. Keys have no rows here, so neither does this.
fn expand_array() -> Arc<ScalarUDF> {
    let fields = Fields::from(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("n", DataType::Int64, true),
    ]);
    let returns = DataType::Struct(fields.clone());
    function("_pg_expandarray", returns, move |arrays, rows| {
        // The first element stands for all; of arrays without elements it is null.
        let first: Int64Array = match arrays
            .first()
            .and_then(|a| a.as_any().downcast_ref::<ListArray>())
        {
            Some(lists) => {
                let values = (0..rows).map(|row| {
                    if lists.is_null(row) || lists.value_length(row) == 0 {
                        return Ok(None);
                    }
                    let numbers = numbers(&[lists.value(row)], 0, rows)?;
                    Ok((!numbers.is_null(0)).then(|| numbers.value(0)))
                });
                values.collect::<Result<Int64Array>>()?
            }
            None => Int64Array::new_null(rows),
        };
        let ones: Int64Array = first.iter().map(|value| value.map(|_| 1)).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(first), Arc::new(ones)];
        let made = StructArray::try_new(fields.clone(), columns, None)?;
        Ok(Arc::new(made) as ArrayRef)
    })
}
