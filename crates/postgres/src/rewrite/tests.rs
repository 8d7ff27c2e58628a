//! Statements that clients send, through the rewriter and a bare planner.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use super::rewritten;
use crate::catalog::{Listing, ShownTable, Variables, columns, functions, schemas};
use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::array_value_to_string;
use datafusion::common::Result;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;

#[derive(Debug)]
struct Fixed;

impl Listing for Fixed {
    fn tables(&self) -> Result<Vec<ShownTable>> {
        let column = |name: &str, data_type, what| (name.to_owned(), data_type, what);
        let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let tag = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
        Ok(vec![
            ShownTable {
                name: "cars".to_owned(),
                columns: vec![
                    column("time", time.clone(), "time"),
                    column("id", tag, "tag"),
                    column("speed", DataType::Float64, "field"),
                    column("laps", DataType::UInt64, "field"),
                ],
            },
            ShownTable {
                name: "Odd Name".to_owned(),
                columns: vec![column("time", time, "time")],
            },
        ])
    }

    fn variables(&self) -> Variables {
        Variables::new("ann", false)
    }

    fn user(&self) -> String {
        "ann".to_owned()
    }

    fn database(&self) -> String {
        "plant".to_owned()
    }
}

/// The answer as lines of values, or the error.
async fn answer_of(sql: &str) -> Result<Vec<String>, String> {
    let listing: Arc<dyn Listing> = Arc::new(Fixed);
    let config = SessionConfig::new().with_default_catalog_and_schema("headwater", "public");
    let context = SessionContext::new_with_config(config);
    for (name, schema) in schemas(&listing) {
        let catalog = context.catalog("headwater").unwrap();
        catalog.register_schema(&name, schema).unwrap();
    }
    for function in functions(&listing) {
        context.register_udf(function.as_ref().clone());
    }
    let rewritten = rewritten(sql, &Fixed, 7).map_err(|e| e.to_string())?;
    let sql = rewritten.sql.as_deref().unwrap_or(sql);
    let tell = |error: datafusion::error::DataFusionError| format!("{error}\n  {sql}");
    let frame = context.sql(sql).await.map_err(tell)?;
    let batches = frame.collect().await.map_err(tell)?;
    let mut lines = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch
                .columns()
                .iter()
                .map(|column| array_value_to_string(column, row).unwrap());
            lines.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    Ok(lines)
}

