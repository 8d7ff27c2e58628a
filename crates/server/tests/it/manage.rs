//! What owners do to tables over HTTP.

use crate::support::{Running, client, json};
use headwater_server::tokens::{NewToken, TokenFile};
use serde_json::{Value, json as value};

fn manage(server: &Running, token: Option<&str>, asked: &Value) -> (u16, Value) {
    let mut request = client().post(server.url("/api/v1/manage"));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut answer = request.send(asked.to_string()).unwrap();
    (answer.status().as_u16(), json(&mut answer))
}

fn write(server: &Running, lines: &str) {
    let written = client().post(server.url("/write?precision=s")).send(lines);
    assert_eq!(written.unwrap().status(), 204);
}

fn rows(server: &Running, table: &str) -> u64 {
    let path = format!("/api/v1/count?table={table}");
    let mut answer = client().get(server.url(&path)).call().unwrap();
    json(&mut answer)["rows"].as_u64().unwrap()
}

#[test]
fn tables_are_declared_shown_changed_and_dropped() {
    let server = Running::start();
    let asked = value!({
        "op": "create_table", "table": "weather", "fields": [["temp", "f64"], ["rain", "u64"]],
        "duplicates": "keep", "leaf_events": 512, "retention": "1y",
    });
    let (status, made) = manage(&server, None, &asked);
    assert_eq!(status, 200, "{made}");
    let fields = value!([{"name": "temp", "type": "f64"}, {"name": "rain", "type": "u64"}]);
    assert_eq!(made["fields"], fields);
    let changed = value!({
        "op": "alter_table", "table": "weather", "raw_for": "30d", "retention": "forever",
        "fields": [["wind", "f64"]],
    });
    assert_eq!(manage(&server, None, &changed).0, 200);
    let (_, shown) = manage(
        &server,
        None,
        &value!({"op": "show_tables", "table": "weather"}),
    );
    let shown = &shown["tables"][0];
    assert_eq!(
        (
            &shown["duplicates"],
            &shown["leaf_events"],
            &shown["raw_for"]
        ),
        (&value!("keep"), &value!(512), &value!("30d"))
    );
    assert_eq!(
        (&shown["retention"], &shown["fields"][2]["name"]),
        (&Value::Null, &value!("wind"))
    );
    let (status, told) = manage(&server, None, &asked);
    assert_eq!(
        (status, &told["code"]),
        (400, &value!("E_INVALID")),
        "{told}"
    );
    let drop = value!({"op": "drop_table", "table": "weather"});
    assert_eq!(
        manage(&server, None, &drop),
        (200, value!({"dropped": "weather"}))
    );
    assert_eq!(manage(&server, None, &drop).0, 404);
    let (_, shown) = manage(&server, None, &value!({"op": "show_tables"}));
    assert_eq!(shown, value!({"tables": []}));
}

