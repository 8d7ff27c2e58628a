//! Writes a column of points and reads it back, and prints the seconds of each: the Rust side of
//! `bindings/python/bench`.
//!
//! ```sh
//! cargo run --release --example columns -- DIRECTORY POINTS
//! ```
//!
//! One stream, one field: a slow wave with three decimals, a point a millisecond. Both arrays are
//! in memory before the clock starts, and what was read is compared with them after it stops.
//! Reading is timed twice: looking at each chunk as it comes, and gathering the chunks into two
//! vectors.
#![allow(clippy::disallowed_methods, reason = "an example")]

use headwater::{
    Batch, ClosedRange, Database, Durability, Options, StreamName, StreamRows, Values,
};
use std::collections::VecDeque;
use std::error::Error;
use std::time::Instant;

const BATCH_ROWS: usize = 65_536;
const IN_FLIGHT: usize = 4;
const START: i64 = 1_767_225_600_000_000_000;

type Columns = (Vec<i64>, Vec<f64>);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("expected a directory")?;
    let points: usize = arguments
        .next()
        .ok_or("expected a number of points")?
        .parse()?;
    let (times, values): Columns = (0..points)
        .map(|i| {
            let wave = 20.0 + 10.0 * (i as f64 / 5000.0).sin();
            (
                START + i as i64 * 1_000_000,
                (wave * 1000.0).round() / 1000.0,
            )
        })
        .unzip();
    let mut options = Options::new(dir);
    options.durability = Durability::Written;
    let db = Database::open(options)?;
    let stream = StreamName::new("bench", [("d", "1")]);

    let begun = Instant::now();
    write(&db, &stream, &times, &values)?;
    println!("write {}", begun.elapsed().as_secs_f64());
    db.flush()?;

    let begun = Instant::now();
    let seen = look(&db, &stream)?;
    println!("look {}", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let gathered = gather(&db, &stream)?;
    println!("read {}", begun.elapsed().as_secs_f64());
    if gathered != (times, values) || seen != points {
        return Err("what was read is not what was written".into());
    }
    Ok(())
}

fn write(
    db: &Database,
    stream: &StreamName,
    times: &[i64],
    values: &[f64],
) -> Result<(), Box<dyn Error>> {
    let mut in_flight = VecDeque::new();
    for (times, values) in times.chunks(BATCH_ROWS).zip(values.chunks(BATCH_ROWS)) {
        let mut rows =
            StreamRows::new(stream.clone()).with_column("v", Values::F64(values.to_vec()));
        rows.times = times.to_vec();
        let mut batch = Batch::new();
        batch.push(rows);
        in_flight.push_back(db.write(batch)?);
        if in_flight.len() >= IN_FLIGHT
            && let Some(ticket) = in_flight.pop_front()
        {
            ticket.wait()?;
        }
    }
    for ticket in in_flight {
        ticket.wait()?;
    }
    Ok(())
}

fn scan(db: &Database, stream: &StreamName) -> Result<headwater::Scan, Box<dyn Error>> {
    let spec = headwater::ScanSpec {
        range: ClosedRange::ALL,
        ..Default::default()
    };
    Ok(db.snapshot()?.scan(stream, &spec)?)
}

fn look(db: &Database, stream: &StreamName) -> Result<usize, Box<dyn Error>> {
    let mut rows = 0;
    for chunk in scan(db, stream)? {
        rows += std::hint::black_box(chunk?).times.len();
    }
    Ok(rows)
}

fn gather(db: &Database, stream: &StreamName) -> Result<Columns, Box<dyn Error>> {
    let (mut times, mut values) = Columns::default();
    for chunk in scan(db, stream)? {
        let chunk = chunk?;
        times.extend_from_slice(&chunk.times);
        if let Some(Values::F64(v)) = chunk.columns.first().map(headwater::Column::values) {
            values.extend_from_slice(v);
        }
    }
    Ok((times, values))
}
