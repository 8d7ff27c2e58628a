//! Live values over a real XMPP server: who may hear them by the list of rights, and who may not;
//! revocation, veto, a server that is away; a dispatcher that hears them. The list of rights over
//! that server, at an edge whose cloud is out of reach.

use crate::notice_desk::{HOUR, metric};
use crate::notices_xmpp::{Speaker, notices};
use crate::prosody::{OWNER, Prosody, has_prosody};
use crate::rights::{cloud_with, create, invited, tokens};
use crate::support::{Running, client, json};
use crate::sync::{status, write};
use headwater_protocol::live::{NewestValues, topic_of};
use headwater_protocol::xmpp::{IqKind, pubsub};
use headwater_server::rights::keys::RightsKeys;
use headwater_server::rules::AccessRule;
use headwater_server::settings::NodeRole;
use headwater_server::tokens::TokenFile;
use headwater_testing::until;
use serde_json::Value;
use std::time::{Duration, Instant};

const ACCOUNTS: [&str; 6] = ["gate", "north", "reader", "narrow", "outsider", "other"];
/// A revocation reaches the server within this.
const WITHIN: Duration = Duration::from_secs(60);

fn topic(stream: &str) -> String {
    topic_of("headwater/values", stream)
}

/// The list of rights: each token is the account of its name.
fn list(file: &TokenFile) {
    create(file, "gate", &["read *"]);
    create(file, "reader", &["read pump"]);
    create(file, "narrow", &["read pump,id=b"]);
    create(file, "outsider", &["read vans", "write vans"]);
    let north = ["write headwater_notices,node=north", "write pump"];
    create(file, "north", &north);
}

/// A cloud that applies its list of rights at the server, with the streams of its edges.
fn cloud(server: &Prosody) -> (Running, String) {
    cloud_with(|s| {
        list(&TokenFile::of_database(s.db()));
        s.notices = notices(server, OWNER, false);
        s.notices.name = "cloud".to_owned();
        s.notices.check = HOUR;
        s.notices.values = vec!["*".parse().unwrap()];
        s.notices.applies_lists = true;
    })
}

fn edge(server: &Prosody, cloud: &Running, admin: &str, vetoes: &[&str]) -> Running {
    let vetoes: Vec<AccessRule> = vetoes.iter().map(|veto| veto.parse().unwrap()).collect();
    Running::start_in(invited(cloud, admin, "north"), |s| {
        s.sync.role = NodeRole::Edge;
        s.sync.flush_every = Some(Duration::from_secs(1));
        s.rights.vetoes = vetoes;
        s.notices = notices(server, "north", false);
        s.notices.name = "north".to_owned();
        s.notices.values = vec!["*".parse().unwrap()];
        s.notices.values_interval = Duration::from_millis(100);
    })
}

fn line(stream: &str, second: i64, value: f64) -> String {
    let at = (1_700_000_000 + second) * 1_000_000_000;
    format!("{stream} flow={value} {at}\n")
}

impl Speaker {
    /// The values that the server keeps of a stream; `None` where this account may not hear them.
    fn newest(&mut self, stream: &str) -> Option<Vec<NewestValues>> {
        let answer = self.request(IqKind::Get, pubsub::items(&topic(stream)));
        let answer = answer.ok()?;
        let items = pubsub::items_of_answer(&answer);
        let read = items
            .iter()
            .map(|(_, item)| NewestValues::read(item.unwrap()).unwrap());
        Some(read.collect())
    }

    /// Values that were heard since this was asked last.
    fn heard_values(&mut self) -> Vec<NewestValues> {
        // The service answers this behind what it told before.
        self.request(IqKind::Get, pubsub::nodes()).unwrap();
        let messages = std::mem::take(&mut self.messages);
        let all = messages.iter().flat_map(pubsub::items_of_message);
        all.map(|(topic, item)| {
            let item = NewestValues::read(item.unwrap()).unwrap();
            assert_eq!(topic, topic_of("headwater/values", &item.stream));
            item
        })
        .collect()
    }
}

