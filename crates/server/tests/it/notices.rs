//! Notices over a real broker: heard, lost, doubled, forged, refused; a broker that goes away and
//! comes again.

use crate::dispatch::dispatcher_in;
use crate::notice_desk::{
    HOUR, all_queries_sent, change, has_stream, identity, metric, notices_received, queries_sent,
    token, until_linked, until_news,
};
use crate::support::{Running, client, json};
use headwater_protocol::notice::{Notice, NoticeKey, NoticeKind};
use headwater_server::Settings;
use headwater_server::settings::{Broker as BrokerAddress, NoticeBus};
use headwater_server::tokens::TokenFile;
use headwater_testing::until;
use headwater_testing::{Broker, has_broker};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const TOPIC: &str = "headwater/notices/north";

fn by_mqtt(settings: &mut Settings, broker: &Broker, check: Duration) {
    settings.notices.bus = NoticeBus::Mqtt;
    settings.notices.check = check;
    settings.notices.login.broker = Some(BrokerAddress {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: broker.port,
    });
}

fn node(broker: &Broker) -> Running {
    Running::start_with(|s| {
        by_mqtt(s, broker, HOUR);
        s.notices.name = "north".to_owned();
    })
}

/// One that hears by the broker, and asks without a notice only every `check`.
fn desk(broker: &Broker, node: &Running, check: Duration) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let desk = dispatcher_in(dir, &[node], |s| by_mqtt(s, broker, check));
    until_linked(&desk, true);
    desk
}

