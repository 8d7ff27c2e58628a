//! The functions of PostgreSQL's catalog that are about tables, views and indexes.
//!
//! Invariants: objects that the session does not see are not reported, by name or by OID.
//! Concurrency: each call reads the listing again.

use super::columns::{self, CATALOG, INFORMATION};
use super::listing::Listing;
use super::names::{quote_ident, read_name};
use super::pg_catalog::describe;
use super::relations::{Relation, Relations, index_definition};
use super::udf::{function, missing, numbers, of_array, texts};
use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;
use std::sync::Arc;

pub(super) fn functions(listing: &Arc<dyn Listing>) -> [Arc<ScalarUDF>; 7] {
    [
        regclass_name(listing),
        regclass_oid(listing, "pg_regclass_oid", true),
        regclass_oid(listing, "to_regclass", false),
        col_description(listing),
        is_visible(listing),
        index_text(listing),
        view_text(listing),
    ]
}

/// The name of a relation by its number, as `regclass` is shown.
fn regclass_name(listing: &Arc<dyn Listing>) -> Arc<ScalarUDF> {
    let listing = Arc::clone(listing);
    function("pg_regclass_name", DataType::Utf8, move |arrays, rows| {
        let relations = Relations::of(listing.as_ref())?;
        let name = |oid: i64| {
            if let Some(relation) = relations.get(oid) {
                return quote_ident(relation.name());
            }
            let is_own = |oid: i64, table: &columns::Definition| i64::from(table.oid) == oid;
            let hidden = INFORMATION.iter().find(|table| is_own(oid, table));
            match (CATALOG.iter().find(|table| is_own(oid, table)), hidden) {
                (Some(table), _) => table.name.to_owned(),
                (None, Some(table)) => format!("information_schema.{}", table.name),
                (None, None) if oid == 0 => "-".to_owned(),
                (None, None) => oid.to_string(),
            }
        };
        let numbers = numbers(arrays, 0, rows)?;
        let made: StringArray = numbers.iter().map(|number| number.map(name)).collect();
        of_array(made)
    })
}

/// OID of the relation with this name; `None` = it does not exist.
fn number_of(relations: &Relations, text: &str) -> Option<u32> {
    let (schema, name) = read_name(text);
    let own = columns::find(schema.as_deref(), &name).map(|(_, table)| table.oid);
    let shown = match schema.as_deref() {
        None | Some("public") => relations.number(&name),
        Some(_) => None,
    };
    shown.or(own)
}

fn no_relation(text: &str) -> datafusion::common::DataFusionError {
    missing(
        "42P01",
        "unknown_table",
        format!("relation \"{text}\" does not exist"),
    )
}

/// OID of a relation by its name; null or an error if it does not exist.
fn regclass_oid(listing: &Arc<dyn Listing>, name: &'static str, strict: bool) -> Arc<ScalarUDF> {
    let listing = Arc::clone(listing);
    function(name, DataType::Int64, move |arrays, rows| {
        let relations = Relations::of(listing.as_ref())?;
        let made = texts(arrays, 0, rows)?
            .iter()
            .map(|text| match text {
                None => Ok(None),
                Some(text) => match (number_of(&relations, text), text.parse::<i64>()) {
                    (Some(oid), _) => Ok(Some(i64::from(oid))),
                    (None, Ok(number)) => Ok(Some(number)),
                    (None, Err(_)) if strict => Err(no_relation(text)),
                    (None, Err(_)) => Ok(None),
                },
            })
            .collect::<Result<Int64Array>>()?;
        of_array(made)
    })
}

/// The kind of a column: a tag, a field or the time.
fn col_description(listing: &Arc<dyn Listing>) -> Arc<ScalarUDF> {
    let listing = Arc::clone(listing);
    function("col_description", DataType::Utf8, move |arrays, rows| {
        let relations = Relations::of(listing.as_ref())?;
        let (oids, columns) = (numbers(arrays, 0, rows)?, numbers(arrays, 1, rows)?);
        let described = |oid: Option<i64>, column: Option<i64>| {
            let Relation::Table(table) = relations.get(oid?)? else {
                return None;
            };
            let index = usize::try_from(column?.checked_sub(1)?).ok()?;
            let (_, data_type, what) = table.columns.get(index)?;
            Some(describe(what, data_type))
        };
        let both = oids.iter().zip(columns.iter());
        let made: StringArray = both.map(|(oid, column)| described(oid, column)).collect();
        of_array(made)
    })
}

