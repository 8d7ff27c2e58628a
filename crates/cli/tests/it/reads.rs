//! `scan`, `last`, `aggregate`, `tile`, `plot`, `stat` and `check`.

use crate::support::{Bench, program};
use std::io::Read;
use std::process::Stdio;

/// Ten minutes of two devices; the field names contain dots.
fn filled() -> Bench {
    let bench = Bench::new();
    let mut lines = String::new();
    for second in 0..600u64 {
        let time = (1_372_896_000 + second) * 1_000_000_000;
        lines.push_str(&format!(
            "plant,id=p.1 temp={second},temp.out={}i,ok=t {time}\n",
            second * 2
        ));
        if !(200..400).contains(&second) {
            lines.push_str(&format!(
                "plant,id=p2 temp={},name=\"n{second}\" {time}\n",
                second % 7
            ));
        }
    }
    bench.import_lines(&lines).ok();
    bench
}

#[test]
fn addresses_split_at_the_last_dot_that_leaves_a_field() {
    let bench = filled();
    let count = |address: &str| {
        let ran = bench.run("aggregate", &[address, "--format", "json"]).ok();
        (
            ran.json()[0]["count"].as_u64().unwrap(),
            ran.json()[0]["max"].to_string(),
        )
    };
    assert_eq!(count("plant,id=p.1.temp"), (600, "599.0".into()));
    assert_eq!(count("plant,id=p.1.temp.out"), (600, "1198".into()));
    assert_eq!(count("plant,id=p2.temp"), (400, "6.0".into()));
    for (address, part) in [
        ("plant.temp", "matches 2 streams"),
        ("plant,id=p3.temp", "has the fields: temp, temp.out, ok"),
        (
            "plant,id=p2.tmp",
            "and the streams: plant,id=p.1  plant,id=p2",
        ),
        ("plan,id=p2.temp", "the table does not exist"),
    ] {
        let ran = bench.run("aggregate", &[address]);
        assert_eq!(ran.code, 1, "{address}");
        assert!(
            ran.stderr.contains(part) && ran.stdout.is_empty(),
            "{address}: {}",
            ran.stderr
        );
    }
}

#[test]
fn aggregates_come_whole_and_in_bins() {
    let bench = filled();
    let ran = bench
        .run("aggregate", &["plant,id=p.1.temp", "--format", "json"])
        .ok();
    let whole = &ran.json()[0];
    assert_eq!(whole["sum"], 179_700.0);
    assert_eq!(whole["mean"], 299.5);
    assert_eq!(whole["first"]["value"], 0.0);
    assert_eq!(whole["last"]["time"], "2013-07-04T00:09:59Z");
    assert!(whole["stddev"].as_f64().unwrap() > 173.0);
    let ran = bench
        .run(
            "aggregate",
            &[
                "plant,id=p.1.temp.out",
                "--from",
                "2013-07-04T00:01:00Z",
                "--to",
                "2013-07-04T00:03:30Z",
                "--every",
                "1m",
                "--format",
                "csv",
            ],
        )
        .ok();
    let rows: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(
        rows[0],
        "start,count,min,max,mean,sum,stddev,first_time,first,last_time,last"
    );
    assert!(
        rows[1].starts_with("2013-07-04T00:01:00Z,60,120,238,179.0,10740,"),
        "{}",
        rows[1]
    );
    assert!(
        rows[3].starts_with("2013-07-04T00:03:00Z,30,360,418,"),
        "{}",
        rows[3]
    );
    assert_eq!(rows.len(), 4);
    let ran = bench
        .run(
            "aggregate",
            &[
                "plant,id=p.1.temp",
                "--from",
                "2020-01-01",
                "--format",
                "json",
            ],
        )
        .ok();
    assert_eq!(ran.json()[0]["count"], 0);
    assert_eq!(ran.json()[0]["mean"], serde_json::Value::Null);
    let ran = bench
        .run(
            "aggregate",
            &["plant,id=p.1.temp", "--every", "5m", "--no-first-last"],
        )
        .ok();
    assert_eq!(ran.stdout.lines().count(), 3, "{}", ran.stdout);
}

