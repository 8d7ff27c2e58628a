//! Compares what a snapshot shows with the plain rows, over every way of reading.
//!
//! Failure: a difference comes back as text, since after a crash several states are possible and
//! are tried one after the other.

use super::aggregates::{check_aggregates, check_tiles};
use super::plain::{Table, as_type};
use super::view::{Presence, View, VisibleRow, visible_rows};
use crate::model::{Random, compare, random_value};
use crate::support::Fields;
use headwater_engine::{
    AggregateSpec, Bins, Comparison, Filter, RowBlock, ScanSpec, Snapshot, TableInfo,
};
use headwater_types::{ClosedRange, StreamName, Timestamp, Value};
use std::ops::RangeInclusive;

pub(super) type Compared<T = ()> = Result<T, String>;

/// Fails with a text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
pub(super) use ensure;

pub(super) const COMPARISONS: [Comparison; 12] = [
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

/// One stream, as it may be seen.
pub(super) struct Expected<'a> {
    pub(super) name: &'a StreamName,
    pub(super) table: &'a Table,
    pub(super) rows: Vec<VisibleRow>,
    /// From here on nothing is in doubt but expiry.
    pub(super) floor: i64,
}

impl Expected<'_> {
    /// How many values of a field aggregates may count.
    pub(super) fn counts(&self, field: &str) -> RangeInclusive<u64> {
        let of = |presence: Presence| {
            let rows = self.rows.iter().filter_map(|r| r.values.get(field));
            rows.filter(|(_, _, counted)| *counted == presence).count() as u64
        };
        let least = of(Presence::Must);
        least..=least + of(Presence::May)
    }
}

/// Definitions and rows: what tells the states apart that a crash can leave.
pub(super) fn quick(snapshot: &Snapshot, infos: &[TableInfo], view: &View) -> Compared {
    for (name, table) in &view.plain.tables {
        let Some(info) = infos.iter().find(|i| i.name == *name) else {
            return Err(format!("no table {name}"));
        };
        let lives = (
            info.retention.map(super::plain::nanos),
            info.raw_for.map(super::plain::nanos),
        );
        ensure!(
            info.duplicates == table.duplicates && lives == (table.retention, table.raw_for),
            "table {name} is {info:?}, expected {:?} {:?} {:?}",
            table.duplicates,
            table.retention,
            table.raw_for
        );
        for (field, field_type) in &table.fields {
            let found = info.fields.iter().find(|f| f.name == *field);
            let found = found.map(|f| f.field_type);
            let widened = field == "w" && found.is_some();
            ensure!(
                found == Some(*field_type) || widened,
                "field {name}.{field} is {found:?}, expected {field_type:?}"
            );
        }
    }
    for info in infos {
        let listed = snapshot
            .streams(&info.name, &[])
            .map_err(|e| e.to_string())?;
        let table = view.plain.tables.get(&info.name);
        for stream in listed {
            if table.is_none_or(|t| !t.streams.contains_key(&stream)) {
                let rows = rows_of(snapshot, &stream, &ScanSpec::default())?;
                ensure!(rows.is_empty(), "{stream}: {} rows of nobody", rows.len());
            }
        }
    }
    each_stream(snapshot, view, |expected| {
        check_scan(snapshot, expected, ClosedRange::ALL)?;
        check_counts(snapshot, expected)
    })
}

/// Compares everything that can be asked.
pub(super) fn full(
    snapshot: &Snapshot,
    infos: &[TableInfo],
    view: &View,
    random: &mut Random,
) -> Compared {
    quick(snapshot, infos, view)?;
    each_stream(snapshot, view, |expected| {
        let range = some_range(random, &expected.rows);
        check_scan(snapshot, expected, range)?;
        check_filter(snapshot, expected, range, random)?;
        check_last(snapshot, expected)?;
        check_aggregates(snapshot, expected, range, random)?;
        check_tiles(snapshot, expected, random)
    })
}

