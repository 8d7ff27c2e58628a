//! Questions about the catalog as tools ask them: DBeaver, pgAdmin, Metabase, Npgsql, asyncpg,
//! Power BI, psqlODBC, Rails. The statements are written after what these tools want to know.

use super::{session, start};

/// Statements that must be answered, some of them with these rows.
fn answered(cases: &[(&str, Option<&[&str]>)]) {
    let server = start(|_| {});
    let mut client = session(&server);
    let mut wrong = Vec::new();
    for (sql, wanted) in cases {
        let found = client.rows(sql);
        if let Some(told) = found.iter().find(|row| row.starts_with("E ")) {
            wrong.push(format!("{sql}\n  {told}"));
        } else if wanted.is_some_and(|wanted| found != wanted) {
            wrong.push(format!("{sql}\n  gave {found:?}, wanted {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn dbeaver_finds_what_it_looks_for() {
    answered(&[
        (
            "SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE db.datallowconn ORDER BY db.datname",
            None,
        ),
        (
            "SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,abs}'::text[])",
            None,
        ),
        (
            "SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid WHERE (c.relkind IS NULL OR c.relkind = 'c') AND (e.typcategory IS NULL OR e.typcategory <> 'C')",
            None,
        ),
        (
            "SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass ORDER BY nspname",
            None,
        ),
        (
            "SELECT c.oid, c.*, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS part FROM pg_catalog.pg_class c WHERE c.relnamespace = 2200 AND c.relkind NOT IN ('i', 'I', 'c')",
            None,
        ),
        (
            "SELECT c.relname, a.*, pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) AS def, p.objid FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON a.attrelid = c.oid LEFT JOIN pg_catalog.pg_attrdef d ON a.attrelid = d.adrelid AND a.attnum = d.adnum LEFT JOIN pg_depend p ON p.refobjid = a.attrelid AND p.deptype = 'i' AND p.refobjsubid = a.attnum AND p.classid = p.refclassid WHERE NOT a.attisdropped AND c.relname = 'cars' ORDER BY a.attnum",
            None,
        ),
        (
            "SELECT i.*, i.indkey AS keys, c.relname, pg_catalog.pg_relation_size(i.indexrelid) AS size, pg_catalog.pg_stat_get_numscans(i.indexrelid) AS scans FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid",
            Some(&[]),
        ),
        (
            "SELECT e.oid, a.rolname AS owner, e.*, n.nspname FROM pg_extension e JOIN pg_authid a ON a.oid = e.extowner JOIN pg_namespace n ON n.oid = e.extnamespace",
            Some(&[]),
        ),
        (
            "SELECT current_schema(), session_user, current_user, current_role",
            Some(&["public|ann|ann|ann"]),
        ),
        (
            "SELECT x.oid, x.* FROM pg_catalog.pg_event_trigger x",
            Some(&[]),
        ),
    ]);
}

#[test]
fn pgadmin_finds_what_it_looks_for() {
    answered(&[
        (
            "SELECT CASE WHEN usesuper THEN pg_catalog.pg_is_in_recovery() ELSE false END AS a, CASE WHEN usesuper AND pg_catalog.pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE false END AS b FROM pg_catalog.pg_user WHERE usename = current_user",
            Some(&["f|f"]),
        ),
        (
            "SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()",
            Some(&[]),
        ),
        (
            "SELECT set_config('bytea_output', 'hex', false) FROM pg_show_all_settings() WHERE name = 'bytea_output'",
            Some(&["hex"]),
        ),
        (
            "SELECT roles.rolname, CASE WHEN 'pg_signal_backend' = ANY(ARRAY(WITH RECURSIVE r AS (SELECT oid, rolname FROM pg_roles WHERE oid = roles.oid UNION ALL SELECT m.roleid, g.rolname FROM r JOIN pg_auth_members m ON m.member = r.oid JOIN pg_roles g ON g.oid = m.roleid) SELECT rolname FROM r)) THEN true ELSE false END AS can FROM pg_catalog.pg_roles AS roles WHERE rolname = current_user",
            Some(&["ann|f"]),
        ),
        (
            "SELECT rel.relname, (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = rel.oid AND tgisinternal = false) AS triggers, (SELECT count(1) FROM pg_catalog.pg_inherits WHERE inhrelid = rel.oid LIMIT 1) AS inherits FROM pg_catalog.pg_class rel WHERE rel.relkind IN ('r', 'p') AND rel.relnamespace = 2200::oid ORDER BY rel.relname",
            Some(&["Odd Name|0|0", "cars|0|0"]),
        ),
        ("SELECT datname FROM pg_stat_database", Some(&["plant"])),
        ("SELECT * FROM pg_policies", Some(&[])),
        (
            "SELECT * FROM information_schema.role_table_grants",
            Some(&[]),
        ),
    ]);
}

#[test]
fn metabase_and_power_bi_find_columns() {
    answered(&[
        (
            "SELECT c.column_name, CASE WHEN c.udt_schema IN ('public', 'pg_catalog') THEN format('%s', c.udt_name) ELSE format('\"%s\".\"%s\"', c.udt_schema, c.udt_name) END AS kind, col_description(CAST(CAST(format('%I.%I', CAST(c.table_schema AS TEXT), CAST(c.table_name AS TEXT)) AS REGCLASS) AS OID), c.ordinal_position) AS note FROM information_schema.columns AS c WHERE c.table_schema !~ '^information_schema|pg_' AND c.table_name = 'cars' ORDER BY c.ordinal_position LIMIT 2",
            None,
        ),
        (
            "SELECT format('%s of %I: %L, %1$s', 'a', 'B c', 'it''s'), format('100%%')",
            Some(&["a of \\\"B c\\\": \\'it\\'\\'s\\', a|100%"]),
        ),
        (
            "SELECT n.nspname, c.relname, nullif(s.n_live_tup, 0) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON c.relnamespace = n.oid LEFT JOIN pg_stat_user_tables s ON n.nspname = s.schemaname AND c.relname = s.relname WHERE n.nspname !~ '^pg_|information_schema' AND c.relkind IN ('r', 'p', 'v', 'f', 'm') ORDER BY 2",
            None,
        ),
        (
            "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY table_schema, table_name",
            Some(&["public|Odd Name|BASE TABLE", "public|cars|BASE TABLE"]),
        ),
    ]);
}

#[test]
fn drivers_learn_types_and_arrays() {
    answered(&[
        // Npgsql knows an array by the function that reads it.
        (
            "SELECT t.typname, e.typname FROM pg_type AS t LEFT JOIN pg_proc AS p ON p.oid = t.typreceive LEFT JOIN pg_type AS e ON e.oid = CASE WHEN p.proname = 'array_recv' THEN t.typelem END WHERE t.typname IN ('int4', '_int4') ORDER BY 1",
            Some(&["_int4|int4", "int4|NULL"]),
        ),
        // asyncpg asks for domains, of which there are none, by a query within a query.
        (
            "SELECT t.typname, (CASE WHEN t.typtype = 'd' THEN (WITH RECURSIVE b(oid, depth) AS (SELECT t2.typbasetype AS oid, 0 AS depth FROM pg_type t2 WHERE t2.oid = t.oid UNION ALL SELECT t2.typbasetype, b.depth + 1 FROM pg_type t2, b WHERE b.oid = t2.oid AND t2.typbasetype != 0) SELECT oid FROM b ORDER BY depth DESC LIMIT 1) ELSE NULL END) AS base FROM pg_type t WHERE t.oid = ANY(ARRAY[1007]::oid[])",
            Some(&["_int4|NULL"]),
        ),
        (
            "SELECT t.oid, t.typname FROM pg_type AS t LEFT JOIN pg_range AS r ON oid = rngtypid WHERE t.typname IN ('bool') AND t.typinput = 'boolin'::regproc",
            Some(&["16|bool"]),
        ),
        ("SELECT count(*) FROM plant.public.cars", Some(&["2"])),
        (
            "SELECT plant.public.cars.speed FROM plant.public.cars WHERE id = 'seen'",
            Some(&["1.5"]),
        ),
        ("SELECT txid_current() IS NULL", Some(&["t"])),
    ]);
}
