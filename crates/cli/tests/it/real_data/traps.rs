//! What the authors of the files warn of, a test each.

use super::oracle::{Duplicates, Expected};
use super::source::{ABSENT, Source, Stamp, cells};
use super::{
    BALLOON, LORAWAN_FTD, LORAWAN_IMST, Mapping, NAB, OBD_2017, OBD_2018, PHONES, QUAKES_2025,
    WEATHER, check, compare, field_types,
};
use crate::support::{Bench, text};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

const KEEP: [&str; 2] = ["--duplicates", "keep"];
const LAST: [&str; 2] = ["--duplicates", "last"];

/// Rows of table `t`, exported with these arguments, without the header.
fn rows(bench: &Bench, arguments: &[&str]) -> Vec<Vec<String>> {
    let all = [&["--table", "t", "--null", ABSENT], arguments].concat();
    let ran = bench.run("export", &all).ok();
    let lines = ran.stdout.lines().skip(1);
    lines
        .map(|line| cells(line).into_iter().map(Into::into).collect())
        .collect()
}

/// Imports a file in which the last of equal stamps counts, checks, exports, compares.
fn last_counts(mapping: &Mapping, repeated: usize) {
    let Some(source) = Source::load(mapping) else {
        return;
    };
    let bench = Bench::new();
    mapping.import(&bench, &LAST, text(&source.path()), b"");
    let expected = Expected::new(&source, mapping, Duplicates::Last);
    assert_eq!(expected.row_count(), mapping.rows - repeated);
    assert_eq!(compare(&bench, &expected), mapping.rows - repeated);
    // Compaction drops what was replaced and changes nothing that is read.
    bench.run("compact", &[]).ok();
    check(&bench, mapping.rows - repeated);
    assert_eq!(compare(&bench, &expected), mapping.rows - repeated);
}

#[test]
fn a_clock_that_steps_back_inside_a_drive_loses_no_row() {
    let Some(source) = Source::load(&OBD_2017) else {
        return;
    };
    // Rows older than one before them in their drive.
    let mut newest: HashMap<String, i64> = HashMap::new();
    let mut late = Vec::new();
    for row in 0..source.row_count() {
        let (drive, rest) = source.line(row).split_once(',').unwrap();
        let (stamp, rest) = rest.split_once(',').unwrap();
        let stamp: i64 = stamp.parse().unwrap();
        let newest = match newest.get_mut(drive) {
            Some(newest) => newest,
            None => newest.entry(drive.to_owned()).or_insert(stamp),
        };
        if stamp < *newest {
            let clock = rest.split_once(',').unwrap().0;
            late.push((drive.to_owned(), stamp, clock.to_owned()));
        }
        *newest = stamp.max(*newest);
    }
    let drives: HashSet<&str> = late.iter().map(|(drive, ..)| drive.as_str()).collect();
    assert_eq!((late.len(), drives.len()), (18, 5));

    let source = source.of_streams(&drives);
    let bench = Bench::new();
    OBD_2017.import(&bench, &KEEP, "-", source.text().as_bytes());
    check(&bench, source.row_count());
    let expected = Expected::new(&source, &OBD_2017, Duplicates::Keep);
    assert_eq!(compare(&bench, &expected), source.row_count());
    for (drive, stamp, clock) in &late {
        let range = [stamp * 1_000_000, (stamp + 1) * 1_000_000].map(|ns| ns.to_string());
        let found = rows(
            &bench,
            &[
                "--where",
                &format!("drive={drive}"),
                "--field",
                "Time",
                "--from",
                &range[0],
                "--to",
                &range[1],
            ],
        );
        assert_eq!(found.len(), 1);
        assert_eq!(&found[0][2], clock);
    }
    // Eighteen late rows cost next to nothing.
    let stat = bench.run("stat", &["--format", "json"]).ok().json();
    let written = stat["events_written"].as_u64().unwrap();
    let accepted = source.row_count() as u64;
    assert!(
        written >= accepted && written < accepted + accepted / 20,
        "{stat}"
    );
}

#[test]
fn repeated_stamps_in_nab_merge_to_the_last() {
    last_counts(&NAB, 49);
}

#[test]
fn repeated_seconds_of_a_balloon_merge_to_the_last() {
    last_counts(&BALLOON, 1_504 + 1_629 + 1_276);
}

