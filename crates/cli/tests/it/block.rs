//! `headwater block`: its start and its end, kills, and the clients of others.
//!
//! Of those: libnbd's `nbdinfo` and `nbdcopy`, and fio with its engine for NBD.

use crate::kill::{kill, wait};
use crate::support::{Bench, Ran, program};
use headwater_testing::Dice;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

#[path = "../../../block/tests/it/client.rs"]
#[expect(dead_code, reason = "its other calls are for the tests beside it")]
mod client;

use client::{Client, FUA, Response, WRITE};

const BLOCK: u64 = 4096;

/// The command, serving.
struct Serving {
    child: Child,
    uri: String,
    socket: PathBuf,
    stdout: BufReader<ChildStdout>,
}

impl Serving {
    fn start(bench: &Bench, arguments: &[&str]) -> Serving {
        let socket = bench.path("nbd.sock");
        let mut child = block(bench, &socket, arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut uri = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut uri).unwrap();
        Serving {
            child,
            uri: uri.trim_end().to_owned(),
            socket,
            stdout,
        }
    }

    fn client(&self) -> Client {
        Client::new(&self.socket, true)
    }

    /// Ends it as a service manager does. It has nothing more to say.
    fn stop(mut self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status:?}");
    }
}

fn block(bench: &Bench, socket: &Path, arguments: &[&str]) -> Command {
    let mut command = program();
    command
        .arg("block")
        .arg("--tier")
        .arg(bench.path("device"))
        .arg("--listen")
        .arg(format!("unix:{}", socket.display()))
        .args(arguments);
    command
}

fn fails(bench: &Bench, arguments: &[&str]) -> Ran {
    let socket = bench.path("other.sock");
    Ran::of(block(bench, &socket, arguments).output().unwrap())
}

#[test]
fn a_device_outlives_its_server_and_says_where_it_is() {
    let bench = Bench::new();
    let serving = Serving::start(&bench, &["--size", "4MiB", "--sets", "2"]);
    let socket = serving.socket.display().to_string();
    assert_eq!(serving.uri, format!("nbd+unix:///?socket={socket}"));
    let mut client = serving.client();
    assert_eq!(client.size, 4 << 20);
    // Nobody flushes: the stop does.
    client.write(1_000_000, b"kept");
    serving.stop();
    assert!(!Path::new(&socket).exists());
    let serving = Serving::start(&bench, &[]);
    assert_eq!(serving.client().read(1_000_000, 4), b"kept");
    serving.stop();
}

#[test]
fn what_cannot_be_is_said_with_a_code() {
    let bench = Bench::new();
    let none = fails(&bench, &[]);
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.stderr.contains("specify its size"), "{none:?}");
    let odd = fails(&bench, &["--size", "1000"]);
    assert!(odd.code == 2 && odd.stderr.contains("[invalid]"), "{odd:?}");
    let open = fails(&bench, &["--size", "1MiB", "--listen", "tcp:0.0.0.0:1"]);
    assert_eq!(open.code, 2, "{open:?}");
    let serving = Serving::start(&bench, &["--size", "4MiB"]);
    let second = fails(&bench, &[]);
    assert!(
        second.code == 1 && second.stderr.contains("[locked]"),
        "{second:?}"
    );
    serving.stop();
    let other = fails(&bench, &["--size", "8MiB"]);
    assert!(
        other.code == 2 && other.stderr.contains("has size 4194304"),
        "{other:?}"
    );
    let superblock = bench.path("device").join("block.super");
    let mut bytes = std::fs::read(&superblock).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&superblock, bytes).unwrap();
    let damaged = fails(&bench, &[]);
    assert!(
        damaged.code == 1 && damaged.stderr.contains("[corrupt]"),
        "{damaged:?}"
    );
}

/// Killed with SIGKILL while it is written to, again and again: what was flushed, or written with
/// FUA, is there, and every block is as one write left it.
#[test]
fn a_killed_device_has_what_was_flushed() {
    let bench = Bench::new();
    let mut dice = Dice(3);
    let blocks = 256_u64;
    let size = (blocks * BLOCK).to_string();
    // For each block the number of its newest durable write, and of those since.
    let mut durable = vec![0_u64; 256];
    let mut written: Vec<Vec<u64>> = vec![Vec::new(); 256];
    let mut number = 0_u64;
    for round in 0..12 {
        let serving = Serving::start(&bench, &["--size", &size]);
        let mut client = serving.client();
        for block in 0..blocks {
            let found = client.read(block * BLOCK, 4096);
            let found: Vec<u64> = found
                .chunks(8)
                .map(|word| u64::from_be_bytes(word.try_into().unwrap()))
                .collect();
            let at = block as usize;
            assert!(
                found.iter().all(|word| *word == found[0]),
                "round {round}: block {block} is torn"
            );
            assert!(
                found[0] == durable[at] || written[at].contains(&found[0]),
                "round {round}: block {block} has {}, {} was flushed",
                found[0],
                durable[at]
            );
            durable[at] = found[0];
            written[at].clear();
        }
        for _ in 0..50 + dice.below(300) {
            number += 1;
            let block = dice.below(blocks);
            let at = block as usize;
            let data = number.to_be_bytes().repeat(512);
            let fua = dice.below(10) == 0;
            let flags = if fua { FUA } else { 0 };
            let told = client.call(WRITE, flags, block * BLOCK, 4096, &data);
            assert_eq!(told, Response::Done);
            written[at].push(number);
            if fua {
                durable[at] = number;
                written[at].clear();
            }
            if dice.below(20) == 0 {
                client.flush();
                for (durable, written) in durable.iter_mut().zip(&mut written) {
                    *durable = written.pop().unwrap_or(*durable);
                    written.clear();
                }
            }
        }
        // Some are on their way when it is killed.
        for _ in 0..dice.below(8) {
            number += 1;
            let block = dice.below(blocks);
            let data = number.to_be_bytes().repeat(512);
            client.send(WRITE, 0, block * BLOCK, 4096, &data).unwrap();
            written[block as usize].push(number);
        }
        wait(&mut dice);
        kill(serving.child);
    }
}

