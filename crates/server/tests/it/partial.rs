//! `partial=allow` at a cloud with a copy that it cannot read, and through a dispatcher.

use crate::dispatch::{dispatcher, get, header};
#[cfg(feature = "sql")]
use crate::postgres::raw::Client;
#[cfg(feature = "sql")]
use crate::postgres::session;
use crate::support::{Running, client, json};
use crate::sync::{an_hour, cloud, edge, flushed, until_current, write};
use headwater_server::settings::NodeRole;
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::until;
use serde_json::{Value, json};

/// A cloud with the copies of two edges, of which that of the second cannot be read.
fn damaged() -> Running {
    let cloud = cloud();
    for (name, tag) in [("north", "a"), ("south", "b")] {
        let edge = edge(&cloud, name);
        write(&edge, &an_hour(tag));
        flushed(&edge);
        until_current(&cloud, &edge, name);
    }
    let dir = cloud.ended();
    let copy = dir.path().join("db/copies/south/copy.redb");
    std::fs::write(copy, b"damaged").unwrap();
    Running::start_in(dir, |s| {
        s.sync.role = NodeRole::Cloud;
        s.postgres_addr = Some("127.0.0.1:0".parse().unwrap());
    })
}

fn parsed(answer: &(u16, String)) -> Value {
    serde_json::from_str(&answer.1).unwrap_or_default()
}

/// Edges that an answer says are missing.
fn missing(body: &Value) -> Vec<String> {
    let missing = body["partial"]["missing"].as_array().unwrap();
    let name = |one: &Value| one["edge"].as_str().unwrap_or_default().to_owned();
    missing.iter().map(name).collect()
}

fn with(path: &str, parameter: &str) -> String {
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}{parameter}")
}

#[test]
fn a_node_answers_without_an_unreadable_copy_only_if_that_is_allowed_and_says_so() {
    let cloud = damaged();
    for (path, part) in [
        ("/api/v1/count", "\"rows\":3600"),
        ("/api/v1/last?table=pump", "id=a"),
        ("/api/v1/streams", "\"total\":1"),
        ("/api/v1/streams?search=pump", "\"total\":1"),
        ("/query?db=x&q=SELECT%20count(flow)%20FROM%20pump", "3600"),
        ("/query?db=x&q=SHOW%20SERIES", "id=a"),
    ] {
        for refused in [path.to_owned(), with(path, "partial=refuse")] {
            let (status, text) = get(&cloud, &refused);
            let is_named = text.contains("E_ELSEWHERE") || text.contains("elsewhere");
            assert!(status == 503 && is_named, "{refused}: {status} {text}");
        }
        let answer = get(&cloud, &with(path, "partial=allow"));
        let body = parsed(&answer);
        assert_eq!(answer.0, 200, "{path}: {}", answer.1);
        assert!(answer.1.contains(part), "{path}: {}", answer.1);
        assert!(!answer.1.contains("id=b"), "{path}: {}", answer.1);
        assert_eq!(missing(&body), ["south"], "{path}: {}", answer.1);
        let first = &body["partial"]["missing"][0];
        assert_eq!(
            (&first["nodes"], &first["unreachable_since"]),
            (&json!([]), &Value::Null)
        );
        assert!(first["reason"].is_string(), "{first}");
    }
    // A refusal of InfluxQL is never an empty answer.
    for _ in 0..50 {
        let answer = get(&cloud, "/query?db=x&q=SELECT%20count(flow)%20FROM%20pump");
        assert_eq!(answer.0, 503, "{}", answer.1);
    }
    // Named streams: one that is here, and one that may be in the other copy.
    let named = [
        "/api/v1/aggregate?channel=pump,id%3Da.flow",
        "/api/v1/tiles?channel=pump,id%3Da.flow&level=8&offset=12969",
    ];
    for path in named {
        let answer = get(&cloud, &with(path, "partial=allow"));
        assert_eq!(missing(&parsed(&answer)), ["south"], "{path}: {}", answer.1);
    }
    let other = "/api/v1/scan?stream=pump,id%3Db";
    assert_eq!(get(&cloud, other).0, 503);
    let (status, text) = get(&cloud, &with(other, "partial=allow"));
    assert!(
        status == 503 && text.contains("E_ELSEWHERE") && text.contains("south"),
        "{status} {text}"
    );
    // The header, and the reason in the answer.
    let mut answer = client()
        .get(cloud.url("/api/v1/count"))
        .header("x-headwater-partial", "allow")
        .call()
        .unwrap();
    assert_eq!(header(&answer, "x-headwater-place"), "partial");
    assert_eq!(missing(&json(&mut answer)), ["south"]);
    // A format without a place for it, and a value that is none.
    let (status, text) = get(&cloud, "/api/v1/export?table=pump&partial=allow");
    assert!(
        status == 406 && text.contains("E_PARTIAL"),
        "{status} {text}"
    );
    let (status, text) = get(&cloud, "/api/v1/count?partial=maybe");
    assert!(
        status == 400 && text.contains("allow or refuse"),
        "{status} {text}"
    );
    // A node that lacks nothing has nothing to say.
    let whole = Running::start();
    write(&whole, &an_hour("a"));
    let (status, text) = get(&whole, "/api/v1/count?partial=allow");
    assert!(
        status == 200 && !text.contains("partial"),
        "{status} {text}"
    );
}

