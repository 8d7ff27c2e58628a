//! Bins of time as tools write them: by arithmetic on seconds since 1970.

use crate::support::{Lake, SECOND, block_on};
use headwater::{Batch, StreamName};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn the_pyramid_answers_bins_written_as_arithmetic() {
    block_on(async {
        let lake = Lake::pumps();
        for (bin, pyramid) in [
            ("floor(extract(epoch from time)/30)*30", true),
            ("floor((extract(epoch from time))/30.0)*30.0", true),
            ("floor(date_part('epoch', time)/30)*30", true),
            (
                "extract(epoch from date_bin(interval '30 seconds', time))",
                false,
            ),
            // Not the same width, no whole seconds, and not of an instant.
            ("floor(extract(epoch from time)/30)*60", false),
            ("floor(extract(epoch from time)/0.5)*0.5", false),
            ("floor(rpm/30)*30", false),
        ] {
            let sql = format!(
                "SELECT {bin} AS \"time\", id, avg(rpm), count(*) FROM pump WHERE time < '1970-01-01T00:01:40Z' GROUP BY 1, 2 HAVING count(*) > 0 ORDER BY 1, 2"
            );
            let plan = lake.rows(&format!("EXPLAIN {sql}")).await.join("\n");
            assert_eq!(plan.contains("PyramidExec"), pyramid, "{bin}: {plan}");
            let found = lake.rows(&sql).await;
            lake.outcome("SET headwater.use_pyramid = off").await;
            assert_eq!(lake.rows(&sql).await, found, "{bin}");
            lake.outcome("RESET headwater.use_pyramid").await;
        }
        let bins = "floor(extract(epoch from time)/60)*60";
        for (sql, wanted) in [
            (
                format!("SELECT {bins} FROM pump WHERE id = 'a' AND rpm = 590"),
                vec!["0.0"],
            ),
            (
                format!(
                    "SELECT {bins}, {bins} + 1, max(rpm) FROM pump GROUP BY {bins} ORDER BY {bins} DESC"
                ),
                vec!["60.0|61.0|990", "0.0|1.0|590"],
            ),
            (
                format!(
                    "SELECT count(*) FROM (SELECT {bins} AS b, id FROM pump GROUP BY b, id) x WHERE b > 0"
                ),
                vec!["3"],
            ),
            (
                format!(
                    "SELECT {bins} AS b, floor(extract(epoch from time)/50)*50 AS c, count(*) FROM pump GROUP BY b, c ORDER BY b, c"
                ),
                vec!["0.0|0.0|150", "0.0|50.0|30", "60.0|50.0|120"],
            ),
            (
                format!("SELECT {bins} AS b, count(*) FROM pump GROUP BY ROLLUP (b) ORDER BY b"),
                vec!["0.0|180", "60.0|120", "-|300"],
            ),
        ] {
            assert_eq!(lake.rows(&sql).await, wanted, "{sql}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Exactly, up to the nanosecond before a bin ends, from rows and from the pyramid.
    #[test]
    fn every_row_is_in_its_bin(
        rows in prop::collection::btree_set(
            (20_000_000..30_000_000i64, prop_oneof![-200..200i64, -30 * SECOND..30 * SECOND]),
            1..300,
        ),
        width in prop::sample::select(vec![1i64, 60, 300, 3_600, 86_400]),
    ) {
        let times: std::collections::BTreeSet<i64> =
            rows.iter().map(|(minute, near)| minute * 60 * SECOND + near).collect();
        let mut wanted: BTreeMap<i64, u64> = BTreeMap::new();
        for time in &times {
            *wanted.entry(time.div_euclid(width * SECOND) * width).or_default() += 1;
        }
        let wanted: Vec<String> = wanted.iter().map(|(bin, count)| format!("{bin}|{count}")).collect();
        block_on(async {
            let lake = Lake::new();
            let mut batch = Batch::new();
            let stream = batch.stream(&StreamName::new("m", [("id", "a")]));
            for time in &times {
                stream.row(*time, [("v", 1.0.into())]).unwrap();
            }
            lake.db.commit(batch).unwrap();
            lake.db.flush().unwrap();
            let sql = format!("SELECT CAST(floor(extract(epoch from time)/{width})*{width} AS BIGINT) AS b, count(*) FROM m GROUP BY floor(extract(epoch from time)/{width})*{width} ORDER BY b");
            for on in ["on", "off"] {
                lake.outcome(&format!("SET headwater.use_pyramid = {on}")).await;
                assert_eq!(lake.rows(&sql).await, wanted, "{on}");
            }
        });
    }
}
