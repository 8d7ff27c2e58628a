//! Two servers with the same tokens. One has, besides what all tokens see, what some may not see;
//! the other never had it.
//!
//! Whatever belongs to what may not be seen has [`SECRET`] in its name, and nothing else has.

use crate::read_routes::{START, encoded};
use crate::support::Running;
use headwater::{Batch, Database, StreamName, Value};
use headwater_server::tokens::{NewToken, TokenFile};
use std::collections::BTreeMap;
use std::io::Read;

/// Stands in every name and value that only one of the worlds has.
pub(super) const SECRET: &str = "zzsecret";

/// What a token may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// It may read what only one of the worlds has: by it the test sees that there is something to
    /// see.
    ReadsAll,
    /// It may read a part, in which both worlds are the same.
    Reads,
    /// It may read nothing.
    Blind,
}

pub(super) struct Token {
    pub(super) name: &'static str,
    pub(super) kind: TokenKind,
    /// What is sent; `None` = nothing.
    pub(super) text: Option<String>,
}

/// Every kind of rule there is.
const RULES: [(&str, TokenKind, &[&str]); 11] = [
    ("read all", TokenKind::ReadsAll, &["read *"]),
    (
        "admin",
        TokenKind::ReadsAll,
        &["read *", "write *", "manage *"],
    ),
    ("read one table", TokenKind::Reads, &["read boats"]),
    ("read by tag", TokenKind::Reads, &["read *,site=north"]),
    ("read one stream", TokenKind::Reads, &["read cars,id=seen"]),
    ("read what is not there", TokenKind::Reads, &["read vans"]),
    (
        "read and write by tag",
        TokenKind::Reads,
        &["read *,site=north", "write *,site=north"],
    ),
    (
        "manage one table",
        TokenKind::Reads,
        &["manage boats", "read boats"],
    ),
    ("write by tag", TokenKind::Blind, &["write *,site=north"]),
    ("write all", TokenKind::Blind, &["write *"]),
    ("no rule", TokenKind::Blind, &[]),
];

pub(super) struct World {
    pub(super) server: Running,
    client: ureq::Agent,
    /// Nodes that the server depends on.
    behind: Vec<Running>,
}

/// A request, the same in both worlds.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query, not encoded yet.
    pub(super) target: String,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Vec<u8>,
}

/// All that comes back, but for what differs from request to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// For messages of the test.
    pub(super) fn shown(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        format!("{} {:?}\n{body}", self.status, self.headers)
    }

    /// Whether a word occurs anywhere in it.
    pub(super) fn contains(&self, word: &str) -> bool {
        let head = self
            .headers
            .iter()
            .any(|(k, v)| k.contains(word) || v.contains(word));
        head || self
            .body
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    }
}

/// The worlds, the one with secrets first, and their tokens.
pub(super) fn worlds() -> ([World; 2], Vec<Token>) {
    let mut tokens = Vec::new();
    let mut stored = Vec::new();
    let with = World::start(true, |file| {
        for (name, kind, rules) in RULES {
            let text = Some(create(file, name, rules, None));
            tokens.push(Token { name, kind, text });
        }
        let past = jiff::Timestamp::UNIX_EPOCH;
        let text = Some(create(file, "expired", &["read *"], Some(past)));
        let expired = ("expired", text);
        let unknown = ("unknown", Some("hw_0123".to_owned()));
        for (name, text) in [expired, unknown, ("no token", None)] {
            let kind = TokenKind::Blind;
            tokens.push(Token { name, kind, text });
        }
        stored = std::fs::read(file.path()).unwrap();
    });
    let without = World::start(false, |file| {
        std::fs::write(file.path(), &stored).unwrap();
    });
    ([with, without], tokens)
}

fn create(
    file: &TokenFile,
    name: &str,
    rules: &[&str],
    expires: Option<jiff::Timestamp>,
) -> String {
    file.create(NewToken {
        name: name.to_owned(),
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        expires,
    })
    .unwrap()
}

