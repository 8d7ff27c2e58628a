//! Tables with more streams than names of them are held: the answers are those of the same
//! statements where all names are, and few names are held for them.

use crate::support::{Lake, SECOND, batches, block_on, rows, text};
use headwater::{Batch, ClosedRange, Database, Options, StreamName};
use headwater_query::{Access, Limits, Outcome, Query, Session, Unrestricted};
use headwater_testing::Dice;
use std::sync::Arc;

const IDS: [&str; 7] = ["", "a", "b", "aa", "ab", "z", "long value"];
const SITES: [&str; 4] = ["", "n", "no", "s"];

fn id(random: &mut Dice) -> String {
    format!("{}{}", random.pick(&IDS), random.below(9))
}

fn name(random: &mut Dice) -> StreamName {
    let mut tags = Vec::new();
    if random.below(8) > 0 {
        tags.push(("id", id(random)));
    }
    if random.below(4) > 0 {
        tags.push(("site", random.pick(&SITES).to_owned()));
    }
    if random.below(3) > 0 {
        tags.push(("kind", random.pick(&["x", "y"]).to_owned()));
    }
    StreamName::new("m", tags)
}

/// Rows of many streams, each at an instant of its own; some in files, some deleted, some of
/// streams that are dropped.
fn live(db: &Database, random: &mut Dice, clock: &mut i64) {
    for _ in 0..6 {
        let mut batch = Batch::new();
        for _ in 0..40 {
            let stream = name(random);
            let late = if random.below(6) == 0 { 300 } else { 0 };
            *clock += 1;
            let row = [
                ("v", (*clock % 17).into()),
                ("w", (*clock as f64 / 3.0).into()),
            ];
            let row = row.into_iter().take(1 + random.below(2) as usize);
            let time = (*clock - late) * SECOND + *clock;
            batch.stream(&stream).row(time, row).unwrap();
            let other = StreamName::new("other", stream.tags().to_vec());
            batch
                .stream(&other)
                .row(*clock, [("v", 1.0.into())])
                .unwrap();
        }
        db.commit(batch).unwrap();
        match random.below(4) {
            0 => db.flush().unwrap(),
            1 => {
                let from = (*clock - 60) * SECOND;
                let range = ClosedRange::nanos(from, *clock * SECOND);
                db.delete_streams("m", &[name(random)], range).unwrap();
            }
            2 => {
                let gone = [("id".to_owned(), id(random))];
                db.drop_streams("m", &gone).unwrap();
            }
            _ => {}
        }
    }
}

fn condition(random: &mut Dice) -> String {
    let id = id(random);
    let site = random.pick(&SITES);
    match random.below(11) {
        0 => String::new(),
        1 => format!("WHERE id = '{id}'"),
        2 => format!("WHERE site = '{site}'"),
        3 => format!("WHERE id IN ('{id}', 'a1', 'b2', 'zz', 'ab4') AND site = '{site}'"),
        4 => "WHERE id LIKE 'a%'".to_owned(),
        5 => "WHERE site IS NULL".to_owned(),
        6 => format!("WHERE (id = '{id}' OR id = 'ab3') AND kind = 'x' AND v > 3"),
        7 => format!("WHERE site <> '{site}' AND time > '1970-01-01T00:01:00Z'"),
        8 => "WHERE site = NULL".to_owned(),
        9 => format!("WHERE 's' = site AND (kind = 'x' OR id = '{id}')"),
        _ => "WHERE time < '1970-01-01T00:02:10Z' AND kind = 'y'".to_owned(),
    }
}

fn statement(random: &mut Dice) -> String {
    let c = condition(random);
    let n = 1 + random.below(9);
    match random.below(11) {
        0 => format!("SELECT * FROM m {c} ORDER BY time"),
        1 => format!("SELECT count(*) FROM m {c}"),
        2 => format!("SELECT * FROM m {c} ORDER BY time DESC LIMIT {n}"),
        3 => format!("SELECT time, v + 1, id FROM m {c} ORDER BY time LIMIT {n} OFFSET 2"),
        4 => format!(
            "SELECT site, count(*), min(v), max(v), sum(v) FROM m {c} GROUP BY site ORDER BY site NULLS LAST"
        ),
        5 => {
            format!("SELECT upper(id) AS i, kind, count(v) FROM m {c} GROUP BY 1, 2 ORDER BY 1, 2")
        }
        6 => format!("SELECT last(v, time), first(v, time), max(time) FROM m {c}"),
        7 => format!(
            "SELECT date_bin(INTERVAL '1 minute', time) AS t, count(*), max(v) FROM m {c} GROUP BY t ORDER BY t"
        ),
        8 => format!("SELECT DISTINCT id, site FROM m {c} ORDER BY id, site"),
        9 => format!("SELECT id, site, kind, time FROM m {c} ORDER BY id, site, kind, time"),
        _ => format!("SELECT count(*) FROM (SELECT * FROM m {c} LIMIT {n})"),
    }
}

/// Reads streams of some sites.
struct Sites(&'static [&'static str]);

impl Access for Sites {
    fn reads(&self, _: &str, tags: &[(String, String)]) -> bool {
        let site = tags.iter().find(|(k, _)| k == "site");
        site.is_some_and(|(_, site)| self.0.contains(&site.as_str()))
    }

