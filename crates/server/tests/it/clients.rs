//! The Python packages `influxdb` (for version 1) and `influxdb-client` (for version 2), as they
//! come from PyPI.

use crate::support::Running;
use headwater::{Database, StreamName, Value};
use headwater_testing::{or_skip, python, run};
use std::path::Path;
use std::process::Command;

const PACKAGES: [&str; 2] = ["influxdb==5.3.2", "influxdb-client==1.50.0"];

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
