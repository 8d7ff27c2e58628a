//! Watches: what is told as rows come equals what the same statement finds afterwards.

use crate::support::{Lake, SECOND, block_on, error, outcome, rows};
use headwater::io::{FaultKind, FaultyFiles, Files, ManualClock};
use headwater::{TableChange, Timestamp};
use headwater_ask::Access;
use headwater_query::{Look, ObjectKind, Outcome, Session, Watch};
use headwater_testing::Dice;
use headwater_watch::{Bounds, Change, EventKind, Persisted, Round, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Somebody who follows a watch, and what they heard.
struct Follower {
    watch: Watch,
    files: FaultyFiles,
    store: Store,
    persisted: Persisted,
    look: Look,
    /// By id, what was told and not taken back.
    reported: BTreeMap<String, String>,
    retractions: u64,
    last_read: u64,
}

impl Follower {
    fn open(watch: Watch, files: FaultyFiles) -> Follower {
        let (store, persisted) = open_store(&watch, &files);
        Follower {
            watch,
            files,
            store,
            persisted,
            look: Look::default(),
            reported: BTreeMap::new(),
            retractions: 0,
            last_read: 0,
        }
    }

    async fn looked(&mut self, session: &Session, now_ns: i64, quiet: bool) -> (Bounds, Round) {
        let begin = self.persisted.state.begin();
        let looked = session.look(&self.watch, &begin, now_ns, quiet, &mut self.look);
        looked.await.unwrap()
    }

    async fn round(&mut self, session: &Session, now_ns: i64, quiet: bool) {
        let (bounds, round) = self.looked(session, now_ns, quiet).await;
        let step = self.persisted.state.step(bounds, &round).unwrap();
        if !self.persisted.state.is_worth(bounds, &step) {
            self.persisted.state.apply(&step);
            return;
        }
        let change = Change::Step(step);
        if let Err(full) = self.store.append(&self.persisted, &change) {
            // Nobody hears of it now: it is found again.
            assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
            return;
        }
        self.persisted.apply(&change);
        self.read_events();
    }

    /// Hears what was told and not heard of yet.
    fn read_events(&mut self) {
        let behind = self.persisted.journal.behind(self.last_read, usize::MAX);
        assert_eq!(behind.missed, 0);
        let id = self.watch.definition().id;
        for event in &behind.events {
            assert_eq!(event.sequence, self.last_read + 1, "no number is left out");
            self.last_read += 1;
            match event.kind {
                EventKind::Match => {
                    let known = self.reported.insert(event.id(id), event.row.clone());
                    assert_eq!(known, None, "an id is told once");
                }
                EventKind::Retraction | EventKind::Return => {
                    self.retractions += 1;
                    assert!(self.reported.remove(&event.id(id)).is_some(), "it was told");
                }
            }
        }
    }

    /// The process ends, and begins again.
    fn restart(&mut self) {
        let before = self.persisted.state.sequence();
        (self.store, self.persisted) = open_store(&self.watch, &self.files);
        self.look = Look::default();
        // What the disk said not to have taken may be there all the same.
        assert!(
            self.persisted.state.sequence() >= before,
            "nothing is forgotten"
        );
        self.read_events();
    }

    fn rows(&self) -> Vec<String> {
        let mut rows: Vec<String> = self.reported.values().cloned().collect();
        rows.sort();
        rows
    }
}

fn open_store(watch: &Watch, files: &FaultyFiles) -> (Store, Persisted) {
    let definition = watch.definition();
    let new = || Persisted::new(7, definition.since_ns);
    let files: Arc<dyn Files> = Arc::new(files.clone());
    let opened = Store::open(files, Path::new("/watches"), definition.id, new).unwrap();
    assert_eq!(opened.damage, None);
    (opened.store, opened.state)
}

/// What the statement of a watch answers, as its events have it.
async fn answered(session: &Session, sql: &str) -> Vec<String> {
    let mut all: Vec<String> = rows(session, sql).await;
    all.sort();
    all
}

async fn watch(lake: &Lake, sql: &str) -> Watch {
    assert_eq!(
        lake.outcome(sql).await,
        Outcome::Created(ObjectKind::Watch),
        "{sql}"
    );
    let mut all = lake.query.watches().unwrap();
    assert_eq!(all.len(), 1);
    Watch::read(all.pop().unwrap()).unwrap()
}

const PATTERNS: [&str; 7] = [
    "PARTITION BY id ORDER BY time MEASURES FIRST(time) AS b, LAST(time) AS e, count(*) AS n, sum(v) AS s \
     PATTERN (STRT DOWN+ UP+) WITHIN INTERVAL '20 seconds' \
     DEFINE DOWN AS v < PREV(v), UP AS v > PREV(v)",
    "PARTITION BY id ORDER BY time MEASURES FIRST(time) AS b, LAST(time) AS e, count(*) AS n, sum(v) AS s \
     AFTER MATCH SKIP TO NEXT ROW \
     PATTERN (A B*? C) WITHIN INTERVAL '10 seconds' DEFINE A AS v > 5, B AS v < 7, C AS v < 2",
    "PARTITION BY id ORDER BY time MEASURES FIRST(time) AS b, LAST(time) AS e, count(*) AS n, sum(v) AS s \
     PATTERN (A A) WITHIN INTERVAL '5 seconds' DEFINE A AS v >= 0",
    "PARTITION BY site ORDER BY time, id MEASURES FIRST(time) AS b, LAST(time) AS e, count(*) AS n, sum(v) AS s \
     AFTER MATCH SKIP TO LAST C \
     PATTERN (A (B | C){1,3} C) WITHIN INTERVAL '15 seconds' DEFINE A AS v >= 3, C AS v > FIRST(A.v)",
    "PARTITION BY id ORDER BY time MEASURES FIRST(time) AS b, LAST(time) AS e, count(*) AS n, sum(v) AS s \
     PATTERN (A+ B) WITHIN INTERVAL '12 seconds' DEFINE A AS sum(v) < 15, B AS v >= PREV(v, 2)",
    "ORDER BY time, id MEASURES FIRST(time) AS b, LAST(time) AS e, count(*) AS n, sum(v) AS s \
     PATTERN (A B{2,} C?) WITHIN INTERVAL '8 seconds' DEFINE A AS v = 9, B AS v < 8",
    "PARTITION BY site, id ORDER BY time MEASURES FIRST(time) AS b, LAST(time) AS e, count(*) AS n, sum(v) AS s \
     PATTERN (PERMUTE(A, B)) WITHIN INTERVAL '6 seconds' DEFINE A AS v > 6, B AS v < 3",
];

/// Changes of the last seconds: rows come late, are replaced and deleted.
const CORRECTIONS_S: i64 = 30;

async fn change(lake: &Lake, dice: &mut Dice, clock_s: &mut i64) {
    lake.outcome(&changed(dice, clock_s)).await;
}

/// A statement that changes table `t`.
fn changed(dice: &mut Dice, clock_s: &mut i64) -> String {
    let id = ["a", "b", "c"][dice.below(3) as usize];
    let site = if id == "c" { "south" } else { "north" };
    let late_s = (dice.below(CORRECTIONS_S as u64 - 1)) as i64;
    match dice.below(10) {
        0 => {
            let from = *clock_s - late_s;
            let to = from + dice.below(4) as i64;
            format!(
                "DELETE FROM t WHERE id = '{id}' AND time >= '{}' AND time <= '{}'",
                text(from),
                text(to)
            )
        }
        1..=3 => {
            let at = text(*clock_s - late_s);
            let value = dice.below(10);
            format!("INSERT INTO t (time, id, site, v) VALUES ('{at}', '{id}', '{site}', {value})")
        }
        _ => {
            *clock_s += dice.below(4) as i64;
            let (at, value) = (text(*clock_s), dice.below(10));
            format!("INSERT INTO t (time, id, site, v) VALUES ('{at}', '{id}', '{site}', {value})")
        }
    }
}

fn text(second: i64) -> String {
    format!(
        "2024-05-01T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

const BEGIN_S: i64 = 3600;
/// The second 0 of [`text`].
const BASE_NS: i64 = 1_714_521_600 * SECOND;
/// Answers as events have them.
const AS_JSON: &str = "SELECT concat('{\"b\":\"', to_char(b, '%Y-%m-%dT%H:%M:%SZ'), '\",\"e\":\"', to_char(e, '%Y-%m-%dT%H:%M:%SZ'), '\",\"n\":', n, ',\"s\":', s, '}') FROM";

async fn life(seed: u64) {
    let mut dice = Dice(seed);
    let lake = Lake::new();
    lake.outcome("CREATE TABLE t (id TAG, site TAG, v BIGINT)")
        .await;
    let clause = PATTERNS[(seed % PATTERNS.len() as u64) as usize];
    let from = match dice.below(3) {
        0 => "(SELECT time, id, site, v FROM t WHERE v <> 4)",
        _ => "t",
    };
    let query =
        format!("SELECT b, e, n, s + 1 AS s FROM {from} MATCH_RECOGNIZE ({clause}) WHERE n < 9");
    let options = format!(
        "lateness = '{}s', corrections = '{CORRECTIONS_S}s', since = 'beginning'",
        dice.below(4)
    );
    let sql = format!("CREATE WATCH w WITH ({options}) AS {query}");
    let mut follower = Follower::open(watch(&lake, &sql).await, FaultyFiles::new(1));
    let mut clock_s = BEGIN_S;
    // The clock of the machine is right, far ahead, or was set back.
    for _ in 0..45 {
        for _ in 0..=dice.below(4) {
            change(&lake, &mut dice, &mut clock_s).await;
        }
        if dice.below(6) == 0 {
            lake.db.flush().unwrap();
        }
        if dice.below(8) == 0 {
            follower.restart();
        }
        let now_ns = BASE_NS + (clock_s + [0, 40, -900][dice.below(3) as usize]) * SECOND;
        if dice.below(6) == 0 {
            // The disk is full when what was found is written down.
            follower.files.fail_next(FaultKind::SyncFull, 0);
        }
        follower
            .round(&lake.session, now_ns, dice.below(9) == 0)
            .await;
        follower.files.heal();
    }
    let now_ns = BASE_NS + clock_s * SECOND;
    follower.round(&lake.session, now_ns, true).await;
    let expected = answered(&lake.session, &format!("{AS_JSON} ({query}) AS q")).await;
    assert_eq!(follower.rows(), expected, "seed {seed}: {sql}");
    // What is told again is told nobody.
    let heard = follower.last_read;
    follower.restart();
    follower.round(&lake.session, now_ns, true).await;
    assert_eq!(
        (follower.last_read, follower.rows()),
        (heard, expected),
        "seed {seed}"
    );
}

#[test]
fn what_is_told_equals_what_is_found_afterwards() {
    let lives = std::env::var("HEADWATER_MODEL_SEEDS").ok();
    let lives = lives.and_then(|lives| lives.parse().ok()).unwrap_or(14);
    block_on(async {
        for seed in 0..lives {
            life(seed).await;
        }
    });
}

/// How rows of a table end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Retention,
    Aging,
    Both,
}

/// Longer than a match, corrections, lateness and a silent stream take together.
const RETENTION_S: u64 = 100;

/// As [`life`], over a table whose old rows go, or become aggregates, while it is watched. What was
/// told of them stays told: it is what the statement finds where nothing has gone. Gives how many
/// rows went.
async fn life_with_ends(seed: u64, ends: Ends) -> usize {
    let mut dice = Dice(seed);
    let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(
        BASE_NS + BEGIN_S * SECOND,
    )));
    let lake = Lake::of(Arc::clone(&clock));
    for table in ["t", "whole"] {
        lake.outcome(&format!(
            "CREATE TABLE {table} (id TAG, site TAG, v BIGINT)"
        ))
        .await;
    }
    let kept = Some(Some(Duration::from_secs(RETENTION_S)));
    let change = TableChange {
        retention: kept.filter(|_| ends != Ends::Aging),
        raw_for: kept.filter(|_| ends == Ends::Aging).or_else(|| {
            let shorter = Some(Duration::from_secs(RETENTION_S - 20));
            Some(shorter).filter(|_| ends == Ends::Both)
        }),
        ..TableChange::default()
    };
    lake.db.alter_table("t", &change).unwrap();
    let clause = PATTERNS[(seed % PATTERNS.len() as u64) as usize];
    let query = |table: &str| {
        format!("SELECT b, e, n, s + 1 AS s FROM {table} MATCH_RECOGNIZE ({clause}) WHERE n < 9")
    };
    let options = format!(
        "lateness = '{}s', corrections = '{CORRECTIONS_S}s', since = 'beginning'",
        dice.below(4)
    );
    let sql = format!("CREATE WATCH w WITH ({options}) AS {}", query("t"));
    let mut follower = Follower::open(watch(&lake, &sql).await, FaultyFiles::new(1));
    let mut clock_s = BEGIN_S;
    for _ in 0..90 {
        for _ in 0..=dice.below(4) {
            let sql = changed(&mut dice, &mut clock_s);
            lake.outcome(&sql).await;
            lake.outcome(&sql.replacen(" t ", " whole ", 1)).await;
        }
        clock.set(Timestamp::from_nanos(BASE_NS + clock_s * SECOND));
        lake.db.maintain().unwrap();
        match dice.below(12) {
            0 | 1 => lake.db.flush().unwrap(),
            2 => lake.db.compact().unwrap(),
            3 => follower.restart(),
            _ => {}
        }
        let now_ns = BASE_NS + clock_s * SECOND;
        follower
            .round(&lake.session, now_ns, dice.below(9) == 0)
            .await;
    }
    let now_ns = BASE_NS + clock_s * SECOND;
    follower.round(&lake.session, now_ns, true).await;
    let expected = answered(
        &lake.session,
        &format!("{AS_JSON} ({}) AS q", query("whole")),
    )
    .await;
    assert_eq!(follower.rows(), expected, "seed {seed}, {ends:?}: {sql}");
    let there = answered(&lake.session, "SELECT time FROM t").await;
    let all = answered(&lake.session, "SELECT time FROM whole").await;
    all.len() - there.len()
}