/// What is there: streams with their rows. Some of it stands in files, some in memory.
pub(super) fn fill(db: &Database, with_secrets: bool) {
    let row = |batch: &mut Batch, stream: &str, second: i64, values: &[(&str, Value)]| {
        let stream = StreamName::parse(stream).unwrap();
        let time = START + second * 1_000_000_000;
        batch.stream(&stream).row(time, values.to_vec()).unwrap();
    };
    let number = Value::F64;
    for turn in 0..2 {
        let mut batch = Batch::new();
        if with_secrets {
            // Of tables that may be seen, a stream with a tag and fields of its own; then a table
            // of its own.
            let stream = "cars,id=zzsecretid,site=south,zzsecretkey=zzsecretval";
            let fields = [
                ("v", number(9.0)),
                ("zzsecretfield", number(7.5)),
                ("zzsecrettext", Value::String("zzsecretword".to_owned())),
            ];
            row(&mut batch, stream, turn, &fields);
            row(
                &mut batch,
                "gauges,id=zzsecretg,site=south",
                turn,
                &[("value", number(5.0))],
            );
            let stream = "zzsecrets,site=south,zzsecretkey=zzsecretval";
            let fields = [
                ("v", number(1.0)),
                ("zzsecretfield", number(2.0)),
                ("value", number(3.0)),
            ];
            row(&mut batch, stream, turn, &fields);
        }
        for id in ["seen", "second"] {
            let name = Value::String("x".to_owned());
            let stream = format!("cars,id={id},site=north");
            row(
                &mut batch,
                &stream,
                turn,
                &[("v", number(1.5)), ("name", name)],
            );
        }
        row(
            &mut batch,
            "boats,id=b",
            turn,
            &[("v", number(2.5)), ("value", number(1.0))],
        );
        // What `value` is in OpenTSDB, this one has only where it may not be seen.
        row(
            &mut batch,
            "gauges,id=g,site=north",
            turn,
            &[("v", number(4.0))],
        );
        db.commit(batch).unwrap();
        if turn == 0 {
            // It puts into files what there is.
            db.create_snapshot("kept").unwrap();
        }
    }
}

impl World {
    fn start(with_secrets: bool, tokens: impl FnOnce(&TokenFile)) -> World {
        let server = Running::start_with(|settings| {
            let db = Database::open(settings.engine.clone()).unwrap();
            fill(&db, with_secrets);
            db.close().unwrap();
            tokens(&TokenFile::of_database(settings.db()));
            #[cfg(feature = "sql")]
            {
                settings.postgres_addr = Some("127.0.0.1:0".parse().unwrap());
            }
        });
        World::of(server, Vec::new())
    }

    /// A server with the nodes that it depends on.
    pub(super) fn of(server: Running, behind: Vec<Running>) -> World {
        let client = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(std::time::Duration::from_secs(60)))
            .build()
            .into();
        World {
            server,
            client,
            behind,
        }
    }

    /// All of its nodes that have a database.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Running> {
        let own = std::iter::once(&self.server);
        let own = own.filter(|server| !server.db().join("dispatch.key").exists());
        own.chain(&self.behind)
    }

    /// The server, and the nodes that it depends on.
    pub(super) fn into_parts(self) -> (Running, Vec<Running>) {
        (self.server, self.behind)
    }

    pub(super) fn request(&self, token: &Token, ask: &Request) -> Answer {
        self.ask_at(&self.server, token, ask)
    }

    /// Asks this server, or another one that stands before it.
    pub(super) fn ask_at(&self, server: &Running, token: &Token, ask: &Request) -> Answer {
        let mut request = ureq::http::Request::builder()
            .method(ask.method.as_str())
            .uri(server.url(&address(&ask.target)));
        if let Some(token) = &token.text {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        for (name, value) in &ask.headers {
            request = request.header(*name, *value);
        }
        let request = request.body(ask.body.as_slice()).unwrap();
        let mut answer = self.client.run(request).unwrap();
        let status = answer.status().as_u16();
        let mut headers = BTreeMap::new();
        for (name, value) in answer.headers() {
            let value = match name.as_str() {
                "date" | "x-request-id" => continue,
                // Versions are made with a key of the process.
                "etag" => "some",
                // Tickets are made anew, and addresses are those of the world.
                "location" => {
                    let location = value.to_str().unwrap();
                    let (location, ticket) =
                        location.split_once("ticket=").unwrap_or((location, ""));
                    let nodes = std::iter::once(&self.server).chain(&self.behind);
                    let location = nodes.fold(location.to_owned(), |text, node| {
                        text.replace(&node.url(""), "NODE")
                    });
                    headers.insert(
                        "location".to_owned(),
                        format!("{location} {}", ticket.is_empty()),
                    );
                    continue;
                }
                _ => value.to_str().unwrap(),
            };
            headers.insert(name.as_str().to_owned(), value.to_owned());
        }
        let mut body = Vec::new();
        if headers
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream")
        {
            // An answer that does not end: what says that it has begun.
            body.resize(b": live\n\n".len(), 0);
            answer.body_mut().as_reader().read_exact(&mut body).unwrap();
        } else {
            answer
                .body_mut()
                .as_reader()
                .read_to_end(&mut body)
                .unwrap();
        }
        Answer {
            status,
            headers,
            body,
        }
    }
}

/// Encodes the parts of a path and the values of a query.
fn address(target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // What needs no encoding in a path has none: routes are found by it.
    let plain = |part: &str| {
        let encoded = encoded(part);
        [("%2D", "-"), ("%2E", "."), ("%5F", "_")]
            .iter()
            .fold(encoded, |text, (code, plain)| text.replace(code, plain))
    };
    let path: Vec<String> = path.split('/').map(plain).collect();
    let parts = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            format!("{name}={}", encoded(value))
        });
    let query: Vec<String> = parts.collect();
    format!("{}?{}", path.join("/"), query.join("&"))
}
