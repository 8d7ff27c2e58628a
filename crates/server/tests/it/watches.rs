//! Watches over HTTP: events as they come, gaps, rights, and web hooks.

use crate::support::{Running, client};
use headwater_server::rules::AccessRule;
use headwater_server::tokens::{NewToken, TokenFile};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Waits for something that a thread of the server does; for ever means that it does not.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(600), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct Client<'a> {
    server: &'a Running,
    token: String,
}

impl<'a> Client<'a> {
    fn open(server: &'a Running) -> Client<'a> {
        Client {
            server,
            token: String::new(),
        }
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let mut answer = client()
            .get(self.server.url(path))
            .header("authorization", format!("Bearer {}", self.token))
            .call()
            .unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        (answer.status().as_u16(), body)
    }

    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let mut answer = client()
            .post(self.server.url(path))
            .header("authorization", format!("Bearer {}", self.token))
            .send(body)
            .unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), text)
    }

    fn sql(&self, sql: &str) {
        let (status, text) = self.post("/api/v1/sql", sql);
        assert_eq!(status, 200, "{sql}: {text}");
    }

    fn watch(&self, name: &str) -> Option<Value> {
        let (status, body) = self.get("/api/v1/watches");
        assert_eq!(status, 200, "{body}");
        let all = body["watches"].as_array().unwrap().clone();
        all.into_iter().find(|watch| watch["name"] == name)
    }

    fn until_reported(&self, name: &str, sequence: u64) -> Value {
        until(&format!("{name} tells {sequence}"), || {
            self.watch(name)
                .filter(|watch| watch["sequence"].as_u64() >= Some(sequence))
        })
    }

    /// Events behind a number or id, as they come: kind, id and data.
    fn events(&self, name: &str, after: &str) -> Receiver<(String, String, Value)> {
        let mut stream = TcpStream::connect(self.server.addr).unwrap();
        write!(
            stream,
            "GET /api/v1/watches/{name}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{}\r\n",
            self.token,
            match after {
                "" => String::new(),
                after => format!("Last-Event-ID: {after}\r\n"),
            }
        )
        .unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let (mut kind, mut id) = (String::new(), String::new());
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { return };
                if let Some(rest) = line.strip_prefix("event: ") {
                    kind = rest.to_owned();
                } else if let Some(rest) = line.strip_prefix("id: ") {
                    id = rest.to_owned();
                } else if let Some(rest) = line.strip_prefix("data: ") {
                    let data = serde_json::from_str(rest).unwrap();
                    if sender.send((kind.clone(), id.clone(), data)).is_err() {
                        return;
                    }
                }
            }
        });
        receiver
    }

    /// Rows of a pump, a second apart from a second on; 100 and more is hot.
    fn rows(&self, from: i64, values: &[i64]) {
        let lines = values.iter().enumerate().map(|(at, value)| {
            let time = (1_700_000_000 + from + at as i64) * 1_000_000_000;
            format!("pump,id=a temp={value}i {time}\n")
        });
        let (status, text) = self.post("/write?precision=ns", &lines.collect::<String>());
        assert_eq!(status, 204, "{text}");
    }
}

const HOT: &str = "SELECT id, b, n FROM pump MATCH_RECOGNIZE (PARTITION BY id ORDER BY time \
    MEASURES FIRST(time) AS b, count(*) AS n PATTERN (HOT{2,} COLD) WITHIN INTERVAL '10 seconds' \
    DEFINE HOT AS temp >= 100, COLD AS temp < 100)";