/// Looks at every stream that has rows; one that must have some must be there.
pub(super) fn each_stream(
    snapshot: &Snapshot,
    view: &View,
    mut look: impl FnMut(&Expected<'_>) -> Compared,
) -> Compared {
    for (table_name, table) in &view.plain.tables {
        let Ok(listed) = snapshot.streams(table_name, &[]) else {
            return Err(format!("no table {table_name}"));
        };
        let none = Vec::new();
        let straddling = view.straddling.get(table_name).unwrap_or(&none);
        for (name, rows) in &table.streams {
            let rows = visible_rows(table, rows, view.now, straddling);
            let must = |row: &VisibleRow| {
                let mut values = row.values.values();
                values.any(|(_, s, c)| *s.max(c) == Presence::Must)
            };
            if !listed.contains(name) {
                ensure!(!rows.iter().any(must), "stream {name} is missing");
                continue;
            }
            let edges = straddling
                .iter()
                .map(|s| s.last.as_nanos().saturating_add(1));
            let floor = table
                .aged_most
                .max(table.cut)
                .max(edges.max().unwrap_or(i64::MIN));
            look(&Expected {
                name,
                table,
                rows,
                floor,
            })?;
        }
    }
    Ok(())
}

fn some_range(random: &mut Random, rows: &[VisibleRow]) -> ClosedRange {
    if rows.is_empty() {
        return ClosedRange::ALL;
    }
    let mut pick = || rows[random.below(rows.len() as u64) as usize].time;
    let (a, b) = (pick(), pick());
    ClosedRange::nanos(a.min(b).saturating_add(random.below(2) as i64), a.max(b))
}

/// The rows of a scan; what `visit` hands out must be the same.
pub(super) fn rows_of(
    snapshot: &Snapshot,
    name: &StreamName,
    spec: &ScanSpec,
) -> Compared<Vec<(i64, Fields)>> {
    let failed = |e: headwater_engine::Error| format!("{name}: {e}");
    let scan = snapshot.scan(name, spec).map_err(failed)?;
    let fields: Vec<String> = scan.fields().iter().map(|(n, _)| n.clone()).collect();
    let (rows, errors) = crate::support::collect(scan);
    ensure!(errors.is_empty(), "{name}: {errors:?}");
    let mut visited: Vec<(i64, Fields)> = Vec::new();
    let each = |block: RowBlock<'_>| {
        for (row, time) in block.times().iter().enumerate() {
            let values = fields.iter().enumerate().filter_map(|(place, field)| {
                Some((field.clone(), block.column(place)?.get(row)?.to_owned()))
            });
            visited.push((*time, values.collect()));
        }
    };
    snapshot.visit(name, spec, each).map_err(failed)?;
    ensure!(
        visited.len() == rows.len(),
        "{name}: {} rows visited, {} scanned",
        visited.len(),
        rows.len()
    );
    for ((t, f), (u, g)) in visited.iter().zip(&rows) {
        ensure!(
            t == u && same_fields(f, g),
            "{name}: visited {t} {f:?}, scanned {u} {g:?}"
        );
    }
    Ok(rows)
}

pub(super) fn same_fields(a: &Fields, b: &Fields) -> bool {
    let mut pairs = a.iter().zip(b);
    a.len() == b.len() && pairs.all(|((f, v), (g, w))| f == g && v.as_ref().same_bits(&w.as_ref()))
}

/// An integer may have become a float: the definition of a field may outlive a failed write that
/// widened it.
pub(super) fn same_value(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::F64(f), Value::I64(n)) => f.to_bits() == (*n as f64).to_bits(),
        _ => found.as_ref().same_bits(&expected.as_ref()),
    }
}