#[test]
fn ranges_and_streams_are_deleted_and_nothing_by_leaving_something_out() {
    let server = Running::start();
    let lines: String = (0..10)
        .flat_map(|k| ["a", "b"].map(|id| format!("pump,id={id} rpm={k} {}\n", 1_700_000_000 + k)))
        .collect();
    write(&server, &lines);
    assert_eq!(rows(&server, "pump"), 20);
    for wrong in [
        value!({"op": "delete", "table": "pump"}),
        value!({"op": "drop_streams", "table": "pump", "tags": {}}),
        value!({"op": "delete", "table": "pump", "from": "soon"}),
        value!({"op": "delete", "table": "pump", "until": "now"}),
        value!({"op": "delete", "table": "pump", "from": "2020"}),
        value!({"op": "delete", "table": "pump", "to": "1700000000"}),
        value!({"op": "explode"}),
        value!("compact"),
    ] {
        let (status, told) = manage(&server, None, &wrong);
        assert_eq!(
            (status, &told["code"]),
            (400, &value!("E_INVALID")),
            "{wrong}: {told}"
        );
    }
    assert_eq!(rows(&server, "pump"), 20);
    let asked = value!({"op": "delete", "table": "pump", "to": "1970-01-02T00:00:00Z"});
    assert_eq!(manage(&server, None, &asked), (200, value!({"streams": 0})));
    let to = "1700000004000000000";
    let asked = value!({"op": "delete", "table": "pump", "tags": {"id": "a"}, "to": to});
    assert_eq!(manage(&server, None, &asked), (200, value!({"streams": 1})));
    assert_eq!(rows(&server, "pump"), 16);
    let asked = value!({"op": "drop_streams", "table": "pump", "tags": {"id": "b"}});
    assert_eq!(manage(&server, None, &asked), (200, value!({"streams": 1})));
    assert_eq!(rows(&server, "pump"), 6);
    let asked = value!({"op": "delete", "table": "pump", "all_time": true});
    assert_eq!(manage(&server, None, &asked).0, 200);
    assert_eq!(rows(&server, "pump"), 0);
    let (status, told) = manage(&server, None, &value!({"op": "compact"}));
    assert_eq!(status, 200, "{told}");
    assert!(told["bytes"].is_u64() && told["bytes_before"].is_u64());
}

