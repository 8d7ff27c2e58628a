//! Rows of the tables of `pg_catalog`.

use super::columns::{CATALOG, Definition, INFORMATION};
use super::listing::Listing;
use super::names::{CATALOG_OID, DATABASE_OID, INFORMATION_OID, PUBLIC_OID, RESERVED, USER_OID};
use super::relations::{Relation, Relations, index_definition};
use super::rows::{Cell, Rows};
use super::types::{PgType, is_list, modifier};
use arrow::datatypes::DataType;
use datafusion::common::Result;

/// The number of UTF-8 among PostgreSQL's encodings.
pub(super) const UTF8: i64 = 6;

/// Fills in the rows of a table; a table that is always empty has none.
pub(super) fn fill(rows: &mut Rows, table: &str, listing: &dyn Listing) -> Result<()> {
    match table {
        "pg_class" => classes(rows, listing)?,
        "pg_attribute" => attributes(rows, listing)?,
        "pg_type" => {
            types(rows);
            row_types(rows, listing)?;
        }
        "pg_index" => indexes(rows, listing)?,
        "pg_indexes" => index_definitions(rows, listing)?,
        "pg_views" => views(rows, listing)?,
        "pg_description" => descriptions(rows, listing)?,
        "pg_tables" => tables(rows, listing)?,
        "pg_namespace" => schemas(rows),
        "pg_database" => database(rows, listing),
        "pg_roles" | "pg_authid" => role(rows, listing),
        "pg_stat_database" => rows.push([
            ("datid", DATABASE_OID.into()),
            ("datname", listing.database().into()),
        ]),
        "pg_proc" => routines(rows),
        "pg_user" | "pg_shadow" => user(rows, listing),
        "pg_settings" => settings(rows, listing),
        "pg_get_keywords" => keywords(rows),
        "pg_am" => access_methods(rows),
        "pg_tablespace" => rows.push([
            ("oid", TABLESPACE_OID.into()),
            ("spcname", "pg_default".into()),
            ("spcowner", USER_OID.into()),
        ]),
        _ => {}
    }
    Ok(())
}

/// Fills in indexes with the statements that would make them.
fn index_definitions(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    for (_, index, _, _) in Relations::of(listing)?.indexes() {
        rows.push([
            ("schemaname", "public".into()),
            ("tablename", index.table.as_str().into()),
            ("indexname", index.name.as_str().into()),
            ("indexdef", index_definition(index).into()),
        ]);
    }
    Ok(())
}

/// Fills in views with their queries.
fn views(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    for view in listing.views()? {
        rows.push([
            ("schemaname", "public".into()),
            ("viewname", view.name.into()),
            ("viewowner", listing.user().into()),
            ("definition", view.definition.into()),
        ]);
    }
    Ok(())
}

/// Fills in tables by name.
fn tables(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    let relations = Relations::of(listing)?;
    for (_, table) in relations.iter().filter(|(_, r)| r.kind() == "r") {
        let name = table.name();
        rows.push([
            ("schemaname", "public".into()),
            ("tablename", name.into()),
            ("tableowner", listing.user().into()),
            ("hasindexes", relations.has_index(name).into()),
            ("hasrules", false.into()),
            ("hastriggers", false.into()),
            ("rowsecurity", false.into()),
        ]);
    }
    Ok(())
}