/// True when the row that was found can be this one.
fn is_row(found: &Fields, row: &VisibleRow, fields: Option<&[&str]>) -> bool {
    let wanted = |field: &str| fields.is_none_or(|f| f.contains(&field));
    let expected = row.values.iter().filter(|(f, _)| wanted(f));
    let mut known = 0;
    for (field, (value, scan, _)) in expected {
        match found.get(field) {
            Some(v) if *scan > Presence::No && same_value(v, value) => known += 1,
            None if *scan < Presence::Must => {}
            _ => return false,
        }
    }
    known == found.len()
}

/// Compares rows in order; rows that may be missing are passed over.
///
/// Of a few fields, rows of one time may look alike: they fit if there is any way to tell them
/// apart, so that one that may be missing never stands for one that must be there.
pub(super) fn same_rows(
    found: &[(i64, Fields)],
    expected: &[(&VisibleRow, Presence)],
    fields: Option<&[&str]>,
    what: &str,
) -> Compared {
    let (mut found_left, mut expected_left) = (found, expected);
    while let Some(time) = next_time(found_left, expected_left) {
        let (rows, rest) = split_at_time(found_left, time, |(t, _)| *t);
        let (wanted, wanted_rest) = split_at_time(expected_left, time, |(row, _)| row.time);
        ensure!(
            fit(rows, wanted, fields),
            "{what}: rows {}.. at {time} are {rows:?}, expected {wanted:?}; {} found, {} expected",
            found.len() - found_left.len(),
            found.len(),
            expected.len()
        );
        (found_left, expected_left) = (rest, wanted_rest);
    }
    Ok(())
}

fn next_time(found: &[(i64, Fields)], expected: &[(&VisibleRow, Presence)]) -> Option<i64> {
    let found = found.first().map(|(time, _)| *time);
    let expected = expected.first().map(|(row, _)| row.time);
    found.into_iter().chain(expected).min()
}

/// What stands in front with this time, and the rest.
fn split_at_time<T>(rows: &[T], time: i64, of: impl Fn(&T) -> i64) -> (&[T], &[T]) {
    let count = rows.iter().take_while(|row| of(row) == time).count();
    rows.split_at(count)
}

/// True when the rows found at one time are rows that are expected there, in their order, and none
/// is missing that must be there.
fn fit(
    found: &[(i64, Fields)],
    expected: &[(&VisibleRow, Presence)],
    fields: Option<&[&str]>,
) -> bool {
    // At each place: whether so many of the rows found can be the expected ones looked at so far.
    let mut possible = vec![false; found.len() + 1];
    possible[0] = true;
    for (row, presence) in expected {
        for count in (0..=found.len()).rev() {
            let passed_over = possible[count] && *presence < Presence::Must;
            let taken =
                count > 0 && possible[count - 1] && is_row(&found[count - 1].1, row, fields);
            possible[count] = passed_over || taken;
        }
    }
    possible[found.len()]
}

fn inside(row: &VisibleRow, range: ClosedRange) -> bool {
    range.contains(Timestamp::from_nanos(row.time))
}

fn check_scan(snapshot: &Snapshot, stream: &Expected<'_>, range: ClosedRange) -> Compared {
    let name = stream.name;
    let spec = ScanSpec {
        range,
        ..ScanSpec::default()
    };
    let rows = stream.rows.iter().filter(|r| inside(r, range));
    let expected: Vec<(&VisibleRow, Presence)> = rows
        .map(|r| (r, r.presence()))
        .filter(|(_, p)| *p > Presence::No)
        .collect();
    let found = rows_of(snapshot, name, &spec)?;
    same_rows(
        &found,
        &expected,
        None,
        &format!("scan of {name} {range:?}"),
    )?;
    let two = ["c", "a"];
    if two.iter().all(|f| stream.table.fields.contains_key(*f)) {
        let fields = Some(two.map(str::to_owned).to_vec());
        let spec = ScanSpec { fields, ..spec };
        let found = rows_of(snapshot, name, &spec)?;
        let what = format!("scan of two fields of {name} {range:?}");
        same_rows(&found, &expected, Some(&two), &what)?;
    }
    Ok(())
}

