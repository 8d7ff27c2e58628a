//! Messages of a real broker: every form of payload, bad ones, a broker that goes away, messages
//! from while the server was away, TLS and passwords.

use crate::support::{Running, client};
use headwater::{Database, ScanSpec, StreamName, Value};
use headwater_server::Settings;
use headwater_server::settings::{SettingsInput, load};
use headwater_testing::until;
use headwater_testing::{Broker, has_broker};
use std::path::Path;

/// Settings from a file, as `headwater serve` reads them.
fn settings(dir: &Path, text: &str) -> Settings {
    let file = dir.join("headwater.toml");
    let text = format!(
        "db = {:?}\nhttp_addr = \"127.0.0.1:0\"\n{text}",
        dir.join("db")
    );
    std::fs::write(&file, text).unwrap();
    let given = SettingsInput {
        file: Some(file),
        ..SettingsInput::default()
    };
    load(&given).unwrap().settings
}

pub(crate) fn start(dir: &Path, text: &str) -> Running {
    let settings = settings(dir, text);
    Running::start_with(|s| *s = settings)
}

/// A figure of `/metrics`; 0 when it is not there yet.
pub(crate) fn metric(server: &Running, name: &str) -> f64 {
    let mut answer = client().get(server.url("/metrics")).call().unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    let line = text.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(' '))
    });
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_default()
}

pub(crate) fn until_figure(server: &Running, name: &str, at_least: f64) {
    until(&format!("{name} is {at_least}"), || {
        metric(server, name) >= at_least
    });
}

pub(crate) const CONNECTED: &str = "headwater_mqtt_connected";
pub(crate) const MESSAGES_DONE: &str = "headwater_mqtt_messages_done_total";
const RECEIVED: &str = "headwater_mqtt_messages_received_total";

/// How many values a channel has; 0 when it is not there yet.
fn count(server: &Running, channel: &str) -> u64 {
    let url = server.url(&format!(
        "/api/v1/aggregate?channel={channel}&functions=count"
    ));
    let mut answer = client().get(url).call().unwrap();
    crate::support::json(&mut answer)["channels"][0]["count"][0]
        .as_u64()
        .unwrap_or_default()
}

/// Times and values of a field.
fn values(db: &Database, stream: &StreamName, field: &str) -> Vec<(i64, Value)> {
    let snapshot = db.snapshot().unwrap();
    let Ok(scan) = snapshot.scan(stream, &ScanSpec::default()) else {
        return Vec::new();
    };
    let at = scan.fields().iter().position(|(name, _)| name == field);
    let Some(at) = at else { return Vec::new() };
    let mut found = Vec::new();
    for chunk in scan {
        let chunk = chunk.unwrap();
        for (row, time) in chunk.times.iter().enumerate() {
            if let Some(value) = chunk.columns[at].get(row) {
                found.push((*time, value.to_owned()));
            }
        }
    }
    found
}

fn broker_settings(broker: &Broker) -> String {
    format!(
        "[mqtt]\nbroker = \"mqtt://127.0.0.1:{}\"\nclient_id = \"headwater-test\"\n",
        broker.port
    )
}

const SUBSCRIPTIONS: &str = r#"
[[mqtt.subscription]]
topic = "plant/{site}/{device}/{field}"
payload = "value"
table = "machines"
types = { count = "i64" }

[[mqtt.subscription]]
topic = "json/{device}"
payload = "json"
table = "weather"
time = "ts"
time_format = "ms"
tag_members = ["line"]

[[mqtt.subscription]]
topic = "lp/#"
payload = "line-protocol"

[[mqtt.subscription]]
topic = "kept/{field}"
payload = "value"
table = "kept"
retained = "skip"
"#;

