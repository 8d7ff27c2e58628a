//! Answers to SQL compared with those of DuckDB (PyPI), statement by statement; the statements
//! stand in `duckdb/*.sql`.
//!
//! DuckDB reads the Parquet that `headwater export` writes, so that is compared as well. The
//! package is installed once.

use crate::support::{Bench, text};
use headwater_testing::{or_skip, python, recording_is_missing, run};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "duckdb==2.0.0";

/// Imports a table, exports it as Parquet, and compares.
fn compare(table: &str, arguments: &[&str], file: &Path) {
    let Some(python) = or_skip(python(&[PACKAGE])) else {
        return;
    };
    let bench = Bench::new();
    let mut all = vec!["--table", table];
    all.extend(arguments);
    all.push(text(file));
    bench.run("import", &all).ok();
    let parquet = bench.run_bytes("export", &["--table", table, "--format", "parquet"]);
    let parquet = bench.file(&format!("{table}.parquet"), parquet);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/duckdb");
    let compared = run(Command::new(python)
        .arg(here.join("compare.py"))
        .arg(env!("CARGO_BIN_EXE_headwater"))
        .args([bench.db(), parquet])
        .arg(here.join(format!("{table}.sql"))));
    match compared {
        Ok(said) => println!("{table}: {said}"),
        Err(differences) => panic!("{differences}"),
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn a_hundred_statements_about_weather_are_answered_as_by_duckdb() {
    let file = top().join("data/weather_nyc_2013.csv.gz");
    let mapping = [
        "--time",
        "epoch_ms:ms",
        "--tag",
        "origin",
        "--null",
        "NA",
        "--field",
        "month:i64",
        "--field",
        "hour:i64",
        "--field",
        "temp:f64",
        "--field",
        "dewp:f64",
        "--field",
        "humid:f64",
        "--field",
        "wind_dir:f64",
        "--field",
        "wind_speed:f64",
        "--field",
        "wind_gust:f64",
        "--field",
        "precip:f64",
        "--field",
        "pressure:f64",
        "--field",
        "visib:f64",
    ];
    compare("weather", &mapping, &file);
}

#[test]
fn statements_about_earthquakes_are_answered_as_by_duckdb() {
    let file = top().join("../shared/data/usgs_quakes_2020_snapshots.csv.gz");
    if !file.exists() {
        recording_is_missing("usgs_quakes_2020_snapshots.csv.gz");
        return;
    }
    let mapping = [
        "--time",
        "time:rfc3339",
        "--tag",
        "net",
        "--duplicates",
        "keep",
    ];
    compare("quakes", &mapping, &file);
}
