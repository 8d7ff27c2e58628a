//! Lakes in a bucket of a server of S3's protocol. DuckDB and pyiceberg (PyPI) read them through
//! the catalog of a server.

use crate::serve::Served;
use crate::support::{Bench, Ran, program, text};
use headwater_testing::{LAKE_READERS, S3Server, or_skip, python, until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A lake in a bucket of a server of S3's protocol.
struct Gateway(S3Server);

impl Gateway {
    fn start() -> Option<Gateway> {
        S3Server::start().map(Gateway)
    }

    fn lake(&self) -> String {
        format!("s3://plants/north/lake?endpoint={}", self.0.endpoint())
    }

    fn command(&self, secret: &str) -> Command {
        let mut command = program();
        command
            .env("AWS_ACCESS_KEY_ID", S3Server::KEY)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .env("AWS_REGION", "us-east-1");
        command
    }

    fn lake_command(&self, bench: &Bench, command: &str, more: &[&str]) -> Command {
        let (db, lake) = (bench.db(), self.lake());
        let mut program = self.command(S3Server::SECRET);
        program.args(["lake", command, "--db", text(&db), &lake]);
        program.args(more);
        program
    }

    fn run(&self, bench: &Bench, command: &str, more: &[&str]) -> Ran {
        Ran::of(self.lake_command(bench, command, more).output().unwrap())
    }

    /// Files of rows in the bucket.
    fn data(&self) -> Vec<PathBuf> {
        self.0.objects("parquet")
    }
}

/// Some rows on each of six days; other values each time.
fn lines(round: usize) -> String {
    let line = |n: usize| {
        let at = 1_700_000_000 + n * 20_011;
        format!(
            "pump,id={} rpm={}.5,round={round}i {at}000000000\n",
            n % 3,
            n * 7 + round
        )
    };
    (0..20).map(line).collect()
}

fn sound(ran: &Ran, days: &str) {
    assert_eq!(ran.stdout, format!("pump: {days}\n"), "{ran:?}");
}

#[test]
fn a_lake_in_a_bucket_is_written_told_of_compared_and_rebuilt() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let bench = Bench::new();
    bench.import_lines(&lines(0)).ok();
    let written = gateway.run(&bench, "write", &[]).ok();
    assert!(
        written
            .stdout
            .starts_with("pump: 6 days written (20 rows, "),
        "{written:?}"
    );
    let again = gateway.run(&bench, "write", &[]).ok();
    assert_eq!(
        again.stdout,
        "pump: 0 days written (0 rows, 0 B), 6 unchanged\n"
    );
    let status = gateway.run(&bench, "status", &["--json"]).ok().json();
    assert_eq!(status["tables"][0]["rows"], 20, "{status}");
    sound(
        &gateway.run(&bench, "verify", &["--deep"]).ok(),
        "6 days equal (20 rows)",
    );
    // A file is lost: it is told, and made anew.
    let lost = gateway.data().remove(0);
    std::fs::remove_file(&lost).unwrap();
    let compared = gateway.run(&bench, "verify", &[]);
    assert!(
        compared.code == 1 && compared.stdout.contains("s3://plants/"),
        "{compared:?}"
    );
    let rebuilt = gateway.run(&bench, "rebuild", &["pump"]).ok();
    assert!(
        rebuilt
            .stdout
            .starts_with("pump: 6 days written (20 rows, "),
        "{rebuilt:?}"
    );
    sound(
        &gateway.run(&bench, "verify", &["--deep"]).ok(),
        "6 days equal (20 rows)",
    );
    // Who may not is told so, and with which address.
    let (db, lake) = (bench.db(), gateway.lake());
    let arguments = ["lake", "status", "--db", text(&db), &lake];
    let refused = gateway.command("another").args(arguments).output();
    let refused = Ran::of(refused.unwrap());
    let is_told = refused
        .stderr
        .contains("[lake.bucket] s3://plants/north/lake");
    assert!(refused.code == 1 && is_told, "{refused:?}");
    let refused = Ran::of(
        program()
            .args(arguments)
            .env_remove("AWS_ACCESS_KEY_ID")
            .output()
            .unwrap(),
    );
    let is_told = refused
        .stderr
        .contains("[lake.address] the environment variable AWS_ACCESS_KEY_ID");
    assert!(refused.code == 1 && is_told, "{refused:?}");
}

#[test]
fn writes_to_a_bucket_that_are_killed_or_come_at_once_leave_each_row_once() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let bench = Bench::new();
    for round in 0..12 {
        bench.import_lines(&lines(round)).ok();
        let mut child = gateway
            .lake_command(&bench, "write", &[])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // A write of six days takes some tenths of a second here: it is met everywhere.
        std::thread::sleep(Duration::from_millis(20 + 35 * round as u64));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    bench.import_lines(&lines(12)).ok();
    let writes: Vec<Child> = (0..4)
        .map(|_| {
            let mut command = gateway.lake_command(&bench, "write", &[]);
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for write in writes {
        Ran::of(write.wait_with_output().unwrap()).ok();
    }
    sound(
        &gateway.run(&bench, "verify", &["--deep"]).ok(),
        "6 days equal (20 rows)",
    );
    // What was left by those who were killed goes with a write that changes something.
    bench.import_lines(&lines(13)).ok();
    let arguments = ["--orphan-age", "1ms", "--keep-snapshots", "1ms"];
    gateway.run(&bench, "write", &arguments).ok();
    sound(
        &gateway.run(&bench, "verify", &["--deep"]).ok(),
        "6 days equal (20 rows)",
    );
    assert_eq!(gateway.data().len(), 6);
}

#[test]
fn a_server_keeps_its_lake_in_a_bucket_and_others_read_it_through_the_catalog() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let Some(python) = or_skip(python(&LAKE_READERS)) else {
        return;
    };
    let bench = Bench::new();
    let lake = gateway.lake();
    let arguments = [
        "--lake-dir",
        &lake,
        "--lake-every",
        "1s",
        "--log-level",
        "error",
    ];
    let start = || {
        Served::start_by(
            gateway.command(S3Server::SECRET),
            &bench.db(),
            "127.0.0.1:0",
            &arguments,
        )
    };
    let mut served = start();
    for round in 0..3 {
        if round == 2 {
            // Killed, and begun again: it goes on from what is in the bucket.
            served.child.kill().unwrap();
            served.child.wait().unwrap();
            served = start();
        }
        let answer = served.request("POST", "/write?precision=ns", "", &lines(round));
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
        let wanted: f64 = (0..20).map(|n| (n * 7 + round) as f64 + 0.5).sum();
        let url = format!("http://{}/iceberg", served.addr);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/lake_bucket.py");
        until("the lake has the rows", || {
            let asked = Command::new(&python)
                .arg(&script)
                .args([
                    &url,
                    gateway.0.endpoint(),
                    S3Server::KEY,
                    S3Server::SECRET,
                    "20",
                    &wanted.to_string(),
                ])
                .output()
                .unwrap();
            // 3 = it has not these rows yet.
            match asked.status.code() {
                Some(0) => true,
                Some(3) => false,
                _ => panic!("{}", String::from_utf8_lossy(&asked.stderr)),
            }
        });
    }
    assert_eq!(served.end("-TERM").code, 0);
}
