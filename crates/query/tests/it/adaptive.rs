//! Indexes that a table makes and drops by itself, and the room that its indexes may take.

use crate::support::{SECOND, block_on, error, outcome, rows};
use headwater::io::{FaultyFiles, ManualClock, NoThreads};
use headwater::{
    Batch, Database, Env, IndexBudget, IndexInfo, IndexPolicy, IndexUse, Options, StreamName,
    TableChange, Value,
};
use headwater::{FieldSpec, FieldType, Timestamp};
use headwater_query::{Limits, Query, Session, Unrestricted};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A database on a disk of its own, whose clock stands still.
struct Shop {
    disk: FaultyFiles,
    clock: Arc<ManualClock>,
    options: Options,
    db: Database,
    session: Session,
}

impl Shop {
    fn new(seed: u64) -> Shop {
        let options = Options {
            memory_budget_bytes: 1 << 20,
            shards: 2,
            partition_target_bytes: 16 << 10,
            partition_bytes_max: 32 << 10,
            leaf_events: 32,
            log_file_bytes: 16 << 10,
            reserve_bytes: 0,
            ..Options::new("/db")
        };
        let clock = Arc::new(ManualClock::new(Env::MEMORY_START));
        Shop::open(FaultyFiles::new(seed), clock, options)
    }

    fn open(disk: FaultyFiles, clock: Arc<ManualClock>, options: Options) -> Shop {
        let env = Env {
            files: Arc::new(disk.clone()),
            clock: Arc::clone(&clock) as _,
            threads: Arc::new(NoThreads),
            ..Env::system()
        };
        let db = Database::open_in(env, options.clone()).unwrap();
        let query = Query::new(db.clone(), Limits::default());
        Shop {
            session: query.session(Arc::new(Unrestricted)),
            disk,
            clock,
            options,
            db,
        }
    }

    /// Opens it again, after a close, or after the power has failed.
    fn reopen(self, seed: u64, fails: bool) -> Shop {
        let Shop {
            disk,
            clock,
            options,
            db,
            session,
        } = self;
        drop(session);
        if fails {
            disk.crash_now();
            drop(db);
            return Shop::open(disk.after_crash(seed), clock, options);
        }
        db.close().unwrap();
        drop(db);
        Shop::open(disk, clock, options)
    }

