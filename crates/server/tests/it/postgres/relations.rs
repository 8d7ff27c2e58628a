//! Views and indexes in the catalog: what CREATE made is listed by its name, its number, its
//! columns and its text, to whom it may be told.

use super::raw::Client;
use super::{session, start};
use crate::support::Running;
use headwater_server::tokens::{NewToken, TokenFile};

const RELATIONS: [&str; 4] = [
    "CREATE VIEW fast AS SELECT id, max(speed), count(*) FROM cars GROUP BY id",
    "CREATE VIEW \"plant\".\"public\".\"named\" (a, b) AS SELECT id, laps FROM cars",
    "CREATE INDEX by_name ON cars (name, n)",
    "CREATE VIEW listed AS SELECT relname FROM pg_class WHERE relkind = 'v'",
];

fn server_with_relations() -> (Running, Client) {
    let server = start(|_| {});
    let mut client = session(&server);
    for sql in RELATIONS {
        let told = client.query(sql);
        assert!(
            told.iter().all(|line| !line.starts_with("E ")),
            "{sql}: {told:?}"
        );
    }
    (server, client)
}

/// Statements and the rows that they must give.
fn check_rows(client: &mut Client, cases: &[(&str, &[&str])]) {
    let mut wrong = Vec::new();
    for (sql, wanted) in cases {
        let found = client.rows(sql);
        if found != *wanted {
            wrong.push(format!("{sql}\n  gave {found:?}\n  not  {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn views_and_indexes_are_in_every_catalog() {
    let (_server, mut client) = server_with_relations();
    check_rows(
        &mut client,
        &[
            (
                "SELECT relname, relkind, relnatts FROM pg_class WHERE relnamespace = 2200 ORDER BY relname",
                &[
                    "Odd Name|r|3",
                    "by_name|i|2",
                    "cars|r|8",
                    "fast|v|3",
                    "listed|v|1",
                    "named|v|2",
                ],
            ),
            (
                "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1",
                &[
                    "fast|SELECT id, max(speed), count(*) FROM cars GROUP BY id",
                    "listed|SELECT relname FROM pg_catalog.pg_class WHERE relkind = \\'v\\'",
                    "named|SELECT id, laps FROM cars",
                ],
            ),
            (
                "SELECT table_name FROM information_schema.views WHERE table_schema = 'public' ORDER BY 1",
                &["fast", "listed", "named"],
            ),
            (
                "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
                &[
                    "Odd Name|BASE TABLE",
                    "cars|BASE TABLE",
                    "fast|VIEW",
                    "listed|VIEW",
                    "named|VIEW",
                ],
            ),
            (
                "SELECT column_name, data_type, numeric_precision FROM information_schema.columns WHERE table_name IN ('fast', 'named') ORDER BY table_name, ordinal_position",
                &[
                    "id|text|NULL",
                    "max|double precision|53",
                    "count|bigint|64",
                    "a|text|NULL",
                    "b|numeric|20",
                ],
            ),
            (
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'named'::regclass ORDER BY attnum",
                &["a|text", "b|numeric(20,0)"],
            ),
            (
                "SELECT tablename, indexname, indexdef FROM pg_indexes",
                &["cars|by_name|CREATE INDEX by_name ON public.cars USING btree (name, n)"],
            ),
            (
                "SELECT c.relname, t.relname, indnatts, indisunique, indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid",
                &["by_name|cars|2|f|t"],
            ),
            (
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) ORDER BY 1",
                &["n", "name"],
            ),
            (
                "SELECT pg_get_indexdef(indexrelid, 2, true), pg_get_indexdef(indexrelid) FROM pg_index",
                &["n|CREATE INDEX by_name ON public.cars USING btree (name, n)"],
            ),
            // Vectors are written with spaces, and begin at 0.
            (
                "SELECT indkey, indoption, indclass FROM pg_index",
                &["5 7|0 0|0 0"],
            ),
            (
                "SELECT i.indkey[0], i.indkey[1], i.indoption[0] & 1, array_upper(i.indkey, 1) FROM pg_index i",
                &["5|7|0|1"],
            ),
            (
                "SELECT pg_get_indexdef(x.indexrelid, x.ord + 1, true) FROM (SELECT indexrelid, unnest(indkey) AS att, generate_subscripts(indkey, 1) AS ord FROM pg_index) x ORDER BY x.ord",
                &["name", "n"],
            ),
            (
                "SELECT r.n, (r.keys).x FROM (SELECT (information_schema._pg_expandarray(i.indkey)).n AS n, information_schema._pg_expandarray(i.indkey) AS keys FROM pg_catalog.pg_index i) r ORDER BY 1",
                &["1|5", "2|7"],
            ),
            (
                "SELECT hasindexes FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename",
                &["f", "t"],
            ),
            (
                "SELECT pg_get_viewdef('named'::regclass, true), pg_get_viewdef('public.named')",
                &["SELECT id, laps FROM cars|SELECT id, laps FROM cars"],
            ),
            (
                "SELECT 'fast'::regclass = (SELECT oid FROM pg_class WHERE relname = 'fast'), to_regclass('nothere') IS NULL",
                &["t|t"],
            ),
            (
                "SELECT relname, pg_table_is_visible(oid) FROM pg_class WHERE relname IN ('fast', 'by_name', 'pg_type', 'columns') ORDER BY 1",
                &["by_name|t", "columns|f", "fast|t", "pg_type|t"],
            ),
            (
                "SELECT c.relname, t.typname, t.typrelid = c.oid FROM pg_class c JOIN pg_type t ON t.oid = c.reltype WHERE c.relname IN ('cars', 'fast', 'by_name') ORDER BY 1",
                &["cars|cars|t", "fast|fast|t"],
            ),
            ("SELECT count(*) - count(DISTINCT oid) FROM pg_type", &["0"]),
            (
                "SELECT count(*) - count(DISTINCT oid) FROM pg_class",
                &["0"],
            ),
            (
                "SELECT relname FROM listed ORDER BY 1 LIMIT 1",
                &["applicable_roles"],
            ),
            ("SELECT max, count FROM fast WHERE id = 'seen'", &["1.5|1"]),
        ],
    );
    // As over HTTP.
    assert_eq!(client.rows("SHOW VIEWS").len(), 3);
    assert_eq!(client.rows("show indexes").len(), 1);
    assert_eq!(client.rows("SHOW INDEXES FROM cars").len(), 1);
    client.query("CREATE SNAPSHOT before");
    assert_eq!(client.rows("SHOW SNAPSHOTS").len(), 1);
    // What goes, goes from the catalog.
    assert_eq!(
        client.query("DROP VIEW \"plant\".public.named, fast CASCADE")[0],
        "C DROP VIEW"
    );
    assert_eq!(
        client.query("DROP INDEX plant.public.by_name")[0],
        "C DROP INDEX"
    );
    check_rows(
        &mut client,
        &[
            ("SELECT viewname FROM pg_views", &["listed"]),
            ("SELECT * FROM pg_index", &[]),
            (
                "SELECT 'fast'::regclass",
                &["E 42P01 relation \"fast\" does not exist"],
            ),
        ],
    );
}

#[test]
fn views_are_renamed() {
    let (_server, mut client) = server_with_relations();
    for sql in [
        "ALTER VIEW \"plant\".\"public\".\"named\" RENAME TO \"Named 2\"",
        "ALTER TABLE fast RENAME TO quick",
        "ALTER VIEW IF EXISTS nothere RENAME TO x",
    ] {
        assert_eq!(client.query(sql)[0], "C ALTER TABLE", "{sql}");
    }
    check_rows(
        &mut client,
        &[
            (
                "SELECT viewname FROM pg_views ORDER BY 1",
                &["Named 2", "listed", "quick"],
            ),
            ("SELECT a FROM \"Named 2\" WHERE b = 3", &["seen"]),
            ("SELECT count(*) FROM plant.public.quick", &["2"]),
            (
                "ALTER VIEW quick RENAME TO cars",
                &["E 42P07 `cars` already exists"],
            ),
            (
                "ALTER VIEW nothere RENAME TO x",
                &["E 42P01 there is no table `nothere`"],
            ),
        ],
    );
}

#[test]
fn views_and_indexes_of_what_a_token_does_not_see_are_not_told() {
    let mut token = String::new();
    let server = start(|settings| {
        let new = NewToken {
            name: "a".to_owned(),
            rules: vec!["read Odd*".parse().unwrap()],
            expires: None,
        };
        token = TokenFile::of_database(settings.db()).create(new).unwrap();
        let new = NewToken {
            name: "all".to_owned(),
            rules: ["read *", "manage *"].map(|r| r.parse().unwrap()).into(),
            expires: None,
        };
        let all = TokenFile::of_database(settings.db()).create(new).unwrap();
        token = format!("{token} {all}");
    });
    let (own, all) = token.split_once(' ').unwrap();
    let enter = |token: &str| {
        let mut client = Client::connect(server.postgres.unwrap());
        client.begin(&[("user", "ann"), ("database", "plant")]);
        client.next().unwrap();
        client.send(&[super::raw::message(b'p', &super::raw::texts(&[token]))]);
        client.ready();
        client
    };
    let mut manager = enter(all);
    for sql in &RELATIONS[..3] {
        let told = manager.query(sql);
        assert!(told[0].starts_with("C CREATE"), "{sql}: {told:?}");
    }
    manager.query("CREATE VIEW odd AS SELECT v FROM \"Odd Name\"");
    let mut client = enter(own);
    check_rows(
        &mut client,
        &[
            ("SELECT viewname FROM pg_views", &["odd"]),
            ("SELECT indexname FROM pg_indexes", &[]),
            (
                "SELECT relname FROM pg_class WHERE relnamespace = 2200 ORDER BY 1",
                &["Odd Name", "odd"],
            ),
            (
                "SELECT to_regclass('fast') IS NULL, to_regclass('odd') IS NULL",
                &["t|f"],
            ),
        ],
    );
}
