//! Views.

use crate::support::{Lake, block_on, error, outcome, rows};
use headwater_query::{Access, ObjectKind, Outcome, Stored};

#[test]
fn a_view_stands_where_a_table_can() {
    block_on(async {
        let lake = Lake::pumps();
        assert_eq!(
            lake.outcome("CREATE VIEW hot AS SELECT id, time, temp FROM pump WHERE temp > 49")
                .await,
            Outcome::Created(ObjectKind::View)
        );
        lake.outcome(
            "CREATE VIEW \"Hot ones\" (device, warm) AS SELECT id, max(temp) FROM hot GROUP BY id",
        )
        .await;
        for _ in 0..2 {
            assert_eq!(lake.rows("SELECT count(*) FROM hot").await, ["3"]);
            assert_eq!(
                lake.rows("SELECT h.device, h.warm FROM \"Hot ones\" h ORDER BY 1")
                    .await,
                ["a|49.5", "b|49.5", "c|49.5"]
            );
        }
        assert_eq!(
            lake.rows("SELECT count(*) FROM hot a JOIN hot b ON a.id = b.id")
                .await,
            ["3"]
        );
        // A query of the statement hides a view.
        assert_eq!(
            lake.rows("WITH hot AS (SELECT 1 AS x) SELECT * FROM hot")
                .await,
            ["1"]
        );
        lake.outcome("CREATE TABLE copy (id TAG, temp DOUBLE)")
            .await;
        assert_eq!(
            lake.outcome("INSERT INTO copy (time, id, temp) SELECT time, id, temp FROM hot")
                .await,
            Outcome::Inserted(Stored::of(3))
        );
        lake.outcome(
            "CREATE OR REPLACE VIEW hot AS SELECT id, time, temp FROM pump WHERE temp > 48",
        )
        .await;
        assert_eq!(lake.rows("SELECT count(*) FROM hot").await, ["9"]);
        assert_eq!(lake.rows("SHOW VIEWS").await.len(), 2);
        lake.outcome("CREATE VIEW IF NOT EXISTS hot AS SELECT 1")
            .await;
        assert_eq!(lake.rows("SELECT count(*) FROM hot").await, ["9"]);
        assert_eq!(
            lake.outcome("DROP VIEW hot").await,
            Outcome::Dropped(ObjectKind::View)
        );
        assert_eq!(lake.error("SELECT * FROM hot").await.code, "unknown_table");
        // What it stood in is gone with it.
        assert_eq!(
            lake.error("SELECT * FROM \"Hot ones\"").await.code,
            "unknown_table"
        );
        assert!(lake.rows("SHOW VIEWS").await.is_empty());
        lake.outcome("DROP VIEW IF EXISTS hot, nothing").await;
    });
}

#[test]
fn a_view_that_cannot_be_is_refused() {
    block_on(async {
        let lake = Lake::pumps();
        lake.outcome("CREATE VIEW v AS SELECT 1 AS x").await;
        for (sql, code) in [
            ("CREATE VIEW v AS SELECT 2 AS x", "table_exists"),
            ("CREATE VIEW pump AS SELECT 2 AS x", "table_exists"),
            ("CREATE VIEW w AS SELECT * FROM nothing", "unknown_table"),
            (
                "CREATE VIEW w AS SELECT nothing FROM pump",
                "unknown_column",
            ),
            ("CREATE OR REPLACE VIEW v AS SELECT * FROM v", "too_large"),
            (
                "CREATE MATERIALIZED VIEW w AS SELECT 1",
                "unsupported_statement",
            ),
            ("DROP VIEW pump", "unknown_table"),
            ("DROP TABLE v", "unknown_table"),
            ("DELETE FROM v", "unknown_table"),
        ] {
            assert_eq!(lake.error(sql).await.code, code, "{sql}");
        }
        assert_eq!(lake.rows("SELECT * FROM v").await, ["1"]);
    });
}

/// May read one pump, and manage nothing but what begins with `own`.
struct OnePump;

impl Access for OnePump {
    fn reads(&self, table: &str, tags: &[(String, String)]) -> bool {
        table == "pump" && tags.iter().any(|(k, v)| k == "id" && v == "c")
    }

    fn writes(&self, _: &str, _: &[(String, String)]) -> bool {
        false
    }

    fn manages(&self, table: &str) -> bool {
        table.starts_with("own")
    }

    fn all(&self) -> bool {
        false
    }

    fn key(&self) -> Option<String> {
        Some("one".to_owned())
    }
}

#[test]
fn a_view_shows_each_session_what_it_may_see() {
    block_on(async {
        let lake = Lake::pumps();
        lake.outcome("CREATE TABLE secret (id TAG, x DOUBLE)").await;
        lake.outcome("CREATE VIEW counts AS SELECT id, count(*) AS n FROM pump GROUP BY id")
            .await;
        lake.outcome("CREATE VIEW sites AS SELECT site FROM pump")
            .await;
        lake.outcome("CREATE VIEW secrets AS SELECT * FROM secret")
            .await;
        let session = lake.as_(OnePump);
        assert_eq!(
            rows(&lake.session, "SELECT count(*) FROM counts").await,
            ["3"]
        );
        assert_eq!(rows(&session, "SELECT * FROM counts").await, ["c|100"]);
        // Of a table that it may not read, and of a tag that only other streams have.
        for view in ["secrets", "sites"] {
            let error = error(&session, &format!("SELECT * FROM {view}")).await;
            assert_eq!(error.code, "unknown_table");
            assert!(
                error.message.contains(view) && !error.message.contains("site "),
                "{error}"
            );
        }
        assert_eq!(rows(&session, "SHOW VIEWS").await.len(), 1);
        for sql in [
            "CREATE VIEW mine AS SELECT 1",
            "DROP VIEW counts",
            "CREATE OR REPLACE VIEW counts AS SELECT 1",
        ] {
            assert_eq!(error(&session, sql).await.code, "forbidden", "{sql}");
        }
        assert_eq!(
            outcome(
                &session,
                "CREATE VIEW own_view AS SELECT count(*) AS n FROM counts"
            )
            .await,
            Outcome::Created(ObjectKind::View)
        );
        assert_eq!(rows(&session, "SELECT * FROM own_view").await, ["1"]);
        assert_eq!(rows(&lake.session, "SELECT * FROM own_view").await, ["3"]);
        assert_eq!(
            error(&session, "CREATE VIEW own_other AS SELECT * FROM secret")
                .await
                .code,
            "unknown_table"
        );
    });
}
