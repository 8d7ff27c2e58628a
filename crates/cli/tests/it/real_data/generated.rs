//! Times that no file has: 1970 itself, before it, far ahead, and the ends of the range.

use super::oracle::{Duplicates, Expected};
use super::source::{Source, Stamp};
use super::{Mapping, NAB, check, compare};
use crate::support::Bench;
use std::path::PathBuf;

/// Two columns, times in nanoseconds.
const NANOS: Mapping = Mapping {
    time: "time",
    stamp: Stamp::Nanos,
    tags: &["d"],
    ..NAB
};

const SECOND: i64 = 1_000_000_000;

/// Imports rows, checks, exports, compares.
fn check_round_trip(times: &[i64]) -> Bench {
    let mut text = String::from("time,d,v\n");
    for (index, time) in times.iter().enumerate() {
        text.push_str(&format!("{time},d{},{}.25\n", index % 2, index * 3));
    }
    let source = Source::of_text(PathBuf::from("-"), text);
    let bench = Bench::new();
    NANOS.import(&bench, &[], "-", source.text().as_bytes());
    check(&bench, times.len());
    let expected = Expected::new(&source, &NANOS, Duplicates::Last);
    assert_eq!(compare(&bench, &expected), times.len());
    bench
}

/// The times of a tile's buckets that hold something, and how many values each has.
fn tile(bench: &Bench, level: &str, offset: &str) -> Vec<(f64, u64)> {
    let fields = ["--fields", "time,count"];
    let arguments = [&["t,d=d0.v", level, offset], &fields[..]].concat();
    let json = bench.run("tile", &arguments).ok().json();
    let rows = json["data"].as_array().unwrap();
    rows.iter()
        .map(|row| (row[0].as_f64().unwrap(), row[1].as_u64().unwrap()))
        .collect()
}

#[test]
fn epoch_zero_is_an_instant_like_any_other() {
    let bench = check_round_trip(&[0, 0, 1, 1, -1, -1]);
    // Time 0 begins tile 0; the nanosecond before it ends tile −1.
    assert_eq!(tile(&bench, "0", "0"), [(5e-10, 2)]);
    assert_eq!(tile(&bench, "0", "-1"), [(-1e-9, 1)]);
    assert_eq!(tile(&bench, "40", "0"), [(5e-10, 2)]);
    let last = bench.run("last", &["t,d=d0", "--format", "json"]).ok();
    assert!(
        last.stdout.contains("1970-01-01T00:00:00.000000001Z"),
        "{}",
        last.stdout
    );
    let at_zero = [
        "t,d=d0.v",
        "--from",
        "1970-01-01",
        "--to",
        "1",
        "--format",
        "json",
    ];
    assert_eq!(bench.run("aggregate", &at_zero).ok().json()[0]["count"], 1);
}

#[test]
fn times_before_1970_are_ordered_and_found() {
    let hour = 3_600 * SECOND;
    // From 1900 on, an hour apart, over the border of 1970.
    let start = -2_208_988_800 * SECOND;
    let mut times: Vec<i64> = (0..4_000).map(|i| start + i * hour).collect();
    times.extend((-1_000..1_000).map(|i| i * hour));
    let bench = check_round_trip(&times);
    let range = [
        "t,d=d0.v",
        "--from",
        "1900-01-01",
        "--to",
        "1900-01-02",
        "--format",
        "json",
    ];
    let whole = bench.run("aggregate", &range).ok().json();
    assert_eq!(whole[0]["count"], 12);
    assert_eq!(whole[0]["first"]["time"], "1900-01-01T00:00:00Z");
    let bins = [
        "t,d=d0.v",
        "--from",
        "1969-12-31",
        "--to",
        "1970-01-02",
        "--every",
        "1d",
        "--format",
        "csv",
    ];
    let bins = bench.run("aggregate", &bins).ok().stdout;
    let starts: Vec<&str> = bins
        .lines()
        .skip(1)
        .map(|l| l.split(',').next().unwrap())
        .collect();
    assert_eq!(starts, ["1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"]);
    assert_eq!(
        tile(&bench, "12", "-1").iter().map(|(_, n)| n).sum::<u64>(),
        291
    );
}

