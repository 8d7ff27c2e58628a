//! The Python packages `influxdb` (for version 1) and `influxdb-client` (for version 2), as they
//! come from PyPI.
//!
//! They are installed once into the target folder. Where there is no Python, no pip or no way to
//! PyPI, the test says so and passes, unless `TEST_CLIENTS=required`, which CI sets.

use crate::support::Running;
use headwater::{Database, StreamName, Value};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const PACKAGES: [&str; 2] = ["influxdb==5.3.2", "influxdb-client==1.50.0"];

/// Runs a program; what it printed, or why it failed.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(format!(
            "{command:?}: {}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        ));
    }
    Ok(text(&output.stdout))
}

/// A Python that has these packages. They are installed by one test; others wait for it.
pub(crate) fn python(packages: &[&str]) -> Result<PathBuf, String> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{}", packages.join("-")));
    let python = folder.join("bin/python");
    let done = folder.join("done");
    if done.exists() {
        return Ok(python);
    }
    run(Command::new("python3")
        .arg("-m")
        .arg("venv")
        .arg("--clear")
        .arg(&folder))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--retries", "1"])
        .args(packages))?;
    std::fs::write(&done, "").map_err(|e| e.to_string())?;
    Ok(python)
}

/// What a test needs, or nothing where it is missing and need not be there.
pub(crate) fn or_skip<T>(found: Result<T, String>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(why) => {
            assert_ne!(
                std::env::var("TEST_CLIENTS").as_deref(),
                Ok("required"),
                "{why}"
            );
            eprintln!("skipped: {why}");
            None
        }
    }
}

fn last(db: &Database, device: &str, field: &str) -> Option<(i64, Value)> {
    let stream = StreamName::new("t", [("d", device)]);
    let last = db.snapshot().unwrap().last(&stream).unwrap_or_default();
    last.into_iter()
        .find(|l| l.field == field)
        .map(|l| (l.time.as_nanos(), l.value))
}

#[test]
fn the_influxdb_packages_can_write() {
    let Some(python) = or_skip(python(&PACKAGES)) else {
        return;
    };
    let server = Running::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients.py");
    let printed = run(Command::new(python)
        .arg(script)
        .arg(server.addr.port().to_string()))
    .unwrap();
    assert_eq!(printed.lines().last(), Some("done"), "{printed}");
    const S: i64 = 1_700_000_000_000_000_000;
    const MS: i64 = 1_000_000;
    server.stopped(|db| {
        let expected: [(&str, &str, i64, Value); 9] = [
            ("one-points", "v", S, Value::F64(0.5)),
            ("one-points", "n", S, Value::I64(7)),
            ("one-points", "ok", S, Value::Bool(true)),
            ("one-points", "text", S, Value::String("a \"b\"".to_owned())),
            ("one-ms", "v", S + 5 * MS, Value::F64(1.5)),
            ("one-gzip", "v", S, Value::F64(2.5)),
            ("two-point", "v", S + 1, Value::F64(3.5)),
            ("two-gzip", "v", S + 6 * MS, Value::F64(4.5)),
            (
                "two-batched",
                "v",
                S + 999 * 1_000_000_000,
                Value::F64(999.0),
            ),
        ];
        for (device, field, time, value) in expected {
            assert_eq!(
                last(db, device, field),
                Some((time, value)),
                "{device} {field}"
            );
        }
        assert_eq!(last(db, "two-partial", "v"), Some((S, Value::F64(1.0))));
    });
}
