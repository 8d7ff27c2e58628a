//! Compares every read path of a snapshot with the plain streams.

use super::plain::{
    FIELDS, Fields, ModelStream, Random, inside, random_range, random_value, values_of,
};
use crate::ends::check_ends;
use headwater_engine::{
    AggregateSpec, Bins, Comparison, Filter, RowBlock, ScanSpec, Snapshot, SummarySpec,
};
use headwater_types::{
    Aggregate, ClosedRange, Column, Extremes, FieldType, Level, StreamName, Timestamp, Value,
    ValueRef,
};
use std::collections::BTreeMap;

/// Compares every read path of a snapshot with the model.
pub(crate) fn check(
    snapshot: &Snapshot,
    model: &BTreeMap<StreamName, ModelStream>,
    random: &mut Random,
) {
    let names = snapshot.streams("t", &[]).unwrap();
    for name in model.keys() {
        assert!(names.contains(name), "{name} is missing");
    }
    for (name, stream) in model {
        check_scan(snapshot, name, stream, ClosedRange::ALL);
        if stream.rows.is_empty() {
            assert!(snapshot.last(name).unwrap().is_empty(), "{name}");
            continue;
        }
        let range = random_range(random, stream);
        check_scan(snapshot, name, stream, range);
        check_filter(snapshot, name, stream, range, random);
        check_last(snapshot, name, stream);
        for (field, _) in FIELDS {
            check_aggregates(snapshot, name, stream, field, range, random);
            check_tiles(snapshot, name, stream, field, random);
        }
    }
}

fn rows_of(snapshot: &Snapshot, name: &StreamName, spec: &ScanSpec) -> Vec<(i64, Fields)> {
    let scan = snapshot.scan(name, spec).unwrap();
    let fields: Vec<String> = scan.fields().iter().map(|(n, _)| n.clone()).collect();
    let mut out = Vec::new();
    for chunk in scan {
        let chunk = chunk.unwrap();
        for (row, time) in chunk.times.iter().enumerate() {
            let values = fields
                .iter()
                .zip(&chunk.columns)
                .filter_map(|(f, c)| Some((f.clone(), c.get(row)?.to_owned())));
            out.push((*time, values.collect()));
        }
    }
    let mut visited = Vec::new();
    let each = |rows: RowBlock<'_>| {
        assert!(rows.len() > 0 && rows.width() == fields.len());
        for (row, time) in rows.times().iter().enumerate() {
            let values = fields.iter().enumerate().filter_map(|(place, field)| {
                let value = rows.column(place)?.get(row)?;
                assert_eq!(rows.field_type(place), Some(value.field_type()));
                Some((field.clone(), value.to_owned()))
            });
            visited.push((*time, values.collect()));
        }
    };
    snapshot.visit(name, spec, each).unwrap();
    same_rows(&visited, &out, &format!("visit of {name} {:?}", spec.range));
    out
}

fn same_rows(found: &[(i64, Fields)], expected: &[(i64, Fields)], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: number of rows");
    for (row, ((t, f), (u, g))) in found.iter().zip(expected).enumerate() {
        assert_eq!(t, u, "{what}: time of row {row}");
        assert_eq!(
            f.keys().collect::<Vec<_>>(),
            g.keys().collect::<Vec<_>>(),
            "{what}: fields of row {row} at {t}"
        );
        for (key, value) in f {
            let other = &g[key];
            assert!(
                value.as_ref().same_bits(&other.as_ref()),
                "{what}: row {row} at {t}, {key}: {value:?} is not {other:?}"
            );
        }
    }
}

fn check_scan(snapshot: &Snapshot, name: &StreamName, stream: &ModelStream, range: ClosedRange) {
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    same_rows(
        &rows_of(snapshot, name, &spec),
        &inside(stream, range),
        &format!("scan {name} {range:?}"),
    );
    let spec = ScanSpec {
        range,
        fields: Some(vec!["c".into(), "a".into()]),
        ..ScanSpec::default()
    };
    let expected: Vec<(i64, Fields)> = inside(stream, range)
        .into_iter()
        .map(|(t, f)| {
            (
                t,
                f.into_iter()
                    .filter(|(k, _)| k == "a" || k == "c")
                    .collect(),
            )
        })
        .collect();
    same_rows(
        &rows_of(snapshot, name, &spec),
        &expected,
        &format!("scan of two fields {name} {range:?}"),
    );
}

