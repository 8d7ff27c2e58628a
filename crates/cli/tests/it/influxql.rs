//! `headwater influxql`: a directory and a server give the same.

use crate::serve::Served;
use crate::support::{Bench, Ran, program};

const LINES: &str = "\
t,d=a v=1.5,n=3i 1700000000000000000
t,d=a v=2.5 1700000001000000000
t,d=b v=3.5,s=\"x,y\" 1700000002000000000
";

fn filled() -> Bench {
    let bench = Bench::new();
    bench.import_lines(LINES).ok();
    bench
}

fn remote(served: &Served, arguments: &[&str]) -> Ran {
    let output = program()
        .args(["influxql", "--url", &format!("http://{}", served.addr)])
        .args(arguments)
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn series_are_printed_one_under_the_other() {
    let bench = filled();
    let text = "SELECT sum(v), count(n) FROM t GROUP BY d; SHOW FIELD KEYS";
    let ran = bench.run("influxql", &[text]).ok();
    assert_eq!(
        ran.stdout,
        "\
t,d=a
time                  sum  count
1970-01-01T00:00:00Z    4      1

t,d=b
time                  sum  count
1970-01-01T00:00:00Z  3.5

t
fieldKey  fieldType
n         integer
s         string
v         float
"
    );
    let ran = bench.run(
        "influxql",
        &["--format", "csv", "SELECT s, v FROM t WHERE d = 'b'"],
    );
    assert_eq!(
        ran.ok().stdout,
        "name,tags,time,s,v\nt,,2023-11-14T22:13:22Z,\"x,y\",3.5\n"
    );
    let ran = bench.run_with_input(
        "influxql",
        &["--format", "csv", "-"],
        b"SELECT max(v) FROM t",
    );
    assert_eq!(
        ran.ok().stdout,
        "name,tags,time,max\nt,,2023-11-14T22:13:22Z,3.5\n"
    );
}

#[test]
fn what_fails_is_told_and_ends_with_1() {
    let bench = filled();
    for (text, told) in [
        ("SELECT", "expected"),
        ("SELECT mean(v) FROM t; SELECT nothing(v) FROM t", "nothing"),
    ] {
        for format in ["table", "json", "csv"] {
            let ran = bench.run("influxql", &["--format", format, text]);
            assert_eq!(ran.code, 1, "{text} {format}: {ran:?}");
            assert!(ran.stderr.contains(told), "{text} {format}: {ran:?}");
        }
    }
    let nobody = program()
        .args(["influxql", "SHOW MEASUREMENTS"])
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(2));
}

#[test]
fn a_server_answers_as_its_directory_does() {
    let bench = filled();
    let served = Served::start(&bench.db(), &[]);
    for text in [
        "SELECT mean(v), first(s) FROM t GROUP BY d",
        "SELECT * FROM t",
        "SELECT nothing(v) FROM t",
        "SHOW TAG VALUES WITH KEY = d",
    ] {
        for format in ["table", "json", "csv"] {
            let here = bench.run("influxql", &["--format", format, text]);
            let there = remote(&served, &["--format", format, text]);
            assert_eq!(
                (here.code, &here.stdout, &here.stderr),
                (there.code, &there.stdout, &there.stderr),
                "{text} {format}"
            );
        }
    }
}
