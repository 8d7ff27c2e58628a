//! A cloud and an edge whose disks are full while they sync, as processes on file systems of their
//! own: nothing acknowledged is lost, and they go on when there is room. An edge that prefers new
//! rows loses old ones, and says which.

use crate::fleet::{edge, is_current, kill, run, run_against};
use crate::serve::Served;
use crate::support::{Bench, program, text};
use headwater_testing::{or_skip, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BATCH: u64 = 2_000;

/// A small file system in memory, which processes see that are started in it.
struct SmallDisk {
    /// Keeps it mounted.
    holder: Child,
    dir: PathBuf,
}

impl SmallDisk {
    fn new(dir: &Path, bytes: u64) -> Result<SmallDisk, String> {
        std::fs::create_dir(dir).unwrap();
        let mount = format!(
            "mount -t tmpfs -o size={bytes} none '{}' && echo mounted && exec cat",
            text(dir)
        );
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut said = String::new();
        let mut stdout = BufReader::new(holder.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let disk = SmallDisk {
            holder,
            dir: dir.to_owned(),
        };
        match said.trim() {
            "mounted" => Ok(disk),
            _ => Err("no file system of an own name space can be mounted here".to_owned()),
        }
    }

    /// The program, in the name space of the disk.
    fn program(&self) -> Command {
        let inner = program();
        let mut outer = Command::new("nsenter");
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer
            .args(["--user", "--mount", "--preserve-credentials", "--target"])
            .arg(self.holder.id().to_string())
            .arg("--")
            .arg(inner.get_program());
        outer
    }

    fn db(&self) -> PathBuf {
        self.dir.join("db")
    }

    fn serve(&self, addr: &str, flags: &[&str]) -> Served {
        Served::start_by(self.program(), &self.db(), addr, flags)
    }

    /// A file on it that takes the room, as this process sees it.
    fn ballast(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.holder.id());
        Path::new(&root)
            .join(self.dir.strip_prefix("/").unwrap())
            .join("ballast")
    }

    /// Takes all room but some bytes.
    fn fill(&self, but: usize) {
        let mut file = File::create(self.ballast()).unwrap();
        let zeros = vec![0; 64 << 10];
        while file.write_all(&zeros).is_ok() {}
        let len = file.metadata().unwrap().len();
        file.set_len(len.saturating_sub(but as u64)).unwrap();
    }

    fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

/// A disk for a test, or nothing where there can be none.
fn disk(bench: &Bench, bytes: u64) -> Option<SmallDisk> {
    or_skip(SmallDisk::new(&bench.path("disk"), bytes))
}

/// A cloud that the database on a disk has joined, as `gw`.
fn joined_cloud(bench: &Bench, disk: &SmallDisk) -> Served {
    let cloud = crate::fleet::cloud(&bench.path("cloud"), "127.0.0.1:0");
    let invited = run_against(&cloud.addr, &["edges", "add", "gw"]).ok();
    let mut join = disk.program();
    join.args(["join", invited.stdout.trim(), "--db"])
        .arg(disk.db());
    assert!(join.output().unwrap().status.success());
    cloud
}

/// Rows of a batch that take room.
fn lines(batch: u64) -> String {
    let line = |n: u64| {
        let mixed = (batch * BATCH + n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8;
        let at = 1_700_000_000_000 + (batch * BATCH + n) * 10;
        format!("noise,batch={batch} v={mixed}i,w={}i {at}\n", mixed / 3)
    };
    (0..BATCH).map(line).collect()
}

/// True if the rows of a batch are acknowledged.
fn write(edge: &Served, batch: u64) -> bool {
    let answer = edge.request("POST", "/write?precision=ms", "", &lines(batch));
    let is_taken = answer.starts_with("HTTP/1.1 204");
    assert!(is_taken || answer.contains("E_FULL"), "{answer}");
    is_taken
}

/// Number of rows of each batch at a server; nothing while that is not answered.
fn batches(server: &Served) -> Option<BTreeMap<u64, u64>> {
    let question = "/query?db=x&q=SELECT%20count(v)%20FROM%20noise%20GROUP%20BY%20batch";
    let answer = server.request("GET", question, "", "");
    let body = answer.split_once("\r\n\r\n")?.1;
    let body: Value = serde_json::from_str(body).ok()?;
    let series = body["results"][0]["series"].as_array()?;
    let counts = series.iter().filter_map(|one| {
        let batch = one["tags"]["batch"].as_str()?.parse().ok()?;
        Some((batch, one["values"][0][1].as_u64()?))
    });
    Some(counts.collect())
}

/// True if a server has all rows of these batches.
fn has_all(server: &Served, acknowledged: &[u64]) -> bool {
    let found = batches(server).unwrap_or_default();
    acknowledged
        .iter()
        .all(|batch| found.get(batch) == Some(&BATCH))
}

#[test]
fn a_cloud_whose_disk_is_full_loses_nothing_and_goes_on_with_room() {
    let bench = Bench::new();
    let Some(disk) = disk(&bench, 96 << 20) else {
        return;
    };
    let flags = ["--role", "cloud", "--log-level", "error"];
    let cloud = disk.serve("127.0.0.1:0", &flags);
    let addr = cloud.addr.clone();
    let db = bench.path("edge");
    let invited = run_against(&addr, &["edges", "add", "gw"]).ok();
    run(&["join", invited.stdout.trim(), "--db", text(&db)]).ok();
    let gw = edge(&db);
    let mut acknowledged = vec![0];
    assert!(write(&gw, 0));
    until("it is at the cloud", || is_current(&addr, &gw, "gw"));
    disk.fill(0);
    for batch in 1..12 {
        assert!(write(&gw, batch), "the edge has room");
        acknowledged.push(batch);
    }
    let told = |addr: &str, of: &[&str]| {
        let asked = [&["sync", "status", "--format", "json"], of].concat();
        run_against(addr, &asked).ok().stdout
    };
    until("both say that the copy cannot be written", || {
        told(&addr, &["gw"]).contains("No space left")
            && told(&gw.addr, &[]).contains("cannot write its copy")
    });
    // What is there is answered, and what is not is no silent gap.
    let found = batches(&cloud);
    assert!(found.is_none_or(|found| found.values().all(|rows| *rows == BATCH)));
    // Killed with its disk full it loses nothing either.
    kill(cloud);
    disk.make_room();
    let cloud = disk.serve(&addr, &flags);
    until("everything is at the cloud", || {
        is_current(&addr, &gw, "gw") && has_all(&cloud, &acknowledged)
    });
    // The same without a restart.
    disk.fill(0);
    for batch in 12..24 {
        assert!(write(&gw, batch));
        acknowledged.push(batch);
    }
    until("the copy cannot be written again", || {
        told(&gw.addr, &[]).contains("cannot write its copy")
    });
    disk.make_room();
    until("everything is at the cloud again", || {
        is_current(&addr, &gw, "gw") && has_all(&cloud, &acknowledged)
    });
    let verify = ["sync", "verify", "gw", "--format", "json"];
    let compared = run_against(&addr, &verify).ok().json();
    assert_eq!(
        (&compared["different"], &compared["missing"]),
        (&0.into(), &0.into())
    );
    [cloud, gw].into_iter().for_each(kill);
}

#[test]
fn an_edge_whose_disk_is_full_refuses_rows_and_loses_none_that_it_took() {
    let bench = Bench::new();
    let Some(disk) = disk(&bench, 96 << 20) else {
        return;
    };
    let cloud = joined_cloud(&bench, &disk);
    let flags = [
        "--role",
        "edge",
        "--sync-flush-every",
        "1s",
        "--log-level",
        "error",
    ];
    let gw = disk.serve("127.0.0.1:0", &flags);
    let mut acknowledged = vec![0];
    assert!(write(&gw, 0));
    until("it is at the cloud", || is_current(&cloud.addr, &gw, "gw"));
    disk.fill(2 << 20);
    let mut batch = 1;
    until("rows are refused", || {
        let is_taken = write(&gw, batch);
        acknowledged.extend(is_taken.then_some(batch));
        batch += 1;
        !is_taken
    });
    // The rows that it took are at the cloud, though it has no room, and answered here.
    until("what it took is here", || has_all(&gw, &acknowledged));
    kill(gw);
    disk.make_room();
    let gw = disk.serve("127.0.0.1:0", &flags);
    until("what it took is here after all", || {
        has_all(&gw, &acknowledged)
    });
    until("it takes rows again", || {
        let is_taken = write(&gw, batch);
        acknowledged.extend(is_taken.then_some(batch));
        batch += 1;
        is_taken
    });
    until("everything is at the cloud", || {
        is_current(&cloud.addr, &gw, "gw") && has_all(&cloud, &acknowledged)
    });
    // The same without a restart.
    disk.fill(2 << 20);
    until("rows are refused again", || {
        let is_taken = write(&gw, batch);
        acknowledged.extend(is_taken.then_some(batch));
        batch += 1;
        !is_taken
    });
    disk.make_room();
    until("it takes rows", || {
        let is_taken = write(&gw, batch);
        acknowledged.extend(is_taken.then_some(batch));
        batch += 1;
        is_taken
    });
    until("everything is at the cloud at last", || {
        is_current(&cloud.addr, &gw, "gw") && has_all(&cloud, &acknowledged)
    });
    let verify = ["sync", "verify", "gw", "--format", "json"];
    let compared = run_against(&cloud.addr, &verify).ok().json();
    assert_eq!(compared["different"], 0);
    [cloud, gw].into_iter().for_each(kill);
}

/// Rows of a stream in time order, of this batch.
fn in_order(batch: u64) -> String {
    let line = |n: u64| {
        let mixed = (batch * BATCH + n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8;
        let at = 1_700_000_000_000 + (batch * BATCH + n) * 1_000;
        format!("series,id=a v={mixed}i,w={}i {at}\n", mixed / 3)
    };
    (0..BATCH).map(line).collect()
}

/// Number of values of the stream; nothing while that is not answered.
fn values(server: &Served) -> Option<u64> {
    let path = "/api/v1/aggregate?channel=series,id%3Da.v&functions=count";
    let answer = server.request("GET", path, "", "");
    let (_, rest) = answer.split_once("\"count\":[")?;
    rest.split(']').next()?.parse().ok()
}

/// Answer to a query for the row of a second.
fn row(server: &Served, second: u64) -> String {
    let at = 1_700_000_000 + second;
    let path = format!("/api/v1/scan?stream=series,id%3Da&from={at}000000000&to={at}000000001");
    server.request("GET", &path, "", "")
}

#[test]
fn an_edge_that_prefers_new_rows_loses_the_oldest_and_says_which() {
    let bench = Bench::new();
    let Some(disk) = disk(&bench, 96 << 20) else {
        return;
    };
    let cloud = joined_cloud(&bench, &disk);
    let cloud_addr = cloud.addr.clone();
    // It is away while the disk is filled, so that it proves nothing.
    kill(cloud);
    let flags = [
        "--role",
        "edge",
        "--sync-full",
        "lose-raw",
        "--memory-budget",
        "8MiB",
        "--partition-target",
        "256KiB",
        "--partition-max",
        "1MiB",
        "--log-level",
        "error",
    ];
    let gw = disk.serve("127.0.0.1:0", &flags);
    disk.fill(24 << 20);
    let lost = |gw: &Served| {
        let answer = gw.request("GET", "/api/v1/sync", "", "");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: Value = serde_json::from_str(body).unwrap();
        status["cloud"]["lost"].clone()
    };
    let mut batch = 0;
    let write_batches = |gw: &Served, batch: &mut u64, count: u64| {
        for _ in 0..count {
            // A refusal while room is made is told, and the client sends the rows again.
            until("a batch is taken", || {
                let answer = gw.request("POST", "/write?precision=ms", "", &in_order(*batch));
                let is_taken = answer.starts_with("HTTP/1.1 204");
                assert!(is_taken || answer.contains("E_FULL"), "{answer}");
                is_taken
            });
            *batch += 1;
        }
    };
    while lost(&gw)["rows"].as_u64().is_none() {
        assert!(batch < 2_000, "nothing is lost");
        write_batches(&gw, &mut batch, 20);
    }
    // No more than makes room.
    let told = lost(&gw);
    let rows_lost = told["rows"].as_u64().unwrap();
    assert!(rows_lost < batch * BATCH * 3 / 4, "{told}");
    // New rows are taken, and are there; aggregates count every row that was taken.
    write_batches(&gw, &mut batch, 20);
    let told = lost(&gw);
    let rows_lost = told["rows"].as_u64().unwrap();
    assert!(rows_lost < batch * BATCH, "{told}");
    let first: i64 = told["first_ns"].as_str().unwrap().parse().unwrap();
    // The span of the oldest partition.
    assert!(first <= 1_700_000_000_000_000_000, "{told}");
    let check = |server: &Served, batch: u64| {
        assert_eq!(values(server), Some(batch * BATCH));
        let newest = row(server, batch * BATCH - 1);
        assert!(newest.starts_with("HTTP/1.1 200"), "{newest}");
        let oldest = row(server, 0);
        assert!(oldest.contains("E_ELSEWHERE"), "{oldest}");
    };
    check(&gw, batch);
    kill(gw);
    let gw = disk.serve("127.0.0.1:0", &flags);
    check(&gw, batch);
    assert!(lost(&gw)["rows"].as_u64().unwrap() >= rows_lost);
    // The cloud gets what there is, and knows no more of the lost rows than their aggregates.
    let cloud = crate::fleet::cloud(&bench.path("cloud"), &cloud_addr);
    until("the cloud counts all rows", || {
        values(&cloud) == Some(batch * BATCH)
    });
    until("the newest rows are at the cloud", || {
        row(&cloud, batch * BATCH - 1).starts_with("HTTP/1.1 200")
    });
    assert!(row(&cloud, 0).contains("E_ELSEWHERE"));
    [cloud, gw].into_iter().for_each(kill);
}
