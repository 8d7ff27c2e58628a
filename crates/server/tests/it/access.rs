//! A table of tokens and routes: what each rule lets through, on every route there is.
//!
//! A new route fails here until it has a line that says how its answers about streams show what one
//! may not see.

use crate::support::{Running, client, json as body_json};
use headwater::{Batch, Database, StreamName};
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_server::{Endpoint, Needs, endpoints};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Makes tokens in the file of a database that no server has open yet.
fn tokens(file: &TokenFile) -> BTreeMap<&'static str, String> {
    let rules: [(&str, &[&str]); 10] = [
        ("nothing", &[]),
        ("read all", &["read *"]),
        ("write all", &["write *"]),
        ("manage all", &["manage *"]),
        ("read seen", &["read cars,id=seen"]),
        ("write seen", &["write cars,id=seen"]),
        ("write too", &["write cars,id=too"]),
        ("read other", &["read other"]),
        ("write other", &["write other"]),
        ("all", &["read *", "write *", "manage *"]),
    ];
    rules
        .into_iter()
        .map(|(name, rules)| {
            let new = NewToken {
                name: name.to_owned(),
                rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
                expires: None,
            };
            (name, file.create(new).unwrap())
        })
        .collect()
}

struct Scene {
    server: Running,
    client: ureq::Agent,
    tokens: BTreeMap<&'static str, String>,
}

impl Scene {
    fn new() -> Scene {
        let mut made = None;
        let server = Running::start_with(|settings| {
            let db = Database::open(settings.engine.clone()).unwrap();
            fill(&db);
            db.close().unwrap();
            made = Some(tokens(&TokenFile::of_database(settings.db())));
        });
        Scene {
            server,
            client: client(),
            tokens: made.unwrap(),
        }
    }