#[test]
fn what_was_told_of_rows_that_ended_since_stays_told() {
    let lives = std::env::var("HEADWATER_MODEL_SEEDS").ok();
    let lives = lives.and_then(|lives| lives.parse().ok()).unwrap_or(2);
    block_on(async {
        for ends in [Ends::Retention, Ends::Aging, Ends::Both] {
            let mut gone = 0;
            for seed in 0..lives {
                gone += life_with_ends(seed, ends).await;
            }
            assert!(
                gone > 0,
                "{ends:?}: no row ended, so that nothing was tried"
            );
        }
    });
}

#[test]
fn rows_that_are_as_late_as_allowed_take_nothing_back() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE t (id TAG, site TAG, v BIGINT)")
            .await;
        let sql = format!(
            "CREATE WATCH w WITH (lateness = '3s') AS SELECT b, n FROM t MATCH_RECOGNIZE ({})",
            PATTERNS[0]
        );
        let mut follower = Follower::open(watch(&lake, &sql).await, FaultyFiles::new(1));
        let mut dice = Dice(5);
        for second in 0..120 {
            // Each row up to three seconds late.
            let at = text(BEGIN_S + second - second % 4 + (3 - second % 4));
            let value = dice.below(10);
            lake.outcome(&format!(
                "INSERT INTO t (time, id, v) VALUES ('{at}', 'a', {value})"
            ))
            .await;
            follower.round(&lake.session, i64::MAX / 2, false).await;
        }
        assert!(follower.last_read > 5);
        assert_eq!(follower.retractions, 0);
    });
}

