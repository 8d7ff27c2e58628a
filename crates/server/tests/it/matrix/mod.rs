//! Every token, every route and door, everything that may be asked for: what may not be seen is as
//! if it had never been there.
//!
//! Two worlds are asked the same, one of which never had what a token may not see: their answers
//! are the same in every byte. A new route fails here until it has a row in [`asks::ROWS`].

mod desks;
#[cfg(feature = "sql")]
mod doors;
mod requests;
mod roles;
#[cfg(feature = "sql")]
mod statements;
mod timing;
mod world;

use headwater_server::endpoints;
use requests::{ROWS, Reveals, Row, SUBJECTS, names_a_secret};
use std::collections::BTreeSet;
use world::{Answer, Request, SECRET, Token, TokenKind, World, worlds};

#[test]
fn every_route_has_a_row_in_the_matrix() {
    let rows: BTreeSet<_> = ROWS.iter().map(|r| (r.method, r.route)).collect();
    let all = endpoints();
    let routes: BTreeSet<_> = all.iter().map(|e| (e.method.as_str(), e.path)).collect();
    assert_eq!(rows, routes, "left: rows of the matrix, right: the routes");
}

/// The requests of a row for everything there is to ask for.
fn requests_of(row: &Row) -> Vec<Request> {
    let mut asks: Vec<Request> = SUBJECTS.iter().flat_map(|thing| row.of(thing)).collect();
    #[cfg(feature = "sql")]
    if row.route == "/api/v1/sql" {
        asks.extend(doors::over_http(statements::READS));
    }
    let mut seen = BTreeSet::new();
    asks.retain(|a| seen.insert((a.target.clone(), a.headers.clone(), a.body.clone())));
    asks
}

/// What both worlds answer; they must say the same.
fn same_answer(worlds: &[World; 2], token: &Token, ask: &Request) -> Answer {
    let [with, without] = worlds.each_ref().map(|world| world.request(token, ask));
    assert_eq!(
        with,
        without,
        "token {:?}, {ask:?}\n--- with secrets: {}\n--- without: {}",
        token.name,
        with.shown(),
        without.shown()
    );
    // What was not asked with it is not told; where both worlds say the same, it could only come
    // from the request.
    assert!(
        names_a_secret(ask) || !with.contains(SECRET),
        "token {:?}, {ask:?}: {}",
        token.name,
        with.shown()
    );
    with
}

/// Whether a request writes a stream that its token may write, and a field that only one of the
/// worlds has.
fn may_write(token: &Token, ask: &Request) -> bool {
    let body = String::from_utf8_lossy(&ask.body);
    let is_hidden = body.contains(SECRET) || body.contains(" value=");
    let by_tag = token.name.ends_with("write by tag") && body.contains("site=north");
    token.name == "write all" || (by_tag && is_hidden)
}

#[test]
fn what_a_token_may_not_see_is_as_if_it_had_never_been_there() {
    let (worlds, tokens) = worlds();
    let mut told = BTreeSet::new();
    // Who sees everything comes first: what is kept of its answers must not be given to the others.
    for token in tokens.iter().filter(|t| t.kind == TokenKind::ReadsAll) {
        for row in ROWS.iter().filter(|r| r.reveals == Reveals::Stored) {
            if row.route == "/api/v1/manage" && token.name != "admin" {
                // Who reads everything manages nothing.
                continue;
            }
            let differs = requests_of(row).iter().any(|ask| {
                let [with, without] = worlds.each_ref().map(|world| world.request(token, ask));
                with != without
            });
            assert!(differs, "{} cannot tell the worlds apart", row.route);
        }
    }
    for token in tokens.iter().filter(|t| t.kind != TokenKind::ReadsAll) {
        for row in ROWS {
            for ask in requests_of(row) {
                match row.reveals {
                    Reveals::Stored | Reveals::Nothing => {
                        let answer = same_answer(&worlds, token, &ask);
                        told.insert((row.route, answer.status));
                    }
                    Reveals::Totals => {
                        let [with, without] =
                            worlds.each_ref().map(|world| world.request(token, &ask));
                        assert_eq!(with.status, without.status, "{} {ask:?}", token.name);
                        assert!(!with.contains(SECRET), "{}: {}", token.name, with.shown());
                        told.insert((row.route, with.status));
                    }
                    // Who may write a stream is told whether its lines fit: that is a test of its
                    // own.
                    Reveals::Fits if may_write(token, &ask) => {}
                    Reveals::Fits => {
                        let answer = same_answer(&worlds, token, &ask);
                        told.insert((row.route, answer.status));
                    }
                }
            }
        }
    }
    // The test has seen answers with something in them, and refusals of all kinds.
    for row in ROWS {
        let seen: Vec<u16> = told
            .iter()
            .filter(|t| t.0 == row.route)
            .map(|t| t.1)
            .collect();
        let wanted: &[u16] = match row.reveals {
            Reveals::Stored if row.route == "/api/v1/storage" => &[401, 403],
            Reveals::Stored if row.route == "/api/v1/held" => &[401, 403],
            Reveals::Stored if row.route == "/api/v1/manage" => &[401, 403],
            Reveals::Stored => &[200, 401],
            Reveals::Fits => &[204, 401, 403],
            Reveals::Totals => &[200, 401],
            Reveals::Nothing if row.route == "/api/v1/sync" => &[401, 403],
            Reveals::Nothing if row.route == "/api/v1/rights" => &[401, 403],
            // This node is no cloud.
            Reveals::Nothing if row.route == "/api/v1/sync/connect" => &[409],
            Reveals::Nothing if row.route.contains("assets") => &[404],
            Reveals::Nothing if row.route.ends_with("/retry") => &[401],
            // There are no watches in the two worlds.
            Reveals::Nothing if row.route.starts_with("/api/v1/watches/") => &[401, 404],
            // Nor is there a lake.
            Reveals::Nothing if row.route.starts_with("/iceberg/") => &[401, 404],
            Reveals::Nothing if row.route == "/api/v1/sql" => &[501],
            Reveals::Nothing if row.route == "/ping" => &[204],
            Reveals::Nothing => &[200],
        };
        let has_all = wanted.iter().all(|status| seen.contains(status));
        assert!(has_all, "{}: {seen:?}, expected {wanted:?}", row.route);
    }
}