#[test]
fn every_payload_comes_in_and_bad_ones_are_counted_and_skipped() {
    if !has_broker() {
        return;
    }
    let broker = Broker::start();
    broker.client("kept/old", &["-r", "-m", "1"], "");
    broker.client("plant/oslo/pump 0/setpoint", &["-r", "-m", "7"], "");
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &(broker_settings(&broker) + SUBSCRIPTIONS));
    until_figure(&server, CONNECTED, 1.0);
    // Subscribed when the first message is stored: until then the session is not there to keep any.
    until("a message comes in", || {
        broker.publish("plant/oslo/pump 1/ready", "true");
        metric(&server, MESSAGES_DONE) >= 1.0
    });
    // When this one is stored, all those have come that the broker kept.
    broker.publish("plant/oslo/marker/ready", "true");
    until("the marker is stored", || {
        count(&server, "machines,device=marker,site=oslo.ready") == 1
            && metric(&server, MESSAGES_DONE) >= metric(&server, RECEIVED)
    });
    let before = metric(&server, MESSAGES_DONE);
    let sent = [
        ("plant/oslo/pump 1/temp", "21.5"),
        ("plant/oslo/pump 1/count", "9007199254740993"),
        ("plant/oslo/pump 1/state", "running"),
        ("plant/oslo/pump 1/temp", "NaN"),
        ("plant/oslo/pump 1/temp", "hot"),
        (
            "json/d1",
            r#"{"ts":1700000000123,"line":"a","temp":4.5,"motor":{"on":true}}"#,
        ),
        ("json/d1", r#"{"ts":1700000000124,"line":"a","temp":"#),
        ("json/d1", r#"{"line":"a","temp":4.5}"#),
        (
            "lp/x",
            "air,id=1 v=1,n=2i 1700000000000000000\nair,id=1 v=bad\nair,id=1 v=3 1700000000000000002",
        ),
        ("kept/new", "2"),
    ];
    for (topic, payload) in sent {
        broker.publish(topic, payload);
    }
    until_figure(&server, MESSAGES_DONE, before + sent.len() as f64);
    assert_eq!(metric(&server, MESSAGES_DONE), before + sent.len() as f64);
    for (code, count) in [("E_TYPE", 2.0), ("E_PARSE", 2.0), ("E_TIME", 1.0)] {
        let name = format!("headwater_mqtt_refused_total{{code=\"{code}\"}}");
        assert_eq!(metric(&server, &name), count, "{code}");
    }
    assert_eq!(metric(&server, "headwater_mqtt_messages_waiting"), 0.0);
    assert_eq!(metric(&server, "headwater_mqtt_connects_total"), 1.0);
    let mut answer = client().get(server.url("/api/v1/storage")).call().unwrap();
    let told = &crate::support::json(&mut answer)["mqtt"];
    let done = (before + sent.len() as f64) as u64;
    assert_eq!(told["broker"], format!("mqtt://127.0.0.1:{}", broker.port));
    assert_eq!(
        (
            &told["connected"],
            &told["connects"],
            &told["subscriptions"],
            &told["subscriptions_refused"]
        ),
        (&true.into(), &1.into(), &4.into(), &0.into()),
        "{told}"
    );
    assert_eq!(
        (&told["done"], &told["waiting"]),
        (&done.into(), &0.into()),
        "{told}"
    );
    assert_eq!(
        (
            &told["refused"]["E_TYPE"],
            &told["refused"]["E_PARSE"],
            &told["refused"]["E_TIME"]
        ),
        (&2.into(), &2.into(), &1.into()),
        "{told}"
    );
    drop(server);
    let db = Database::open(headwater::Options::new(dir.path().join("db"))).unwrap();
    let machine = StreamName::new("machines", [("site", "oslo"), ("device", "pump 1")]);
    let plain =
        |found: Vec<(i64, Value)>| -> Vec<Value> { found.into_iter().map(|f| f.1).collect() };
    assert_eq!(plain(values(&db, &machine, "temp")), [Value::F64(21.5)]);
    assert_eq!(
        plain(values(&db, &machine, "count")),
        [Value::I64(9_007_199_254_740_993)]
    );
    assert_eq!(
        plain(values(&db, &machine, "state")),
        [Value::String("running".to_owned())]
    );
    let kept = StreamName::new("machines", [("site", "oslo"), ("device", "pump 0")]);
    assert_eq!(plain(values(&db, &kept, "setpoint")), [Value::F64(7.0)]);
    let weather = StreamName::new("weather", [("device", "d1"), ("line", "a")]);
    let at = 1_700_000_000_123_000_000;
    assert_eq!(values(&db, &weather, "temp"), [(at, Value::F64(4.5))]);
    assert_eq!(values(&db, &weather, "motor.on"), [(at, Value::Bool(true))]);
    let air = StreamName::new("air", [("id", "1")]);
    let s = 1_700_000_000_000_000_000;
    assert_eq!(
        values(&db, &air, "v"),
        [(s, Value::F64(1.0)), (s + 2, Value::F64(3.0))]
    );
    assert_eq!(values(&db, &air, "n"), [(s, Value::I64(2))]);
    let kept = StreamName::new("kept", [("", ""); 0]);
    assert_eq!(values(&db, &kept, "old"), []);
    assert_eq!(plain(values(&db, &kept, "new")), [Value::F64(2.0)]);
}

const LINES: &str = "\n[[mqtt.subscription]]\ntopic = \"lp\"\npayload = \"line-protocol\"\n";

fn lines(range: std::ops::Range<u64>) -> String {
    let base = 1_700_000_000_000_000_000;
    range
        .map(|n| format!("t,d=1 v={n}i {}\n", base + n))
        .collect()
}

fn stored(dir: &Path) -> Vec<Value> {
    let db = Database::open(headwater::Options::new(dir.join("db"))).unwrap();
    let found = values(&db, &StreamName::new("t", [("d", "1")]), "v");
    found.into_iter().map(|(_, value)| value).collect()
}

fn counted(range: std::ops::Range<i64>) -> Vec<Value> {
    range.map(Value::I64).collect()
}

#[test]
fn a_broker_may_go_away_and_come_back() {
    if !has_broker() {
        return;
    }
    let mut broker = Broker::start();
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &(broker_settings(&broker) + LINES));
    until_figure(&server, CONNECTED, 1.0);
    until("the subscription is there", || {
        broker.publish_lines("lp", &lines(0..1));
        metric(&server, MESSAGES_DONE) >= 1.0
    });
    for round in 1..3 {
        broker.end(round == 2);
        until("the loss is seen", || metric(&server, CONNECTED) == 0.0);
        broker.begin();
        until_figure(&server, "headwater_mqtt_connects_total", 1.0 + round as f64);
        let first = round * 100;
        // A broker that was killed may have lost the session, so a message may need another
        // sending. Rows are counted, not messages: some may come twice before others come at all.
        until("every message is stored", || {
            broker.publish_lines("lp", &lines(first..first + 50));
            count(&server, "t,d=1.v") > 50 * round
        });
    }
    drop(server);
    let expected = [counted(0..1), counted(100..150), counted(200..250)].concat();
    assert_eq!(stored(dir.path()), expected);
}

