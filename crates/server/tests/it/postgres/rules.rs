//! A table of tokens and statements: what each rule shows and lets change, over this protocol.

use super::raw::{Client, lines, message, texts};
use super::start;
use crate::support::Running;
use headwater_server::tokens::{NewToken, TokenFile};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

type Tokens = BTreeMap<&'static str, String>;

fn create_tokens(file: &TokenFile) -> Tokens {
    let rules: [(&str, &[&str]); 7] = [
        ("nothing", &[]),
        ("read all", &["read *"]),
        ("read seen", &["read cars,id=seen"]),
        (
            "read and write seen",
            &["read cars,id=seen", "write cars,id=seen"],
        ),
        ("write all", &["write *"]),
        ("read odd", &["read Odd*"]),
        ("all", &["read *", "write *", "manage *"]),
    ];
    rules
        .into_iter()
        .map(|(name, rules)| {
            let new = NewToken {
                name: name.to_owned(),
                rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
                expires: None,
            };
            (name, file.create(new).unwrap())
        })
        .collect()
}

fn scene() -> (Running, Tokens) {
    let mut tokens = Tokens::new();
    let server = start(|settings| tokens = create_tokens(&TokenFile::of_database(settings.db())));
    (server, tokens)
}

/// A session of this token, or why there is none.
fn enter(server: &Running, token: &str) -> Result<Client, String> {
    let mut client = Client::connect(server.postgres.unwrap());
    client.begin(&[("user", "anyone")]);
    let asked = client.next().unwrap();
    assert_eq!(
        (asked.kind, asked.body.as_slice()),
        ('R', &[0, 0, 0, 3][..])
    );
    client.send(&[message(b'p', &texts(&[token]))]);
    let answers = client.until_ready();
    match answers.last() {
        Some(last) if last.kind == 'Z' => Ok(client),
        _ => Err(lines(&answers).join("; ")),
    }
}

const COUNT: &str = "SELECT count(*) FROM cars";
const IDS: &str = "SELECT DISTINCT id FROM cars ORDER BY id";
const MOST: &str = "SELECT max(speed) FROM cars";
const CLASSES: &str = "SELECT relname FROM pg_class WHERE relnamespace = 2200 ORDER BY 1";
const TABLES: &str =
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1";
const COLUMNS: &str = "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'time' ORDER BY 1";
const ATTRIBUTES: &str = "SELECT c.relname FROM pg_attribute a JOIN pg_class c ON a.attrelid = c.oid WHERE c.relnamespace = 2200 AND attname = 'time' ORDER BY 1";
const NUMBER: &str = "SELECT to_regclass('cars') IS NULL";
const PG_TABLES: &str = "SELECT tablename FROM pg_tables ORDER BY 1";
const WRITE_VISIBLE: &str =
    "INSERT INTO cars (time, id, speed) VALUES ('2024-01-01T00:00:00Z', 'seen', 1.5)";
const WRITE_OTHER: &str =
    "INSERT INTO cars (time, id, speed) VALUES ('2024-01-01T00:00:00Z', 'other', 1.5)";
const DELETE: &str = "DELETE FROM cars WHERE time < '2000-01-01T00:00:00Z'";
const DROP: &str = "DROP TABLE cars";

#[test]
fn each_token_sees_and_changes_what_its_rules_say() {
    let (server, tokens) = scene();
    let both = "Odd Name,cars";
    let table: [(&str, &[(&str, &str)]); 5] = [
        (
            "read all",
            &[
                (COUNT, "2"),
                (IDS, "other,seen"),
                (MOST, "2.5"),
                (CLASSES, both),
                (TABLES, both),
                (COLUMNS, both),
                (ATTRIBUTES, both),
                (PG_TABLES, both),
                (NUMBER, "f"),
                (WRITE_VISIBLE, "E 42501"),
                (DELETE, "E 42501"),
                (DROP, "E 42501"),
            ],
        ),
        (
            "read seen",
            &[
                (COUNT, "1"),
                (IDS, "seen"),
                (MOST, "1.5"),
                (CLASSES, "cars"),
                (TABLES, "cars"),
                (COLUMNS, "cars"),
                (ATTRIBUTES, "cars"),
                (PG_TABLES, "cars"),
                ("SELECT * FROM \"Odd Name\"", "E 42P01"),
                (WRITE_VISIBLE, "E 42501"),
                ("SELECT '\"Odd Name\"'::regclass", "E 42P01"),
            ],
        ),
        (
            "read and write seen",
            &[
                (WRITE_OTHER, "E 42501"),
                (WRITE_VISIBLE, ""),
                (COUNT, "2"),
                (IDS, "seen"),
                (DROP, "E 42501"),
            ],
        ),
        (
            "read odd",
            &[
                (COUNT, "E 42P01"),
                (CLASSES, "Odd Name"),
                (TABLES, "Odd Name"),
                (NUMBER, "t"),
                ("SELECT v FROM \"Odd Name\"", "1"),
            ],
        ),
        // The last one, since it takes the table away.
        (
            "all",
            &[
                (COUNT, "3"),
                (WRITE_OTHER, ""),
                (COUNT, "4"),
                (DROP, ""),
                (COUNT, "E 42P01"),
                (CLASSES, "Odd Name"),
            ],
        ),
    ];
    let refused = enter(&server, &tokens["nothing"]).err().unwrap();
    assert!(refused.starts_with("E 42501"), "{refused}");
    let mut wrong = Vec::new();
    for (token, statements) in table {
        let mut client = enter(&server, &tokens[token]).unwrap();
        for (sql, wanted) in statements {
            let got = client.rows(sql).join(",");
            let same = match wanted.starts_with("E ") {
                true => got.starts_with(wanted),
                false => got == *wanted,
            };
            if !same {
                wrong.push(format!("{token}: {sql}: {got} is not {wanted}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Who may only write reads no row, nor learns what there is to read.
    let mut writer = enter(&server, &tokens["write all"]).unwrap();
    let told = writer.rows("SELECT v FROM \"Odd Name\"");
    assert!(told[0].starts_with("E 42501"), "{told:?}");
}

#[test]
fn only_tokens_open_the_door_and_only_while_they_hold() {
    let (server, tokens) = scene();
    for wrong in ["", "hw_wrong", "ann"] {
        let why = enter(&server, wrong).err().unwrap();
        assert!(why.starts_with("E 28P01"), "{why}");
    }
    let mut client = Client::connect(server.postgres.unwrap());
    client.begin(&[("user", "ann")]);
    client.next();
    client.send(&[message(b'Q', &texts(&["SELECT 1"]))]);
    assert!(client.next().unwrap().error().starts_with("08P01"));
    let mut held = enter(&server, &tokens["read seen"]).unwrap();
    assert_eq!(held.rows(COUNT), ["1"]);
    TokenFile::of_database(server.db())
        .revoke("read seen")
        .unwrap();
    let begun = Instant::now();
    loop {
        held.send(&[message(b'Q', &texts(&[COUNT]))]);
        let answers = held.until_ready();
        if answers.last().is_none_or(|last| last.kind != 'Z') {
            // It may have ended after the first of its answer.
            let lines = lines(&answers);
            let last = lines.last().map(String::as_str).unwrap_or_default();
            assert!(last.starts_with("E 57P01"), "{lines:?}");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it never ended");
        std::thread::sleep(Duration::from_millis(100));
    }
}
