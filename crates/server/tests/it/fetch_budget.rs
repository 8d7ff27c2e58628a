//! Budgets of tokens for what is fetched from edges, at a cloud and through a dispatcher.

use crate::dispatch::dispatcher_in;
use crate::support::{Running, json};
use crate::sync::{an_hour, cloud, edge_in, flushed, invite, joined, until_current, write};
use headwater_server::settings::NodeRole;
use headwater_server::tokens::{FetchLimit, NewToken, TokenFile};
use headwater_testing::until;
use serde_json::{Value, json};
use ureq::http::Response;

const TAGS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn create(file: &TokenFile, name: &str, rules: &[&str], limit: Option<FetchLimit>) -> String {
    let new = NewToken {
        name: name.to_owned(),
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        expires: None,
    };
    file.create_with_budget(new, limit).unwrap()
}

fn get_with(url: &str, token: &str, header: Option<(&str, &str)>) -> Response<ureq::Body> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .into();
    let mut request = agent.get(url);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    request.call().unwrap()
}

fn text(mut answer: Response<ureq::Body>) -> (u16, String) {
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), text)
}

fn header(answer: &Response<ureq::Body>, name: &str) -> String {
    let value = answer.headers().get(name);
    value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
}

/// The rows of a stream, fetched where they are not here.
fn rows(tag: &str) -> String {
    format!("/api/v1/scan?stream=pump,id%3D{tag}")
}

fn fetching(node: &Running, tag: &str, token: &str) -> Response<ureq::Body> {
    get_with(&node.url(&format!("{}&fetch=true", rows(tag))), token, None)
}