#[test]
fn an_hour_folded_into_one_stamp_is_kept_or_merged_as_asked() {
    let Some(source) = Source::load(&NAB) else {
        return;
    };
    let series = [
        "realAWSCloudwatch/ec2_disk_write_bytes_1ef3de",
        "realAWSCloudwatch/ec2_network_in_5abac7",
        "realKnownCause/ec2_request_latency_system_failure",
    ];
    let source = source.only(|cells| series.contains(&cells[0].as_ref()));
    let (keep, last) = (Bench::new(), Bench::new());
    NAB.import(&keep, &KEEP, "-", source.text().as_bytes());
    NAB.import(&last, &LAST, "-", source.text().as_bytes());
    for series in series {
        let folded: Vec<String> = (0..source.row_count())
            .map(|row| source.cells(row))
            .filter(|cells| cells[0] == series && cells[2] == "2014-03-09 03:00:00")
            .map(|cells| format!("{:?}", cells[3].parse::<f64>().unwrap()))
            .collect();
        assert_eq!(folded.len(), 12);
        let filter = format!("series={series}");
        let hours = |bench: &Bench, from: &str, to: &str| -> Vec<String> {
            let range = [
                "--where", &filter, "--field", "value", "--from", from, "--to", to,
            ];
            let found = rows(bench, &range);
            found
                .into_iter()
                .map(|mut row| row.swap_remove(2))
                .collect()
        };
        let (two, three) = ("2014-03-09T02:00:00Z", "2014-03-09T03:00:00Z");
        let after = "2014-03-09T03:00:00.000000001Z";
        // In the order of their arrival.
        assert_eq!(hours(&keep, three, after), folded);
        assert_eq!(hours(&last, three, after), folded[11..]);
        assert!(hours(&keep, two, three).is_empty());
        let count = |bench: &Bench| {
            let address = format!("t,series={series}.value");
            let range = ["--from", three, "--to", after, "--format", "json"];
            let ran = bench.run("aggregate", &[&[address.as_str()], &range[..]].concat());
            ran.ok().json()[0]["count"].as_u64().unwrap()
        };
        assert_eq!((count(&keep), count(&last)), (12, 1));
    }
}

#[test]
fn an_hour_written_twice_is_kept_twice_or_replaced() {
    let Some(source) = Source::load(&NAB) else {
        return;
    };
    let series = "realKnownCause/machine_temperature_system_failure";
    let source = source.only(|cells| cells[0] == series);
    // Both passes through the hour, each in order.
    let hour: Vec<(String, String)> = (0..source.row_count())
        .map(|row| source.cells(row))
        .filter(|cells| cells[2].starts_with("2014-01-07 02:"))
        .map(|cells| (cells[2].replace(' ', "T") + "Z", cells[3].to_string()))
        .collect();
    let (first, second) = hour.split_at(12);
    assert_eq!(second.len(), 12);
    let range = [
        "--from",
        "2014-01-07T02:00:00Z",
        "--to",
        "2014-01-07T03:00:00Z",
    ];
    for (setting, wanted) in [
        (
            KEEP,
            first
                .iter()
                .zip(second)
                .flat_map(|(a, b)| [a, b])
                .collect::<Vec<_>>(),
        ),
        (LAST, second.iter().collect()),
    ] {
        let bench = Bench::new();
        NAB.import(&bench, &setting, "-", source.text().as_bytes());
        let mut arguments = vec!["--field", "value"];
        arguments.extend(range);
        let found: Vec<(String, String)> = rows(&bench, &arguments)
            .into_iter()
            .map(|row| (row[0].clone(), row[2].clone()))
            .collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted);
    }
}

