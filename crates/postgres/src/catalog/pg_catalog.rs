//! Rows of the tables of `pg_catalog`.

use super::columns::{CATALOG, INFORMATION};
use super::listing::Listing;
use super::names::{
    CATALOG_OID, DATABASE_OID, INFORMATION_OID, PUBLIC_OID, RESERVED, USER_OID, oids,
};
use super::rows::{Cell, Rows};
use super::types::{PgType, is_list};
use arrow::datatypes::DataType;
use datafusion::common::Result;

/// The number of UTF-8 among PostgreSQL's encodings.
pub(super) const UTF8: i64 = 6;

/// Fills in the rows of a table; of one that is always empty, none.
pub(super) fn fill(rows: &mut Rows, table: &str, listing: &dyn Listing) -> Result<()> {
    match table {
        "pg_class" => classes(rows, listing)?,
        "pg_attribute" => attributes(rows, listing)?,
        "pg_type" => types(rows),
        "pg_description" => descriptions(rows, listing)?,
        "pg_tables" => {
            for shown in listing.tables()? {
                rows.push([
                    ("schemaname", "public".into()),
                    ("tablename", shown.name.into()),
                    ("tableowner", listing.user().into()),
                    ("hasindexes", false.into()),
                    ("hasrules", false.into()),
                    ("hastriggers", false.into()),
                    ("rowsecurity", false.into()),
                ]);
            }
        }
        "pg_namespace" => {
            for (oid, name) in [
                (CATALOG_OID, "pg_catalog"),
                (PUBLIC_OID, "public"),
                (INFORMATION_OID, "information_schema"),
            ] {
                rows.push([
                    ("oid", oid.into()),
                    ("nspname", name.into()),
                    ("nspowner", USER_OID.into()),
                ]);
            }
        }
        "pg_database" => rows.push([
            ("oid", DATABASE_OID.into()),
            ("datname", listing.database().into()),
            ("datdba", USER_OID.into()),
            ("encoding", UTF8.into()),
            ("datlocprovider", "c".into()),
            ("datistemplate", false.into()),
            ("datallowconn", true.into()),
            ("datconnlimit", (-1).into()),
            ("dattablespace", 1663u32.into()),
            ("datcollate", "C".into()),
            ("datctype", "C".into()),
        ]),
        "pg_roles" => rows.push([
            ("oid", USER_OID.into()),
            ("rolname", listing.user().into()),
            ("rolsuper", false.into()),
            ("rolinherit", true.into()),
            ("rolcreaterole", false.into()),
            ("rolcreatedb", false.into()),
            ("rolcanlogin", true.into()),
            ("rolreplication", false.into()),
            ("rolconnlimit", (-1).into()),
            ("rolbypassrls", false.into()),
        ]),
        "pg_authid" => rows.push([
            ("oid", USER_OID.into()),
            ("rolname", listing.user().into()),
            ("rolsuper", false.into()),
            ("rolinherit", true.into()),
            ("rolcreaterole", false.into()),
            ("rolcreatedb", false.into()),
            ("rolcanlogin", true.into()),
            ("rolreplication", false.into()),
            ("rolconnlimit", (-1).into()),
            ("rolbypassrls", false.into()),
        ]),
        "pg_stat_database" => rows.push([
            ("datid", DATABASE_OID.into()),
            ("datname", listing.database().into()),
        ]),
        "pg_proc" => routines(rows),
        "pg_user" | "pg_shadow" => rows.push([
            ("usesysid", USER_OID.into()),
            ("usename", listing.user().into()),
            ("usecreatedb", false.into()),
            ("usesuper", false.into()),
            ("userepl", false.into()),
            ("usebypassrls", false.into()),
        ]),
        "pg_settings" => {
            for (name, value, about) in listing.variables().all() {
                rows.push([
                    ("name", name.into()),
                    ("setting", value.into()),
                    ("category", "Headwater".into()),
                    ("short_desc", about.into()),
                    ("context", "user".into()),
                    ("vartype", "string".into()),
                    ("source", "session".into()),
                    ("boot_val", value.into()),
                    ("reset_val", value.into()),
                    ("pending_restart", false.into()),
                ]);
            }
        }
        "pg_get_keywords" => {
            for word in RESERVED {
                rows.push([
                    ("word", (*word).into()),
                    ("catcode", "R".into()),
                    ("barelabel", true.into()),
                    ("catdesc", "reserved".into()),
                    ("baredesc", "can be bare label".into()),
                ]);
            }
        }
        "pg_am" => rows.push([
            ("oid", 2u32.into()),
            ("amname", "heap".into()),
            ("amhandler", "heap_tableam_handler".into()),
            ("amtype", "t".into()),
        ]),
        "pg_tablespace" => rows.push([
            ("oid", 1663u32.into()),
            ("spcname", "pg_default".into()),
            ("spcowner", USER_OID.into()),
        ]),
        _ => {}
    }
    Ok(())
}

