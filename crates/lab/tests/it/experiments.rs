//! Experiments run small, so that they cannot rot.

use std::path::Path;
use std::process::Command;

#[test]
fn data_gives_a_table_and_json() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let json = scratch.join("data.json");
    let ran = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["data", "--only", "weather_nyc_2013", "--runs", "1", "--dir"])
        .arg(top.join("data"))
        .arg("--scratch")
        .arg(scratch)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(
        text.starts_with("machine: ") && text.contains("| weather_nyc_2013 | 26115 |"),
        "{text}"
    );
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let file = &report["files"][0];
    // Stored once, in order; nothing is written that nobody reads.
    assert_eq!(
        (&file["events"], &file["streams"]),
        (&26_115.into(), &3.into())
    );
    assert_eq!(file["wa_events"], 1.0);
    let number = |name: &str| file[name].as_f64().unwrap();
    assert!(
        number("bytes_per_event") < 15.0 && number("wa_bytes") < 1.0,
        "{file}"
    );
    assert!(
        number("rows_per_second") > 0.0 && number("sync_median_us") > 0.0,
        "{file}"
    );
    // The same rows in Parquet; weather is numbers but for the tail numbers of aircraft.
    assert!(
        number("parquet_bytes_per_event") > 5.0 && number("text_percent") < 50.0,
        "{file}"
    );
    assert_judged(&report, 1);
}

/// Runs an experiment in the scratch directory and gives what it printed and its JSON report.
fn lab(name: &str, arguments: &[&str]) -> (String, serde_json::Value) {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let json = scratch.join(format!("{name}.json"));
    let ran = Command::new(env!("CARGO_BIN_EXE_lab"))
        .arg(name)
        .args(["--rounds", "2", "--warm-up", "0", "--scratch"])
        .arg(scratch)
        .arg("--json")
        .arg(&json)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    (String::from_utf8(ran.stdout).unwrap(), report)
}

