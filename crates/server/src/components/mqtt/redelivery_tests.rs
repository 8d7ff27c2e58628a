//! Messages of a broker for a database that cannot store: no message is acknowledged, and all are
//! sent again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use super::BrokerMetrics;
use crate::serve::Server;
use crate::settings::{Settings, Subscription};
use headwater::{Database, Options, StreamName, Value};
use headwater_testing::{Broker, has_broker, until};
use headwater_wire::message::{MessageRules, PayloadForm, TopicPattern};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

fn settings(dir: &Path, port: u16) -> Settings {
    let mut settings = Settings::new(dir.join("db"));
    settings.http_addr.set_port(0);
    settings.mqtt.login.broker = Some(crate::settings::Broker {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port,
    });
    settings.mqtt.login.client_id = "headwater-test".to_owned();
    settings.mqtt.login.keep_alive = Duration::from_secs(5);
    let topic = TopicPattern::parse("v/{field}").unwrap();
    let mut rules = MessageRules::new(topic, PayloadForm::Value);
    rules.table = Some("t".to_owned());
    settings.mqtt.subscriptions = vec![Subscription::new(rules)];
    settings
}

/// Runs a server, runs `call` with its database and its metrics, and stops the server.
fn with_server(settings: Settings, call: impl FnOnce(&Database, &BrokerMetrics)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(Server::start(settings)).unwrap();
    let app = server.app().unwrap();
    let (db, figures) = (app.opened_db.clone(), Arc::clone(&app.broker().stats));
    let (stop, stopped) = watch::channel(false);
    let run = runtime.spawn(server.run(stopped));
    call(&db, &figures);
    stop.send_replace(true);
    // The result of closing a closed database is not part of this test.
    let _ = runtime.block_on(run).unwrap();
}

#[test]
fn what_a_closed_database_cannot_store_is_not_acknowledged_and_comes_again() {
    if !has_broker() {
        return;
    }
    let broker = Broker::start();
    let dir = tempfile::tempdir().unwrap();
    with_server(settings(dir.path(), broker.port), |db, figures| {
        until("the subscription is there", || {
            broker.publish("v/first", "1");
            figures.acknowledged.get() > 0
        });
        // More copies of the first message may be in transit: after the different message there are
        // none.
        broker.publish("v/first", "9");
        until("the last of them is stored", || {
            let stream = StreamName::new("t", [("", ""); 0]);
            let last = db.snapshot().unwrap().last(&stream).unwrap();
            last.iter()
                .any(|l| l.field == "first" && l.value == Value::F64(9.0))
        });
        until("all is acknowledged", || {
            figures.acknowledged.get() == figures.received.get()
        });
        let before = figures.acknowledged.get();
        db.close().unwrap();
        broker.publish("v/second", "2");
        until("storing is tried again", || figures.retries.get() >= 3);
        assert_eq!(figures.acknowledged.get(), before);
        assert_eq!(figures.waiting.get(), 1);
    });
    with_server(settings(dir.path(), broker.port), |_, figures| {
        until("it comes again", || figures.acknowledged.get() == 1);
    });
    let db = Database::open(Options::new(dir.path().join("db"))).unwrap();
    let stream = StreamName::new("t", [("", ""); 0]);
    let last = db.snapshot().unwrap().last(&stream).unwrap();
    let second = last.iter().find(|l| l.field == "second").unwrap();
    assert_eq!(second.value, Value::F64(2.0));
}