/// A year of local hours: nothing is refused, since the hour that was skipped has no rows, and only
/// the second pass through the hour that came twice is taken for the first.
#[test]
fn local_hours_of_a_year_become_instants() {
    let source = Source::load(&WEATHER).unwrap();
    let mut local = String::from("local,origin,epoch_ms,temp\n");
    for row in 0..source.row_count() {
        let cells = source.cells(row);
        let part = |name: &str| cells[source.at(name)].parse::<u32>().unwrap();
        local.push_str(&format!(
            "{}-{:02}-{:02} {:02}:00,{},{},{}\n",
            part("year"),
            part("month"),
            part("day"),
            part("hour"),
            cells[source.at("origin")],
            cells[source.at("epoch_ms")],
            cells[source.at("temp")],
        ));
    }
    let bench = Bench::new();
    let ran = bench
        .run_with_input(
            "import",
            &[
                "--table",
                "t",
                "--time",
                "local:%Y-%m-%d %H:%M@America/New_York",
                "--tag",
                "origin",
                "--null",
                "NA",
                "--duplicates",
                "keep",
                "-",
            ],
            local.as_bytes(),
        )
        .ok();
    assert!(!ran.stderr.contains("refused"), "{}", ran.stderr);
    let found = rows(&bench, &["--time-format", "ms"]);
    assert_eq!(found.len(), WEATHER.rows);
    let mut offsets: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for row in &found {
        let (local, utc) = (
            row[0].parse::<i64>().unwrap(),
            row[2].parse::<i64>().unwrap(),
        );
        offsets.entry(utc - local).or_default().push(&row[2]);
    }
    // 2013-11-03T06:00:00Z is 01:00 for the second time, once at each station.
    let second_pass = offsets.remove(&3_600_000).unwrap();
    assert_eq!(second_pass, ["1383458400000"; 3]);
    assert_eq!(offsets.into_keys().collect::<Vec<_>>(), [0]);
}

#[test]
fn hours_around_both_clock_changes_are_taken_or_refused() {
    let bench = Bench::new();
    let mut local = String::from("local,utc\n");
    for (text, utc) in [
        ("2013-03-10 01:59", "2013-03-10T06:59:00Z"),
        ("2013-03-10 02:00", "refused"),
        ("2013-03-10 02:59", "refused"),
        ("2013-03-10 03:00", "2013-03-10T07:00:00Z"),
        ("2013-11-03 00:59", "2013-11-03T04:59:00Z"),
        ("2013-11-03 01:00", "2013-11-03T05:00:00Z"),
        ("2013-11-03 01:59", "2013-11-03T05:59:00Z"),
        ("2013-11-03 02:00", "2013-11-03T07:00:00Z"),
    ] {
        local.push_str(&format!("{text},{utc}\n"));
    }
    let time = "local:%Y-%m-%d %H:%M@America/New_York";
    let ran = bench
        .run_with_input(
            "import",
            &["--table", "t", "--time", time, "-"],
            local.as_bytes(),
        )
        .ok();
    assert!(
        ran.stderr.contains("2 lines were refused") && ran.stderr.contains("line 3: E_TIME"),
        "{}",
        ran.stderr
    );
    let found = rows(&bench, &[]);
    assert_eq!(found.len(), 6);
    assert!(found.iter().all(|row| row[0] == row[1]), "{found:?}");
}

#[test]
fn ids_of_base_16_stay_text() {
    for mapping in [&LORAWAN_FTD, &LORAWAN_IMST] {
        let Some(source) = Source::load(mapping) else {
            return;
        };
        let looks_like_a_number = |cell: &str| cell.parse::<f64>().is_ok();
        let ids: HashSet<String> = source.column("devaddr").map(Into::into).collect();
        // 92020048, 3E010048, 1E000048, 00000048 …
        assert!(ids.iter().filter(|id| looks_like_a_number(id)).count() > 5);
        // As names of streams.
        let by_address = Mapping {
            tags: &["devaddr"],
            streams: ids.len(),
            ..LORAWAN_FTD
        };
        let bench = Bench::new();
        by_address.import(&bench, &KEEP, text(&source.path()), b"");
        let expected = Expected::new(&source, &by_address, Duplicates::Keep);
        assert_eq!(expected.stream_count(), ids.len());
        assert_eq!(compare(&bench, &expected), mapping.rows);
        let wanted = source
            .column("devaddr")
            .filter(|id| id == "00000048")
            .count();
        let found = rows(&bench, &["--where", "devaddr=00000048"]);
        assert_eq!(found.len(), wanted);
        assert!(rows(&bench, &["--where", "devaddr=48"]).is_empty());
    }
}