fn classes(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    let mut class = |oid: u32, name: &str, schema: u32, columns: usize, kind: &str| {
        rows.push([
            ("oid", oid.into()),
            ("relname", name.into()),
            ("relnamespace", schema.into()),
            ("reltype", 0u32.into()),
            ("reloftype", 0u32.into()),
            ("relowner", USER_OID.into()),
            ("relam", (if kind == "r" { 2u32 } else { 0 }).into()),
            ("relfilenode", 0u32.into()),
            ("reltablespace", 0u32.into()),
            ("relpages", 0u32.into()),
            ("reltuples", Cell::Float(-1.0)),
            ("relallvisible", 0u32.into()),
            ("reltoastrelid", 0u32.into()),
            ("relhasindex", false.into()),
            ("relisshared", false.into()),
            ("relpersistence", "p".into()),
            ("relkind", kind.into()),
            ("relnatts", columns.into()),
            ("relchecks", 0u32.into()),
            ("relhasrules", false.into()),
            ("relhastriggers", false.into()),
            ("relhassubclass", false.into()),
            ("relrowsecurity", false.into()),
            ("relforcerowsecurity", false.into()),
            ("relispopulated", true.into()),
            ("relreplident", "n".into()),
            ("relispartition", false.into()),
            ("relrewrite", 0u32.into()),
        ]);
    };
    let tables = listing.tables()?;
    let oids = oids(tables.iter().map(|table| table.name.as_str()));
    for (oid, name) in &oids {
        let columns = tables.iter().find(|table| table.name == *name);
        let count = columns.map_or(0, |table| table.columns.len());
        class(*oid, name, PUBLIC_OID, count, "r");
    }
    for table in CATALOG {
        class(
            table.oid,
            table.name,
            CATALOG_OID,
            table.columns().count(),
            "r",
        );
    }
    for table in INFORMATION {
        class(
            table.oid,
            table.name,
            INFORMATION_OID,
            table.columns().count(),
            "v",
        );
    }
    Ok(())
}

fn attributes(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    let mut attribute =
        |table: u32, index: usize, name: &str, plain: &PgType, list: bool, time: bool| {
            let array = list && plain.array != 0;
            rows.push([
                ("attrelid", table.into()),
                ("attname", name.into()),
                (
                    "atttypid",
                    (if array { plain.array } else { plain.oid }).into(),
                ),
                ("attstattarget", (-1).into()),
                (
                    "attlen",
                    (if array { -1 } else { i64::from(plain.size) }).into(),
                ),
                ("attnum", (index + 1).into()),
                ("attndims", i64::from(array).into()),
                ("attcacheoff", (-1).into()),
                ("atttypmod", (-1).into()),
                ("attbyval", (!array && (1..=8).contains(&plain.size)).into()),
                ("attalign", "i".into()),
                ("attstorage", "p".into()),
                ("attcompression", "".into()),
                ("attnotnull", time.into()),
                ("atthasdef", false.into()),
                ("atthasmissing", false.into()),
                ("attidentity", "".into()),
                ("attgenerated", "".into()),
                ("attisdropped", false.into()),
                ("attislocal", true.into()),
                ("attinhcount", 0u32.into()),
                ("attcollation", 0u32.into()),
            ]);
        };
    let tables = listing.tables()?;
    for (oid, name) in oids(tables.iter().map(|table| table.name.as_str())) {
        let columns = tables
            .iter()
            .filter(|table| table.name == name)
            .flat_map(|table| &table.columns);
        for (index, (column, data_type, what)) in columns.enumerate() {
            let plain = PgType::of(data_type);
            attribute(
                oid,
                index,
                column,
                plain,
                is_list(data_type),
                *what == "time",
            );
        }
    }
    for table in CATALOG.iter().chain(INFORMATION) {
        for (index, (column, declared)) in table.declared().enumerate() {
            let (name, list) = match declared.strip_suffix("[]") {
                Some(element) => (element, true),
                None => (declared, false),
            };
            let plain = PgType::named(name).unwrap_or(PgType::TEXT);
            attribute(table.oid, index, column, plain, list, false);
        }
    }
    Ok(())
}

