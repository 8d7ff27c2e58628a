//! A server on a full disk: what it answers, and that what it acknowledged is there afterwards,
//! also after a power cut.
//!
//! The disk is the simulated one, so that no mount and no right is needed; the server and its
//! answers are the real ones.

use headwater_engine::{Database, Options, ScanSpec};
use headwater_io::{Env, FaultyFiles};
use headwater_server::{Server, Settings};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const START: i64 = 1_700_000_000_000_000_000;

/// One request on a connection of its own: status, head and body.
fn request(addr: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.get(9..12).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

/// The next number of a sequence without a pattern.
fn noise(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// A line that tells its number, and takes its space wherever it lies: its text does not compress,
/// so that no flush or compaction, however quick, makes room for the lines that follow.
fn line(number: i64) -> String {
    let mut state = number.unsigned_abs() + 1;
    let note: String = (0..32)
        .map(|_| format!("{:016x}", noise(&mut state)))
        .collect();
    let time = START + number;
    format!("pump,id=7 note=\"{note}\",number={number}i {time}")
}

fn open(disk: &FaultyFiles) -> Database {
    let options = Options {
        memory_budget_bytes: 1 << 20,
        shards: 1,
        log_file_bytes: 64 << 10,
        reserve_bytes: 96 << 10,
        ..Options::new("/db")
    };
    let env = Env {
        files: Arc::new(disk.clone()),
        ..Env::system()
    };
    Database::open_in(env, options).unwrap()
}

/// The numbers that are stored.
fn numbers(db: &Database) -> BTreeSet<i64> {
    let pump = headwater_types::StreamName::new("pump", [("id", "7")]);
    let scan = db.snapshot().unwrap().scan(&pump, &ScanSpec::default());
    let chunks = scan.unwrap().map(Result::unwrap);
    chunks
        .flat_map(|chunk| chunk.times)
        .map(|time| time - START)
        .collect()
}

fn serve(db: Database, client: impl FnOnce(SocketAddr)) {
    // Where the tokens would be, if there were any.
    let mut settings = Settings::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/full-disk"));
    settings.http_addr.set_port(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(Server::over(db, settings)).unwrap();
    let addr = server.local_addr();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let running = runtime.spawn(server.run(stopped));
    client(addr);
    stop.send_replace(true);
    runtime.block_on(running).unwrap().unwrap();
}

#[test]
fn a_full_disk_answers_507_and_keeps_what_was_acknowledged() {
    let disk = FaultyFiles::new(3);
    let db = open(&disk);
    let mut acknowledged = BTreeSet::new();
    serve(db, |addr| {
        let mut write = |number: i64| {
            let (status, head, body) = request(addr, "POST", "/write?precision=ns", &line(number));
            if status == 204 {
                acknowledged.insert(number);
            }
            (status, head, body)
        };
        for number in 0..100 {
            assert_eq!(write(number).0, 204);
        }
        let used: u64 = disk.files().iter().map(|(_, bytes)| bytes).sum();
        disk.capacity(used + 50_000);
        let mut number = 100;
        let (head, body) = loop {
            let (status, head, body) = write(number);
            if status != 204 {
                assert_eq!(status, 507, "{body}");
                break (head, body);
            }
            number += 1;
            assert!(number < 20_000, "the disk never was full");
        };
        assert!(head.contains("retry-after: "), "{head}");
        assert!(
            body.contains("\"E_FULL\"") && body.contains("message"),
            "{body}"
        );
        // It stays so, for a batch as for a line, and nothing else suffers.
        let batch: Vec<String> = (number + 1..number + 20).map(line).collect();
        let (status, _, body) = request(
            addr,
            "POST",
            "/api/v2/write?precision=ns",
            &batch.join("\n"),
        );
        assert_eq!(status, 507, "{body}");
        assert_eq!(request(addr, "GET", "/health", "").0, 200);
        let (status, _, body) = request(addr, "GET", "/api/v1/count?table=pump", "");
        assert_eq!(status, 200, "{body}");
        assert!(body.contains(&format!("\"rows\":{number}}}")), "{body}");
        // There is space again: writes go on by themselves.
        disk.capacity(u64::MAX);
        let begun = Instant::now();
        while write(number).0 != 204 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it stays full");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    assert_eq!(numbers(&open(&disk)), acknowledged);
}

#[test]
fn a_power_cut_on_a_full_disk_loses_nothing_that_was_acknowledged() {
    let disk = FaultyFiles::new(4);
    let db = open(&disk);
    let mut acknowledged = BTreeSet::new();
    let mut cut = Vec::new();
    serve(db, |addr| {
        let used: u64 = disk.files().iter().map(|(_, bytes)| bytes).sum();
        disk.capacity(used + 120_000);
        for number in 0..20_000 {
            match request(addr, "POST", "/write?precision=ns", &line(number)).0 {
                204 => acknowledged.insert(number),
                status => {
                    assert_eq!(status, 507);
                    break;
                }
            };
        }
        cut.extend((0..4).map(|seed| disk.after_crash(seed)));
        disk.capacity(u64::MAX);
    });
    assert!(!acknowledged.is_empty());
    for after in cut {
        after.capacity(u64::MAX);
        assert_eq!(numbers(&open(&after)), acknowledged);
    }
}
