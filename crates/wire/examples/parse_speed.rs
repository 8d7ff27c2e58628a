//! Prints what parsing costs on generated input:
//! `cargo run --release -p headwater-wire --example parse_speed`.
#![allow(clippy::disallowed_methods, reason = "an example")]
#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use headwater_types::Timestamp;
use headwater_wire::csv::{CsvOptions, CsvParser};
use headwater_wire::lineprotocol::{LineParser, ParserOptions};
use std::fmt::Write;
use std::time::Instant;

fn main() {
    let shapes = [
        ("10 floats, 1 stream", 10, 1, 60_000),
        ("10 floats, 100 streams", 10, 100, 60_000),
        ("3 floats, 1,000 streams", 3, 1_000, 120_000),
        ("1 float, 10,000 streams", 1, 10_000, 200_000),
        ("2 floats, 100,000 streams", 2, 100_000, 300_000),
    ];
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for (name, fields, streams, lines) in shapes.into_iter().filter(|s| s.0.contains(&wanted)) {
        let text = line_protocol(fields, streams, lines);
        let mut parser = LineParser::new(ParserOptions::new(Timestamp::from_nanos(0)));
        let values = (fields * lines) as f64;
        report(
            &format!("line protocol, {name}"),
            text.len(),
            values,
            || {
                let mut rows = 0;
                let mut rest = text.as_bytes();
                while !rest.is_empty() {
                    let piece = rest.get(..1 << 20).unwrap_or(rest);
                    let (parsed, taken) = parser.parse_part(piece, 1, piece.len() == rest.len());
                    rows += parsed.batch.row_count();
                    rest = rest.get(taken..).unwrap_or_default();
                }
                rows
            },
        );
    }
    let text = csv_text(10, 100, 60_000);
    if "csv".contains(&wanted) {
        report("csv, 10 floats, 100 streams", text.len(), 600_000.0, || {
            let mut options = CsvOptions::new("plant", "time:ns");
            options.tags = vec!["device".to_owned()];
            let mut rows = 0;
            if let Ok(mut parser) = CsvParser::new(text.as_bytes(), options) {
                while let Ok(Some(parsed)) = parser.next_batch(8_192) {
                    rows += parsed.batch.row_count();
                }
            }
            rows
        });
    }
}

fn report(name: &str, bytes: usize, values: f64, mut run: impl FnMut() -> usize) {
    let mut best = f64::INFINITY;
    let mut rows = 0;
    for _ in 0..9 {
        let start = Instant::now();
        rows = run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{name}: {rows} rows, {:.1} ns a value, {:.0} MB/s",
        best * 1e9 / values,
        bytes as f64 / best / 1e6
    );
}

/// The same as CSV.
fn csv_text(fields: usize, streams: usize, lines: usize) -> String {
    let mut out = "time,device".to_owned();
    for field in 0..fields {
        let _ = write!(out, ",sensor_{field}");
    }
    let mut state = 1u64;
    for line in 0..lines {
        let time = 1_700_000_000_000_000_000u64 + line as u64 * 100_000_000;
        let _ = write!(out, "\n{time},pump-{:05}", line % streams);
        for _ in 0..fields {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let value = (state >> 40) % 100_000;
            let _ = write!(out, ",{}.{:02}", value / 100, value % 100);
        }
    }
    out
}

/// Sensor-like values with one or two decimals.
fn line_protocol(fields: usize, streams: usize, lines: usize) -> String {
    let mut out = String::new();
    let mut state = 1u64;
    for line in 0..lines {
        let _ = write!(out, "plant,site=north,device=pump-{:05} ", line % streams);
        for field in 0..fields {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let value = (state >> 40) % 100_000;
            let comma = if field > 0 { "," } else { "" };
            let _ = write!(
                out,
                "{comma}sensor_{field}={}.{:02}",
                value / 100,
                value % 100
            );
        }
        let _ = writeln!(
            out,
            " {}",
            1_700_000_000_000_000_000u64 + line as u64 * 100_000_000
        );
    }
    out
}