fn check_filter(
    snapshot: &Snapshot,
    stream: &Expected<'_>,
    range: ClosedRange,
    random: &mut Random,
) -> Compared {
    for field in stream.table.fields.keys() {
        // Conditions are of the field's type; one that was widened may be so by a write that
        // failed.
        let Ok(field_type) = snapshot.field_type(stream.name, field) else {
            continue;
        };
        let typed = |value: &Value| as_type(value, field_type);
        let comparison = random.pick(&COMPARISONS);
        let holders: Vec<Value> = stream
            .rows
            .iter()
            .filter_map(|r| Some(typed(&r.values.get(field)?.0)))
            .collect();
        if holders
            .iter()
            .any(|v| v.as_ref().field_type() != field_type)
        {
            continue;
        }
        // Often a value that is there, so that equality meets something.
        let value = if !holders.is_empty() && random.chance(50) {
            holders[random.below(holders.len() as u64) as usize].clone()
        } else {
            random_value(random, field_type)
        };
        let mut filters = vec![Filter {
            field: field.clone(),
            comparison,
            value,
        }];
        if random.chance(40) {
            filters.extend(another_filter(snapshot, stream, random));
        }
        // Lists of which one must hold, of this field alone or of several.
        let mut any_of: Vec<Vec<Filter>> = Vec::new();
        while random.chance(30) {
            let mut list = Vec::new();
            while random.chance(70) {
                list.extend(match random.chance(50) {
                    true => another_filter(snapshot, stream, random),
                    false => Some(Filter {
                        field: field.clone(),
                        comparison: random.pick(&COMPARISONS),
                        value: match holders.is_empty() {
                            true => random_value(random, field_type),
                            false => holders[random.below(holders.len() as u64) as usize].clone(),
                        },
                    }),
                });
            }
            any_of.push(list);
        }
        let spec = ScanSpec {
            range,
            filters: filters.clone(),
            any_of: any_of.clone(),
            ..ScanSpec::default()
        };
        let passes = |row: &VisibleRow, filter: &Filter| {
            let (found, scan, _) = row.values.get(&filter.field)?;
            let found = as_type(found, filter.value.as_ref().field_type());
            let passes = compare(filter.comparison, found.as_ref(), filter.value.as_ref());
            (passes && *scan > Presence::No).then_some(*scan)
        };
        let passing = stream
            .rows
            .iter()
            .filter(|r| inside(r, range))
            .filter_map(|row| {
                let all: Option<Vec<Presence>> = filters.iter().map(|f| passes(row, f)).collect();
                let one_of = |list: &Vec<Filter>| list.iter().filter_map(|f| passes(row, f)).max();
                let lists: Option<Vec<Presence>> = any_of.iter().map(one_of).collect();
                Some((row, all?.into_iter().chain(lists?).min()?))
            });
        let expected: Vec<(&VisibleRow, Presence)> = passing.collect();
        let found = rows_of(snapshot, stream.name, &spec)?;
        let what = format!("{} {filters:?} {any_of:?}", stream.name);
        same_rows(&found, &expected, None, &what)?;
    }
    Ok(())
}

/// A condition on some field, with a value that is there, if its values are of one type.
fn another_filter(
    snapshot: &Snapshot,
    stream: &Expected<'_>,
    random: &mut Random,
) -> Option<Filter> {
    let fields: Vec<&String> = stream.table.fields.keys().collect();
    let field = *fields.get(random.below(fields.len().max(1) as u64) as usize)?;
    let field_type = snapshot.field_type(stream.name, field).ok()?;
    let rows = stream.rows.iter();
    let values: Vec<Value> = rows
        .filter_map(|row| Some(as_type(&row.values.get(field)?.0, field_type)))
        .collect();
    let value = values.get(random.below(values.len().max(1) as u64) as usize)?;
    let all_typed = values.iter().all(|v| v.as_ref().field_type() == field_type);
    all_typed.then(|| Filter {
        field: field.clone(),
        comparison: random.pick(&COMPARISONS),
        value: value.clone(),
    })
}

