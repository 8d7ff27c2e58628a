//! Rows of the tables of `information_schema`, as the SQL standard has them.

use super::columns::{CATALOG, INFORMATION};
use super::listing::Listing;
use super::relations::Relations;
use super::rows::Rows;
use super::types::{PgType, is_list};
use arrow::datatypes::DataType;
use datafusion::common::Result;

/// Fills in the rows of a table; a table that is always empty has none.
pub(super) fn fill(rows: &mut Rows, table: &str, listing: &dyn Listing) -> Result<()> {
    let database = listing.database();
    match table {
        "schemata" => {
            for name in ["information_schema", "pg_catalog", "public"] {
                rows.push([
                    ("catalog_name", database.clone().into()),
                    ("schema_name", name.into()),
                    ("schema_owner", listing.user().into()),
                ]);
            }
        }
        "tables" => {
            let mut table = |schema: &str, name: &str, kind: &str, insertable: &str| {
                rows.push([
                    ("table_catalog", database.clone().into()),
                    ("table_schema", schema.into()),
                    ("table_name", name.into()),
                    ("table_type", kind.into()),
                    ("is_insertable_into", insertable.into()),
                    ("is_typed", "NO".into()),
                ]);
            };
            for (_, shown) in Relations::of(listing)?.iter() {
                match shown.kind() {
                    "r" => table("public", shown.name(), "BASE TABLE", "YES"),
                    "v" => table("public", shown.name(), "VIEW", "NO"),
                    _ => {}
                }
            }
            for definition in CATALOG {
                table("pg_catalog", definition.name, "BASE TABLE", "NO");
            }
            for definition in INFORMATION {
                table("information_schema", definition.name, "VIEW", "NO");
            }
        }
        "columns" => columns(rows, listing)?,
        "views" => {
            for view in listing.views()? {
                rows.push([
                    ("table_catalog", database.clone().into()),
                    ("table_schema", "public".into()),
                    ("table_name", view.name.into()),
                    ("view_definition", view.definition.into()),
                    ("check_option", "NONE".into()),
                    ("is_updatable", "NO".into()),
                    ("is_insertable_into", "NO".into()),
                ]);
            }
        }
        "character_sets" => rows.push([
            ("character_set_name", "UTF8".into()),
            ("character_repertoire", "UCS".into()),
            ("form_of_use", "UTF8".into()),
        ]),
        "information_schema_catalog_name" => rows.push([("catalog_name", database.into())]),
        _ => {}
    }
    Ok(())
}

fn columns(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    let database = listing.database();
    let mut column = |schema: &str,
                      table: &str,
                      index: usize,
                      name: &str,
                      plain: &PgType,
                      list: bool,
                      nullable: bool,
                      whole: bool| {
        let (precision, radix, scale) = match plain.name {
            "numeric" if whole => (Some(20i64), Some(10i64), Some(0i64)),
            "int2" => (Some(16i64), Some(2i64), Some(0i64)),
            "int4" => (Some(32), Some(2), Some(0)),
            "int8" => (Some(64), Some(2), Some(0)),
            "float4" => (Some(24), Some(2), None),
            "float8" => (Some(53), Some(2), None),
            _ => (None, None, None),
        };
        let numbers = !list;
        let optional = |value: Option<i64>| value.filter(|_| numbers);
        let base = [
            ("table_catalog", Some(database.clone().into())),
            ("table_schema", Some(schema.into())),
            ("table_name", Some(table.into())),
            ("column_name", Some(name.into())),
            ("ordinal_position", Some((index + 1).into())),
            (
                "is_nullable",
                Some((if nullable { "YES" } else { "NO" }).into()),
            ),
            (
                "data_type",
                Some((if list { "ARRAY" } else { plain.sql }).into()),
            ),
            ("numeric_precision", optional(precision).map(Into::into)),
            ("numeric_precision_radix", optional(radix).map(Into::into)),
            ("numeric_scale", optional(scale).map(Into::into)),
            (
                "datetime_precision",
                (plain.category == 'D' && !list).then(|| 6i64.into()),
            ),
            ("udt_catalog", Some(database.clone().into())),
            ("udt_schema", Some("pg_catalog".into())),
            (
                "udt_name",
                Some(match list {
                    true => format!("_{}", plain.name).into(),
                    false => plain.name.into(),
                }),
            ),
            ("is_self_referencing", Some("NO".into())),
            ("is_identity", Some("NO".into())),
            ("is_generated", Some("NEVER".into())),
            ("is_updatable", Some("NO".into())),
        ];
        rows.push_some(base);
    };
    let relations = Relations::of(listing)?;
    for (_, shown) in relations.iter().filter(|(_, shown)| shown.kind() != "i") {
        for (index, (name, data_type, always)) in shown.columns().into_iter().enumerate() {
            let plain = PgType::of(data_type);
            column(
                "public",
                shown.name(),
                index,
                name,
                plain,
                is_list(data_type),
                !always,
                // Unsigned numbers, for which PostgreSQL does not have a type.
                *data_type == DataType::UInt64,
            );
        }
    }
    for (schema, tables) in [("pg_catalog", CATALOG), ("information_schema", INFORMATION)] {
        for table in tables {
            for (index, (name, declared)) in table.declared().enumerate() {
                let (element, list) = match declared.strip_suffix("[]") {
                    Some(element) => (element, true),
                    None => (declared, false),
                };
                let plain = PgType::named(element).unwrap_or(PgType::TEXT);
                column(schema, table.name, index, name, plain, list, true, false);
            }
        }
    }
    Ok(())
}
