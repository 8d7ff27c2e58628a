//! Notices over a real XMPP server with publish-subscribe: heard, lost, doubled, forged, refused; a
//! server that goes away and comes again; who is on the list, and who is not any more.

use crate::dispatch::dispatcher_in;
use crate::notice_desk::{
    HOUR, all_queries_sent, change, has_stream, identity, metric, notices_received, queries_sent,
    token, until_linked, until_news,
};
use crate::prosody::{OWNER, Prosody, has_prosody};
use crate::support::{Running, client, json};
use headwater_protocol::notice::{Notice, NoticeKey, NoticeKind};
use headwater_protocol::xmpp::pubsub::{self, Affiliation};
use headwater_protocol::xmpp::{Element, Happened, IqKind, Jid, Login, Refusal, Session};
use headwater_server::settings::{Broker, BrokerLogin, NoticeBus, NoticeSettings};
use headwater_server::tokens::TokenFile;
use headwater_server::{ListsApplied, Settings, apply_broker_lists, broker_lists};
use headwater_testing::until;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const NORTH: &str = "headwater/notices/north";
const SOUTH: &str = "headwater/notices/south";
const ACCOUNTS: [&str; 5] = ["gate", "north", "south", "narrow", "outsider"];

pub(crate) fn notices(server: &Prosody, account: &str, direct_tls: bool) -> NoticeSettings {
    NoticeSettings {
        bus: NoticeBus::Xmpp,
        xmpp: Some(Broker {
            tls: direct_tls,
            host: "127.0.0.1".to_owned(),
            port: if direct_tls {
                server.tls_port
            } else {
                server.port
            },
        }),
        login: BrokerLogin {
            user: format!("{account}@localhost"),
            password_file: Some(server.file(&format!("{account}.password"))),
            ca: Some(server.file("cert.pem")),
            ..BrokerLogin::default()
        },
        ..NoticeSettings::default()
    }
}

/// The list of tokens that says who may, made anew in a folder.
fn list(dir: &Path) -> TokenFile {
    let file = TokenFile::of_database(dir);
    token(&file, "gate", &["read *"]);
    token(&file, "north", &["write headwater_notices,node=north"]);
    token(&file, "south", &["write headwater_notices,node=south"]);
    token(&file, "narrow", &["read headwater_notices,node=south"]);
    token(&file, "outsider", &["read weather", "write weather"]);
    file
}

fn apply(server: &Prosody, list: &TokenFile) -> Result<ListsApplied, String> {
    let tokens = list.read().unwrap().unwrap();
    let lists = broker_lists(&tokens, "headwater/notices", "localhost").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(apply_broker_lists(&notices(server, OWNER, false), &lists))
}

/// A server that has the topics and lists of [`list`].
fn listed() -> Prosody {
    let server = Prosody::start(&ACCOUNTS);
    let dir = tempfile::tempdir().unwrap();
    let applied = apply(&server, &list(dir.path())).unwrap();
    assert_eq!(applied.created, [NORTH, SOUTH]);
    server
}

fn node(server: &Prosody, account: &str, direct_tls: bool) -> Running {
    Running::start_with(|s| {
        s.notices = notices(server, account, direct_tls);
        s.notices.check = HOUR;
        s.notices.name = "north".to_owned();
    })
}

fn desk(server: &Prosody, node: &Running, check: Duration) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let desk = dispatcher_in(dir, &[node], |s| {
        s.notices = notices(server, "gate", true);
        s.notices.check = check;
    });
    until_linked(&desk, true);
    desk
}

/// A client of a test, which speaks as any account without TLS.
pub(crate) struct Speaker {
    stream: TcpStream,
    session: Session,
    pub(crate) messages: Vec<Element>,
}

