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

/// The experiment itself compares what the stores give back with what they were given, and with each other.
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
            // 15,000 points are 300 windows of 5 s, or one of 1,500 s; the paper's SQLite writes a twentieth at least.
            let calls = round["operations"].as_u64().unwrap();
            let expected: &[u64] = if write["width_seconds"] == 5 {
                &[300, 20]
            } else {
                &[1]
            };
            assert!(expected.contains(&calls), "{write}");
            if ours && write["durability"] == "synced" && write["width_seconds"] == 5 {
                assert_eq!(round["syncs"], 300, "one sync a call");
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