/// Runs one of mosquitto's clients.
fn mosquitto(program: &str, broker: &Broker, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(["-V", "mqttv5", "-h", "127.0.0.1", "-q", "1"])
        .args(["-p", &broker.port.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_dispatcher_hears_of_a_change_by_the_broker() {
    if !has_broker() {
        return;
    }
    let broker = Broker::start();
    let node = node(&broker);
    change(&node, 0);
    let desk = desk(&broker, &node, HOUR);
    let next = until_news(&node, &desk, 1);
    // No question waits at the node, and none is due for an hour: only a notice tells.
    let waited = queries_sent(&desk, "waiting");
    for number in next..next + 5 {
        change(&node, number);
        until("the dispatcher knows a new stream", || {
            has_stream(&desk, number)
        });
    }
    assert_eq!(queries_sent(&desk, "waiting"), waited);
    assert_eq!(queries_sent(&desk, "check"), 0);
    assert_eq!(metric(&desk, "connected"), 1);
    assert!(notices_received(&desk, "news") >= 5 && metric(&node, "told_total") >= 6);
    // Another that comes later and one without a broker know the same.
    let later = self::desk(&broker, &node, HOUR);
    let without = dispatcher_in(tempfile::tempdir().unwrap(), &[&node], |_| {});
    for desk in [&later, &without] {
        until("it knows all streams", || {
            (0..next + 5).all(|n| has_stream(desk, n))
        });
    }
    change(&node, next + 5);
    for desk in [&desk, &later, &without] {
        until("all of them know", || has_stream(desk, next + 5));
    }
    assert_eq!(metric(&without, "connected"), 0);
}

#[test]
fn while_the_broker_is_away_nodes_are_waited_at() {
    if !has_broker() {
        return;
    }
    let mut broker = Broker::start();
    let node = node(&broker);
    change(&node, 0);
    let desk = desk(&broker, &node, HOUR);
    let mut next = until_news(&node, &desk, 1);
    for at_once in [true, false] {
        broker.end(at_once);
        until_linked(&desk, false);
        change(&node, next);
        until("it is known without a broker", || has_stream(&desk, next));
        std::thread::sleep(Duration::from_secs(2));
        change(&node, next + 1);
        until("it is known for as long as that is so", || {
            has_stream(&desk, next + 1)
        });
        broker.begin();
        until_linked(&desk, true);
        until("what was told meanwhile is asked for", || {
            queries_sent(&desk, "gap") >= 1
        });
        next = until_news(&node, &desk, next + 2);
        change(&node, next);
        until("it is known by a notice again", || has_stream(&desk, next));
        next += 1;
    }
    assert!(metric(&desk, "connects_total") >= 3 && metric(&node, "connects_total") >= 3);
    assert!(metric(&desk, "connection_failures_total") >= 2);
}

#[test]
fn forged_and_doubled_notices_make_nobody_ask() {
    if !has_broker() {
        return;
    }
    let broker = Broker::start();
    let node = node(&broker);
    change(&node, 0);
    let desk = desk(&broker, &node, HOUR);
    let next = until_news(&node, &desk, 1);
    until("it is quiet", || has_stream(&desk, next - 1));
    let (identity, incarnation, epoch) = identity(&node);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notice");
    let file = file.to_str().unwrap();
    let real = mosquitto("mosquitto_sub", &broker, &["-C", "1", "-N", "-t", TOPIC]);
    assert!(real.status.success() && real.stdout.len() > 64, "{real:?}");
    let before = all_queries_sent(&desk);
    for number in 0..20 {
        let forged = Notice {
            kind: [NoticeKind::Changed, NoticeKind::Disconnected][number % 2],
            identity,
            incarnation,
            epoch,
            number: 1 << 40,
            version: 1 << 40,
        };
        let key = NoticeKey::of_seed(&[5; 32]).unwrap();
        std::fs::write(file, key.seal(&forged)).unwrap();
        broker.client(TOPIC, &["-f", file], "");
        broker.publish(TOPIC, "no notice at all");
        // Also under the name of another node.
        std::fs::write(file, &real.stdout).unwrap();
        broker.client("headwater/notices/south", &["-f", file], "");
    }
    until("all of it has come", || {
        let again = notices_received(&desk, "known") + notices_received(&desk, "late");
        notices_received(&desk, "forged") >= 1
            && notices_received(&desk, "garbled") >= 1
            && again >= 1
    });
    // Those that came together are one; whatever came, nobody asked.
    assert_eq!(all_queries_sent(&desk), before);
    let next = until_news(&node, &desk, next);
    change(&node, next);
    until("what the node tells is heard as before", || {
        has_stream(&desk, next)
    });
}

#[test]
fn a_node_that_ends_is_asked_at_once_and_one_that_begins_anew_is_known() {
    if !has_broker() {
        return;
    }
    let broker = Broker::start();
    let mut node = node(&broker);
    change(&node, 0);
    let desk = desk(&broker, &node, HOUR);
    let next = until_news(&node, &desk, 1);
    let addr = node.addr;
    let dir = node.ended();
    until("the broker has said that it has gone", || {
        queries_sent(&desk, "gone") >= 1
    });
    until("and nobody answers there", || {
        let mut answer = client().get(desk.url("/api/v1/sync")).call().unwrap();
        json(&mut answer)["nodes"][0]["is_live"] == false
    });
    node = Running::start_in(dir, |s| {
        by_mqtt(s, &broker, HOUR);
        s.notices.name = "north".to_owned();
        s.http_addr = addr;
    });
    let next = until_news(&node, &desk, next);
    change(&node, next);
    until("it is known by a notice again", || has_stream(&desk, next));
}

/// A broker that lets in these names, each with its name as password, and goes by the rules that
/// are made of the list.
fn guarded(list: &Path) -> Broker {
    let file = TokenFile::of_database(list);
    token(&file, "gate", &["read *"]);
    token(&file, "north", &["write headwater_notices,node=north"]);
    token(&file, "south", &["write headwater_notices,node=south"]);
    token(&file, "narrow", &["read headwater_notices,node=south"]);
    token(&file, "outsider", &["read weather", "write weather"]);
    let tokens = file.read().unwrap().unwrap();
    let rules = headwater_server::broker_rules(&tokens, "headwater/notices").unwrap();
    Broker::start_with(|dir, _| {
        let path = |name: &str| dir.join(name).display().to_string();
        std::fs::write(path("rules"), &rules).unwrap();
        std::fs::write(path("passwords"), "").unwrap();
        for name in ["gate", "north", "south", "narrow", "outsider"] {
            let made = Command::new("mosquitto_passwd")
                .args(["-b", &path("passwords"), name, name])
                .status();
            assert!(made.unwrap().success());
        }
        format!(
            "password_file {}\nacl_file {}\nallow_anonymous false\n",
            path("passwords"),
            path("rules")
        )
    })
}

#[test]
fn the_broker_goes_by_the_rules_that_are_made_of_the_list() {
    if !has_broker() {
        return;
    }
    let list = tempfile::tempdir().unwrap();
    let broker = guarded(list.path());
    let names = ["gate", "north", "south", "narrow", "outsider"];
    // Everybody tells under both topics, and somebody without a name too.
    for topic in ["headwater/notices/north", "headwater/notices/south"] {
        for name in names {
            let text = format!("of {name}");
            let told = ["-r", "-u", name, "-P", name, "-t", topic, "-m", &text];
            mosquitto("mosquitto_pub", &broker, &told);
        }
        let told = ["-r", "-t", topic, "-m", "of nobody"];
        let refused = mosquitto("mosquitto_pub", &broker, &told);
        assert!(!refused.status.success(), "{refused:?}");
    }
    let hears = |name: &str| {
        let topic = ["-t", "headwater/notices/+", "-W", "2", "-v"];
        let login = ["-u", name, "-P", name];
        let heard = mosquitto("mosquitto_sub", &broker, &[&topic[..], &login].concat());
        let mut lines: Vec<String> = String::from_utf8(heard.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    let north = "headwater/notices/north of north";
    let south = "headwater/notices/south of south";
    assert_eq!(hears("gate"), [north, south]);
    assert_eq!(hears("narrow"), [south]);
    for name in ["north", "south", "outsider"] {
        assert_eq!(hears(name), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_node_that_may_not_tell_is_known_all_the_same() {
    if !has_broker() {
        return;
    }
    let list = tempfile::tempdir().unwrap();
    let broker = guarded(list.path());
    let login = |s: &mut Settings, name: &str, check: Duration| {
        by_mqtt(s, &broker, check);
        let file = s.db().with_extension("password");
        std::fs::write(&file, format!("{name}\n")).unwrap();
        s.notices.login.user = name.to_owned();
        s.notices.login.password_file = Some(file);
    };
    // It has the name of another.
    let node = Running::start_with(|s| {
        login(s, "south", HOUR);
        s.notices.name = "north".to_owned();
    });
    change(&node, 0);
    until("the broker has refused a notice", || {
        metric(&node, "refused_total") >= 1
    });
    let dir = tempfile::tempdir().unwrap();
    let second = Duration::from_secs(1);
    let desk = dispatcher_in(dir, &[&node], |s| login(s, "gate", second));
    until_linked(&desk, true);
    until("it is asked now and then", || {
        queries_sent(&desk, "check") >= 1
    });
    change(&node, 1);
    until("what it could not tell is known", || has_stream(&desk, 1));
    assert_eq!(notices_received(&desk, "news"), 0);
}

#[test]
fn settings_that_cannot_be_are_told_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(dir.path().join("db"));
    settings.http_addr.set_port(0);
    settings.notices.bus = NoticeBus::Mqtt;
    settings.notices.name = "north".to_owned();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let start = |settings: &Settings| {
        let started = runtime.block_on(headwater_server::Server::start(settings.clone()));
        started.map(drop).unwrap_err().to_string()
    };
    let told = start(&settings);
    assert!(told.contains("notices.broker"), "{told}");
    settings.notices.login.broker = Some(BrokerAddress {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: 1,
    });
    settings.notices.login.user = "north".to_owned();
    settings.notices.login.password_file = Some(dir.path().join("none"));
    let told = start(&settings);
    assert!(told.contains("notices.password_file"), "{told}");
    settings.notices.login.password_file = None;
    std::fs::create_dir_all(settings.db()).unwrap();
    std::fs::write(settings.db().join("notices.key"), "short").unwrap();
    let told = start(&settings);
    assert!(
        told.contains("notices.key") && told.contains("32 bytes"),
        "{told}"
    );
}
