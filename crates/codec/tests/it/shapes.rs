//! Rows of many shapes, and equality bit for bit.

use headwater_types::{Column, FieldId, FieldType, Rows, Value, Values, VarBytes};
use proptest::prelude::*;

/// A small generator with a known sequence, so that golden bytes do not hang on a library.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From 0 below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Panics unless the rows are the same, floats bit for bit. Columns without a value may be missing
/// on one side.
pub(crate) fn assert_same(found: &Rows, expected: &Rows) {
    assert_eq!(found.times, expected.times, "times");
    let filled = |rows: &Rows| -> Vec<FieldId> {
        rows.columns
            .iter()
            .filter(|(_, c)| c.present_count() > 0)
            .map(|(f, _)| *f)
            .collect()
    };
    assert_eq!(filled(found), filled(expected), "fields");
    for field in filled(found) {
        let (a, b) = (
            found.column(field).unwrap(),
            expected.column(field).unwrap(),
        );
        assert_eq!(a.field_type(), b.field_type());
        assert_eq!(a.len(), b.len(), "rows of {field:?}");
        for row in 0..a.len() {
            let same = match (a.get(row), b.get(row)) {
                (None, None) => true,
                (Some(a), Some(b)) => a.same_bits(&b),
                _ => false,
            };
            assert!(
                same,
                "{field:?} row {row}: {:?} is not {:?}",
                a.get(row),
                b.get(row)
            );
        }
        if let (Values::F64(a), Values::F64(b)) = (a.values(), b.values()) {
            let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(a), bits(b), "slots of {field:?}");
        } else {
            assert_eq!(a.values(), b.values(), "slots of {field:?}");
        }
    }
}

fn text(values: impl Iterator<Item = String>) -> VarBytes {
    let mut out = VarBytes::new();
    for v in values {
        out.push(v.as_bytes());
    }
    out
}

/// A column of `rows` rows for each codec and more, named by what it holds. The order is fixed.
pub(crate) fn named_columns(rows: usize, seed: u64) -> Vec<(&'static str, Column)> {
    let mut noise = Noise(seed);
    let n = rows;
    let f64s = |f: &mut dyn FnMut(usize) -> f64| Values::F64((0..n).map(f).collect());
    let i64s = |f: &mut dyn FnMut(usize) -> i64| Values::I64((0..n).map(f).collect());
    let mut walk = 2_000i64;
    let mut counter = 0u64;
    let words = [
        "pump", "valve", "open", "shut", "warm", "cold", "fault", "ok", "north", "south",
    ];
    let mut columns = vec![
        ("f64 constant decimal", f64s(&mut |_| 20.25)),
        ("f64 constant", f64s(&mut |_| std::f64::consts::PI)),
        (
            "f64 decimals walk",
            f64s(&mut |_| {
                walk += noise.below(41) as i64 - 20;
                walk as f64 / 100.0
            }),
        ),
        ("f64 noise", f64s(&mut |_| noise.unit())),
        (
            "f64 from f32",
            f64s(&mut |_| f64::from(noise.unit() as f32)),
        ),
        ("f64 bits", f64s(&mut |_| f64::from_bits(noise.next()))),
        (
            "f64 decimals and odd ones",
            f64s(&mut |i| match i % 40 {
                7 => f64::from_bits(0x7ff8_0000_dead_beef),
                20 => -0.0,
                33 => f64::NEG_INFINITY,
                _ => noise.below(1000) as f64 / 8.0,
            }),
        ),
        (
            "f64 decimals skewed",
            f64s(&mut |_| (1u64 << noise.below(30)) as f64 / 10.0),
        ),
        ("f64 steps", f64s(&mut |i| i as f64 / 2.0)),
        ("i64 constant", i64s(&mut |_| -42)),
        ("i64 regular", i64s(&mut |i| 1_000_000 - 7 * i as i64)),
        ("i64 skewed", i64s(&mut |_| 1 << noise.below(40))),
        ("i64 any", i64s(&mut |_| noise.next() as i64)),
        (
            "i64 ends",
            i64s(&mut |i| if i % 2 == 0 { i64::MIN } else { i64::MAX }),
        ),
        (
            "i64 thousands",
            i64s(&mut |_| noise.below(500) as i64 * 1000),
        ),
        (
            "u64 counter",
            Values::U64(
                (0..n)
                    .map(|_| {
                        counter += noise.below(100);
                        counter
                    })
                    .collect(),
            ),
        ),
        (
            "u64 large",
            Values::U64((0..n).map(|_| u64::MAX - noise.below(9)).collect()),
        ),
        (
            "bool",
            Values::Bool((0..n).map(|_| noise.below(3) == 0).collect()),
        ),
        ("bool constant", Values::Bool(vec![true; n])),
        (
            "string constant",
            Values::String(text((0..n).map(|_| "köln".to_owned()))),
        ),
        (
            "string few",
            Values::String(text(
                (0..n).map(|_| words[noise.below(4) as usize].to_owned()),
            )),
        ),
        (
            "string words",
            Values::String(text((0..n).map(|i| {
                let words: Vec<&str> = (0..10).map(|_| words[noise.below(10) as usize]).collect();
                format!("{} {i}", words.join(" "))
            }))),
        ),
        (
            "string short",
            Values::String(text((0..n).map(|i| format!("{i}")))),
        ),
        (
            "string empty",
            Values::String(text((0..n).map(|_| String::new()))),
        ),
    ];
    let mut bytes = VarBytes::new();
    for _ in 0..n {
        let value: Vec<u8> = (0..noise.below(20)).map(|_| noise.next() as u8).collect();
        bytes.push(&value);
    }
    columns.push(("bytes any", Values::Bytes(bytes)));
    columns
        .into_iter()
        .map(|(name, values)| (name, Column::from_values(values)))
        .collect()
}