    fn writes(&self, _: &str, _: &[(String, String)]) -> bool {
        false
    }

    fn manages(&self, _: &str) -> bool {
        false
    }

    fn all(&self) -> bool {
        false
    }

    fn key(&self) -> Option<String> {
        Some(self.0.join(","))
    }
}

fn sessions(db: &Database, names: usize) -> Vec<Session> {
    let limits = Limits {
        names,
        ..Limits::default()
    };
    let query = Query::new(db.clone(), limits);
    let all: Arc<dyn Access> = Arc::new(Unrestricted);
    let accesses = [
        all,
        Arc::new(Sites(&["n", "s"])),
        Arc::new(Sites(&[""])),
        Arc::new(Sites(&["nowhere"])),
    ];
    accesses.map(|access| query.session(access)).to_vec()
}

async fn answer(session: &Session, sql: &str) -> Result<Vec<String>, String> {
    match batches(session, sql).await {
        Ok(batches) => Ok(text(&batches)),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn answers_are_the_same_whether_or_not_all_names_are_held() {
    block_on(async {
        for seed in 0..8 {
            let mut random = Dice::new(seed);
            let dir = tempfile::tempdir().unwrap();
            let open = || Database::open(Options::new(dir.path().join("db"))).unwrap();
            let (mut db, mut clock) = (open(), 0);
            for restart in [false, true, false] {
                if restart {
                    db.close().unwrap();
                    drop(db);
                    db = open();
                }
                live(&db, &mut random, &mut clock);
                let held = sessions(&db, 100_000);
                let paged = sessions(&db, 1 + random.below(12) as usize);
                for _ in 0..20 {
                    let sql = statement(&mut random);
                    for (held, paged) in held.iter().zip(&paged) {
                        let expected = answer(held, &sql).await;
                        let found = answer(paged, &sql).await;
                        assert_eq!(found, expected, "seed {seed}: {sql}");
                    }
                }
                for (held, paged) in held.iter().zip(&paged) {
                    let tables = "SHOW TABLES";
                    assert_eq!(rows(paged, tables).await, rows(held, tables).await);
                }
            }
        }
    });
}

fn lake(names: usize) -> Lake {
    let limits = Limits {
        names,
        ..Limits::default()
    };
    Lake::with(limits, |options| options)
}

#[test]
fn few_names_of_a_large_table_are_held_whatever_is_asked() {
    block_on(async {
        let lake = lake(16);
        let mut batch = Batch::new();
        for i in 0..3_000i64 {
            let tags = [("id", format!("d{i:04}")), ("site", format!("s{}", i % 7))];
            let rows = batch.stream(&StreamName::new("m", tags));
            rows.row(i * SECOND, [("v", i.into())]).unwrap();
        }
        lake.db.commit(batch).unwrap();
        for flush in [false, true] {
            if flush {
                lake.db.flush().unwrap();
            }
            for (sql, expected) in [
                ("SELECT v FROM m WHERE id = 'd1234'", "1234"),
                ("SELECT count(*) FROM m", "3000"),
                ("SELECT id FROM m ORDER BY time DESC LIMIT 1", "d2999"),
                ("SELECT id FROM m ORDER BY time LIMIT 1", "d0000"),
                ("SELECT sum(v) FROM m", "4498500"),
                ("SELECT count(*) FROM m WHERE site = 's3'", "429"),
                ("SELECT count(DISTINCT id) FROM m", "3000"),
                ("SELECT max(v) FROM m WHERE v < 100", "99"),
            ] {
                assert_eq!(lake.rows(sql).await, [expected], "{sql}");
            }
        }
        // Of each statement some pages, and what `WHERE id = …` chose.
        let (now, most) = lake.query.names_loaded();
        assert!(now <= 64 && most <= 128, "{now} {most}");
        for (sql, holds) in [
            ("SELECT * FROM m", "streams by pages"),
            (
                "SELECT * FROM m ORDER BY time DESC LIMIT 5",
                "the newest 5 rows",
            ),
            ("SELECT * FROM m WHERE id = 'd0007'", "streams=1,"),
        ] {
            let plan = lake.rows(&format!("EXPLAIN {sql}")).await.join("\n");
            assert!(plan.contains(holds), "{plan}");
        }
    });
}

#[test]
fn a_statement_removes_what_it_names_of_more_streams_than_are_held() {
    block_on(async {
        let lake = lake(4);
        let mut batch = Batch::new();
        for i in 0..60i64 {
            let tags = [("id", format!("d{i}")), ("site", format!("s{}", i % 2))];
            let rows = batch.stream(&StreamName::new("m", tags));
            rows.row(i, [("v", i.into())]).unwrap();
        }
        lake.db.commit(batch).unwrap();
        let delete = "DELETE FROM m WHERE site = 's1' AND time < '1970-01-01T00:00:01Z'";
        assert_eq!(lake.outcome(delete).await, Outcome::Deleted(30));
        assert_eq!(lake.rows("SELECT count(*) FROM m").await, ["30"]);
        assert_eq!(
            lake.rows("SELECT id FROM m ORDER BY time DESC LIMIT 2")
                .await,
            ["d58", "d56"]
        );
    });
}