/// Fills in the schemas: `public` and the schemas of the catalog.
fn schemas(rows: &mut Rows) {
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

/// Fills in the database, the only row.
fn database(rows: &mut Rows, listing: &dyn Listing) {
    rows.push([
        ("oid", DATABASE_OID.into()),
        ("datname", listing.database().into()),
        ("datdba", USER_OID.into()),
        ("encoding", UTF8.into()),
        ("datlocprovider", "c".into()),
        ("datistemplate", false.into()),
        ("datallowconn", true.into()),
        ("datconnlimit", (-1).into()),
        ("dattablespace", TABLESPACE_OID.into()),
        ("datcollate", "C".into()),
        ("datctype", "C".into()),
    ]);
}

/// Fills in the user of the session as a role.
fn role(rows: &mut Rows, listing: &dyn Listing) {
    rows.push([
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
    ]);
}

/// Fills in the user of the session.
fn user(rows: &mut Rows, listing: &dyn Listing) {
    rows.push([
        ("usesysid", USER_OID.into()),
        ("usename", listing.user().into()),
        ("usecreatedb", false.into()),
        ("usesuper", false.into()),
        ("userepl", false.into()),
        ("usebypassrls", false.into()),
    ]);
}

/// Fills in the settings of the session.
fn settings(rows: &mut Rows, listing: &dyn Listing) {
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

/// Fills in the words that names must be quoted for.
fn keywords(rows: &mut Rows) {
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

/// Fills in the ways that rows and indexes are stored.
fn access_methods(rows: &mut Rows) {
    for (oid, name, handler, kind) in [
        (HEAP_OID, "heap", "heap_tableam_handler", "t"),
        (BTREE_OID, "btree", "bthandler", "i"),
    ] {
        rows.push([
            ("oid", oid.into()),
            ("amname", name.into()),
            ("amhandler", handler.into()),
            ("amtype", kind.into()),
        ]);
    }
}

/// The ways that rows and indexes are stored, as PostgreSQL numbers them.
const HEAP_OID: u32 = 2;
const BTREE_OID: u32 = 403;
/// The number of the only tablespace.
const TABLESPACE_OID: u32 = 1663;
/// The number of the row type of the first table of the schemas of the catalog.
const ROW_TYPES_OID: u32 = 14_000;

/// A row of `pg_class`.
struct Class<'a> {
    oid: u32,
    name: &'a str,
    schema: u32,
    columns: usize,
    kind: &'a str,
    row_type: u32,
    indexed: bool,
}

impl Class<'_> {
    fn push(&self, rows: &mut Rows) {
        let kept = match self.kind {
            "r" => HEAP_OID,
            "i" => BTREE_OID,
            _ => 0,
        };
        rows.push([
            ("oid", self.oid.into()),
            ("relname", self.name.into()),
            ("relnamespace", self.schema.into()),
            ("reltype", self.row_type.into()),
            ("reloftype", 0u32.into()),
            ("relowner", USER_OID.into()),
            ("relam", kept.into()),
            ("relfilenode", 0u32.into()),
            ("reltablespace", 0u32.into()),
            ("relpages", 0u32.into()),
            ("reltuples", Cell::Float(-1.0)),
            ("relallvisible", 0u32.into()),
            ("reltoastrelid", 0u32.into()),
            ("relhasindex", self.indexed.into()),
            ("relisshared", false.into()),
            ("relpersistence", "p".into()),
            ("relkind", self.kind.into()),
            ("relnatts", self.columns.into()),
            ("relchecks", 0u32.into()),
            ("relhasrules", (self.kind == "v").into()),
            ("relhastriggers", false.into()),
            ("relhassubclass", false.into()),
            ("relrowsecurity", false.into()),
            ("relforcerowsecurity", false.into()),
            ("relispopulated", true.into()),
            ("relreplident", "n".into()),
            ("relispartition", false.into()),
            ("relrewrite", 0u32.into()),
        ]);
    }
}

/// The tables of both schemas of the catalog: definition, number and kind of its schema, and number
/// of its row type.
fn own() -> impl Iterator<Item = (&'static Definition, u32, &'static str, u32)> {
    let tables = CATALOG.iter().map(|table| (table, CATALOG_OID, "r"));
    let views = INFORMATION
        .iter()
        .map(|table| (table, INFORMATION_OID, "v"));
    let numbered = (ROW_TYPES_OID..).zip(tables.chain(views));
    numbered.map(|(row_type, (table, schema, kind))| (table, schema, kind, row_type))
}

fn classes(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    let relations = Relations::of(listing)?;
    for (oid, relation) in relations.iter() {
        Class {
            oid,
            name: relation.name(),
            schema: PUBLIC_OID,
            columns: relation.columns().len(),
            kind: relation.kind(),
            // Types and relations are numbered apart: a relation's row type has its number.
            row_type: if relation.kind() == "i" { 0 } else { oid },
            indexed: relation.kind() == "r" && relations.has_index(relation.name()),
        }
        .push(rows);
    }
    for (table, schema, kind, row_type) in own() {
        Class {
            oid: table.oid,
            name: table.name,
            schema,
            columns: table.columns().count(),
            kind,
            row_type,
            indexed: false,
        }
        .push(rows);
    }
    Ok(())
}

/// The types of rows of tables and views.
fn row_types(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    let relations = Relations::of(listing)?;
    let seen = relations
        .iter()
        .filter(|(_, relation)| relation.kind() != "i")
        .map(|(oid, relation)| (oid, relation.name(), PUBLIC_OID, oid));
    let own = own().map(|(table, schema, _, row_type)| (row_type, table.name, schema, table.oid));
    for (oid, name, schema, relation) in seen.chain(own) {
        TypeRow {
            oid,
            name,
            schema,
            relation,
            size: -1,
            kind: "c",
            category: 'C',
            routines: "record_",
            ..TypeRow::default()
        }
        .push(rows);
    }
    Ok(())
}

fn indexes(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    for (oid, index, table, places) in Relations::of(listing)?.indexes() {
        let count = places.len();
        let zeros = || Cell::Numbers(vec![0; count]);
        rows.push([
            ("indexrelid", oid.into()),
            ("indrelid", table.into()),
            ("indnatts", count.into()),
            ("indnkeyatts", count.into()),
            ("indisunique", false.into()),
            ("indnullsnotdistinct", false.into()),
            ("indisprimary", false.into()),
            ("indisexclusion", false.into()),
            ("indimmediate", true.into()),
            ("indisclustered", false.into()),
            // An unfinished index is used for the partitions that it has.
            ("indisvalid", true.into()),
            ("indcheckxmin", false.into()),
            ("indisready", index.complete.into()),
            ("indislive", true.into()),
            ("indisreplident", false.into()),
            ("indcollation", zeros()),
            ("indclass", zeros()),
            ("indoption", zeros()),
            ("indkey", Cell::Numbers(places)),
        ]);
    }
    Ok(())
}

/// A row of `pg_attribute`: a column's relation, position, name and type, and whether every row has
/// a value.
fn attribute(
    rows: &mut Rows,
    relation: u32,
    index: usize,
    name: &str,
    (plain, list, modifier): (&PgType, bool, i32),
    always: bool,
) {
    let array = list && plain.array != 0;
    rows.push([
        ("attrelid", relation.into()),
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
        ("atttypmod", modifier.into()),
        ("attbyval", (!array && (1..=8).contains(&plain.size)).into()),
        ("attalign", "i".into()),
        ("attstorage", "p".into()),
        ("attcompression", "".into()),
        ("attnotnull", always.into()),
        ("atthasdef", false.into()),
        ("atthasmissing", false.into()),
        ("attidentity", "".into()),
        ("attgenerated", "".into()),
        ("attisdropped", false.into()),
        ("attislocal", true.into()),
        ("attinhcount", 0u32.into()),
        ("attcollation", 0u32.into()),
    ]);
}

fn attributes(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    for (oid, relation) in Relations::of(listing)?.iter() {
        for (index, (name, data_type, always)) in relation.columns().into_iter().enumerate() {
            let of = (
                PgType::of(data_type),
                is_list(data_type),
                modifier(data_type),
            );
            attribute(rows, oid, index, name, of, always);
        }
    }
    for table in CATALOG.iter().chain(INFORMATION) {
        for (index, (column, declared)) in table.declared().enumerate() {
            let (name, list) = match declared.strip_suffix("[]") {
                Some(element) => (element, true),
                None => (declared, false),
            };
            let plain = PgType::named(name).unwrap_or(PgType::TEXT);
            attribute(rows, table.oid, index, column, (plain, list, -1), false);
        }
    }
    Ok(())
}

/// Functions that read and write values of types; clients recognise array types by the names of
/// these functions.
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

/// The functions that read and write a type's values, in the order of their OIDs, and the other
/// functions that the catalog names.
fn type_routines() -> impl Iterator<Item = String> {
    let arrays = ROUTINES.iter().map(|does| format!("array_{does}"));
    let plain = PgType::ALL.iter().flat_map(|pg| {
        ROUTINES
            .iter()
            .map(move |does| format!("{}{does}", routines_of(pg.name)))
    });
    let others = [
        "array_subscript_handler",
        "heap_tableam_handler",
        "bthandler",
    ];
    arrays.chain(plain).chain(others.map(str::to_owned))
}

const ROUTINES: [&str; 4] = ["in", "out", "recv", "send"];

/// The prefix of the names of a type's functions, as in PostgreSQL: older types do not have an
/// underscore.
fn routines_of(name: &str) -> String {
    let old = [
        "bool",
        "bytea",
        "char",
        "name",
        "int8",
        "int2",
        "int4",
        "regproc",
        "text",
        "oid",
        "float4",
        "float8",
        "unknown",
        "bpchar",
        "varchar",
        "regclass",
        "regtype",
        "int2vector",
        "oidvector",
    ];
    match old.contains(&name) {
        true => name.to_owned(),
        false => format!("{name}_"),
    }
}

/// The number of a function that reads or writes values of a type.
pub(super) fn routine_oid(name: &str) -> Option<u32> {
    let at = type_routines().position(|known| known == name)?;
    Some(ROUTINES_OID + u32::try_from(at).ok()?)
}

/// A row of `pg_type`.
#[derive(Default)]
struct TypeRow<'a> {
    oid: u32,
    name: &'a str,
    schema: u32,
    size: i16,
    kind: &'a str,
    category: char,
    preferred: bool,
    relation: u32,
    element: u32,
    array: u32,
    /// The prefix of the names of its functions.
    routines: &'a str,
}

