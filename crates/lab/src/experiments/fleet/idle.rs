//! A cloud node with many copies whose edges are away, beside one without copies: open files and
//! memory for each, at rest and after a query that needs all of them.

use super::Arguments;
use super::children::TABLE;
use super::live::mib;
use super::made;
use crate::experiments::nodes::requests::{json, number, until};
use crate::experiments::server::Server;
use crate::harness::{Bench, Bound, Failure, Targets, real, unsigned};
use crate::table;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// Rows of each copy.
const ROWS: usize = 600;
/// Time without a query before memory and files are counted.
const REST: Duration = Duration::from_secs(5);

/// Interval of looks at a cloud that starts, and the share of a processor at rest.
const LOOK: Duration = Duration::from_millis(500);
const AT_REST: f64 = 0.2;

/// Resources that a cloud uses.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Use {
    resident_bytes: u64,
    files: usize,
    /// Processors used without a query.
    cpu: f64,
}

#[derive(Serialize)]
pub(super) struct Results {
    copies: usize,
    rows: usize,
    stored_bytes_each: u64,
    seconds_to_make: f64,
    /// From the start of the process until it is at rest.
    start_seconds: f64,
    none: Use,
    rest: Use,
    /// Time of a count of all rows, the first one, and whether it was answered.
    count_seconds: f64,
    is_counted: bool,
    counted: Use,
}

/// The use at rest.
fn usage(server: &Server) -> Result<Use, Failure> {
    std::thread::sleep(REST);
    let before = server.used()?;
    std::thread::sleep(REST);
    let used = server.used()?;
    Ok(Use {
        resident_bytes: used.resident_bytes,
        files: server.open_files()?,
        cpu: (used.cpu_seconds - before.cpu_seconds) / REST.as_secs_f64(),
    })
}

/// A cloud in a folder, once it has looked at its copies: it answers, and is at rest. The list of
/// edges is not asked for, since the answer takes memory too.
pub(super) fn cloud(dir: &Path) -> Result<Server, Failure> {
    let server = Server::start_with(dir, &["--role", "cloud"])?;
    until("the cloud is at rest", || {
        let before = server.used()?.cpu_seconds;
        std::thread::sleep(LOOK);
        let used = server.used()?.cpu_seconds - before;
        Ok(used < AT_REST * LOOK.as_secs_f64() && json(&server, "/ready").is_ok())
    })?;
    Ok(server)
}

pub(super) fn measure(
    bench: &Bench,
    arguments: &Arguments,
    targets: &mut Targets,
) -> Result<Results, Failure> {
    let copies = arguments.copies;
    let empty = cloud(&bench.path("none"))?;
    let none = usage(&empty)?;
    empty.stop()?;
    let dir = bench.path("copies");
    let begun = Instant::now();
    made::make(&dir, copies, ROWS)?;
    let seconds_to_make = begun.elapsed().as_secs_f64();
    let stored = made::bytes_under(&dir.join("copies"))?;
    let begun = Instant::now();
    let server = cloud(&dir)?;
    let start_seconds = begun.elapsed().as_secs_f64();
    let rest = usage(&server)?;
    let begun = Instant::now();
    let counted = json(&server, &format!("/api/v1/count?table={TABLE}"));
    let count_seconds = begun.elapsed().as_secs_f64();
    let is_counted = match counted {
        Ok(counted) => {
            let rows = number(&counted, "/rows").unwrap_or(0);
            if rows != unsigned(copies * ROWS) {
                return Err(format!("{rows} rows instead of {}", copies * ROWS).into());
            }
            true
        }
        // Too many copies for the longest time of a request.
        Err(error) => {
            println!("the count: {error}");
            false
        }
    };
    let counted = usage(&server)?;
    server.stop()?;
    let results = Results {
        copies,
        rows: ROWS,
        stored_bytes_each: stored / unsigned(copies.max(1)),
        seconds_to_make,
        start_seconds,
        none,
        rest,
        count_seconds,
        is_counted,
        counted,
    };
    print(&results);
    judge(&results, targets);
    Ok(results)
}

/// Resident KiB of a copy.
fn each(results: &Results, now: &Use) -> f64 {
    let more = now
        .resident_bytes
        .saturating_sub(results.none.resident_bytes);
    real(more) / 1024.0 / real(results.copies.max(1))
}

fn print(results: &Results) {
    let line = |what: String, now: &Use| {
        vec![
            what,
            format!("{:.0} MiB", mib(now.resident_bytes)),
            format!("{:.1} KiB", each(results, now)),
            now.files.to_string(),
            format!("{:.3}", now.cpu),
        ]
    };
    println!();
    table::print(
        &[
            "a cloud with",
            "resident",
            "each copy",
            "open files",
            "processors at rest",
        ],
        &[
            line("no copies".to_owned(), &results.none),
            line(format!("{} copies", results.copies), &results.rest),
            line("… after a count of all rows".to_owned(), &results.counted),
        ],
    );
    println!(
        "\nstarted in {:.2} s, first count {:.2} s, {} bytes stored of each copy",
        results.start_seconds, results.count_seconds, results.stored_bytes_each
    );
}

fn judge(results: &Results, targets: &mut Targets) {
    targets.add(
        format!("{} idle copies: resident, each", results.copies),
        Bound::AtMost(32.0),
        " KiB",
        each(results, &results.rest),
    );
    targets.add(
        "… open files, each",
        Bound::AtMost(0.0),
        "",
        real(results.rest.files.saturating_sub(results.none.files)) / real(results.copies.max(1)),
    );
    targets.add(
        "… resident after a count of all rows, each",
        Bound::AtMost(32.0),
        " KiB",
        each(results, &results.counted),
    );
}
