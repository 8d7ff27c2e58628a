//! What clients of OpenTSDB send and ask: points, series put together, lists of names.

use crate::read_routes::{get, json as ask};
use crate::support::{Running, client};
use headwater::{StreamName, Value as Stored};
use serde_json::{Value, json};
use std::io::Write;

/// Status and body of an answer to a body of JSON.
fn post(server: &Running, path: &str, body: &[u8], packed: bool) -> (u16, Value) {
    let mut request = client()
        .post(server.url(path))
        .content_type("application/json");
    if packed {
        request = request.header("Content-Encoding", "gzip");
    }
    let mut answer = request.send(body).unwrap();
    let status = answer.status().as_u16();
    let text = answer.body_mut().read_to_string().unwrap();
    (status, serde_json::from_str(&text).unwrap_or_default())
}

fn put(server: &Running, points: &Value) {
    let (status, body) = post(server, "/api/put", points.to_string().as_bytes(), false);
    assert_eq!(status, 204, "{body}");
}

fn point(metric: &str, time: i64, value: impl Into<Value>, tags: Value) -> Value {
    json!({"metric": metric, "timestamp": time, "value": value.into(), "tags": tags})
}

const T: i64 = 1_700_000_000;

/// Two hosts in one place, one in another; the second one's points lie between those of the first.
fn load() -> Running {
    let server = Running::start();
    let mut points = Vec::new();
    for (host, dc, times) in [
        ("a", "oslo", [0, 10, 20, 30]),
        ("b", "oslo", [0, 5, 15, 30]),
        ("c", "bonn", [0, 10, 20, 30]),
    ] {
        for time in times {
            let base = if host == "c" { 100 } else { 0 };
            points.push(point(
                "load",
                T + time,
                base + time,
                json!({"host": host, "dc": dc}),
            ));
        }
    }
    put(&server, &json!(points));
    server
}

#[test]
fn points_are_stored_or_told_about() {
    let server = Running::start();
    let one = point("sys.load", T, 0.5, json!({"host": "a"}));
    let single = post(&server, "/api/put", one.to_string().as_bytes(), false);
    assert_eq!(single, (204, Value::Null));
    let several = json!([
        point("sys.load", T * 1000 + 5, "1.5", json!({"host": "a"})),
        point(
            "sys.procs",
            T,
            9_007_199_254_740_993i64,
            json!({"host": "a"})
        ),
    ]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(several.to_string().as_bytes()).unwrap();
    let packed = post(&server, "/api/put?summary", &gzip.finish().unwrap(), true);
    assert_eq!(packed, (200, json!({"success": 2, "failed": 0})));
    let details = post(&server, "/api/put?details&sync", b"[]", false);
    assert_eq!(
        details,
        (200, json!({"success": 0, "failed": 0, "errors": []}))
    );

    let mixed = json!([
        point("sys.load", T + 1, 2.5, json!({"host": "a"})),
        point("sys.load", T + 2, "much", json!({"host": "a"})),
        {"metric": "sys.load"},
    ]);
    let (status, body) = post(
        &server,
        "/api/put?details",
        mixed.to_string().as_bytes(),
        false,
    );
    assert_eq!(status, 400, "{body}");
    assert_eq!(
        (&body["success"], &body["failed"], &body["code"]),
        (&json!(1), &json!(2), &json!("E_PARTIAL"))
    );
    assert_eq!(body["errors"][0]["datapoint"]["value"], "much", "{body}");
    let text = body["errors"][0]["error"].as_str().unwrap();
    assert!(
        text.starts_with("E_PARSE: expected a finite number"),
        "{text}"
    );
    assert_eq!(body["error"]["code"], 400, "{body}");
    let (status, body) = post(&server, "/api/put", mixed.to_string().as_bytes(), false);
    assert!(status == 400 && body["errors"].is_null(), "{body}");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("first: point 2: E_PARSE"), "{message}");

    // What the engine refuses is told with the point, too.
    let future = json!([
        point("sys.load", T, 7, json!({"host": "b"})),
        point("sys.load", 4_000_000_000i64, 1, json!({"host": "b"})),
    ]);
    let (status, body) = post(
        &server,
        "/api/put?details",
        future.to_string().as_bytes(),
        false,
    );
    assert_eq!(status, 400, "{body}");
    assert_eq!(
        body["errors"][0]["datapoint"]["timestamp"], 4_000_000_000i64,
        "{body}"
    );
    for (bad, code) in [("", "E_PARSE"), ("5", "E_PARSE"), ("[1,", "E_PARSE")] {
        let (status, body) = post(&server, "/api/put", bad.as_bytes(), false);
        assert_eq!(
            (status, body["code"].as_str()),
            (400, Some(code)),
            "{bad}: {body}"
        );
        assert_eq!(body["error"]["code"], 400, "{body}");
    }

    server.stopped(|db| {
        let last = |table: &str, host: &str| {
            let stream = StreamName::new(table, [("host", host)]);
            let last = db.snapshot().unwrap().last(&stream).unwrap();
            last.into_iter()
                .map(|l| (l.field, l.time.as_nanos(), l.value))
                .next()
                .unwrap()
        };
        let value = || "value".to_owned();
        let second = 1_000_000_000;
        assert_eq!(
            last("sys.load", "a"),
            (value(), (T + 1) * second, Stored::F64(2.5))
        );
        assert_eq!(
            last("sys.load", "b"),
            (value(), T * second, Stored::F64(7.0))
        );
        assert_eq!(
            last("sys.procs", "a"),
            (value(), T * second, Stored::I64(9_007_199_254_740_993))
        );
    });
}

