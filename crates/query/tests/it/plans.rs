//! Cached plans: an answer is the same with and without them.

use crate::support::{Lake, block_on, outcome, rows, text};
use headwater_query::arrow::datatypes::DataType;
use headwater_query::datafusion::catalog::SchemaProvider;
use headwater_query::datafusion::common::ScalarValue;
use headwater_query::datafusion::logical_expr::ScalarUDF;
use headwater_query::datafusion::sql::sqlparser::ast::Statement;
use headwater_query::{Extension, Parameters, Prepared, Session, Unrestricted};
use std::sync::Arc;

/// An extension that adds nothing.
#[derive(Debug)]
struct Plain(Option<&'static str>);

impl Extension for Plain {
    fn rewrite(&self, _: &mut Statement) -> headwater_query::Result<()> {
        Ok(())
    }

    fn schemas(&self) -> Vec<(String, Arc<dyn SchemaProvider>)> {
        Vec::new()
    }

    fn functions(&self) -> Vec<Arc<ScalarUDF>> {
        Vec::new()
    }

    fn shared(&self) -> Option<&'static str> {
        self.0
    }
}

async fn run(prepared: &Prepared, values: Vec<ScalarValue>) -> Vec<String> {
    let answer = prepared.run(Parameters::positional(values)).await.unwrap();
    text(&answer.collect().await.unwrap())
}

#[test]
fn a_prepared_statement_is_planned_once_for_the_same_values_and_sees_what_changed() {
    block_on(async {
        let lake = Lake::pumps();
        let sql =
            "SELECT id, temp FROM pump WHERE id = $1 AND temp > $2 ORDER BY time DESC LIMIT 1";
        let prepared = lake.session.prepare(sql, &[]).await.unwrap();
        let values = |id: &str, least: f64| vec![ScalarValue::from(id), ScalarValue::from(least)];
        assert_eq!(run(&prepared, values("a", 10.0)).await, ["a|49.5"]);
        let kept = lake.query.plans();
        assert_eq!(run(&prepared, values("a", 10.0)).await, ["a|49.5"]);
        let again = lake.session.prepare(sql, &[]).await.unwrap();
        assert_eq!(run(&again, values("a", 10.0)).await, ["a|49.5"]);
        assert_eq!(lake.query.plans(), kept);
        assert_eq!(run(&prepared, values("b", 10.0)).await, ["b|49.5"]);
        assert!(run(&prepared, values("b", 90.0)).await.is_empty());
        assert_eq!(lake.query.plans(), kept + 2);
        // Rows that came since, and another table under the name.
        lake.outcome("INSERT INTO pump (time, id, temp) VALUES (to_timestamp(500), 'a', 70)")
            .await;
        assert_eq!(run(&prepared, values("a", 10.0)).await, ["a|70.0"]);
        lake.outcome("DROP TABLE pump").await;
        let gone = prepared
            .run(Parameters::positional(values("a", 10.0)))
            .await;
        assert_eq!(gone.map(|_| ()).unwrap_err().code, "unknown_table");
        lake.outcome("CREATE TABLE pump (time TIMESTAMP, id TAG, more DOUBLE, temp DOUBLE)")
            .await;
        lake.outcome("INSERT INTO pump (time, id, temp) VALUES (now(), 'a', 11)")
            .await;
        assert_eq!(run(&prepared, values("a", 10.0)).await, ["a|11.0"]);
        // What was kept for the tables and streams of before is let go.
        assert_eq!(lake.query.plans(), 1);
    });
}

#[test]
fn sessions_of_one_kind_share_plans_and_settings_part_them() {
    block_on(async {
        let lake = Lake::pumps();
        let session = |shared| -> Session {
            let access = Arc::new(Unrestricted);
            lake.query.session_with(access, Arc::new(Plain(shared)))
        };
        let sql = "SELECT count(*) FROM pump WHERE temp > 40";
        let mut kept = lake.query.plans();
        for (shared, more) in [
            (Some("one"), 1),
            (Some("one"), 0),
            (Some("other"), 1),
            (None, 0),
        ] {
            for _ in 0..2 {
                assert_eq!(rows(&session(shared), sql).await, ["57"]);
            }
            kept += more;
            assert_eq!(lake.query.plans(), kept, "{shared:?}");
        }
        let other = session(Some("one"));
        let plan = |session: Session| async move {
            let plan = rows(&session, "EXPLAIN SELECT max(temp) FROM pump").await;
            plan.join("\n").contains("PyramidExec")
        };
        outcome(&other, "SET headwater.use_pyramid = off").await;
        assert!(!plan(other.clone()).await);
        assert!(plan(session(Some("one"))).await);
        // The same text from the rows is another plan.
        assert_eq!(rows(&other, sql).await, ["57"]);
        assert_eq!(lake.query.plans(), kept + 1);
    });
}

#[test]
fn the_clock_goes_on_in_prepared_statements() {
    block_on(async {
        let lake = Lake::pumps();
        let sql = "SELECT now()::TIMESTAMP, id FROM pump WHERE id = $1 AND time < now() LIMIT 1";
        let prepared = lake.session.prepare(sql, &[]).await.unwrap();
        let first = run(&prepared, vec![ScalarValue::from("a")]).await;
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        let again = lake.session.prepare(sql, &[]).await.unwrap();
        assert_ne!(run(&again, vec![ScalarValue::from("a")]).await, first);
        assert_eq!(lake.query.plans(), 0);
    });
}

#[test]
fn a_parameter_that_must_be_a_list_is_no_text() {
    block_on(async {
        let lake = Lake::pumps();
        let texts = |values: &[&str]| {
            let values: Vec<ScalarValue> = values.iter().map(|v| ScalarValue::from(*v)).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Utf8))
        };
        for condition in ["id = ANY($1)", "id = ANY($1::text[])"] {
            let sql = format!("SELECT count(*) FROM pump WHERE {condition}");
            let prepared = lake.session.prepare(&sql, &[]).await.unwrap();
            assert!(prepared.parameters()[0].is_list(), "{sql}");
            assert_eq!(
                run(&prepared, vec![texts(&["a", "c", "z"])]).await,
                ["200"],
                "{sql}"
            );
            let text = Parameters::positional(vec!["{a,c}".into()]);
            for ran in [
                prepared.run(text.clone()).await,
                lake.session.run(&sql, text).await,
            ] {
                let error = ran.err().unwrap();
                assert_eq!(error.code, "invalid_parameters", "{sql}: {error}");
            }
        }
        let sql = "SELECT count(*) FROM pump WHERE rpm = ANY($1)";
        let prepared = lake.session.prepare(sql, &[]).await.unwrap();
        let numbers: Vec<ScalarValue> = vec![10i64.into(), 20i64.into()];
        let numbers = ScalarValue::new_list_nullable(&numbers, &DataType::Int64);
        assert_eq!(
            run(&prepared, vec![ScalarValue::List(numbers)]).await,
            ["6"]
        );
    });
}
