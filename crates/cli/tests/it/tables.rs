//! `headwater table`.

use crate::support::Bench;

#[test]
fn tables_are_declared_changed_and_shown() {
    let bench = Bench::new();
    bench
        .run(
            "table create",
            &[
                "plant",
                "--field",
                "temp:f64",
                "--field",
                "a:b:i64",
                "--duplicates",
                "keep",
                "--leaf-events",
                "512",
            ],
        )
        .ok();
    bench
        .run(
            "table alter",
            &[
                "plant",
                "--field",
                "name:string",
                "--field",
                "a:b:f64",
                "--leaf-events",
                "1024",
            ],
        )
        .ok();
    let json = bench.run("table show", &["--format", "json"]).ok().json();
    assert_eq!(
        json,
        serde_json::json!([{
            "name": "plant", "duplicates": "keep", "leaf_events": 1024, "streams": 0, "tags": [],
            "fields": [{"name": "temp", "type": "f64"}, {"name": "a:b", "type": "f64"}, {"name": "name", "type": "string"}],
        }])
    );
    let ran = bench.run("table show", &["plant"]).ok();
    assert!(ran.stdout.contains("name   string"), "{}", ran.stdout);
}

#[test]
fn impossible_changes_are_refused() {
    let bench = Bench::new();
    assert_eq!(bench.run("table show", &[]).code, 1, "there is no database");
    bench
        .run("table create", &["plant", "--field", "temp:f64"])
        .ok();
    let code = |command: &str, arguments: &[&str]| bench.run(command, arguments).code;
    assert_eq!(code("table create", &["plant"]), 1);
    assert_eq!(code("table alter", &["plant", "--field", "temp:string"]), 1);
    assert_eq!(code("table alter", &["other", "--field", "temp:f64"]), 1);
    assert_eq!(code("table alter", &["plant"]), 2);
    assert_eq!(code("table create", &["x", "--field", "temp"]), 2);
    assert_eq!(code("table create", &["x", "--field", "temp:float"]), 2);
    assert_eq!(code("table show", &["other"]), 1);
}

const DAY_NS: i64 = 86_400_000_000_000;

/// An event an hour for so many hours, of two streams.
fn hours(count: i64, now: i64) -> String {
    (0..count)
        .flat_map(|i| {
            let at = now - (count - i) * 3_600_000_000_000;
            ["a", "b"].map(|id| format!("plant,id={id} temp={i} {at}\n"))
        })
        .collect()
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_nanos()).unwrap()
}

fn rows(bench: &Bench, address: &str) -> usize {
    let ran = bench.run("scan", &[address, "--format", "csv"]).ok();
    ran.stdout.lines().count() - 1
}

#[test]
fn ranges_streams_and_tables_are_deleted() {
    let bench = Bench::new();
    let start = 1_700_000_000_000_000_000;
    bench.import_lines(&hours(10, start)).ok();
    assert_eq!(
        bench.run("delete", &["plant"]).code,
        2,
        "nothing is said of the time"
    );
    assert_eq!(bench.run("delete", &["plant", "--drop-streams"]).code, 2);
    assert_eq!(bench.run("delete", &["other", "--all-time"]).code, 1);
    // A year is no instant where something is removed, nor are seconds to microseconds.
    for at in [
        "2020",
        "0",
        "-1",
        "1700000000",
        "1700000000000",
        "1700000000000000",
    ] {
        for end in ["--from", "--to"] {
            let ran = bench.run("delete", &["plant", end, at]);
            assert_eq!(ran.code, 2, "{end} {at}: {}", ran.stderr);
            assert!(ran.stderr.contains("-01-01T00:00:00Z"), "{}", ran.stderr);
        }
    }
    let ran = bench.run("delete", &["plant", "--to", "1970-01-02"]).ok();
    assert!(
        ran.stderr.starts_with("nothing was deleted"),
        "{}",
        ran.stderr
    );
    let to = (start - 4 * 3_600_000_000_000).to_string();
    let ran = bench
        .run("delete", &["plant", "--where", "id=a", "--to", &to])
        .ok();
    assert_eq!(ran.stderr, "deleted from 1 stream\n");
    assert_eq!(
        (rows(&bench, "plant,id=a"), rows(&bench, "plant,id=b")),
        (4, 10)
    );
    let ran = bench
        .run("delete", &["plant", "--where", "id=a", "--drop-streams"])
        .ok();
    assert_eq!(ran.stderr, "dropped 1 stream\n");
    assert_eq!(bench.run("scan", &["plant,id=a"]).code, 1);
    bench.run("delete", &["plant", "--all-time"]).ok();
    assert_eq!(rows(&bench, "plant,id=b"), 0);
    assert_eq!(
        bench.run("table drop", &["plant"]).code,
        1,
        "not without --yes"
    );
    bench.run("table drop", &["plant", "--yes"]).ok();
    assert_eq!(bench.run("table drop", &["plant", "--yes"]).code, 1);
    assert_eq!(
        bench.run("table show", &["--format", "json"]).ok().json(),
        serde_json::json!([])
    );
    bench.run("check", &[]).ok();
}

#[test]
fn retention_is_set_shown_and_carried_out() {
    let bench = Bench::new();
    bench.import_lines(&hours(20 * 24, now())).ok();
    bench
        .run(
            "table alter",
            &["plant", "--retention", "10d", "--raw-for", "5d"],
        )
        .ok();
    bench.run("compact", &["--rate", "100MB"]).ok();
    let shown = bench.run("table show", &["--format", "json"]).ok().json();
    assert_eq!(shown[0]["retention"], "10d");
    assert!(
        shown[0]["cut"].is_string() && shown[0]["aged_to"].is_string(),
        "{shown}"
    );
    let left = rows(&bench, "plant,id=a");
    assert!((5 * 24 - 1..8 * 24).contains(&left), "{left}");
    let ran = bench
        .run("aggregate", &["plant,id=a.temp", "--format", "json"])
        .ok();
    let count = ran.json()[0]["count"].as_u64().unwrap();
    assert!((10 * 24 - 1..=11 * 24).contains(&count), "{count}");
    let old = format!("plant,id=a temp=1 {}\n", now() - 15 * DAY_NS);
    let ran = bench.import_lines(&old);
    assert!(
        ran.code == 1 && ran.stderr.contains("E_TIME_ENDED"),
        "{ran:?}"
    );
    bench
        .run("table alter", &["plant", "--retention", "forever"])
        .ok();
    let shown = bench.run("table show", &["--format", "json"]).ok().json();
    assert!(shown[0].get("retention").is_none(), "{shown}");
    assert_eq!(
        bench
            .run("table alter", &["plant", "--retention", "soon"])
            .code,
        2
    );
    bench.run("check", &[]).ok();
}