#[test]
fn streams_without_rows_are_told_and_so_is_their_return() {
    block_on(async {
        let lake = Lake::new();
        lake.outcome("CREATE TABLE t (id TAG, site TAG, v BIGINT)")
            .await;
        let sql =
            "CREATE WATCH w AS ABSENCE OF t WHERE site = 'north' FOR INTERVAL '10 seconds' PER id";
        let mut follower = Follower::open(watch(&lake, sql).await, FaultyFiles::new(1));
        let at = |second: i64| (1_714_521_600 + BEGIN_S + second) * SECOND;
        let insert = async |second: i64, id: &str, site: &str| {
            let time = text(BEGIN_S + second);
            lake.outcome(&format!(
                "INSERT INTO t (time, id, site, v) VALUES ('{time}', '{id}', '{site}', 1)"
            ))
            .await;
        };
        insert(0, "a", "north").await;
        insert(0, "c", "south").await;
        insert(5, "b", "north").await;
        follower.round(&lake.session, at(9), false).await;
        assert_eq!(follower.rows().len(), 0);
        follower.round(&lake.session, at(10), false).await;
        let a = "{\"id\":\"a\",\"newest\":\"2024-05-01T01:00:00Z\"}";
        assert_eq!(follower.rows(), [a]);
        follower.restart();
        // A clock that was set back, and a row that is older, change nothing.
        insert(-3, "a", "north").await;
        follower.round(&lake.session, at(-900), false).await;
        assert_eq!(follower.rows(), [a]);
        follower.round(&lake.session, at(15), false).await;
        assert_eq!(follower.rows().len(), 2);
        insert(16, "a", "north").await;
        follower.round(&lake.session, at(17), false).await;
        assert_eq!(follower.rows().len(), 1);
        assert_eq!(
            follower.persisted.journal.behind(2, 9).events[0].kind,
            EventKind::Return
        );
        // Where the stream is gone, so is what was told of it.
        lake.outcome("DELETE FROM t WHERE id = 'b'").await;
        follower.round(&lake.session, at(18), false).await;
        assert!(follower.rows().is_empty());
        let last = follower.persisted.journal.behind(3, 9).events;
        assert_eq!(last[0].kind, EventKind::Retraction);
    });
}

