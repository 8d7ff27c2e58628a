//! Line protocol, points of OpenTSDB, and remote write.

use super::state_of;
use crate::prometheus::{packed, series};
use crate::support::{Running, client, json};
use headwater_testing::doors::{Cell, FrontEnd, Need, Outcome, Request, State, lines, walk};
use serde_json::{Value, json};

type Response = ureq::http::Response<ureq::Body>;

/// Where the columns of this file come in.
pub(super) const PATHS: [&str; 6] = [
    "/write",
    "/write?accept_partial=false",
    "/api/v2/write?bucket=main",
    "/api/v3/write_lp?db=main",
    "/api/put",
    "/api/v1/prom/write",
];

/// Rows that replaced others of the request, as the answer says.
fn replaced(answer: &Response) -> u64 {
    let count = answer.headers().get("x-headwater-replaced");
    count.map_or(0, |count| count.to_str().unwrap().parse().unwrap())
}

/// What an answer with refusals by code, or without a body, says.
fn outcome_of(answer: &mut Response) -> Outcome {
    let replaced = Some(replaced(answer));
    let told = match answer.status().as_u16() {
        204 => json!({"rejected": 0, "rejected_by_code": {}}),
        _ => json(answer),
    };
    let codes = told["rejected_by_code"].as_object().unwrap().iter();
    let codes = codes.flat_map(|(code, count)| {
        let count = usize::try_from(count.as_u64().unwrap()).unwrap();
        std::iter::repeat_n(code.clone(), count)
    });
    Outcome {
        refused: usize::try_from(told["rejected"].as_u64().unwrap()).unwrap(),
        codes: Some(codes.collect()),
        replaced,
    }
}

struct Lines {
    server: Running,
    path: &'static str,
}

impl FrontEnd for Lines {
    fn name(&self) -> &'static str {
        self.path
    }

    fn unmet_needs(&self) -> &'static [Need] {
        &[]
    }

    fn is_whole(&self) -> bool {
        self.path.contains("accept_partial=false")
    }

    fn send(&mut self, request: &Request) -> Outcome {
        let body = lines(request);
        let mut answer = client()
            .post(self.server.url(self.path))
            .send(body.as_bytes())
            .unwrap();
        outcome_of(&mut answer)
    }

    fn stored(self: Box<Self>) -> State {
        state_of(self.server)
    }
}

#[test]
fn lines_are_taken_alike_on_every_route() {
    for path in &PATHS[..4] {
        let server = Running::start();
        let walked = walk(Box::new(Lines { server, path }));
        assert!(walked >= 23, "{path}: {walked}");
    }
}

struct Points(Running);

impl FrontEnd for Points {
    fn name(&self) -> &'static str {
        "/api/put"
    }

    fn unmet_needs(&self) -> &'static [Need] {
        &[
            Need::Unsigned,
            Need::TruthValues,
            Need::Texts,
            Need::NoTimes,
            Need::SeveralFields,
            Need::FieldCalledTime,
        ]
    }

    fn only_field(&self) -> Option<&'static str> {
        Some("value")
    }

    fn send(&mut self, request: &Request) -> Outcome {
        let points = request.rows.iter().map(|row| {
            let value = match row.fields.values().next().unwrap() {
                Cell::F64(value) => json!(value),
                Cell::I64(value) => json!(value),
                other => panic!("{other:?}"),
            };
            json!({"metric": row.table, "timestamp": row.unix_ms(), "value": value, "tags": row.tags})
        });
        let body = Value::Array(points.collect()).to_string();
        let mut answer = client()
            .post(self.0.url("/api/put?details"))
            .send(body.as_bytes())
            .unwrap();
        let replaced = Some(replaced(&answer));
        let told = json(&mut answer);
        let errors = told["errors"].as_array().unwrap().iter();
        let codes = errors.map(|error| {
            let text = error["error"].as_str().unwrap();
            text.split(':').next().unwrap().to_owned()
        });
        Outcome {
            refused: usize::try_from(told["failed"].as_u64().unwrap()).unwrap(),
            codes: Some(codes.collect()),
            replaced,
        }
    }

    fn stored(self: Box<Self>) -> State {
        state_of(self.0)
    }
}

#[test]
fn points_of_opentsdb_are_taken_as_every_door_does() {
    let walked = walk(Box::new(Points(Running::start())));
    assert!(walked >= 14, "{walked}");
}

struct Samples(Running);

impl FrontEnd for Samples {
    fn name(&self) -> &'static str {
        "/api/v1/prom/write"
    }

    fn unmet_needs(&self) -> &'static [Need] {
        &[
            Need::Integers,
            Need::Unsigned,
            Need::TruthValues,
            Need::Texts,
            Need::NoTimes,
            Need::SeveralFields,
            Need::FieldCalledTime,
        ]
    }

    fn only_field(&self) -> Option<&'static str> {
        Some("value")
    }

    fn send(&mut self, request: &Request) -> Outcome {
        let mut message = Vec::new();
        for row in &request.rows {
            let mut labels = vec![("__name__", row.table.as_str())];
            labels.extend(row.tags.iter().map(|(k, v)| (k.as_str(), v.as_str())));
            let Some(Cell::F64(value)) = row.fields.values().next() else {
                panic!("{row:?}");
            };
            let time = u64::try_from(row.unix_ms().unwrap()).unwrap();
            message.extend(series(&labels, *value, time));
        }
        let mut answer = client()
            .post(self.0.url("/api/v1/prom/write"))
            .header("content-type", "application/x-protobuf")
            .header("content-encoding", "snappy")
            .header("x-prometheus-remote-write-version", "0.1.0")
            .send(&packed(&message)[..])
            .unwrap();
        outcome_of(&mut answer)
    }

    fn stored(self: Box<Self>) -> State {
        state_of(self.0)
    }
}

#[test]
fn samples_of_prometheus_are_taken_as_every_door_does() {
    let walked = walk(Box::new(Samples(Running::start())));
    assert!(walked >= 10, "{walked}");
}
