//! Statements that mean here what they mean to PostgreSQL 15: names of columns of queries within
//! queries, texts beside values of other types, numbers of rows, names with the database before
//! them, tables of the catalog that are empty.

use super::{session, start};

/// Statements with their columns and rows.
fn mean(cases: &[(&str, &str, &[&str])]) {
    let server = start(|_| {});
    let mut client = session(&server);
    let mut wrong = Vec::new();
    for (sql, columns, rows) in cases {
        let told = client.query(sql);
        let error = told.iter().find(|line| line.starts_with("E "));
        let names: Vec<&str> = told
            .iter()
            .filter_map(|line| line.strip_prefix("T "))
            .flat_map(|line| line.split(','))
            .map(|column| column.rsplit_once(':').map_or(column, |(name, _)| name))
            .collect();
        let found: Vec<&str> = told
            .iter()
            .filter_map(|line| line.strip_prefix("D "))
            .collect();
        let (named, found) = match error {
            Some(error) => (String::new(), vec![error.as_str()]),
            None => (names.join(","), found),
        };
        if named != *columns || found != *rows {
            wrong.push(format!(
                "{sql}\n  gave {named} {found:?}\n  not  {columns} {rows:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn columns_of_queries_within_queries_have_postgresqls_names() {
    mean(&[
        (
            "SELECT count FROM (SELECT count(*) FROM cars) s",
            "count",
            &["2"],
        ),
        (
            "SELECT s.max, s.min FROM (SELECT max(speed), min(speed) FROM cars) s",
            "max,min",
            &["2.5|1.5"],
        ),
        (
            "WITH a AS (SELECT avg(speed), id FROM cars GROUP BY id) SELECT avg FROM a ORDER BY avg",
            "avg",
            &["1.5", "2.5"],
        ),
        (
            "SELECT lag FROM (SELECT lag(speed) OVER (ORDER BY time) FROM cars) s ORDER BY 1 NULLS FIRST",
            "lag",
            &["NULL", "1.5"],
        ),
        (
            "SELECT date_trunc FROM (SELECT date_trunc('day', time) FROM cars WHERE id = 'seen') s",
            "date_trunc",
            &["2023-11-14 00:00:00+00"],
        ),
        (
            "SELECT * FROM (SELECT count(*), max(laps), max(speed) FROM cars) s",
            "count,max,max",
            &["2|3|2.5"],
        ),
        (
            "SELECT \"case\", \"?column?\", int4, upper FROM (SELECT CASE WHEN ok THEN 1 ELSE 2 END, 1 + 1, 3::int, upper(id) FROM cars WHERE ok) s",
            "case,?column?,int4,upper",
            &["1|2|3|SEEN"],
        ),
        (
            "SELECT n FROM (SELECT CASE WHEN ok THEN 1 ELSE n END FROM cars WHERE ok) s",
            "n",
            &["1"],
        ),
        (
            "SELECT sum FROM (SELECT sum(n) FROM cars UNION ALL SELECT 9) s ORDER BY sum",
            "sum",
            &["4", "9"],
        ),
        (
            "SELECT id, count(*) FROM cars GROUP BY id ORDER BY count DESC, id",
            "id,count",
            &["other|1", "seen|1"],
        ),
        (
            "SELECT t.coalesce, u.coalesce FROM (SELECT coalesce(n, 0) FROM cars WHERE ok) t, (SELECT coalesce(laps, 0) FROM cars WHERE ok) u",
            "coalesce,coalesce",
            &["4|3"],
        ),
        (
            "SELECT (SELECT max(speed) FROM cars), (SELECT 1)",
            "max,?column?",
            &["2.5|1"],
        ),
        (
            "SELECT date_trunc('day', time), count(*) FROM cars GROUP BY date_trunc",
            "date_trunc,count",
            &["2023-11-14 00:00:00+00|2"],
        ),
        // A column of the table goes before one of the answer.
        (
            "SELECT upper(name), id::text FROM cars GROUP BY name, id ORDER BY id",
            "upper,id",
            &["NULL|other", "X|seen"],
        ),
        // What has a name keeps it.
        (
            "SELECT c FROM (SELECT count(*) AS c FROM cars) s",
            "c",
            &["2"],
        ),
        (
            "SELECT a FROM (SELECT count(*) FROM cars) s(a)",
            "a",
            &["2"],
        ),
    ]);
}

#[test]
fn columns_that_are_written_alike_have_one_name() {
    mean(&[
        (
            "SELECT interval '90 minutes', interval '1.5 hours'",
            "interval,interval",
            &["01:30:00|01:30:00"],
        ),
        (
            "SELECT 1.5, 1.50 IS NULL, 01, 1, 1",
            "?column?,?column?,?column?,?column?,?column?",
            &["1.5|f|1|1|1"],
        ),
        (
            "SELECT count(*) FROM (SELECT 1.5 AS a, interval '1 h', interval '60 min') s",
            "count",
            &["1"],
        ),
        (
            "SELECT speed * 2, speed  *  2, speed * 02 FROM cars WHERE ok",
            "?column?,?column?,?column?",
            &["3|3|3"],
        ),
        (
            "SELECT now() = now(), current_timestamp = now()",
            "?column?,?column?",
            &["t|t"],
        ),
        (
            "SELECT 'x'::text, 1::int::text, true, date '2024-01-01'",
            "text,text,?column?,date",
            &["x|1|t|2024-01-01"],
        ),
        (
            "SELECT trim(leading 'x' from 'xa'), 1.5::decimal IS NULL, '1'::char(3)",
            "ltrim,?column?,bpchar",
            &["a|f|1"],
        ),
    ]);
}

#[test]
fn texts_beside_truth_values_are_truth_values() {
    mean(&[
        ("SELECT id FROM cars WHERE ok = 'true'", "id", &["seen"]),
        ("SELECT id FROM cars WHERE 't' = ok", "id", &["seen"]),
        ("SELECT id FROM cars WHERE ok <> 'off'", "id", &["seen"]),
        (
            "SELECT id FROM cars WHERE ok IN ('yes', 'false')",
            "id",
            &["seen"],
        ),
        ("SELECT id FROM cars WHERE ok NOT IN ('n')", "id", &["seen"]),
        (
            "SELECT id FROM cars WHERE ok IS DISTINCT FROM 'true'",
            "id",
            &["other"],
        ),
        (
            "SELECT id FROM cars WHERE ok IS NOT DISTINCT FROM '1'",
            "id",
            &["seen"],
        ),
        (
            "SELECT ok = 'on', ok > 'f', ok AND 'true' FROM cars WHERE ok",
            "?column?,?column?,?column?",
            &["t|t|t"],
        ),
        (
            "SELECT CASE WHEN speed > 2 THEN 'false' ELSE ok END FROM cars ORDER BY time",
            "ok",
            &["t", "f"],
        ),
        (
            "SELECT CASE ok WHEN 'true' THEN 1 ELSE 2 END FROM cars ORDER BY time",
            "case",
            &["1", "2"],
        ),
        (
            "SELECT id FROM cars WHERE ok = 'vrai'",
            "",
            &["E 22P02 'vrai' is compared with a boolean: expected 'true' or 'false'"],
        ),
        (
            "SELECT id FROM cars WHERE ok BETWEEN 'f' AND 'true'",
            "id",
            &["seen"],
        ),
        // A text stays one.
        (
            "SELECT 'true' = 'true', name = 'true' FROM cars WHERE ok",
            "?column?,?column?",
            &["t|f"],
        ),
    ]);
}

#[test]
fn numbers_of_rows_may_be_texts() {
    mean(&[
        (
            "SELECT id FROM cars ORDER BY time LIMIT '1'",
            "id",
            &["seen"],
        ),
        (
            "SELECT id FROM cars ORDER BY time LIMIT ' 5 ' OFFSET '1'",
            "id",
            &["other"],
        ),
        (
            "SELECT id FROM cars ORDER BY time LIMIT 1.4",
            "id",
            &["seen"],
        ),
        (
            "SELECT count(*) FROM (SELECT id FROM cars LIMIT '1') s",
            "count",
            &["1"],
        ),
        (
            "SELECT id FROM cars LIMIT 'x'",
            "",
            &["E 22P02 LIMIT: expected a whole number, found 'x'"],
        ),
    ]);
}

#[test]
fn names_may_have_the_database_before_them() {
    mean(&[
        (
            "SELECT \"plant\".\"public\".\"cars\".\"speed\" FROM \"plant\".\"public\".\"cars\" WHERE ok",
            "speed",
            &["1.5"],
        ),
        (
            "SELECT plant.public.cars.* FROM plant.public.cars WHERE id = 'other' AND false",
            "time,id,speed,laps,name,ok,n,raw",
            &[],
        ),
        (
            "CREATE TABLE plant.public.made (time TIMESTAMPTZ, v DOUBLE)",
            "",
            &[],
        ),
        (
            "INSERT INTO \"plant\".\"public\".\"made\" (time, v) VALUES ('2024-01-01', 1)",
            "",
            &[],
        ),
        ("SELECT v FROM made", "v", &["1"]),
        ("DELETE FROM plant.public.made", "", &[]),
        ("CREATE INDEX ON plant.public.made (v)", "", &[]),
        ("ALTER TABLE plant.public.made ADD COLUMN w DOUBLE", "", &[]),
        (
            "CREATE OR REPLACE VIEW plant.public.seen AS SELECT m.w FROM plant.public.made m",
            "",
            &[],
        ),
        ("SELECT count(*) FROM plant.public.seen", "count", &["0"]),
        (
            "DROP VIEW IF EXISTS plant.public.seen, public.nothere CASCADE",
            "",
            &[],
        ),
        ("DROP TABLE plant.public.made", "", &[]),
        (
            "SELECT * FROM made",
            "",
            &["E 42P01 there is no table `made`"],
        ),
    ]);
}

#[test]
fn empty_tables_of_the_catalog_have_no_types_of_their_own() {
    mean(&[
        (
            "SELECT attnotnull n FROM pg_attribute WHERE false UNION ALL SELECT NULL n FROM pg_constraint",
            "n",
            &[],
        ),
        (
            "SELECT 1 AS n UNION ALL SELECT NULL FROM pg_constraint UNION ALL SELECT NULL FROM pg_enum",
            "n",
            &["1"],
        ),
        (
            "SELECT time FROM cars WHERE false UNION SELECT NULL FROM pg_trigger",
            "time",
            &[],
        ),
        (
            "SELECT 'a' AS k, NULL AS v, NULL AS w FROM pg_constraint UNION ALL SELECT 'b', 2, true",
            "k,v,w",
            &["b|2|t"],
        ),
        (
            "SELECT CASE contype WHEN 'p' THEN (SELECT 1) END AS c FROM pg_constraint UNION ALL SELECT 7",
            "c",
            &["7"],
        ),
        (
            "SELECT (SELECT 1)::int AS c, EXISTS (SELECT 1) AS e FROM pg_constraint UNION ALL SELECT 7, false",
            "c,e",
            &["7|f"],
        ),
    ]);
}

#[test]
fn functions_of_types_are_numbers_beside_numbers() {
    mean(&[
        (
            "SELECT count(*) > 50 FROM pg_type WHERE typsend <> 0",
            "?column?",
            &["t"],
        ),
        (
            "SELECT count(*) > 50 FROM pg_type WHERE (typreceive != 0 OR typsend != 0) AND typtype != 'r' AND typreceive::TEXT != 'array_recv'",
            "?column?",
            &["t"],
        ),
        (
            "SELECT count(*) FROM pg_type WHERE typanalyze <> 0 OR 0 < typmodin",
            "count",
            &["0"],
        ),
        (
            "SELECT count(*) FROM pg_type WHERE typsend IN (0) OR typinput = 0::oid",
            "count",
            &["0"],
        ),
        (
            "SELECT p.proname FROM pg_type t JOIN pg_proc p ON p.oid = t.typsend WHERE t.typname = 'timestamptz'",
            "proname",
            &["timestamptz_send"],
        ),
        (
            "SELECT typreceive, typsend FROM pg_type WHERE oid IN (16, 1700) ORDER BY oid",
            "typreceive,typsend",
            &["boolrecv|boolsend", "numeric_recv|numeric_send"],
        ),
        (
            "SELECT a.amname FROM pg_am a WHERE a.amhandler <> 0 ORDER BY 1",
            "amname",
            &["btree", "heap"],
        ),
    ]);
}

#[test]
fn a_database_of_any_name_is_there() {
    let server = start(|_| {});
    let mut client = session(&server);
    let told = client.query("CREATE DATABASE bench WITH OWNER ann");
    assert!(
        told[0].starts_with("N 00000 nothing was created: every database name, \"bench\""),
        "{told:?}"
    );
    assert_eq!(told[1], "C CREATE DATABASE");
    let refused = client.rows("DROP DATABASE bench");
    assert!(
        refused[0].starts_with("E 0A000 DROP DATABASE"),
        "{refused:?}"
    );
    // What is not ours is refused by its name.
    for (sql, told) in [
        (
            "CREATE TABLE a (id SERIAL, time TIMESTAMPTZ, v DOUBLE)",
            "SERIAL",
        ),
        ("CREATE TABLE a (time TIMESTAMPTZ, v JSONB)", "JSONB"),
        (
            "CREATE TABLE a (id BIGINT GENERATED ALWAYS AS IDENTITY)",
            "IDENTITY",
        ),
        ("CREATE UNIQUE INDEX ON cars (n)", "CREATE UNIQUE INDEX"),
    ] {
        client.send(&[super::raw::message(b'Q', &super::raw::texts(&[sql]))]);
        let answers = client.ready();
        let error = answers.iter().find(|answer| answer.kind == 'E').unwrap();
        assert!(error.error().contains(told), "{sql}: {}", error.error());
        assert!(
            error.error_field(b'H').is_some(),
            "{sql}: {}",
            error.error()
        );
    }
    // A table without a time has one.
    client.query("CREATE TABLE timeless (v DOUBLE PRECISION)");
    assert_eq!(
        client.query("INSERT INTO timeless (v) VALUES (1)")[0],
        "C INSERT 0 1"
    );
    assert_eq!(
        client.rows("SELECT time <= now(), v FROM timeless"),
        ["t|1"]
    );
}
