//! Writes for as long as it lives and says what is safe; kill it whenever you like and start it
//! again.
//!
//! ```sh
//! cargo run --example durable_writer -- DIRECTORY [synced|written|every]
//! ```
//!
//! Two writers share a database. Each keeps several batches on their way, so that they share syncs,
//! and prints `acknowledged WRITER BATCH` when the ticket of a batch says that it is stored as
//! durably as was asked: `synced` survives a power cut, `written` and `every` a killed process. A
//! batch is stored whole or not at all, over all its streams, so a writer that starts again need
//! only ask for its newest batch to know where to go on.
#![allow(clippy::disallowed_methods, reason = "an example")]

use headwater::{Batch, Database, Durability, Options, StreamName, Ticket, Value};
use std::collections::VecDeque;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Writers, each with streams of its own.
pub(crate) const WRITERS: i64 = 2;
/// Batches of a writer that wait for their acknowledgement.
const IN_FLIGHT: usize = 4;
/// Small, so that events move from the log to segments all the time.
const MEMORY_BYTES: usize = 1 << 20;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

pub(crate) fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("expected a directory")?;
    let durability = arguments.next().unwrap_or_else(|| "synced".to_owned());
    write_until_killed(Path::new(&dir), &durability)
}

/// Opens the database, or recovers it, and writes.
pub(crate) fn write_until_killed(dir: &Path, durability: &str) -> Outcome {
    let mut options = Options::new(dir);
    options.memory_budget_bytes = MEMORY_BYTES;
    options.durability = match durability {
        "synced" => Durability::Synced,
        "written" => Durability::Written,
        "every" => Durability::Every(Duration::from_millis(10)),
        other => return Err(format!("expected synced, written or every, found {other}").into()),
    };
    let db = Database::open(options)?;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let db = &db;
                    move || write(db, writer)
                })
            })
            .collect();
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })
}

/// Writes one batch after the other, from behind the newest that is stored.
fn write(db: &Database, writer: i64) -> Outcome {
    let mut waiting: VecDeque<(i64, Ticket)> = VecDeque::new();
    for number in newest_batch(db, writer)? + 1.. {
        waiting.push_back((number, db.write(batch(writer, number)?)?));
        if waiting.len() > IN_FLIGHT
            && let Some((number, ticket)) = waiting.pop_front()
        {
            ticket.wait()?;
            let mut out = std::io::stdout().lock();
            writeln!(out, "acknowledged {writer} {number}")?;
            out.flush()?;
        }
    }
    Ok(())
}

/// The newest batch of a writer that is stored, or −1.
fn newest_batch(db: &Database, writer: i64) -> Result<i64, Box<dyn Error + Send + Sync>> {
    let snapshot = db.snapshot()?;
    let [in_order, ..] = streams(writer);
    let values = match snapshot.last(&in_order) {
        Ok(values) => values,
        Err(error) if error.kind() == headwater::ErrorKind::NotFound => return Ok(-1),
        Err(error) => return Err(error.into()),
    };
    let newest = values.into_iter().find(|last| last.field == "batch");
    match newest.map(|last| last.value) {
        Some(Value::I64(number)) => Ok(number),
        _ => Err("the newest row has no batch number".into()),
    }
}

/// The streams of a writer: one whose times rise, one whose times jump about, one of another table.
pub(crate) fn streams(writer: i64) -> [StreamName; 3] {
    let writer = writer.to_string();
    [
        StreamName::new("meter", [("writer", writer.as_str()), ("kind", "steady")]),
        StreamName::new("meter", [("writer", writer.as_str()), ("kind", "late")]),
        StreamName::new("journal", [("writer", writer.as_str())]),
    ]
}

/// Times and values of a batch in one of its streams: from one row to a hundred.
pub(crate) fn rows(number: i64, stream: usize) -> Vec<(i64, f64)> {
    const SPREAD: i64 = 1_000_003;
    let count = 1 + (number * 7 + stream as i64) % 100;
    // A prime apart from the count of batches, so that no two batches share a time.
    let place = if stream == 1 {
        number * 7_919 % SPREAD
    } else {
        number
    };
    (0..count)
        .map(|row| (place * 1_000_000 + row, number as f64 + row as f64 / 128.0))
        .collect()
}

/// A batch: rows for each stream, each with the number of the batch.
fn batch(writer: i64, number: i64) -> Result<Batch, Box<dyn Error + Send + Sync>> {
    let mut batch = Batch::new();
    for (index, name) in streams(writer).iter().enumerate() {
        let stream = batch.stream(name);
        for (time, value) in rows(number, index) {
            stream.row(time, [("batch", number.into()), ("value", value.into())])?;
        }
    }
    Ok(batch)
}