#[test]
fn watches_are_made_listed_and_dropped() {
    block_on(async {
        let lake = Lake::pumps();
        let query = "SELECT * FROM pump MATCH_RECOGNIZE (PARTITION BY id ORDER BY time MEASURES LAST(rpm) AS r PATTERN (A) WITHIN INTERVAL '1 s' DEFINE A AS rpm > 900)";
        lake.outcome(&format!("CREATE WATCH hot WITH (topic = 'x/y') AS {query}"))
            .await;
        assert_eq!(
            lake.error(&format!("CREATE WATCH hot AS {query}"))
                .await
                .code,
            "watch_exists"
        );
        lake.outcome(&format!("CREATE WATCH IF NOT EXISTS hot AS {query}"))
            .await;
        assert_eq!(
            lake.rows("SELECT 1").await.len() + lake.rows("SHOW WATCHES").await.len(),
            2
        );
        let shown = lake.rows("SHOW WATCHES").await;
        assert!(
            shown[0].starts_with("hot|pump|") && shown[0].contains("|x/y|"),
            "{shown:?}"
        );
        // By default what is there already is not told.
        let known = lake.query.watches().unwrap();
        assert_eq!(known[0].since_ns, 99 * SECOND + 1);
        assert_eq!(
            lake.outcome("DROP WATCH hot").await,
            Outcome::Dropped(ObjectKind::Watch)
        );
        assert_eq!(lake.error("DROP WATCH hot").await.code, "unknown_watch");
        lake.outcome("DROP WATCH IF EXISTS hot").await;
        assert!(lake.rows("SHOW WATCHES").await.is_empty());
    });
}

