//! Following channels.

use super::{SECOND, START, cars, encoded, json, refused, serve, write};
use crate::support::{Running, client};
use headwater_testing::until;
use std::io::{BufRead, BufReader};

/// Opens a live answer and gives its lines.
fn follow(server: &Running, channels: &[&str]) -> impl Iterator<Item = String> + use<> {
    let query: Vec<String> = channels
        .iter()
        .map(|c| format!("channel={}", encoded(c)))
        .collect();
    let path = format!("/api/v1/live?{}", query.join("&"));
    let answer = client().get(server.url(&path)).call().unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let lines = BufReader::new(answer.into_body().into_reader()).lines();
    lines.map_while(Result::ok).filter(|line| !line.is_empty())
}

#[test]
fn a_live_answer_begins_at_once_and_ends_with_the_server() {
    let server = serve(cars);
    let mut lines = follow(&server, &["obd,car=a.speed", "obd,car=b.gear"]);
    assert_eq!(lines.next().as_deref(), Some(": live"));
    // Others are answered meanwhile, and the stop does not wait for the asker.
    assert_eq!(json(&server, "/api/v1/streams")["total"], 3);
    drop(server);
    assert_eq!(lines.next(), None);
}

#[test]
fn bad_live_questions_are_refused() {
    let server = serve(cars);
    refused(
        &server,
        400,
        "E_PARAMETER",
        &[
            "/api/v1/live",
            "/api/v1/live?channel=a",
            "/api/v1/live?channel=a.b&from=now",
        ],
    );
    refused(
        &server,
        404,
        "E_NOT_FOUND",
        &["/api/v1/live?channel=obd%2Ccar%3Dz.speed"],
    );
    let many = "channel=a.b&".repeat(65);
    refused(&server, 400, "E_LIMIT", &[&format!("/api/v1/live?{many}")]);
}

#[test]
fn no_more_follow_than_may() {
    let server = Running::start_with(|settings| {
        settings.live_clients_max = 2;
        let db = headwater::Database::open(settings.engine.clone()).unwrap();
        cars(&db);
        db.close().unwrap();
    });
    let mut two = [(); 2].map(|()| follow(&server, &["obd,car=a.speed"]));
    for lines in &mut two {
        assert_eq!(lines.next().as_deref(), Some(": live"));
    }
    let path = "/api/v1/live?channel=obd%2Ccar%3Da.speed";
    refused(&server, 503, "E_BUSY", &[path]);
    drop(two);
    // The server notices at the next sign of life at the latest.
    until("there is room for one more", || {
        let answer = client().get(server.url(path)).call().unwrap();
        answer.status() == 200
    });
}

#[test]
fn values_arrive_when_they_are_written_late_ones_too() {
    let server = serve(cars);
    let mut lines = follow(&server, &["obd,car=a.speed", "obd,car=a.gear"]);
    assert_eq!(lines.next().as_deref(), Some(": live"));
    let newest = START + 5_000 * SECOND;
    // Another car, and a value that clashes with its field: nobody is told of them.
    let body = format!(
        "obd,car=b speed=1 {newest}\nobd,car=a speed=7.5 {newest}\nobd,car=a speed=\"fast\" {}\nobd,car=a odometer=3i {}\n",
        newest + 1,
        newest + 2
    );
    let (status, _) = write(&server, &body);
    assert_eq!(status, 400);
    assert_eq!(lines.next().as_deref(), Some("event: data"));
    let data = lines.next().unwrap();
    assert_eq!(
        data,
        format!(
            "data: {{\"channel\":\"obd,car=a.speed\",\"time\":[\"{newest}\"],\"value\":[7.5]}}"
        )
    );
    // What was told can be read.
    let path = format!("/api/v1/scan?stream=obd%2Ccar%3Da&from={newest}&fields=speed");
    assert_eq!(
        json(&server, &path)["fields"]["speed"],
        serde_json::json!([7.5])
    );
    let late = START + SECOND / 2;
    assert_eq!(
        write(&server, &format!("obd,car=a gear=4u {late}\n")).0,
        204
    );
    assert_eq!(lines.next().as_deref(), Some("event: data"));
    assert!(
        lines
            .next()
            .unwrap()
            .contains(&format!("gear\",\"time\":[\"{late}\"],\"value\":[4]"))
    );
}