#[test]
fn ids_that_all_look_like_numbers_stay_text_when_a_number_would_lose_something() {
    // None of these columns holds anything but digits and the letter of exponents.
    let text = "time,a,b,c,d\n\
        1,00000048,92020048,10000048,0018\n\
        2,07000048,3E010048,1E000048,20\n\
        3,01020048,10000048,0E000048,31\n";
    let bench = Bench::new();
    bench
        .run_with_input(
            "import",
            &["--table", "t", "--time", "time:s", "-"],
            text.as_bytes(),
        )
        .ok();
    assert!(
        field_types(&bench)
            .iter()
            .all(|(_, found)| found == "string")
    );
    assert_eq!(
        rows(&bench, &["--time-format", "s"]),
        text.lines()
            .skip(1)
            .map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    );
}

#[test]
fn na_is_absent_when_said_so_and_text_otherwise() {
    let Some(source) = Source::load(&PHONES) else {
        return;
    };
    let columns: Vec<&String> = source
        .header()
        .iter()
        .filter(|name| name.starts_with("A.Time.to.previous"))
        .collect();
    assert_eq!(columns.len(), 4);
    let as_text = Mapping {
        null: None,
        ..PHONES
    };
    for (mapping, wanted, mark) in [(&PHONES, "i64", ABSENT), (&as_text, "string", "NA")] {
        let bench = Bench::new();
        let ran = mapping.import(&bench, &KEEP, text(&source.path()), b"");
        assert_eq!(
            ran.stderr.contains("--null 'NA'"),
            wanted == "string",
            "{}",
            ran.stderr
        );
        let types = field_types(&bench);
        for column in &columns {
            assert!(
                types.contains(&((*column).clone(), wanted.to_owned())),
                "{types:?}"
            );
            let found = rows(&bench, &["--field", column, "--field", "C.Message.ID"]);
            let marked = found.iter().filter(|row| row[3] == mark).count();
            assert_eq!((found.len(), marked), (PHONES.rows, 41), "{column}");
        }
        let expected = Expected::new(&source, mapping, Duplicates::Keep);
        assert_eq!(compare(&bench, &expected), PHONES.rows);
    }
}

#[test]
fn places_with_commas_and_accents_survive_both_formats() {
    let Some(source) = Source::load(&QUAKES_2025) else {
        return;
    };
    let source = source.only(|cells| cells.iter().any(|cell| !cell.is_ascii()));
    let with_comma = source.column("place").filter(|place| place.contains(", "));
    assert!(with_comma.count() > 10);
    let bench = Bench::new();
    QUAKES_2025.import(&bench, &KEEP, "-", source.text().as_bytes());
    let expected = Expected::new(&source, &QUAKES_2025, Duplicates::Keep);
    assert_eq!(compare(&bench, &expected), source.row_count());
    // Line protocol and back.
    let lines = bench
        .run("export", &["--table", "t", "--format", "lp"])
        .ok();
    let again = Bench::new();
    again
        .run("table create", &["t", "--duplicates", "keep"])
        .ok();
    again.import_lines(&lines.stdout).ok();
    let places = |bench: &Bench| rows(bench, &["--field", "place", "--field", "id"]);
    assert_eq!(places(&bench), places(&again));
    // One of them is found by its name.
    let place = "60 km SSW of Intipucá, El Salvador";
    let filter = format!("place={place}");
    let found = bench
        .run(
            "scan",
            &[
                "t", "--filter", &filter, "--field", "place", "--format", "csv",
            ],
        )
        .ok();
    let wanted = source.column("place").filter(|cell| cell == place).count();
    assert_eq!(found.stdout.matches(place).count(), wanted);
    assert!(wanted > 0);
}

/// The second download repeats most of the first, changes some and adds the rest: with the event's
/// id as the device and the last write counting, the table holds each event once, as last told.
#[test]
fn repeated_deliveries_leave_the_newest_version() {
    let by_id = Mapping {
        tags: &["net", "id"],
        ..QUAKES_2025
    };
    let Some(source) = Source::load(&by_id) else {
        return;
    };
    let net = source.at("net");
    let source = source.only(|cells| ["ak", "us"].contains(&cells[net].as_ref()));
    let delivered = source.row_count();
    let bench = Bench::new();
    by_id.import(&bench, &LAST, "-", source.text().as_bytes());
    let expected = Expected::new(&source, &by_id, Duplicates::Last);
    assert_eq!(expected.stream_count(), 1_890 + 2_651);
    let merged = expected.row_count();
    assert!(merged < delivered - 200);
    assert_eq!(compare(&bench, &expected), merged);
    // Delivered once more, nothing changes.
    by_id.import(&bench, &LAST, "-", source.text().as_bytes());
    assert_eq!(compare(&bench, &expected), merged);
    bench.run("check", &[]).ok();
}

