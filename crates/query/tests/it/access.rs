//! What a session may not see exists for it nowhere.

use crate::support::{Lake, block_on, error, outcome, rows};
use headwater_query::arrow::array::{ArrayRef, RecordBatch, StringArray};
use headwater_query::{Access, ObjectKind, Outcome, Stored};
use std::sync::Arc;

/// May read streams with these ids, write those, and manage tables that begin with `own`.
struct Some_ {
    reads: &'static [&'static str],
    writes: &'static [&'static str],
    key: Option<&'static str>,
}

fn id(tags: &[(String, String)]) -> &str {
    tags.iter().find(|(k, _)| k == "id").map_or("", |(_, v)| v)
}

impl Access for Some_ {
    fn reads(&self, _: &str, tags: &[(String, String)]) -> bool {
        self.reads.contains(&id(tags))
    }

    fn writes(&self, _: &str, tags: &[(String, String)]) -> bool {
        self.writes.contains(&id(tags))
    }

    fn manages(&self, table: &str) -> bool {
        table.starts_with("own")
    }

    fn all(&self) -> bool {
        false
    }

    fn key(&self) -> Option<String> {
        self.key.map(str::to_owned)
    }
}

#[test]
fn a_session_sees_its_streams_and_nothing_of_the_others() {
    block_on(async {
        let lake = Lake::pumps();
        lake.outcome("CREATE TABLE secret (id TAG, x DOUBLE)").await;
        lake.outcome("INSERT INTO secret (time, id, x) VALUES (now(), 'z', 1)")
            .await;
        for key in [None, Some("one")] {
            let session = lake.as_(Some_ {
                reads: &["c"],
                writes: &[],
                key,
            });
            // Twice, so that what is kept of the first is used for the second.
            for _ in 0..2 {
                let all = rows(&session, "SELECT * FROM pump LIMIT 1").await;
                // The tag `site` is one that only other streams have.
                assert_eq!(all, ["1970-01-01T00:00:00Z|c|0.0|0|true|at 0"]);
                assert_eq!(rows(&session, "SELECT count(*) FROM pump").await, ["100"]);
                assert_eq!(rows(&session, "SELECT DISTINCT id FROM pump").await, ["c"]);
                assert_eq!(
                    rows(&session, "SELECT count(*) FROM pump WHERE id = 'a'").await,
                    ["0"]
                );
                assert_eq!(rows(&session, "SHOW TABLES").await, ["pump|1|id|4"]);
                assert_eq!(
                    rows(&session, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'").await,
                    ["pump"]
                );
                let plan = rows(&session, "EXPLAIN SELECT * FROM pump")
                    .await
                    .join("\n");
                assert!(plan.contains("streams=1 of 1"), "{plan}");
                for sql in [
                    "SELECT * FROM secret",
                    "DESCRIBE secret",
                    "DROP TABLE secret",
                    "DELETE FROM secret",
                ] {
                    let error = error(&session, sql).await;
                    assert_eq!(error.code, "unknown_table", "{sql}");
                    assert!(error.hint.is_none(), "{error}");
                }
                assert_eq!(error(&session, "SELECT * FROM secre").await.hint, None);
            }
            assert_eq!(
                rows(&lake.session, "SELECT count(*) FROM pump").await,
                ["300"]
            );
        }
    });
}

#[test]
fn a_session_changes_what_it_may_and_is_told_what_it_may_not() {
    block_on(async {
        let lake = Lake::pumps();
        let session = lake.as_(Some_ {
            reads: &["a", "b", "new"],
            writes: &["b", "new"],
            key: None,
        });
        assert_eq!(
            error(
                &session,
                "INSERT INTO pump (time, id, temp) VALUES (now(), 'a', 1)"
            )
            .await
            .code,
            "forbidden"
        );
        assert_eq!(
            outcome(
                &session,
                "INSERT INTO pump (time, id, temp) VALUES (now(), 'new', 1)"
            )
            .await,
            Outcome::Inserted(Stored::of(1))
        );
        let columns = ["id".to_owned(), "temp".to_owned()];
        for (id, allowed) in [("a", false), ("new", true)] {
            let text = |value: &str| -> ArrayRef { Arc::new(StringArray::from(vec![value])) };
            let row = [("id", text(id)), ("temp", text("2.5"))];
            let row = RecordBatch::try_from_iter(row).unwrap();
            let mut copy = session.copy_in("pump", &columns).unwrap();
            match copy.add(&row).await {
                Ok(()) => assert!(allowed && copy.finish().await == Ok(Stored::of(1))),
                Err(error) => assert!(!allowed && error.code == "forbidden", "{error:?}"),
            }
        }
        assert_eq!(
            session.copy_in("secret", &[]).unwrap_err().code,
            "unknown_table"
        );
        assert_eq!(error(&session, "DELETE FROM pump").await.code, "forbidden");
        assert_eq!(
            outcome(&session, "DELETE FROM pump WHERE id = 'b'").await,
            Outcome::Deleted(100)
        );
        assert_eq!(
            outcome(&session, "DELETE FROM pump WHERE id = 'c'").await,
            Outcome::Deleted(0)
        );
        for sql in [
            "DROP TABLE pump",
            "ALTER TABLE pump ADD COLUMN x DOUBLE",
            "CREATE TABLE other (x DOUBLE)",
        ] {
            assert_eq!(error(&session, sql).await.code, "forbidden", "{sql}");
        }
        assert_eq!(
            outcome(&session, "CREATE TABLE own_table (id TAG, x DOUBLE)").await,
            Outcome::Created(ObjectKind::Table)
        );
        assert_eq!(
            rows(&session, "SELECT count(*) FROM own_table").await,
            ["0"]
        );
        assert_eq!(
            outcome(&session, "DROP TABLE own_table").await,
            Outcome::Dropped(ObjectKind::Table)
        );
        assert_eq!(lake.rows("SELECT count(*) FROM pump").await, ["202"]);
    });
}

#[test]
fn joins_and_filled_buckets_have_nothing_of_streams_that_may_not_be_read() {
    block_on(async {
        let lake = Lake::pumps();
        let session = lake.as_(Some_ {
            reads: &["c"],
            writes: &[],
            key: Some("c"),
        });
        let range = "WHERE time >= '1970-01-01' AND time < '1970-01-01T00:03:00Z'";
        for (sql, expected) in [
            (
                format!(
                    "SELECT time_bucket_gapfill('1m', time) AS t, id, count(*) FROM pump {range} GROUP BY t, id ORDER BY t"
                ),
                vec![
                    "1970-01-01T00:00:00Z|c|60",
                    "1970-01-01T00:01:00Z|c|40",
                    "1970-01-01T00:02:00Z|c|-",
                ],
            ),
            (
                "SELECT DISTINCT b.id FROM pump a ASOF JOIN pump b ON a.time > b.time".to_owned(),
                vec!["c"],
            ),
            (
                "SELECT id, temp FROM pump LATEST ON time PARTITION BY id".to_owned(),
                vec!["c|49.5"],
            ),
            (
                "SELECT num_elements(counter_agg(time, rpm)), histogram(rpm, 0, 1000, 1) FROM pump"
                    .to_owned(),
                vec!["100|[0, 100, 0]"],
            ),
        ] {
            assert_eq!(rows(&session, &sql).await, expected, "{sql}");
        }
        // A tag that only other streams have is no column.
        for sql in [
            "SELECT count(*) FROM pump LATEST ON time PARTITION BY site",
            "SELECT 1 FROM pump a ASOF JOIN pump b ON a.site = b.site AND a.time >= b.time",
        ] {
            assert_eq!(error(&session, sql).await.code, "unknown_column", "{sql}");
        }
    });
}
