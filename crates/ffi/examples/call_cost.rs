//! What the C interface costs over the engine: the same work by calls of the engine and by calls of
//! the interface, in turns.
//!
//! ```sh
//! cargo run --release -p headwater-ffi --example call_cost
//! ```
//!
//! Each line is the median of rounds of many calls, in nanoseconds of this thread's processor time
//! a call (from `/proc/thread-self/schedstat`, so that a busy machine matters less), with the least
//! and the largest round. What is over the first is the median of the differences within rounds.
#![allow(clippy::disallowed_methods, reason = "an example")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement, for people"
)]

use headwater::{
    Batch, ClosedRange, Database, Durability, Options, RowBlock, ScanSpec, StreamName, Values,
};
use headwater_ffi::*;
use std::hint::black_box;
use std::ptr::{null, null_mut};

const ROUNDS: usize = 21;

/// Processor time of this thread so far, ns.
fn cpu_ns() -> f64 {
    // What the thread has used is brought up to date when it gives way.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Nanoseconds a call, of each round.
struct Timed {
    name: String,
    rounds: Vec<f64>,
}

impl Timed {
    fn print(&self) {
        let least = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rounds.iter().copied().fold(0.0, f64::max);
        println!(
            "{:<44} {:>10.1} ns   ({least:.1} to {most:.1})",
            self.name,
            median(&self.rounds)
        );
    }
}

type Work<'a> = (&'a str, Box<dyn FnMut() + 'a>);

/// Runs several ways of doing one thing in turns.
fn compare(calls: usize, ways: Vec<Work<'_>>) {
    let mut ways: Vec<(Timed, Box<dyn FnMut() + '_>)> = ways
        .into_iter()
        .map(|(name, work)| {
            let rounds = Vec::new();
            let name = name.to_owned();
            (Timed { name, rounds }, work)
        })
        .collect();
    for round in 0..=ROUNDS {
        for (timed, work) in &mut ways {
            let start = cpu_ns();
            for _ in 0..calls {
                work();
            }
            let each = (cpu_ns() - start) / calls as f64;
            // The first round is to get warm.
            if round > 0 {
                timed.rounds.push(each);
            }
        }
    }
    let Some((first, others)) = ways.split_first() else {
        return;
    };
    first.0.print();
    for (timed, _) in others {
        timed.print();
        let over: Vec<f64> = std::iter::zip(&timed.rounds, &first.0.rounds)
            .map(|(mine, first)| mine - first)
            .collect();
        println!("{:<44} {:>10.1} ns", "    over the first", median(&over));
    }
    println!();
}

fn s(text: &str) -> hw_str {
    hw_str {
        data: text.as_ptr().cast(),
        length: text.len(),
    }
}

fn ok(code: i32) {
    assert_eq!(code, HW_OK);
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let rust_dir = dir.path().join("rust");
    let c_dir = dir.path().join("c");
    let times: Vec<i64> = (0..10_000).map(|i| i * 1_000_000_000).collect();
    let values: Vec<f64> = (0..10_000).map(|i| f64::from(i) / 8.0).collect();

    let mut settings = Options::new(&rust_dir);
    settings.durability = Durability::Written;
    let db = Database::open(settings).unwrap();
    let name = StreamName::new("t", [("d", "1")]);
    let rows = |times: &[i64], values: &[f64]| {
        let mut rows = headwater::StreamRows::new(name.clone());
        rows.times = times.to_vec();
        rows.with_column("v", Values::F64(values.to_vec()))
    };
    let mut batch = Batch::new();
    batch.push(rows(&times, &values));
    db.commit(batch).unwrap();
    let handle = db.snapshot().unwrap().handle(&name).unwrap();

    let (mut c_db, mut stream, mut query, mut fill) = (0, 0, 0, 0);
    // SAFETY: texts, lists and places are valid.
    unsafe {
        let mut options = std::mem::zeroed::<hw_options>();
        ok(hw_options_init(
            &raw mut options,
            size_of::<hw_options>(),
            null_mut(),
        ));
        options.durability = HW_WRITTEN;
        let path = c_dir.to_str().unwrap();
        ok(hw_open(
            s(path),
            &raw const options,
            &raw mut c_db,
            null_mut(),
        ));
        ok(hw_stream_parse(
            c_db,
            s("t,d=1"),
            &raw mut stream,
            null_mut(),
        ));
        ok(hw_batch_new(&raw mut fill, null_mut()));
        ok(hw_batch_rows(
            fill,
            stream,
            times.as_ptr(),
            times.len(),
            null_mut(),
        ));
        ok(hw_batch_f64(
            fill,
            s("v"),
            values.as_ptr(),
            null(),
            null_mut(),
        ));
        ok(hw_write(c_db, fill, null_mut(), null_mut()));
        let field = s("v");
        ok(hw_query_stream(
            stream,
            &raw const field,
            1,
            null(),
            0,
            &raw mut query,
            null_mut(),
        ));
    }

    println!("The border alone\n");
    compare(
        1_000_000,
        vec![
            ("hw_nothing", Box::new(|| _ = black_box(hw_nothing()))),
            (
                "hw_is_open (a handle is looked up)",
                // SAFETY: the handle is checked.
                Box::new(|| ok(unsafe { hw_is_open(black_box(c_db), null_mut()) })),
            ),
        ],
    );

    let fields = Some(vec!["v".to_owned()]);
    for (place, count) in [
        ("memory", 25usize),
        ("memory", 1000),
        ("segments", 25),
        ("segments", 1000),
    ] {
        if place == "segments" {
            db.flush().unwrap();
            // SAFETY: the handle is checked.
            ok(unsafe { hw_flush(c_db, null_mut()) });
        }
        println!("{count} rows of one field from {place}\n");
        let (first, last) = (times[4000], times[4000 + count - 1]);
        let (mut out_times, mut out_values) = (vec![0i64; count], vec![0f64; count]);
        let (mut rust_times, mut rust_values) = (out_times.clone(), out_values.clone());
        let mut found = 0usize;
        compare(
            20_000,
            vec![
                (
                    "Rust: snapshot, scan by handle",
                    Box::new(|| {
                        let snapshot = db.snapshot().unwrap();
                        let spec = ScanSpec {
                            range: ClosedRange::nanos(first, last),
                            fields: fields.clone(),
                            ..ScanSpec::default()
                        };
                        let mut rows = 0;
                        for chunk in handle.scan(&snapshot, &spec).unwrap() {
                            rows += black_box(chunk.unwrap()).times.len();
                        }
                        assert_eq!(rows, count);
                    }),
                ),
                (
                    "Rust: snapshot, visit, into the caller's arrays",
                    Box::new(|| {
                        let snapshot = db.snapshot().unwrap();
                        let spec = ScanSpec {
                            range: ClosedRange::nanos(first, last),
                            fields: fields.clone(),
                            ..ScanSpec::default()
                        };
                        let mut at = 0;
                        let copy = |rows: RowBlock<'_>| {
                            let to = at + rows.len();
                            rust_times[at..to].copy_from_slice(rows.times());
                            let column = rows.column(0).unwrap();
                            rust_values[at..to].copy_from_slice(column.f64s().unwrap());
                            at = to;
                        };
                        handle.visit(&snapshot, &spec, copy).unwrap();
                        assert_eq!(at, count);
                    }),
                ),
                (
                    "hw_read, hw_release",
                    // SAFETY: the place is valid.
                    Box::new(|| unsafe {
                        let mut rows = std::mem::zeroed::<hw_rows>();
                        ok(hw_read(query, 0, first, last, &raw mut rows, null_mut()));
                        assert_eq!(rows.row_count, count);
                        ok(hw_release(rows.handle, null_mut()));
                    }),
                ),
                (
                    "hw_read_f64 (copies to the caller's arrays)",
                    // SAFETY: the arrays have room for that many.
                    Box::new(|| unsafe {
                        ok(hw_read_f64(
                            query,
                            0,
                            first,
                            last,
                            out_times.as_mut_ptr(),
                            out_values.as_mut_ptr(),
                            count,
                            &raw mut found,
                            null_mut(),
                        ));
                        assert_eq!(found, count);
                    }),
                ),
            ],
        );
    }

    println!("A batch of 10 rows of one field, not synced\n");
    let start = 20_000_000_000_000i64;
    let (mut next_rust, mut next_c) = (start, start);
    let ten = |next: &mut i64| -> Vec<i64> {
        *next += 10;
        (0..10).map(|i| *next + i).collect()
    };
    compare(
        5_000,
        vec![
            (
                "Rust: batch, commit",
                Box::new(|| {
                    let mut batch = Batch::new();
                    batch.push(rows(&ten(&mut next_rust), &values[..10]));
                    assert_eq!(db.commit(batch).unwrap().accepted, 10);
                }),
            ),
            (
                "hw_batch_rows, hw_batch_f64, hw_write",
                // SAFETY: the lists are as long as said.
                Box::new(|| unsafe {
                    let times = ten(&mut next_c);
                    let mut written = std::mem::zeroed::<hw_written>();
                    ok(hw_batch_rows(fill, stream, times.as_ptr(), 10, null_mut()));
                    ok(hw_batch_f64(
                        fill,
                        s("v"),
                        values.as_ptr(),
                        null(),
                        null_mut(),
                    ));
                    ok(hw_write(c_db, fill, &raw mut written, null_mut()));
                    assert_eq!(written.accepted, 10);
                }),
            ),
        ],
    );
    // SAFETY: the handle is checked.
    ok(unsafe { hw_close(c_db, null_mut()) });
    db.close().unwrap();
}
