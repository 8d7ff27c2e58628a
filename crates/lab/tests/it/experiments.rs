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
