//! Indexes in SQL: made, told, used, dropped; and never a different answer.

use crate::support::{Lake, SECOND, block_on, error, outcome, rows};
use headwater::{Batch, IndexUse, StreamName};
use headwater_query::datafusion::common::ScalarValue;
use headwater_query::{Access, ObjectKind, Outcome, Parameters};
use std::ops::ControlFlow;

/// Orders of two tills, whose numbers stand in no order; half of them in segments.
fn orders() -> Lake {
    let lake = Lake::new();
    for half in 0..2i64 {
        let mut batch = Batch::new();
        for till in ["1", "2"] {
            let name = StreamName::new("orders", [("till", till)]);
            let writer = batch.stream(&name);
            for i in 0..2_000i64 {
                let at = half * 2_000 + i;
                let number = at.wrapping_mul(7_919) % 4_001;
                let mut values = vec![("number", number.into()), ("price", (at as f64).into())];
                if i % 100 == 0 {
                    values.push(("note", headwater::Value::String(format!("note {number}"))));
                }
                writer.row(at * SECOND, values).unwrap();
            }
        }
        lake.db.commit(batch).unwrap();
        if half == 0 {
            lake.db.flush().unwrap();
        }
    }
    lake
}

fn build(lake: &Lake, name: &str) {
    let built = lake
        .db
        .build_index(name, &mut |_| ControlFlow::Continue(()));
    assert!(built.unwrap());
}

#[test]
fn an_index_is_made_told_used_and_dropped() {
    block_on(async {
        let lake = orders();
        let made = Outcome::Created(ObjectKind::Index);
        assert_eq!(
            lake.outcome("CREATE INDEX by_number ON orders (number)")
                .await,
            made
        );
        let again = "CREATE INDEX by_number ON orders (price)";
        let twice = lake.error(again).await;
        assert_eq!((twice.code, twice.sqlstate), ("index_exists", "42P07"));
        let again = again.replace("INDEX", "INDEX IF NOT EXISTS");
        assert_eq!(lake.outcome(&again).await, made);
        build(&lake, "by_number");
        lake.db.use_indexes(IndexUse::Always);
        let sql = "SELECT till, price FROM orders WHERE number = 17 ORDER BY till, price";
        let found = lake.rows(sql).await;
        assert_eq!(found.len(), 2);
        let plan = lake.rows(&format!("EXPLAIN {sql}")).await.join("\n");
        assert!(plan.contains("indexes=[by_number]"), "{plan}");
        let ran = lake.rows(&format!("EXPLAIN ANALYZE {sql}")).await;
        let ran = ran.join("\n");
        assert!(ran.contains("index_candidates="), "{ran}");
        assert!(!ran.contains("index_candidates=0"), "{ran}");
        let plain = "EXPLAIN SELECT price FROM orders WHERE price > 17";
        let plain = lake.rows(plain).await.join("\n");
        assert!(!plain.contains("indexes="), "{plain}");
        // Of alternatives over several fields each needs an index of its own.
        let either =
            "SELECT till, price FROM orders WHERE number = 17 OR price = 40 ORDER BY till, price";
        let plan = lake.rows(&format!("EXPLAIN {either}")).await.join("\n");
        assert!(!plan.contains("indexes="), "{plan}");
        let without = lake.rows(either).await;
        assert_eq!(without.len(), 4);
        lake.outcome("CREATE INDEX by_price ON orders (price)")
            .await;
        build(&lake, "by_price");
        let plan = lake.rows(&format!("EXPLAIN {either}")).await.join("\n");
        assert!(plan.contains("indexes=[by_number, by_price]"), "{plan}");
        assert_eq!(lake.rows(either).await, without);
        lake.outcome("DROP INDEX by_price").await;
        // A name that was not given, and several fields.
        lake.outcome("CREATE INDEX ON orders (number, price)").await;
        lake.outcome(
            "create index concurrently on public.orders using btree (\"number\", Price ASC)",
        )
        .await;
        let shown = lake.rows("SHOW INDEXES").await;
        let names: Vec<&str> = shown
            .iter()
            .filter_map(|row| row.split('|').next())
            .collect();
        assert_eq!(
            names,
            [
                "by_number",
                "orders_number_price_idx",
                "orders_number_price_idx1"
            ]
        );
        let first = shown.first().unwrap();
        assert!(
            first.starts_with("by_number|orders|number|4000|"),
            "{first}"
        );
        assert_eq!(lake.rows("SHOW INDEXES FROM orders").await.len(), 3);
        assert_eq!(
            lake.error("SHOW INDEX FROM nothing").await.code,
            "unknown_table"
        );
        // All or none.
        let missing = lake.error("DROP INDEX by_number, nothing").await;
        assert_eq!((missing.code, missing.sqlstate), ("unknown_index", "42704"));
        assert_eq!(lake.rows("SHOW INDEXES").await.len(), 3);
        let drop = "DROP INDEX IF EXISTS by_number, nothing, orders_number_price_idx";
        assert_eq!(
            lake.outcome(drop).await,
            Outcome::Dropped(ObjectKind::Index)
        );
        assert_eq!(lake.rows("SHOW INDEXES").await.len(), 1);
        assert_eq!(lake.rows(sql).await, found);
        lake.outcome("DROP TABLE orders").await;
        assert_eq!(lake.rows("SHOW INDEXES").await.len(), 0);
    });
}

