//! Every aggregate there is, over as many groups as there are rows, with the largest parameters and
//! long values: each is answered or refused, and the process lives. The list of aggregates is that
//! of the registry, so that one which is added needs its calls here.

use super::bombs::REFUSALS;
use super::child::{Watched, lake, resident, resident_max, run};
use crate::support::{block_on, rows};
use std::collections::BTreeSet;

/// Calls of aggregates, by the names of these.
const CALLS: &[(&[&str], &[&str])] = &[
    (
        &[
            "any_value",
            "approx_distinct",
            "array_agg",
            "count",
            "first_value",
            "last_value",
            "max",
            "min",
        ],
        &["NAME(s)", "NAME(repeat(s, 500))", "NAME(f)"],
    ),
    (
        &["count", "array_agg"],
        &["NAME(DISTINCT s)", "NAME(DISTINCT repeat(s, 500)), max(f)"],
    ),
    (&["nth_value"], &["NAME(repeat(s, 500), 1)"]),
    (
        &["string_agg"],
        &[
            "NAME(s, ',')",
            "NAME(repeat(s, 500), ',')",
            "NAME(DISTINCT s, ',')",
        ],
    ),
    (
        &["first", "last"],
        &["NAME(f, time)", "NAME(repeat(s, 500), time)"],
    ),
    (
        &[
            "approx_median",
            "avg",
            "mean",
            "median",
            "stddev",
            "stddev_pop",
            "stddev_samp",
            "sum",
            "var",
            "var_pop",
            "var_population",
            "var_samp",
            "var_sample",
        ],
        &["NAME(f)", "NAME(i)"],
    ),
    (
        &["avg", "mean", "median", "sum"],
        &["NAME(DISTINCT f), max(i)"],
    ),
    (&["bit_and", "bit_or", "bit_xor"], &["NAME(i)"]),
    (&["bool_and", "bool_or"], &["NAME(b)"]),
    (
        &[
            "corr",
            "covar",
            "covar_pop",
            "covar_samp",
            "regr_avgx",
            "regr_avgy",
            "regr_count",
            "regr_intercept",
            "regr_r2",
            "regr_slope",
            "regr_sxx",
            "regr_sxy",
            "regr_syy",
        ],
        &["NAME(f, i)"],
    ),
    (
        &["approx_percentile_cont"],
        &["NAME(f, 0.5)", "NAME(f, 0.5, 10000)"],
    ),
    (
        &["approx_percentile_cont_with_weight"],
        &["NAME(f, i, 0.5)", "NAME(f, i, 0.5, 10000)"],
    ),
    (
        &["percentile_cont", "quantile_cont"],
        &["NAME(0.5) WITHIN GROUP (ORDER BY f)"],
    ),
    (&["counter_agg", "gauge_agg"], &["NAME(time, f)"]),
    (
        &["time_weight"],
        &["NAME('Linear', time, f)", "NAME('LOCF', time, f)"],
    ),
    (&["integral_over"], &["NAME(f, time)"]),
    (&["lttb"], &["NAME(time, f, 1000000)", "NAME(time, f, 3)"]),
    (&["minmax"], &["NAME(time, f, 1000000)"]),
    (
        &["state_agg"],
        &["NAME(time, s)", "NAME(time, repeat(s, 500))"],
    ),
    (
        &["histogram"],
        &["NAME(f, 0, 1, 100000)", "NAME(f, 0, 1, 1)"],
    ),
    // Only beside several sets of groups.
    (&["grouping"], &[]),
];

async fn registered(sessions: &Watched) -> BTreeSet<String> {
    let sql = "SELECT DISTINCT routine_name FROM information_schema.routines WHERE function_type = 'AGGREGATE'";
    rows(&sessions.session, sql).await.into_iter().collect()
}

#[test]
fn every_aggregate_is_within_the_budget_whatever_its_groups() {
    const NAME: &str = "guards::groups::every_aggregate_is_within_the_budget_whatever_its_groups";
    run(NAME, || {
        block_on(async {
            let lake = lake(8_000);
            let sessions = Watched::new(&lake.query);
            let known: BTreeSet<String> = CALLS
                .iter()
                .flat_map(|(names, _)| names.iter().map(|name| (*name).to_owned()))
                .collect();
            assert_eq!(
                registered(&sessions).await,
                known,
                "an aggregate that is registered needs calls here"
            );
            for (names, calls) in CALLS {
                for (name, call) in names.iter().flat_map(|n| calls.iter().map(move |c| (n, c))) {
                    let call = call.replace("NAME", name);
                    let mut answered = 0;
                    for rest in ["", " GROUP BY time, tag", " GROUP BY i"] {
                        let sql = format!("SELECT {call} FROM t{rest}");
                        match sessions.run(&sql).await {
                            Ok(_) => answered += 1,
                            Err(error) => assert!(
                                REFUSALS.contains(&error.code),
                                "{sql}: {}: {error}",
                                error.code
                            ),
                        }
                        let now = resident("VmHWM");
                        assert!(now <= resident_max(), "{sql}: {} MiB", now >> 20);
                    }
                    // The long texts of all rows are more than a statement may have.
                    let is_long = call.contains("repeat");
                    assert!(
                        answered > 0 || is_long,
                        "{call} is answered over no groups at all"
                    );
                }
            }
        });
    });
}

#[test]
fn a_group_takes_no_more_than_its_values() {
    const NAME: &str = "guards::groups::a_group_takes_no_more_than_its_values";
    run(NAME, || {
        block_on(async {
            let lake = lake(30_000);
            let sessions = Watched::new(&lake.query);
            // 60,000 groups of one text each, beside another aggregate.
            let sql = "SELECT time, tag, count(DISTINCT s), max(f) FROM t GROUP BY time, tag";
            assert_eq!(sessions.run(sql).await.unwrap(), 60_000);
            let sql = "SELECT count(DISTINCT s), count(DISTINCT tag), count(DISTINCT i) FROM t";
            assert_eq!(rows(&sessions.session, sql).await, ["194|2|1000"]);
            let sql = "SELECT tag, count(DISTINCT s), max(f) FROM t GROUP BY tag ORDER BY tag";
            let found = rows(&sessions.session, sql).await;
            assert!(found.iter().all(|row| row.contains("|97|")), "{found:?}");
        });
    });
}
