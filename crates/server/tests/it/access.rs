//! A table of tokens and routes: what each rule lets through, on every route there is.
//!
//! A new route fails here until it has a line that says how its answers about streams show what one may not see.

use crate::support::{Running, client, json};
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_server::{Endpoint, Needs, endpoints};
use serde_json::Value;
use std::collections::BTreeMap;

/// Makes tokens in the file of a database that no server has open yet.
fn tokens(file: &TokenFile) -> BTreeMap<&'static str, String> {
    let rules: [(&str, &[&str]); 9] = [
        ("nothing", &[]),
        ("read all", &["read *"]),
        ("write all", &["write *"]),
        ("manage all", &["manage *"]),
        ("read seen", &["read t,id=seen"]),
        ("write seen", &["write t,id=seen"]),
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
            made = Some(tokens(&TokenFile::of_database(settings.db())));
        });
        Scene {
            server,
            client: client(),
            tokens: made.unwrap(),
        }
    }

    fn ask(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
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
            answer.body_mut().read_to_string().unwrap()
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
        let ask = |token| scene.ask(method, &path, token, "");
        // Whom each need lets through; everyone else has a valid token that allows something else.
        let (let_in, kept_out): (&[&str], &[&str]) = match endpoint.needs {
            Needs::Nothing => {
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
            let kept_out = status == 401 || (status == 403 && endpoint.needs != Needs::Write);
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
    assert_eq!(json(&mut answer)["code"], "E_TOKEN");
}