#[test]
fn a_token_manages_what_its_rules_name_and_is_told_of_nothing_else() {
    let mut tokens = Vec::new();
    let server = Running::start_with(|settings| {
        let file = TokenFile::of_database(settings.db());
        for (name, rule) in [
            ("all", "manage *"),
            ("table", "manage pump"),
            ("part", "manage pump,site=north"),
            ("reader", "read *"),
        ] {
            let new = NewToken {
                name: name.to_owned(),
                expires: None,
                rules: vec![rule.parse().unwrap()],
            };
            tokens.push(file.create(new).unwrap());
        }
    });
    let [all, table, part, reader] = &tokens[..] else {
        panic!("four tokens")
    };
    for name in ["pump", "fan"] {
        let asked = value!({"op": "create_table", "table": name, "fields": [["v", "f64"]]});
        assert_eq!(manage(&server, Some(all), &asked).0, 200);
    }
    let names = |token: &str| {
        let (_, shown) = manage(&server, Some(token), &value!({"op": "show_tables"}));
        let tables = shown["tables"].as_array().unwrap().clone();
        tables
            .iter()
            .map(|t| t["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(all), ["fan", "pump"]);
    assert_eq!(names(table), ["pump"]);
    assert!(names(part).is_empty());
    let status = |token: &str, asked: Value| manage(&server, Some(token), &asked).0;
    let delete = |table: &str, tags: Value| value!({"op": "delete", "table": table, "tags": tags, "to": "now"});
    assert_eq!(status(table, delete("pump", value!({}))), 200);
    assert_eq!(status(table, delete("fan", value!({}))), 403);
    // The same for a table that is not there.
    assert_eq!(status(table, delete("absent", value!({}))), 403);
    assert_eq!(status(part, delete("pump", value!({"site": "north"}))), 200);
    assert_eq!(status(part, delete("pump", value!({"site": "south"}))), 403);
    assert_eq!(status(part, delete("pump", value!({}))), 403);
    assert_eq!(status(table, value!({"op": "compact"})), 403);
    assert_eq!(status(all, value!({"op": "compact"})), 200);
    assert_eq!(status(reader, value!({"op": "show_tables"})), 403);
}

#[test]
fn the_fast_tier_is_changed_while_the_server_serves() {
    let server = Running::start();
    write(&server, "a,id=1 v=1 1700000000");
    let fast = tempfile::tempdir().unwrap();
    let folder = |name: &str| fast.path().join(name).display().to_string();
    let moved = |server: &Running, fast: Value, parts: Value| {
        let asked = value!({"op": "move_tier", "fast": fast, "parts": parts});
        manage(server, None, &asked)
    };
    let (status, answer) = moved(&server, value!(folder("f")), value!("log,index"));
    let expected = value!({"fast": folder("f"), "parts": "log,index"});
    assert_eq!((status, answer), (200, expected));
    write(&server, "a,id=1 v=2 1700000001");
    // What cannot be one is refused, and everything stays as it is.
    for (fast, parts) in [
        (value!("here"), value!(null)),
        (value!(null), value!("log")),
        (value!(folder("g")), value!("logs")),
    ] {
        let (status, answer) = moved(&server, fast, parts);
        assert_eq!(
            (status, &answer["code"]),
            (400, &value!("E_INVALID")),
            "{answer}"
        );
    }
    let taken = fast.path().join("taken/log");
    std::fs::create_dir_all(&taken).unwrap();
    std::fs::write(taken.join("1.log"), "somebody's rows").unwrap();
    let (status, answer) = moved(&server, value!(folder("taken")), value!(null));
    assert!(status >= 400, "{answer}");
    assert!(
        answer["message"].as_str().unwrap().contains("empty folder"),
        "{answer}"
    );
    write(&server, "a,id=1 v=3 1700000002");
    // It is found by the next start, which names none.
    let server = server.restarted(|_| {});
    assert_eq!(rows(&server, "a"), 3);
    let (status, answer) = moved(&server, value!(null), value!(null));
    let nothing = value!({"fast": null, "parts": null});
    assert_eq!((status, answer), (200, nothing));
    // Nothing of the folder is needed any more.
    drop(fast);
    let server = server.restarted(|_| {});
    assert_eq!(rows(&server, "a"), 3);
}

/// The answer to a question.
fn get(server: &Running, path: &str) -> (u16, String) {
    let answer = client().get(server.url(path)).call().unwrap();
    let status = answer.status().as_u16();
    (status, answer.into_body().read_to_string().unwrap())
}

#[test]
fn snapshots_are_made_read_by_every_route_that_takes_one_and_dropped() {
    let server = Running::start();
    let lines = |value: i64| -> String {
        let lines = (0..100).map(|i| format!("plant,id=1 temp={} {i}\n", value + i));
        lines.collect()
    };
    write(&server, &lines(0));
    let (status, made) = manage(
        &server,
        None,
        &value!({"op": "create_snapshot", "name": "mon day"}),
    );
    assert_eq!((status, &made["events"]), (200, &value!(100)), "{made}");
    // Other values, more rows, a field and a stream that were not there.
    let more = "plant,id=1 temp=7,hum=1 2000\nplant,id=2 temp=1 5\n";
    write(&server, &format!("{}{more}", lines(1000)));
    let stream = "stream=plant,id%3D1&from=0&to=100000000000";
    let channel = "channel=plant,id%3D1.temp";
    let paths = [
        format!("/api/v1/scan?{stream}"),
        format!("/api/v1/aggregate?{channel}&from=0&to=100000000000"),
        "/api/v1/export?table=plant&format=csv".to_owned(),
        format!("/api/v1/tiles?{channel}&level=0&offset=0"),
        "/tiles/plant,id%3D1.temp/0.0.json?fields=mean".to_owned(),
        "/api/v1/last?table=plant".to_owned(),
        "/api/v1/last?stream=plant,id%3D1".to_owned(),
        "/api/v1/streams?search=temp".to_owned(),
        "/api/v1/streams?stream=plant,id%3D1".to_owned(),
        "/api/v1/count?table=plant&fields=temp".to_owned(),
        "/api/v1/replay?table=plant".to_owned(),
        "/api/v1/replay?table=plant&format=sse&after=5000000000/1/plant,id%3D1".to_owned(),
    ];
    // What they said before anything was written again.
    let before = Running::start();
    write(&before, &lines(0));
    for path in &paths {
        let past = format!("{path}&snapshot=mon%20day");
        assert_eq!(get(&server, &past), get(&before, path), "{path}");
        assert_ne!(get(&server, path), get(&before, path), "{path}");
        let missing = get(&server, &format!("{path}&snapshot=x"));
        assert!(
            missing.0 == 404 && missing.1.contains("E_NO_SNAPSHOT"),
            "{missing:?}"
        );
        assert_eq!(get(&server, &format!("{path}&snapshot=")).0, 400);
    }
    let (_, told) = manage(&server, None, &value!({"op": "show_snapshots"}));
    assert_eq!(told["snapshots"][0]["name"], "mon day");
    assert_eq!(told["ended"], value!([]));
    let drop = value!({"op": "drop_snapshot", "name": "mon day"});
    assert_eq!(manage(&server, None, &drop).0, 200);
    let (status, told) = manage(&server, None, &drop);
    assert_eq!((status, &told["code"]), (404, &value!("E_NO_SNAPSHOT")));
    let past = format!("{}&snapshot=mon%20day", paths[3]);
    assert_eq!(get(&server, &past).0, 404);
}

/// The lines of an answer.
fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

#[test]
fn states_are_compared_while_the_server_writes_on() {
    let server = Running::start();
    let create = |name: &str| {
        let asked = value!({"op": "create_snapshot", "name": name});
        assert_eq!(manage(&server, None, &asked).0, 200);
    };
    write(
        &server,
        "plant,id=1 t=1 1\nplant,id=2 t=1 1\nsite s=\"x\" 1\n",
    );
    create("first");
    write(&server, "plant,id=1 t=2 1\nplant,id=1 t=2 2\n");
    create("second");
    let delete = value!({"op": "delete", "table": "site", "all_time": true});
    let (status, told) = manage(&server, None, &delete);
    assert_eq!(status, 200, "{told}");
    let stretch = |stream: &str, first: u64, last: u64, rows: [u64; 3]| {
        let nanos = |second: u64| (second * 1_000_000_000).to_string();
        let [removed, added, changed] = rows;
        value!({
            "stream": stream, "first": nanos(first), "last": nanos(last),
            "removed": removed, "added": added, "changed": changed,
        })
    };
    let sums = |streams: u64, [removed, added, changed]: [u64; 3]| value!({"streams": streams, "removed": removed, "added": added, "changed": changed});
    let one = stretch("plant,id=1", 1, 2, [0, 1, 1]);
    for (asked, wanted) in [
        (
            "before=first&after=second",
            vec![one.clone(), sums(1, [0, 1, 1])],
        ),
        // What is deleted later is in no snapshot either.
        (
            "before=first&after=now",
            vec![one.clone(), sums(1, [0, 1, 1])],
        ),
        (
            "before=now&after=first&table=plant&tag=id%3D1&to=2000000000",
            vec![stretch("plant,id=1", 1, 1, [0, 0, 1]), sums(1, [0, 0, 1])],
        ),
        (
            "before=first&after=second&tag=id%3D2",
            vec![sums(0, [0; 3])],
        ),
        (
            "before=first&after=second&tag=id%3D2&tag=id%3D1",
            vec![one, sums(1, [0, 1, 1])],
        ),
    ] {
        let (status, text) = get(&server, &format!("/api/v1/diff?{asked}"));
        assert_eq!((status, lines(&text)), (200, wanted), "{asked}");
    }
    for (asked, status, code) in [
        ("before=first", 400, "E_PARAMETER"),
        ("before=first&after=", 400, "E_PARAMETER"),
        ("before=first&after=now&tag=id", 400, "E_PARAMETER"),
        ("before=first&after=now&from=soon", 400, "E_PARAMETER"),
        ("before=first&after=now&snapshot=first", 400, "E_PARAMETER"),
        ("before=first&after=third", 404, "E_NO_SNAPSHOT"),
        ("before=first&after=now&table=none", 404, "E_NOT_FOUND"),
    ] {
        let (found, text) = get(&server, &format!("/api/v1/diff?{asked}"));
        assert!(
            found == status && text.contains(code),
            "{asked}: {found} {text}"
        );
    }
}
