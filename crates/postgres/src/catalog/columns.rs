//! The tables of `pg_catalog` and `information_schema`: names, numbers and columns.
//!
//! The names are those of PostgreSQL 16; clients query any of them. Rarely queried columns are left
//! out.

use arrow::datatypes::{DataType, Field, TimeUnit};

/// A table of a schema.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// OID; PostgreSQL's own where clients know it.
    pub(crate) oid: u32,
    /// True when the table never has rows here.
    pub(crate) empty: bool,
    /// `name type, name type, …`
    columns: &'static str,
}

impl Definition {
    /// Names and types of its columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&'static str, DataType)> {
        self.declared()
            .map(|(name, declared)| (name, data_type(declared)))
    }

    /// Names of its columns and of their types in PostgreSQL.
    pub(crate) fn declared(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.columns
            .split(',')
            .filter_map(|column| column.trim().split_once(' '))
    }
}

/// Headwater's type for a type in a definition.
fn data_type(name: &str) -> DataType {
    if let Some(element) = name.strip_suffix("[]") {
        return DataType::List(Field::new_list_field(data_type(element), true).into());
    }
    match name {
        "int2vector" => data_type("int2[]"),
        "oidvector" => data_type("oid[]"),
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" | "oid" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "timestamptz" => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        _ => DataType::Utf8,
    }
}

const fn with_rows(name: &'static str, oid: u32, columns: &'static str) -> Definition {
    Definition {
        name,
        oid,
        empty: false,
        columns,
    }
}

const fn empty(name: &'static str, oid: u32, columns: &'static str) -> Definition {
    Definition {
        name,
        oid,
        empty: true,
        columns,
    }
}

/// Metadata key of a column whose type does not exist in Headwater.
pub(crate) const TYPE: &str = "postgres.type";

/// A column of a table of the catalog; the metadata of a vector mark it as one.
pub(super) fn field(name: &str, declared: &str) -> Field {
    let field = Field::new(name, data_type(declared), true);
    match declared.strip_suffix("vector") {
        Some(_) => field.with_metadata([(TYPE.to_owned(), declared.to_owned())].into()),
        None => field,
    }
}

/// Finds a table by its name in either schema; with the schema.
pub(crate) fn find(
    schema: Option<&str>,
    name: &str,
) -> Option<(&'static str, &'static Definition)> {
    let within = |tables: &'static [Definition]| tables.iter().find(|table| table.name == name);
    match schema {
        None | Some("pg_catalog") => within(CATALOG).map(|table| ("pg_catalog", table)),
        Some("information_schema") => within(INFORMATION).map(|t| ("information_schema", t)),
        Some(_) => None,
    }
}