fn check_last(snapshot: &Snapshot, stream: &Expected<'_>) -> Compared {
    let name = stream.name;
    let found = snapshot.last(name).map_err(|e| e.to_string())?;
    for field in stream.table.fields.keys() {
        let holders = stream.rows.iter().rev().filter_map(|row| {
            let (value, scan, _) = row.values.get(field)?;
            (*scan > Presence::No).then_some((row.time, value, *scan))
        });
        // The newest one that is certain, and those behind it.
        let mut possible = Vec::new();
        let mut certain = false;
        for holder in holders {
            certain = holder.2 == Presence::Must;
            possible.push(holder);
            if certain {
                break;
            }
        }
        match found.iter().find(|l| l.field == *field) {
            None => ensure!(
                !certain,
                "last {name} {field}: nothing, expected {possible:?}"
            ),
            Some(last) => ensure!(
                possible.iter().any(|(time, value, _)| {
                    last.time.as_nanos() == *time && same_value(&last.value, value)
                }),
                "last {name} {field}: {last:?}, expected one of {possible:?}"
            ),
        }
    }
    Ok(())
}

/// Counts of whole streams: whatever was aged, no value is counted twice or lost.
fn check_counts(snapshot: &Snapshot, stream: &Expected<'_>) -> Compared {
    for field in stream.table.fields.keys() {
        let spec = AggregateSpec {
            range: ClosedRange::ALL,
            bins: Bins::Whole,
            first_last: false,
        };
        let found = match snapshot.aggregate(stream.name, field, &spec) {
            Ok(bins) => bins.iter().map(|b| b.aggregate.count).sum::<u64>(),
            Err(error) => return Err(format!("{}.{field}: {error}", stream.name)),
        };
        let counts = stream.counts(field);
        ensure!(
            counts.contains(&found),
            "{}.{field}: {found} values counted, {counts:?} expected, aged to {}, cut {}",
            stream.name,
            stream.table.aged_to,
            stream.table.cut
        );
    }
    Ok(())
}

#[test]
fn a_row_that_may_be_missing_never_stands_for_one_that_must_be_there() {
    use Presence::{May, Must};
    let row = |values: &[(&str, i64)], presence| VisibleRow {
        time: 7,
        values: values
            .iter()
            .map(|(field, value)| {
                (
                    (*field).to_owned(),
                    (Value::I64(*value), presence, presence),
                )
            })
            .collect(),
    };
    let found = |values: &[(&str, i64)]| {
        let fields = values
            .iter()
            .map(|(field, value)| ((*field).to_owned(), Value::I64(*value)));
        (7, fields.collect::<Fields>())
    };
    let (doubtful, certain) = (row(&[("n", 1)], May), row(&[("n", 2)], Must));
    let expected = [(&doubtful, May), (&certain, Must)];
    let only_a: &[&str] = &["a"];
    let fits = |rows: &[(i64, Fields)], fields| same_rows(rows, &expected, fields, "").is_ok();
    // Without `n` the two look alike.
    assert!(fits(&[found(&[])], Some(only_a)));
    assert!(fits(&[found(&[]), found(&[])], Some(only_a)));
    assert!(!fits(&[], Some(only_a)));
    assert!(!fits(&[found(&[]), found(&[]), found(&[])], Some(only_a)));
    // With it they do not, and their order counts.
    assert!(fits(&[found(&[("n", 2)])], None));
    assert!(fits(&[found(&[("n", 1)]), found(&[("n", 2)])], None));
    assert!(!fits(&[found(&[("n", 1)])], None));
    assert!(!fits(&[found(&[("n", 2)]), found(&[("n", 1)])], None));
}