/// Instant and value of the field `flow`.
fn flow(item: &NewestValues) -> (i64, f64) {
    let of = item.values.iter().find(|value| value.field == "flow");
    let of = of.unwrap();
    match of.value {
        headwater::Value::F64(value) => (of.time.as_nanos() / 1_000_000_000 - 1_700_000_000, value),
        ref other => panic!("{other:?}"),
    }
}

/// Writes newer and newer values until the account hears the newest one.
fn until_heard(edge: &Running, speaker: &mut Speaker, stream: &str, second: &mut i64) {
    until("a value is heard", || {
        *second += 1;
        write(edge, &line(stream, *second, 0.5));
        let wanted = (*second, 0.5);
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(2) {
            let heard = speaker.heard_values();
            if heard
                .iter()
                .any(|item| item.stream == stream && flow(item) == wanted)
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    });
}

#[test]
fn values_of_an_edge_reach_who_may_read_the_stream_and_nobody_else() {
    if !has_prosody() {
        return;
    }
    let server = Prosody::start(&ACCOUNTS);
    let (cloud, admin) = cloud(&server);
    let edge = edge(&server, &cloud, &admin, &[]);
    write(&edge, &line("pump,id=a", 0, 1.5));
    write(&edge, &line("pump,id=b", 0, 2.5));
    write(&edge, &line("vans,id=a", 0, 3.5));
    let mut gate = Speaker::new(&server, "gate");
    for (stream, value) in [("pump,id=a", 1.5), ("pump,id=b", 2.5)] {
        until("the server keeps the newest value", || {
            gate.newest(stream).is_some_and(|kept| {
                let kept: Vec<_> = kept.iter().map(flow).collect();
                kept == [(0, value)]
            })
        });
    }
    // Each hears what its rules say, subscribed or asked.
    let may_hear = |account: &str| {
        let mut speaker = Speaker::new(&server, account);
        let streams = ["pump,id=a", "pump,id=b", "vans,id=a"];
        let may = streams.map(|stream| {
            let may = speaker.subscribe(&topic(stream), account).is_ok();
            assert_eq!(speaker.newest(stream).is_some(), may, "{account} {stream}");
            may
        });
        (may, speaker)
    };
    let (may, mut gate) = may_hear("gate");
    assert_eq!(may, [true, true, true]);
    let (may, mut reader) = may_hear("reader");
    assert_eq!(may, [true, true, false]);
    let (may, mut narrow) = may_hear("narrow");
    assert_eq!(may, [false, true, false]);
    let (may, mut outsider) = may_hear("outsider");
    assert_eq!(may, [false, false, true]);
    assert_eq!(may_hear("other").0, [false, false, false]);
    // Who may not write a stream publishes nothing under its topic: the edge has no right to vans.
    let real = gate.newest("pump,id=a").unwrap().remove(0);
    let nothing = gate.newest("vans,id=a").unwrap();
    assert!(nothing.is_empty(), "{nothing:?}");
    let forged = || real.element();
    let mut north = Speaker::new(&server, "north");
    assert!(reader.publish(&topic("pump,id=a"), forged()).is_err());
    assert!(north.publish(&topic("vans,id=a"), forged()).is_err());
    let mut second = 1;
    until_heard(&edge, &mut reader, "pump,id=a", &mut second);
    until_heard(&edge, &mut narrow, "pump,id=b", &mut second);
    assert!(
        narrow
            .heard_values()
            .iter()
            .all(|item| item.stream == "pump,id=b")
    );
    assert!(outsider.heard_values().is_empty());
    assert!(metric(&edge, "values_told_total") >= 4);
    assert!(
        metric(&edge, "values_refused_total") >= 1,
        "vans are refused"
    );

    // A right that ends, ends at the server, though the account has subscribed.
    let since = Instant::now();
    tokens(&cloud).revoke("reader").unwrap();
    until("the revoked account may not ask", || {
        reader.newest("pump,id=a").is_none()
    });
    assert!(since.elapsed() < WITHIN, "{:?}", since.elapsed());
    until("both topics are without it", || {
        reader.newest("pump,id=b").is_none() && metric_of(&cloud, &admin, "lists_behind") == 0
    });
    reader.heard_values();
    assert!(reader.subscribe(&topic("pump,id=a"), "reader").is_err());
    until_heard(&edge, &mut gate, "pump,id=a", &mut second);
    let late = reader.heard_values();
    assert!(late.is_empty(), "{late:?}");

    // A new token gets its right, for a stream that comes later, too.
    create(&tokens(&cloud), "other", &["read pump,id=c"]);
    write(&edge, &line("pump,id=c", 1, 9.5));
    let mut other = Speaker::new(&server, "other");
    until("the new stream is heard", || {
        other
            .newest("pump,id=c")
            .is_some_and(|kept| !kept.is_empty())
    });
    assert!(other.newest("pump,id=a").is_none());
}

/// A figure of `/metrics` of notices at a node with tokens.
fn metric_of(server: &Running, token: &str, name: &str) -> u64 {
    let asked = client().get(server.url("/metrics"));
    let asked = asked.header("authorization", format!("Bearer {token}"));
    let text = asked.call().unwrap().body_mut().read_to_string().unwrap();
    let wanted = format!("headwater_notices_{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&wanted));
    line.map_or(0, |figure| figure.trim().parse().unwrap())
}

#[test]
fn a_vetoed_stream_is_not_published_and_what_was_published_is_removed() {
    if !has_prosody() {
        return;
    }
    let server = Prosody::start(&ACCOUNTS);
    let (cloud, admin) = cloud(&server);
    let edge = edge(&server, &cloud, &admin, &[]);
    for stream in ["pump,id=a", "pump,id=b"] {
        write(&edge, &line(stream, 0, 1.5));
    }
    let mut gate = Speaker::new(&server, "gate");
    for stream in ["pump,id=a", "pump,id=b"] {
        until("it is published", || {
            gate.newest(stream).is_some_and(|kept| kept.len() == 1)
        });
        gate.subscribe(&topic(stream), "gate").unwrap();
    }
    // Its owner vetoes reading one of them.
    let edge = edge.restarted(|s| {
        s.sync.role = NodeRole::Edge;
        s.rights.vetoes = vec!["read pump,id=b".parse().unwrap()];
        s.notices = notices(&server, "north", false);
        s.notices.name = "north".to_owned();
        s.notices.values = vec!["*".parse().unwrap()];
        s.notices.values_interval = Duration::from_millis(100);
    });
    until("what was published is removed", || {
        gate.newest("pump,id=b").is_some_and(|kept| kept.is_empty())
    });
    gate.heard_values();
    write(&edge, &line("pump,id=b", 5, 2.5));
    let mut second = 5;
    until_heard(&edge, &mut gate, "pump,id=a", &mut second);
    write(&edge, &line("pump,id=b", 6, 2.5));
    until_heard(&edge, &mut gate, "pump,id=a", &mut second);
    let kept = gate.newest("pump,id=b").unwrap();
    assert!(kept.is_empty(), "{kept:?}");
}

/// One node that applies its own list and publishes its own values.
fn alone(server: &Prosody) -> Running {
    Running::start_with(|s| {
        let file = TokenFile::of_database(s.db());
        list(&file);
        let own = create(&file, "own", &["read *", "write *", "manage *"]);
        std::fs::write(s.db().join("own"), own).unwrap();
        s.notices = notices(server, OWNER, true);
        s.notices.name = "alone".to_owned();
        s.notices.check = HOUR;
        s.notices.values = vec!["pump".parse().unwrap()];
        s.notices.values_interval = Duration::from_millis(100);
        s.notices.applies_lists = true;
    })
}

fn own(node: &Running) -> String {
    std::fs::read_to_string(node.db().join("own")).unwrap()
}

fn write_as(node: &Running, lines: &str) {
    let sent = client().post(node.url("/write"));
    let sent = sent.header("authorization", format!("Bearer {}", own(node)));
    assert_eq!(sent.send(lines).unwrap().status(), 204);
}

fn values_of(server: &Running, token: &str, query: &str) -> Value {
    let asked = client().get(server.url(&format!("/api/v1/notices/values{query}")));
    let asked = asked.header("authorization", format!("Bearer {token}"));
    let mut answer = asked.call().unwrap();
    assert_eq!(answer.status(), 200);
    json(&mut answer)["streams"].clone()
}

#[test]
fn a_dispatcher_hears_values_and_answers_by_the_rights_of_who_asks() {
    if !has_prosody() {
        return;
    }
    let server = Prosody::start(&ACCOUNTS);
    let node = alone(&server);
    write_as(&node, &line("pump,id=a", 0, 1.5));
    write_as(&node, &line("pump,id=b", 0, 2.5));
    write_as(&node, &line("vans,id=a", 0, 2.5));
    // Once the topics exist: later ones are found after a minute.
    let mut gate = Speaker::new(&server, "gate");
    for stream in ["pump,id=a", "pump,id=b"] {
        until("it is published", || {
            gate.newest(stream).is_some_and(|kept| kept.len() == 1)
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, own(&node)).unwrap();
    let desk_tokens = TokenFile::of_database(dir.path().join("db"));
    let all = create(&desk_tokens, "all", &["read *"]);
    let part = create(&desk_tokens, "part", &["read pump,id=b"]);
    let none = create(&desk_tokens, "none", &["read vans"]);
    let desk = Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Dispatcher;
        s.dispatch.nodes = vec![headwater_server::settings::DispatchNode {
            url: node.url(""),
            public_url: node.url(""),
        }];
        s.dispatch.token_file = Some(token_file);
        s.notices = notices(&server, "gate", false);
        s.notices.hears_values = true;
    });
    let names = |token: &str, query: &str| {
        let streams = values_of(&desk, token, query);
        let names = streams.as_array().unwrap().iter();
        let names = names.map(|one| one["stream"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    until("it has heard both", || {
        names(&all, "") == ["pump,id=a", "pump,id=b"]
    });
    assert_eq!(names(&part, ""), ["pump,id=b"]);
    assert_eq!(names(&part, "?stream=pump,id%3Da"), Vec::<String>::new());
    assert_eq!(names(&none, ""), Vec::<String>::new());
    let without = client().get(desk.url("/api/v1/notices/values"));
    assert_eq!(without.call().unwrap().status(), 401);
    let malformed = client().get(desk.url("/api/v1/notices/values?stream=,"));
    let malformed = malformed.header("authorization", format!("Bearer {all}"));
    assert_eq!(malformed.call().unwrap().status(), 400);
    // Newer values come by themselves, with their instants.
    write_as(&node, &line("pump,id=a", 7, 4.5));
    until("the newest value is known", || {
        let one = &values_of(&desk, &all, "?stream=pump,id%3Da")[0];
        one["fields"]["flow"] == serde_json::json!({"time": "1700000007000000000", "value": 4.5})
    });
    let one = &values_of(&desk, &all, "?stream=pump,id%3Da")[0];
    assert!(
        one["age_ms"].as_u64().unwrap() < 60_000 && one["missed"] == 0,
        "{one}"
    );
    // Where nobody hears values, the answer is empty.
    assert_eq!(values_of(&node, &own(&node), ""), serde_json::json!([]));
}

#[test]
fn values_wait_for_a_server_that_is_away_and_the_loss_is_told() {
    if !has_prosody() {
        return;
    }
    let mut server = Prosody::start(&ACCOUNTS);
    let node = alone(&server);
    write_as(&node, &line("pump,id=a", 0, 1.5));
    let mut gate = Speaker::new(&server, "gate");
    let mut first = 0;
    until("it is published", || {
        let kept = gate.newest("pump,id=a").unwrap_or_default();
        first = kept.first().map_or(0, |item| item.number);
        first > 0
    });
    server.end(true);
    let token = own(&node);
    let figure = |name: &str| metric_of(&node, &token, name);
    until("the link is lost", || figure("connected") == 0);
    for second in 1..=5 {
        let before = figure("values_replaced_total");
        write_as(&node, &line("pump,id=a", second, 1.5));
        // The first one replaces nothing: the one before was sent.
        until("it is noticed", || {
            second == 1 || figure("values_replaced_total") > before
        });
        if second == 1 {
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    server.begin();
    let mut gate = Speaker::new(&server, "gate");
    until("the newest value is there", || {
        let kept = gate.newest("pump,id=a").unwrap_or_default();
        let newest = kept.first();
        newest.is_some_and(|item| flow(item) == (5, 1.5) && item.number > first + 1)
    });
    assert!(figure("values_replaced_total") >= 3);
}

const RIGHTS: &str = "headwater/rights/cloud";

/// Settings of a cloud that publishes its list of rights.
fn with_rights(s: &mut headwater_server::Settings, server: &Prosody) {
    s.sync.role = NodeRole::Cloud;
    s.notices = notices(server, OWNER, false);
    s.notices.name = "cloud".to_owned();
    s.notices.check = HOUR;
    s.notices.applies_lists = true;
    s.notices.rights = true;
}

fn status_of(edge: &Running, token: &str) -> u16 {
    let asked = client().get(edge.url("/api/v1/scan?stream=pump,id%3Da"));
    let asked = asked.header("authorization", format!("Bearer {token}"));
    asked.call().unwrap().status().as_u16()
}

fn sync_of(server: &Running, token: &str) -> Value {
    let asked = client().get(server.url("/api/v1/sync"));
    let asked = asked.header("authorization", format!("Bearer {token}"));
    json(&mut asked.call().unwrap())
}

#[test]
fn revocations_and_new_signing_keys_reach_an_edge_whose_cloud_is_out_of_reach() {
    if !has_prosody() {
        return;
    }
    let server = Prosody::start(&ACCOUNTS);
    let (cloud, admin) = cloud_with(|s| {
        let file = TokenFile::of_database(s.db());
        create(&file, "north", &["read headwater_rights,node=cloud"]);
        create(&file, "outsider", &["read pump"]);
        with_rights(s, &server);
    });
    let reader = create(&tokens(&cloud), "reader", &["read pump"]);
    let mut north = Speaker::new(&server, "north");
    until("the server has the list", || {
        let kept = north.request(IqKind::Get, pubsub::items(RIGHTS));
        kept.is_ok_and(|kept| !pubsub::items_of_answer(&kept).is_empty())
    });
    // It is for who may read its row, and only the cloud publishes it.
    let mut outsider = Speaker::new(&server, "outsider");
    assert!(outsider.subscribe(RIGHTS, "outsider").is_err());
    assert!(
        outsider
            .request(IqKind::Get, pubsub::items(RIGHTS))
            .is_err()
    );
    let kept = north.request(IqKind::Get, pubsub::items(RIGHTS)).unwrap();
    let items = pubsub::items_of_answer(&kept);
    let first = items[0].1.unwrap().clone();
    assert!(north.publish(RIGHTS, first.clone()).is_err());
    drop(north);

    let edge = Running::start_in(invited(&cloud, &admin, "north"), |s| {
        s.sync.role = NodeRole::Edge;
        s.notices = notices(&server, "north", false);
        s.notices.name = "north".to_owned();
        s.notices.rights = true;
    });
    write(&edge, &line("pump,id=a", 0, 1.5));
    let own = create(&tokens(&edge), "own", &["read *", "manage *"]);
    until("the list has arrived", || status_of(&edge, &reader) == 200);
    // The cloud is at another port from now on, where the edge does not find it.
    let cloud = cloud.restarted(|s| with_rights(s, &server));
    until("the edge has no cloud", || {
        sync_of(&edge, &own)["cloud"]["state"] == "offline"
    });
    let since = Instant::now();
    tokens(&cloud).revoke("reader").unwrap();
    until("the token has ended at the edge", || {
        status_of(&edge, &reader) == 401
    });
    assert!(since.elapsed() < WITHIN, "{:?}", since.elapsed());
    // The next list is signed by another key, which the chain leads to.
    RightsKeys::rotate(&tokens(&cloud), jiff::SignedDuration::ZERO).unwrap();
    let late = create(&tokens(&cloud), "late", &["read pump"]);
    until("a token by the new key is valid", || {
        status_of(&edge, &late) == 200
    });
    // An older list that somebody with the cloud's password publishes changes nothing.
    let before = sync_of(&edge, &own)["rights"]["number"].clone();
    let mut owner = Speaker::new(&server, OWNER);
    owner.publish(RIGHTS, first).unwrap();
    until("it is refused", || {
        let told = sync_of(&edge, &own)["rights"]["error"].clone();
        told.as_str().is_some_and(|why| !why.is_empty())
    });
    assert_eq!(sync_of(&edge, &own)["rights"]["number"], before);
    assert_eq!(status_of(&edge, &reader), 401);
    assert_eq!(status_of(&edge, &late), 200);
    assert_eq!(sync_of(&edge, &own)["cloud"]["state"], "offline");
}

/// What the edge's budget knows to have been sent today.
fn sent_today(edge: &Running) -> u64 {
    status(edge)["cloud"]["sent_today"].as_u64().unwrap()
}

#[test]
fn the_bus_is_within_the_budget_of_the_link() {
    const DAY_MAX: u64 = 256 << 10;
    if !has_prosody() {
        return;
    }
    let server = Prosody::start(&ACCOUNTS);
    let (cloud, admin) = cloud(&server);
    let settings = |s: &mut headwater_server::Settings| {
        s.sync.role = NodeRole::Edge;
        s.sync.day_max = Some(DAY_MAX);
        s.notices = notices(&server, "north", false);
        s.notices.name = "north".to_owned();
        s.notices.values = vec!["*".parse().unwrap()];
        s.notices.values_interval = Duration::from_millis(20);
    };
    let edge = Running::start_in(invited(&cloud, &admin, "north"), settings);
    write(&edge, &line("pump,id=a", 0, 1.5));
    let mut gate = Speaker::new(&server, "gate");
    until("the server keeps the newest value", || {
        let newest = gate.newest("pump,id=a");
        newest.is_some_and(|kept| !kept.is_empty())
    });
    // From now on all bytes are those of the bus.
    cloud.stopped(|_| ());
    let before = sent_today(&edge);
    until("bytes of the bus are charged", || {
        write(&edge, &line("pump,id=a", 1, 2.5));
        sent_today(&edge) > before
    });
    let mut second = 2;
    until("the cap of the day is spent, and the bus is left", || {
        for _ in 0..20 {
            second += 1;
            write(&edge, &line("pump,id=a", second, 2.5));
            std::thread::sleep(Duration::from_millis(10));
        }
        metric(&edge, "connected") == 0
    });
    until("the status says so, also while no cloud answers", || {
        status(&edge)["cloud"]["quiet"]["cause"] == "day_cap"
    });
    // Some answers of the server were on their way.
    let spent = sent_today(&edge);
    assert!(spent < DAY_MAX + (64 << 10), "{spent}");
    let connects = metric(&edge, "connects_total");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(sent_today(&edge), spent);
    assert_eq!(metric(&edge, "connects_total"), connects);
    // A restart resets nothing.
    let edge = edge.restarted(settings);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(metric(&edge, "connects_total"), 0);
    assert_eq!(sent_today(&edge), spent);
}