    fn write(
        &self,
        seconds: std::ops::Range<i64>,
        fields: impl Fn(i64) -> Vec<(&'static str, Value)>,
    ) {
        let seconds: Vec<i64> = seconds.collect();
        for part in seconds.chunks(2_000) {
            let mut batch = Batch::new();
            let stream = batch.stream(&StreamName::new("t", [("id", "1")]));
            for second in part {
                stream.row(second * SECOND, fields(*second)).unwrap();
            }
            self.db.commit(batch).unwrap();
        }
    }

    /// Rows with numbers that are nowhere near their neighbours', each of which comes once.
    async fn filled(seed: u64, count: i64) -> Shop {
        let shop = Shop::new(seed);
        let sql = "CREATE TABLE t (id TAG, a BIGINT, b BIGINT, steady BIGINT)";
        outcome(&shop.session, sql).await;
        shop.write(0..count, |n| {
            vec![
                ("a", scattered(n, count).into()),
                ("b", scattered(n + 5, count).into()),
                ("steady", (n / 1000).into()),
            ]
        });
        shop.db.flush().unwrap();
        shop
    }

    async fn set(&self, settings: &str) {
        outcome(&self.session, &format!("ALTER TABLE t SET ({settings})")).await;
    }

    /// Looks for so many values of a field, from the midst of all, so that the bounds of the
    /// pyramid leave little out.
    async fn look_up(&self, field: &str, times: i64) {
        for value in 2_000..2_000 + times {
            rows(
                &self.session,
                &format!("SELECT time FROM t WHERE {field} = {value}"),
            )
            .await;
        }
    }

    fn names(&self) -> Vec<String> {
        let indexes = self.db.indexes().into_iter();
        indexes.map(|index| index.name).collect()
    }

    fn index(&self, name: &str) -> IndexInfo {
        let mut indexes = self.db.indexes().into_iter();
        indexes.find(|index| index.name == name).unwrap()
    }

    fn bytes(&self) -> u64 {
        self.db.indexes().iter().map(|index| index.bytes).sum()
    }

    fn build(&self, name: &str) -> headwater::Result<bool> {
        self.db
            .build_index(name, &mut |_| ControlFlow::Continue(()))
    }

    /// Filters find the same with indexes and without.
    async fn agrees(&self, seed: u64) {
        for condition in [
            "a = 2001",
            "b > 4 AND b < 9",
            "a IN (5, 2500) OR b = 7",
            "steady = 2 AND a < 900",
        ] {
            let sql = format!("SELECT * FROM t WHERE {condition} ORDER BY time");
            self.db.use_indexes(IndexUse::Never);
            let without = rows(&self.session, &sql).await;
            for usage in [IndexUse::Always, IndexUse::ByCost] {
                self.db.use_indexes(usage);
                assert_eq!(
                    rows(&self.session, &sql).await,
                    without,
                    "seed {seed}: {condition}"
                );
            }
        }
    }

    fn sound(self) {
        let Shop {
            db,
            session,
            disk,
            clock,
            options,
        } = self;
        drop(session);
        db.close().unwrap();
        drop(db);
        let shop = Shop::open(disk, clock, options);
        for index in shop.db.indexes() {
            assert!(index.bytes > 0 || index.progress.partitions_complete == 0);
        }
    }
}

/// A number that no neighbour is near to.
fn scattered(number: i64, of: i64) -> i64 {
    (number * 7919).rem_euclid(of)
}

#[test]
fn an_index_is_made_when_filters_read_much_in_vain_and_dropped_when_it_spares_little() {
    block_on(async {
        let shop = Shop::filled(1, 5_000).await;
        // Nobody said so yet.
        shop.look_up("a", 40).await;
        shop.db.maintain().unwrap();
        shop.set("auto_index = 'on', index_budget = '400%'").await;
        shop.db.maintain().unwrap();
        assert!(shop.names().is_empty(), "what was read before counts");
        shop.look_up("a", 8).await;
        shop.db.maintain().unwrap();
        assert!(shop.names().is_empty(), "eight filters do not pay for it");
        shop.look_up("a", 60).await;
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["t_a_auto"]);
        let made = shop.index("t_a_auto");
        assert!(made.automatic && !made.over_budget, "{made:?}");
        assert_eq!(made.progress.partitions, made.progress.partitions_complete);
        assert_eq!(made.entries, 5_000);
        let shown = rows(&shop.session, "SHOW INDEXES").await;
        assert!(shown[0].ends_with("|automatic|complete"), "{shown:?}");
        // What it answers is read in vain no more, so that it is not made twice.
        shop.look_up("a", 60).await;
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["t_a_auto"]);
        // It is there after a restart, still as one that was made by itself.
        let shop = shop.reopen(1, false);
        assert!(shop.index("t_a_auto").automatic);
        let policy = IndexPolicy {
            auto: true,
            budget: Some(IndexBudget::Percent(400)),
        };
        assert_eq!(shop.db.index_policy("t").unwrap(), policy);
        shop.db.maintain().unwrap();
        // It is kept for a day at least, and as long as it is worth it.
        shop.clock.advance(DAY / 2);
        shop.db.use_indexes(IndexUse::Always);
        shop.look_up("a", 40).await;
        shop.db.use_indexes(IndexUse::ByCost);
        shop.db.maintain().unwrap();
        shop.clock.advance(DAY);
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["t_a_auto"]);
        shop.clock.advance(DAY * 4);
        shop.db.maintain().unwrap();
        assert!(shop.names().is_empty());
        // A clock that is set makes and drops nothing.
        shop.look_up("a", 60).await;
        shop.db.maintain().unwrap();
        shop.clock.set(Timestamp::from_nanos(i64::MAX / 2));
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["t_a_auto"]);
        // Who turns it off has none of them any more, and keeps those that were asked for.
        outcome(&shop.session, "CREATE INDEX own ON t (b)").await;
        shop.set("auto_index = 'off'").await;
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["own"]);
        shop.agrees(1).await;
        shop.sound();
    });
}