/// Tells whether a relation is visible by its name without its schema: relations of `public` and
/// `pg_catalog` are, relations of `information_schema` are not. Null for an absent relation.
fn is_visible(listing: &Arc<dyn Listing>) -> Arc<ScalarUDF> {
    let listing = Arc::clone(listing);
    function(
        "pg_table_is_visible",
        DataType::Boolean,
        move |arrays, rows| {
            let relations = Relations::of(listing.as_ref())?;
            let found = |oid: i64, tables: &[columns::Definition]| {
                tables.iter().any(|table| i64::from(table.oid) == oid)
            };
            let visible = |oid: i64| match relations.get(oid).is_some() || found(oid, CATALOG) {
                true => Some(true),
                false => found(oid, INFORMATION).then_some(false),
            };
            let numbers = numbers(arrays, 0, rows)?;
            let made: BooleanArray = numbers.iter().map(|oid| oid.and_then(visible)).collect();
            of_array(made)
        },
    )
}

/// `pg_get_indexdef(index [, column, pretty])`: the statement that creates an index, or the name of
/// one of its columns.
fn index_text(listing: &Arc<dyn Listing>) -> Arc<ScalarUDF> {
    let listing = Arc::clone(listing);
    function("pg_get_indexdef", DataType::Utf8, move |arrays, rows| {
        let relations = Relations::of(listing.as_ref())?;
        let (oids, columns) = (numbers(arrays, 0, rows)?, numbers(arrays, 1, rows)?);
        let text = |oid: Option<i64>, column: Option<i64>| {
            let Relation::Index(index, _) = relations.get(oid?)? else {
                return None;
            };
            match column.unwrap_or(0) {
                0 => Some(index_definition(index)),
                place => {
                    let at = usize::try_from(place.checked_sub(1)?).ok()?;
                    let field = index.fields.get(at);
                    Some(field.map_or_else(String::new, |field| quote_ident(field)))
                }
            }
        };
        let both = oids.iter().zip(columns.iter());
        let made: StringArray = both.map(|(oid, column)| text(oid, column)).collect();
        of_array(made)
    })
}

/// `pg_get_viewdef(view [, pretty])`: the query of a view, that is named or numbered.
fn view_text(listing: &Arc<dyn Listing>) -> Arc<ScalarUDF> {
    let listing = Arc::clone(listing);
    function("pg_get_viewdef", DataType::Utf8, move |arrays, rows| {
        let relations = Relations::of(listing.as_ref())?;
        let view = |oid: i64| match relations.get(oid) {
            Some(Relation::View(view)) => Some(view.definition.clone()),
            _ => None,
        };
        let named = arrays
            .first()
            .is_some_and(|array| !array.data_type().is_integer());
        let first: ArrayRef = match (arrays.first(), named) {
            (Some(names), true) => cast(names, &DataType::Utf8)?,
            _ => Arc::new(numbers(arrays, 0, rows)?),
        };
        let made = match first.as_any().downcast_ref::<StringArray>() {
            Some(names) => names
                .iter()
                .map(|name| match name.map(|n| (n, number_of(&relations, n))) {
                    None => Ok(None),
                    Some((_, Some(oid))) => Ok(view(oid.into())),
                    Some((name, None)) => match name.parse() {
                        Ok(oid) => Ok(view(oid)),
                        Err(_) => Err(no_relation(name)),
                    },
                })
                .collect::<Result<StringArray>>()?,
            None => numbers(arrays, 0, rows)?
                .iter()
                .map(|oid| oid.and_then(view))
                .collect(),
        };
        of_array(made)
    })
}