impl TypeRow<'_> {
    fn push(&self, rows: &mut Rows) {
        let routine = |does: &str| -> Cell { format!("{}{does}", self.routines).into() };
        let subscript = match self.element {
            0 => "-",
            _ => "array_subscript_handler",
        };
        rows.push([
            ("oid", self.oid.into()),
            ("typname", self.name.into()),
            ("typnamespace", self.schema.into()),
            ("typowner", USER_OID.into()),
            ("typlen", i64::from(self.size).into()),
            ("typbyval", (1..=8).contains(&self.size).into()),
            ("typtype", self.kind.into()),
            ("typcategory", self.category.to_string().into()),
            ("typispreferred", self.preferred.into()),
            ("typisdefined", true.into()),
            ("typdelim", ",".into()),
            ("typrelid", self.relation.into()),
            ("typsubscript", subscript.into()),
            ("typelem", self.element.into()),
            ("typarray", self.array.into()),
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
    }
}

fn types(rows: &mut Rows) {
    for pg in PgType::ALL {
        let pseudo = pg.category == 'P' || pg.category == 'X';
        let preferred = ["bool", "text", "float8", "timestamptz", "interval"].contains(&pg.name);
        TypeRow {
            oid: pg.oid,
            name: pg.name,
            schema: CATALOG_OID,
            size: pg.size,
            kind: if pseudo { "p" } else { "b" },
            category: pg.category,
            preferred,
            array: pg.array,
            routines: &routines_of(pg.name),
            ..TypeRow::default()
        }
        .push(rows);
        if pg.array != 0 {
            TypeRow {
                oid: pg.array,
                name: &format!("_{}", pg.name),
                schema: CATALOG_OID,
                size: -1,
                kind: "b",
                category: 'A',
                element: pg.oid,
                routines: "array_",
                ..TypeRow::default()
            }
            .push(rows);
        }
    }
}

/// The kind of a table's column, as its comment.
fn descriptions(rows: &mut Rows, listing: &dyn Listing) -> Result<()> {
    let relations = Relations::of(listing)?;
    let tables = relations
        .iter()
        .filter_map(|(oid, relation)| match relation {
            Relation::Table(table) => Some((oid, table)),
            Relation::View(_) | Relation::Index(..) => None,
        });
    for (oid, table) in tables {
        for (index, (_, data_type, what)) in table.columns.iter().enumerate() {
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
        // The type on this front end does not show it.
        DataType::UInt64 => format!("{what}, u64"),
        _ => what.to_owned(),
    }
}
