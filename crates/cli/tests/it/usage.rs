//! Exit codes, messages and help.

use crate::support::{Bench, program};
use std::path::Path;

fn output(arguments: &[&str]) -> (i32, String, String) {
    let output = program().args(arguments).output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn wrong_usage_is_code_2() {
    for arguments in [
        &["frobnicate"][..],
        &[],
        &["stat"],
        &["stat", "--db", "x", "--format", "xml"],
        &["export", "--db", "x"],
        &["import", "--db", "x", "--table", "t", "--time", "time"],
        &["aggregate", "--db", "x", "a.b", "--every", "5 minutes"],
        &["aggregate", "--db", "x", "a.b", "--from", "yesterday"],
        &["stat", "--db", "x", "--memory", "much"],
    ] {
        let (code, stdout, stderr) = output(arguments);
        assert_eq!(code, 2, "{arguments:?}");
        assert!(stdout.is_empty() && !stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_database_that_is_not_there_is_code_1_and_is_not_made() {
    let bench = Bench::new();
    for (command, arguments) in [
        ("stat", &[][..]),
        ("check", &[]),
        ("last", &["t"]),
        ("influxql", &["SELECT v FROM t"]),
        ("scan", &["t"]),
        ("export", &["--table", "t"]),
        ("tile", &["t.f", "0", "0"]),
        ("plot", &["t.f"]),
        ("compact", &[]),
    ] {
        let ran = bench.run(command, arguments);
        assert_eq!(ran.code, 1, "{command}: {ran:?}");
        assert!(
            ran.stderr.contains("no database here"),
            "{command}: {}",
            ran.stderr
        );
        assert!(!bench.db().exists(), "{command}");
    }
}

#[test]
fn the_directory_may_come_from_the_environment() {
    let bench = Bench::new();
    bench.import_lines("t v=1 1\n").ok();
    let output = program()
        .args(["last", "t", "--format", "csv"])
        .env("HEADWATER_DB", bench.db())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "stream,field,time,value\nt,v,1970-01-01T00:00:00.000000001Z,1.0\n"
    );
}

#[test]
fn version_is_told() {
    let (code, stdout, _) = output(&["--version"]);
    assert_eq!((code, stdout.starts_with("headwater 0.")), (0, true));
}

/// The help is part of the promise to users. After a change on purpose:
/// `UPDATE_HELP=1 cargo test -p headwater-cli help`.
#[test]
fn help_texts_are_as_they_were() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/help");
    let sql: &[&str] = if cfg!(feature = "sql") {
        &[
            "query",
            "sql",
            "lake",
            "lake write",
            "lake status",
            "lake verify",
            "lake rebuild",
        ]
    } else {
        &[]
    };
    let others = [
        "",
        "import",
        "export",
        "scan",
        "last",
        "influxql",
        "aggregate",
        "tile",
        "plot",
        "stat",
        "analyze",
        "check",
        "backup",
        "restore",
        "repair",
        "compact",
        "delete",
        "table",
        "table create",
        "table alter",
        "table show",
        "table drop",
        "tier",
        "tier show",
        "tier use",
        "tier leave",
        "tier adopt",
        "snapshot",
        "snapshot create",
        "snapshot list",
        "snapshot drop",
        "diff",
        "demo",
        "token",
        "token create",
        "token list",
        "token revoke",
        "rights",
        "rights show",
        "rights rotate",
        "notices",
        "notices rules",
        "block",
        "edges",
        "edges replace",
        "edges rename",
        "edges remove",
        "edges add",
        "edges move",
        "edges tag",
        "edges parts",
        "edges undo",
        "watch",
        "watch list",
        "watch follow",
        "watch dead",
    ];
    for command in others.iter().chain(sql) {
        let mut arguments: Vec<&str> = command.split_terminator(' ').collect();
        arguments.push("--help");
        let (code, stdout, _) = output(&arguments);
        assert_eq!(code, 0, "{command}");
        let name = if command.is_empty() {
            "headwater".to_owned()
        } else {
            command.replace(' ', "_")
        };
        let path = dir.join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_HELP").is_some() {
            std::fs::write(&path, &stdout).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            stdout, expected,
            "help of `{command}`; UPDATE_HELP=1 accepts it"
        );
    }
}

/// The texts of settings are those of the table, which is the page's test; here, that every one has
/// a flag.
#[test]
fn every_setting_of_the_server_has_a_flag_with_its_help() {
    for command in ["serve", "config"] {
        let (code, stdout, _) = output(&[command, "--help"]);
        assert_eq!(code, 0);
        for setting in headwater_server::settings::table() {
            let flag = format!("--{}", setting.flag());
            assert!(stdout.contains(&flag), "{command}: {flag}");
            assert!(stdout.contains(setting.about), "{command}: {flag}");
        }
    }
}

#[test]
fn a_stream_that_is_not_there_is_told_as_that_and_times_may_be_relative() {
    let bench = Bench::new();
    bench
        .import_lines("t01,dev=a v=1 1700000000000000000\n")
        .ok();
    let ran = bench.run("scan", &["t01,dev=zz"]);
    assert!(
        ran.code == 1 && ran.stderr.contains("it matches no stream and no field"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("t01,dev=a"), "{ran:?}");
    let ran = bench.run("scan", &["t01,dev=a", "--from", "now-1h"]).ok();
    assert!(!ran.stdout.contains("1700000000"), "{ran:?}");
    let ran = bench.run("scan", &["t01,dev=a", "--to", "now-1h"]).ok();
    assert!(ran.stdout.lines().count() >= 2, "{ran:?}");
}

#[test]
fn a_file_with_other_characters_between_cells_says_what_to_do() {
    let bench = Bench::new();
    for (c, hint) in [
        (";", "--delimiter ';'"),
        ("\t", "--delimiter tab"),
        ("|", "--delimiter '|'"),
    ] {
        let csv = format!("time{c}dev{c}v\n2024-01-01T00:00:00Z{c}a{c}1\n");
        let ran = bench.import_csv(&csv, &["--tag", "dev"]);
        assert!(ran.code == 2 && ran.stderr.contains(hint), "{ran:?}");
    }
}