#[test]
fn what_no_index_has_is_refused_by_name() {
    block_on(async {
        let lake = orders();
        for (sql, code, named) in [
            (
                "CREATE INDEX i ON nothing (number)",
                "unknown_table",
                "nothing",
            ),
            (
                "CREATE INDEX i ON orders (weight)",
                "unknown_column",
                "weight",
            ),
            ("CREATE INDEX i ON orders (till)", "unsupported", "till"),
            ("CREATE INDEX i ON orders (time)", "unsupported", "time"),
            (
                "CREATE INDEX i ON orders (number, number)",
                "invalid",
                "number",
            ),
            (
                "CREATE INDEX i ON orders (number % 10)",
                "unsupported",
                "number % 10",
            ),
            (
                "CREATE UNIQUE INDEX i ON orders (number)",
                "unsupported_statement",
                "UNIQUE",
            ),
            (
                "CREATE INDEX i ON orders USING hash (number)",
                "unsupported_statement",
                "HASH",
            ),
            (
                "CREATE INDEX i ON orders (number) WHERE price > 3",
                "unsupported_statement",
                "condition",
            ),
            (
                "CREATE INDEX i ON orders (number) INCLUDE (price)",
                "unsupported_statement",
                "INCLUDE",
            ),
            (
                "CREATE INDEX i ON orders (number DESC)",
                "unsupported_statement",
                "DESC",
            ),
            (
                "CREATE INDEX i ON orders (number) WITH (fillfactor = 70)",
                "unsupported_statement",
                "option",
            ),
        ] {
            let error = lake.error(sql).await;
            assert_eq!(error.code, code, "{sql}: {error}");
            assert!(error.message.contains(named), "{sql}: {error}");
        }
        assert_eq!(lake.rows("SHOW INDEXES").await.len(), 0);
        // It has no parameters, and its shape is known before it runs.
        let described = lake.session.prepare("SHOW INDEXES", &[]).await.unwrap();
        assert_eq!(described.schema().fields().len(), 9);
        let bound = Parameters::positional(vec![ScalarValue::from(1)]);
        let refused = lake.session.run("DROP INDEX i", bound).await;
        assert_eq!(refused.err().map(|e| e.code), Some("invalid_parameters"));
    });
}

/// Reads one till, and manages nothing or this table.
struct Clerk {
    manages: bool,
}

