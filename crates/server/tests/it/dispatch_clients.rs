//! Clients of a dispatcher that break off, browsers, and edges that are away.

use crate::dispatch::{dispatcher, dispatcher_in};
use crate::support::{Running, client, json};
use crate::sync::{cloud, invite, post_sync, summaries_of_an_hour, write};
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::until;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

const FINE: &str = "/tiles/pump,id%3Da.flow/0.3320313.json";
const BROWSER: [(&str, &str); 2] = [("user-agent", "Mozilla/5.0"), ("sec-fetch-mode", "cors")];

/// Status, address of a redirect, and body of an answer.
fn get(url: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .into();
    let mut request = agent.get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut answer = request.call().unwrap();
    let location = answer.headers().get("location");
    let location = location.map(|to| to.to_str().unwrap().to_owned());
    let status = answer.status().as_u16();
    let body = answer.body_mut().read_to_string().unwrap();
    (status, location.unwrap_or_default(), body)
}

fn is_live(desk: &Running) -> bool {
    let told = json(&mut client().get(desk.url("/api/v1/sync")).call().unwrap());
    told["nodes"][0]["is_live"] == true && told["nodes"][0]["error"].is_null()
}

/// Sends the beginning of a request to be relayed, and breaks off. Returns the answer.
fn broken_off(desk: &Running, path: &str) -> String {
    let mut stream = TcpStream::connect(desk.addr).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nX-Headwater-Relay: true\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nq=SELECT+1",
        desk.addr
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The beginning is at the node.
    std::thread::sleep(std::time::Duration::from_millis(200));
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn a_client_that_breaks_off_does_not_make_a_node_lost() {
    let cloud = cloud();
    write(&cloud, "pump,id=a flow=1 1700000000000000000");
    let desk = dispatcher(&[&cloud]);
    for path in ["/query?db=x", "/api/v1/sql"] {
        let text = broken_off(&desk, path);
        assert!(
            text.is_empty() || (text.starts_with("HTTP/1.1 400") && text.contains("E_BODY")),
            "{path}: {text}"
        );
        for _ in 0..20 {
            assert!(is_live(&desk), "{path}: the node is taken to be dead");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    let (status, _, text) = get(&desk.url("/api/v1/count?relay=true"), &[]);
    assert_eq!(status, 200, "{text}");
}

#[test]
fn a_browser_is_sent_to_an_edge_that_lets_browsers_in() {
    let (cloud, edge) = summaries_of_an_hour();
    let desk = dispatcher(&[&cloud]);
    let address = |for_browsers: bool| {
        let address = json!({"url": edge.url(""), "for_browsers": for_browsers});
        let op = json!({"op": "address", "edge": "e", "address": address});
        assert_eq!(post_sync(&cloud, &op).0, 200);
    };
    address(true);
    let fine = desk.url(FINE);
    // A program is asked first: an answer that is relayed would fetch the tile to the node.
    until("the address is known", || {
        get(&fine, &[]).1.starts_with(&edge.url("/"))
    });
    let (status, location, _) = get(&fine, &BROWSER);
    assert!(
        status == 307 && location.starts_with(&edge.url("/")),
        "{location}"
    );
    assert_eq!(get(&location, &BROWSER).0, 200);
    // Where it says so, or a node answers, it has the answer itself.
    assert_eq!(get(&format!("{fine}?relay=true"), &BROWSER).0, 200);
    assert_eq!(get(&desk.url("/api/v1/count"), &BROWSER).0, 200);
    address(false);
    until("browsers are not sent there any more", || {
        get(&fine, &BROWSER).0 == 200
    });
    assert_eq!(get(&fine, &[]).0, 307);
}

#[test]
fn nobody_is_sent_to_an_edge_that_is_away() {
    let (cloud, edge) = summaries_of_an_hour();
    let desk = dispatcher(&[&cloud]);
    let address = json!({"op": "address", "edge": "e", "address": {"url": edge.url("")}});
    assert_eq!(post_sync(&cloud, &address).0, 200);
    let fine = desk.url(FINE);
    until("the address is known", || {
        get(&fine, &[]).1.starts_with(&edge.url("/"))
    });
    drop(edge);
    // It is at a node that the data is said to be elsewhere.
    until("it is known to be away", || {
        get(&fine, &[]).1.starts_with(&cloud.url("/"))
    });
    let (status, _, text) = get(&fine, &BROWSER);
    assert!(status == 503 && text.contains("E_ELSEWHERE"), "{text}");
    let (status, _, text) = get(&format!("{fine}?at=edge"), &[]);
    assert!(status == 503 && text.contains("E_UNREACHABLE"), "{text}");
}

fn metrics(server: &Running, token: &str) -> String {
    let bearer = format!("Bearer {token}");
    let (status, _, text) = get(&server.url("/metrics"), &[("authorization", &bearer)]);
    assert_eq!(status, 200, "{text}");
    text
}

#[test]
fn names_of_nodes_are_in_metrics_only_for_tokens_that_may_know_them() {
    let cloud = cloud();
    for name in ["pump-7", "pump-8"] {
        invite(&cloud, name, &json!({}));
    }
    let dir = tempfile::tempdir().unwrap();
    let token = |file: &TokenFile, name: &str, rules: &[&str]| {
        let rules = rules.iter().map(|rule| rule.parse().unwrap());
        let new = NewToken {
            name: name.to_owned(),
            rules: rules.collect(),
            expires: None,
        };
        file.create(new).unwrap()
    };
    // The dispatcher has tokens from its first start on, the cloud gets them later.
    let file = TokenFile::of_database(dir.path().join("db"));
    let own = token(&file, "own", &["read *"]);
    let all = token(&file, "all", &["manage *"]);
    let scraper = token(&file, "scraper", &[]);
    let pumps = token(&file, "pumps", &["read pumps"]);
    let path = dir.path().join("token");
    std::fs::write(&path, &own).unwrap();
    let desk = dispatcher_in(dir, &[&cloud], |s| s.dispatch.token_file = Some(path));
    std::fs::copy(file.path(), TokenFile::of_database(cloud.db()).path()).unwrap();
    until("tokens are in use", || {
        get(&cloud.url("/metrics"), &[]).0 == 401
    });
    until("both edges are counted", || {
        metrics(&cloud, &all).contains("headwater_sync_edge_connected{edge=\"pump-8\"} 0")
    });
    for token in [&own, &all] {
        assert!(metrics(&cloud, token).contains("edge=\"pump-7\""));
        assert!(metrics(&desk, token).contains("headwater_dispatch_node_live{node=\"http://"));
    }
    for token in [&scraper, &pumps] {
        let text = metrics(&cloud, token);
        assert!(
            !text.contains("pump-7") && !text.contains("edge=\""),
            "{text}"
        );
        assert!(text.contains("\nheadwater_sync_edge_connected 0"), "{text}");
        let text = metrics(&desk, token);
        assert!(!text.contains("node=\""), "{text}");
        assert!(text.contains("\nheadwater_dispatch_node_live 1"), "{text}");
    }
}
