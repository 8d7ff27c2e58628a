//! Intervals on clocks, over the changes of all zones.

use headwater_wire::clocks::{Intervals, Width};
use headwater_wire::zone::Zone;
use std::collections::BTreeMap;

const MINUTE: i64 = 60_000_000_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// The instant 2040-01-01T00:00:00Z.
const LAST: i64 = 2_208_988_800_000_000_000;

/// Every zone that is built in, with the instants at which its clocks are set.
fn zones() -> Vec<(Zone, Vec<i64>)> {
    let mut all = Vec::new();
    for name in jiff::tz::db().available() {
        let Ok(zone) = Zone::read(name.as_str()) else {
            continue;
        };
        let mut changes = Vec::new();
        let mut at = 0;
        while let Some(change) = zone.change_after(at).filter(|change| *change < LAST) {
            changes.push(change);
            at = change;
        }
        all.push((zone, changes));
    }
    assert!(all.len() > 400, "{}", all.len());
    all
}

/// All changes with `HEADWATER_ALL_ZONES` set, otherwise some of each zone.
fn chosen(changes: &[i64], salt: usize) -> Vec<i64> {
    if std::env::var_os("HEADWATER_ALL_ZONES").is_some() {
        return changes.to_vec();
    }
    let some = changes.iter().skip(salt % 7).step_by(17);
    some.chain(changes.last()).copied().collect()
}

fn shown(zone: &Zone, at: i64) -> i64 {
    zone.wall_ns(at).unwrap()
}

/// What the law says of one instant.
fn expected_begin(intervals: &Intervals, width: i64, origin: i64, at: i64) -> i64 {
    let zone = intervals.zone();
    let begin = intervals.begin(at).unwrap();
    let why = || format!("{} {width} {origin} at {at}: {begin}", zone.name());
    assert!(begin <= at, "{}", why());
    let floor = shown(zone, at) - (shown(zone, at) - origin).rem_euclid(width);
    if width <= HOUR {
        assert!(at - begin < width, "{}", why());
        assert_eq!(at - begin, shown(zone, at) - floor, "{}", why());
    } else {
        // It is the first instant at which the clocks show this or a later time.
        assert!(shown(zone, begin) >= floor, "{}", why());
        assert!(shown(zone, begin - 1) < floor, "{}", why());
    }
    begin
}

#[test]
fn every_instant_is_in_one_interval_that_begins_before_it_whatever_clocks_do() {
    let widths = [
        MINUTE,
        5 * MINUTE,
        15 * MINUTE,
        20 * MINUTE,
        HOUR,
        90 * MINUTE,
        2 * HOUR,
        6 * HOUR,
        DAY,
        7 * DAY,
    ];
    let mut count = 0;
    for (salt, (zone, changes)) in zones().into_iter().enumerate() {
        for change in chosen(&changes, salt) {
            for (number, width) in widths.into_iter().enumerate() {
                let origin = [0, 7 * MINUTE][(salt + number) % 2];
                let intervals = Intervals::new(zone.clone(), Width::Fixed(width), origin).unwrap();
                let around = [
                    -width,
                    -HOUR,
                    -HOUR / 2,
                    -1,
                    0,
                    1,
                    HOUR / 2,
                    HOUR - 1,
                    HOUR,
                    width,
                ];
                for beside in around {
                    expected_begin(&intervals, width, origin, change + beside);
                    count += 1;
                }
            }
        }
    }
    assert!(count > 50_000, "{count}");
}

#[test]
fn the_intervals_of_a_range_are_those_of_its_instants_and_lose_none() {
    for (salt, (zone, changes)) in zones().into_iter().enumerate() {
        let chosen = chosen(&changes, salt);
        for change in chosen.into_iter().step_by(3) {
            for (width, step) in [
                (15 * MINUTE, 5 * MINUTE),
                (HOUR, 10 * MINUTE),
                (2 * HOUR, 30 * MINUTE),
                (DAY, 2 * HOUR),
            ] {
                let intervals = Intervals::new(zone.clone(), Width::Fixed(width), 0).unwrap();
                let (first, end) = (change - 3 * width - 7, change + 3 * width);
                // The change itself is the beginning of a stretch, however short.
                let steps = (first..end).step_by(usize::try_from(step).unwrap());
                let instants: Vec<i64> = steps.chain([change]).collect();
                let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
                for at in &instants {
                    *counts.entry(intervals.begin(*at).unwrap()).or_default() += 1;
                }
                assert_eq!(counts.values().sum::<usize>(), instants.len());
                let begins: Vec<i64> = intervals.begins(first, end).collect();
                assert!(begins.is_sorted(), "{} {width} {change}", zone.name());
                for begin in counts.keys() {
                    let found = begins.binary_search(begin);
                    assert!(found.is_ok(), "{} {width} {change}: {begin}", zone.name());
                }
                // Each has an instant.
                for begin in begins {
                    let last = begin + width + 3 * HOUR;
                    let mut of = (begin..last).step_by(60_000_000_000).chain([change]);
                    assert!(
                        of.any(|at| intervals.begin(at) == Some(begin)),
                        "{} {width} {change}: {begin}",
                        zone.name()
                    );
                }
            }
        }
    }
}

#[test]
fn months_begin_where_clocks_show_their_first_midnight() {
    let at = |text: &str| {
        let at = headwater_wire::instant::parse_instant(text).unwrap();
        at.as_nanos()
    };
    for (zone, months, instants, begin) in [
        // At midnight of the first of April the clocks were set to one.
        (
            "Asia/Amman",
            1,
            "2022-04-15T00:00:00Z",
            "2022-03-31T21:00:00Z",
        ),
        (
            "Asia/Beirut",
            1,
            "1992-05-31T20:00:00Z",
            "1992-04-30T22:00:00Z",
        ),
        (
            "Europe/Paris",
            3,
            "2025-12-31T22:59:59Z",
            "2025-09-30T22:00:00Z",
        ),
        ("UTC", 12, "1969-12-31T23:59:59Z", "1969-01-01T00:00:00Z"),
    ] {
        let zone = Zone::read(zone).unwrap();
        let intervals = Intervals::new(zone, Width::Months(months), 0).unwrap();
        assert_eq!(intervals.begin(at(instants)), Some(at(begin)), "{instants}");
    }
    let paris = Zone::read("Europe/Paris").unwrap();
    let months = Intervals::new(paris.clone(), Width::Months(1), 0).unwrap();
    let begins: Vec<i64> = months
        .begins(at("2025-02-10T00:00:00Z"), at("2025-05-01T00:00:00Z"))
        .collect();
    let wanted = [
        "2025-01-31T23:00:00Z",
        "2025-02-28T23:00:00Z",
        "2025-03-31T22:00:00Z",
        "2025-04-30T22:00:00Z",
    ];
    assert_eq!(begins, wanted.map(at));
    assert!(Intervals::new(paris.clone(), Width::Months(0), 0).is_none());
    assert!(Intervals::new(paris, Width::Fixed(0), 0).is_none());
}
