//! Tiles, aggregates and plots of real data equal what the rows of the file give, at any level.
//!
//! Oracle: sums of the source's numbers, compensated; counts, extremes and sums of integers must
//! agree exactly, mean and deviation within what the third law allows.

use super::source::{Source, rfc3339};
use super::{LORAWAN_FTD, Mapping, OBD_2017, WEATHER};
use crate::support::{Bench, text};
use std::collections::{BTreeMap, HashSet};

const TILE_BUCKETS: i128 = 512;

/// The present values of a field of one stream, by time.
type Series = Vec<(i64, f64)>;

/// The number of the bucket of a time, at any level.
fn bucket(level: i32, time_ns: i64) -> i128 {
    let second = 1_000_000_000i128;
    if level >= 0 {
        i128::from(time_ns).div_euclid(second << level)
    } else {
        (i128::from(time_ns) << -level).div_euclid(second)
    }
}

fn series(source: &Source, mapping: &Mapping, device: &str, field: &str) -> Series {
    let (time, tag) = (source.at(mapping.time), source.at(mapping.tags[0]));
    let field = source.at(field);
    let mut out: Series = (0..source.row_count())
        .map(|row| source.cells(row))
        .filter(|cells| cells[tag] == device)
        .filter_map(|cells| Some((mapping.stamp.read(&cells[time]), cells[field].parse().ok()?)))
        .collect();
    out.sort_by_key(|(at, _)| *at);
    out
}

/// What a bucket must say.
#[derive(Debug)]
struct ExpectedBucket {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    stddev: f64,
    time_s: f64,
    sum: f64,
}

/// A sum that loses nothing worth naming (Neumaier's).
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        sum = next;
    }
    sum + lost
}

impl ExpectedBucket {
    fn of(rows: &[(i64, f64)]) -> ExpectedBucket {
        let count = rows.len() as f64;
        let values = || rows.iter().map(|(_, value)| *value);
        let total = sum(values());
        let mean = total / count;
        let variance = sum(values().map(|v| (v - mean) * (v - mean))) / count;
        let nanos: i128 = rows.iter().map(|(at, _)| i128::from(*at)).sum();
        ExpectedBucket {
            count: rows.len() as u64,
            min: values().fold(f64::INFINITY, f64::min),
            max: values().fold(f64::NEG_INFINITY, f64::max),
            mean,
            stddev: variance.sqrt(),
            time_s: nanos as f64 / count / 1e9,
            sum: total,
        }
    }

    fn assert_near(&self, row: &[f64], what: &str) {
        let [count, min, max, mean, stddev, time_s, sum] = row else {
            panic!("{what}: {row:?}");
        };
        assert_eq!(*count as u64, self.count, "{what}: count");
        assert_eq!((*min, *max), (self.min, self.max), "{what}: extremes");
        let largest = self.min.abs().max(self.max.abs());
        let near = |found: f64, wanted: f64, allowed: f64, part: &str| {
            let off = (found - wanted).abs();
            assert!(off <= allowed, "{what}: {part}: {found} is not {wanted}");
        };
        near(*mean, self.mean, 1e-12 * largest, "mean");
        let scale = (self.mean * self.mean + self.stddev * self.stddev).sqrt();
        near(*stddev, self.stddev, 1e-12 * scale, "deviation");
        near(*time_s, self.time_s, 1e-6, "mean time");
        near(*sum, self.sum, 1e-12 * largest * self.count as f64, "sum");
    }
}

/// The rows of a tile as the program prints them: count, min, max, mean, stddev, time, sum.
fn tile(bench: &Bench, address: &str, level: i32, offset: i128) -> Vec<Vec<f64>> {
    let (level_text, offset_text) = (level.to_string(), offset.to_string());
    let fields = "count,min,max,mean,stddev,time,sum";
    let arguments = [address, &level_text, &offset_text, "--fields", fields];
    let ran = bench.run("tile", &arguments).ok();
    assert_eq!(ran.json()["level"], level);
    // Not through the JSON library, whose floats may be off by their last bit.
    let (_, data) = ran.stdout.split_once("\"data\":[").unwrap();
    let (data, _) = data.split_once("],\"level\"").unwrap();
    data.split(['[', ']'])
        .filter(|row| !row.is_empty() && *row != ",")
        .map(|row| row.split(',').map(|cell| cell.parse().unwrap()).collect())
        .collect()
}

