//! A table of rules and statements: what each token sees of two streams, and what it may change.

use super::START;
use crate::support::{Running, client};
use headwater::{Batch, Database, StreamName};
use headwater_server::tokens::{NewToken, TokenFile};
use serde_json::{Value, json as value};
use std::collections::BTreeMap;

struct Scene {
    server: Running,
    tokens: BTreeMap<&'static str, String>,
}

impl Scene {
    fn new() -> Scene {
        let rules: [(&str, &[&str]); 7] = [
            ("nothing", &[]),
            ("read all", &["read *"]),
            ("read seen", &["read cars,id=seen"]),
            ("read other", &["read other"]),
            ("write seen", &["read *", "write cars,id=seen"]),
            ("manage cars", &["manage cars", "read cars"]),
            ("manage seen", &["manage cars,id=seen", "read cars"]),
        ];
        let mut tokens = BTreeMap::new();
        let server = Running::start_with(|settings| {
            let db = Database::open(settings.engine.clone()).unwrap();
            let mut batch = Batch::new();
            for (table, id, v) in [
                ("cars", "seen", 1.5),
                ("cars", "hidden", 9.5),
                ("vans", "hidden", 7.5),
            ] {
                let rows = batch.stream(&StreamName::new(table, [("id", id)]));
                rows.row(START, [("v", v.into())]).unwrap();
                // A tag and a field that only a hidden stream has.
                if id == "hidden" {
                    let rows =
                        batch.stream(&StreamName::new(table, [("id", id), ("secret_tag", "s")]));
                    rows.row(START, [("secret_field", 1.0.into())]).unwrap();
                }
            }
            db.commit(batch).unwrap();
            db.close().unwrap();
            let file = TokenFile::of_database(settings.db());
            for (name, rules) in rules {
                let new = NewToken {
                    name: name.to_owned(),
                    rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
                    expires: None,
                };
                tokens.insert(name, file.create(new).unwrap());
            }
        });
        Scene { server, tokens }
    }

    fn query(&self, token: &str, sql: &str) -> Value {
        let token = self.tokens.get(token).unwrap();
        let mut answer = client()
            .post(self.server.url("/api/v1/sql"))
            .header("Authorization", format!("Bearer {token}"))
            .send(sql)
            .unwrap();
        answer.body_mut().read_json().unwrap()
    }

    /// The rows, or the code of the error.
    fn rows_or_code(&self, token: &str, sql: &str) -> Value {
        let answer = self.query(token, sql);
        match &answer["code"] {
            Value::Null => answer["rows"].clone(),
            code => code.clone(),
        }
    }
}

/// What one sees: everything, one stream, nothing.
#[test]
fn every_statement_that_reads_shows_what_the_token_may_read() {
    let scene = Scene::new();
    let unknown = || value!("unknown_table");
    let tables = |names: &[&str]| Value::Array(names.iter().map(|n| value!([n])).collect());
    for (sql, all, some, none) in [
        (
            "SELECT count(*) FROM cars",
            value!([[3]]),
            value!([[1]]),
            unknown(),
        ),
        (
            "SELECT count(v) FROM cars",
            value!([[2]]),
            value!([[1]]),
            unknown(),
        ),
        (
            "SELECT max(v) FROM cars",
            value!([[9.5]]),
            value!([[1.5]]),
            unknown(),
        ),
        (
            "SELECT max(v) FROM cars WHERE id = 'hidden'",
            value!([[9.5]]),
            value!([[null]]),
            unknown(),
        ),
        (
            "SELECT DISTINCT id FROM cars ORDER BY id",
            value!([["hidden"], ["seen"]]),
            value!([["seen"]]),
            unknown(),
        ),
        (
            "SELECT id, v FROM cars WHERE v > 0 ORDER BY v",
            value!([["seen", 1.5], ["hidden", 9.5]]),
            value!([["seen", 1.5]]),
            unknown(),
        ),
        (
            "SELECT date_bin(INTERVAL '1 day', time) AS d, count(v) FROM cars GROUP BY 1",
            value!([["2023-11-14T00:00:00Z", 2]]),
            value!([["2023-11-14T00:00:00Z", 1]]),
            unknown(),
        ),
        (
            "SELECT (SELECT count(*) FROM cars) + 0",
            value!([[3]]),
            value!([[1]]),
            unknown(),
        ),
        (
            "WITH c AS (SELECT * FROM cars) SELECT count(*) FROM c a, c b",
            value!([[9]]),
            value!([[1]]),
            unknown(),
        ),
        (
            "SELECT count(*) FROM vans",
            value!([[2]]),
            unknown(),
            unknown(),
        ),
        (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
            tables(&["cars", "vans"]),
            tables(&["cars"]),
            tables(&[]),
        ),
        (
            "SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1",
            tables(&["cars", "vans"]),
            tables(&["cars"]),
            tables(&[]),
        ),
    ] {
        assert_eq!(scene.rows_or_code("read all", sql), all, "{sql}");
        assert_eq!(scene.rows_or_code("read seen", sql), some, "{sql}");
        assert_eq!(scene.rows_or_code("read other", sql), none, "{sql}");
        assert_eq!(
            scene.rows_or_code("nothing", sql),
            value!("forbidden"),
            "{sql}"
        );
    }
}

