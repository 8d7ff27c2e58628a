//! How much memory a write takes.

use crate::support::{Bench, START, options};
use headwater::{Batch, Options, Reader, StreamName};
use headwater_testing::Dice;
use std::path::Path;
use std::process::Command;

/// Says to a process of its own which folder has the database, and gets the lake.
const FOLDER: &str = "HEADWATER_TEST_LAKE_FOLDER";
const NAME: &str = "memory::a_day_of_a_million_rows_is_never_held_as_a_whole";

/// A figure of this process as the kernel tells it, in bytes.
fn proc_status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

/// Writes the lake beside the process that owns the database, and prints what that took.
fn write_alone(folder: &Path) {
    let mut of = Options::new(folder.join("db"));
    of.memory_budget_bytes = 4 << 20;
    let reader = Reader::open(of).unwrap();
    let mut options = options();
    options.row_group_bytes = 1 << 20;
    let before = proc_status_bytes("VmRSS");
    let look = || Ok(reader.snapshot());
    let written = headwater_lake::write(&look, &folder.join("lake"), &options).unwrap();
    assert_eq!(
        (written.tables[0].rows, written.tables[0].files),
        (1_000_000, 1),
        "{written:?}"
    );
    println!("took {} bytes", proc_status_bytes("VmHWM") - before);
}

#[test]
fn a_day_of_a_million_rows_is_never_held_as_a_whole() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write_alone(Path::new(&folder));
    }
    let bench = Bench::new();
    let mut dice = Dice(3);
    for part in 0..100i64 {
        let mut batch = Batch::new();
        let stream = StreamName::new("wide", [("id", (part % 4).to_string())]);
        let entry = batch.stream(&stream);
        for at in 0..10_000 {
            let time = START + (part * 10_000 + at) * 50_000;
            let text = format!(
                "{:016x}{:016x}{:016x}",
                dice.next(),
                dice.next(),
                dice.next()
            );
            let value = dice.next() as f64;
            let fields = [("v", value.into()), ("text", text.as_str().into())];
            entry.row(time, fields).unwrap();
        }
        bench.db().commit(batch).unwrap();
    }
    bench.db().flush().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", NAME, "--nocapture"]);
    let output = child
        .env(FOLDER, bench.lake().parent().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let took = said
        .split("took ")
        .nth(1)
        .and_then(|said| said.split(' ').next());
    let took: u64 = took
        .and_then(|took| took.parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    // Its rows are 64 bytes each.
    assert!(took < 32 << 20, "{took} bytes for a day of 64 MB");
    let snapshot = bench.db().snapshot().unwrap();
    let verified = headwater_lake::verify(&snapshot, &bench.lake(), false).unwrap();
    assert!(
        verified.is_sound() && verified.tables[0].days == 1,
        "{verified:?}"
    );
}
