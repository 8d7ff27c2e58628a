//! Tiles: Respawn's route, several at once, bytes, tags.

use super::{SECOND, START, cars, encoded, get, json, refused, serve, write};
use crate::support::{Running, client};
use headwater::{Batch, Database, Level, Options, StreamName, Timestamp};
use serde_json::{Value, json as value};

const CHANNEL: &str = "obd%2Ccar%3Da.speed";

fn offset(level: i32) -> i64 {
    let level = Level::new(level).unwrap();
    level
        .bucket_of(Timestamp::from_nanos(START))
        .div_euclid(512)
}

/// An answer's status, tag and body, asked with a tag one has.
fn with_tag(server: &Running, path: &str, tag: Option<&str>) -> (u16, String, Vec<u8>) {
    let mut request = client().get(server.url(path));
    if let Some(tag) = tag {
        request = request.header("If-None-Match", tag);
    }
    let mut answer = request.call().unwrap();
    let tag = answer
        .headers()
        .get("etag")
        .map(|t| t.to_str().unwrap().to_owned());
    let body = answer.body_mut().read_to_vec().unwrap();
    (answer.status().as_u16(), tag.unwrap_or_default(), body)
}

#[test]
fn a_tile_has_respawns_shape_at_every_level() {
    let server = serve(cars);
    for level in [-20, -3, 0, 2, 6, 9, 20, 40] {
        let offset = offset(level);
        let tile = json(&server, &format!("/tiles/{CHANNEL}/{level}.{offset}.json"));
        assert_eq!(tile["fields"], value!(["time", "mean", "stddev", "count"]));
        assert_eq!(
            (&tile["level"], &tile["offset"]),
            (&value!(level), &value!(offset))
        );
        let rows = tile["data"].as_array().unwrap();
        // The first row holds the first bucket's events from START on.
        let width = 2f64.powi(level);
        let bucket_start = (1_700_000_000f64 / width).floor() * width;
        let first_events = if width < 1.0 {
            1.0
        } else {
            (bucket_start + width - 1_700_000_000f64).min(3_000.0)
        };
        assert_eq!(rows[0][3].as_f64().unwrap(), first_events, "level {level}");
        assert_eq!(
            rows[0][1].as_f64().unwrap(),
            (first_events - 1.0) / 2.0,
            "level {level}"
        );
    }
    let all = json(
        &server,
        &format!("/tiles/{CHANNEL}/40.0.json?fields=count,min,max,sum"),
    );
    assert_eq!(all["data"], value!([[3000, 0.0, 2999.0, 4498500.0]]));
    let exact = json(
        &server,
        "/tiles/obd%2Ccar%3Da.odometer/40.0.json?fields=min",
    );
    assert_eq!(exact["data"], value!([[9_007_199_254_740_993i64]]));
}

#[test]
fn tiles_asked_for_often_and_at_once_are_true() {
    // What was quick is read on another thread of the server than what is not known yet.
    let server = serve(cars);
    let path = format!(
        "/api/v1/tiles?channel={CHANNEL}&level=6&offset={}&fields=count",
        offset(6)
    );
    let rows = || {
        let tiles = json(&server, &path);
        let rows = tiles["tiles"][0]["data"].as_array().unwrap();
        rows.iter().map(|r| r[0].as_u64().unwrap()).sum::<u64>()
    };
    for more in 1..=8 {
        // With another row no answer that was kept holds any more.
        let time = START + more * SECOND + 1;
        let written = write(&server, &format!("obd,car=a speed=1 {time}"));
        assert_eq!(written.0, 204, "{}", written.1);
        let counts = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(rows)).collect();
            let counts = asking.into_iter().map(|asked| asked.join().unwrap());
            counts.collect::<Vec<_>>()
        });
        assert_eq!(counts, [3_000 + more as u64; 4]);
    }
}

#[test]
fn empty_and_far_tiles_are_tiles() {
    let server = serve(cars);
    let empty = json(&server, &format!("/tiles/{CHANNEL}/0.-5.json"));
    assert_eq!(empty["data"], value!([]));
    let far = i64::MAX;
    let tile = json(&server, &format!("/tiles/{CHANNEL}/0.{far}.json"));
    assert_eq!(
        (&tile["data"], &tile["offset_text"]),
        (&value!([]), &value!(far.to_string()))
    );
    // A text has counts, and no numbers.
    let door = encoded(r"door,room=k\ 1\,2.state");
    let tile = json(
        &server,
        &format!("/tiles/{door}/40.0.json?fields=mean,count"),
    );
    assert_eq!(tile["data"], value!([[null, 4]]));
}

