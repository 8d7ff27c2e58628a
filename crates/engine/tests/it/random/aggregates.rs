//! Aggregates, summaries and tiles against the plain rows.

use super::compare::{Compared, Expected, ensure, same_value};
use super::view::Presence;
use crate::ends::check_ends;
use crate::model::{Random, reference, same_aggregate};
use headwater_engine::{AggregateSpec, Bins, Snapshot, SummarySpec};
use headwater_types::{Aggregate, ClosedRange, FieldType, Level, Timestamp, Value};
use std::collections::BTreeMap;

/// Values by bin.
type ByBin = BTreeMap<i128, Vec<(i64, Value)>>;

fn bin_of(bins: Bins, time: i64) -> i128 {
    match bins {
        Bins::Whole => 0,
        Bins::Every {
            width_ns,
            origin_ns,
        } => (i128::from(time) - i128::from(origin_ns)).div_euclid(i128::from(width_ns)),
        Bins::Level(level) => i128::from(level.bucket_of(Timestamp::from_nanos(time))),
    }
}

impl Expected<'_> {
    /// The values of a field that aggregates count; `None` when some of them are in doubt.
    fn counted(&self, field: &str, range: ClosedRange) -> Option<Vec<(i64, Value)>> {
        let mut out = Vec::new();
        let inside = |t: i64| range.contains(Timestamp::from_nanos(t));
        for row in self.rows.iter().filter(|r| inside(r.time)) {
            match row.values.get(field) {
                Some((_, _, Presence::May)) => return None,
                Some((value, _, Presence::Must)) => out.push((row.time, value.clone())),
                _ => {}
            }
        }
        Some(out)
    }

    fn has_rows_before_floor(&self) -> bool {
        self.rows.first().is_some_and(|r| r.time < self.floor)
    }
}

fn by_bin(values: Vec<(i64, Value)>, bins: Bins) -> ByBin {
    let mut out = ByBin::new();
    for (time, value) in values {
        out.entry(bin_of(bins, time))
            .or_default()
            .push((time, value));
    }
    out
}

/// As far as a field that was widened allows: sums of integers became sums of floats somewhere on
/// the way.
fn same(found: &Aggregate, rows: &[(i64, Value)], field: &str, of: FieldType, what: &str) {
    if field == "w" {
        assert_eq!(found.count, rows.len() as u64, "{what}");
    } else {
        same_aggregate(found, &reference(rows, of), what);
    }
}

pub(super) fn check_aggregates(
    snapshot: &Snapshot,
    stream: &Expected<'_>,
    range: ClosedRange,
    random: &mut Random,
) -> Compared {
    let widths = [
        1,
        1_000,
        7_000_000_000,
        60_000_000_000,
        3_600_000_000_000,
        i64::MAX,
    ];
    let name = stream.name;
    for (field, of) in &stream.table.fields {
        let bins = match random.below(3) {
            0 => Bins::Whole,
            1 => Bins::Every {
                width_ns: widths[random.below(6) as usize],
                origin_ns: random.below(1000) as i64 - 500,
            },
            _ => Bins::Level(Level::clamped(random.below(61) as i32 - 20)),
        };
        let exact = ClosedRange::nanos(
            range.first.as_nanos().max(stream.floor),
            range.last.as_nanos(),
        );
        for range in [exact, ClosedRange::ALL] {
            if range.is_empty() {
                continue;
            }
            let spec = AggregateSpec {
                range,
                bins,
                first_last: random.chance(50),
            };
            let Some(values) = stream.counted(field, range) else {
                continue;
            };
            let what = format!("aggregate {name}.{field} {spec:?}");
            let found = match snapshot.aggregate(name, field, &spec) {
                Ok(found) => found,
                Err(error) => return Err(format!("{what}: {error}")),
            };
            if range == ClosedRange::ALL && stream.has_rows_before_floor() {
                // Buckets that have lost their rows fall into one bin each; together they are what
                // they were.
                let mut all = Aggregate::EMPTY;
                found.iter().for_each(|bin| all.merge(&bin.aggregate));
                if values.is_empty() {
                    ensure!(all.count == 0, "{what}: {}", all.count);
                } else {
                    same(&all, &values, field, *of, &what);
                }
                continue;
            }
            check_summary(snapshot, stream, field, &spec)?;
            check_ends(snapshot, name, field, range)?;
            let expected = by_bin(values, bins);
            ensure!(
                found.len() == expected.len(),
                "{what}: {} bins, expected {}",
                found.len(),
                expected.len()
            );
            for (bin, rows) in found.iter().zip(expected.values()) {
                same(&bin.aggregate, rows, field, *of, &what);
                if !spec.first_last {
                    continue;
                }
                for (found, (time, value)) in
                    [(&bin.first, &rows[0]), (&bin.last, &rows[rows.len() - 1])]
                {
                    let is_it = found
                        .as_ref()
                        .is_some_and(|(t, v)| t.as_nanos() == *time && same_value(v, value));
                    ensure!(is_it, "{what}: {found:?}, expected {time} {value:?}");
                }
            }
        }
    }
    Ok(())
}

