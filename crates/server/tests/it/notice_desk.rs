//! What tests of notices ask nodes and dispatchers, whatever carries the notices.

use crate::support::{Running, client, json};
use crate::sync::write;
use headwater_server::rules::AccessRule;
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::until;
use std::time::Duration;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A figure of `/metrics`; 0 when it is not there.
pub(crate) fn metric(server: &Running, name: &str) -> u64 {
    let mut answer = client().get(server.url("/metrics")).call().unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    let wanted = format!("headwater_notices_{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&wanted));
    line.map_or(0, |figure| figure.trim().parse().unwrap())
}

pub(crate) fn notices_received(desk: &Running, what: &str) -> u64 {
    metric(desk, &format!("heard_total{{what=\"{what}\"}}"))
}

pub(crate) fn queries_sent(desk: &Running, why: &str) -> u64 {
    metric(desk, &format!("asked_total{{why=\"{why}\"}}"))
}

/// Questions of a dispatcher to its nodes, for whatever reason.
pub(crate) fn all_queries_sent(desk: &Running) -> u64 {
    let all = ["unknown", "news", "gone", "gap", "check", "waiting"];
    all.into_iter().map(|why| queries_sent(desk, why)).sum()
}

pub(crate) fn until_linked(desk: &Running, is_linked: bool) {
    until("the link is told", || {
        let mut answer = client().get(desk.url("/api/v1/sync")).call().unwrap();
        let told = json(&mut answer)["notices"].clone();
        assert_ne!(told["bus"], "hub");
        told["has_link"] == is_linked
    });
}

pub(crate) fn stream(number: usize) -> String {
    format!("pump,id=s{number}")
}

pub(crate) fn change(node: &Running, number: usize) {
    write(
        node,
        &format!("{} flow=1 1700000000000000000\n", stream(number)),
    );
}

/// Whether a dispatcher knows who has a stream.
pub(crate) fn has_stream(desk: &Running, number: usize) -> bool {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .into();
    let name = stream(number).replace('=', "%3D");
    let url = desk.url(&format!("/api/v1/scan?stream={name}"));
    let answer = agent.get(url).call().unwrap();
    let place = answer.headers().get("x-headwater-place");
    place.is_some_and(|place| place == "base")
}

/// Changes the node until the dispatcher has asked because of a notice: from then on it goes by
/// them. The numbers below the one that comes back are used.
pub(crate) fn until_news(node: &Running, desk: &Running, mut number: usize) -> usize {
    let before = queries_sent(desk, "news");
    until("news is heard and asked for", || {
        change(node, number);
        number += 1;
        queries_sent(desk, "news") > before
    });
    number
}

pub(crate) fn identity(node: &Running) -> (u64, u64, u64) {
    let mut answer = client().get(node.url("/api/v1/held")).call().unwrap();
    assert!(answer.headers().contains_key("x-headwater-notice-key"));
    let bytes = answer.body_mut().read_to_vec().unwrap();
    let held = headwater_protocol::dispatch::decode(&bytes).unwrap();
    let database = held.database;
    (database.identity, database.incarnation, held.epoch)
}

pub(crate) fn token(file: &TokenFile, name: &str, rules: &[&str]) {
    let rules = rules.iter().map(|rule| rule.parse::<AccessRule>().unwrap());
    let new = NewToken {
        name: name.to_owned(),
        rules: rules.collect(),
        expires: None,
    };
    file.create(new).unwrap();
}
