//! `analyze`: recordings in files and in a database.

use crate::support::{Bench, program};
use std::io::Write;
use std::process::Stdio;

/// Two devices, an event a second of each; every tenth of device a arrives 40 s late, and b lives
/// an hour behind.
fn recording() -> String {
    let mut rows: Vec<(i64, String)> = Vec::new();
    for i in 0..4_000i64 {
        let now = 1_700_000_000 + i;
        let delay = if i % 10 == 0 { 40 } else { 0 };
        rows.push((now + delay, format!("a,{now},{}", now + delay)));
        rows.push((now, format!("b,{},{now}", now - 3600)));
    }
    rows.sort_by_key(|row| row.0);
    let lines: Vec<String> = rows.into_iter().map(|row| row.1).collect();
    format!("device,sent,received\n{}\n", lines.join("\n"))
}

fn analyze(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = program()
        .arg("analyze")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read.
    let _refused = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_file_is_studied_before_anything_is_stored() {
    let arguments = [
        "--generation",
        "sent:s",
        "--arrival",
        "received:s",
        "--by",
        "device",
        "--memory-events",
        "512",
        "--leaf",
        "128",
        "--late-runs",
        "0",
        "-",
    ];
    let mut json_arguments = arguments.to_vec();
    json_arguments.extend(["--format", "json"]);
    let (code, stdout, stderr) = analyze(&json_arguments, &recording());
    assert_eq!(code, 0, "{stderr}");
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (json["events"].as_u64(), json["devices"].as_u64()),
        (Some(8000), Some(2))
    );
    // 400 late ones of device a, but for the last few, which nothing newer came before.
    let inside = json["out_of_order_inside"].as_u64().unwrap();
    assert!((390..=400).contains(&inside), "{inside}");
    assert!(json["out_of_order_across"].as_u64() > Some(4000));
    assert_eq!(json["memory_events"].as_f64(), Some(256.0));
    assert_eq!(json["interval_ns"].as_f64(), Some(1e9));
    assert!(json["advice"].is_string(), "{json}");
    let candidates = json["candidates"].as_array().unwrap();
    assert!(candidates.len() > 16);
    for candidate in candidates {
        let (predicted, replayed) = (
            candidate["wa_predicted"].as_f64().unwrap(),
            candidate["wa_replayed"].as_f64().unwrap(),
        );
        assert!(predicted >= 1.0 && replayed >= 1.0, "{candidate}");
    }
    let (code, text, _) = analyze(&arguments, &recording());
    assert_eq!(code, 0);
    for part in [
        "8,000 events of 2 devices",
        "advice: ",
        "Algorithm 1",
        "█",
        "predicted",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_stream_that_holds_its_times_of_arrival_is_studied() {
    let bench = Bench::new();
    bench
        .import_csv(
            &recording().replace("device,sent,received", "device,time,received"),
            &["--tag", "device", "--type", "received:i64"],
        )
        .ok();
    let db = bench.db();
    let db = db.to_str().unwrap();
    let (code, stdout, stderr) = analyze(
        &["--db", db, "t.received", "--unit", "s", "--format", "json"],
        "",
    );
    assert_eq!(code, 0, "{stderr}");
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (json["events"].as_u64(), json["devices"].as_u64()),
        (Some(8000), Some(2))
    );
    let inside = json["out_of_order_inside"].as_u64().unwrap();
    assert!((390..=400).contains(&inside), "{inside}");
}

#[test]
fn what_is_missing_is_named() {
    let (code, _, stderr) = analyze(&["-"], "a,b\n1,2\n");
    assert!(
        code == 2 && stderr.contains("--generation"),
        "{code} {stderr}"
    );
    let (code, _, stderr) = analyze(&["--generation", "a", "-"], "a,b\n1,2\n");
    assert!(code == 2 && stderr.contains("--arrival"), "{code} {stderr}");
    let (code, _, stderr) = analyze(
        &["--generation", "a:s", "--arrival", "b:s", "-"],
        "a,b\nx,2\n",
    );
    assert!(code == 1 && stderr.contains("no event"), "{code} {stderr}");
}