#[test]
fn fields_that_are_indexed_or_of_which_filters_find_much_get_none() {
    block_on(async {
        let shop = Shop::filled(2, 5_000).await;
        shop.set("auto_index = 'on', index_budget = '400%'").await;
        outcome(&shop.session, "CREATE INDEX own ON t (b)").await;
        assert!(shop.build("own").unwrap());
        for _ in 0..60 {
            shop.look_up("b", 1).await;
            let fifth = "SELECT time FROM t WHERE steady = 3";
            assert_eq!(rows(&shop.session, fifth).await.len(), 1_000);
        }
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["own"]);
        for (settings, code) in [
            ("auto_index = 'perhaps'", "invalid_value"),
            ("index_budget = 'much'", "invalid_value"),
            ("index_budget = '-3%'", "invalid_value"),
            ("index_budget = '99999999999999TB'", "invalid_value"),
            ("index_bugdet = '3%'", "unknown_setting"),
        ] {
            let wrong = error(&shop.session, &format!("ALTER TABLE t SET ({settings})")).await;
            assert_eq!(wrong.code, code, "{settings}: {wrong}");
        }
        shop.set("index_budget = '2MB'").await;
        let budget = Some(IndexBudget::Bytes(2 << 20));
        assert_eq!(shop.db.index_policy("t").unwrap().budget, budget);
        shop.set("index_budget = 'none'").await;
        assert_eq!(shop.db.index_policy("t").unwrap().budget, None);
        assert!(shop.db.index_policy("nothing").is_err());
        // It goes with its table.
        outcome(&shop.session, "DROP TABLE t").await;
        shop.db.maintain().unwrap();
        let sql = "CREATE TABLE t (a BIGINT) WITH (index_budget = '7%')";
        outcome(&shop.session, sql).await;
        let policy = IndexPolicy {
            auto: false,
            budget: Some(IndexBudget::Percent(7)),
        };
        assert_eq!(shop.db.index_policy("t").unwrap(), policy);
        shop.sound();
    });
}

#[test]
fn all_indexes_of_a_table_together_take_no_more_than_their_budget() {
    block_on(async {
        let shop = Shop::filled(3, 20_000).await;
        outcome(&shop.session, "CREATE INDEX a ON t (a)").await;
        assert!(shop.build("a").unwrap());
        let one = shop.bytes();
        assert!(one > 20_000, "{one}");
        // There is room for one, and none for another.
        shop.set(&format!("auto_index = 'on', index_budget = '{one}'"))
            .await;
        let refused = error(&shop.session, "CREATE INDEX b ON t (b)").await;
        assert!(refused.message.contains("index_budget"), "{refused}");
        shop.look_up("b", 80).await;
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["a"]);
        // One that is asked for where a little room is left is made as far as it goes.
        shop.set(&format!("index_budget = '{}'", one + 1)).await;
        outcome(&shop.session, "CREATE INDEX b ON t (b)").await;
        shop.db.maintain().unwrap();
        let waits = shop.index("b");
        assert!(waits.over_budget && !waits.automatic, "{waits:?}");
        assert!(waits.progress.partitions_complete < waits.progress.partitions);
        assert!(shop.bytes() < one * 2, "{} of {one}", shop.bytes());
        let shown = rows(&shop.session, "SHOW INDEXES").await;
        assert!(
            shown[1].ends_with("|created by CREATE INDEX|over budget"),
            "{shown:?}"
        );
        let ended = shop.build("b").unwrap_err();
        assert!(ended.to_string().contains("index_budget"), "{ended}");
        shop.agrees(3).await;
        // It goes on when there is room.
        shop.set("auto_index = 'off', index_budget = 'none'").await;
        assert!(shop.build("b").unwrap());
        assert!(!shop.index("b").over_budget);
        // Where too much is taken those that were made by themselves go, and only they.
        outcome(&shop.session, "DROP INDEX a").await;
        shop.set("auto_index = 'on', index_budget = '16MB'").await;
        shop.look_up("a", 80).await;
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["b", "t_a_auto"]);
        shop.set("index_budget = '0'").await;
        shop.db.maintain().unwrap();
        assert_eq!(shop.names(), ["b"]);
        shop.agrees(3).await;
        shop.sound();
    });
}