#[test]
fn names_of_missing_edges_are_for_readers_of_everything() {
    let cloud = damaged();
    let file = TokenFile::of_database(cloud.db());
    let create = |name: &str, rule: &str| {
        let new = NewToken {
            name: name.to_owned(),
            rules: vec![rule.parse().unwrap()],
            expires: None,
        };
        file.create(new).unwrap()
    };
    let (all, some) = (create("all", "read *"), create("some", "read pump,id=a"));
    let count = |token: &str| {
        let mut answer = client()
            .get(cloud.url("/api/v1/count?partial=allow"))
            .header("authorization", format!("Bearer {token}"))
            .call()
            .unwrap();
        (answer.status().as_u16(), json(&mut answer))
    };
    until("the tokens are known", || count("hw_none").0 == 401);
    assert_eq!(missing(&count(&all).1), ["south"]);
    let (_, told) = count(&some);
    assert_eq!(missing(&told), [""; 0], "{told}");
    assert_eq!(told["rows"], 3600);
}

#[cfg(feature = "sql")]
#[test]
fn sql_leaves_out_an_unreadable_copy_for_one_request_only() {
    let cloud = damaged();
    let ask = |path: &str, statement: &str| {
        let mut answer = client().post(cloud.url(path)).send(statement).unwrap();
        (
            answer.status().as_u16(),
            answer.body_mut().read_to_string().unwrap(),
        )
    };
    for statement in [
        "SELECT count(*) AS n FROM pump",
        "SELECT id, count(*) AS n FROM pump GROUP BY id",
        "SELECT max(flow) AS n FROM pump",
        "SHOW TABLES",
    ] {
        let refused = ask("/api/v1/sql", statement);
        assert_eq!(refused.0, 503, "{statement}: {}", refused.1);
        let answer = ask("/api/v1/sql?partial=allow", statement);
        assert_eq!(answer.0, 200, "{statement}: {}", answer.1);
        assert_eq!(missing(&parsed(&answer)), ["south"], "{}", answer.1);
        // What it has read is not taken for everything.
        assert_eq!(ask("/api/v1/sql", statement), refused);
    }
    let (status, text) = ask("/api/v1/sql?partial=allow&format=csv", "SELECT * FROM pump");
    assert!(
        status == 406 && text.contains("E_PARTIAL"),
        "{status} {text}"
    );
}

/// Lines of a PostgreSQL client's answer, and the notices in it.
#[cfg(feature = "sql")]
fn by_postgres(client: &mut Client, statement: &str) -> (Vec<String>, Vec<String>) {
    let lines = client.query(statement).into_iter();
    let (notices, answer) = lines.partition(|line| line.starts_with('N'));
    (answer, notices)
}

#[cfg(feature = "sql")]
#[test]
fn a_session_of_postgresql_leaves_out_an_unreadable_copy_by_its_setting_and_is_warned() {
    let cloud = damaged();
    let mut client = session(&cloud);
    let statements = [
        "SELECT count(*) AS n FROM pump",
        "SELECT id, count(*) AS n FROM pump GROUP BY id",
        "SELECT max(flow) AS n FROM pump",
        "COPY (SELECT count(*) FROM pump) TO STDOUT",
    ];
    for statement in statements {
        let (answer, notices) = by_postgres(&mut client, statement);
        assert!(answer[0].starts_with("E 55000"), "{answer:?}");
        assert!(notices.is_empty(), "{notices:?}");
    }
    assert_eq!(client.rows("SHOW headwater.partial"), ["refuse"]);
    let (answer, _) = by_postgres(&mut client, "SET headwater.partial = perhaps");
    assert!(answer[0].starts_with("E 22023"), "{answer:?}");
    by_postgres(&mut client, "SET headwater.partial = allow");
    for statement in statements {
        let (answer, notices) = by_postgres(&mut client, statement);
        assert!(
            answer.iter().all(|line| !line.starts_with('E')),
            "{answer:?}"
        );
        assert!(
            notices.len() == 1
                && notices[0].starts_with("N 01000 the answer is partial: without `south`"),
            "{statement}: {notices:?}"
        );
    }
    // What is not in a part that is read may be in the other.
    let (answer, _) = by_postgres(&mut client, "SELECT * FROM valve");
    assert!(
        answer[0].starts_with("E 55000") && answer[0].contains("`south`"),
        "{answer:?}"
    );
    by_postgres(&mut client, "RESET ALL");
    let (answer, _) = by_postgres(&mut client, statements[0]);
    assert!(answer[0].starts_with("E 55000"), "{answer:?}");

    let mut client = Client::connect(cloud.postgres.unwrap());
    client.begin(&[("user", "ann"), ("options", "-c headwater.partial=allow")]);
    client.ready();
    let (_, notices) = by_postgres(&mut client, statements[0]);
    assert_eq!(notices.len(), 1, "{notices:?}");
}

#[test]
fn a_dispatcher_says_what_its_node_left_out() {
    let cloud = damaged();
    let desk = dispatcher(&[&cloud]);
    until("the refusal of the node comes through", || {
        let mut answer = client()
            .get(desk.url("/api/v1/count"))
            .header("x-headwater-relay", "true")
            .call()
            .unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        assert_eq!(answer.status(), 503, "{text}");
        text.contains("E_ELSEWHERE") || text.contains("E_PARTIAL")
    });
    for path in [
        "/api/v1/count?partial=allow",
        "/api/v1/last?table=pump&partial=allow",
        "/api/v1/streams?partial=allow",
        "/query?db=x&q=SHOW%20SERIES&partial=allow",
    ] {
        let answer = get(&desk, path);
        assert_eq!(answer.0, 200, "{path}: {}", answer.1);
        assert_eq!(answer.1.matches("\"partial\"").count(), 1, "{}", answer.1);
        assert_eq!(missing(&parsed(&answer)), ["south"], "{path}: {}", answer.1);
    }
    let answer = client()
        .get(desk.url("/api/v1/count?partial=allow"))
        .call()
        .unwrap();
    assert_eq!(header(&answer, "x-headwater-place"), "partial");
    assert_eq!(header(&answer, "x-headwater-missing"), "");
}