#[test]
fn values_below_zero_are_found_by_a_filter() {
    let Some(source) = Source::load(&QUAKES_2025) else {
        return;
    };
    let bench = Bench::new();
    QUAKES_2025.import(&bench, &KEEP, text(&source.path()), b"");
    let scan = [
        "t", "--filter", "mag<0", "--field", "mag", "--format", "csv",
    ];
    let found = bench.run("scan", &scan).ok();
    let mut found: Vec<f64> = found
        .stdout
        .lines()
        .skip(1)
        .map(|line| line.rsplit_once(',').unwrap().1.parse().unwrap())
        .collect();
    let mut wanted: Vec<f64> = source
        .column("mag")
        .filter_map(|cell| cell.parse().ok())
        .filter(|mag| *mag < 0.0)
        .collect();
    found.sort_by(f64::total_cmp);
    wanted.sort_by(f64::total_cmp);
    assert!(wanted.len() > 100);
    assert_eq!(found, wanted);
}

/// A reading of −40 °C is what the sensor says when it fails; 60 rows of one drive have it.
#[test]
fn a_fault_value_is_kept_like_any_other() {
    let Some(source) = Source::load(&OBD_2018) else {
        return;
    };
    let drive = "2018-02-21_Seat_Leon_KA_KA_Normal";
    let source = source.of_streams(&HashSet::from([drive]));
    let column = "Intake Air Temperature [°C]";
    let faulty = source.column(column).filter(|cell| cell == "-40.0").count();
    assert_eq!(faulty, 60);
    let bench = Bench::new();
    OBD_2018.import(&bench, &KEEP, "-", source.text().as_bytes());
    let filter = format!("{column}<=-40");
    let found = bench
        .run(
            "scan",
            &[
                "t", "--filter", &filter, "--field", column, "--format", "csv",
            ],
        )
        .ok();
    let found: Vec<&str> = found.stdout.lines().skip(1).collect();
    assert_eq!(found.len(), 60);
    assert!(found.iter().all(|line| line.ends_with(",-40.0")));
}

#[test]
fn a_source_beside_the_oracle_would_be_noticed() {
    // The comparison itself must fail when a value, a row or an order differs.
    let of = |text: &str| Source::of_text(PathBuf::from("-"), text.to_owned());
    let mapping = Mapping {
        tags: &["d"],
        time: "epoch_ms",
        stamp: Stamp::Millis,
        ..NAB
    };
    let bench = Bench::new();
    let text = "epoch_ms,d,v\n1,a,0.5\n2,a,1\n2,a,2\n3,b,4\n";
    mapping.import(&bench, &KEEP, "-", text.as_bytes());
    let is_same = |text: &str| {
        let source = of(text);
        let expected = Expected::new(&source, &mapping, Duplicates::Keep);
        let compared = std::panic::AssertUnwindSafe(|| compare(&bench, &expected));
        std::panic::catch_unwind(compared).is_ok()
    };
    assert!(is_same(text));
    for other in [
        "epoch_ms,d,v\n1,a,0.6\n2,a,1\n2,a,2\n3,b,4\n",
        "epoch_ms,d,v\n1,a,0.5\n2,a,2\n2,a,1\n3,b,4\n",
        "epoch_ms,d,v\n1,a,0.5\n2,a,1\n2,a,2\n3,b,4\n4,b,4\n",
        "epoch_ms,d,v\n1,a,0.5\n2,a,1\n2,a,2\n",
        "epoch_ms,d,v\n1,a,0.5\n2,a,1\n3,b,4\n",
        "epoch_ms,d,v\n1,a,0.5\n2,a,1\n2,a,2\n3,b,\n",
        "epoch_ms,d,v\n1,a,0.5\n2,a,1\n2,a,2\n3,c,4\n",
    ] {
        assert!(!is_same(other), "{other}");
    }
}