/// The experiment itself compares what the stores give back with what they were given, and with
/// each other.
#[test]
fn golsm_finds_the_same_points_in_every_store_and_judges_every_target() {
    let (text, report) = lab(
        "golsm",
        &[
            "--widths",
            "5,1500",
            "--points",
            "15000",
            "--random-points",
            "60000",
            "--seconds",
            "2500",
            "--reads",
            "20",
        ],
    );
    let writes = report["figures"]["writes"].as_array().unwrap();
    assert_eq!(writes.len(), 2 * 2 * 4, "durabilities, widths, stores");
    for write in writes {
        let taken = write["rounds"]["taken"].as_array().unwrap();
        assert_eq!(taken.len(), 2);
        for round in taken {
            let ours = write["rounds"]["name"] == "headwater";
            // 15,000 points are 300 windows of 5 s, or one of 1,500 s; the paper's SQLite writes a
            // twentieth at least.
            let calls = round["operations"].as_u64().unwrap();
            let expected: &[u64] = if write["width_seconds"] == 5 {
                &[300, 20]
            } else {
                &[1]
            };
            assert!(expected.contains(&calls), "{write}");
            if ours && write["durability"] == "synced" && write["width_seconds"] == 5 {
                let syncs = round["syncs"].as_u64().unwrap();
                assert!((300..=302).contains(&syncs), "one sync a call: {round}");
            }
            if ours && write["durability"] == "unsynced" {
                assert_eq!(round["syncs"], 0);
            }
        }
    }
    assert_eq!(report["figures"]["random"].as_array().unwrap().len(), 2 * 3);
    assert_eq!(report["figures"]["reads"].as_array().unwrap().len(), 3 * 8);
    let targets = report["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 7 + 2 + 9 + 1, "{targets:?}");
    for target in targets {
        assert!(target["measured"].as_f64().unwrap() > 0.0, "{target}");
        assert!(text.contains(target["what"].as_str().unwrap()));
    }
}

/// What was measured of each target is a positive number.
fn assert_judged(report: &serde_json::Value, targets: usize) {
    let judged = report["targets"].as_array().unwrap();
    assert_eq!(judged.len(), targets, "{judged:?}");
    for target in judged {
        assert!(target["measured"].as_f64().unwrap() > 0.0, "{target}");
    }
}

/// The experiment compares every point with what was written.
#[test]
fn respawn_counts_points_syncs_and_reads() {
    let (_, report) = lab(
        "respawn",
        &["--points", "20000", "--batch", "500", "--reads", "12"],
    );
    let ingest = report["figures"]["ingest"].as_array().unwrap();
    assert_eq!(ingest.len(), 5);
    for round in ingest.iter().flat_map(|r| r["taken"].as_array().unwrap()) {
        assert_eq!(round["operations"], 20_000);
    }
    let syncs = |at: usize| ingest[at]["taken"][0]["syncs"].as_u64().unwrap();
    // The definitions of table and stream may be synced by themselves, when the log's own thread is
    // the first to see them.
    assert!((40..=42).contains(&syncs(0)), "a sync for each batch");
    assert!((1..=42).contains(&syncs(1)), "eight in flight share syncs");
    assert_eq!(syncs(2), 0, "unsynced");
    let reads = report["figures"]["reads"].as_array().unwrap();
    assert_eq!(reads.len(), 4);
    assert_eq!(reads[0]["taken"][0]["operations"], 12);
    assert_judged(&report, 3 + 1 + 4);
}

/// The experiment compares the stored rows of every order of arrival with those that were made.
#[test]
fn events_stores_the_same_rows_in_any_order_of_arrival() {
    let (_, report) = lab(
        "events",
        &[
            "--events", "30000", "--batch", "1000", "--places", "50", "--late", "0,10",
        ],
    );
    let streams = report["figures"]["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 4);
    for stream in streams {
        let wa = stream["wa_events"].as_f64().unwrap();
        if stream["late_percent"] == 0 {
            assert_eq!(wa, 1.0, "in order, each event is stored once");
        }
        assert!((1.0..3.0).contains(&wa), "{stream}");
        assert!(stream["wa_events_settled"].as_f64().unwrap() >= wa);
        assert_eq!(stream["rounds"]["taken"][1]["operations"], 30_000);
    }
    assert_eq!(
        report["figures"]["copy_and_pco"]["taken"][0]["operations"],
        30_000
    );
    assert_judged(&report, 3 + 6);
}

/// The experiment compares what every device holds with what was made.
#[test]
fn bulk_stores_every_row_of_every_device_both_ways() {
    let (_, report) = lab(
        "bulk",
        &[
            "--devices",
            "7",
            "--fields",
            "11",
            "--values",
            "77000",
            "--batch",
            "130",
        ],
    );
    let ways = report["figures"]["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 4);
    assert_eq!(report["figures"]["values"], 77_000);
    for way in ways {
        assert_eq!(way["wa_events"], 1.0, "{way}");
        let taken = &way["rounds"]["taken"][0];
        // 1,000 rows of 7 devices: 8 batches each, or 54 of all together.
        let batches = if way["by_device"] == true { 56 } else { 54 };
        let syncs = taken["syncs"].as_u64().unwrap();
        // Definitions may be synced by themselves: of the table, and of streams that are new in a
        // batch.
        let definitions = 1 + 7;
        let least = if way["in_flight"] == 1 { batches } else { 1 };
        assert!((least..=batches + definitions).contains(&syncs), "{way}");
    }
    assert_judged(&report, 8);
}

/// The processes check that every event and every newest value is there after the kill.
#[test]
fn memory_fills_kills_and_reopens() {
    let (text, report) = lab(
        "memory",
        &[
            "--events",
            "200000",
            "--devices",
            "5",
            "--streams",
            "3000",
            "--rounds-each",
            "4",
        ],
    );
    let cases = report["figures"].as_array().unwrap();
    let names: Vec<&str> = cases.iter().map(|c| c["case"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["events-64", "events-16", "streams-64", "streams-16"]
    );
    for (case, events) in cases.iter().zip([200_000, 200_000, 12_000, 12_000]) {
        for task in ["fill", "open", "last"] {
            assert_eq!(case[task]["events"], events, "{text}");
            assert!(case[task]["peak_bytes"].as_u64().unwrap() > 1 << 20);
        }
        // Killed, so the log has what was not yet flushed.
        assert!(case["open"]["replayed"].as_u64().unwrap() > 0);
    }
    assert_judged(&report, 4 * 2 + 2);
}

/// The experiment compares overviews with SQLite's, and the count of every tile with the seconds it
/// spans.
#[test]
fn tiles_count_every_point_and_agree_with_sqlite() {
    let (_, report) = lab(
        "tiles",
        &[
            "--points",
            "20000",
            "--large",
            "50000",
            "--tiles",
            "15",
            "--overviews",
            "1000,20000",
            "--batches",
            "10,1000",
            "--batch-points",
            "3000",
        ],
    );
    let figures = &report["figures"];
    let tiles = figures["tiles"].as_array().unwrap();
    assert_eq!(tiles.len(), 7);
    for kind in tiles {
        assert_eq!(kind["tiles"], 2 * 15, "two rounds: {kind}");
    }
    let growth = figures["growth"].as_array().unwrap();
    let points: Vec<u64> = growth
        .iter()
        .map(|g| g["points"].as_u64().unwrap())
        .collect();
    assert_eq!(points, [5_000; 10]);
    let overviews = figures["overviews"].as_array().unwrap();
    assert_eq!(
        overviews.len(),
        2 * 2 + 1,
        "sizes, stores, the larger store"
    );
    let batches = figures["batches"].as_array().unwrap();
    assert_eq!(batches.len(), 2 * 2 * 2, "sizes, durabilities, stores");
    for batch in batches {
        assert_eq!(batch["taken"][0]["operations"], 3_000);
    }
    assert_judged(&report, 2 + 4 + 3 + 1 + 1 + 2 + 1);
}

/// The experiment looks for everything that was acknowledged in the database that the server
/// leaves.
#[test]
fn server_writes_over_http_and_finds_everything_again() {
    let (text, report) = lab(
        "server",
        &[
            "--part",
            "writing",
            "--values",
            "40000",
            "--requests",
            "2000",
        ],
    );
    assert!(
        text.contains("| one line a request, 256 connections |"),
        "{text}"
    );
    let cases = report["figures"]["writing"]["cases"].as_array().unwrap();
    let counts: Vec<(u64, u64, u64)> = cases
        .iter()
        .map(|c| {
            let count = |name: &str| c[name].as_u64().unwrap();
            (count("requests"), count("values"), count("connections"))
        })
        .collect();
    let expected = [
        (4, 40_000, 2),
        (4, 40_000, 2),
        (2_000, 20_000, 64),
        (2_000, 20_000, 256),
    ];
    assert_eq!(counts, expected);
    for case in cases {
        let number = |name: &str| case[name].as_f64().unwrap();
        assert!(
            number("values_per_second") > 0.0 && number("peak_bytes") > 0.0,
            "{case}"
        );
        assert!(
            number("bytes_per_value_settled") > 1.0 && number("sync_median_us") > 0.0,
            "{case}"
        );
    }
    assert_judged(&report, 7);
}

#[test]
fn server_tells_what_it_takes_to_idle() {
    let (text, report) = lab("server", &["--part", "idle"]);
    assert!(text.contains("start to ready"), "{text}");
    let idle = &report["figures"]["idle"];
    assert!(idle["ready_milliseconds"].as_f64().unwrap() > 0.0);
    assert!(idle["peak_bytes"].as_u64().unwrap() > 1 << 20);
    assert_judged(&report, 2);
}

/// The experiment looks at the answers itself before it counts them.
#[test]
fn server_asks_every_question_of_a_process_of_its_own() {
    let (text, report) = lab(
        "server",
        &[
            "--part",
            "reading",
            "--points",
            "70000",
            "--rows",
            "200",
            "--seconds",
            "0.05",
            "--connections",
            "3",
        ],
    );
    assert!(
        text.contains("| count of all points of the channel | 1 |"),
        "{text}"
    );
    // So few points that formatted tiles are kept, which is told.
    let told = "tile of rows, formatted anew (1): all its forms fit the cache of tiles";
    assert!(text.contains(told), "{text}");
    let reading = &report["figures"]["reading"];
    let rows = reading["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        let connections = row["connections"].as_u64().unwrap();
        assert!([1, 3].contains(&connections), "{row}");
        // Each connection of each of the two rounds asks at least once.
        assert!(row["asked"].as_u64().unwrap() >= 2 * connections, "{row}");
        assert!(row["body_bytes"].as_u64().unwrap() > 20, "{row}");
    }
    assert!(reading["peak_bytes"].as_u64().unwrap() > 1 << 20);
    assert_judged(&report, 9);
}

/// The first answer to each question is looked at.
#[test]
fn server_searches_many_streams() {
    let arguments = ["--part", "search", "--streams", "6000", "--seconds", "0.05"];
    let (text, report) = lab("server", &arguments);
    assert!(text.contains("| a search that finds one | 1 |"), "{text}");
    let rows = report["figures"]["search"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["asked"].as_u64().unwrap() >= 2));
    assert_judged(&report, 4);
}

/// Each message that the broker took is in the database.
#[test]
fn mqtt_stores_what_the_broker_takes() {
    if !headwater_testing::has_broker() {
        return;
    }
    let (text, report) = lab("mqtt", &["--messages", "4000", "--window", "50"]);
    assert!(text.contains("| 4000 messages, 4 clients |"), "{text}");
    let figures = &report["figures"];
    for name in [
        "messages_per_second",
        "published_per_second",
        "server_cpu_us_per_message",
        "server_peak_bytes",
    ] {
        assert!(figures[name].as_f64().unwrap() > 0.0, "{name}: {figures}");
    }
    assert_judged(&report, 1);
}

/// Each parser's rows are counted by the experiment itself.
#[test]
fn parse_reads_every_line_by_every_parser() {
    let (text, report) = lab("parse", &["--lines", "3000"]);
    assert!(text.contains("influxdb-line-protocol"), "{text}");
    let texts = report["figures"]["texts"].as_array().unwrap();
    let parsers = texts.iter().map(|t| t["rounds"].as_array().unwrap().len());
    assert_eq!(parsers.collect::<Vec<_>>(), [3, 3]);
    assert_judged(&report, 2);
}

/// Every question counts each point once, however often it was written.
#[test]
fn overwrite_counts_every_point_once() {
    let (_, report) = lab("overwrite", &["--points", "200", "--questions", "20"]);
    assert_eq!(report["figures"]["resting"].as_array().unwrap().len(), 4);
    assert_judged(&report, 1);
}

/// Every scan counts its rows, and every read beside compaction finds all of its own.
#[test]
fn ways_scans_every_row_by_every_way_and_reads_beside_compaction() {
    let small = [
        "--points",
        "60000",
        "--streams",
        "3",
        "--reads",
        "5",
        "--read-us",
        "20",
    ];
    let (text, report) = lab("ways", &small);
    let scans = report["figures"]["cold"]["scans"].as_array().unwrap();
    assert_eq!(scans.len(), 4, "ways");
    let refused = !report["figures"]["cold"]["refused"].is_null();
    assert!(refused || text.contains("Depth of the medium"), "{text}");
    assert!(text.contains("a stand-in that sleeps"), "{text}");
    assert_eq!(report["figures"]["compaction"].as_array().unwrap().len(), 2);
    assert_judged(&report, if refused { 2 } else { 3 });
}

#[test]
fn queues_answers_every_request_of_every_way_and_judges_every_target() {
    let (text, report) = lab(
        "queues",
        &["--sources", "1,2", "--requests", "60", "--read-us", "20"],
    );
    let cells = report["figures"].as_array().unwrap();
    assert_eq!(cells.len(), 3 * 2 * 2, "workloads, sources, live and model");
    for cell in cells {
        let ways = cell["rounds"].as_array().unwrap();
        assert_eq!(ways.len(), 4);
        for way in ways {
            let rounds = way[1].as_array().unwrap();
            assert_eq!(rounds.len(), 2);
            for round in rounds {
                assert!(round["per_second"].as_f64().unwrap() > 0.0, "{cell}");
                assert!(round["p99_us"].as_f64().unwrap() > 0.0, "{cell}");
            }
        }
    }
    assert!(text.contains("stand-in") && text.contains("Model of events"));
    for row in ["T-1, T-3", "T-2", "T-5", "T-8", "T-9, T-11", "T-12", "T-13"] {
        assert!(text.contains(&format!("| {row} |")), "{row}: {text}");
    }
    // Writes of one and two sources, reads of two, tails of both. The lower end of an interval
    // over two rounds may be anything.
    let targets = report["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 5, "{targets:?}");
    for target in targets {
        assert!(target["measured"].as_f64().unwrap().is_finite(), "{target}");
    }
}

/// Every number of the paper's policies is of generated weeks, and so the same in every run.
#[test]
fn migration_tells_how_far_the_papers_policies_agree_with_the_paper() {
    let arguments = [
        "--visits",
        "3",
        "--model",
        "events",
        "--papers-only",
        "--seed",
        "2",
    ];
    let (text, report) = lab("migration", &arguments);
    let figures = &report["figures"];
    let models = figures["models"].as_array().unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!(models[0]["model"], "events");
    let rows = models[0]["rows"].as_array().unwrap();
    // Six policies at 5 % of tiles and five at 2 %, and three by channel at each.
    assert_eq!(rows.len(), 6 + 5 + 2 * 3);
    let mean = |what: &str| {
        let row = rows.iter().find(|row| row["what"] == what);
        row.unwrap()["mean_ms"].as_f64().unwrap()
    };
    let none = mean("paper, none: 5 % of tiles");
    assert_eq!(none, 340.0);
    for policy in ["periodic", "deviation", "both, in turn"] {
        let five = mean(&format!("paper by channel, {policy}: 5 % of tiles"));
        let two = mean(&format!("paper by channel, {policy}: 2 % of tiles"));
        assert!(five <= two && two <= none, "{text}");
    }
    assert!(mean("paper by channel, periodic: 2 % of tiles") < none);
    // Two weeks, five choices of sensors, two sizes of plots, 36 combinations of the rest.
    let sweep = figures["sweep"].as_array().unwrap();
    assert_eq!(sweep.len(), 2 * 5 * 2 * 36);
    let (_, again) = lab("migration", &arguments);
    assert_eq!(again["figures"], *figures);
    assert_judged(&report, 4);
}

/// The experiment compares every tile of a copy with its edge's, and fails if a query is not
/// answered or a cloud lacks what the dispatcher claims.
#[test]
fn load_answers_every_query_of_a_small_fleet() {
    let arguments = |only: &'static str| {
        let size = ["--edges", "8", "--users", "12", "--visits", "12"];
        [size.as_slice(), &["--only", only]].concat()
    };
    let fleet = |only| {
        let (text, report) = lab("load", &arguments(only));
        let fleets = report["figures"]["fleets"].as_array().unwrap().clone();
        assert_eq!(fleets.len(), 1, "{text}");
        (fleets[0]["outcome"].clone(), report)
    };
    let count = |outcome: &serde_json::Value, name: &str| outcome[name].as_u64().unwrap();
    let ways = [
        "by_base",
        "by_span",
        "by_filter",
        "by_connection_here",
        "by_connection_fetched",
        "to_edge",
    ];
    let (ahead, _) = fleet("5 % of the bytes ahead");
    assert!(count(&ahead, "asked") > 200);
    assert_eq!(count(&ahead, "asked"), count(&ahead, "answered"));
    let all: u64 = ways.iter().map(|way| count(&ahead, way)).sum();
    assert_eq!(all, count(&ahead, "asked"));
    for way in ["by_base", "by_connection_fetched", "to_edge"] {
        assert!(count(&ahead, way) > 0, "{way}: {ahead}");
    }
    assert!(
        count(&ahead, "most") > 340_000,
        "an edge is far away: {ahead}"
    );
    let (again, _) = fleet("5 % of the bytes ahead");
    assert_eq!(ahead, again);
    // With all rows at the clouds nobody goes to an edge.
    let (all_rows, report) = fleet("all rows of 90");
    assert!(count(&all_rows, "by_base") > 0);
    assert_judged(&report, 1);
}