/// The programs that a test needs, or nothing where one is missing, which is told.
fn installed(names: &[&str]) -> Option<()> {
    let mut found = names.iter().map(|name| headwater_testing::installed(name));
    headwater_testing::or_skip(found.try_for_each(|found| found.map(drop)))
}

fn run(name: &str, arguments: &[&str]) -> Ran {
    Ran::of(Command::new(name).args(arguments).output().unwrap())
}

#[test]
fn libnbd_sees_and_copies_the_device() {
    if installed(&["nbdinfo", "nbdcopy"]).is_none() {
        return;
    }
    let bench = Bench::new();
    let serving = Serving::start(&bench, &["--size", "16MiB"]);
    // To say what lies in the device nbdinfo runs `file`; without one it prints what its memory
    // holds.
    let info = run("nbdinfo", &["--no-content", "--json", &serving.uri]).ok();
    let info = &info.json()["exports"][0];
    assert_eq!(info["export-size"], 16 << 20, "{info}");
    for can in [
        "can_flush",
        "can_fua",
        "can_multi_conn",
        "can_trim",
        "can_zero",
        "can_df",
    ] {
        assert_eq!(info[can], true, "{can}: {info}");
    }
    assert_eq!(info["is_read_only"], false);
    assert_eq!(info["contexts"][0], "base:allocation");
    let list = run("nbdinfo", &["--no-content", "--list", &serving.uri]).ok();
    assert!(list.stdout.contains("headwater"), "{list:?}");
    // A file with holes there and back, over several connections.
    let mut bytes = vec![0; 16 << 20];
    let mut dice = Dice(4);
    for _ in 0..20 {
        let at = dice.below((16 << 20) - 70_000) as usize;
        let byte = 1 + dice.below(255) as u8;
        bytes[at..at + dice.below(70_000) as usize].fill(byte);
    }
    let there = bench.file("there", &bytes).display().to_string();
    run("nbdcopy", &["--flush", &there, &serving.uri]).ok();
    let map = run("nbdinfo", &["--map", "--json", &serving.uri]).ok();
    let map = map.json();
    let extents = map.as_array().unwrap();
    let total: u64 = extents.iter().map(|e| e["length"].as_u64().unwrap()).sum();
    assert_eq!(total, 16 << 20);
    assert!(extents.len() > 2, "{map}");
    kill(serving.child);
    let serving = Serving::start(&bench, &[]);
    let back = bench.path("back");
    run("nbdcopy", &[&serving.uri, &back.display().to_string()]).ok();
    assert!(std::fs::read(&back).unwrap() == bytes, "the copy differs");
    serving.stop();
}

/// fio writes at random with checksums in every block, flushing now and then, and reads all of it
/// back; then again after the device was killed and started anew.
#[test]
fn fio_finds_what_it_wrote_also_after_a_kill() {
    if installed(&["fio"]).is_none() {
        return;
    }
    let bench = Bench::new();
    let serving = Serving::start(&bench, &["--size", "8MiB"]);
    // Of what fio leaves behind, nothing may come into the folder of the sources.
    let fio = |arguments: &[&str], uri: &str| {
        let ran = Command::new("fio")
            .current_dir(bench.path("."))
            .args([
                "--name=block",
                "--ioengine=nbd",
                "--rw=randwrite",
                "--bs=4k",
                "--size=8m",
                "--iodepth=16",
                "--fsync=64",
                "--end_fsync=1",
                "--randseed=7",
                "--verify=crc32c",
                "--verify_fatal=1",
            ])
            .arg(format!("--uri={uri}"))
            .args(arguments)
            .output()
            .unwrap();
        Ran::of(ran).ok()
    };
    fio(&["--do_verify=1"], &serving.uri);
    kill(serving.child);
    let serving = Serving::start(&bench, &[]);
    let verified = fio(&["--verify_only=1"], &serving.uri);
    assert!(verified.stdout.contains("err= 0"), "{verified:?}");
    serving.stop();
}

#[test]
fn an_export_has_the_name_that_it_was_given() {
    let bench = Bench::new();
    let serving = Serving::start(&bench, &["--size", "1MiB", "--export", "mine"]);
    let mut stream = client::connect(&serving.socket);
    client::greet(&mut stream).unwrap();
    let told = client::option_replies(&mut stream, 3, b"");
    assert_eq!(told[0].1, client::named("mine", b""));
    drop(stream);
    serving.stop();
}