#[test]
fn tiles_have_the_shape_of_respawn() {
    let bench = filled();
    // 2013-07-04T00:00:00Z / (512 · 2^3 s)
    let ran = bench
        .run("tile", &["plant,id=p.1.temp", "3", "335179"])
        .ok();
    let json = ran.json();
    assert!(
        ran.stdout
            .starts_with(r#"{"fields":["time","mean","stddev","count"],"data":[["#),
        "{}",
        ran.stdout
    );
    assert_eq!(
        (json["level"].as_i64(), json["offset"].as_i64()),
        (Some(3), Some(335_179))
    );
    let rows = json["data"].as_array().unwrap();
    let count: u64 = rows.iter().map(|row| row[3].as_u64().unwrap()).sum();
    assert!(count > 0 && rows.len() <= 512);
    let ran = bench
        .run(
            "tile",
            &["plant,id=p.1.temp", "-20", "-5", "--fields", "count,max"],
        )
        .ok();
    assert_eq!(
        ran.stdout,
        "{\"fields\":[\"count\",\"max\"],\"data\":[],\"level\":-20,\"offset\":-5}\n"
    );
    assert_eq!(bench.run("tile", &["plant,id=p.1.temp", "41", "0"]).code, 2);
    assert_eq!(bench.run("tile", &["plant,id=p9.temp", "0", "0"]).code, 1);
}

#[test]
fn scans_filter_and_stop() {
    let bench = filled();
    let ran = bench
        .run(
            "scan",
            &[
                "plant,id=p2",
                "--filter",
                "temp>=5",
                "--filter",
                "temp < 6",
                "--limit",
                "2",
                "--format",
                "csv",
            ],
        )
        .ok();
    assert_eq!(
        ran.stdout,
        "time,id,temp,temp.out,ok,name\n2013-07-04T00:00:05Z,p2,5.0,,,n5\n2013-07-04T00:00:12Z,p2,5.0,,,n12\n"
    );
    let ran = bench
        .run(
            "scan",
            &["plant,id=p.1.temp.out", "--limit", "1", "--format", "json"],
        )
        .ok();
    assert_eq!(
        ran.stdout,
        "{\"stream\":\"plant,id=p.1\",\"time\":\"2013-07-04T00:00:00Z\",\"time_ns\":1372896000000000000,\"fields\":{\"temp.out\":0}}\n"
    );
    let ran = bench
        .run(
            "scan",
            &[
                "plant", "--filter", "name=n3", "--field", "name", "--field", "temp",
            ],
        )
        .ok();
    assert_eq!(
        ran.stdout,
        "plant,id=p2\ntime                  name  temp\n2013-07-04T00:00:03Z  n3     3.0\n"
    );
    assert_eq!(
        bench.run("scan", &["plant", "--filter", "temp ~ 5"]).code,
        2
    );
    assert_eq!(
        bench
            .run("scan", &["plant", "--filter", "temp > cold"])
            .code,
        2
    );
}

#[test]
fn last_shows_the_newest_value_of_each_field() {
    let bench = filled();
    let ran = bench.run("last", &["plant,id=p2", "--format", "csv"]).ok();
    assert_eq!(
        ran.stdout,
        "stream,field,time,value\n\"plant,id=p2\",temp,2013-07-04T00:09:59Z,4.0\n\"plant,id=p2\",name,2013-07-04T00:09:59Z,n599\n"
    );
    let ran = bench.run("last", &["plant.temp", "--format", "json"]).ok();
    assert_eq!(ran.json().as_array().unwrap().len(), 2);
}

#[test]
fn plots_fit_their_width_and_show_gaps() {
    let bench = filled();
    let ran = bench
        .run(
            "plot",
            &["plant,id=p2.temp", "--width", "60", "--height", "4"],
        )
        .ok();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(
        lines[0].starts_with("plant,id=p2.temp (f64)  2013-07-04T00:00:00Z … 2013-07-04T00:09:59Z"),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].starts_with("400 values, min 0.0, mean 2.98"),
        "{}",
        lines[1]
    );
    assert_eq!(lines.len(), 2 + 4 + 2);
    for line in &lines[2..7] {
        assert_eq!(line.chars().count(), 60, "{}", ran.stdout);
        let middle: String = line.chars().skip(23).take(12).collect();
        assert!(
            line.contains('─') || middle == "⠀".repeat(12),
            "{}",
            ran.stdout
        );
    }
    assert!(lines[7].contains("00:05"), "{}", ran.stdout);
    let ran = bench
        .run(
            "plot",
            &[
                "plant,id=p.1.ok",
                "plant,id=p.1.temp.out",
                "--from",
                "2013-07-04T00:01:00Z",
                "--to",
                "2013-07-04T00:01:05Z",
            ],
        )
        .ok();
    assert!(
        ran.stdout
            .contains("5 values, min 120, mean 124.000000, max 128"),
        "{}",
        ran.stdout
    );
    let ran = bench
        .run("plot", &["plant,id=p2.temp", "--from", "2020-01-01"])
        .ok();
    assert!(ran.stdout.contains("no values in this range"));
    assert_eq!(bench.run("plot", &["plant,id=p2.name"]).code, 1);
}