pub(crate) static CATALOG: &[Definition] = &[
    with_rows(
        "pg_class",
        1259,
        "oid oid, relname name, relnamespace oid, reltype oid, reloftype oid, relowner oid, relam oid, relfilenode oid, reltablespace oid, relpages int4, reltuples float4, relallvisible int4, reltoastrelid oid, relhasindex bool, relisshared bool, relpersistence char, relkind char, relnatts int2, relchecks int2, relhasrules bool, relhastriggers bool, relhassubclass bool, relrowsecurity bool, relforcerowsecurity bool, relispopulated bool, relreplident char, relispartition bool, relrewrite oid, relfrozenxid text, relminmxid text, relacl text[], reloptions text[], relpartbound text",
    ),
    with_rows(
        "pg_attribute",
        1249,
        "attrelid oid, attname name, atttypid oid, attstattarget int4, attlen int2, attnum int2, attndims int4, attcacheoff int4, atttypmod int4, attbyval bool, attalign char, attstorage char, attcompression char, attnotnull bool, atthasdef bool, atthasmissing bool, attidentity char, attgenerated char, attisdropped bool, attislocal bool, attinhcount int4, attcollation oid, attacl text[], attoptions text[], attfdwoptions text[], attmissingval text[]",
    ),
    with_rows(
        "pg_type",
        1247,
        "oid oid, typname name, typnamespace oid, typowner oid, typlen int2, typbyval bool, typtype char, typcategory char, typispreferred bool, typisdefined bool, typdelim char, typrelid oid, typsubscript text, typelem oid, typarray oid, typinput text, typoutput text, typreceive text, typsend text, typmodin text, typmodout text, typanalyze text, typalign char, typstorage char, typnotnull bool, typbasetype oid, typtypmod int4, typndims int4, typcollation oid, typdefaultbin text, typdefault text, typacl text[]",
    ),
    with_rows(
        "pg_namespace",
        2615,
        "oid oid, nspname name, nspowner oid, nspacl text[]",
    ),
    with_rows(
        "pg_database",
        1262,
        "oid oid, datname name, datdba oid, encoding int4, datlocprovider char, datistemplate bool, datallowconn bool, datconnlimit int4, datfrozenxid text, datminmxid text, dattablespace oid, datcollate text, datctype text, daticulocale text, daticurules text, datcollversion text, datacl text[]",
    ),
    with_rows(
        "pg_roles",
        12001,
        "rolname name, rolsuper bool, rolinherit bool, rolcreaterole bool, rolcreatedb bool, rolcanlogin bool, rolreplication bool, rolconnlimit int4, rolpassword text, rolvaliduntil timestamptz, rolbypassrls bool, rolconfig text[], oid oid",
    ),
    with_rows(
        "pg_authid",
        1260,
        "oid oid, rolname name, rolsuper bool, rolinherit bool, rolcreaterole bool, rolcreatedb bool, rolcanlogin bool, rolreplication bool, rolbypassrls bool, rolconnlimit int4, rolpassword text, rolvaliduntil timestamptz",
    ),
    with_rows(
        "pg_shadow",
        12019,
        "usename name, usesysid oid, usecreatedb bool, usesuper bool, userepl bool, usebypassrls bool, passwd text, valuntil timestamptz, useconfig text[]",
    ),
    with_rows(
        "pg_stat_database",
        12020,
        "datid oid, datname name, numbackends int4, xact_commit int8, xact_rollback int8, blks_read int8, blks_hit int8, tup_returned int8, tup_fetched int8, tup_inserted int8, tup_updated int8, tup_deleted int8, conflicts int8, temp_files int8, temp_bytes int8, deadlocks int8, stats_reset timestamptz",
    ),
    empty(
        "pg_group",
        12021,
        "groname name, grosysid oid, grolist oid[]",
    ),
    empty(
        "pg_stat_gssapi",
        12022,
        "pid int4, gss_authenticated bool, principal text, encrypted bool, credentials_delegated bool",
    ),
    empty(
        "pg_stat_ssl",
        12023,
        "pid int4, ssl bool, version text, cipher text, bits int4, client_dn text, client_serial text, issuer_dn text",
    ),
    empty(
        "pg_policies",
        12024,
        "schemaname name, tablename name, policyname name, permissive text, roles text[], cmd text, qual text, with_check text",
    ),
    empty(
        "pg_publication_tables",
        12025,
        "pubname name, schemaname name, tablename name, attnames text[], rowfilter text",
    ),
    empty(
        "pg_rules",
        12026,
        "schemaname name, tablename name, rulename name, definition text",
    ),
    empty(
        "pg_cursors",
        12027,
        "name text, statement text, is_holdable bool, is_binary bool, is_scrollable bool, creation_time timestamptz",
    ),
    empty(
        "pg_file_settings",
        12028,
        "sourcefile text, sourceline int4, seqno int4, name text, setting text, applied bool, error text",
    ),
    with_rows(
        "pg_user",
        12002,
        "usename name, usesysid oid, usecreatedb bool, usesuper bool, userepl bool, usebypassrls bool, passwd text, valuntil timestamptz, useconfig text[]",
    ),
    with_rows(
        "pg_tables",
        12003,
        "schemaname name, tablename name, tableowner name, tablespace name, hasindexes bool, hasrules bool, hastriggers bool, rowsecurity bool",
    ),
    with_rows(
        "pg_settings",
        12004,
        "name text, setting text, unit text, category text, short_desc text, extra_desc text, context text, vartype text, source text, min_val text, max_val text, enumvals text[], boot_val text, reset_val text, sourcefile text, sourceline int4, pending_restart bool",
    ),
    with_rows(
        "pg_description",
        2609,
        "objoid oid, classoid oid, objsubid int4, description text",
    ),
    with_rows(
        "pg_am",
        2601,
        "oid oid, amname name, amhandler text, amtype char",
    ),
    with_rows(
        "pg_tablespace",
        1213,
        "oid oid, spcname name, spcowner oid, spcacl text[], spcoptions text[]",
    ),
    empty(
        "pg_aggregate",
        2600,
        "aggfnoid oid, aggkind char, aggnumdirectargs int2",
    ),
    empty(
        "pg_attrdef",
        2604,
        "oid oid, adrelid oid, adnum int2, adbin text",
    ),
    empty(
        "pg_auth_members",
        1261,
        "oid oid, roleid oid, member oid, grantor oid, admin_option bool, inherit_option bool, set_option bool",
    ),
    empty(
        "pg_available_extensions",
        12005,
        "name name, default_version text, installed_version text, comment text",
    ),
    empty(
        "pg_cast",
        2605,
        "oid oid, castsource oid, casttarget oid, castfunc oid, castcontext char, castmethod char",
    ),
    empty(
        "pg_collation",
        3456,
        "oid oid, collname name, collnamespace oid, collowner oid, collprovider char, collisdeterministic bool, collencoding int4, collcollate text, collctype text, colliculocale text, collicurules text, collversion text",
    ),
    empty(
        "pg_constraint",
        2606,
        "tableoid oid, oid oid, conname name, connamespace oid, contype char, condeferrable bool, condeferred bool, convalidated bool, conrelid oid, contypid oid, conindid oid, conparentid oid, confrelid oid, confupdtype char, confdeltype char, confmatchtype char, conislocal bool, coninhcount int4, connoinherit bool, conkey int2[], confkey int2[], conpfeqop oid[], conppeqop oid[], conffeqop oid[], conexclop oid[], conbin text",
    ),
    empty(
        "pg_conversion",
        2607,
        "oid oid, conname name, connamespace oid, conowner oid, conforencoding int4, contoencoding int4, conproc text, condefault bool",
    ),
    empty(
        "pg_db_role_setting",
        2964,
        "setdatabase oid, setrole oid, setconfig text[]",
    ),
    empty(
        "pg_default_acl",
        826,
        "oid oid, defaclrole oid, defaclnamespace oid, defaclobjtype char, defaclacl text[]",
    ),
    empty(
        "pg_depend",
        2608,
        "classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, refobjsubid int4, deptype char",
    ),
    empty(
        "pg_enum",
        3501,
        "oid oid, enumtypid oid, enumsortorder float4, enumlabel name",
    ),
    empty(
        "pg_event_trigger",
        3466,
        "oid oid, evtname name, evtevent name, evtowner oid, evtfoid oid, evtenabled char, evttags text[]",
    ),
    empty(
        "pg_extension",
        3079,
        "oid oid, extname name, extowner oid, extnamespace oid, extrelocatable bool, extversion text, extconfig oid[], extcondition text[]",
    ),
    empty(
        "pg_foreign_data_wrapper",
        2328,
        "oid oid, fdwname name, fdwowner oid, fdwhandler oid, fdwvalidator oid, fdwacl text[], fdwoptions text[]",
    ),
    empty(
        "pg_foreign_server",
        1417,
        "oid oid, srvname name, srvowner oid, srvfdw oid, srvtype text, srvversion text, srvacl text[], srvoptions text[]",
    ),
    empty(
        "pg_foreign_table",
        3118,
        "ftrelid oid, ftserver oid, ftoptions text[]",
    ),
    with_rows(
        "pg_get_keywords",
        12006,
        "word text, catcode char, barelabel bool, catdesc text, baredesc text",
    ),
    with_rows(
        "pg_index",
        2610,
        "indexrelid oid, indrelid oid, indnatts int2, indnkeyatts int2, indisunique bool, indnullsnotdistinct bool, indisprimary bool, indisexclusion bool, indimmediate bool, indisclustered bool, indisvalid bool, indcheckxmin bool, indisready bool, indislive bool, indisreplident bool, indkey int2vector, indcollation oidvector, indclass oidvector, indoption int2vector, indexprs text, indpred text",
    ),
    with_rows(
        "pg_indexes",
        12007,
        "schemaname name, tablename name, indexname name, tablespace name, indexdef text",
    ),
    empty(
        "pg_inherits",
        2611,
        "inhrelid oid, inhparent oid, inhseqno int4, inhdetachpending bool",
    ),
    empty(
        "pg_language",
        2612,
        "tableoid oid, oid oid, lanname name, lanowner oid, lanispl bool, lanpltrusted bool, lanplcallfoid oid, laninline oid, lanvalidator oid, lanacl text[]",
    ),
    empty(
        "pg_largeobject_metadata",
        2995,
        "oid oid, lomowner oid, lomacl text[]",
    ),
    empty(
        "pg_locks",
        12008,
        "locktype text, database oid, relation oid, pid int4, mode text, granted bool",
    ),
    empty(
        "pg_matviews",
        12009,
        "schemaname name, matviewname name, matviewowner name, tablespace name, hasindexes bool, ispopulated bool, definition text",
    ),
    empty(
        "pg_opclass",
        2616,
        "tableoid oid, oid oid, opcmethod oid, opcname name, opcnamespace oid, opcowner oid, opcfamily oid, opcintype oid, opcdefault bool, opckeytype oid",
    ),
    empty(
        "pg_operator",
        2617,
        "oid oid, oprname name, oprnamespace oid, oprowner oid, oprkind char, oprleft oid, oprright oid, oprresult oid, oprcode text",
    ),
    empty(
        "pg_opfamily",
        2753,
        "tableoid oid, oid oid, opfmethod oid, opfname name, opfnamespace oid, opfowner oid",
    ),
    empty(
        "pg_partitioned_table",
        3350,
        "partrelid oid, partstrat char, partnatts int2, partdefid oid, partattrs int2[], partexprs text",
    ),
    empty(
        "pg_policy",
        3256,
        "oid oid, polname name, polrelid oid, polcmd char, polpermissive bool, polroles oid[], polqual text, polwithcheck text",
    ),
    empty(
        "pg_prepared_statements",
        12010,
        "name text, statement text, prepare_time timestamptz, parameter_types text[], result_types text[], from_sql bool",
    ),
    with_rows(
        "pg_proc",
        1255,
        "oid oid, proname name, pronamespace oid, proowner oid, prolang oid, procost float4, prorows float4, provariadic oid, prosupport text, prokind char, prosecdef bool, proleakproof bool, proisstrict bool, proretset bool, provolatile char, proparallel char, pronargs int2, pronargdefaults int2, prorettype oid, proargtypes oid[], proallargtypes oid[], proargmodes text[], proargnames text[], proargdefaults text, prosrc text, probin text, prosqlbody text, proconfig text[], proacl text[]",
    ),
    empty(
        "pg_publication",
        6104,
        "oid oid, pubname name, pubowner oid, puballtables bool, pubinsert bool, pubupdate bool, pubdelete bool, pubtruncate bool, pubviaroot bool",
    ),
    empty(
        "pg_publication_namespace",
        6237,
        "oid oid, pnpubid oid, pnnspid oid",
    ),
    empty(
        "pg_publication_rel",
        6106,
        "oid oid, prpubid oid, prrelid oid, prqual text, prattrs int2[]",
    ),
    empty(
        "pg_range",
        3541,
        "rngtypid oid, rngsubtype oid, rngmultitypid oid, rngcollation oid, rngsubopc oid",
    ),
    empty(
        "pg_rewrite",
        2618,
        "tableoid oid, oid oid, rulename name, ev_class oid, ev_type char, ev_enabled char, is_instead bool, ev_qual text, ev_action text",
    ),
    empty(
        "pg_seclabel",
        3596,
        "objoid oid, classoid oid, objsubid int4, provider text, label text",
    ),
    empty(
        "pg_sequence",
        2224,
        "seqrelid oid, seqtypid oid, seqstart int8, seqincrement int8, seqmax int8, seqmin int8, seqcache int8, seqcycle bool",
    ),
    empty(
        "pg_sequences",
        12011,
        "schemaname name, sequencename name, sequenceowner name, data_type text, start_value int8, min_value int8, max_value int8, increment_by int8, cycle bool, cache_size int8, last_value int8",
    ),
    empty(
        "pg_shdescription",
        2396,
        "objoid oid, classoid oid, description text",
    ),
    empty(
        "pg_stat_activity",
        12012,
        "datid oid, datname name, pid int4, usesysid oid, usename name, application_name text, client_addr text, state text, query text",
    ),
    empty(
        "pg_stat_user_tables",
        12013,
        "relid oid, schemaname name, relname name, seq_scan int8, n_live_tup int8, n_dead_tup int8",
    ),
    empty(
        "pg_statio_user_tables",
        12014,
        "relid oid, schemaname name, relname name, heap_blks_read int8, heap_blks_hit int8",
    ),
    empty(
        "pg_statistic_ext",
        3381,
        "oid oid, stxrelid oid, stxname name, stxnamespace oid, stxowner oid, stxstattarget int4, stxkeys int2[], stxkind text[], stxexprs text",
    ),
    empty(
        "pg_stats",
        12015,
        "schemaname name, tablename name, attname name, inherited bool, null_frac float4, avg_width int4, n_distinct float4",
    ),
    empty(
        "pg_subscription",
        6100,
        "oid oid, subdbid oid, subname name, subowner oid, subenabled bool, subconninfo text, subslotname name, subsynccommit text, subpublications text[]",
    ),
    empty(
        "pg_timezone_names",
        12016,
        "name text, abbrev text, utc_offset text, is_dst bool",
    ),
    empty(
        "pg_transform",
        3576,
        "oid oid, trftype oid, trflang oid, trffromsql oid, trftosql oid",
    ),
    empty(
        "pg_trigger",
        2620,
        "tableoid oid, oid oid, tgrelid oid, tgparentid oid, tgname name, tgfoid oid, tgtype int2, tgenabled char, tgisinternal bool, tgconstrrelid oid, tgconstrindid oid, tgconstraint oid, tgdeferrable bool, tginitdeferred bool, tgnargs int2, tgattr int2[], tgargs text, tgqual text, tgoldtable name, tgnewtable name",
    ),
    empty(
        "pg_ts_config",
        3602,
        "oid oid, cfgname name, cfgnamespace oid, cfgowner oid, cfgparser oid",
    ),
    empty(
        "pg_ts_dict",
        3600,
        "oid oid, dictname name, dictnamespace oid, dictowner oid, dicttemplate oid, dictinitoption text",
    ),
    empty(
        "pg_ts_parser",
        3601,
        "oid oid, prsname name, prsnamespace oid",
    ),
    empty(
        "pg_ts_template",
        3764,
        "oid oid, tmplname name, tmplnamespace oid",
    ),
    empty(
        "pg_user_mappings",
        12018,
        "umid oid, srvid oid, srvname name, umuser oid, usename name, umoptions text[]",
    ),
    empty(
        "pg_user_mapping",
        1418,
        "oid oid, umuser oid, umserver oid, umoptions text[]",
    ),
    with_rows(
        "pg_views",
        12017,
        "schemaname name, viewname name, viewowner name, definition text",
    ),
];