#[test]
fn bad_tiles_are_refused() {
    let server = serve(cars);
    refused(
        &server,
        404,
        "E_NOT_FOUND",
        &[
            "/tiles/obd%2Ccar%3Dz.speed/0.0.json",
            "/tiles/obd%2Ccar%3Da.height/0.0.json",
            "/tiles/nothing.speed/0.0.json",
        ],
    );
    refused(
        &server,
        400,
        "E_PARAMETER",
        &[
            "/tiles/obd/0.0.json",
            "/tiles/obd%2Ccar%3Da.speed/0.0",
            "/tiles/obd%2Ccar%3Da.speed/41.0.json",
            "/tiles/obd%2Ccar%3Da.speed/-21.0.json",
            "/tiles/obd%2Ccar%3Da.speed/0.99999999999999999999.json",
            "/tiles/obd%2Ccar%3Da.speed/x.y.json",
            "/tiles/%FF.speed/0.0.json",
            "/tiles/obd%2Ccar%3Da.speed/0.0.json?fields=height",
            "/tiles/obd%2Ccar%3Da.speed/0.0.json?colour=red",
            "/api/v1/tiles?level=0&offset=0",
            "/api/v1/tiles?channel=a.b&offset=0",
            "/api/v1/tiles?channel=a.b&level=0",
            "/api/v1/tiles?channel=a.b&level=99&offset=0",
            "/api/v1/tiles?channel=a.b&level=0&offset=x",
            "/api/v1/tiles?channel=a&level=0&offset=0",
            "/api/v1/tiles?channel=a.b&level=0&offset=0&format=xml",
            "/api/v1/tiles?channel=a.b&level=0&offset=0&format=binary&fields=mean",
            "/api/v1/tiles?channel=a.b&level=0&level=1&offset=0",
            "/api/v1/tiles?channel=%",
        ],
    );
    let many = "channel=a.b&".repeat(65);
    refused(
        &server,
        400,
        "E_LIMIT",
        &[&format!("/api/v1/tiles?{many}level=0&offset=0")],
    );
}

