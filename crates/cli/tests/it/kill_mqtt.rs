//! A server killed with SIGKILL in the middle of messages from a broker, several times over one
//! database: every message that the broker took is there in the end, since none was acknowledged
//! before it was stored.

use crate::kill::{check, open, wait};
use crate::serve::Served;
use crate::support::Bench;
use headwater::{ScanSpec, StreamName, ValueRef};
use headwater_testing::{Broker, Dice, has_broker, until};

const ROUNDS: u64 = 5;
const MESSAGES: u64 = 3_000;
const START: u64 = 1_700_000_000_000_000_000;

/// A figure of `/metrics`; 0 when it is not there.
fn metric(served: &Served, name: &str) -> u64 {
    let answer = served.request("GET", "/metrics", "", "");
    let line = answer.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok())
        .unwrap_or_default()
}

fn messages_done(served: &Served) -> u64 {
    metric(served, "headwater_mqtt_messages_done_total ")
}

fn lines(round: u64) -> String {
    let numbers = round * MESSAGES..(round + 1) * MESSAGES;
    numbers
        .map(|n| format!("t,d={} v={n}i {}\n", n % 7, START + n))
        .collect()
}

#[test]
fn messages_survive_kills() {
    if !has_broker() {
        return;
    }
    let broker = Broker::start();
    let bench = Bench::new();
    let settings = format!(
        "[mqtt]\nbroker = \"mqtt://127.0.0.1:{}\"\nclient_id = \"killed\"\n\n[[mqtt.subscription]]\ntopic = \"lp/#\"\npayload = \"line-protocol\"\n",
        broker.port
    );
    let file = bench.file("headwater.toml", settings);
    let file = crate::support::text(&file);
    let start = || Served::start(&bench.db(), &["--config", file, "--memory-budget", "2MiB"]);
    let mut dice = Dice(7);
    let mut served = start();
    // From then on the broker keeps what the server has not acknowledged.
    until("the session is there", || {
        broker.publish("lp/first", &format!("first v=1i {START}"));
        messages_done(&served) > 0
    });
    for round in 0..ROUNDS {
        let before = messages_done(&served);
        assert_eq!(
            metric(&served, "headwater_mqtt_connection_failures_total "),
            0
        );
        let wanted = before + 1 + dice.below(MESSAGES / 2);
        std::thread::scope(|scope| {
            let publisher = scope.spawn(|| broker.publish_lines("lp/load", &lines(round)));
            until("some are stored", || messages_done(&served) >= wanted);
            wait(&mut dice);
            // SIGKILL: nothing in the process runs any more.
            served.child.kill().unwrap();
            served.child.wait().unwrap();
            publisher.join().unwrap();
        });
        check(&bench.db(), round as usize);
        served = start();
    }
    let all = ROUNDS * MESSAGES;
    let count = || -> u64 {
        let found: Vec<String> = (0..7)
            .map(|d| {
                let path = format!("/api/v1/aggregate?channel=t%2Cd%3D{d}.v&functions=count");
                served.request("GET", &path, "", "")
            })
            .collect();
        let counts = found.iter().filter_map(|answer| {
            let (_, rest) = answer.split_once("\"count\":[")?;
            rest.split(']').next()?.parse::<u64>().ok()
        });
        counts.sum()
    };
    until("all are stored", || count() >= all);
    // However many messages had waited, one connection was enough for them.
    assert_eq!(
        metric(&served, "headwater_mqtt_connection_failures_total "),
        0
    );
    assert!(served.end("-TERM").code == 0);
    let db = open(&bench.db());
    let snapshot = db.snapshot().unwrap();
    let mut found = 0;
    for device in 0..7 {
        let stream = StreamName::new("t", [("d", device.to_string())]);
        for chunk in snapshot.scan(&stream, &ScanSpec::default()).unwrap() {
            let chunk = chunk.unwrap();
            for (row, time) in chunk.times.iter().enumerate() {
                let number = *time - START as i64;
                assert_eq!(chunk.columns[0].get(row), Some(ValueRef::I64(number)));
                found += 1;
            }
        }
    }
    assert_eq!(found, all);
}
