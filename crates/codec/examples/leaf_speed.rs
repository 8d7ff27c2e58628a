//! Speed and size of the codecs, shape by shape.
//!
//! Prints, for columns of 2,048 rows (one leaf), nanoseconds per value to encode with remembered
//! choices, to encode with a fresh search, and to decode, and bytes per value; the same for the
//! light log codec and for aggregates; the cost of a small read; and size and speed of a bucket
//! block. Medians of several rounds.
//!
//! Run: `cargo run --release -p headwater-codec --example leaf_speed [rounds]`
#![allow(clippy::disallowed_methods, reason = "an example")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an example"
)]

use headwater_codec::Cursor;
use headwater_codec::block::BucketBlock;
use headwater_codec::leaf::{EncodingCache, Leaf, encode_leaf};
use headwater_codec::light::{decode_rows, encode_rows};
use headwater_types::{Aggregate, Column, FieldId, Level, Rows, Values, VarBytes};
use std::hint::black_box;
use std::time::Instant;

const ROWS: usize = 2_048;

/// A fixed sequence of pseudo-random numbers.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 29)
    }
    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 8) % end
    }
    fn normal(&mut self) -> f64 {
        (0..4)
            .map(|_| self.below(1 << 40) as f64 / (1u64 << 40) as f64 - 0.5)
            .sum()
    }
}

/// Median nanoseconds of `work`.
fn time(rounds: usize, mut work: impl FnMut()) -> f64 {
    let mut taken: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    taken[taken.len() / 2]
}

fn shapes() -> Vec<(&'static str, Values)> {
    let mut noise = Noise(1);
    let (mut walk, mut smooth, mut counter) = (2_000i64, 20.0f64, 0i64);
    let words = [
        "the", "pump", "stopped", "after", "pressure", "fell", "below", "limit", "again", "today",
        "north", "valve",
    ];
    let mut text = VarBytes::new();
    let mut states = VarBytes::new();
    for i in 0..ROWS {
        let line: Vec<&str> = (0..10).map(|_| words[noise.below(12) as usize]).collect();
        text.push(format!("{} {i}", line.join(" ")).as_bytes());
        states.push([b"running".as_slice(), b"stopped", b"fault"][(noise.below(30) / 14) as usize]);
    }
    let start = 1_700_000_000_000_000_000i64;
    vec![
        (
            "times 1 Hz",
            Values::I64(
                (0..ROWS as i64)
                    .map(|i| start + i * 1_000_000_000)
                    .collect(),
            ),
        ),
        (
            "times 1 Hz, ms jitter",
            Values::I64(
                (0..ROWS as i64)
                    .map(|i| start + i * 1_000_000_000 + noise.below(40) as i64 * 1_000_000)
                    .collect(),
            ),
        ),
        (
            "times 1 Hz, ns jitter",
            Values::I64(
                (0..ROWS as i64)
                    .map(|i| start + i * 1_000_000_000 + noise.below(40_000_000) as i64)
                    .collect(),
            ),
        ),
        (
            "decimals .2 walk",
            Values::F64(
                (0..ROWS)
                    .map(|_| {
                        walk += (noise.normal() * 20.0) as i64;
                        walk as f64 / 100.0
                    })
                    .collect(),
            ),
        ),
        (
            "decimals .1 noise",
            Values::F64(
                (0..ROWS)
                    .map(|_| (noise.normal() * 100.0).round() / 10.0)
                    .collect(),
            ),
        ),
        (
            "noise, full precision",
            Values::F64((0..ROWS).map(|_| noise.normal()).collect()),
        ),
        (
            "smooth, full precision",
            Values::F64(
                (0..ROWS)
                    .map(|_| {
                        smooth += noise.normal() * 0.01;
                        smooth
                    })
                    .collect(),
            ),
        ),
        (
            "floats of f32",
            Values::F64(
                (0..ROWS)
                    .map(|_| f64::from(noise.normal() as f32))
                    .collect(),
            ),
        ),
        (
            "counter",
            Values::I64(
                (0..ROWS)
                    .map(|_| {
                        counter += noise.below(50) as i64;
                        counter
                    })
                    .collect(),
            ),
        ),
        (
            "integers, skewed",
            Values::I64(
                (0..ROWS)
                    .map(|_| (noise.normal().abs() * 20.0).exp2() as i64)
                    .collect(),
            ),
        ),
        (
            "bool",
            Values::Bool((0..ROWS).map(|_| noise.below(5) == 0).collect()),
        ),
        ("constant", Values::F64(vec![21.5; ROWS])),
        ("10-word strings", Values::String(text)),
        ("3 states", Values::String(states)),
    ]
}