#[test]
fn several_tiles_come_in_the_order_asked() {
    let server = serve(cars);
    let (level, offset) = (6, offset(6));
    let path = format!(
        "/api/v1/tiles?channel={CHANNEL}&channel=obd%2Ccar%3Dz.speed&channel={}&channel=obd%2Ccar%3Db.gear&level={level}&offset={offset}",
        encoded(r"door,room=k\ 1\,2.state")
    );
    let answer = json(&server, &path);
    let tiles = answer["tiles"].as_array().unwrap();
    assert_eq!(tiles.len(), 4);
    assert_eq!(tiles[0]["channel"], "obd,car=a.speed");
    assert_eq!(tiles[0]["offset"], value!(offset.to_string()));
    assert_eq!(
        tiles[0]["fields"],
        value!(["time", "mean", "min", "max", "count", "stddev"])
    );
    assert_eq!(tiles[1]["error"]["code"], "E_NOT_FOUND");
    assert_eq!(tiles[2]["error"]["code"], "E_NOT_NUMERIC");
    let counts = |tile: &Value| -> u64 {
        let rows = tile["data"].as_array().unwrap();
        rows.iter().map(|row| row[4].as_u64().unwrap()).sum()
    };
    assert_eq!((counts(&tiles[0]), counts(&tiles[3])), (3_000, 300));

    // The binary form says the same.
    let (status, _, bytes) = with_tag(&server, &format!("{path}&format=binary"), None);
    assert_eq!((status, &bytes[..4]), (200, &b"HWT1"[..]));
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let i64_at = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let f64_at = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(u32_at(4), 4);
    let mut at = 8;
    for (tile, status) in tiles.iter().zip([0, 1, 2, 0]) {
        assert_eq!((u32_at(at), u32_at(at + 4) as i32), (status, level));
        assert_eq!(i64_at(at + 8), offset);
        let start = i64_at(at + 16);
        assert_eq!(start, offset * 512 * 64 * 1_000_000_000);
        let rows = u32_at(at + 24) as usize;
        let data = tile["data"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(rows, data.len());
        for (row, expected) in data.iter().enumerate() {
            let cell = |column: usize| f64_at(at + 32 + 8 * (column * rows + row));
            let seconds = (start as f64 + cell(0)) / 1e9;
            assert!((seconds - expected[0].as_f64().unwrap()).abs() < 1e-6);
            for column in 1..6 {
                assert_eq!(cell(column), expected[column].as_f64().unwrap());
            }
        }
        at += 32 + 48 * rows;
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn a_tag_is_good_until_the_data_change() {
    let server = serve(cars);
    for path in [
        format!("/tiles/{CHANNEL}/6.{}.json", offset(6)),
        format!(
            "/api/v1/tiles?channel={CHANNEL}&channel=obd%2Ccar%3Db.speed&level=6&offset={}&format=binary",
            offset(6)
        ),
    ] {
        let (status, tag, body) = with_tag(&server, &path, None);
        assert_eq!(status, 200);
        assert!(
            tag.starts_with('"') && tag.ends_with('"') && tag.len() > 10,
            "{tag}"
        );
        // From the cache, and by the tag.
        assert_eq!(
            with_tag(&server, &path, None),
            (200, tag.clone(), body.clone())
        );
        assert_eq!(
            with_tag(&server, &path, Some(&tag)),
            (304, tag.clone(), Vec::new())
        );
        let list = format!("\"other\", W/{tag}");
        assert_eq!(with_tag(&server, &path, Some(&list)).0, 304);
        assert_eq!(with_tag(&server, &path, Some("\"other\"")).0, 200);
    }
    // Channels that are not there have no version: such an answer has no tag and is never kept.
    let path = "/api/v1/tiles?channel=no.x&level=0&offset=0";
    assert_eq!(with_tag(&server, path, None).1, "");
    let head = client()
        .head(server.url(&format!("/tiles/{CHANNEL}/0.0.json")))
        .call()
        .unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["cache-control"], "private, no-cache");
    assert_eq!(get(&server, "/tiles/").0, 404);
}

#[test]
fn a_tile_that_is_kept_follows_its_data_and_no_others() {
    let server = serve(cars);
    let (first, second) = (offset(0), offset(0) + 1);
    let path = |offset: i64| format!("/tiles/{CHANNEL}/0.{offset}.json?fields=count,max");
    let one = with_tag(&server, &path(first), None);
    let two = with_tag(&server, &path(second), None);
    assert_eq!(with_tag(&server, &path(first), None), one);
    // A value late in the first tile.
    let late = START + SECOND / 2;
    assert_eq!(
        write(&server, &format!("obd,car=a speed=12345 {late}\n")).0,
        204
    );
    let (status, tag, body) = with_tag(&server, &path(first), Some(&one.1));
    assert_eq!(status, 200);
    assert!(tag != one.1);
    assert!(String::from_utf8(body).unwrap().contains("[2,12345.0]"));
    assert_eq!(with_tag(&server, &path(second), Some(&two.1)).0, 304);
    // Another stream, and later values of this one, change neither.
    let newer = START + 90_000 * SECOND;
    assert_eq!(
        write(
            &server,
            &format!("obd,car=a speed=1 {newer}\nobd,car=b speed=1 {late}\n")
        )
        .0,
        204
    );
    for (path, tag) in [(path(first), tag), (path(second), two.1)] {
        assert_eq!(with_tag(&server, &path, Some(&tag)).0, 304);
        assert_eq!(with_tag(&server, &path, None).1, tag);
    }
}

#[test]
fn tags_of_another_process_mean_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let fill = Database::open(Options::new(&db)).unwrap();
    let mut batch = Batch::new();
    batch
        .stream(&StreamName::new("t", [("x", "1")]))
        .row(START, [("v", 1.5.into())])
        .unwrap();
    fill.commit(batch).unwrap();
    fill.close().unwrap();
    drop(fill);
    let path = format!("/tiles/t%2Cx%3D1.v/0.{}.json", offset(0));
    let mut tag: Option<String> = None;
    for _ in 0..2 {
        let server = Running::start_with(|settings| settings.engine.dir = db.clone());
        let (status, new, body) = with_tag(&server, &path, tag.as_deref());
        assert_eq!(status, 200);
        assert!(!body.is_empty() && tag.as_ref() != Some(&new));
        tag = Some(new);
    }
}