fn next(events: &Receiver<(String, String, Value)>) -> (String, String, Value) {
    events.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn events_come_as_rows_do_and_go_on_behind_the_last_one_after_a_restart() {
    let server = Running::start();
    let asker = Client::open(&server);
    asker.rows(0, &[1]);
    asker.sql(&format!("CREATE WATCH hot AS {HOT}"));
    asker.until_reported("hot", 0);
    let events = asker.events("hot", "0");
    asker.rows(1, &[100, 101, 2, 3]);
    let (kind, id, data) = next(&events);
    assert_eq!(
        (kind.as_str(), &data["sequence"]),
        ("match", &Value::from(1))
    );
    assert_eq!(data["row"]["n"], 3);
    assert_eq!(data["partition"], serde_json::json!(["a"]));
    // A row that comes late takes it back, and tells another one.
    asker.rows(2, &[99]);
    let (kind, _, taken) = next(&events);
    assert_eq!((kind.as_str(), &taken["id"]), ("retraction", &data["id"]));
    drop(events);
    let server = server.restarted(|_| {});
    let asker = Client::open(&server);
    asker.rows(2, &[105]);
    asker.until_reported("hot", 3);
    // A listener hears what came while it was away, and nothing twice.
    let events = asker.events("hot", &id);
    assert_eq!(next(&events).0, "retraction");
    let (kind, _, again) = next(&events);
    assert_eq!(
        (kind.as_str(), &again["version"]),
        ("match", &Value::from(2))
    );
    assert_ne!(again["id"], data["id"]);
    // A number that was never told, or is of another count, is a gap.
    for after in ["99", "00000000000000ff-1"] {
        let events = asker.events("hot", after);
        assert_eq!(next(&events).0, "gap", "{after}");
        assert_eq!(next(&events).2["sequence"], 1, "{after}");
    }
    assert_eq!(asker.get("/api/v1/watches/none/events").0, 404);
    assert_eq!(asker.get("/api/v1/watches/hot/events?after=x").0, 400);
    let figures = asker.get("/metrics").1.as_str().unwrap().to_owned();
    assert!(figures.contains("headwater_watches 1"), "{figures}");
    asker.sql("DROP WATCH hot");
    until("the end of the watch", || {
        asker.watch("hot").is_none().then_some(())
    });
    // Its file goes with it.
    let dir = server.db().join("watches");
    until("the end of its file", || {
        (std::fs::read_dir(&dir).unwrap().count() == 0).then_some(())
    });
}

#[test]
fn a_table_that_is_dropped_stops_its_watch_which_says_why() {
    let server = Running::start();
    let asker = Client::open(&server);
    asker.rows(0, &[1]);
    asker.sql(&format!("CREATE WATCH hot AS {HOT}"));
    asker.until_reported("hot", 0);
    asker.sql("DROP TABLE pump");
    let stopped = until("the watch stops", || {
        asker
            .watch("hot")
            .filter(|watch| watch["state"] == "stopped")
    });
    assert_eq!(stopped["stopped"]["code"], "unknown_table", "{stopped}");
    asker.rows(100, &[100, 100, 1]);
    asker.until_reported("hot", 1);
    assert_eq!(asker.watch("hot").unwrap()["state"], "running");
}

fn token(file: &TokenFile, name: &str, rules: &[&str]) -> String {
    let rules = rules.iter().map(|rule| rule.parse::<AccessRule>().unwrap());
    let new = NewToken {
        name: name.to_owned(),
        expires: None,
        rules: rules.collect(),
    };
    file.create(new).unwrap()
}

#[test]
fn a_watch_reads_what_its_owner_may_and_stops_with_the_token() {
    // Before the server begins, so that no request comes before it knows of them.
    let mut tokens = [String::new(), String::new(), String::new()];
    let server = Running::start_with(|settings| {
        let file = TokenFile::of_database(settings.db());
        tokens = [
            token(&file, "admin", &["read *", "write *", "manage *"]),
            token(&file, "own", &["read pump", "manage pump", "write pump"]),
            token(&file, "other", &["read pump,id=b"]),
        ];
    });
    let [admin, own, other] = tokens;
    let asker = |token: &str| Client {
        server: &server,
        token: token.to_owned(),
    };
    let (admin, owner, other) = (asker(&admin), asker(&own), asker(&other));
    owner.rows(0, &[1]);
    owner.sql(&format!("CREATE WATCH hot AS {HOT}"));
    owner.until_reported("hot", 0);
    // Who may not read all of the table is told nothing of it.
    assert_eq!(other.watch("hot"), None);
    assert_eq!(other.get("/api/v1/watches/hot/dead").0, 404);
    let events = owner.events("hot", "0");
    owner.rows(1, &[100, 100, 1]);
    assert_eq!(next(&events).0, "match");
    TokenFile::of_database(server.db()).revoke("own").unwrap();
    let stopped = until("the watch stops", || {
        let watch = admin.watch("hot").unwrap();
        (watch["state"] == "stopped").then_some(watch)
    });
    assert_eq!(stopped["stopped"]["code"], "E_ACCESS");
    let why = stopped["stopped"]["message"].as_str().unwrap();
    assert!(why.contains("is no longer valid"), "{why}");
    // Whoever listened with it hears nothing any more.
    admin.rows(10, &[100, 100, 1]);
    assert!(events.recv_timeout(Duration::from_secs(60)).is_err());
    assert_eq!(admin.watch("hot").unwrap()["sequence"], 1);
}

/// Somebody who takes web hooks: answers each with a status, and passes on what came.
fn taker(status: &'static str) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = String::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                if lines.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                let lower = line.to_lowercase();
                if let Some(count) = lower.strip_prefix("content-length: ") {
                    length = count.trim().parse().unwrap();
                }
                head.push_str(&lower);
            }
            let mut body = vec![0; length];
            lines.read_exact(&mut body).unwrap();
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
            let text = format!("{head}\n{}", String::from_utf8(body).unwrap());
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    (format!("http://{addr}/taken"), receiver)
}