#[test]
fn messages_from_while_the_server_was_away_are_stored_when_it_is_back() {
    if !has_broker() {
        return;
    }
    let mut broker = Broker::start();
    let dir = tempfile::tempdir().unwrap();
    let text = broker_settings(&broker) + LINES;
    let server = start(dir.path(), &text);
    until("the subscription is there", || {
        broker.publish_lines("lp", &lines(0..1));
        metric(&server, MESSAGES_DONE) >= 1.0
    });
    drop(server);
    broker.publish_lines("lp", &lines(1..2000));
    // The session is the broker's, also over its restart.
    broker.end(false);
    broker.begin();
    broker.publish_lines("lp", &lines(2000..3000));
    let server = start(dir.path(), &text);
    until("all are stored", || count(&server, "t,d=1.v") >= 3000);
    drop(server);
    assert_eq!(stored(dir.path()), counted(0..3000));
}

#[test]
fn a_broker_with_tls_and_passwords() {
    if !has_broker() {
        return;
    }
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let broker = Broker::start_with(|dir, _| {
        let path = |name: &str| dir.join(name).display().to_string();
        std::fs::write(path("cert.pem"), certified.cert.pem()).unwrap();
        std::fs::write(path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
        let made = std::process::Command::new("mosquitto_passwd")
            .args(["-b", "-c", &path("passwords"), "hw", "open sesame"])
            .status();
        assert!(made.unwrap().success());
        format!(
            "certfile {}\nkeyfile {}\npassword_file {}\nallow_anonymous false\n",
            path("cert.pem"),
            path("key.pem"),
            path("passwords")
        )
    });
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("ca.pem"), certified.cert.pem()).unwrap();
    std::fs::write(path("password"), "wrong\n").unwrap();
    let text = format!(
        "[mqtt]\nbroker = \"mqtts://localhost:{}\"\nclient_id = \"headwater-test\"\nca = {:?}\nuser = \"hw\"\npassword_file = {:?}\n{LINES}",
        broker.port,
        path("ca.pem"),
        path("password"),
    );
    let server = start(dir.path(), &text);
    until_figure(&server, "headwater_mqtt_connection_failures_total", 2.0);
    assert_eq!(metric(&server, CONNECTED), 0.0);
    // Read anew for each connection.
    std::fs::write(path("password"), "open sesame\n").unwrap();
    until_figure(&server, CONNECTED, 1.0);
    let ca = path("ca.pem");
    let login = [
        "-u",
        "hw",
        "-P",
        "open sesame",
        "--cafile",
        &ca,
        "-m",
        "t,d=1 v=0i 5",
    ];
    until("a message comes in", || {
        broker.client("lp", &login, "");
        metric(&server, MESSAGES_DONE) >= 1.0
    });
    drop(server);
    assert_eq!(stored(dir.path()), counted(0..1));
    // Certificates that cannot be read are told at the start.
    let missing = text.replace("ca.pem", "other.pem");
    let settings = settings(dir.path(), &missing);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let error = runtime
        .block_on(headwater_server::Server::start(settings))
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("mqtt.ca") && error.contains("other.pem"),
        "{error}"
    );
}