pub(crate) fn compare(comparison: Comparison, a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let total = matches!(
        comparison,
        Comparison::TotalEqual
            | Comparison::TotalNotEqual
            | Comparison::TotalLess
            | Comparison::TotalLessOrEqual
            | Comparison::TotalGreater
            | Comparison::TotalGreaterOrEqual
    );
    let ordering = match (a, b) {
        (ValueRef::F64(a), ValueRef::F64(b)) if total => Some(match (a.is_nan(), b.is_nan()) {
            (false, false) if a < b => Less,
            (false, false) if a > b => Greater,
            (true, false) => Greater,
            (false, true) => Less,
            _ => Equal,
        }),
        (ValueRef::F64(a), ValueRef::F64(b)) => a.partial_cmp(&b),
        (ValueRef::I64(a), ValueRef::I64(b)) => Some(a.cmp(&b)),
        (ValueRef::U64(a), ValueRef::U64(b)) => Some(a.cmp(&b)),
        (ValueRef::Bool(a), ValueRef::Bool(b)) => Some(a.cmp(&b)),
        (ValueRef::String(a), ValueRef::String(b)) => Some(a.cmp(b)),
        (ValueRef::Bytes(a), ValueRef::Bytes(b)) => Some(a.cmp(b)),
        _ => panic!("types"),
    };
    match comparison {
        Comparison::Equal | Comparison::TotalEqual => ordering == Some(Equal),
        Comparison::NotEqual | Comparison::TotalNotEqual => ordering != Some(Equal),
        Comparison::Less | Comparison::TotalLess => ordering == Some(Less),
        Comparison::LessOrEqual | Comparison::TotalLessOrEqual => {
            matches!(ordering, Some(Less | Equal))
        }
        Comparison::Greater | Comparison::TotalGreater => ordering == Some(Greater),
        Comparison::GreaterOrEqual | Comparison::TotalGreaterOrEqual => {
            matches!(ordering, Some(Greater | Equal))
        }
    }
}

fn check_filter(
    snapshot: &Snapshot,
    name: &StreamName,
    stream: &ModelStream,
    range: ClosedRange,
    random: &mut Random,
) {
    let comparisons = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
        Comparison::TotalEqual,
        Comparison::TotalNotEqual,
        Comparison::TotalLess,
        Comparison::TotalLessOrEqual,
        Comparison::TotalGreater,
        Comparison::TotalGreaterOrEqual,
    ];
    for (field, field_type) in FIELDS {
        let comparison = comparisons[random.below(12) as usize];
        let value = random_value(random, field_type);
        let expected: Vec<(i64, Fields)> = inside(stream, range)
            .into_iter()
            .filter(|(_, f)| {
                f.get(field)
                    .is_some_and(|v| compare(comparison, v.as_ref(), value.as_ref()))
            })
            .collect();
        let filter = Filter {
            field: field.into(),
            comparison,
            value: value.clone(),
        };
        let spec = ScanSpec {
            range,
            filters: vec![filter],
            ..ScanSpec::default()
        };
        same_rows(
            &rows_of(snapshot, name, &spec),
            &expected,
            &format!("{name} {field} {comparison:?} {value:?}"),
        );
    }
}

fn check_last(snapshot: &Snapshot, name: &StreamName, stream: &ModelStream) {
    let found = snapshot.last(name).unwrap();
    for (field, _) in FIELDS {
        let expected = stream
            .rows
            .iter()
            .rev()
            .find_map(|(t, f)| Some((*t, f.get(field)?)));
        let found = found.iter().find(|l| l.field == field);
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some((time, value))) => {
                assert_eq!(found.time.as_nanos(), time, "last {name} {field}");
                assert!(
                    found.value.as_ref().same_bits(&value.as_ref()),
                    "last {name} {field}: {found:?} is not {value:?}"
                );
            }
            other => panic!("last {name} {field}: {other:?}"),
        }
    }
}