/// True when an answer says that the budget of its token is spent; false when it has rows.
fn is_over(mut answer: Response<ureq::Body>) -> bool {
    if answer.status() == 200 {
        return false;
    }
    assert_eq!(answer.status(), 503);
    assert_eq!(header(&answer, "x-headwater-fetch"), "over-budget");
    let wait: u32 = header(&answer, "retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
    let body = json(&mut answer);
    assert_eq!(body["code"], "E_ELSEWHERE", "{body}");
    let budget = &body["fetch_budget"];
    let left = budget["per_day"].as_u64().unwrap() - budget["spent"].as_u64().unwrap();
    assert!(budget["needed"].as_u64().unwrap() > left, "{body}");
    let said = body["message"].as_str().unwrap();
    assert!(said.contains("nothing more is fetched"), "{said}");
    true
}

/// A cloud that wants summaries of an edge, which has an hour of each of some streams.
fn summaries() -> (Running, Running) {
    let cloud = cloud();
    let dir = tempfile::tempdir().unwrap();
    let invitation = invite(&cloud, "e", &json!({"want": {"summaries": 8}}));
    joined(&dir.path().join("db"), &invitation, false).unwrap();
    let edge = edge_in(dir);
    for tag in TAGS {
        write(&edge, &an_hour(tag));
    }
    flushed(&edge);
    until_current(&cloud, &edge, "e");
    (cloud, edge)
}

fn fetched(cloud: &Running, admin: &str) -> Value {
    let mut answer = get_with(&cloud.url("/api/v1/sync"), admin, None);
    assert_eq!(answer.status(), 200);
    json(&mut answer)["fetched"].clone()
}

fn token_of(fetched: &Value, id: &str) -> Value {
    let tokens = fetched["tokens"].as_array().unwrap();
    let found = tokens.iter().find(|one| one["token"] == id);
    found.cloned().unwrap_or_default()
}

fn id_of(file: &TokenFile, name: &str) -> String {
    let tokens = file.read().unwrap().unwrap();
    let grants = tokens.grants();
    let found = grants.iter().find(|grant| grant.name == name);
    found.unwrap().id.clone()
}

fn until_known(cloud: &Running, token: &str) {
    let status = |token: &str| get_with(&cloud.url("/api/v1/streams"), token, None).status();
    // Until tokens are known, everything is open.
    until("the token is known", || {
        status("") == 401 && status(token) == 200
    });
}

fn until_connected(cloud: &Running, admin: &str) {
    until("the edge is connected", || {
        let mut answer = get_with(&cloud.url("/api/v1/sync"), admin, None);
        json(&mut answer)["edges"][0]["state"] == "current"
    });
}

#[test]
fn a_token_whose_budget_is_spent_gets_what_is_here_and_no_more() {
    let (cloud, edge) = summaries();
    let wanted = |tag: &str| text(get_with(&edge.url(&rows(tag)), "", None));
    let file = TokenFile::of_database(cloud.db());
    let admin = create(&file, "admin", &["read *", "manage *"], None);
    let rich = create(&file, "rich", &["read *"], None);
    let poor = create(&file, "poor", &["read *"], Some(FetchLimit::Bytes(1)));
    until_known(&cloud, &poor);
    assert!(is_over(fetching(&cloud, "a", &poor)));
    // Another token is not concerned, and what it has fetched is here for all.
    assert_eq!(text(fetching(&cloud, "a", &rich)), wanted("a"));
    assert_eq!(text(fetching(&cloud, "a", &poor)), wanted("a"));
    let status = fetched(&cloud, &admin);
    let one = token_of(&status, &id_of(&file, "rich"))["bytes"]
        .as_u64()
        .unwrap();
    assert!(one > 0 && status["bytes"].as_u64() == Some(one), "{status}");
    assert_eq!(status["refused"], 1, "{status}");
    let spent = token_of(&status, &id_of(&file, "poor"));
    assert_eq!((&spent["bytes"], &spent["per_day"]), (&json!(0), &json!(1)));
    let metrics = text(get_with(&cloud.url("/metrics"), &admin, None)).1;
    for (name, value) in [("sync_fetched_bytes", one), ("sync_fetch_refused", 1)] {
        until(name, || {
            let metrics = text(get_with(&cloud.url("/metrics"), &admin, None)).1;
            metrics
                .lines()
                .any(|line| line == format!("headwater_{name} {value}.0"))
        });
    }
    assert!(metrics.contains("headwater_sync_fetch_spent_tokens"));
    // A budget is spent by what it was used for, and never exceeded.
    let limit = one + one / 2;
    let some = create(&file, "some", &["read *"], Some(FetchLimit::Bytes(limit)));
    until_known(&cloud, &some);
    let over: Vec<bool> = TAGS[1..]
        .iter()
        .map(|tag| is_over(fetching(&cloud, tag, &some)))
        .collect();
    assert!(!over[0] && over.contains(&true), "{over:?}");
    let refused = TAGS[1..][over.iter().position(|over| *over).unwrap()];
    let id = id_of(&file, "some");
    let before = token_of(&fetched(&cloud, &admin), &id);
    assert_eq!(before["is_spent"], true);
    assert!(before["bytes"].as_u64().unwrap() <= limit, "{before}");
    // Neither of them gets anything back by a restart, and a token without a budget of its own has
    // that of the node.
    let port = cloud.addr.port();
    let cloud = cloud.restarted(|s| {
        s.sync.role = NodeRole::Cloud;
        s.sync.fetch_per_day = FetchLimit::Bytes(one);
        s.http_addr.set_port(port);
    });
    until_connected(&cloud, &admin);
    let after = token_of(&fetched(&cloud, &admin), &id);
    assert_eq!(after["bytes"], before["bytes"]);
    assert!(is_over(fetching(&cloud, refused, &some)));
    assert!(is_over(fetching(&cloud, refused, &rich)));
    assert_eq!(fetched(&cloud, &admin)["per_day"], one);
    // Without fetching, the refusal is what it always was.
    let plain = get_with(&cloud.url(&rows(refused)), &rich, None);
    assert_eq!(plain.status(), 503);
    assert_eq!(header(&plain, "x-headwater-fetch"), "");
}

#[test]
fn a_reader_pays_for_what_it_missed_and_not_for_others() {
    let (cloud, _edge) = summaries();
    let file = TokenFile::of_database(cloud.db());
    let admin = create(&file, "admin", &["read *", "manage *"], None);
    let rich = create(&file, "rich", &["read *"], None);
    until_known(&cloud, &rich);
    assert!(!is_over(fetching(&cloud, "a", &rich)));
    let one = fetched(&cloud, &admin)["bytes"].as_u64().unwrap();
    // Others look for much that is not here, and do not ask for it.
    for tag in &TAGS[2..] {
        for _ in 0..3 {
            assert_eq!(get_with(&cloud.url(&rows(tag)), &rich, None).status(), 503);
        }
    }
    let limit = Some(FetchLimit::Bytes(one + one / 2));
    let some = create(&file, "some", &["read *"], limit);
    until_known(&cloud, &some);
    assert!(!is_over(fetching(&cloud, "b", &some)));
    let spent = token_of(&fetched(&cloud, &admin), &id_of(&file, "some"));
    assert!(spent["bytes"].as_u64().unwrap() <= one, "{spent}");
}

#[test]
fn the_budget_of_a_token_is_the_same_through_a_dispatcher() {
    let (cloud, edge) = summaries();
    let dir = tempfile::tempdir().unwrap();
    let file = TokenFile::of_database(dir.path().join("db"));
    let own = create(&file, "dispatcher", &["read *"], None);
    let admin = create(&file, "admin", &["read *", "manage *"], None);
    let rich = create(&file, "rich", &["read *"], None);
    let poor = create(&file, "poor", &["read *"], Some(FetchLimit::Bytes(0)));
    std::fs::copy(file.path(), cloud.db().join("tokens.json")).unwrap();
    until_known(&cloud, &poor);
    let own_file = dir.path().join("token");
    std::fs::write(&own_file, format!("{own}\n")).unwrap();
    let desk = dispatcher_in(dir, &[&cloud], |s| s.dispatch.token_file = Some(own_file));
    let relay = Some(("x-headwater-relay", "true"));
    let path = rows("a");
    let redirected = |token: &str| header(&get_with(&desk.url(&path), token, None), "location");
    until("the dispatcher lets the node fetch", || {
        redirected(&poor).contains("fetch=true")
    });
    // With a ticket, and relayed.
    assert!(is_over(get_with(&redirected(&poor), "", None)));
    assert!(is_over(get_with(&desk.url(&path), &poor, relay)));
    let wanted = text(get_with(&edge.url(&path), "", None));
    assert_eq!(text(get_with(&desk.url(&path), &rich, relay)), wanted);
    assert_eq!(text(get_with(&desk.url(&path), &poor, relay)), wanted);
    let status = fetched(&cloud, &admin);
    assert_eq!(status["refused"], 2, "{status}");
    let spent = token_of(&status, &id_of(&file, "rich"));
    assert!(spent["bytes"].as_u64() > Some(0), "{status}");
    assert_eq!(token_of(&status, &id_of(&file, "poor"))["bytes"], 0);
    assert_eq!(token_of(&status, &id_of(&file, "dispatcher")), Value::Null);
}