#[test]
fn what_cannot_be_followed_is_refused() {
    block_on(async {
        let lake = Lake::pumps();
        let clause = |rest: &str| {
            format!("SELECT * FROM pump MATCH_RECOGNIZE (PARTITION BY id ORDER BY time {rest})")
        };
        let good = clause("PATTERN (A) WITHIN INTERVAL '1 s' DEFINE A AS rpm > 900");
        for (query, code) in [
            (
                clause("PATTERN (A) DEFINE A AS rpm > 900"),
                "watch_unbounded",
            ),
            ("SELECT 1".to_owned(), "unsupported"),
            ("SELECT * FROM pump".to_owned(), "unsupported"),
            (
                "INSERT INTO pump (time) VALUES (0)".to_owned(),
                "unsupported",
            ),
            (
                clause(
                    "MEASURES MATCH_NUMBER() AS m PATTERN (A) WITHIN INTERVAL '1 s' DEFINE A AS rpm > 0",
                ),
                "unsupported",
            ),
            (
                clause("ALL ROWS PER MATCH PATTERN (A) WITHIN INTERVAL '1 s' DEFINE A AS rpm > 0"),
                "unsupported",
            ),
            (
                clause("PATTERN (A*) WITHIN INTERVAL '1 s' DEFINE A AS rpm > 0"),
                "unsupported",
            ),
            (
                clause("PATTERN (^ A) WITHIN INTERVAL '1 s' DEFINE A AS rpm > 0"),
                "unsupported",
            ),
            (
                clause("PATTERN (A) WITHIN INTERVAL '1 s' DEFINE A AS NEXT(rpm) > 1"),
                "unsupported",
            ),
            (
                clause("PATTERN (A) WITHIN INTERVAL '1 s' DEFINE A AS time > now()"),
                "unsupported",
            ),
            (
                clause("PATTERN (A) WITHIN INTERVAL '1 s' DEFINE A AS rpm > 0")
                    .replace("ORDER BY time", "ORDER BY time DESC"),
                "unsupported",
            ),
            (format!("{good} ORDER BY id"), "unsupported"),
            (format!("{good} LIMIT 1"), "unsupported"),
            (format!("SELECT count(*) FROM ({good}) AS q"), "unsupported"),
            (
                good.replace(
                    "FROM pump",
                    "FROM (SELECT id, rpm, time + interval '1 s' AS time FROM pump)",
                ),
                "unsupported",
            ),
            (
                good.replace("FROM pump", "FROM (SELECT id, rpm, time FROM pump LIMIT 3)"),
                "unsupported",
            ),
            (good.replace("FROM pump", "FROM nothing"), "unknown_table"),
            (
                "ABSENCE OF nothing FOR INTERVAL '1 s'".to_owned(),
                "unknown_table",
            ),
            (
                "ABSENCE OF pump FOR INTERVAL '1 month'".to_owned(),
                "invalid_value",
            ),
            (
                "ABSENCE OF pump FOR INTERVAL '1 s' PER rpm".to_owned(),
                "unknown_column",
            ),
            (
                "ABSENCE OF pump WHERE nothing = 1 FOR INTERVAL '1 s'".to_owned(),
                "unknown_column",
            ),
        ] {
            let found = lake.error(&format!("CREATE WATCH w AS {query}")).await;
            assert_eq!(found.code, code, "{query}: {found}");
        }
        lake.outcome("CREATE VIEW busy AS SELECT id, time, rpm FROM pump WHERE \"on\"")
            .await;
        let sql = good.replace("FROM pump", "FROM busy");
        lake.outcome(&format!("CREATE WATCH w AS {sql}")).await;
    });
}