#[test]
fn series_are_put_together() {
    let server = load();
    let range = format!("start={T}&end={}", T + 60);
    for (m, expected) in [
        // Integers add up to integers; what lies between points counts where the aggregator
        // interpolates.
        (
            "sum:load%7Bdc=oslo%7D",
            json!([
                [0, 0],
                [5, 10.0],
                [10, 20.0],
                [15, 30.0],
                [20, 40.0],
                [30, 60]
            ]),
        ),
        (
            "zimsum:load%7Bdc=oslo%7D",
            json!([[0, 0], [5, 5], [10, 10], [15, 15], [20, 20], [30, 60]]),
        ),
        (
            "count:load%7Bdc=oslo%7D",
            json!([[0, 2], [5, 1], [10, 1], [15, 1], [20, 1], [30, 2]]),
        ),
        (
            "max:load",
            json!([
                [0, 100],
                [5, 105.0],
                [10, 110.0],
                [15, 115.0],
                [20, 120.0],
                [30, 130]
            ]),
        ),
        (
            "mimmin:load%7B%7D%7Bhost=a%7Cc%7D",
            json!([[0, 0], [10, 10], [20, 20], [30, 30]]),
        ),
        (
            "avg:20s-sum:load%7Bdc=oslo%7D",
            json!([[0, 15.0], [20, 40.0]]),
        ),
        ("sum:20s-count:load", json!([[0, 7], [20, 5]])),
        (
            "sum:20s-avg:load%7Bhost=a%7D",
            json!([[0, 5.0], [20, 25.0]]),
        ),
        ("sum:20s-last:load%7Bhost=b%7D", json!([[0, 15], [20, 30]])),
        ("sum:0all-max:load%7Bhost=b%7D", json!([[0, 30]])),
        (
            "sum:20s-sum-zero:load%7Bhost=a%7D",
            json!([[0, 10], [20, 50], [40, 0], [60, 0]]),
        ),
        (
            "sum:20s-sum-null:load%7Bdc=oslo%7D",
            json!([[0, 30], [20, 80], [40, null], [60, null]]),
        ),
        (
            "sum:20s-sum-nan:load%7Bhost=b%7D",
            json!([[0, 20], [20, 30], [40, "NaN"], [60, "NaN"]]),
        ),
        (
            "sum:rate:load%7Bhost=a%7D",
            json!([[10, 1.0], [20, 1.0], [30, 1.0]]),
        ),
        (
            "dev:load%7B%7D%7Bhost=a%7Cc%7D",
            json!([[0, 50.0], [10, 50.0], [20, 50.0], [30, 50.0]]),
        ),
    ] {
        let found = ask(&server, &format!("/api/query?{range}&arrays&m={m}"));
        let points = found[0]["dps"]
            .as_array()
            .unwrap_or_else(|| panic!("{m}: {found}"));
        let points: Vec<Value> = points
            .iter()
            .map(|p| json!([p[0].as_i64().unwrap() - T, p[1]]))
            .collect();
        assert_eq!(json!(points), expected, "{m}");
        assert_eq!(found.as_array().unwrap().len(), 1, "{m}: {found}");
    }
}