/// The aggregate of values as one column: the reference every other way of computing it is compared
/// with.
pub(crate) fn reference(rows: &[(i64, Value)], field_type: FieldType) -> Aggregate {
    let mut column = Column::new(field_type);
    let times: Vec<i64> = rows.iter().map(|(t, _)| *t).collect();
    for (_, value) in rows {
        assert!(column.push(value.as_ref()));
    }
    Aggregate::of(&times, &column, 0..rows.len())
}

pub(crate) fn same_aggregate(a: &Aggregate, b: &Aggregate, what: &str) {
    assert_eq!(
        (
            a.count,
            a.nan,
            a.positive_infinite,
            a.negative_infinite,
            a.sum,
            a.time_sum
        ),
        (
            b.count,
            b.nan,
            b.positive_infinite,
            b.negative_infinite,
            b.sum,
            b.time_sum
        ),
        "{what}"
    );
    let largest = match (a.extremes, b.extremes) {
        (Extremes::F64(l, h), Extremes::F64(m, i)) => {
            assert_eq!(
                (l.to_bits(), h.to_bits()),
                (m.to_bits(), i.to_bits()),
                "{what}: extremes"
            );
            l.abs().max(h.abs())
        }
        (x, y) => {
            assert_eq!(x, y, "{what}: extremes");
            match x {
                Extremes::I64(l, h) => l.unsigned_abs().max(h.unsigned_abs()) as f64,
                Extremes::U64(_, h) => h as f64,
                _ => 0.0,
            }
        }
    };
    let close = |x: Option<f64>, y: Option<f64>, tolerance: f64| match (x, y) {
        (Some(x), Some(y)) => {
            x == y
                || (x - y).abs() <= tolerance
                || (!tolerance.is_finite() && !x.is_nan() && !y.is_nan())
        }
        (x, y) => x.is_none() && y.is_none(),
    };
    assert!(
        close(a.mean(), b.mean(), 1e-12 * largest),
        "{what}: mean {:?} {:?}",
        a.mean(),
        b.mean()
    );
    let spread = (b.mean().unwrap_or(0.0).powi(2) + b.variance().unwrap_or(0.0)).sqrt();
    assert!(
        close(a.stddev(), b.stddev(), 1e-12 * spread),
        "{what}: stddev {:?} {:?}",
        a.stddev(),
        b.stddev()
    );
}

/// A summary has the rows of a scan and the aggregates of the fields, in the same bins.
fn check_summary(
    snapshot: &Snapshot,
    name: &StreamName,
    stream: &ModelStream,
    field: &str,
    spec: &AggregateSpec,
) {
    let AggregateSpec { range, bins, .. } = *spec;
    let asked = SummarySpec {
        range,
        bins,
        fields: vec![field.to_owned(), FIELDS[0].0.to_owned()],
    };
    let what = format!("summary {name} {asked:?}");
    let found = snapshot.summary(name, &asked).unwrap();
    let number = |time: i64| match bins {
        Bins::Whole => 0,
        Bins::Every {
            width_ns,
            origin_ns,
        } => (i128::from(time) - i128::from(origin_ns)).div_euclid(i128::from(width_ns)),
        Bins::Level(level) => i128::from(level.bucket_of(Timestamp::from_nanos(time))),
    };
    let mut rows: BTreeMap<i128, u64> = BTreeMap::new();
    for (time, _) in inside(stream, range) {
        *rows.entry(number(time)).or_default() += 1;
    }
    let counted: BTreeMap<i128, u64> = found.iter().map(|b| (b.number, b.rows)).collect();
    assert_eq!(counted, rows, "{what}");
    // Without fields rows are counted by leaves where that is exact.
    let whole = SummarySpec {
        bins: Bins::Whole,
        fields: Vec::new(),
        ..asked.clone()
    };
    let whole = snapshot.summary(name, &whole).unwrap();
    let all: u64 = rows.values().sum();
    assert_eq!(whole.iter().map(|b| b.rows).sum::<u64>(), all, "{what}");
    assert_eq!(whole.len(), usize::from(all > 0), "{what}");
    for (at, asked) in asked.fields.iter().enumerate() {
        let of_type = FIELDS.iter().find(|(f, _)| f == asked).unwrap().1;
        let mut expected: BTreeMap<i128, Vec<(i64, Value)>> = BTreeMap::new();
        for (time, value) in values_of(stream, asked, range) {
            expected
                .entry(number(time))
                .or_default()
                .push((time, value));
        }
        for bin in &found {
            let rows = expected.remove(&bin.number).unwrap_or_default();
            same_aggregate(&bin.aggregates[at], &reference(&rows, of_type), &what);
        }
        assert!(expected.is_empty(), "{what}");
    }
}

