//! Lakes in a bucket of a server of S3's protocol.

use crate::support::{Bench, DAY, START, options};
use headwater::{Options, Reader, StreamName};
use headwater_lake::{LakeError, LakeLocation, status, verify, write};
use headwater_testing::S3Server;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Says to a process of its own which folder has the database, and where the lake is.
const FOLDER: &str = "HEADWATER_TEST_LAKE_BUCKET_FOLDER";
const LAKE: &str = "HEADWATER_TEST_LAKE_BUCKET_PLACE";
const KILLED: &str =
    "gateway::writes_to_a_bucket_that_are_killed_or_come_at_once_leave_each_row_once";

fn open_location(lake: &str, secret: Option<&str>) -> headwater_lake::Result<LakeLocation> {
    LakeLocation::open(lake, &|name| match name {
        "AWS_ACCESS_KEY_ID" => Some(S3Server::KEY.to_owned()),
        "AWS_SECRET_ACCESS_KEY" => secret.map(str::to_owned),
        _ => None,
    })
}

/// A lake in a bucket of a server of S3's protocol.
pub(crate) struct Gateway(S3Server);

impl Gateway {
    pub(crate) fn start() -> Option<Gateway> {
        S3Server::start().map(Gateway)
    }

    fn address(&self) -> String {
        format!("s3://plants/north/lake?endpoint={}", self.0.endpoint())
    }

    pub(crate) fn location(&self) -> LakeLocation {
        open_location(&self.address(), Some(S3Server::SECRET)).unwrap()
    }

    /// Environment of readers: who they are, and where the store is.
    pub(crate) fn environment(&self) -> [(&'static str, String); 3] {
        [
            ("S3_ENDPOINT", self.0.endpoint().to_owned()),
            ("S3_KEY", S3Server::KEY.to_owned()),
            ("S3_SECRET", S3Server::SECRET.to_owned()),
        ]
    }

    /// Files of rows in the bucket.
    fn data(&self) -> Vec<PathBuf> {
        self.0.objects("parquet")
    }
}

fn rows(bench: &Bench, round: i64) {
    for at in 0..20 {
        let pump = StreamName::new("pumps", [("id", (at % 3).to_string())]);
        let rpm = (at * 7 + round) as f64;
        bench.row(&pump, START + at * DAY / 4, &[("rpm", rpm.into())]);
    }
}

fn assert_equal(bench: &Bench, place: &LakeLocation, why: &str) {
    let snapshot = bench.db().snapshot().unwrap();
    let verified = verify(&snapshot, place, true).unwrap();
    assert!(verified.is_sound(), "{why}: {verified:?}");
    let table = &verified.tables[0];
    assert_eq!(
        (table.days, table.rows, table.days_behind),
        (5, 20, 0),
        "{why}: {table:?}"
    );
}

#[test]
fn a_lake_in_a_bucket_of_a_server_is_written_compared_and_rebuilt() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (bench, place) = (Bench::new(), gateway.location());
    let look = || bench.db().snapshot();
    for round in 0..3 {
        rows(&bench, round);
        write(&look, &place, &options()).unwrap();
        assert_equal(&bench, &place, "written");
    }
    // Nothing is left of what was replaced: the server tells when an object was put.
    assert_eq!(gateway.data().len(), 5);
    let told = status(&look().unwrap(), &place).unwrap();
    assert_eq!(
        (told.tables[0].rows, told.tables[0].files),
        (20, 5),
        "{told:?}"
    );
    assert_eq!(place.config()["s3.endpoint"], gateway.0.endpoint());
    std::fs::remove_file(gateway.data().remove(0)).unwrap();
    let verified = verify(&look().unwrap(), &place, false).unwrap();
    assert!(!verified.is_sound(), "{verified:?}");
    let mut rebuild = options();
    rebuild.rebuild = true;
    write(&look, &place, &rebuild).unwrap();
    assert_equal(&bench, &place, "rebuilt");
    let refused = open_location(&gateway.address(), Some("another")).unwrap();
    let refused = status(&look().unwrap(), &refused).unwrap_err();
    assert!(matches!(refused, LakeError::Bucket { .. }), "{refused}");
    let refused = open_location(&gateway.address(), None).unwrap_err();
    assert!(
        refused.to_string().contains("AWS_SECRET_ACCESS_KEY"),
        "{refused}"
    );
}

/// Writes the lake beside the process that owns the database.
fn write_alone(folder: &Path, lake: &str) {
    let mut of = Options::new(folder.join("db"));
    of.memory_budget_bytes = 4 << 20;
    let reader = Reader::open(of).unwrap();
    let look = || {
        reader.refresh()?;
        Ok(reader.snapshot())
    };
    let mut slow = options();
    slow.orphan_age = Duration::from_secs(3_600);
    write(
        &look,
        open_location(lake, Some(S3Server::SECRET)).unwrap(),
        &slow,
    )
    .unwrap();
}

#[test]
fn writes_to_a_bucket_that_are_killed_or_come_at_once_leave_each_row_once() {
    if let (Some(folder), Ok(lake)) = (std::env::var_os(FOLDER), std::env::var(LAKE)) {
        return write_alone(Path::new(&folder), &lake);
    }
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (bench, place) = (Bench::new(), gateway.location());
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", KILLED])
            .env(FOLDER, bench.lake().parent().unwrap())
            .env(LAKE, gateway.address())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    for round in 0..16 {
        rows(&bench, round);
        let mut child = start();
        // A write of five days takes some tenths of a second: it is met everywhere.
        std::thread::sleep(Duration::from_millis(30 + 25 * round as u64));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    rows(&bench, 16);
    let all: Vec<Child> = (0..4).map(|_| start()).collect();
    for mut child in all {
        assert!(
            child.wait().unwrap().success(),
            "one of four writes at once failed"
        );
    }
    assert_equal(&bench, &place, "killed, then four at once");
    // What the killed have left goes with a write that changes something.
    rows(&bench, 17);
    write(&|| bench.db().snapshot(), &place, &options()).unwrap();
    assert_equal(&bench, &place, "written once more");
    assert_eq!(gateway.data().len(), 5);
}