/// Whatever is written, asked for, set, restarted and cut: filters find the same, what was asked
/// for stays, and only a table that says so has indexes of its own making.
#[test]
fn lives_of_tables_that_index_themselves() {
    block_on(async {
        let mut made = 0;
        for seed in 0..5 {
            made += life(seed).await;
        }
        // It depends on the sizes of leaves which of the filters pay for an index.
        assert!(made >= 4, "{made} indexes were made");
    });
}

async fn life(seed: u64) -> usize {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % sides
    };
    let mut shop = Shop::filled(seed + 1, 4_500).await;
    let (mut newest, mut made, mut policy, mut asked_for) = (4_500, 0, IndexPolicy::default(), 0);
    for step in 0..50 {
        let before = shop.names();
        match roll(14) {
            0 | 1 => {
                let budget = match roll(4) {
                    0 => None,
                    1 => Some(IndexBudget::Bytes(roll(60_000))),
                    _ => Some(IndexBudget::Percent(500)),
                };
                let auto = roll(4) > 0;
                policy = IndexPolicy { auto, budget };
                shop.db.set_index_policy("t", &policy).unwrap();
            }
            2 if asked_for < 2 => {
                let spec = headwater::IndexSpec {
                    name: format!("own{asked_for}"),
                    table: "t".into(),
                    fields: vec!["b".into()],
                };
                match shop.db.create_index(&spec) {
                    Ok(()) => asked_for += 1,
                    Err(error) => assert!(error.to_string().contains("index_budget"), "{error}"),
                }
            }
            3 => {
                // Late and again.
                let from = roll(newest as u64) as i64;
                shop.write(from..from + 40, |n| vec![("a", (n * 3).into())]);
            }
            4 => {
                shop.write(newest..newest + 200, |n| vec![("a", n.into())]);
                newest += 200;
            }
            5 => shop.db.flush().unwrap(),
            6 => shop.db.compact().unwrap(),
            7 => shop.clock.advance(DAY / 3),
            8 => shop = shop.reopen(seed, false),
            9 => shop = shop.reopen(seed + step, true),
            10 if roll(4) == 0 => {
                let change = TableChange {
                    add_fields: vec![FieldSpec {
                        name: "a".into(),
                        field_type: FieldType::F64,
                    }],
                    ..TableChange::default()
                };
                shop.db.alter_table("t", &change).unwrap();
            }
            _ => {
                shop.look_up(["a", "steady", "b"][roll(3) as usize], 40)
                    .await
            }
        }
        shop.db.maintain().unwrap();
        let after = shop.db.indexes();
        assert_eq!(shop.db.index_policy("t").unwrap(), policy, "seed {seed}");
        let own = after.iter().filter(|index| !index.automatic).count();
        assert_eq!(own, asked_for, "seed {seed}: {after:?}");
        for index in after.iter().filter(|index| index.automatic) {
            assert!(policy.auto, "seed {seed}: {index:?}");
            made += usize::from(!before.contains(&index.name));
        }
        if roll(6) == 0 {
            shop.agrees(seed).await;
        }
    }
    shop.agrees(seed).await;
    shop.sound();
    made
}