fn get(target: &str) -> Request {
    Request {
        method: "GET".to_owned(),
        target: target.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    }
}

fn post(target: &str, body: &str) -> Request {
    Request {
        method: "POST".to_owned(),
        body: body.as_bytes().to_vec(),
        ..get(target)
    }
}

fn token<'a>(tokens: &'a [Token], name: &str) -> &'a Token {
    tokens.iter().find(|t| t.name == name).unwrap()
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[test]
fn an_export_names_no_table_tag_or_field_of_streams_that_may_not_be_read() {
    let ([world, _], tokens) = worlds();
    let formats: &[&str] = match cfg!(feature = "sql") {
        true => &["csv", "lp", "arrow", "parquet"],
        false => &["csv", "lp"],
    };
    for format in formats {
        let export = |name: &str, what: &str| {
            let ask = get(&format!("/api/v1/export?{what}&format={format}"));
            world.request(token(&tokens, name), &ask)
        };
        // A table of which nothing may be read is answered like one that is not there.
        let hidden = export("read by tag", "table=zzsecrets");
        let absent = export("read by tag", "table=absent");
        assert_eq!(hidden.status, 404, "{}", hidden.shown());
        assert_eq!(text(&hidden).replace("zzsecrets", "absent"), text(&absent));
        assert_eq!(hidden.status, absent.status);
        // Of a table of which some streams may be read the others' tags and fields are left out.
        for what in ["table=cars", "stream=cars,id=seen,site=north"] {
            let seen = export("read by tag", what);
            assert_eq!(seen.status, 200, "{}", seen.shown());
            assert!(!seen.contains(SECRET), "{}", seen.shown());
            assert!(seen.contains("name"), "{}", seen.shown());
        }
        assert!(export("read all", "table=cars").contains("zzsecretfield"));
    }
}

#[test]
fn a_field_is_told_of_as_soon_as_a_stream_that_may_be_read_has_a_value_of_it() {
    let ([world, _], tokens) = worlds();
    let (reader, admin) = (token(&tokens, "read by tag"), token(&tokens, "admin"));
    let mut asks = vec![
        get("/api/v1/streams?table=cars"),
        get("/api/v1/scan?stream=cars,id=second,site=north"),
        get("/api/v1/export?table=cars"),
        get("/query?q=SHOW FIELD KEYS"),
        get("/api/v1/aggregate?channel=cars,id=second,site=north.zzsecretfield"),
    ];
    if cfg!(feature = "sql") {
        asks.push(post("/api/v1/sql", "SELECT * FROM cars"));
        asks.push(post("/api/v1/sql", "SHOW COLUMNS FROM cars"));
    }
    let told = || -> Vec<bool> {
        // Twice, so that what was kept of the first time answers the second.
        let answers = asks
            .iter()
            .chain(&asks)
            .map(|ask| world.request(reader, ask));
        // A channel that is not told of is named in its error.
        let told = answers.map(|a| a.contains("zzsecretfield") && !a.contains("E_NOT_FOUND"));
        told.collect()
    };
    assert!(told().iter().all(|told| !told), "{:?}", told());
    let line = "cars,id=seen,site=north zzsecretfield=1 1700000000000000000\n";
    let written = world.request(admin, &post("/write?precision=ns", line));
    assert_eq!(written.status, 204, "{}", written.shown());
    assert!(told().iter().all(|told| *told), "{:?}", told());
}

/// A field has one type in a table, so who may write it must learn of it.
#[test]
fn who_may_write_a_stream_is_told_the_type_of_a_field_it_names_and_nothing_else() {
    let ([world, _], tokens) = worlds();
    let writer = token(&tokens, "write by tag");
    let write = |line: &str| world.request(writer, &post("/write?precision=ns", line));
    let refused = write("cars,id=new,site=north zzsecretfield=\"t\" 1700000000000000000\n");
    assert_eq!(refused.status, 422, "{}", refused.shown());
    let said = text(&refused).replace("zzsecretfield", "");
    assert!(said.contains("E_TYPE") && said.contains("f64"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    let taken = write("cars,id=new,site=north zzsecretfield=1.5 1700000000000000000\n");
    assert_eq!(taken.status, 204, "{}", taken.shown());
    // Of a stream that it may not write it is told nothing.
    let line = |id: &str, value: &str| format!("cars,id={id},site=south zzsecretfield={value} 1\n");
    let wrong = write(&line("zzsecretid", "true"));
    let right = write(&line("zzsecretid", "1.5"));
    let absent = write(&line("nobody", "1.5"));
    assert_eq!(wrong.status, 403, "{}", wrong.shown());
    assert_eq!(text(&wrong).replace("=true 1", "=1.5 1"), text(&right));
    assert_eq!(text(&right).replace("zzsecretid", "nobody"), text(&absent));
}