const KEY: &str = "0123456789abcdef0123456789abcdef";

fn with_hooks(private: bool) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, format!("{KEY}\n")).unwrap();
    Running::start_in(dir, |settings| {
        settings.watch.hooks = vec!["127.0.0.1".to_owned()];
        settings.watch.hooks_private = private;
        settings.watch.hook_key_file = Some(key);
    })
}

#[test]
fn a_web_hook_gets_each_event_signed_and_one_that_never_answers_harms_nobody() {
    let server = with_hooks(true);
    let asker = Client::open(&server);
    asker.rows(0, &[1]);
    // Connections are taken, and nothing is ever said.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap();
    asker.sql(&format!(
        "CREATE WATCH mute WITH (hook = 'http://{addr}/x') AS {HOT}"
    ));
    let (url, taken) = taker("204 No Content");
    asker.sql(&format!("CREATE WATCH hot WITH (hook = '{url}') AS {HOT}"));
    asker.until_reported("hot", 0);
    asker.rows(1, &[100, 101, 2]);
    asker.rows(5, &[100, 101, 2]);
    for sequence in 1..=2 {
        let text = taken.recv_timeout(Duration::from_secs(60)).unwrap();
        let (head, body) = text.split_once('\n').unwrap();
        let (_, body) = body
            .split_once("\n\n")
            .map_or((head, body), |(h, b)| (h, b));
        let body = body.lines().last().unwrap();
        let event: Value = serde_json::from_str(body).unwrap();
        assert_eq!(event["sequence"], sequence, "{text}");
        let line = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name));
            found.unwrap().trim().to_owned()
        };
        assert_eq!(line("headwater-event: "), event["id"].as_str().unwrap());
        let time = line("headwater-time: ");
        let signed =
            headwater_watch::sign(KEY.as_bytes(), &[time.as_bytes(), b".", body.as_bytes()]);
        let expected = format!("sha256={}", headwater_watch::hex(&signed));
        assert_eq!(line("headwater-signature: "), expected);
    }
    until("what is delivered", || {
        let hook = asker.watch("hot").unwrap()["hook"].clone();
        (hook["delivered"] == 2).then_some(())
    });
    asker.until_reported("mute", 2);
}

#[test]
fn what_a_hook_refuses_is_a_dead_letter_that_can_be_sent_again() {
    let server = with_hooks(true);
    let asker = Client::open(&server);
    asker.rows(0, &[1]);
    let (url, _taken) = taker("410 Gone");
    asker.sql(&format!("CREATE WATCH hot WITH (hook = '{url}') AS {HOT}"));
    asker.until_reported("hot", 0);
    asker.rows(1, &[100, 101, 2]);
    let dead = until("a dead letter", || {
        let (_, body) = asker.get("/api/v1/watches/hot/dead");
        body["dead"].get(0).cloned()
    });
    assert_eq!(
        (&dead["attempts"], &dead["event"]["sequence"]),
        (&1.into(), &1.into())
    );
    assert!(dead["reason"].as_str().unwrap().contains("410"), "{dead}");
    let (status, text) = asker.post("/api/v1/watches/hot/retry", "");
    let tried: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &tried["failed"][0]["sequence"]),
        (200, &1.into()),
        "{text}"
    );
    // It outlives the process.
    let server = server.restarted(|_| {});
    let asker = Client::open(&server);
    asker.until_reported("hot", 1);
    let hook = asker.watch("hot").unwrap()["hook"].clone();
    assert_eq!(hook["dead"], 1, "{hook}");
}

