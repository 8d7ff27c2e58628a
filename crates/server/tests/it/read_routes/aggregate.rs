//! Aggregates: whole, in bins, as CSV.

use super::{SECOND, START, cars, encoded, get, json, refused, serve};
use serde_json::json as value;

const SPEED: &str = "obd%2Ccar%3Da.speed";

#[test]
fn a_range_is_aggregated_whole() {
    let server = serve(cars);
    let all = "mean,min,max,count,first,last,stddev,sum";
    let answer = json(
        &server,
        &format!("/api/v1/aggregate?channel={SPEED}&functions={all}"),
    );
    let stddev = ((3_000f64 * 3_000.0 - 1.0) / 12.0).sqrt();
    let mut channel = answer["channels"][0].clone();
    let found = channel["stddev"][0].take().as_f64().unwrap();
    assert!((found - stddev).abs() < 1e-9 * stddev, "{found}");
    assert_eq!(
        channel,
        value!({
            "channel": "obd,car=a.speed", "every": null, "time": [START.to_string()],
            "mean": [1499.5], "min": [0.0], "max": [2999.0], "count": [3000],
            "first": [0.0], "last": [2999.0], "stddev": [null], "sum": [4498500.0],
        })
    );
    // Integers are exact.
    let path = "/api/v1/aggregate?channel=obd%2Ccar%3Da.odometer&functions=sum";
    let (_, text) = get(&server, path);
    let sum: i128 = (0..3_000).map(|s| 9_007_199_254_740_993 + s).sum();
    assert!(text.contains(&format!("\"sum\":[{sum}]")), "{text}");
}

#[test]
fn bins_have_a_width_or_a_number() {
    let server = serve(cars);
    let path = format!("/api/v1/aggregate?channel={SPEED}&every=10m&functions=count,max");
    let channel = json(&server, &path)["channels"][0].take();
    assert_eq!(channel["every"], (600 * SECOND).to_string());
    // START is 200 s before a full ten minutes.
    assert_eq!(channel["count"], value!([400, 600, 600, 600, 600, 200]));
    assert_eq!(
        channel["max"],
        value!([399.0, 999.0, 1599.0, 2199.0, 2799.0, 2999.0])
    );
    let path = format!(
        "/api/v1/aggregate?channel={SPEED}&channel=obd%2Ccar%3Dz.speed&bins=100&from={START}&to={}&functions=count",
        START + 3_000 * SECOND
    );
    let answer = json(&server, &path);
    // 30 s or a little more: 4 to 7 times a power of two, from a multiple of it on.
    let bins = &answer["channels"][0];
    assert_eq!(bins["every"], (32 * SECOND).to_string());
    let mut counts = vec![32; 94];
    counts[93] = 3_000 - 93 * 32;
    assert_eq!(bins["count"], value!(counts));
    assert_eq!(bins["time"][0], START.to_string());
    assert_eq!(bins["time"][1], (START + 32 * SECOND).to_string());
    for bins in [1, 2, 7, 99, 2_999] {
        let path = format!("/api/v1/aggregate?channel={SPEED}&bins={bins}&functions=count");
        let counts = json(&server, &path)["channels"][0]["count"].take();
        let counts = counts.as_array().unwrap();
        let sum: u64 = counts.iter().map(|c| c.as_u64().unwrap()).sum();
        assert_eq!(sum, 3_000);
        let found = counts.len();
        assert!(
            found <= bins && bins <= found * 4 / 3 + 2,
            "{bins}: {found}"
        );
    }
    assert_eq!(answer["channels"][1]["error"]["code"], "E_NOT_FOUND");
    let nothing = json(
        &server,
        &format!("/api/v1/aggregate?channel={SPEED}&to=5&every=1s"),
    );
    assert_eq!(nothing["channels"][0]["count"], value!([]));
}

#[test]
fn aggregates_come_as_csv_too() {
    let server = serve(cars);
    let door = encoded(r"door,room=k\ 1\,2.state");
    let path = format!(
        "/api/v1/aggregate?channel={SPEED}&channel={door}&functions=count,mean,last&format=csv"
    );
    let (status, text) = get(&server, &path);
    assert_eq!(status, 200);
    assert_eq!(
        text,
        format!(
            "time,channel,count,mean,last\n{START},\"obd,car=a.speed\",3000,1499.5,2999.0\n{START},\"door,room=k\\ 1\\,2.state\",4,,\"\"\"3\"\"\"\n"
        )
    );
    refused(
        &server,
        404,
        "E_NOT_FOUND",
        &["/api/v1/aggregate?channel=none.x&format=csv"],
    );
}

#[test]
fn bad_aggregates_are_refused() {
    let server = serve(cars);
    refused(
        &server,
        400,
        "E_PARAMETER",
        &[
            "/api/v1/aggregate",
            "/api/v1/aggregate?channel=a",
            &format!("/api/v1/aggregate?channel={SPEED}&every=fast"),
            &format!("/api/v1/aggregate?channel={SPEED}&every=0s"),
            &format!("/api/v1/aggregate?channel={SPEED}&bins=0"),
            &format!("/api/v1/aggregate?channel={SPEED}&bins=5&every=1h"),
            &format!("/api/v1/aggregate?channel={SPEED}&functions=median"),
            &format!("/api/v1/aggregate?channel={SPEED}&format=xml"),
        ],
    );
    refused(
        &server,
        400,
        "E_LIMIT",
        &[
            &format!("/api/v1/aggregate?channel={SPEED}&every=1us"),
            &format!("/api/v1/aggregate?channel={SPEED}&bins=1000000"),
        ],
    );
}