    fn request(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(self.server.url(path));
        if let Some(token) = token {
            let token = self.tokens.get(token).map_or(token, String::as_str);
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer = self
            .client
            .run(request.body(body.to_owned()).unwrap())
            .unwrap();
        let status = answer.status().as_u16();
        // An answer that does not end is only looked at by its head.
        let lasts = answer
            .headers()
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream");
        let text = if lasts {
            String::new()
        } else {
            let bytes = answer.body_mut().read_to_vec().unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        (status, text)
    }
}

/// A request for the path of a route; its handler need not like it.
fn some_path(endpoint: &Endpoint) -> String {
    let parts = endpoint.path.split('/').map(|part| match part {
        part if part.starts_with('{') => "x",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn every_route_asks_for_what_it_needs() {
    let scene = Scene::new();
    // Whoever reads the file of tokens gets none that is worth anything.
    let stored: Value = {
        let text = std::fs::read(TokenFile::of_database(scene.server.db()).path()).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let hash = stored["tokens"][1]["sha256"].as_str().unwrap().to_owned();
    for endpoint in endpoints() {
        let (method, path) = (endpoint.method.as_str(), some_path(&endpoint));
        let ask = |token| scene.request(method, &path, token, "");
        // Whom each need lets through; everyone else has a valid token that allows something else.
        let (let_in, kept_out): (&[&str], &[&str]) = match endpoint.needs {
            Needs::Public => {
                let (status, text) = ask(None);
                assert!(![401, 403].contains(&status), "{method} {path}: {text}");
                continue;
            }
            Needs::Token => (&["nothing", "read seen", "write all"], &[]),
            Needs::Read => (
                &["read all", "read seen", "read other", "all"],
                &["nothing", "write all", "manage all"],
            ),
            Needs::Write => (
                &["write all", "write seen", "write other", "all"],
                &["nothing", "read all", "manage all"],
            ),
            Needs::Manage => (
                &["manage all", "all"],
                &["nothing", "read all", "write all"],
            ),
        };
        for (wrong, token) in [
            ("none", None),
            ("an unknown one", Some("hw_0123")),
            ("the hash of one", Some(hash.as_str())),
        ] {
            let (status, text) = ask(token);
            assert_eq!(status, 401, "{method} {path} with {wrong}: {text}");
            assert!(text.contains("\"E_TOKEN\""), "{text}");
        }
        for token in kept_out {
            let (status, text) = ask(Some(token));
            assert_eq!(status, 403, "{method} {path} with {token}: {text}");
            assert!(text.contains("\"E_ACCESS\""), "{text}");
        }
        for token in let_in {
            let (status, text) = ask(Some(token));
            // Having some right of the kind may not be enough for what is asked; that is another
            // table.
            let sums = |(route, shows): &(&str, Shows)| {
                *route == endpoint.path && matches!(shows, Shows::Sum(_) | Shows::SumOfCloud(_))
            };
            let may_ask_more = endpoint.needs == Needs::Write || LINES.iter().any(sums);
            let kept_out = status == 401 || (status == 403 && !may_ask_more);
            assert!(!kept_out, "{method} {path} with {token}: {status} {text}");
        }
    }
}

#[test]
fn answers_of_401_name_the_scheme() {
    let scene = Scene::new();
    let mut answer = scene
        .client
        .get(scene.server.url("/metrics"))
        .call()
        .unwrap();
    assert_eq!(answer.status(), 401);
    let scheme = answer.headers()["www-authenticate"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(scheme.starts_with("Bearer"), "{scheme}");
    assert_eq!(body_json(&mut answer)["code"], "E_TOKEN");
}

/// How a route that reads shows what its token may not read. `STREAM` stands for a stream.
enum Shows {
    /// It is asked for one stream: a hidden one is answered like one that is not there.
    Stream(&'static str),
    /// It lists: hidden ones are left out.
    List(&'static str),
    /// It sums over everything, and needs a token that reads everything.
    Sum(&'static str),
    /// The same, of a cloud, which this node is not.
    SumOfCloud(&'static str),
    /// It tells of whole tables, to who may read all of one.
    Whole(&'static str),
    /// It counts rows: those of hidden ones are not counted.
    Count(&'static str),
}

/// The line of each route that reads.
const LINES: [(&str, Shows); 38] = [
    (
        "/api/query",
        Shows::List("/api/query?start=2023/11/14&end=2023/11/15&m=none:cars"),
    ),
    ("/api/suggest", Shows::List("/api/suggest?type=tagv")),
    (
        "/api/search/lookup",
        Shows::List("/api/search/lookup?m=cars%7Bid=*%7D"),
    ),
    ("/api/v1/streams", Shows::List("/api/v1/streams")),
    ("/api/v1/streams", Shows::List("/api/v1/streams?table=cars")),
    ("/api/v1/streams", Shows::List("/api/v1/streams?search=id")),
    (
        "/api/v1/streams",
        Shows::Stream("/api/v1/streams?stream=STREAM"),
    ),
    (
        "/tiles/{channel}/{tile}",
        Shows::Stream("/tiles/STREAM.v/0.3320312.json"),
    ),
    (
        "/api/v1/tiles",
        Shows::Stream("/api/v1/tiles?channel=STREAM.v&level=0&offset=3320312"),
    ),
    ("/api/v1/last", Shows::Stream("/api/v1/last?stream=STREAM")),
    ("/api/v1/last", Shows::List("/api/v1/last?table=cars")),
    ("/api/v1/scan", Shows::Stream("/api/v1/scan?stream=STREAM")),
    (
        "/api/v1/aggregate",
        Shows::Stream("/api/v1/aggregate?channel=STREAM.v&functions=count"),
    ),
    (
        "/api/v1/export",
        Shows::Stream("/api/v1/export?stream=STREAM"),
    ),
    (
        "/api/v1/export",
        Shows::List("/api/v1/export?table=cars&format=lp"),
    ),
    (
        "/api/v1/coverage",
        Shows::Stream("/api/v1/coverage?stream=STREAM"),
    ),
    (
        "/api/v1/presence",
        Shows::Stream("/api/v1/presence?stream=STREAM&bins=4"),
    ),
    ("/api/v1/replay", Shows::List("/api/v1/replay?table=cars")),
    (
        "/api/v1/diff",
        Shows::List("/api/v1/diff?before=kept&after=now"),
    ),
    (
        "/api/v1/diff",
        Shows::List("/api/v1/diff?before=now&after=kept&table=cars"),
    ),
    (
        "/api/v1/live",
        Shows::Stream("/api/v1/live?channel=STREAM.v"),
    ),
    (
        "/api/v1/notices/values",
        Shows::Whole("/api/v1/notices/values"),
    ),
    ("/api/v1/watches", Shows::Whole("/api/v1/watches")),
    (
        "/api/v1/watches/{name}/events",
        Shows::Whole("/api/v1/watches/cars/events"),
    ),
    (
        "/api/v1/watches/{name}/dead",
        Shows::Whole("/api/v1/watches/cars/dead"),
    ),
    ("/iceberg/v1/config", Shows::Whole("/iceberg/v1/config")),
    (
        "/iceberg/v1/namespaces",
        Shows::Whole("/iceberg/v1/namespaces"),
    ),
    (
        "/iceberg/v1/namespaces/{namespace}",
        Shows::Whole("/iceberg/v1/namespaces/headwater"),
    ),
    (
        "/iceberg/v1/namespaces/{namespace}/tables",
        Shows::Whole("/iceberg/v1/namespaces/headwater/tables"),
    ),
    (
        "/iceberg/v1/namespaces/{namespace}/tables/{table}",
        Shows::Whole("/iceberg/v1/namespaces/headwater/tables/cars"),
    ),
    (
        "/iceberg/v1/namespaces/{namespace}/tables/{table}/metrics",
        Shows::Whole("/iceberg/v1/namespaces/headwater/tables/cars/metrics"),
    ),
    (
        "/iceberg/v1/namespaces/{namespace}/views",
        Shows::Whole("/iceberg/v1/namespaces/headwater/views"),
    ),
    (
        "/iceberg/v1/namespaces/{namespace}/views/{view}",
        Shows::Whole("/iceberg/v1/namespaces/headwater/views/cars"),
    ),
    ("/api/v1/storage", Shows::Sum("/api/v1/storage")),
    ("/api/v1/held", Shows::Sum("/api/v1/held")),
    ("/api/v1/rights", Shows::SumOfCloud("/api/v1/rights")),
    ("/api/v1/count", Shows::Count("/api/v1/count")),
    ("/api/v1/count", Shows::Count("/api/v1/count?search=id")),
];

/// Routes that read a named snapshot as they read the present.
const OF_SNAPSHOTS: [&str; 9] = [
    "/api/v1/streams",
    "/tiles/{channel}/{tile}",
    "/api/v1/tiles",
    "/api/v1/last",
    "/api/v1/scan",
    "/api/v1/aggregate",
    "/api/v1/export",
    "/api/v1/replay",
    "/api/v1/count",
];

#[test]
fn the_page_of_the_api_names_the_routes_that_read_snapshots() {
    let text = include_str!("../../../../docs/http/openapi.json");
    let page: Value = serde_json::from_str(text).unwrap();
    let takes = |operation: &Value| {
        let parameters = operation["get"]["parameters"].as_array();
        parameters.is_some_and(|all| all.iter().any(|one| one["name"] == "snapshot"))
    };
    let paths = page["paths"].as_object().unwrap().iter();
    let mut named: Vec<&str> = paths
        .filter_map(|(path, operation)| takes(operation).then_some(path.as_str()))
        .collect();
    let mut wanted = OF_SNAPSHOTS.to_vec();
    named.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(named, wanted);
}

/// The path of a line, and where the route takes one the same of a named snapshot.
fn read_now_and_then(route: &str, path: &str) -> Vec<String> {
    let mut paths = vec![path.to_owned()];
    if OF_SNAPSHOTS.contains(&route) {
        let sign = if path.contains('?') { '&' } else { '?' };
        paths.push(format!("{path}{sign}snapshot=kept"));
    }
    paths
}

/// Puts a row into each of two streams, and keeps that.
fn fill(db: &Database) {
    let mut batch = Batch::new();
    for id in ["seen", "hidden"] {
        let rows = batch.stream(&StreamName::new("cars", [("id", id)]));
        rows.row(
            1_700_000_000_000_000_000,
            [("v", 1.5.into()), ("value", 1.5.into())],
        )
        .unwrap();
    }
    db.commit(batch).unwrap();
    db.create_snapshot("kept").unwrap();
    // What differs since.
    let mut batch = Batch::new();
    for id in ["seen", "hidden"] {
        let rows = batch.stream(&StreamName::new("cars", [("id", id)]));
        rows.row(1_700_000_000_000_000_000, [("w", 2.5.into())])
            .unwrap();
    }
    db.commit(batch).unwrap();
}

#[test]
fn what_may_not_be_read_looks_like_what_is_not_there() {
    let scene = Scene::new();
    // Names are made alike, so that answers about different streams can be compared.
    let ask = |path: &str, table: &str, id: &str, token| {
        let path = path.replace("STREAM", &format!("{table},id={id}"));
        let (status, text) = scene.request("GET", &path, Some(token), "");
        (status, text.replace(id, "ID").replace(table, "TABLE"))
    };
    for (route, shows) in LINES {
        match shows {
            Shows::Stream(path) => {
                for path in &read_now_and_then(route, path) {
                    let absent = ask(path, "cars", "absent", "read seen");
                    let seen = ask(path, "cars", "seen", "read seen");
                    assert_eq!(seen.0, 200, "{path}: {}", seen.1);
                    assert_eq!(ask(path, "cars", "hidden", "read seen"), absent, "{path}");
                    let nowhere = ask(path, "vans", "absent", "read other");
                    assert_eq!(ask(path, "cars", "hidden", "read other"), nowhere, "{path}");
                    // The test must be able to tell: with the right to read it, it looks like the
                    // one that is seen.
                    assert_eq!(ask(path, "cars", "hidden", "read all"), seen, "{path}");
                    assert_ne!(seen, absent, "{path}");
                }
            }
            Shows::List(path) => {
                for path in &read_now_and_then(route, path) {
                    let (status, some) = scene.request("GET", path, Some("read seen"), "");
                    let (_, all) = scene.request("GET", path, Some("read all"), "");
                    let (_, other) = scene.request("GET", path, Some("read other"), "");
                    assert_eq!(status, 200, "{path}: {some}");
                    assert!(
                        some.contains("seen") && !some.contains("hidden"),
                        "{path}: {some}"
                    );
                    assert!(
                        all.contains("seen") && all.contains("hidden"),
                        "{path}: {all}"
                    );
                    assert!(
                        !other.contains("seen") && !other.contains("hidden"),
                        "{path}: {other}"
                    );
                }
            }
            Shows::Count(path) => {
                for path in &read_now_and_then(route, path) {
                    for (token, rows) in [("read seen", 1), ("read other", 0), ("read all", 2)] {
                        let (status, text) = scene.request("GET", path, Some(token), "");
                        let counts: Value = serde_json::from_str(&text).unwrap();
                        assert_eq!(
                            (status, &counts["rows"]),
                            (200, &json!(rows)),
                            "{path}: {text}"
                        );
                    }
                    // A table of which nothing may be read looks like none.
                    let of_table = |table: &str| {
                        ask(
                            &format!(
                                "{path}{}table={table}",
                                if path.contains('?') { '&' } else { '?' }
                            ),
                            table,
                            "-",
                            "read other",
                        )
                    };
                    assert_eq!(of_table("cars"), of_table("vans"), "{path}");
                    assert_eq!(of_table("cars").0, 404, "{path}");
                }
            }
            Shows::Whole(path) => {
                for path in &read_now_and_then(route, path) {
                    let some = scene.request("GET", path, Some("read seen"), "");
                    let other = scene.request("GET", path, Some("read other"), "");
                    assert_eq!(some, other, "{path}");
                    assert!(!some.1.contains("hidden"), "{path}: {}", some.1);
                }
            }
            Shows::SumOfCloud(path) => {
                for (token, status) in [("read seen", 403), ("read other", 403), ("read all", 409)]
                {
                    assert_eq!(scene.request("GET", path, Some(token), "").0, status);
                }
            }
            Shows::Sum(path) => {
                for path in &read_now_and_then(route, path) {
                    for (token, status) in
                        [("read seen", 403), ("read other", 403), ("read all", 200)]
                    {
                        assert_eq!(
                            scene.request("GET", path, Some(token), "").0,
                            status,
                            "{path}"
                        );
                    }
                }
            }
        }
        assert!(
            endpoints().iter().any(|endpoint| endpoint.path == route),
            "{route} is no route"
        );
    }
    for endpoint in endpoints() {
        let has_line = LINES.iter().any(|(route, _)| *route == endpoint.path);
        assert_eq!(
            has_line,
            endpoint.needs == Needs::Read,
            "{}: a route that reads needs a line in LINES",
            endpoint.path
        );
    }
}

#[test]
fn numbers_of_a_producer_belong_to_the_token_where_it_may_write_a_part() {
    let scene = Scene::new();
    let write = |token: &str, id: &str, number: u64| {
        let line = format!("cars,id={id} v=7 17000000{number:02}000000000\n");
        let answer = scene
            .client
            .post(scene.server.url("/write?precision=ns"))
            .header("Authorization", format!("Bearer {}", scene.tokens[token]))
            .header("X-Headwater-Producer", "gateway")
            .header("X-Headwater-Batch", number.to_string())
            .send(&line)
            .unwrap();
        assert_eq!(answer.status(), 204);
        answer.headers().contains_key("x-headwater-repeated")
    };
    // The numbers of one token do not make the batches of another look stored.
    assert!(!write("write all", "far", 90));
    assert!(!write("write seen", "seen", 5));
    assert!(!write("write too", "too", 4));
    assert!(!write("write seen", "seen", 6));
    assert!(!write("write too", "too", 5));
    // Its own do.
    assert!(write("write seen", "seen", 6));
    assert!(write("write too", "too", 1));
    assert!(write("write all", "far", 89));
}

/// Each route that writes: line protocol, or points of OpenTSDB.
const WRITE_LINES: [&str; 4] = ["/write", "/api/v2/write", "/api/v3/write_lp", "/api/put"];

/// Routes that write something else; what tokens allow is tested beside them: `prometheus`.
const WRITE_OTHERS: [&str; 1] = ["/api/v1/prom/write"];

#[test]
fn lines_of_streams_that_may_not_be_written_are_refused_alone() {
    let scene = Scene::new();
    let time = 1_700_000_001_000_000_000i64;
    let newest = |id: &str, field: &str| {
        let path = format!("/api/v1/last?stream=cars,id={id}");
        let (_, text) = scene.request("GET", &path, Some("read all"), "");
        let body: Value = serde_json::from_str(&text).unwrap();
        body["streams"][0]["fields"][field]["value"].as_f64()
    };
    for (turn, route) in (1i64..).zip(WRITE_LINES) {
        let path = format!("{route}?precision=ns");
        let at = time + turn;
        let are_points = route == "/api/put";
        let field = if are_points { "value" } else { "v" };
        let line = |id: &str| {
            match are_points {
            false => format!("cars,id={id} v={turn} {at}\n"),
            true => json!({"metric": "cars", "timestamp": 1_700_000_002, "value": turn, "tags": {"id": id}}).to_string(),
        }
        };
        let write = |token, body: &str| scene.request("POST", &path, Some(token), body);

        let (status, text) = write("write seen", &line("seen"));
        assert_eq!(status, 204, "{route}: {text}");
        assert_eq!(newest("seen", field), Some(turn as f64));

        // A stream that is there and one that is not are refused alike.
        let [hidden, absent] = ["hidden", "absent"].map(|id| {
            let both = match are_points {
                false => format!("{}{}", line("seen"), line(id)),
                true => format!("[{},{}]", line("seen"), line(id)),
            };
            let (mixed, said) = write("write seen", &both);
            let (alone, alone_said) = write("write seen", &line(id));
            assert_eq!((mixed, alone), (400, 403), "{route}: {said} {alone_said}");
            assert!(
                said.contains("partial write") && said.contains("E_ACCESS"),
                "{said}"
            );
            assert!(alone_said.contains("E_ACCESS"), "{alone_said}");
            (said.replace(id, "ID"), alone_said.replace(id, "ID"))
        });
        assert_eq!(hidden, absent, "{route}");
        assert_eq!(newest("hidden", field), Some(1.5));
        assert_eq!(newest("absent", field), None);

        assert_eq!(write("write other", &line("seen")).0, 403, "{route}");
        assert_eq!(write("write all", &line("new")).0, 204, "{route}");
    }
    let (_, text) = scene.request("GET", "/api/v1/streams?search=absent", Some("read all"), "");
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body["total"], 0, "{text}");
    for endpoint in endpoints() {
        assert!(
            endpoint.needs != Needs::Write
                || WRITE_LINES.contains(&endpoint.path)
                || WRITE_OTHERS.contains(&endpoint.path),
            "{}: a route that writes needs a place in WRITE_LINES, or a test of its own",
            endpoint.path
        );
    }
}
