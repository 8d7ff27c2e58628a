//! Alive and ready.

use crate::support::{Running, client};

#[test]
fn a_server_says_that_it_is_alive_and_ready() {
    let server = Running::start();
    let client = client();
    assert_eq!(
        client.get(server.url("/ping")).call().unwrap().status(),
        204
    );
    for path in ["/health", "/-/healthy"] {
        let mut answer = client.get(server.url(path)).call().unwrap();
        let body: serde_json::Value = answer.body_mut().read_json().unwrap();
        assert_eq!(body["status"], "pass");
    }
    for path in ["/ready", "/-/ready"] {
        let mut answer = client.get(server.url(path)).call().unwrap();
        let body: serde_json::Value = answer.body_mut().read_json().unwrap();
        assert_eq!(body["status"], "ready");
    }
    assert_eq!(
        client.head(server.url("/ping")).call().unwrap().status(),
        204
    );
}