#[test]
fn times_far_ahead_are_kept() {
    // 2098-02-18 and 2262-04-11, a second apart.
    for start in [4_043_000_000 * SECOND, i64::MAX - 2_000 * SECOND] {
        let times: Vec<i64> = (0..2_000).map(|i| start + i * SECOND).collect();
        let bench = check_round_trip(&times);
        let whole = bench
            .run("aggregate", &["t,d=d0.v", "--format", "json"])
            .ok()
            .json();
        assert_eq!(whole[0]["count"], 1_000);
        assert_eq!(whole[0]["first"]["time_ns"], start);
        bench.run("plot", &["t,d=d0.v"]).ok();
    }
}

#[test]
fn both_ends_of_the_range_and_everything_between_fit_one_table() {
    let times = [
        i64::MIN,
        i64::MIN,
        i64::MIN + 1,
        -SECOND,
        -1,
        0,
        SECOND,
        4_043_000_000 * SECOND,
        i64::MAX - 1,
        i64::MAX - 1,
        i64::MAX,
        i64::MAX,
    ];
    let bench = check_round_trip(&times);
    for level in ["-20", "-3", "0", "7", "23", "40"] {
        let middle = tile(&bench, level, "0");
        assert!(
            middle.iter().all(|(at, _)| *at >= 0.0),
            "{level}: {middle:?}"
        );
    }
    // At the widest level a tile holds a whole side of the range.
    let count = |offset: &str| {
        tile(&bench, "40", offset)
            .iter()
            .map(|(_, n)| n)
            .sum::<u64>()
    };
    assert_eq!((count("-1"), count("0"), count("1")), (3, 3, 0));
    let first = bench
        .run("scan", &["t,d=d0", "--limit", "1", "--format", "csv"])
        .ok();
    assert!(
        first.stdout.contains("1677-09-21T00:12:43.145224192Z"),
        "{}",
        first.stdout
    );
    let last = bench.run("last", &["t,d=d1", "--format", "json"]).ok();
    assert!(
        last.stdout.contains("2262-04-11T23:47:16.854775807Z"),
        "{}",
        last.stdout
    );
    bench.run("plot", &["t,d=d0.v"]).ok();
}

/// A column is constant, one never has a value, one begins late, one is negative throughout.
#[test]
fn columns_of_every_density_come_back() {
    let mut text = String::from("time,d,constant,never,late,negative,word\n");
    for i in 0..12_000i64 {
        let late = if i >= 11_000 {
            i.to_string()
        } else {
            String::new()
        };
        let time = i * SECOND;
        text.push_str(&format!("{time},a,1.5,,{late},{},same\n", -i - 1));
    }
    let source = Source::of_text(PathBuf::from("-"), text);
    let bench = Bench::new();
    NANOS.import(&bench, &[], "-", source.text().as_bytes());
    check(&bench, 12_000);
    let expected = Expected::new(&source, &NANOS, Duplicates::Last);
    assert_eq!(compare(&bench, &expected), 12_000);
    let whole = |field: &str| {
        let address = format!("t,d=a.{field}");
        let ran = bench.run("aggregate", &[&address, "--format", "json"]).ok();
        ran.json()[0].clone()
    };
    assert_eq!(
        (&whole("constant")["stddev"], &whole("constant")["count"]),
        (&0.0.into(), &12_000.into())
    );
    assert_eq!(
        (&whole("late")["count"], &whole("late")["min"]),
        (&1_000.into(), &11_000.into())
    );
    assert_eq!(whole("negative")["min"], -12_000);
    assert_eq!(whole("negative")["max"], -1);
    assert_eq!(bench.run("aggregate", &["t,d=a.never"]).code, 1);
    // Constants and absences cost next to nothing.
    let stat = bench.run("stat", &["--format", "json"]).ok().json();
    assert!(stat["bytes_per_event"].as_f64().unwrap() < 4.0, "{stat}");
}
