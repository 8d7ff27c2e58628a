//! Messages of a broker, in each form of payload.

use crate::mqtt::{CONNECTED, MESSAGES_DONE, metric, start, until_figure};
use crate::support::{Running, client};
use headwater_testing::doors::{
    Cell, FrontEnd, Need, Outcome, Request, Row, State, contents_of, lines, walk,
};
use headwater_testing::{Broker, has_broker, until};
use headwater_wire::message::PayloadForm;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tempfile::TempDir;

const SUBSCRIPTIONS: &str = r#"
[[mqtt.subscription]]
topic = "value/{table}/{id}/{field}"
payload = "value"

[[mqtt.subscription]]
topic = "json/{table}"
payload = "json"
time = "ts"
time_format = "ms"
tag_members = ["id"]

[[mqtt.subscription]]
topic = "now/{table}"
payload = "json"
tag_members = ["id"]

[[mqtt.subscription]]
topic = "lines"
payload = "line-protocol"

[[mqtt.subscription]]
topic = "ready/{field}"
payload = "value"
table = "ready"
"#;

struct Messages {
    form: PayloadForm,
    broker: Broker,
    server: Running,
    dir: TempDir,
}

impl Messages {
    fn new(form: PayloadForm) -> Messages {
        let broker = Broker::start();
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "[mqtt]\nbroker = \"mqtt://127.0.0.1:{}\"\nclient_id = \"doors\"\n{SUBSCRIPTIONS}",
            broker.port
        );
        let server = start(dir.path(), &text);
        until_figure(&server, CONNECTED, 1.0);
        // Subscribed when the first message is stored.
        until("a message comes in", || {
            broker.publish("ready/v", "1");
            metric(&server, MESSAGES_DONE) >= 1.0
        });
        // Those sent meanwhile are done, too.
        broker.publish("ready/last", "1");
        until("the last one is stored", || {
            let url = server.url("/api/v1/aggregate?channel=ready.last&functions=count");
            client().get(url).call().unwrap().status() == 200
        });
        Messages {
            form,
            broker,
            server,
            dir,
        }
    }

    /// Counts of refused rows by code.
    fn refused(&self) -> BTreeMap<String, usize> {
        let mut answer = client().get(self.server.url("/metrics")).call().unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        let of = |line: &str| {
            let rest = line.strip_prefix("headwater_mqtt_refused_total{code=\"")?;
            let (code, count) = rest.split_once("\"} ")?;
            let count: f64 = count.parse().ok()?;
            Some((code.to_owned(), count as usize))
        };
        text.lines().filter_map(of).collect()
    }

    /// The messages of a request: topic and payload.
    fn messages(&self, request: &Request) -> Vec<(String, String)> {
        match self.form {
            PayloadForm::LineProtocol => {
                vec![("lines".to_owned(), lines(request))]
            }
            PayloadForm::Value => {
                let message = |row: &Row| {
                    let (field, cell) = row.fields.first_key_value().unwrap();
                    let payload = match cell {
                        Cell::F64(value) => format!("{value:e}"),
                        Cell::Bool(value) => value.to_string(),
                        Cell::Text(value) => Value::from(value.as_str()).to_string(),
                        other => panic!("{other:?}"),
                    };
                    let topic = format!("value/{}/{}/{field}", row.table, row.tags["id"]);
                    (topic, payload)
                };
                request.rows.iter().map(message).collect()
            }
            PayloadForm::Json => {
                // Of each table a message, with the rows in their order.
                let mut by_table: BTreeMap<String, Vec<Value>> = BTreeMap::new();
                for row in &request.rows {
                    let mut members = Map::new();
                    for (name, value) in &row.tags {
                        members.insert(name.clone(), value.as_str().into());
                    }
                    for (name, cell) in &row.fields {
                        let value = match cell {
                            Cell::F64(value) => Value::from(*value),
                            Cell::Bool(value) => Value::from(*value),
                            Cell::Text(value) => Value::from(value.as_str()),
                            other => panic!("{other:?}"),
                        };
                        members.insert(name.clone(), value);
                    }
                    let route = match row.unix_ms() {
                        Some(time) => {
                            members.insert("ts".to_owned(), time.into());
                            "json"
                        }
                        None => "now",
                    };
                    let topic = format!("{route}/{}", row.table);
                    by_table.entry(topic).or_default().push(members.into());
                }
                let messages = by_table.into_iter();
                messages
                    .map(|(topic, rows)| (topic, Value::Array(rows).to_string()))
                    .collect()
            }
        }
    }
}

impl FrontEnd for Messages {
    fn name(&self) -> &'static str {
        match self.form {
            PayloadForm::LineProtocol => "MQTT, line protocol",
            PayloadForm::Json => "MQTT, JSON",
            PayloadForm::Value => "MQTT, bare values",
        }
    }

    fn unmet_needs(&self) -> &'static [Need] {
        match self.form {
            PayloadForm::LineProtocol => &[],
            // Numbers are floats, unless the settings say otherwise.
            PayloadForm::Json => &[Need::Integers, Need::Unsigned, Need::SeveralTags],
            PayloadForm::Value => &[
                Need::Integers,
                Need::Unsigned,
                Need::Times,
                Need::SeveralFields,
                Need::SeveralTags,
                Need::FieldCalledTime,
            ],
        }
    }

    fn send(&mut self, request: &Request) -> Outcome {
        let before = (self.refused(), metric(&self.server, MESSAGES_DONE));
        let messages = self.messages(request);
        for (topic, payload) in &messages {
            self.broker.publish(topic, payload);
        }
        until_figure(
            &self.server,
            MESSAGES_DONE,
            before.1 + messages.len() as f64,
        );
        let mut codes = Vec::new();
        for (code, count) in self.refused() {
            let more = count - before.0.get(&code).copied().unwrap_or(0);
            codes.extend(std::iter::repeat_n(code, more));
        }
        Outcome {
            refused: codes.len(),
            codes: Some(codes),
            replaced: None,
        }
    }

    fn stored(self: Box<Self>) -> State {
        drop(self.server);
        let mut contents = contents_of(&self.dir.path().join("db"));
        assert!(contents.remove("ready").is_some());
        contents
    }
}

#[test]
fn messages_of_every_form_are_taken_as_every_door_does() {
    if !has_broker() {
        return;
    }
    let forms = [
        (PayloadForm::LineProtocol, 23),
        (PayloadForm::Json, 17),
        (PayloadForm::Value, 8),
    ];
    for (form, least) in forms {
        let walked = walk(Box::new(Messages::new(form)));
        assert!(walked >= least, "{form:?}: {walked}");
    }
}
