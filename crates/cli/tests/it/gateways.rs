//! The commands of docs/cluster/gateways.md, exactly as they stand there, against processes; the
//! rows of the cloud are compared before and after each of them.

use crate::fleet::{cloud, edge, is_current, kill};
use crate::serve::Served;
use crate::support::{Bench, program, text};
use headwater_testing::until;
use std::process::Command;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/cluster/gateways.md"
);
/// Rows of one [`write`].
const ROWS: u64 = 1000;

/// The commands of the page, in their order.
fn commands() -> Vec<String> {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let blocks = page.split("```sh\n").skip(1);
    let commands = blocks.map(|block| block.split("```").next().unwrap().trim().to_owned());
    commands.collect()
}

/// Runs a command of the page, which must be the next one.
fn run(bench: &Bench, cloud: &str, commands: &mut impl Iterator<Item = String>, begins: &str) {
    let command = commands.next().unwrap();
    assert!(command.starts_with(begins), "{command}");
    let program = program();
    let dir = std::path::Path::new(program.get_program())
        .parent()
        .unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-ec", &command])
        .current_dir(bench.path("."))
        .env("PATH", path)
        .env("CLOUD", format!("http://{cloud}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
}

fn write(edge: &Served, from: u64) {
    write_later(edge, from, 0);
}

/// The same, some milliseconds later.
fn write_later(edge: &Served, from: u64, later: u64) {
    let time = |n| 1_700_000_000_000 + later + n * 250;
    let line = |n| format!("pump,host=gw flow={n}.5 {}\n", time(n));
    let lines: String = (from..from + ROWS).map(line).collect();
    let answer = edge.request("POST", "/write?precision=ms", "", &lines);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

/// All rows of the stream at the cloud.
fn rows(cloud: &Served) -> Vec<String> {
    rows_of(cloud, "pump,host%3Dgw")
}

fn rows_of(cloud: &Served, stream: &str) -> Vec<String> {
    let path = format!("/api/v1/scan?stream={stream}&limit=100000&format=csv");
    let answer = cloud.request("GET", &path, "", "");
    let lines = answer.lines().map(str::to_owned);
    let rows: Vec<String> = lines.filter(|line| line.contains(".5")).collect();
    assert!(rows.is_sorted(), "{answer}");
    rows
}

#[test]
fn every_command_of_the_page_about_gateways_does_what_it_says_and_no_row_goes() {
    let bench = Bench::new();
    let center = cloud(&bench.path("cloud"), "127.0.0.1:0");
    let addr = center.addr.clone();
    let mut page = commands().into_iter();
    let invited = crate::fleet::run_against(&addr, &["edges", "add", "pump-7"]).ok();
    let old = bench.path("old-gateway");
    crate::fleet::run(&["join", invited.stdout.trim(), "--db", text(&old)]).ok();
    let dead = edge(&old);
    write(&dead, 0);
    until("it is at the cloud", || is_current(&addr, &dead, "pump-7"));
    let first = rows(&center);
    assert_eq!(first.len() as u64, ROWS);
    kill(dead);
    // Replaced: one command and one join.
    run(&bench, &addr, &mut page, "headwater edges replace");
    assert_eq!(rows(&center), first);
    run(&bench, &addr, &mut page, "headwater join");
    let new = bench.path("new-gateway");
    let gateway = edge(&new);
    write(&gateway, ROWS);
    until("the successor is at the cloud", || {
        is_current(&addr, &gateway, "pump-7b")
    });
    let both = rows(&center);
    assert_eq!(both.len() as u64, 2 * ROWS);
    assert_eq!(both[..first.len()], first);
    run(&bench, &addr, &mut page, "headwater edges rename");
    write(&gateway, 2 * ROWS);
    until("it goes on under its name", || {
        is_current(&addr, &gateway, "north-7")
    });
    let three = rows(&center);
    assert_eq!(three.len() as u64, 3 * ROWS);
    // Another machine with its database.
    kill(gateway);
    run(&bench, &addr, &mut page, "headwater edges add");
    std::fs::remove_file(new.join("uplink.json")).unwrap();
    run(&bench, &addr, &mut page, "headwater join");
    let gateway = edge(&new);
    write(&gateway, 3 * ROWS);
    until("it goes on", || is_current(&addr, &gateway, "north-7"));
    let four = rows(&center);
    assert_eq!(four.len() as u64, 4 * ROWS);
    run(&bench, &addr, &mut page, "headwater edges remove");
    assert_eq!(rows(&center), four);
    run(&bench, &addr, &mut page, "headwater edges undo");
    assert_eq!(rows(&center), four);
    // Another gateway has a stream of the same name.
    let invited = crate::fleet::run_against(&addr, &["edges", "add", "pump-8"]).ok();
    let db = bench.path("eighth-gateway");
    crate::fleet::run(&["join", invited.stdout.trim(), "--db", text(&db)]).ok();
    let eighth = edge(&db);
    (0..4).for_each(|n| write_later(&eighth, n * ROWS, 125));
    until("both are at the cloud", || {
        is_current(&addr, &eighth, "pump-8")
    });
    assert_eq!(rows(&center).len() as u64, 8 * ROWS);
    run(&bench, &addr, &mut page, "headwater edges conflicts");
    run(&bench, &addr, &mut page, "headwater edges move");
    let moved = rows(&center);
    assert_eq!(moved.len() as u64, 4 * ROWS);
    assert_eq!(moved[..1600], four[..1600]);
    assert!(moved[1600..].iter().all(|row| !four.contains(row)));
    run(&bench, &addr, &mut page, "headwater edges tag");
    assert_eq!(rows(&center), four);
    let tagged = rows_of(&center, "pump,gateway%3Dpump-8,host%3Dgw");
    assert_eq!(tagged.len() as u64, 4 * ROWS);
    // The tag is a column before the others.
    let untagged = tagged.iter().map(|row| row.replace(",pump-8,", ","));
    assert_eq!(untagged.skip(1600).collect::<Vec<_>>(), moved[1600..]);
    let listed = crate::fleet::run_against(&addr, &["edges"]).ok().stdout;
    assert!(listed.contains("gateway=pump-8"), "{listed}");
    kill(eighth);
    run(&bench, &addr, &mut page, "headwater edges parts --url");
    run(&bench, &addr, &mut page, "headwater edges parts verify");
    assert_eq!(rows(&center), four);
    run(&bench, &addr, &mut page, "headwater edges parts remove");
    assert_eq!(rows(&center), four[first.len()..]);
    assert_eq!(page.next(), None);
    kill(gateway);
    kill(center);
}

#[test]
fn a_removal_tells_what_is_lost_and_asks() {
    let bench = Bench::new();
    let center = cloud(&bench.path("cloud"), "127.0.0.1:0");
    let addr = center.addr.clone();
    let against = |arguments: &[&str]| crate::fleet::run_against(&addr, arguments);
    let invited = against(&["edges", "add", "a"]).ok();
    let db = bench.path("edge");
    crate::fleet::run(&["join", invited.stdout.trim(), "--db", text(&db)]).ok();
    let gateway = edge(&db);
    write(&gateway, 0);
    until("it is at the cloud", || is_current(&addr, &gateway, "a"));
    let asked = against(&["edges", "remove", "a"]);
    assert_eq!(asked.code, 2, "{asked:?}");
    for said in ["pump,host=gw", "1,000", "2023-11-14T22:13:20Z", "--yes"] {
        assert!(asked.stderr.contains(said), "{said}: {asked:?}");
    }
    assert_eq!(rows(&center).len() as u64, ROWS);
    against(&["edges", "remove", "a", "--with-history", "--yes"]).ok();
    assert!(rows(&center).is_empty());
    let log = against(&["edges", "log"]).ok().stdout;
    assert!(log.contains("a removed with its history"), "{log}");
    let undo = against(&["edges", "undo", "1"]);
    assert!(undo.stderr.contains("cannot be undone"), "{undo:?}");
    kill(gateway);
    kill(center);
}
