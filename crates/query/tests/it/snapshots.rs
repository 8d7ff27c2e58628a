//! Named snapshots in SQL: made, listed, read beside the present, dropped.

use crate::support::{Lake, SECOND, block_on, error, rows};
use headwater::{Batch, StreamName};
use headwater_query::{Access, ObjectKind, Outcome};

fn write(lake: &Lake, first: i64, count: i64, value: f64) {
    let mut batch = Batch::new();
    for till in ["1", "2"] {
        let name = StreamName::new("orders", [("till", till)]);
        let writer = batch.stream(&name);
        for at in first..first + count {
            let price = value + at as f64;
            writer.row(at * SECOND, [("price", price.into())]).unwrap();
        }
    }
    lake.db.commit(batch).unwrap();
}

#[test]
fn a_snapshot_is_made_listed_read_and_dropped() {
    block_on(async {
        let lake = Lake::new();
        write(&lake, 0, 3_000, 0.5);
        let made = Outcome::Created(ObjectKind::Snapshot);
        assert_eq!(lake.outcome("CREATE SNAPSHOT before").await, made);
        let twice = lake.error("create snapshot Before").await;
        assert_eq!((twice.code, twice.sqlstate), ("snapshot_exists", "42P07"));
        assert_eq!(
            lake.outcome("CREATE SNAPSHOT IF NOT EXISTS before").await,
            made
        );
        write(&lake, 1_000, 100, 9.5);
        write(&lake, 3_000, 10, 0.5);
        let told = lake.rows("SHOW SNAPSHOTS").await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("before|"), "{told:?}");
        // Rows, aggregates from the pyramid, streams of then.
        let now = "SELECT count(*), max(price), max(time) FROM orders";
        let then = now.replace("orders", "snapshot('orders', 'before')");
        assert_eq!(lake.rows(now).await, ["6020|3009.5|1970-01-01T00:50:09Z"]);
        assert_eq!(lake.rows(&then).await, ["6000|2999.5|1970-01-01T00:49:59Z"]);
        let bins = "SELECT time_bucket('10 minutes', time) b, sum(price) FROM orders \
                    WHERE till = '1' AND time < '1970-01-01T00:10:00Z' GROUP BY b";
        let past = bins.replace("orders", "snapshot('orders', 'before')");
        assert_eq!(lake.rows(bins).await, lake.rows(&past).await);
        let changed = "SELECT count(*), min(n.price - o.price) FROM orders n \
                       JOIN snapshot('orders', 'before') o ON o.till = n.till AND o.time = n.time \
                       WHERE n.price <> o.price";
        assert_eq!(lake.rows(changed).await, ["200|9.0"]);
        // Twice the same statement: what was planned for another snapshot is not used.
        let count = "SELECT count(*) FROM snapshot('orders', 'before')";
        assert_eq!(lake.rows(count).await, ["6000"]);
        lake.outcome("DROP SNAPSHOT before").await;
        let gone = lake.error(count).await;
        assert_eq!((gone.code, gone.sqlstate), ("unknown_snapshot", "42704"));
        lake.outcome("CREATE SNAPSHOT before").await;
        assert_eq!(lake.rows(count).await, ["6020"]);
        // What is deleted now is not in it either.
        lake.outcome("DELETE FROM orders WHERE till = '2'").await;
        assert_eq!(lake.rows(count).await, ["3010"]);
        let other = lake
            .error("SELECT * FROM snapshot('nothing', 'before')")
            .await;
        assert_eq!(other.code, "unknown_table", "{other}");
        assert_eq!(
            lake.error("DROP SNAPSHOT nobody").await.code,
            "unknown_snapshot"
        );
        let dropped = Outcome::Dropped(ObjectKind::Snapshot);
        assert_eq!(
            lake.outcome("DROP SNAPSHOT IF EXISTS nobody").await,
            dropped
        );
        let odd = lake
            .error("SELECT * FROM \"\u{1f}before\u{1f}\".orders")
            .await;
        assert_eq!(odd.code, "syntax_error");
    });
}

/// Sees the stream of the first till.
#[derive(Debug)]
struct First;

impl Access for First {
    fn reads(&self, _: &str, tags: &[(String, String)]) -> bool {
        tags.iter().any(|(_, value)| value == "1")
    }

    fn manages(&self, _: &str) -> bool {
        false
    }

    fn writes(&self, _: &str, _: &[(String, String)]) -> bool {
        false
    }

    fn all(&self) -> bool {
        false
    }
}

#[test]
fn a_session_sees_of_a_snapshot_what_it_may_see_and_makes_none() {
    block_on(async {
        let lake = Lake::new();
        write(&lake, 0, 100, 0.5);
        lake.outcome("CREATE SNAPSHOT s").await;
        let first = lake.as_(First);
        let sql = "SELECT till, count(*) FROM snapshot('orders', 's') GROUP BY till";
        assert_eq!(rows(&first, sql).await, ["1|100"]);
        for sql in ["CREATE SNAPSHOT t", "DROP SNAPSHOT s", "SHOW SNAPSHOTS"] {
            assert_eq!(error(&first, sql).await.code, "forbidden", "{sql}");
        }
    });
}
