//! SQL over the copies of many edges: planning of a grouped query and the query, with what it read.

use super::Arguments;
use super::children::TABLE;
use super::made;
use crate::harness::{Bench, Bound, Failure, Targets, real, unsigned, whole};
use crate::table;
use headwater::{Database, Options, Snapshot};
use headwater_cluster::{EdgeCopies, database_of};
use headwater_io::Env;
use headwater_query::{Limits, Parameters, Query, Session, Snapshots, Unrestricted};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

#[derive(Serialize)]
struct Statement {
    what: &'static str,
    first_seconds: f64,
    seconds: Vec<f64>,
    rows: u64,
    /// Counters of the plan: leaves, pages, buckets, bytes.
    read: String,
    leaves: u64,
}

#[derive(Serialize)]
pub(super) struct Results {
    copies: usize,
    rows: usize,
    /// From a closed fleet to the first snapshot over all copies.
    open_seconds: f64,
    snapshot_seconds: Vec<f64>,
    statements: Vec<Statement>,
}

/// All copies and the own database of a node.
struct Node {
    fleet: Arc<EdgeCopies>,
    own: Database,
}

impl Snapshots for Node {
    fn snapshot(&self) -> headwater::Result<Snapshot> {
        self.fleet.across(self.own.snapshot()?)
    }
}

/// Rows and text of an answer.
fn ask(runtime: &Runtime, session: &Session, sql: &str) -> Result<(u64, String), Failure> {
    let batches =
        runtime.block_on(async { session.run(sql, Parameters::none()).await?.collect().await })?;
    let rows = batches.iter().map(|batch| unsigned(batch.num_rows())).sum();
    let text = format!("{batches:?}");
    Ok((rows, text))
}

/// Sum of the numbers behind a name in the text of a plan, as in `leaves=12` and `leaves=7.00 K`.
fn sum_of(text: &str, name: &str) -> u64 {
    let numbers = text.match_indices(name).filter_map(|(at, _)| {
        let behind = text.get(at + name.len()..)?;
        let end = behind.find([',', ']'])?;
        let (number, unit) = behind
            .get(..end)?
            .split_once(' ')
            .unwrap_or((behind.get(..end)?, ""));
        let times = match unit {
            "K" => 1e3,
            "M" => 1e6,
            _ => 1.0,
        };
        Some(unsigned(whole(number.parse::<f64>().ok()? * times)))
    });
    numbers.sum()
}

fn statement(
    (runtime, session, rounds): (&Runtime, &Session, usize),
    (what, sql): (&'static str, &str),
) -> Result<[Statement; 2], Failure> {
    let time = |sql: &str| -> Result<(f64, Vec<f64>, u64), Failure> {
        let begun = Instant::now();
        let (rows, _) = ask(runtime, session, sql)?;
        let first = begun.elapsed().as_secs_f64();
        let mut seconds = Vec::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            ask(runtime, session, sql)?;
            seconds.push(begun.elapsed().as_secs_f64());
        }
        Ok((first, seconds, rows))
    };
    let (first_seconds, seconds, rows) = time(&format!("EXPLAIN {sql}"))?;
    let planning = Statement {
        what: "planning",
        first_seconds,
        seconds,
        rows,
        read: String::new(),
        leaves: 0,
    };
    let (first_seconds, seconds, rows) = time(sql)?;
    let (_, read) = ask(runtime, session, &format!("EXPLAIN ANALYZE {sql}"))?;
    let leaves = sum_of(&read, "leaves=");
    let asked = Statement {
        what,
        first_seconds,
        seconds,
        rows,
        read,
        leaves,
    };
    Ok([planning, asked])
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let (copies, rows) = (arguments.sql_copies, arguments.rows);
    let dir = bench.path("copies");
    made::make(&dir, copies, rows)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let begun = Instant::now();
    let own = Database::open(Options::new(&dir))?;
    let fleet = Arc::new(EdgeCopies::open(Env::system(), &dir, Options::new(&dir))?);
    fleet.set_node(database_of(&own)?.0);
    let node = Arc::new(Node {
        fleet,
        own: own.clone(),
    });
    node.snapshot()?;
    let open_seconds = begun.elapsed().as_secs_f64();
    let (_, rounds) = bench.rounds();
    let mut snapshot_seconds = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        node.snapshot()?;
        snapshot_seconds.push(begun.elapsed().as_secs_f64());
    }
    let snapshots: Arc<dyn Snapshots> = node.clone();
    let query = Query::across(own.clone(), snapshots, Limits::default());
    let session = query.session(Arc::new(Unrestricted));
    let with = (&runtime, &session, rounds);
    let mut statements = Vec::new();
    for (what, sql) in [
        (
            "a mean per device and hour",
            format!(
                "SELECT edge, date_bin(INTERVAL '1 hour', time) AS t, avg(v) FROM {TABLE} GROUP BY edge, t"
            ),
        ),
        ("count(*)", format!("SELECT count(*) FROM {TABLE}")),
    ] {
        statements.extend(statement(with, (what, &sql))?);
    }
    let hours = rows.div_ceil(360);
    let grouped = statements.get(1).map_or(0, |statement| statement.rows);
    if grouped != unsigned(copies * hours) {
        return Err(format!("{grouped} means instead of {}", copies * hours).into());
    }
    drop(session);
    own.close()?;
    let results = Results {
        copies,
        rows,
        open_seconds,
        snapshot_seconds,
        statements,
    };
    print(&results);
    judge(&results, targets);
    Ok(results)
}

fn print(results: &Results) {
    println!();
    println!(
        "{} copies of {} rows, opened in {:.2} s; a snapshot {:.2} ms",
        results.copies,
        results.rows,
        results.open_seconds,
        table::median(results.snapshot_seconds.clone()).0 * 1e3
    );
    let line = |one: &Statement| {
        let (median, low, high) = table::median(one.seconds.clone());
        vec![
            one.what.to_owned(),
            one.rows.to_string(),
            format!("{:.1} ms", one.first_seconds * 1e3),
            format!("{:.1} ms", median * 1e3),
            format!("{low:+.0} … {high:+.0} %"),
            one.leaves.to_string(),
        ]
    };
    let lines: Vec<Vec<String>> = results.statements.iter().map(line).collect();
    table::print(
        &[
            "statement",
            "rows",
            "first",
            "median",
            "spread",
            "leaves read",
        ],
        &lines,
    );
}

fn judge(results: &Results, targets: &mut Targets) {
    let [planning, means, ..] = results.statements.as_slice() else {
        return;
    };
    targets.add(
        format!("SQL over {} copies: planning", results.copies),
        Bound::AtMost(50.0),
        " ms",
        table::median(planning.seconds.clone()).0 * 1e3,
    );
    targets.add(
        "… leaves read of a mean per device and hour",
        Bound::AtMost(0.0),
        "",
        real(means.leaves),
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn numbers_of_a_plan_are_summed() {
        let plan = "PyramidExec: metrics=[leaves=7.00 K, pages=3], other=[leaves=12]";
        assert_eq!(sum_of(plan, "leaves="), 7_012);
        assert_eq!(sum_of(plan, "buckets="), 0);
    }
}