/// Compares a tile with the rows of the source. Returns the number of its buckets.
fn tile_agrees(bench: &Bench, address: &str, rows: &Series, level: i32, offset: i128) -> usize {
    let first = offset * TILE_BUCKETS;
    let from = rows.partition_point(|(at, _)| bucket(level, *at) < first);
    let to = rows.partition_point(|(at, _)| bucket(level, *at) < first + TILE_BUCKETS);
    let wanted: Vec<ExpectedBucket> = rows[from..to]
        .chunk_by(|a, b| bucket(level, a.0) == bucket(level, b.0))
        .map(ExpectedBucket::of)
        .collect();
    let found = tile(bench, address, level, offset);
    let what = format!("{address} level {level} offset {offset}");
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (wanted, found) in wanted.iter().zip(&found) {
        wanted.assert_near(found, &what);
    }
    wanted.len()
}

/// Bins of `aggregate --every` as the program prints them, by start, in nanoseconds.
fn bins(bench: &Bench, arguments: &[&str]) -> Vec<(i64, Vec<f64>)> {
    let all = [arguments, &["--format", "csv", "--no-first-last"]].concat();
    let text = bench.run("aggregate", &all).ok().stdout;
    assert!(text.starts_with("start,count,min,max,mean,sum,stddev,"));
    text.lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            // Aggregates have no mean time.
            let values = [1, 2, 3, 4, 6, 4, 5].map(|at: usize| cells[at].parse().unwrap());
            (rfc3339(cells[0]), values.to_vec())
        })
        .collect()
}

fn bins_agree(bench: &Bench, address: &str, rows: &Series, every: &str, width_ns: i64) {
    let found = bins(bench, &[address, "--every", every]);
    let wanted: Vec<&[(i64, f64)]> = rows
        .chunk_by(|a, b| a.0.div_euclid(width_ns) == b.0.div_euclid(width_ns))
        .collect();
    assert_eq!(found.len(), wanted.len(), "{address} every {every}");
    for (rows, (start, mut values)) in wanted.into_iter().zip(found) {
        assert_eq!(start, rows[0].0.div_euclid(width_ns) * width_ns);
        let wanted = ExpectedBucket::of(rows);
        values[5] = wanted.time_s;
        wanted.assert_near(&values, &format!("{address} every {every} at {start}"));
    }
}

fn imported(mapping: &Mapping) -> Option<(Source, Bench)> {
    let source = Source::load(mapping)?;
    let bench = Bench::new();
    mapping.import(&bench, &["--duplicates", "keep"], text(&source.path()), b"");
    Some((source, bench))
}

#[test]
fn tiles_of_the_weather_equal_its_rows_at_every_level() {
    let (source, bench) = imported(&WEATHER).unwrap();
    let address = "t,origin=JFK.temp";
    let rows = series(&source, &WEATHER, "JFK", "temp");
    let middle = rows[rows.len() / 2].0;
    for level in -20..=40 {
        let offset = bucket(level, middle).div_euclid(TILE_BUCKETS);
        assert!(tile_agrees(&bench, address, &rows, level, offset) > 0);
    }
    // A sparse column, and every tile of one level.
    let gusts = series(&source, &WEATHER, "EWR", "wind_gust");
    assert!(gusts.len() < 3_000);
    let offsets: HashSet<i128> = gusts
        .iter()
        .map(|(at, _)| bucket(10, *at).div_euclid(TILE_BUCKETS))
        .collect();
    let buckets: usize = offsets
        .iter()
        .map(|offset| tile_agrees(&bench, "t,origin=EWR.wind_gust", &gusts, 10, *offset))
        .sum();
    assert_eq!(buckets, gusts.len());
}

#[test]
fn aggregates_of_the_weather_equal_its_rows_in_bins_of_any_width() {
    let (source, bench) = imported(&WEATHER).unwrap();
    for (field, address) in [
        ("pressure", "t,origin=LGA.pressure"),
        ("wind_dir", "t,origin=LGA.wind_dir"),
    ] {
        let rows = series(&source, &WEATHER, "LGA", field);
        for (every, width_s) in [
            ("1h", 3_600),
            ("7h", 25_200),
            ("4096s", 4_096),
            ("1d", 86_400),
            ("100d", 8_640_000),
        ] {
            bins_agree(&bench, address, &rows, every, width_s * 1_000_000_000);
        }
        let whole = bins(
            &bench,
            &[address, "--from", "2013-01-01", "--to", "2014-01-01"],
        );
        assert_eq!(whole[0].1[0] as usize, rows.len());
    }
}