#[cfg(feature = "sql")]
#[test]
fn what_a_watch_tells_is_published_once_the_broker_is_there() {
    if !has_broker() {
        return;
    }
    let mut broker = Broker::start();
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "[mqtt]\nbroker = \"mqtt://127.0.0.1:{}\"\nclient_id = \"headwater-test\"\n{LINES}\n[watch]\ntopics = \"told/\"\n",
        broker.port
    );
    let server = start(dir.path(), &text);
    until_figure(&server, CONNECTED, 1.0);
    let post = |path: &str, body: &str| {
        let answer = client().post(server.url(path)).send(body).unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
    };
    post("/write?precision=s", "pump,id=a temp=1i 1700000000\n");
    let watch = |name: &str, topic: &str| {
        format!(
            "CREATE WATCH {name} WITH (topic = '{topic}') AS SELECT b FROM pump MATCH_RECOGNIZE (PARTITION BY id ORDER BY time MEASURES FIRST(time) AS b PATTERN (HOT) WITHIN INTERVAL '10 s' DEFINE HOT AS temp > 99)"
        )
    };
    post("/api/v1/sql", &watch("hot", "told/hot"));
    post("/api/v1/sql", &watch("other", "elsewhere/hot"));
    until_figure(&server, "headwater_watches", 2.0);
    // While the broker is away, events wait.
    broker.end(true);
    until("the connection ends", || metric(&server, CONNECTED) == 0.0);
    post("/write?precision=s", "pump,id=a temp=100i 1700000001\n");
    until_figure(&server, "headwater_watch_events_total{kind=\"match\"}", 2.0);
    broker.begin();
    let mut listener = std::process::Command::new("mosquitto_sub")
        .args(["-h", "localhost", "-p", &broker.port.to_string()])
        .args(["-q", "1", "-t", "#", "-C", "1"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // What was published before the listener was there it does not hear: another row comes.
    let mut second = 1;
    until("a message comes", || {
        second += 1;
        let row = format!("pump,id=a temp=100i {}\n", 1_700_000_000 + second);
        post("/write?precision=s", &row);
        listener.try_wait().unwrap().is_some()
    });
    let mut line = String::new();
    std::io::Read::read_to_string(&mut listener.stdout.take().unwrap(), &mut line).unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&event["watch"], &event["kind"]),
        (&"hot".into(), &"match".into())
    );
    until_figure(
        &server,
        "headwater_watch_hooks_total{result=\"published\"}",
        1.0,
    );
}
