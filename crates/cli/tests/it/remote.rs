//! The commands that change a database, on one that a server has open.

use crate::serve::Served;
use crate::support::{Bench, Ran, program, text};
use std::io::Write;
use std::process::Stdio;

/// Runs a command on a server; a token comes from the environment.
fn run(server: &Served, token: &str, arguments: &[&str], input: &str) -> Ran {
    let mut command = program();
    if !token.is_empty() {
        command.env("HEADWATER_TOKEN", token);
    }
    let mut child = command
        .args(arguments)
        .args(["--url", &format!("http://{}", server.addr)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Ran::of(child.wait_with_output().unwrap())
}

const CSV: &str = "time,dev,v,note
2024-01-01T00:00:00Z,a,1.5,one
2024-01-01T00:00:01Z,b,2,\"two, and more\"
2024-01-01T00:00:02Z,a,NaN,
soon,a,3,wrong
2024-01-01T00:00:03Z,a,4,four
";

#[test]
fn a_file_is_imported_into_what_a_server_has_open() {
    let bench = Bench::new();
    let server = Served::start(&bench.db(), &[]);
    let file = bench.file("points.csv", CSV);
    let import = [
        "import",
        "--table",
        "t",
        "--time",
        "time",
        "--tag",
        "dev",
        "--duplicates",
        "keep",
        text(&file),
    ];
    let ran = run(&server, "", &import, "").ok();
    assert!(ran.stderr.contains("stored 3 rows from 6 lines"), "{ran:?}");
    assert!(ran.stderr.contains("E_TIME"), "{ran:?}");
    assert!(ran.stderr.contains("line 5"), "{ran:?}");
    assert!(
        ran.stderr
            .contains("1 values that are NaN or infinite were left out"),
        "{ran:?}"
    );
    let show = run(&server, "", &["table", "show", "t", "--format", "json"], "").ok();
    let table = &show.json()[0];
    assert_eq!(table["duplicates"], "keep");
    let names: Vec<&str> = table["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["v", "note"]);
    // What does not fit the table is told with the lines of the file.
    let lines = "t,dev=a v=5 1704067205000000000\nt,dev=a v=\"x\" 1704067206000000000\n";
    let import = ["import", "--format", "lp", "--precision", "ns", "-"];
    let ran = run(&server, "", &import, lines).ok();
    assert!(ran.stderr.contains("stored 1 rows from 2 lines"), "{ran:?}");
    assert!(ran.stderr.contains("line 2: E_TYPE"), "{ran:?}");
    let answer = server.request("GET", "/api/v1/export?table=t&time=rfc3339", "", "");
    let rows: Vec<&str> = answer.split("\r\n\r\n").nth(1).unwrap().lines().collect();
    assert!(answer.contains("\"two, and more\""), "{answer}");
    assert!(!answer.contains("NaN"), "{answer}");
    assert!(rows.len() >= 5, "{answer}");
    // A mistyped server is told of.
    let wrong = program()
        .args(["compact", "--url", "http://127.0.0.1:1"])
        .output()
        .unwrap();
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("is a server running there?"), "{said}");
}

#[test]
fn tables_are_declared_changed_deleted_from_and_dropped_on_a_server() {
    let bench = Bench::new();
    let server = Served::start(&bench.db(), &[]);
    let ask = |arguments: &[&str]| run(&server, "", arguments, "");
    // The directory itself is the server's, and the message says what to do.
    let locked = bench.run("table create", &["plant"]);
    assert!(
        locked.code == 1 && locked.stderr.contains("use --url"),
        "{locked:?}"
    );
    ask(&[
        "table",
        "create",
        "plant",
        "--field",
        "temp:f64",
        "--retention",
        "2y",
    ])
    .ok();
    ask(&[
        "table",
        "alter",
        "plant",
        "--field",
        "note:string",
        "--retention",
        "forever",
    ])
    .ok();
    let shown = ask(&["table", "show", "plant"]).ok().stdout;
    assert!(
        shown.contains("plant") && shown.contains("string"),
        "{shown}"
    );
    assert!(!shown.contains("retention"), "{shown}");
    let nothing = ask(&["table", "alter", "plant"]);
    assert_eq!(nothing.code, 2, "{nothing:?}");
    let lines = "plant,id=a temp=1 1704067200000000000\nplant,id=b temp=2 1704067200000000000\n";
    let import = ["import", "--format", "lp", "--precision", "ns", "-"];
    run(&server, "", &import, lines).ok();
    let which = ask(&["delete", "plant"]);
    assert!(
        which.code == 2 && which.stderr.contains("the range of time is missing"),
        "{which:?}"
    );
    let ran = ask(&["delete", "plant", "--where", "id=a", "--to", "now-1h"]).ok();
    assert_eq!(ran.stderr, "deleted from 1 stream\n");
    let ran = ask(&["delete", "plant", "--where", "id=b", "--drop-streams"]).ok();
    assert_eq!(ran.stderr, "dropped 1 stream\n");
    let ran = ask(&["compact"]).ok();
    assert!(ran.stderr.contains("on disk before"), "{ran:?}");
    let rate = ask(&["compact", "--rate", "1MiB"]);
    assert!(rate.code == 2 && rate.stderr.contains("--rate"), "{rate:?}");
    let kept = ask(&["table", "drop", "plant"]);
    assert!(
        kept.code == 1 && kept.stderr.contains("add --yes"),
        "{kept:?}"
    );
    ask(&["table", "drop", "plant", "--yes"]).ok();
    let gone = ask(&["table", "show", "plant"]);
    assert!(
        gone.code == 1 && gone.stderr.contains("no table `plant`"),
        "{gone:?}"
    );
}

#[test]
fn tokens_come_from_the_environment() {
    let bench = Bench::new();
    let token = |name: &str, rules: &[&str]| {
        let mut arguments = vec!["--name", name];
        arguments.extend_from_slice(rules);
        let ran = bench.run_without_memory("token create", &arguments).ok();
        ran.stdout.trim().to_owned()
    };
    let owner = token("owner", &["--read", "*", "--write", "*", "--manage", "*"]);
    let writer = token("writer", &["--write", "*"]);
    let server = Served::start(&bench.db(), &[]);
    let lines = "plant,id=a temp=1 1704067200000000000\n";
    let import = ["import", "--format", "lp", "--precision", "ns", "-"];
    let without = run(&server, "", &import, lines);
    assert!(
        without.code == 1 && without.stderr.contains("HEADWATER_TOKEN"),
        "{without:?}"
    );
    run(&server, &writer, &import, lines).ok();
    let csv = [
        "import", "--table", "plant", "--time", "time", "--tag", "id", "-",
    ];
    // Who may not manage has tables made by their first row.
    run(
        &server,
        &writer,
        &csv,
        "time,id,temp\n2024-01-01T00:00:05Z,a,2\n",
    )
    .ok();
    let compact = run(&server, &writer, &["compact"], "");
    assert!(
        compact.code == 1 && compact.stderr.contains("manage"),
        "{compact:?}"
    );
    run(&server, &owner, &["compact"], "").ok();
    #[cfg(feature = "sql")]
    {
        let asked = [
            "query",
            "--format",
            "csv",
            "SELECT count(*) AS n FROM plant",
        ];
        assert_eq!(run(&server, &owner, &asked, "").ok().stdout, "n\n2\n");
    }
    let asked = [
        "influxql",
        "--format",
        "csv",
        "SELECT count(temp) FROM plant",
    ];
    let ran = run(&server, &owner, &asked, "").ok();
    assert!(ran.stdout.contains(",2\n"), "{ran:?}");
    // A token in the environment does not keep a command from a directory.
    drop(server);
}

/// Two states differ by the same lines, whoever compares them.
#[test]
fn a_server_says_what_differs_as_the_command_does_beside_it() {
    let bench = Bench::new();
    let server = Served::start(&bench.db(), &[]);
    let write = |lines: &str| {
        let answer = server.request("POST", "/write?precision=s", "", lines);
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    };
    let there = |arguments: &[&str]| run(&server, "", &[&["diff"], arguments].concat(), "");
    write("t,id=a v=1 1\nt,id=a v=2 2\nt,id=b\\ c v=3 3\nother x=1i 1\n");
    run(&server, "", &["snapshot", "create", "mon day"], "").ok();
    write("t,id=a v=9 2\nt,id=a v=1 7\nt,id=b\\ c v=4 4\nt,id=d v=1 1\nother x=2i 1\n");
    run(&server, "", &["snapshot", "create", "tuesday"], "").ok();
    write("t,id=a v=5 -5\n");
    let bounded = [
        "mon day",
        "now",
        "--from",
        "-10",
        "--to",
        "1970-01-01T00:00:05Z",
    ];
    for (arguments, streams) in [
        (&["mon day", "now"][..], 4),
        (&["now", "mon day", "--json"], 4),
        (
            &["mon day", "tuesday", "--table", "t", "--where", "id=b c"],
            1,
        ),
        (&["mon day", "now", "--where", "id=d", "--where", "id=a"], 2),
        (&["tuesday", "tuesday"], 0),
        (&bounded, 4),
    ] {
        let here = bench.run("diff", arguments).ok();
        let asked = there(arguments).ok();
        assert_eq!((&asked.stdout, &asked.stderr), (&here.stdout, &here.stderr));
        assert!(
            here.stderr.contains(&format!("{streams} streams differ")),
            "{arguments:?}: {here:?}"
        );
    }
    for (arguments, reason) in [
        (["nobody", "now"], "there is no snapshot `nobody`"),
        (["now", ""], "the name of a snapshot, or now"),
    ] {
        let wrong = there(&arguments);
        assert!(
            wrong.code == 1 && wrong.stderr.contains(reason) && wrong.stdout.is_empty(),
            "{wrong:?}"
        );
    }
    let wrong = there(&["mon day", "now", "--table", "none"]);
    assert!(
        wrong.code == 1 && wrong.stderr.contains("`none`"),
        "{wrong:?}"
    );
}

/// An answer without its end is not taken for a whole one.
#[test]
fn a_comparison_that_breaks_off_is_told() {
    use std::io::Read;
    let line = r#"{"stream":"t","first":"1","last":"2","removed":0,"added":1,"changed":0}"#;
    let error = r#"{"error":{"code":"E_CORRUPT","message":"a leaf is damaged"}}"#;
    for (lines, reason) in [
        (format!("{line}\n"), "not all differences were printed"),
        (format!("{line}\n{error}\n"), "a leaf is damaged"),
        (format!("{line}\n{{}}\n"), "as new as this program"),
        (format!("{line}\nhello\n"), "not JSON"),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.push(byte[0]);
            }
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
            stream
                .write_all(format!("{head}{lines}").as_bytes())
                .unwrap();
        });
        let ran = program().args(["diff", "--url", &url, "a", "b"]).output();
        let ran = Ran::of(ran.unwrap());
        server.join().unwrap();
        assert!(
            ran.code == 1 && ran.stderr.contains(reason),
            "{reason}: {ran:?}"
        );
    }
}