/// The functions that read and write values of types, by whose names clients know arrays.
fn routines(rows: &mut Rows) {
    for (at, name) in (0u32..).zip(type_routines()) {
        rows.push([
            ("oid", (ROUTINES_OID + at).into()),
            ("proname", name.into()),
            ("pronamespace", CATALOG_OID.into()),
            ("proowner", USER_OID.into()),
            ("prolang", 12u32.into()),
            ("prokind", "f".into()),
            ("proretset", false.into()),
            ("provolatile", "i".into()),
            ("pronargs", 1u32.into()),
            ("prorettype", 0u32.into()),
        ]);
    }
}

/// The number of the first of them.
const ROUTINES_OID: u32 = 15_000;

/// What a type's values are read and written by, in the order of their numbers.
fn type_routines() -> impl Iterator<Item = String> {
    let arrays = ROUTINES.iter().map(|does| format!("array_{does}"));
    let plain = PgType::ALL.iter().flat_map(|pg| {
        ROUTINES
            .iter()
            .map(move |does| format!("{}{does}", pg.name))
    });
    arrays.chain(plain)
}

const ROUTINES: [&str; 4] = ["in", "out", "recv", "send"];

/// The number of a function that reads or writes values of a type.
pub(super) fn routine_oid(name: &str) -> Option<u32> {
    let at = type_routines().position(|known| known == name)?;
    Some(ROUTINES_OID + u32::try_from(at).ok()?)
}

fn types(rows: &mut Rows) {
    let mut one = |oid: u32,
                   name: &str,
                   size: i16,
                   kind: &str,
                   category: char,
                   element: u32,
                   array: u32,
                   preferred: bool| {
        let routine = |does: &str| -> Cell {
            match element {
                0 => format!("{name}{does}").into(),
                _ => format!("array_{does}").into(),
            }
        };
        rows.push([
            ("oid", oid.into()),
            ("typname", name.into()),
            ("typnamespace", CATALOG_OID.into()),
            ("typowner", USER_OID.into()),
            ("typlen", i64::from(size).into()),
            ("typbyval", (1..=8).contains(&size).into()),
            ("typtype", kind.into()),
            ("typcategory", category.to_string().into()),
            ("typispreferred", preferred.into()),
            ("typisdefined", true.into()),
            ("typdelim", ",".into()),
            ("typrelid", 0u32.into()),
            (
                "typsubscript",
                (if element == 0 {
                    "-"
                } else {
                    "array_subscript_handler"
                })
                .into(),
            ),
            ("typelem", element.into()),
            ("typarray", array.into()),
            ("typinput", routine("in")),
            ("typoutput", routine("out")),
            ("typreceive", routine("recv")),
            ("typsend", routine("send")),
            ("typmodin", "-".into()),
            ("typmodout", "-".into()),
            ("typanalyze", "-".into()),
            ("typalign", "i".into()),
            ("typstorage", "p".into()),
            ("typnotnull", false.into()),
            ("typbasetype", 0u32.into()),
            ("typtypmod", (-1).into()),
            ("typndims", 0u32.into()),
            ("typcollation", 0u32.into()),
        ]);
    };
    for pg in PgType::ALL {
        let kind = if pg.category == 'P' || pg.category == 'X' {
            "p"
        } else {
            "b"
        };
        let preferred = ["bool", "text", "float8", "timestamptz", "interval"].contains(&pg.name);
        one(
            pg.oid,
            pg.name,
            pg.size,
            kind,
            pg.category,
            0,
            pg.array,
            preferred,
        );
        if pg.array != 0 {
            one(
                pg.array,
                &format!("_{}", pg.name),
                -1,
                "b",
                'A',
                pg.oid,
                0,
                false,
            );
        }
    }
}

/// What a column is, as its comment.
fn descriptions(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    let tables = listing.tables()?;
    for (oid, name) in oids(tables.iter().map(|table| table.name.as_str())) {
        let columns = tables
            .iter()
            .filter(|table| table.name == name)
            .flat_map(|table| &table.columns);
        for (index, (_, data_type, what)) in columns.enumerate() {
            rows.push([
                ("objoid", oid.into()),
                ("classoid", 1259u32.into()),
                ("objsubid", (index + 1).into()),
                ("description", describe(what, data_type).into()),
            ]);
        }
    }
    Ok(())
}

pub(super) fn describe(what: &str, data_type: &DataType) -> String {
    match data_type {
        // What the type on this door does not say.
        DataType::UInt64 => format!("{what}, u64"),
        _ => what.to_owned(),
    }
}
