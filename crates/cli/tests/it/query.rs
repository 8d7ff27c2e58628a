//! `headwater query` and `headwater sql`.

use crate::serve::Served;
use crate::support::{Bench, Ran, program, text};
use std::io::Write;
use std::process::Stdio;

const LINES: &str = "\
t,d=a v=1.5,n=9007199254740993i 1700000000000000000
t,d=a v=2.5 1700000001000000000
t,d=b v=3.5,s=\"x,\\\"y\" 1700000002000000000
";

fn filled() -> Bench {
    let bench = Bench::new();
    bench.import_lines(LINES).ok();
    bench
}

fn query(bench: &Bench, arguments: &[&str]) -> Ran {
    bench.run("query", arguments)
}

/// Runs a command against a server.
fn remote(served: &Served, command: &str, arguments: &[&str], input: &str) -> Ran {
    let mut child = program()
        .args([command, "--url", &format!("http://{}", served.addr)])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn rows_are_printed_as_asked() {
    let bench = filled();
    let sql = "SELECT time, d, v, n, s FROM t ORDER BY time";
    assert_eq!(
        query(&bench, &[sql]).ok().stdout,
        "\
time                  d    v                 n  s
2023-11-14T22:13:20Z  a  1.5  9007199254740993
2023-11-14T22:13:21Z  a  2.5
2023-11-14T22:13:22Z  b  3.5                    x,\"y
"
    );
    assert_eq!(
        query(&bench, &["--format", "csv", sql]).ok().stdout,
        "\
time,d,v,n,s
2023-11-14T22:13:20Z,a,1.5,9007199254740993,
2023-11-14T22:13:21Z,a,2.5,,
2023-11-14T22:13:22Z,b,3.5,,\"x,\"\"y\"
"
    );
    let json = query(&bench, &["--format", "json", sql]).ok().json();
    assert_eq!(json["rows"][0][3], 9_007_199_254_740_993i64);
    let bytes = bench.run_bytes("query", &["--format", "arrow", sql]);
    let reader = arrow::ipc::reader::StreamReader::try_new(&bytes[..], None).unwrap();
    assert_eq!(reader.map(|b| b.unwrap().num_rows()).sum::<usize>(), 3);
    let plan = query(&bench, &["EXPLAIN SELECT * FROM t"]).ok().stdout;
    assert!(plan.contains("\nphysical_plan  "), "{plan}");
    let empty = query(&bench, &["SELECT v FROM t WHERE v > 9"]).ok().stdout;
    assert_eq!(empty, "v\n");
}

#[test]
fn statements_may_be_several_have_parameters_and_come_from_stdin() {
    let bench = filled();
    let two = "SELECT count(*) AS n FROM t;\nSELECT max(v) AS m FROM t;";
    assert_eq!(
        query(&bench, &[two]).ok().stdout,
        "n\n3\nm\n3.5\n".replace("m\n3", "  m\n3")
    );
    let arguments = [
        "--param",
        "a",
        "--param",
        "-2",
        "SELECT count(*) AS n FROM t WHERE d = $1 AND v > $2",
    ];
    assert_eq!(query(&bench, &arguments).ok().stdout, "n\n2\n");
    let ran = bench.run_with_input("query", &["--format", "csv", "-"], b"SELECT 1 AS x");
    assert_eq!(ran.ok().stdout, "x\n1\n");
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let bench = filled();
    let ran = query(&bench, &["SELECT 1 AS x;\nSELECT d,\n  velocity\nFROM t"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "x\n1\n"));
    assert!(
        ran.stderr.contains("line 3:   velocity\n          ^"),
        "{}",
        ran.stderr
    );
    let ran = query(&bench, &["SELECT * FROM u"]);
    assert!(
        ran.code == 1 && ran.stderr.contains("`u`"),
        "{}",
        ran.stderr
    );
    let (code, stderr) = {
        let output = program().args(["query", "SELECT 1"]).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert!(code == Some(2) && stderr.contains("--db DIR"), "{stderr}");
    let missing = Bench::new();
    let ran = query(&missing, &["SELECT 1"]);
    assert!(
        ran.code == 1 && ran.stderr.contains("no database here"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_directory_is_only_read_unless_its_owner_is_wanted() {
    let bench = filled();
    let insert = "INSERT INTO t (time, d, v) VALUES ('2024-01-01T00:00:00Z', 'c', 7)";
    let ran = query(&bench, &[insert]);
    assert_eq!(ran.code, 1);
    let ran = query(&bench, &["--write", insert]).ok();
    assert_eq!(ran.stdout, "done      count\ninserted      1\n");
    let count = "SELECT count(*) AS n FROM t";
    assert_eq!(
        query(&bench, &["--format", "csv", count]).ok().stdout,
        "n\n4\n"
    );
}

#[test]
fn files_are_written_whole_or_not_at_all() {
    let bench = filled();
    let path = |name: &str| text(&bench.path(name)).to_owned();
    for (statement, name) in [
        ("COPY (SELECT d, v FROM t ORDER BY v) TO '?'", "a.csv"),
        ("COPY t TO '?'", "b.parquet"),
        ("COPY t TO '?' (FORMAT json)", "c"),
    ] {
        let ran = query(&bench, &[&statement.replace('?', &path(name))]).ok();
        assert!(ran.stderr.contains("3 rows written"), "{}", ran.stderr);
        assert!(ran.stdout.is_empty() && bench.path(name).exists());
    }
    let csv = std::fs::read_to_string(bench.path("a.csv")).unwrap();
    assert_eq!(csv, "d,v\na,1.5\na,2.5\nb,3.5\n");
    // What is written as Parquet is a table again.
    let other = Bench::new();
    let file = path("b.parquet");
    let mapping = [
        "--format", "parquet", "--table", "t", "--time", "time", "--tag", "d", &file,
    ];
    other.run("import", &mapping).ok();
    assert_eq!(other.exported("t"), bench.exported("t"));

    let failing = format!("COPY (SELECT CAST(s AS INT) FROM t) TO '{}'", path("d.csv"));
    let ran = query(&bench, &[&failing]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(!bench.path("d.csv").exists() && !bench.path("d.csv.partial").exists());
    let ran = query(&bench, &["COPY (SELECT v,\n  w FROM t) TO 'x.csv'"]);
    assert!(ran.stderr.contains("line 2:   w FROM t"), "{}", ran.stderr);
}

#[test]
fn a_server_answers_as_a_directory_does() {
    let bench = filled();
    let served = Served::start(&bench.db(), &[]);
    for sql in [
        "SELECT * FROM t ORDER BY time",
        "SELECT d, sum(v), count(*) FROM t GROUP BY d ORDER BY d",
        "SHOW TABLES",
    ] {
        for format in ["table", "csv", "json"] {
            // The directory is read beside its owner.
            let local = query(&bench, &["--format", format, sql]).ok().stdout;
            let far = remote(&served, "query", &["--format", format, sql], "").ok();
            assert_eq!(far.stdout, local, "{sql}");
        }
    }
    let ran = remote(
        &served,
        "query",
        &["--param", "b", "SELECT v FROM t WHERE d = $1"],
        "",
    );
    assert_eq!(ran.ok().stdout, "  v\n3.5\n");
    let ran = remote(&served, "query", &["SELECT 1;\n SELECT w FROM t"], "");
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr
            .contains("line 2:  SELECT w FROM t\n                ^"),
        "{}",
        ran.stderr
    );
    let file = bench.path("far.parquet");
    let copy = format!("COPY t TO '{}'", text(&file));
    remote(&served, "query", &[&copy], "").ok();
    assert!(std::fs::read(&file).unwrap().starts_with(b"PAR1"));
    let insert = "INSERT INTO t (time, d, v) VALUES ('2024-01-01T00:00:00Z', 'c', 7)";
    let ran = remote(&served, "query", &["--format", "csv", insert], "");
    assert_eq!(ran.ok().stdout, "done,count\ninserted,1\n");
    let ran = remote(&served, "sql", &[], "SELECT count(*) AS n FROM t;\n");
    assert_eq!(ran.ok().stdout, "n\n4\n");
    served.end("-TERM").ok();
    let gone = program()
        .args(["query", "--url", "http://127.0.0.1:9", "SELECT 1"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(gone.stderr).unwrap();
    assert!(
        gone.status.code() == Some(1) && stderr.contains("is a server running there?"),
        "{stderr}"
    );
    let other = program()
        .args(["query", "--url", "ftp://localhost", "SELECT 1"])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn a_token_is_sent_and_decides_what_is_seen() {
    let bench = filled();
    let made = program()
        .args([
            "token", "create", "--name", "reader", "--read", "t,d=a", "--db",
        ])
        .arg(bench.db())
        .output()
        .unwrap();
    assert!(made.status.success());
    let token = String::from_utf8(made.stdout).unwrap();
    let served = Served::start(&bench.db(), &[]);
    let sql = "SELECT count(*) AS n FROM t";
    let ran = remote(&served, "query", &["--token", token.trim(), sql], "");
    assert_eq!(ran.ok().stdout, "n\n2\n");
    let ran = remote(&served, "query", &[sql], "");
    assert!(
        ran.code == 1 && ran.stderr.contains("token"),
        "{}",
        ran.stderr
    );
    served.end("-TERM").ok();
}

#[test]
fn the_prompt_reads_statements_and_commands() {
    let bench = filled();
    let typed = b"\\dt\n\\d t\nSELECT d,\n  max(v) AS m\nFROM t GROUP BY d\nORDER BY d;\n\\format csv\n\\timing\nSELECT ';' AS x; SELECT 2 AS y;\n\\q\nSELECT 3;\n";
    let ran = bench.run_with_input("sql", &[], typed).ok();
    for part in ["d    m\n", "a  2.5\n", "b  3.5\n", "x\n;\ny\n2\n"] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    let (tables, rest) = ran.stdout.split_once("column_name").unwrap();
    assert!(tables.contains(" t") || tables.contains("\nt"), "{tables}");
    for column in ["time", "d", "v", "n", "s"] {
        assert!(rest.contains(&format!(" {column} ")), "{column}: {rest}");
    }
    // What follows the end is not run.
    assert!(ran.stdout.ends_with("y\n2\n"), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("(2 rows)") && ran.stderr.contains("time: "),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_prompt_goes_on_after_a_mistake_and_fails_in_the_end() {
    let bench = filled();
    let typed = b"SELECT w FROM t;\n\\nonsense\nSELECT 5 AS five;\n";
    let ran = bench.run_with_input("sql", &[], typed);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "five\n   5\n"));
    assert!(
        ran.stderr.contains("line 1: SELECT w FROM t"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("there is no command `\\nonsense`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_interrupt_ends_a_statement() {
    let bench = Bench::new();
    let lines: String = (0..3_000)
        .map(|k| format!("t,d=a v={k} {k}000\n"))
        .collect();
    bench.import_lines(&lines).ok();
    let mut child = program()
        .args(["query", "--format", "csv", "--db"])
        .arg(bench.db())
        .arg("SELECT a.v, b.v FROM t a, t b")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 64];
    std::io::Read::read_exact(&mut stdout, &mut first).unwrap();
    // It runs, and waits for its reader.
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status();
    assert!(sent.unwrap().success());
    let read = std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    assert!(read < 9_000_000, "{read} bytes: all of it");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cancelled"), "{stderr}");
}