fn main() {
    let rounds: usize = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(301);
    let per = |ns: f64| ns / ROWS as f64;
    println!("ns per value (median of {rounds} rounds), {ROWS} rows; bytes per value");
    println!(
        "{:<24} {:>8} {:>8} {:>8} {:>7} | {:>8} {:>8} {:>7} | {:>8} | {:>9}",
        "shape",
        "encode",
        "search",
        "decode",
        "bytes",
        "light en",
        "light de",
        "bytes",
        "aggreg.",
        "25 pts µs"
    );
    for (name, values) in shapes() {
        let column = Column::from_values(values);
        let is_times = name.starts_with("times");
        let rows = match column.values() {
            Values::I64(v) if is_times => Rows {
                times: v.clone(),
                columns: Vec::new(),
            },
            _ => Rows {
                times: vec![0; ROWS],
                columns: vec![(FieldId(1), column.clone())],
            },
        };
        let mut encodings = EncodingCache::default();
        let bytes = encode_leaf(&rows, &mut encodings);
        let encode = time(rounds, || {
            black_box(encode_leaf(black_box(&rows), &mut encodings));
        });
        let search = time(rounds / 4 + 1, || {
            black_box(encode_leaf(black_box(&rows), &mut EncodingCache::default()));
        });
        let size = bytes.len() as f64 / ROWS as f64;
        let leaf = Leaf::open(bytes.into()).unwrap();
        let decode = time(rounds, || {
            black_box(leaf.read(0..ROWS, None).unwrap());
        });
        let small = time(rounds, || {
            black_box(leaf.read(900..925, None).unwrap());
        });
        let mut out = Vec::new();
        let light_encode = time(rounds, || {
            out.clear();
            encode_rows(black_box(&rows), &mut out);
        });
        let light_decode = time(rounds, || {
            black_box(decode_rows(&mut Cursor::new(black_box(&out))).unwrap());
        });
        let aggregate = time(rounds, || {
            for from in (0..ROWS).step_by(128) {
                black_box(Aggregate::of(
                    &rows.times,
                    black_box(&column),
                    from..from + 128,
                ));
            }
        });
        println!(
            "{name:<24} {:>8.2} {:>8.2} {:>8.2} {size:>7.3} | {:>8.2} {:>8.2} {:>7.3} | {:>8.2} | {:>9.2}",
            per(encode),
            per(search),
            per(decode),
            per(light_encode),
            per(light_decode),
            out.len() as f64 / ROWS as f64,
            per(aggregate),
            small / 1000.0,
        );
    }
    one_line(rounds);
    blocks(rounds);
}

/// One row of three fields: the common small write.
fn one_line(rounds: usize) {
    let rows = Rows {
        times: vec![1_700_000_000_123_000_000],
        columns: (0..3)
            .map(|f| {
                (
                    FieldId(f),
                    Column::from_values(Values::F64(vec![21.5 + f64::from(f)])),
                )
            })
            .collect(),
    };
    let mut out = Vec::new();
    let encode = time(rounds, || {
        for _ in 0..100 {
            out.clear();
            encode_rows(black_box(&rows), &mut out);
        }
    });
    let decode = time(rounds, || {
        for _ in 0..100 {
            black_box(decode_rows(&mut Cursor::new(black_box(&out))).unwrap());
        }
    });
    let leaf = encode_leaf(&rows, &mut EncodingCache::default()).len();
    println!(
        "\n1 row x 3 fields: light {} bytes, encode {:.0} ns, decode {:.0} ns; leaf {leaf} bytes",
        out.len(),
        encode / 100.0,
        decode / 100.0
    );
}

/// 64 buckets of 128 rows.
fn blocks(rounds: usize) {
    let mut noise = Noise(3);
    let rows = 64 * 128;
    let mut walk = 2_000i64;
    let times: Vec<i64> = (0..rows as i64).map(|i| i * 1_000_000_000).collect();
    let late: Vec<i64> = times
        .iter()
        .map(|t| t + noise.below(900_000_000) as i64)
        .collect();
    let columns = [
        (
            "decimals .2 walk",
            Values::F64(
                (0..rows)
                    .map(|_| {
                        walk += (noise.normal() * 20.0) as i64;
                        walk as f64 / 100.0
                    })
                    .collect(),
            ),
        ),
        (
            "noise",
            Values::F64((0..rows).map(|_| noise.normal()).collect()),
        ),
        (
            "integers",
            Values::I64((0..rows).map(|_| noise.below(1000) as i64).collect()),
        ),
    ];
    println!(
        "\nblock of 64 buckets x 1 field, 128 rows each: bytes a bucket (per value), encode and decode µs"
    );
    for (name, values) in columns {
        let column = Column::from_values(values);
        for (clock, times) in [("regular", &times), ("ns jitter", &late)] {
            for settled in [false, true] {
                let aggregates: Vec<Aggregate> = (0..64)
                    .map(|b| Aggregate::of(times, &column, b * 128..b * 128 + 128))
                    .map(|a| if settled { a.settled() } else { a })
                    .collect();
                let block = BucketBlock {
                    level: Level::clamped(7),
                    buckets: (0..64).collect(),
                    rows: vec![128; 64],
                    fields: vec![(FieldId(0), column.field_type(), aggregates)],
                };
                let bytes = block.encode();
                let encode = time(rounds, || {
                    black_box(black_box(&block).encode());
                });
                let decode = time(rounds, || {
                    black_box(BucketBlock::decode(black_box(&bytes)).unwrap());
                });
                let each = bytes.len() as f64 / 64.0;
                println!(
                    "{name:<18} {clock:<10} {:<10} {each:>6.1} ({:.3})  {:>6.1} {:>6.1}",
                    if settled { "settled" } else { "as is" },
                    each / 128.0,
                    encode / 1000.0,
                    decode / 1000.0
                );
            }
        }
    }
}