#[test]
fn series_are_chosen_and_grouped() {
    let server = load();
    let query = |query: Value| {
        let body = json!({"start": T, "end": T + 5, "queries": [query]});
        let (status, body) = post(&server, "/api/query", body.to_string().as_bytes(), false);
        assert_eq!(status, 200, "{body}");
        body
    };
    let found = query(json!({"metric": "load", "aggregator": "sum", "tags": {"dc": "*"}}));
    assert_eq!(
        found,
        json!([
            {"metric": "load", "tags": {"dc": "bonn", "host": "c"}, "aggregateTags": [], "dps": {T.to_string(): 100}},
            {"metric": "load", "tags": {"dc": "oslo"}, "aggregateTags": ["host"], "dps": {T.to_string(): 0, (T + 5).to_string(): 5}},
        ])
    );
    let hosts = |filters: Value| {
        let found = query(json!({"metric": "load", "aggregator": "none", "filters": filters}));
        let found = found.as_array().unwrap().iter();
        let hosts: Vec<String> = found
            .map(|s| s["tags"]["host"].as_str().unwrap().to_owned())
            .collect();
        hosts.concat()
    };
    let filter = |kind: &str, tag: &str, filter: &str| json!([{"type": kind, "tagk": tag, "filter": filter, "groupBy": false}]);
    for (kind, tag, text, expected) in [
        ("literal_or", "host", "a|c|z", "ca"),
        ("iliteral_or", "dc", "OSLO", "ab"),
        ("not_literal_or", "host", "a", "cb"),
        ("not_iliteral_or", "host", "A|B", "c"),
        ("wildcard", "dc", "o*o", "ab"),
        ("iwildcard", "dc", "B*", "c"),
        ("regexp", "dc", "^(os|x)", "ab"),
        ("not_key", "dc", "", ""),
        ("not_key", "rack", "", "cab"),
        ("literal_or", "rack", "1", ""),
    ] {
        let found = hosts(filter(kind, tag, text));
        assert_eq!(found, expected, "{kind} {tag} {text}");
    }
    let explicit =
        json!({"metric": "load", "aggregator": "sum", "explicitTags": true, "tags": {"host": "a"}});
    assert_eq!(query(explicit), json!([]));
}

/// What the binding of YCSB-TS asks.
#[test]
fn ycsb_can_read_and_scan() {
    let server = load();
    let read = json!({"start": T * 1000 + 10_000, "end": T * 1000 + 10_001, "msResolution": true, "queries": [
        {"metric": "load", "aggregator": "min", "filters": [{"type": "literal_or", "tagk": "host", "groupBy": false, "filter": "a|b"}]}]});
    let (_, body) = post(&server, "/api/query", read.to_string().as_bytes(), false);
    assert_eq!(body[0]["dps"], json!({(T * 1000 + 10_000).to_string(): 10}));
    let avg = json!({"start": T * 1000, "end": (T + 500) * 1000, "msResolution": true, "queries": [
        {"metric": "load", "aggregator": "avg", "downsample": "500s-avg", "filters": [{"type": "literal_or", "tagk": "dc", "groupBy": false, "filter": "bonn"}]}]});
    let (_, body) = post(&server, "/api/query", avg.to_string().as_bytes(), false);
    // 500 s counted from 1970 begin at T.
    assert_eq!(body[0]["dps"], json!({(T * 1000).to_string(): 115.0}));
    let nothing =
        json!({"start": 5, "end": 6, "queries": [{"metric": "load", "aggregator": "sum"}]});
    assert_eq!(
        post(&server, "/api/query", nothing.to_string().as_bytes(), false),
        (200, json!([]))
    );
}