/// A summary has the rows of a scan and the aggregates of the fields, in the same bins.
fn check_summary(
    snapshot: &Snapshot,
    stream: &Expected<'_>,
    field: &str,
    spec: &AggregateSpec,
) -> Compared {
    let AggregateSpec { range, bins, .. } = *spec;
    let inside = |t: i64| range.contains(Timestamp::from_nanos(t));
    let rows = stream.rows.iter().filter(|r| inside(r.time));
    let mut counts: BTreeMap<i128, u64> = BTreeMap::new();
    for row in rows {
        match row.presence() {
            Presence::May => return Ok(()),
            Presence::Must => *counts.entry(bin_of(bins, row.time)).or_default() += 1,
            Presence::No => {}
        }
    }
    let Some(values) = stream.counted(field, range) else {
        return Ok(());
    };
    let asked = SummarySpec {
        range,
        bins,
        fields: vec![field.to_owned()],
    };
    let what = format!("summary {} {asked:?}", stream.name);
    let found = snapshot
        .summary(stream.name, &asked)
        .map_err(|e| format!("{what}: {e}"))?;
    let counted: BTreeMap<i128, u64> = found.iter().map(|b| (b.number, b.rows)).collect();
    ensure!(
        counted == counts,
        "{what}: rows {counted:?}, expected {counts:?}"
    );
    let mut expected = by_bin(values, bins);
    let of = stream.table.fields[field];
    for bin in &found {
        let rows = expected.remove(&bin.number).unwrap_or_default();
        same(&bin.aggregates[0], &rows, field, of, &what);
    }
    ensure!(expected.is_empty(), "{what}: {expected:?} are missing");
    // Without fields rows are counted by leaves where that is exact.
    let whole = SummarySpec {
        bins: Bins::Whole,
        fields: Vec::new(),
        ..asked
    };
    let whole = snapshot
        .summary(stream.name, &whole)
        .map_err(|e| format!("{what}: {e}"))?;
    let all: u64 = counts.values().sum();
    ensure!(
        whole.iter().map(|b| b.rows).sum::<u64>() == all,
        "{what}: not {all} rows"
    );
    Ok(())
}

pub(super) fn check_tiles(
    snapshot: &Snapshot,
    stream: &Expected<'_>,
    random: &mut Random,
) -> Compared {
    let name = stream.name;
    if stream.rows.is_empty() {
        return Ok(());
    }
    for (field, of) in &stream.table.fields {
        check_wide_tiles(snapshot, stream, field, random)?;
        let level = Level::clamped(random.below(61) as i32 - 20);
        let time = stream.rows[random.below(stream.rows.len() as u64) as usize].time;
        let offset = level.bucket_of(Timestamp::from_nanos(time)).div_euclid(512);
        let what = format!("tile {name}.{field} level {} offset {offset}", level.get());
        let found = snapshot
            .tile(name, field, level, offset)
            .map_err(|e| format!("{what}: {e}"))?;
        let Some(buckets) = level.tile_buckets(offset) else {
            return Err(format!("{what}: no such tile"));
        };
        let span = level.span(*buckets.start(), *buckets.end());
        let holds_aged = stream.has_rows_before_floor() && span.first.as_nanos() < stream.floor;
        let Some(values) = stream.counted(field, span).filter(|_| !holds_aged) else {
            continue;
        };
        let expected = by_bin(values, Bins::Level(level));
        let numbers: Vec<i128> = found.iter().map(|(b, _)| i128::from(*b)).collect();
        ensure!(
            numbers.iter().eq(expected.keys()),
            "{what}: buckets {numbers:?}, expected {:?}",
            expected.keys()
        );
        for ((_, aggregate), rows) in found.iter().zip(expected.values()) {
            same(aggregate, rows, field, *of, &what);
        }
    }
    Ok(())
}

/// Of the widest levels two tiles hold all of time: whatever was aged, no value is in them twice or
/// missing.
fn check_wide_tiles(
    snapshot: &Snapshot,
    stream: &Expected<'_>,
    field: &str,
    random: &mut Random,
) -> Compared {
    let level = Level::clamped(25 + random.below(16) as i32);
    let what = format!("tiles {}.{field} level {}", stream.name, level.get());
    let mut found = 0;
    for offset in [-1, 0] {
        let buckets = snapshot
            .tile(stream.name, field, level, offset)
            .map_err(|e| format!("{what}: {e}"))?;
        found += buckets.iter().map(|(_, a)| a.count).sum::<u64>();
    }
    let counts = stream.counts(field);
    ensure!(
        counts.contains(&found),
        "{what}: {found} values, {counts:?} expected"
    );
    Ok(())
}