fn check_aggregates(
    snapshot: &Snapshot,
    name: &StreamName,
    stream: &ModelStream,
    field: &str,
    range: ClosedRange,
    random: &mut Random,
) {
    let field_type = FIELDS.iter().find(|(f, _)| *f == field).unwrap().1;
    let widths = [
        1,
        1_000,
        7_000_000_000,
        60_000_000_000,
        3_600_000_000_000,
        i64::MAX,
    ];
    let bins = match random.below(3) {
        0 => Bins::Whole,
        1 => Bins::Every {
            width_ns: widths[random.below(6) as usize],
            origin_ns: random.below(1000) as i64 - 500,
        },
        _ => Bins::Level(Level::clamped(random.below(61) as i32 - 20)),
    };
    for range in [range, ClosedRange::ALL] {
        let spec = AggregateSpec {
            range,
            bins,
            first_last: random.chance(50),
        };
        let found = snapshot.aggregate(name, field, &spec).unwrap();
        let mut expected: BTreeMap<i128, Vec<(i64, Value)>> = BTreeMap::new();
        for (time, value) in values_of(stream, field, range) {
            let bin = match bins {
                Bins::Whole => 0,
                Bins::Every {
                    width_ns,
                    origin_ns,
                } => (i128::from(time) - i128::from(origin_ns)).div_euclid(i128::from(width_ns)),
                Bins::Level(level) => i128::from(level.bucket_of(Timestamp::from_nanos(time))),
            };
            expected.entry(bin).or_default().push((time, value));
        }
        check_summary(snapshot, name, stream, field, &spec);
        check_ends(snapshot, name, field, range).unwrap();
        let what = format!("aggregate {name}.{field} {spec:?}");
        assert_eq!(found.len(), expected.len(), "{what}: bins");
        for (bin, rows) in found.iter().zip(expected.values()) {
            same_aggregate(&bin.aggregate, &reference(rows, field_type), &what);
            if spec.first_last {
                let (first, last) = (rows.first().unwrap(), rows.last().unwrap());
                let (t, v) = bin.first.as_ref().unwrap();
                assert!(
                    t.as_nanos() == first.0 && v.as_ref().same_bits(&first.1.as_ref()),
                    "{what}: first"
                );
                let (t, v) = bin.last.as_ref().unwrap();
                assert!(
                    t.as_nanos() == last.0 && v.as_ref().same_bits(&last.1.as_ref()),
                    "{what}: last"
                );
            }
        }
    }
}

fn check_tiles(
    snapshot: &Snapshot,
    name: &StreamName,
    stream: &ModelStream,
    field: &str,
    random: &mut Random,
) {
    let field_type = FIELDS.iter().find(|(f, _)| *f == field).unwrap().1;
    let level = Level::clamped(random.below(61) as i32 - 20);
    let time = stream.rows[random.below(stream.rows.len() as u64) as usize].0;
    let offset = level.bucket_of(Timestamp::from_nanos(time)).div_euclid(512);
    let found = snapshot.tile(name, field, level, offset).unwrap();
    let buckets = level.tile_buckets(offset).unwrap();
    let span = level.span(*buckets.start(), *buckets.end());
    let mut expected: BTreeMap<i64, Vec<(i64, Value)>> = BTreeMap::new();
    for (time, value) in values_of(stream, field, span) {
        expected
            .entry(level.bucket_of(Timestamp::from_nanos(time)))
            .or_default()
            .push((time, value));
    }
    let what = format!("tile {name}.{field} level {} offset {offset}", level.get());
    assert_eq!(
        found.iter().map(|(b, _)| *b).collect::<Vec<_>>(),
        expected.keys().copied().collect::<Vec<_>>(),
        "{what}: buckets"
    );
    for ((_, aggregate), rows) in found.iter().zip(expected.values()) {
        same_aggregate(aggregate, &reference(rows, field_type), &what);
    }
}