#[test]
fn tiles_of_a_drive_equal_its_rows_at_every_level() {
    let Some(source) = Source::load(&OBD_2017) else {
        return;
    };
    // The drive with the most late rows.
    let drive = "2017-07-24_Seat_Leon_RT_KA_Normal";
    let source = source.of_streams(&HashSet::from([drive]));
    let bench = Bench::new();
    OBD_2017.import(
        &bench,
        &["--duplicates", "keep"],
        "-",
        source.text().as_bytes(),
    );
    let field = "Engine RPM [RPM]";
    let address = format!("t,drive={drive}.{field}");
    let rows = series(&source, &OBD_2017, drive, field);
    assert!(rows.len() > 20_000);
    let mut times: Vec<i64> = (0..source.row_count())
        .map(|row| OBD_2017.stamp.read(&source.cells(row)[1]))
        .collect();
    let late = (1..times.len())
        .find(|at| times[*at] < times[at - 1])
        .unwrap();
    let late = times.swap_remove(late);
    for level in -20..=40 {
        let offset = bucket(level, late).div_euclid(TILE_BUCKETS);
        assert!(tile_agrees(&bench, &address, &rows, level, offset) > 0);
    }
    for (every, width_ns) in [
        ("1s", 1_000_000_000),
        ("250ms", 250_000_000),
        ("1m", 60_000_000_000),
    ] {
        bins_agree(&bench, &address, &rows, every, width_ns);
    }
}

/// One of the three LoRaWAN devices was silent for 443 days.
#[test]
fn a_gap_of_443_days_is_empty_at_every_level_and_can_be_drawn() {
    let Some((source, bench)) = imported(&LORAWAN_FTD) else {
        return;
    };
    let device = "0018B20000020CBC";
    let rows = series(&source, &LORAWAN_FTD, device, "hotspot.rssi");
    let (before, after) = rows
        .windows(2)
        .map(|pair| (pair[0].0, pair[1].0))
        .max_by_key(|(before, after)| after - before)
        .unwrap();
    let day_ns = 86_400_000_000_000;
    assert_eq!((after - before) / day_ns, 443);
    let address = format!("t,dev_eui={device}.hotspot.rssi");
    let middle = before + (after - before) / 2;
    for level in -20..=40 {
        let offset = |at| bucket(level, at).div_euclid(TILE_BUCKETS);
        let buckets = tile_agrees(&bench, &address, &rows, level, offset(middle));
        let is_inside = offset(before) < offset(middle) && offset(middle) < offset(after);
        assert!(!is_inside || buckets == 0);
        if level % 3 == 0 {
            assert!(tile_agrees(&bench, &address, &rows, level, offset(before)) > 0);
            assert!(tile_agrees(&bench, &address, &rows, level, offset(after)) > 0);
        }
    }
    bins_agree(&bench, &address, &rows, "7d", 7 * day_ns);
    bins_agree(&bench, &address, &rows, "400d", 400 * day_ns);
    // Bins that are empty take no room: a second is as cheap as a week.
    bins_agree(&bench, &address, &rows, "1s", day_ns / 86_400);

    let plot = bench.run("plot", &[&address, "--width", "90"]).ok().stdout;
    let head = format!("{} values", grouped(rows.len()));
    assert!(plot.contains(&head) && plot.contains("2022-04"), "{plot}");
    let inside = ["--from", "2022-01-01", "--to", "2023-01-01"];
    let plot = bench
        .run("plot", &[&[address.as_str()], &inside[..]].concat())
        .ok();
    assert!(
        plot.stdout.contains("no values in this range"),
        "{}",
        plot.stdout
    );
}

fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Equal times count as often as they are kept.
#[test]
fn aggregates_count_every_row_of_all_devices() {
    let Some((source, bench)) = imported(&LORAWAN_FTD) else {
        return;
    };
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for device in source.column("dev_eui") {
        *counts.entry(device.into_owned()).or_default() += 1;
    }
    for (device, count) in counts {
        let address = format!("t,dev_eui={device}.hotspot.rssi");
        let whole = bench
            .run("aggregate", &[&address, "--format", "json"])
            .ok()
            .json();
        assert_eq!(whole[0]["count"], count);
    }
}