#[test]
fn names_are_suggested() {
    let server = load();
    put(&server, &point("other", T, 1, json!({"room": "1"})));
    // A table without numbers under `value` is no metric.
    let (status, _) = crate::read_routes::write(
        &server,
        "door,room=2 open=true 1\ntext,room=3 value=\"x\" 1",
    );
    assert_eq!(status, 204);
    for (path, expected) in [
        ("/api/suggest?type=metrics", json!(["load", "other"])),
        ("/api/suggest?type=metrics&q=lo", json!(["load"])),
        ("/api/suggest?type=tagk", json!(["dc", "host", "room"])),
        ("/api/suggest?type=tagv&max=3", json!(["1", "a", "b"])),
        ("/api/suggest?type=tagv&q=o", json!(["oslo"])),
    ] {
        assert_eq!(ask(&server, path), expected, "{path}");
    }
    let found = ask(&server, "/api/search/lookup?m=load%7Bdc=oslo%7D&limit=1");
    assert_eq!(found["totalResults"], 2);
    assert_eq!(
        found["results"],
        json!([{"metric": "load", "tags": {"dc": "oslo", "host": "a"}}])
    );
    let names = ask(&server, "/api/aggregators");
    assert!(
        names.as_array().unwrap().contains(&json!("zimsum")),
        "{names}"
    );
    assert_eq!(ask(&server, "/api/version")["version"], "2.3.0");
    assert!(ask(&server, "/api/config/filters")["regexp"]["description"].is_string());
}

/// Small steps over a long range cost as many intervals as have points.
#[test]
fn empty_steps_of_a_long_range_are_free() {
    let server = Running::start();
    let points: Vec<Value> = (0..100)
        .map(|n| point("few", T + n * 31, n, json!({"host": "a"})))
        .collect();
    put(&server, &json!(points));
    let question = |every: &str| {
        json!({
            "start": T * 1_000, "end": (T + 3_100) * 1_000, "msResolution": true,
            "queries": [{"metric": "few", "aggregator": "min", "downsample": every, "filters": []}],
        })
    };
    let ask = |every: &str| {
        let body = question(every).to_string();
        post(&server, "/api/query", body.as_bytes(), false)
    };
    let (status, body) = ask("1ms-min");
    assert_eq!(status, 200, "{body}");
    let found = body[0]["dps"].as_object().unwrap();
    assert_eq!(found.len(), 100);
    assert_eq!(found[&((T + 62) * 1_000).to_string()], json!(2));
    let (status, _) = ask("1ms-first");
    assert_eq!(status, 200);
    // All of them would have to be told.
    let (status, body) = ask("1ms-min-zero");
    assert_eq!(status, 400, "{body}");
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("intervals"),
        "{body}"
    );
}

#[test]
fn bad_questions_are_told() {
    let server = load();
    for (path, part) in [
        ("/api/query", "Missing the start time"),
        ("/api/query?start=1h-ago", "Missing queries"),
        (
            "/api/query?start=1h-ago&m=sum:nothing",
            "No such name for 'metrics': 'nothing'",
        ),
        (
            "/api/query?start=1h-ago&m=p99:load",
            "No such aggregation function",
        ),
        ("/api/query?start=soon&m=sum:load", "`soon` is not a time"),
        ("/api/query?start=1&m=sum:1s-sum-zero:load", "intervals"),
        (
            "/api/query?start=1&m=sum:load%7Bhost=regexp(()%7D",
            "regular expression",
        ),
        ("/api/suggest", "`type` is missing"),
        ("/api/suggest?type=x", "metrics, tagk or tagv"),
        ("/api/suggest?type=tagk&max=x", "integer"),
        ("/api/search/lookup", "`m` is missing"),
    ] {
        let (status, body) = get(&server, path);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 400, "{path}: {body}");
        assert_eq!(body["error"]["code"], 400, "{body}");
        assert_eq!(body["error"]["message"], body["message"], "{body}");
        assert!(
            body["message"].as_str().unwrap().contains(part),
            "{path}: {body}"
        );
    }
    let (status, body) = post(&server, "/api/query", b"{}", false);
    assert!(
        status == 400 && body["message"].as_str().unwrap().contains("start"),
        "{body}"
    );
}