#[tokio::test]
async fn questions_about_the_database_are_answered() {
    let answers: &[(&str, &[&str])] = &[
        ("SELECT current_user, current_database(), current_schema()", &["ann|plant|public"]),
        ("SELECT current_setting('server_version_num')::int/100", &["1600"]),
        ("SELECT version() LIKE 'PostgreSQL 16.0%'", &["true"]),
        ("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'", &[]),
        ("SELECT pg_backend_pid(), 1, 1", &["7|1|1"]),
        ("SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::oid", &["1259"]),
        ("SELECT c.oid::regclass FROM pg_class c WHERE c.relname = 'Odd Name'", &["\"Odd Name\""]),
        ("SELECT relname FROM pg_catalog.pg_class WHERE relname OPERATOR(pg_catalog.~) '^(c.*s)$' COLLATE pg_catalog.default AND pg_catalog.pg_table_is_visible(oid) AND relnamespace = 'public'::regnamespace OR relname = 'cars' ORDER BY 1", &["cars"]),
        ("SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull FROM pg_catalog.pg_attribute a WHERE a.attrelid = 'cars'::regclass AND a.attnum > 0 ORDER BY a.attnum",
         &["time|timestamp with time zone||true", "id|text||false", "speed|double precision||false", "laps|numeric(20,0)||false"]),
        ("SELECT array_to_string(array(select rolname from pg_catalog.pg_roles), ',')", &["ann"]),
        ("SELECT array(select conname from pg_catalog.pg_constraint)", &["[]"]),
        ("SELECT 'public' = ANY (current_schemas(true)), 'r' = ANY ('{v,r}'::text[]), 'r' = ANY('{v,x}')", &["true|true|false"]),
        ("select quote_ident(table_name) as \"table\" from information_schema.tables
          where quote_ident(table_schema) not in ('information_schema', 'pg_catalog')
            and quote_ident(table_schema) IN (
              SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END
              FROM generate_series(array_lower(string_to_array(current_setting('search_path'),','),1),
                                   array_upper(string_to_array(current_setting('search_path'),','),1)) as i,
                   string_to_array(current_setting('search_path'),',') s)",
         &["cars", "\"Odd Name\""]),
        ("SELECT typinput = 'pg_catalog.array_in'::regproc FROM pg_type WHERE typname IN ('_int4', 'int4') ORDER BY typname", &["true", "false"]),
        ("SELECT current_setting(n), current_setting('no.such' || n, true) FROM (SELECT 'datestyle' AS n) t", &["ISO, MDY|"]),
        ("SELECT attname, col_description(attrelid, attnum) FROM pg_attribute WHERE attrelid = 'cars'::regclass ORDER BY attnum", &["time|time", "id|tag", "speed|field", "laps|field, u64"]),
        // psql's \\d: publications of a table.
        ("SELECT pubname, NULL, NULL FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_namespace pn ON p.oid = pn.pnpubid JOIN pg_catalog.pg_class pc ON pc.relnamespace = pn.pnnspid WHERE pc.oid = '1' and pg_catalog.pg_relation_is_publishable('1')
          UNION SELECT pubname, pg_get_expr(pr.prqual, c.oid), (CASE WHEN pr.prattrs IS NOT NULL THEN (SELECT string_agg(attname, ', ') FROM pg_catalog.generate_series(0, pg_catalog.array_upper(pr.prattrs::pg_catalog.int2[], 1)) s, pg_catalog.pg_attribute WHERE attrelid = pr.prrelid AND attnum = prattrs[s]) ELSE NULL END) FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel pr ON p.oid = pr.prpubid JOIN pg_catalog.pg_class c ON c.oid = pr.prrelid WHERE pr.prrelid = '1'
          UNION SELECT pubname, NULL, NULL FROM pg_catalog.pg_publication p WHERE p.puballtables AND pg_catalog.pg_relation_is_publishable('1') ORDER BY 1", &[]),
        // JDBC's getPrimaryKeys.
        ("SELECT result.A_ATTNUM, result.KEY_SEQ FROM (SELECT (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME, information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM FROM pg_catalog.pg_class ct JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid) JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid) WHERE true AND i.indisprimary) result where result.A_ATTNUM = (result.KEYS).x ORDER BY 1", &[]),
        ("SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname NOT LIKE 'pg/_' || '%' ESCAPE '/' ORDER BY 1", &["information_schema", "public"]),
        ("SELECT 'a/b' LIKE 'a//_' ESCAPE '/', 'a\\x' LIKE 'a\\_' ESCAPE '/', 'a_' LIKE 'a/_' ESCAPE '/', 'ab' LIKE 'a/_' ESCAPE '/'", &["true|true|true|false"]),
        ("SELECT pol.polname, CASE WHEN pol.polroles = '{0}' THEN NULL ELSE pg_catalog.array_to_string(array(select rolname from pg_catalog.pg_roles where oid = any (pol.polroles) order by 1),',') END FROM pg_catalog.pg_policy pol WHERE pol.polrelid = '1' ORDER BY 1", &[]),
        ("SELECT typname FROM pg_catalog.pg_type t WHERE (t.typrelid = 0 OR (SELECT c.relkind = 'c' FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid)) AND typname = 'int4' AND NOT EXISTS(SELECT 1 FROM pg_catalog.pg_type el WHERE el.oid = t.typelem AND el.typarray = t.oid)", &["int4"]),
        ("select count(*) > 50 from pg_catalog.pg_get_keywords() where word <> ALL ('{a,b}'::text[])", &["true"]),
        ("SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = 'cars' AND table_schema = 'public' ORDER BY ordinal_position LIMIT 2", &["time|timestamp with time zone|NO", "id|text|YES"]),
    ];
    let mut wrong = Vec::new();
    for (sql, wanted) in answers {
        let got = answer_of(sql).await;
        let wanted: Vec<String> = wanted.iter().map(|line| (*line).to_owned()).collect();
        if got.as_ref() != Ok(&wanted) {
            wrong.push(format!("{sql}\n  -> {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test]
async fn what_is_not_there_is_told() {
    for (sql, told) in [
        (
            "SELECT 'nothing'::pg_catalog.regproc::pg_catalog.oid",
            "function \"nothing\" does not exist",
        ),
        (
            "SELECT 'nothing'::regclass",
            "relation \"nothing\" does not exist",
        ),
        (
            "SELECT 'nothing'::regtype",
            "type \"nothing\" does not exist",
        ),
        (
            "SELECT current_setting(n) FROM (SELECT 'no.such' AS n) t",
            "no.such",
        ),
    ] {
        let error = answer_of(sql).await.unwrap_err();
        assert!(error.contains(told), "{sql}: {error}");
    }
}

#[tokio::test]
async fn every_table_can_be_read() {
    for (schema, tables) in [
        ("pg_catalog", columns::CATALOG),
        ("information_schema", columns::INFORMATION),
    ] {
        for table in tables {
            let rows = answer_of(&format!("SELECT count(*) FROM {schema}.{}", table.name)).await;
            let count: u32 = rows.unwrap()[0].parse().unwrap();
            // This database has neither views nor indexes.
            let made = ["pg_index", "pg_indexes", "pg_views", "views"].contains(&table.name);
            assert_eq!(count == 0, table.empty || made, "{}", table.name);
        }
    }
}

#[test]
fn ordinary_statements_stay_as_they_are() {
    for sql in [
        "select  time, speed from cars where time > now() - interval '1 hour'",
        "SELECT floor(extract(epoch from time)/60)*60 AS \"time\", avg(speed) FROM cars GROUP BY 1 ORDER BY 1",
        "insert into cars values (1)",
        "nonsense",
    ] {
        assert_eq!(rewritten(sql, &Fixed, 7).unwrap().sql, None, "{sql}");
    }
    let error = rewritten("select current_setting('no.such')", &Fixed, 7).unwrap_err();
    assert_eq!(error.sqlstate(), "42704");
    let lenient = rewritten("select current_setting('no.such', true)", &Fixed, 7).unwrap();
    assert_eq!(lenient.sql.as_deref(), Some("SELECT NULL"));
}

#[test]
fn columns_are_called_as_in_postgresql() {
    for (sql, wanted) in [
        (
            "select a.b, max(x), 1, x::int, '1'::int8, case when true then 1 end, (select y)",
            "b max ?column? x int8 case y",
        ),
        ("select x as y, X", " x"),
        ("select * from t", "-"),
        ("select 1 union select 2", "?column?"),
    ] {
        let labels = rewritten(sql, &Fixed, 7).unwrap().labels;
        let got = labels.map_or("-".to_owned(), |labels| {
            let names = labels.into_iter().map(Option::unwrap_or_default);
            names.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(got, wanted, "{sql}");
    }
}