pub(crate) static INFORMATION: &[Definition] = &[
    with_rows(
        "schemata",
        13001,
        "catalog_name text, schema_name text, schema_owner text, default_character_set_catalog text, default_character_set_schema text, default_character_set_name text, sql_path text",
    ),
    with_rows(
        "tables",
        13002,
        "table_catalog text, table_schema text, table_name text, table_type text, self_referencing_column_name text, reference_generation text, user_defined_type_catalog text, user_defined_type_schema text, user_defined_type_name text, is_insertable_into text, is_typed text, commit_action text",
    ),
    with_rows(
        "columns",
        13003,
        "table_catalog text, table_schema text, table_name text, column_name text, ordinal_position int4, column_default text, is_nullable text, data_type text, character_maximum_length int4, character_octet_length int4, numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, datetime_precision int4, interval_type text, interval_precision int4, character_set_name text, collation_name text, domain_name text, udt_catalog text, udt_schema text, udt_name text, is_self_referencing text, is_identity text, identity_generation text, is_generated text, generation_expression text, is_updatable text",
    ),
    with_rows(
        "character_sets",
        13004,
        "character_set_catalog text, character_set_schema text, character_set_name text, character_repertoire text, form_of_use text",
    ),
    with_rows(
        "information_schema_catalog_name",
        13005,
        "catalog_name text",
    ),
    with_rows(
        "views",
        13006,
        "table_catalog text, table_schema text, table_name text, view_definition text, check_option text, is_updatable text, is_insertable_into text",
    ),
    empty(
        "routines",
        13007,
        "specific_catalog text, specific_schema text, specific_name text, routine_catalog text, routine_schema text, routine_name text, routine_type text, data_type text, routine_definition text",
    ),
    empty(
        "parameters",
        13008,
        "specific_catalog text, specific_schema text, specific_name text, ordinal_position int4, parameter_mode text, parameter_name text, data_type text",
    ),
    empty(
        "key_column_usage",
        13009,
        "constraint_catalog text, constraint_schema text, constraint_name text, table_catalog text, table_schema text, table_name text, column_name text, ordinal_position int4, position_in_unique_constraint int4",
    ),
    empty(
        "table_constraints",
        13010,
        "constraint_catalog text, constraint_schema text, constraint_name text, table_catalog text, table_schema text, table_name text, constraint_type text, is_deferrable text, initially_deferred text, enforced text",
    ),
    empty(
        "referential_constraints",
        13011,
        "constraint_catalog text, constraint_schema text, constraint_name text, unique_constraint_catalog text, unique_constraint_schema text, unique_constraint_name text, match_option text, update_rule text, delete_rule text",
    ),
    empty(
        "constraint_column_usage",
        13012,
        "table_catalog text, table_schema text, table_name text, column_name text, constraint_catalog text, constraint_schema text, constraint_name text",
    ),
    empty(
        "check_constraints",
        13013,
        "constraint_catalog text, constraint_schema text, constraint_name text, check_clause text",
    ),
    empty(
        "sequences",
        13014,
        "sequence_catalog text, sequence_schema text, sequence_name text, data_type text, start_value text, minimum_value text, maximum_value text, increment text, cycle_option text",
    ),
    empty(
        "triggers",
        13015,
        "trigger_catalog text, trigger_schema text, trigger_name text, event_manipulation text, event_object_catalog text, event_object_schema text, event_object_table text, action_statement text, action_timing text",
    ),
    empty(
        "element_types",
        13016,
        "object_catalog text, object_schema text, object_name text, object_type text, collection_type_identifier text, data_type text, udt_name text",
    ),
    empty(
        "column_privileges",
        13017,
        "grantor text, grantee text, table_catalog text, table_schema text, table_name text, column_name text, privilege_type text, is_grantable text",
    ),
    empty(
        "role_table_grants",
        13019,
        "grantor text, grantee text, table_catalog text, table_schema text, table_name text, privilege_type text, is_grantable text, with_hierarchy text",
    ),
    empty(
        "role_column_grants",
        13020,
        "grantor text, grantee text, table_catalog text, table_schema text, table_name text, column_name text, privilege_type text, is_grantable text",
    ),
    empty("enabled_roles", 13021, "role_name text"),
    empty(
        "applicable_roles",
        13022,
        "grantee text, role_name text, is_grantable text",
    ),
    empty(
        "domains",
        13023,
        "domain_catalog text, domain_schema text, domain_name text, data_type text, domain_default text, udt_catalog text, udt_schema text, udt_name text",
    ),
    empty(
        "usage_privileges",
        13024,
        "grantor text, grantee text, object_catalog text, object_schema text, object_name text, object_type text, privilege_type text, is_grantable text",
    ),
    empty(
        "view_table_usage",
        13025,
        "view_catalog text, view_schema text, view_name text, table_catalog text, table_schema text, table_name text",
    ),
    empty(
        "table_privileges",
        13018,
        "grantor text, grantee text, table_catalog text, table_schema text, table_name text, privilege_type text, is_grantable text, with_hierarchy text",
    ),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn tables_have_names_and_numbers_of_their_own() {
        let mut oids = std::collections::BTreeSet::new();
        for table in CATALOG.iter().chain(INFORMATION) {
            assert!(oids.insert(table.oid), "{}", table.name);
            let names: std::collections::BTreeSet<_> =
                table.columns().map(|(name, _)| name).collect();
            assert_eq!(
                names.len(),
                table.columns.split(',').count(),
                "{}",
                table.name
            );
        }
        assert_eq!(find(None, "pg_class").unwrap().1.oid, 1259);
        assert!(find(None, "tables").is_none());
        assert!(find(Some("information_schema"), "tables").is_some());
        assert!(find(Some("public"), "pg_class").is_none());
    }
}