/// Somebody who reads one stream, or all, and manages the table or not.
struct Some {
    manages: bool,
    all: bool,
}

impl Access for Some {
    fn reads(&self, table: &str, tags: &[(String, String)]) -> bool {
        table == "pump" && (self.all || tags.contains(&("id".into(), "a".into())))
    }

    fn writes(&self, _: &str, _: &[(String, String)]) -> bool {
        false
    }

    fn manages(&self, table: &str) -> bool {
        self.manages && table == "pump"
    }

    fn all(&self) -> bool {
        false
    }

    fn may_query(&self) -> bool {
        true
    }
}

#[test]
fn whoever_makes_a_watch_manages_its_table() {
    block_on(async {
        let lake = Lake::pumps();
        let sql = "CREATE WATCH w AS ABSENCE OF pump FOR INTERVAL '1 s'";
        let reader = lake.as_(Some {
            manages: false,
            all: true,
        });
        assert_eq!(error(&reader, sql).await.code, "forbidden");
        let manager = lake.as_(Some {
            manages: true,
            all: true,
        });
        assert_eq!(
            outcome(&manager, sql).await,
            Outcome::Created(ObjectKind::Watch)
        );
        assert_eq!(error(&reader, "DROP WATCH w").await.code, "forbidden");
        assert_eq!(rows(&reader, "SHOW WATCHES").await.len(), 1);
        assert_eq!(
            outcome(&manager, "DROP WATCH w").await,
            Outcome::Dropped(ObjectKind::Watch)
        );
    });
}

#[test]
fn a_table_that_is_dropped_and_memory_that_is_not_enough_are_told() {
    block_on(async {
        let limits = headwater_query::Limits {
            memory: 1 << 16,
            ..headwater_query::Limits::default()
        };
        let lake = Lake::with(limits, |options| options);
        lake.outcome("CREATE TABLE t (id TAG, site TAG, v BIGINT)")
            .await;
        for begin in 0..10 {
            let values = (0..400).map(|at| {
                let at = begin * 400 + at;
                format!("('{}', 'a', {})", text(at), at % 7)
            });
            let values: Vec<String> = values.collect();
            lake.outcome(&format!(
                "INSERT INTO t (time, id, v) VALUES {}",
                values.join(", ")
            ))
            .await;
        }
        let sql = "CREATE WATCH w WITH (since = 'beginning') AS SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY id ORDER BY time MEASURES count(*) AS n AFTER MATCH SKIP TO NEXT ROW PATTERN ((A | B)+ C) WITHIN INTERVAL '50 minutes' DEFINE A AS v <> FIRST(v), B AS v <> FIRST(B.v), C AS sum(v) > 100000)";
        let mut follower = Follower::open(watch(&lake, sql).await, FaultyFiles::new(1));
        let now_ns = i64::MAX / 2;
        let begin = follower.persisted.state.begin();
        let look = lake
            .session
            .look(&follower.watch, &begin, now_ns, false, &mut follower.look);
        assert_eq!(look.await.unwrap_err().code, "memory_limit");
        lake.outcome("DROP TABLE t").await;
        let begin = follower.persisted.state.begin();
        let look = lake
            .session
            .look(&follower.watch, &begin, now_ns, false, &mut follower.look);
        assert_eq!(look.await.unwrap_err().code, "unknown_table");
    });
}
