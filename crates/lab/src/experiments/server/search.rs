//! Searches over very many streams: the latency for a user who types into the page's search.

use super::Arguments;
use super::child::Server;
use super::connection::get;
use super::reading::{QueryCase, Row, ask_all};
use crate::harness::{Bench, Bound, Failure, Targets};
use headwater::{Batch, Database, Options, StreamName};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

const START: i64 = 1_700_000_000_000_000_000;
/// Streams of a batch.
const BATCH: usize = 1_000;
/// Sites that streams are spread over.
const SITES: usize = 50;

#[derive(Serialize)]
pub(super) struct Results {
    streams: usize,
    rows: Vec<Row>,
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let dir = bench.path("search");
    fill(&dir, arguments.streams)?;
    let server = Server::start(&dir)?;
    let rows = ask_all(bench, arguments, &server, &questions(arguments.streams))?;
    server.stop()?;
    for row in &rows {
        targets.add(
            format!("{} of {} streams, p50", row.question, arguments.streams),
            Bound::AtMost(20.0),
            " ms",
            row.p50_ms,
        );
    }
    Ok(Results {
        streams: arguments.streams,
        rows,
    })
}

fn name(number: usize) -> StreamName {
    let site = format!("site-{:02}", number % SITES);
    StreamName::new(
        "fleet",
        [("device", format!("Device-{number:06}")), ("site", site)],
    )
}

/// A row for each stream.
fn fill(dir: &Path, streams: usize) -> Result<(), Failure> {
    let db = Database::open(Options::new(dir))?;
    let mut next = 0;
    while next < streams {
        let mut batch = Batch::new();
        for number in next..(next + BATCH).min(streams) {
            let row = [("temperature", (number as f64 / 100.0).into())];
            batch.stream(&name(number)).row(START, row)?;
        }
        db.commit(batch)?;
        next += BATCH;
    }
    Ok(db.close()?)
}

fn questions(streams: usize) -> Vec<QueryCase> {
    let question = |name, search: &str, total: usize| QueryCase {
        name,
        connections: 1,
        requests: vec![get(&format!("/api/v1/streams?limit=50&search={search}"))],
        is_right: Box::new(move |v: &Value| {
            let shown = v["streams"].as_array().map(Vec::len);
            v["total"].as_u64() == Some(total as u64) && shown == Some(total.min(50))
        }),
    };
    let last = format!("device-{:06}", streams - 1);
    let of_site = (0..streams).filter(|n| n % SITES == 7).count();
    vec![
        question("a search that finds one", &last, 1),
        question(
            "a search for two words that finds one in fifty",
            "site-07+DEVICE",
            of_site,
        ),
        question("a search that finds all", "device-", streams),
        question("a search that finds none", "nothing-like-it", 0),
    ]
}