/// The same column with some rows absent.
pub(crate) fn with_gaps(column: &Column, present: impl Fn(usize) -> bool) -> Column {
    let mut out = Column::new(column.field_type());
    for row in 0..column.len() {
        if present(row) {
            out.extend_from(column, row..row + 1);
        } else {
            out.push_absent(1);
        }
    }
    out
}

/// Every named column, full and with gaps of several kinds; times by `time`.
pub(crate) fn rows_of(rows: usize, seed: u64, time: impl FnMut(usize) -> i64) -> Rows {
    let mut out = Rows {
        times: (0..rows).map(time).collect(),
        columns: Vec::new(),
    };
    let mut field = 0;
    for (at, (_, column)) in named_columns(rows, seed).into_iter().enumerate() {
        let gaps = match at % 3 {
            0 => with_gaps(&column, |row| row % 3 != 1),
            1 => with_gaps(&column, |row| !(300..900).contains(&row)),
            _ => with_gaps(&column, |row| row * 7 % 97 == 5),
        };
        for column in [column, gaps] {
            out.columns.push((FieldId(field), column));
            field += 1 + (field % 5);
        }
    }
    out
}

/// Any value of a type, special ones often.
fn value(field_type: FieldType) -> BoxedStrategy<Value> {
    match field_type {
        FieldType::F64 => prop_oneof![
            any::<f64>().prop_map(Value::F64),
            any::<u64>().prop_map(|b| Value::F64(f64::from_bits(b))),
            (-10_000i64..10_000, 0i32..6).prop_map(|(i, k)| Value::F64(i as f64 / 10f64.powi(k))),
            Just(Value::F64(-0.0)),
            Just(Value::F64(f64::from_bits(0x7ff8_0000_0000_0001))),
        ]
        .boxed(),
        FieldType::I64 => prop_oneof![any::<i64>(), -100i64..100, Just(i64::MIN), Just(i64::MAX)]
            .prop_map(Value::I64)
            .boxed(),
        FieldType::U64 => prop_oneof![any::<u64>(), 0u64..100]
            .prop_map(Value::U64)
            .boxed(),
        FieldType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        FieldType::String => prop_oneof![".{0,12}", "[a-c]{0,2}"]
            .prop_map(Value::String)
            .boxed(),
        FieldType::Bytes => prop::collection::vec(any::<u8>(), 0..10)
            .prop_map(Value::Bytes)
            .boxed(),
    }
}

fn column(rows: usize) -> impl Strategy<Value = Column> {
    (0..6usize, 0..4u8).prop_flat_map(move |(kind, gaps)| {
        let field_type = FieldType::ALL[kind];
        // One value again and again, or any; absent never, seldom, often.
        let cell = (value(field_type), 0..10u8);
        (
            prop::collection::vec(cell, rows),
            value(field_type),
            any::<bool>(),
        )
            .prop_map(move |(cells, usual, steady)| {
                let mut column = Column::new(field_type);
                for (value, dice) in cells {
                    let absent = match gaps {
                        0 => false,
                        1 => dice == 0,
                        2 => dice < 6,
                        _ => true,
                    };
                    if absent {
                        column.push_absent(1);
                    } else if steady && dice < 8 {
                        column.push(usual.as_ref());
                    } else {
                        column.push(value.as_ref());
                    }
                }
                column
            })
    })
}

/// Any rows: any types, gaps, times in any order.
pub(crate) fn any_rows(most: usize) -> impl Strategy<Value = Rows> {
    (0..most, 0..5usize).prop_flat_map(|(rows, columns)| {
        let times = prop_oneof![
            prop::collection::vec(any::<i64>(), rows),
            (
                any::<i64>(),
                0i64..2_000_000_000,
                prop::collection::vec(0i64..1000, rows)
            )
                .prop_map(|(start, step, jitter)| jitter
                    .iter()
                    .enumerate()
                    .map(|(i, j)| start
                        .wrapping_add(step.wrapping_mul(i as i64))
                        .wrapping_add(*j))
                    .collect()),
        ];
        (
            times,
            prop::collection::vec((column(rows), 1u32..50), columns),
        )
            .prop_map(|(times, columns)| {
                let mut field = 0;
                Rows {
                    times,
                    columns: columns
                        .into_iter()
                        .map(|(column, step)| {
                            field += step;
                            (FieldId(field), column)
                        })
                        .collect(),
                }
            })
    })
}