#[test]
fn no_answer_names_what_may_not_be_read() {
    let scene = Scene::new();
    for sql in [
        "SHOW TABLES",
        "SHOW COLUMNS FROM cars",
        "DESCRIBE cars",
        "SELECT * FROM cars",
        "EXPLAIN SELECT * FROM cars",
        "EXPLAIN ANALYZE SELECT * FROM cars",
        "EXPLAIN ANALYZE SELECT count(*), max(v) FROM cars",
        "EXPLAIN ANALYZE SELECT id, max(v) FROM cars GROUP BY id",
        "SELECT * FROM information_schema.columns",
        "SELECT * FROM information_schema.tables",
        "SELECT hidden FROM cars",
        "SELECT * FROM van",
    ] {
        let hidden = ["hidden", "secret", "vans"];
        let some = scene
            .query("read seen", sql)
            .to_string()
            .replace("SELECT hidden", "");
        // The name that was asked for may be told again.
        let some = if sql.contains("hidden") {
            some.replace("`hidden`", "")
        } else {
            some
        };
        for word in hidden {
            assert!(!some.contains(word), "{sql}: {some}");
        }
        // The test must be able to tell: whoever may read it sees some of it.
        if ["SHOW TABLES", "SELECT * FROM cars"].contains(&sql) {
            let all = scene.query("read all", sql).to_string();
            assert!(hidden.iter().any(|word| all.contains(word)), "{sql}: {all}");
        }
    }
}

/// A table that may not be seen is answered like one that is not there, in every statement.
#[test]
fn a_hidden_table_looks_like_none() {
    let scene = Scene::new();
    for sql in [
        "SELECT * FROM TABLE",
        "SELECT count(*) FROM TABLE",
        "EXPLAIN SELECT * FROM TABLE",
        "EXPLAIN ANALYZE SELECT * FROM TABLE",
        "SHOW COLUMNS FROM TABLE",
        "DESCRIBE TABLE",
        "INSERT INTO TABLE (time, id, v) VALUES (now(), 'x', 1)",
        "DELETE FROM TABLE WHERE time < now()",
        "DROP TABLE TABLE",
        "ALTER TABLE TABLE ADD COLUMN x DOUBLE",
    ] {
        for token in ["read seen", "nothing"] {
            let about = |name: &str| {
                let answer = scene.query(
                    token,
                    &sql.replacen(
                        "TABLE",
                        "?",
                        usize::from(sql.starts_with("DROP") || sql.starts_with("ALTER")),
                    )
                    .replace("TABLE", name)
                    .replacen('?', "TABLE", 1),
                );
                answer.to_string().replace(name, "NAME")
            };
            assert_eq!(about("vans"), about("nope"), "{token}: {sql}");
        }
    }
    assert_eq!(
        scene.rows_or_code("read all", "SELECT count(*) FROM vans"),
        value!([[2]])
    );
}

#[test]
fn statements_that_change_something_need_the_right_for_each_stream() {
    let scene = Scene::new();
    let insert = |id: &str| {
        format!("INSERT INTO cars (time, id, v) VALUES ('2024-01-01T00:00:00Z', '{id}', 3)")
    };
    let count = |id: &str| {
        scene.rows_or_code(
            "read all",
            &format!("SELECT count(v) FROM cars WHERE id = '{id}'"),
        )
    };
    for token in [
        "read all",
        "read seen",
        "manage cars",
        "nothing",
        "read other",
    ] {
        for id in ["seen", "hidden", "new"] {
            let told = scene.rows_or_code(token, &insert(id));
            assert!(
                ["forbidden", "unknown_table", "refused"]
                    .contains(&told.as_str().unwrap_or("stored")),
                "{token} {id}: {told}"
            );
        }
    }
    for id in ["hidden", "new"] {
        let told = scene.rows_or_code("write seen", &insert(id));
        assert!(
            ["forbidden", "refused"].contains(&told.as_str().unwrap_or("stored")),
            "{id}: {told}"
        );
    }
    assert_eq!(
        (count("seen"), count("hidden"), count("new")),
        (value!([[1]]), value!([[1]]), value!([[0]]))
    );
    assert_eq!(
        scene.rows_or_code("write seen", &insert("seen")),
        value!([["inserted", 1]])
    );
    assert_eq!(count("seen"), value!([[2]]));

    let delete = "DELETE FROM cars WHERE time >= '2024-01-01T00:00:00Z'";
    for token in ["read all", "read seen", "manage cars", "nothing"] {
        scene.rows_or_code(token, delete);
        assert_eq!(count("seen"), value!([[2]]), "{token}");
    }
    // What may not be written stays, whatever the statement says.
    scene.rows_or_code("write seen", "DELETE FROM cars WHERE time < now()");
    assert_eq!(count("hidden"), value!([[1]]));
    scene.rows_or_code(
        "write seen",
        "DELETE FROM cars WHERE id = 'seen' AND time < now()",
    );
    assert_eq!(
        (count("seen"), count("hidden")),
        (value!([[0]]), value!([[1]]))
    );

    for token in [
        "read all",
        "read seen",
        "write seen",
        "manage seen",
        "nothing",
    ] {
        for sql in [
            "ALTER TABLE cars ADD COLUMN x DOUBLE",
            "DROP TABLE cars",
            "CREATE TABLE boats (time TIMESTAMP, v DOUBLE)",
        ] {
            let told = scene.rows_or_code(token, sql);
            assert!(
                ["forbidden", "unknown_table"].contains(&told.as_str().unwrap_or("done")),
                "{token}: {sql}: {told}"
            );
        }
    }
    assert_eq!(
        scene.rows_or_code("manage cars", "ALTER TABLE cars ADD COLUMN x DOUBLE"),
        value!([["altered", null]])
    );
    assert_eq!(
        scene.rows_or_code("manage cars", "DROP TABLE vans"),
        value!("unknown_table")
    );
    assert_eq!(
        scene.rows_or_code("manage cars", "DROP TABLE cars"),
        value!([["dropped", null]])
    );
    assert_eq!(
        scene
            .rows_or_code("read all", "SHOW TABLES")
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}