#[test]
fn a_hook_goes_to_no_private_address_and_to_no_host_that_is_not_named() {
    let server = with_hooks(false);
    let asker = Client::open(&server);
    asker.rows(0, &[1]);
    let (url, taken) = taker("204 No Content");
    asker.sql(&format!("CREATE WATCH near WITH (hook = '{url}') AS {HOT}"));
    asker.sql(&format!(
        "CREATE WATCH far WITH (hook = 'http://other.example/x') AS {HOT}"
    ));
    asker.until_reported("far", 0);
    asker.until_reported("near", 0);
    asker.rows(1, &[100, 101, 2]);
    for (name, setting) in [("near", "watch.hooks_private"), ("far", "watch.hooks")] {
        let dead = until("a dead letter", || {
            let (_, body) = asker.get(&format!("/api/v1/watches/{name}/dead"));
            body["dead"].get(0).cloned()
        });
        let reason = dead["reason"].as_str().unwrap();
        assert!(reason.contains(setting), "{reason}");
    }
    assert!(taken.try_recv().is_err());
}

#[test]
fn a_thousand_watches_are_followed() {
    let server = Running::start();
    let asker = Client::open(&server);
    asker.rows(0, &[1]);
    let made: Vec<String> = (0..1000)
        .map(|at| {
            format!("CREATE WATCH w{at} AS ABSENCE OF pump WHERE id = 'a' FOR INTERVAL '1 hour'")
        })
        .collect();
    for some in made.chunks(100) {
        asker.sql(&some.join(";"));
    }
    // The pump of 2023 is absent, and each of them says so.
    until("a thousand watches tell", || {
        let (_, body) = asker.get("/api/v1/watches");
        let all = body["watches"].as_array().unwrap();
        let told = all.iter().filter(|watch| watch["live"] == 1).count();
        (told == 1000).then_some(())
    });
}

/// Looks so far, by what caused them.
fn looks(asker: &Client<'_>, cause: &str) -> u64 {
    let (_, figures) = asker.get("/metrics");
    let name = format!("headwater_watch_looks_total{{cause=\"{cause}\"}} ");
    let mut lines = figures.as_str().unwrap().lines();
    let found = lines.find_map(|line| line.strip_prefix(&name));
    found.map_or(0, |count| count.parse().unwrap())
}

#[test]
fn batches_to_another_table_make_no_watch_look() {
    const IDLE: u64 = 40;
    const BATCHES: u64 = 6;
    let server = Running::start();
    let asker = Client::open(&server);
    asker.rows(0, &[1]);
    let (status, text) = asker.post(
        "/write?precision=ns",
        "idle,id=a v=1i 1700000000000000000\n",
    );
    assert_eq!(status, 204, "{text}");
    let made: Vec<String> = (0..IDLE)
        .map(|at| {
            let query = HOT.replace("pump", "idle").replace("temp", "v");
            format!("CREATE WATCH w{at} AS {query}")
        })
        .collect();
    asker.sql(&made.join(";"));
    asker.sql(&format!("CREATE WATCH hot AS {HOT}"));
    until("all look once", || {
        (looks(&asker, "change") > IDLE).then_some(())
    });
    let before = looks(&asker, "change");
    for batch in 1..=BATCHES {
        asker.rows(batch as i64 * 10, &[100, 100, 1]);
        asker.until_reported("hot", batch);
    }
    let busy = looks(&asker, "change") - before;
    assert!(
        (BATCHES..IDLE).contains(&busy),
        "{busy} looks for {BATCHES} batches that concern one watch"
    );
    // A batch to theirs makes each of them look.
    let (status, text) = asker.post(
        "/write?precision=ns",
        "idle,id=a v=1i 1700000001000000000\n",
    );
    assert_eq!(status, 204, "{text}");
    until("all look again", || {
        (looks(&asker, "change") >= before + busy + IDLE).then_some(())
    });
}