impl Speaker {
    pub(crate) fn new(server: &Prosody, account: &str) -> Speaker {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let session = Session::new(Login {
            account: format!("{account}@localhost").parse().unwrap(),
            password: account.to_owned(),
            resource: "test".to_owned(),
            nonce: "by-the-test".to_owned(),
            // It asks for no TLS then.
            is_secured: true,
            may_be_clear: true,
        });
        let mut speaker = Speaker {
            stream,
            session,
            messages: Vec::new(),
        };
        assert_eq!(speaker.next(), Happened::Ready);
        speaker.session.appear();
        speaker
    }

    fn next(&mut self) -> Happened {
        loop {
            let out = self.session.take_output();
            self.stream.write_all(&out).unwrap();
            if let Some(happened) = self.session.next_happened() {
                return happened;
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the server has closed the connection");
            self.session.feed(&buffer[..length]).unwrap();
        }
    }

    pub(crate) fn request(&mut self, kind: IqKind, what: Element) -> Result<Element, Refusal> {
        let service: Jid = "pubsub.localhost".parse().unwrap();
        let asked = self.session.request(kind, Some(&service), what).unwrap();
        loop {
            match self.next() {
                Happened::Answer { number, answer } if number == asked => return answer,
                Happened::Message(message) => self.messages.push(message),
                _ => {}
            }
        }
    }

    pub(crate) fn publish(&mut self, topic: &str, payload: Element) -> Result<Element, Refusal> {
        self.request(IqKind::Set, pubsub::publish(topic, payload))
    }

    fn publish_item(&mut self, topic: &str, bytes: &[u8]) -> Result<Element, Refusal> {
        self.publish(
            topic,
            Element::new("urn:headwater:notice:1", "notice").carrying(bytes),
        )
    }

    pub(crate) fn subscribe(&mut self, topic: &str, account: &str) -> Result<Element, Refusal> {
        let account: Jid = format!("{account}@localhost").parse().unwrap();
        self.request(IqKind::Set, pubsub::subscribe(topic, &account))
    }

    /// The bytes that are kept at a topic.
    fn retained_items(&mut self, topic: &str) -> Result<Vec<Vec<u8>>, Refusal> {
        let answer = self.request(IqKind::Get, pubsub::items(topic))?;
        let all = pubsub::items_of_answer(&answer);
        Ok(all
            .iter()
            .map(|(_, payload)| payload.unwrap().carried().unwrap())
            .collect())
    }

    /// What was heard since it was asked last. The server has sent it before it answers.
    fn received_items(&mut self) -> Vec<(String, Vec<u8>)> {
        // The service answers this behind what it told before.
        self.request(IqKind::Get, pubsub::nodes()).unwrap();
        let messages = std::mem::take(&mut self.messages);
        let all = messages.iter().flat_map(pubsub::items_of_message);
        all.map(|(topic, payload)| (topic.to_owned(), payload.unwrap().carried().unwrap()))
            .collect()
    }
}

#[test]
fn a_dispatcher_hears_of_a_change_by_publish_subscribe() {
    if !has_prosody() {
        return;
    }
    let server = listed();
    let node = node(&server, "north", false);
    change(&node, 0);
    let desk = desk(&server, &node, HOUR);
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
    assert_eq!(
        (metric(&desk, "connected"), metric(&node, "connected")),
        (1, 1)
    );
    assert!(notices_received(&desk, "news") >= 5 && metric(&node, "told_total") >= 6);
    // Two with one account hear both, and one without a server knows the same.
    let later = self::desk(&server, &node, HOUR);
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
    assert_eq!(metric(&desk, "refused_total"), 0);
    let mut answer = client().get(desk.url("/api/v1/sync")).call().unwrap();
    assert_eq!(json(&mut answer)["notices"]["bus"], "xmpp");
}

#[test]
fn while_the_server_is_away_nodes_are_waited_at() {
    if !has_prosody() {
        return;
    }
    let mut server = listed();
    let node = node(&server, "north", true);
    change(&node, 0);
    let desk = desk(&server, &node, HOUR);
    let mut next = until_news(&node, &desk, 1);
    for at_once in [true, false] {
        server.end(at_once);
        until_linked(&desk, false);
        change(&node, next);
        until("it is known without a server", || has_stream(&desk, next));
        std::thread::sleep(Duration::from_secs(2));
        change(&node, next + 1);
        until("it is known for as long as that is so", || {
            has_stream(&desk, next + 1)
        });
        server.begin();
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
    // One notice is kept, the newest, also over restarts.
    let kept = Speaker::new(&server, "gate").retained_items(NORTH).unwrap();
    assert_eq!(kept.len(), 1);
}

#[test]
fn forged_and_doubled_notices_make_nobody_ask() {
    if !has_prosody() {
        return;
    }
    let server = listed();
    let node = node(&server, "north", false);
    change(&node, 0);
    let desk = desk(&server, &node, HOUR);
    let next = until_news(&node, &desk, 1);
    until("it is quiet", || has_stream(&desk, next - 1));
    let (identity, incarnation, epoch) = identity(&node);
    // Somebody has the node's password, and another one's, but not its key.
    let mut north = Speaker::new(&server, "north");
    let mut south = Speaker::new(&server, "south");
    let real = north.retained_items(NORTH).unwrap().pop().unwrap();
    assert!(real.len() > 64);
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
        north.publish_item(NORTH, &key.seal(&forged)).unwrap();
        north.publish_item(NORTH, b"no notice at all").unwrap();
        north.publish_item(NORTH, &[7; 5_000]).unwrap();
        let other = Element::new("x", "y").with_child(Element::new("x", "z"));
        north.publish(NORTH, other).unwrap();
        // Also under the name of another node.
        south.publish_item(SOUTH, &real).unwrap();
    }
    until("all of it has come", || {
        let again = notices_received(&desk, "known") + notices_received(&desk, "late");
        notices_received(&desk, "forged") >= 1
            && notices_received(&desk, "garbled") >= 1
            && again >= 1
    });
    // Those that came together are one; whatever came, nobody asked.
    assert_eq!(all_queries_sent(&desk), before);
    // What is no item of the service is no notice: it comes from an account.
    let next = until_news(&node, &desk, next);
    change(&node, next);
    until("what the node tells is heard as before", || {
        has_stream(&desk, next)
    });
    assert_eq!(metric(&desk, "connection_failures_total"), 0);
}

#[test]
fn a_node_that_begins_anew_is_known_and_told_again() {
    if !has_prosody() {
        return;
    }
    let server = listed();
    let mut node = node(&server, "north", false);
    change(&node, 0);
    let desk = desk(&server, &node, HOUR);
    let next = until_news(&node, &desk, 1);
    let addr = node.addr;
    let dir = node.ended();
    node = Running::start_in(dir, |s| {
        s.notices = notices(&server, "north", false);
        s.notices.check = HOUR;
        s.notices.name = "north".to_owned();
        s.http_addr = addr;
    });
    let next = until_news(&node, &desk, next);
    change(&node, next);
    until("it is known by a notice again", || has_stream(&desk, next));
}

/// Who may hear: to subscribe and to read what is kept are granted alike.
fn may_subscribe(all: &mut BTreeMap<&'static str, Speaker>, topic: &str) -> Vec<&'static str> {
    let may = all.iter_mut().filter_map(|(account, speaker)| {
        let subscribed = speaker.subscribe(topic, account).is_ok();
        assert_eq!(
            speaker.retained_items(topic).is_ok(),
            subscribed,
            "{account} {topic}"
        );
        subscribed.then_some(*account)
    });
    may.collect()
}

#[test]
fn the_server_goes_by_the_list() {
    if !has_prosody() {
        return;
    }
    let server = Prosody::start(&ACCOUNTS);
    let dir = tempfile::tempdir().unwrap();
    let file = list(dir.path());
    let first = apply(&server, &file).unwrap();
    assert_eq!(
        (first.created.len(), first.topics, first.changed.len()),
        (2, 2, 5)
    );
    // The same again changes nothing.
    let again = apply(&server, &file).unwrap();
    assert_eq!(
        (again.created.len(), again.topics, again.changed.len()),
        (0, 2, 0)
    );
    let mut all: BTreeMap<&'static str, Speaker> = BTreeMap::new();
    for account in ACCOUNTS {
        all.insert(account, Speaker::new(&server, account));
    }
    assert_eq!(may_subscribe(&mut all, NORTH), ["gate", "north"]);
    assert_eq!(may_subscribe(&mut all, SOUTH), ["gate", "narrow", "south"]);
    // Nobody subscribes for another.
    assert!(
        all.get_mut("outsider")
            .unwrap()
            .subscribe(NORTH, "gate")
            .is_err()
    );
    for topic in [NORTH, SOUTH] {
        let tells = all.iter_mut().filter_map(|(account, speaker)| {
            let told = speaker.publish_item(topic, account.as_bytes());
            told.is_ok().then_some(*account)
        });
        let tells: Vec<_> = tells.collect();
        assert_eq!(tells, [topic.rsplit('/').next().unwrap()]);
    }
    // Nobody but the owner says who may.
    for (account, speaker) in &mut all {
        let jid: Jid = format!("{account}@localhost").parse().unwrap();
        let grab = BTreeMap::from([(jid, Affiliation::Owner)]);
        let set = speaker.request(IqKind::Set, pubsub::affiliate(SOUTH, &grab));
        let read = speaker.request(IqKind::Get, pubsub::affiliations(SOUTH));
        let open = speaker.request(IqKind::Set, pubsub::configure(SOUTH));
        assert!(set.is_err() && read.is_err() && open.is_err(), "{account}");
    }
    let of = |topic: &str, text: &str| (topic.to_owned(), text.as_bytes().to_vec());
    let gate = all.get_mut("gate").unwrap();
    assert_eq!(
        gate.received_items(),
        [of(NORTH, "north"), of(SOUTH, "south")]
    );
    assert_eq!(
        all.get_mut("narrow").unwrap().received_items(),
        [of(SOUTH, "south")]
    );
    assert!(all.get_mut("outsider").unwrap().received_items().is_empty());

    // Who is taken off the list hears and tells no more, though it has subscribed.
    for speaker in all.values_mut() {
        speaker.received_items();
    }
    for name in ["narrow", "south"] {
        file.revoke(name).unwrap();
    }
    let changed = apply(&server, &file).unwrap().changed;
    let gone: Vec<_> = changed
        .iter()
        .map(|(topic, jid, _, now)| (topic.as_str(), jid.as_str(), now.as_str()))
        .collect();
    // Nobody tells at the topic of the south any more, and so nobody hears there either.
    let wanted = [
        (SOUTH, "gate@localhost", "none"),
        (SOUTH, "narrow@localhost", "none"),
        (SOUTH, "south@localhost", "none"),
    ];
    assert_eq!(gone, wanted);
    assert_eq!(may_subscribe(&mut all, SOUTH), Vec::<&str>::new());
    assert!(
        all.get_mut("south")
            .unwrap()
            .publish_item(SOUTH, b"late")
            .is_err()
    );
    let mut owner = Speaker::new(&server, OWNER);
    owner.publish_item(SOUTH, b"of the owner").unwrap();
    for account in ["gate", "narrow", "south"] {
        assert!(
            all.get_mut(account).unwrap().received_items().is_empty(),
            "{account}"
        );
    }
    all.get_mut("north")
        .unwrap()
        .publish_item(NORTH, b"still")
        .unwrap();
    assert_eq!(
        all.get_mut("gate").unwrap().received_items(),
        [of(NORTH, "still")]
    );
}

#[test]
fn what_cannot_be_applied_is_told() {
    if !has_prosody() {
        return;
    }
    let server = Prosody::start(&ACCOUNTS);
    let dir = tempfile::tempdir().unwrap();
    let file = list(dir.path());
    let tokens = file.read().unwrap().unwrap();
    let lists = broker_lists(&tokens, "headwater/notices", "localhost").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let told = |settings: &NoticeSettings| {
        runtime
            .block_on(apply_broker_lists(settings, &lists))
            .unwrap_err()
    };
    // It may make no nodes, has another password, trusts another issuer, or is not there.
    let mut settings = notices(&server, "gate", false);
    assert!(
        told(&settings).contains("headwater/notices/north"),
        "{}",
        told(&settings)
    );
    settings.login.password_file = Some(server.file("north.password"));
    assert!(
        told(&settings).contains("not-authorized"),
        "{}",
        told(&settings)
    );
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.path().join("other.pem"), other.cert.pem()).unwrap();
    for direct_tls in [false, true] {
        let mut settings = notices(&server, OWNER, direct_tls);
        settings.login.ca = Some(dir.path().join("other.pem"));
        assert!(told(&settings).contains("TLS"), "{}", told(&settings));
    }
    let mut settings = notices(&server, OWNER, false);
    settings.service = "other.localhost".to_owned();
    assert!(
        told(&settings).contains("cannot be listed"),
        "{}",
        told(&settings)
    );
    // Somebody else was there first and owns the topic.
    let mut owner = Speaker::new(&server, OWNER);
    owner.request(IqKind::Set, pubsub::create(NORTH)).unwrap();
    let settings = notices(&server, "gate", false);
    assert!(
        told(&settings).contains("cannot be configured"),
        "{}",
        told(&settings)
    );
    assert!(broker_lists(&tokens, "a/+", "localhost").is_err());
    token(&file, "North", &["write headwater_notices,node=North"]);
    let tokens = file.read().unwrap().unwrap();
    let upper = broker_lists(&tokens, "a", "localhost")
        .unwrap_err()
        .to_string();
    assert!(upper.contains("\"North\""), "{upper}");
}

#[test]
fn a_node_that_may_not_tell_is_known_all_the_same() {
    if !has_prosody() {
        return;
    }
    let server = listed();
    // It has the account of another.
    let node = node(&server, "south", false);
    change(&node, 0);
    until("the server has refused a notice", || {
        metric(&node, "refused_total") >= 1
    });
    let desk = desk(&server, &node, Duration::from_secs(1));
    until("it is asked now and then", || {
        queries_sent(&desk, "check") >= 1
    });
    change(&node, 1);
    until("what it could not tell is known", || has_stream(&desk, 1));
    assert_eq!(notices_received(&desk, "news"), 0);
}

#[test]
fn a_dispatcher_that_may_not_hear_asks_now_and_then() {
    if !has_prosody() {
        return;
    }
    let server = listed();
    let node = node(&server, "north", false);
    change(&node, 0);
    let dir = tempfile::tempdir().unwrap();
    let desk = dispatcher_in(dir, &[&node], |s| {
        s.notices = notices(&server, "outsider", false);
        s.notices.check = Duration::from_secs(1);
    });
    until_linked(&desk, true);
    assert_eq!(metric(&desk, "refused_total"), 2);
    change(&node, 1);
    until("it is known all the same", || has_stream(&desk, 1));
    assert_eq!(notices_received(&desk, "news"), 0);
}

#[test]
fn settings_of_xmpp_that_cannot_be_are_told_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(dir.path().join("db"));
    settings.http_addr.set_port(0);
    settings.notices.bus = NoticeBus::Xmpp;
    settings.notices.name = "north".to_owned();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let start = |settings: &Settings| {
        let started = runtime.block_on(headwater_server::Server::start(settings.clone()));
        started.map(drop).unwrap_err().to_string()
    };
    assert!(
        start(&settings).contains("notices.broker"),
        "{}",
        start(&settings)
    );
    settings.notices.xmpp = Some(Broker {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: 1,
    });
    settings.notices.login.user = "north".to_owned();
    settings.notices.login.password_file = Some(dir.path().join("none"));
    assert!(
        start(&settings).contains("notices.password_file"),
        "{}",
        start(&settings)
    );
}