impl Access for Clerk {
    fn reads(&self, table: &str, tags: &[(String, String)]) -> bool {
        table == "orders" && tags.iter().any(|(_, value)| value == "1")
    }

    fn writes(&self, _: &str, _: &[(String, String)]) -> bool {
        false
    }

    fn manages(&self, table: &str) -> bool {
        self.manages && table == "orders"
    }

    fn all(&self) -> bool {
        false
    }
}

#[test]
fn who_manages_a_table_manages_its_indexes() {
    block_on(async {
        let lake = orders();
        let mut other = Batch::new();
        let name = StreamName::new("hidden", [("a", "b")]);
        other
            .stream(&name)
            .row(0, [("secret", 1i64.into())])
            .unwrap();
        lake.db.commit(other).unwrap();
        lake.outcome("CREATE INDEX by_secret ON hidden (secret)")
            .await;
        let clerk = lake.as_(Clerk { manages: false });
        let create = "CREATE INDEX by_number ON orders (number)";
        assert_eq!(error(&clerk, create).await.code, "forbidden");
        let manager = lake.as_(Clerk { manages: true });
        outcome(&manager, create).await;
        assert_eq!(rows(&clerk, "SHOW INDEXES").await.len(), 1);
        assert_eq!(rows(&manager, "SHOW INDEXES").await.len(), 1);
        for sql in ["DROP INDEX by_number", "DROP INDEX IF EXISTS by_number"] {
            assert_eq!(error(&clerk, sql).await.code, "forbidden");
        }
        // Of what is not seen nothing is told.
        for sql in [
            "CREATE INDEX i ON hidden (secret)",
            "SHOW INDEXES FROM hidden",
        ] {
            assert_eq!(error(&manager, sql).await.code, "unknown_table", "{sql}");
        }
        let unseen = error(&manager, "DROP INDEX by_secret").await;
        assert_eq!(unseen.code, "unknown_index");
        outcome(&manager, "DROP INDEX IF EXISTS by_secret").await;
        assert_eq!(lake.rows("SHOW INDEXES").await.len(), 2);
        outcome(&manager, "DROP INDEX by_number").await;
    });
}

#[test]
fn answers_are_the_same_with_and_without() {
    block_on(async {
        let lake = orders();
        for sql in [
            "CREATE INDEX by_number ON orders (number)",
            "CREATE INDEX by_note ON orders (note)",
            "CREATE INDEX by_both ON orders (number, price)",
        ] {
            lake.outcome(sql).await;
        }
        for name in ["by_number", "by_note", "by_both"] {
            build(&lake, name);
        }
        lake.outcome("DELETE FROM orders WHERE till = '1' AND time < '1970-01-01T00:05:00Z'")
            .await;
        lake.outcome(
            "INSERT INTO orders (time, till, number) VALUES ('1970-01-01T00:00:07Z', '2', 17)",
        )
        .await;
        for condition in [
            "number = 17",
            "number IN (17, 18, 4000)",
            "number BETWEEN 5 AND 9",
            "number = 17 OR number = 400",
            "number > 3990 AND price < 1000",
            "number = 17 AND price = 2000",
            "note = 'note 0'",
            "note LIKE 'note 1%'",
            "note LIKE 'note _'",
            "note IS NULL AND number < 3",
            "NOT number > 4",
            "number < 9 AND till = '1'",
        ] {
            let sql = format!(
                "SELECT time, till, number, price, note FROM orders WHERE {condition} ORDER BY time, till"
            );
            lake.db.use_indexes(IndexUse::Never);
            let without = lake.rows(&sql).await;
            for usage in [IndexUse::Always, IndexUse::ByCost] {
                lake.db.use_indexes(usage);
                assert_eq!(lake.rows(&sql).await, without, "{condition}");
            }
            assert!(
                !without.is_empty() || condition.contains("price = 2000"),
                "{condition}"
            );
        }
    });
}