#[test]
fn stat_has_the_promised_figures() {
    let bench = filled();
    let json = bench.run("stat", &["--format", "json"]).ok().json();
    for key in [
        "events",
        "streams",
        "tables",
        "disk_bytes",
        "bytes_per_event",
        "wa_events",
        "wa_bytes",
        "partitions",
        "dead_bytes",
    ] {
        assert!(json[key].is_number(), "{key}: {json}");
    }
    assert_eq!(
        (json["events"].as_u64(), json["streams"].as_u64()),
        (Some(1_000), Some(2))
    );
    assert!(bench.run("stat", &[]).ok().stdout.contains("plant"));
}

#[test]
fn stat_tells_what_is_done_about_late_events() {
    let bench = Bench::new();
    // Every fourth event comes 600 places late.
    let mut rows: Vec<(i64, i64)> = (0..60_000)
        .map(|i| (if i % 4 == 0 { i + 600 } else { i }, i))
        .collect();
    rows.sort_unstable();
    let csv: String = rows
        .iter()
        .map(|(_, i)| format!("{},{}\n", 1_700_000_000 + i, i % 7))
        .collect();
    bench.import_csv(&format!("time,v\n{csv}"), &[]).ok();
    let json = bench
        .run("stat", &["--late", "--format", "json"])
        .ok()
        .json();
    let shards = json["shards"].as_array().unwrap();
    let busy = shards
        .iter()
        .find(|s| s["events_seen"].as_u64() > Some(0))
        .unwrap();
    assert_eq!(busy["adaptive"], true);
    let share = busy["late_share"].as_f64().unwrap();
    assert!((share - 0.25).abs() < 0.05, "{share}");
    assert!(busy["candidates"].as_array().unwrap().len() > 10, "{busy}");
    assert!(busy["paper"]["r_c"].as_f64() > Some(1.0), "{busy}");
    let text = bench.run("stat", &["--late"]).ok().stdout;
    for part in [
        "adaptive",
        "% late",
        "Algorithm 1",
        "one buffer",
        "after 600 s",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Before anything was seen.
    let text = filled().run("stat", &["--late"]).ok().stdout;
    assert!(text.contains("(adaptive)"), "{text}");
}

#[test]
fn check_finds_damage_and_the_rest_stays_readable() {
    let bench = filled();
    let ran = bench.run("check", &[]).ok();
    assert!(ran.stdout.starts_with("sound: "), "{}", ran.stdout);
    let segment = std::fs::read_dir(bench.db().join("segment"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.len() / 8;
    bytes[at] ^= 0x55;
    std::fs::write(&segment, bytes).unwrap();
    let ran = bench.run("check", &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stdout.contains("damaged: ")
            && ran.stdout.contains("expected")
            && ran.stdout.contains("found"),
        "{ran:?}"
    );
    assert_eq!(bench.run("stat", &[]).code, 0);
}

#[test]
fn compaction_changes_no_row() {
    let bench = filled();
    let before = bench.exported("plant");
    bench.run("compact", &[]).ok();
    assert_eq!(bench.exported("plant"), before);
}

#[test]
fn a_closed_stdout_ends_the_program_quietly() {
    let bench = filled();
    let mut child = program()
        .args(["export", "--table", "plant", "--db"])
        .arg(bench.db())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), stderr.as_str()),
        (Some(0), "")
    );
}
