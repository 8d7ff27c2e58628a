//! Rows, newest values, exports.

use super::{SECOND, START, cars, encoded, get, json, refused, serve};
use crate::support::client;
use headwater_testing::until;
use serde_json::json as value;
use std::io::Read;

#[test]
fn a_scan_gives_columns_with_exact_numbers() {
    let server = serve(cars);
    let from = START + 10 * SECOND;
    let path = format!(
        "/api/v1/scan?stream=obd%2Ccar%3Da&from={from}&to={}",
        from + 2 * SECOND
    );
    let rows = json(&server, &path);
    assert_eq!(
        rows,
        value!({
            "stream": "obd,car=a",
            "time": [from.to_string(), (from + SECOND).to_string()],
            "fields": {
                "speed": [10.0, 11.0],
                "odometer": [9_007_199_254_741_003i64, 9_007_199_254_741_004i64],
                "gear": [3, null],
            },
            "more": false,
        })
    );
    let (_, text) = get(&server, &path);
    assert!(text.contains("9007199254741003"), "{text}");
    // Fields in the order asked; rows without any of them are no rows.
    let gears = json(
        &server,
        "/api/v1/scan?stream=obd%2Ccar%3Da&fields=gear&limit=3",
    );
    assert_eq!(gears["fields"], value!({"gear": [0, 3, 6]}));
    assert_eq!(gears["more"], true);
    let end = START + 2_999 * SECOND;
    let last = json(
        &server,
        &format!("/api/v1/scan?stream=obd%2Ccar%3Da&from={end}&limit=1"),
    );
    assert_eq!(
        (&last["more"], last["time"].as_array().unwrap().len()),
        (&value!(false), 1)
    );
    let relative = json(
        &server,
        "/api/v1/scan?stream=obd%2Ccar%3Da&from=now-1h&to=now",
    );
    assert_eq!(relative["time"], value!([]));
    let dated = json(
        &server,
        "/api/v1/scan?stream=obd%2Ccar%3Da&fields=speed&from=2023-11-14T22:13:20Z&to=2023-11-14T22:13:21Z",
    );
    assert_eq!(dated["fields"]["speed"], value!([0.0]));
}

#[test]
fn a_scan_as_csv_has_times_tags_and_fields() {
    let server = serve(cars);
    let path = format!(
        "/api/v1/scan?stream={}&format=csv",
        encoded(r"door,room=k\ 1\,2")
    );
    let mut answer = client().get(server.url(&path)).call().unwrap();
    assert_eq!(answer.headers()["content-type"], "text/csv; charset=utf-8");
    let text = answer.body_mut().read_to_string().unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time,room,state,open"));
    assert_eq!(
        lines.next(),
        Some(&*format!("{START},\"k 1,2\",\"\"\"0\"\"\",true"))
    );
    assert_eq!(lines.count(), 3);
}

#[test]
fn bad_scans_are_refused() {
    let server = serve(cars);
    refused(
        &server,
        404,
        "E_NOT_FOUND",
        &[
            "/api/v1/scan?stream=obd%2Ccar%3Dz",
            "/api/v1/scan?stream=none",
            "/api/v1/scan?stream=obd%2Ccar%3Da&fields=height",
        ],
    );
    refused(
        &server,
        400,
        "E_PARAMETER",
        &[
            "/api/v1/scan",
            "/api/v1/scan?stream=,",
            "/api/v1/scan?stream=obd%2Ccar%3Da&from=yesterday",
            "/api/v1/scan?stream=obd%2Ccar%3Da&to=now-1",
            "/api/v1/scan?stream=obd%2Ccar%3Da&limit=many",
            "/api/v1/scan?stream=obd%2Ccar%3Da&format=xml",
            "/api/v1/scan?stream=obd%2Ccar%3Da&stream=obd%2Ccar%3Db",
        ],
    );
    refused(
        &server,
        400,
        "E_LIMIT",
        &["/api/v1/scan?stream=obd%2Ccar%3Da&limit=99000000"],
    );
}

#[test]
fn newest_values_by_name_table_or_search() {
    let server = serve(cars);
    let last = (START + 2_999 * SECOND).to_string();
    let answer = json(
        &server,
        "/api/v1/last?stream=obd%2Ccar%3Db&stream=obd%2Ccar%3Dz",
    );
    assert_eq!(answer["streams"].as_array().unwrap().len(), 1);
    assert_eq!(answer["streams"][0]["stream"], "obd,car=b");
    assert_eq!(
        answer["streams"][0]["fields"]["speed"],
        value!({"time": last, "value": 2_999.0})
    );
    let count = |path: &str| json(&server, path)["streams"].as_array().unwrap().len();
    assert_eq!(count("/api/v1/last?table=obd"), 2);
    assert_eq!(count("/api/v1/last?search=car=a"), 1);
    assert_eq!(count("/api/v1/last?table=none"), 0);
    refused(
        &server,
        400,
        "E_PARAMETER",
        &[
            "/api/v1/last",
            "/api/v1/last?stream=a&table=b",
            "/api/v1/last?stream=a&search=b",
            "/api/v1/last?limit=5",
        ],
    );
}

#[test]
fn an_export_is_whole() {
    let server = serve(cars);
    let (status, text) = get(&server, "/api/v1/export?table=obd");
    assert_eq!(status, 200);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time,car,speed,odometer,gear"));
    assert_eq!(
        lines.next(),
        Some(&*format!("{START},a,0.0,9007199254740993,0"))
    );
    assert_eq!(lines.clone().count(), 5_999);
    assert_eq!(
        lines.last(),
        Some(&*format!(
            "{},b,2999.0,9007199254743992,",
            START + 2_999 * SECOND
        ))
    );
    let path = format!(
        "/api/v1/export?stream={}&format=lp&to={}",
        encoded(r"door,room=k\ 1\,2"),
        START + SECOND
    );
    let (_, text) = get(&server, &path);
    assert_eq!(
        text,
        format!("door,room=k\\ 1\\,2 state=\"\\\"0\\\"\",open=true {START}\n")
    );
    let (_, text) = get(
        &server,
        "/api/v1/export?table=obd&fields=gear&time=rfc3339&to=2023-11-14T22:13:21Z",
    );
    assert_eq!(
        text,
        "time,car,gear\n2023-11-14T22:13:20Z,a,0\n2023-11-14T22:13:20Z,b,0\n"
    );
}

#[cfg(feature = "sql")]
#[test]
fn an_export_as_arrow_or_parquet_has_the_same_rows() {
    use arrow::array::{AsArray, RecordBatch};
    use arrow::datatypes::{Float64Type, Int64Type, TimestampNanosecondType};
    let server = serve(cars);
    let bytes = |path: &str| {
        let mut answer = client().get(server.url(path)).call().unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let kind = answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        (answer.body_mut().read_to_vec().unwrap(), kind)
    };
    let (arrow, kind) = bytes("/api/v1/export?table=obd&format=arrow");
    assert_eq!(kind, "application/vnd.apache.arrow.stream");
    let reader = arrow::ipc::reader::StreamReader::try_new(&arrow[..], None).unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let (parquet, kind) = bytes("/api/v1/export?table=obd&format=parquet");
    assert_eq!(kind, "application/vnd.apache.parquet");
    let builder = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(
        axum::body::Bytes::from(parquet),
    );
    let reader = builder.unwrap().build().unwrap();
    let others: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    for batches in [batches, others] {
        let whole = arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap();
        let schema = whole.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["time", "car", "speed", "odometer", "gear"]);
        assert_eq!(whole.num_rows(), 6_000);
        let times = whole.column(0).as_primitive::<TimestampNanosecondType>();
        assert_eq!(times.value(0), START);
        assert_eq!(times.value(5_999), START + 2_999 * SECOND);
        let cars = arrow::compute::cast(whole.column(1), &arrow::datatypes::DataType::Utf8);
        let cars = cars.unwrap();
        let cars = cars.as_string::<i32>();
        assert_eq!((cars.value(2_999), cars.value(3_000)), ("a", "b"));
        let speeds = whole.column(2).as_primitive::<Float64Type>();
        assert_eq!(speeds.value(5_999), 2_999.0);
        let odometers = whole.column(3).as_primitive::<Int64Type>();
        assert_eq!(odometers.value(0), 9_007_199_254_740_993);
        assert!(whole.column(4).is_null(5_999) && !whole.column(4).is_null(0));
    }
}

#[test]
fn an_asker_who_goes_ends_the_export() {
    let server = serve(cars);
    // More exports than may run at once, none of them read to its end.
    for _ in 0..40 {
        let mut answer = client()
            .get(server.url("/api/v1/export?table=obd"))
            .call()
            .unwrap();
        if answer.status() == 503 {
            // The ones before are still ending.
            assert!(answer.headers().contains_key("retry-after"));
            std::thread::sleep(std::time::Duration::from_millis(20));
            continue;
        }
        let mut first = [0; 64];
        answer
            .body_mut()
            .as_reader()
            .read_exact(&mut first)
            .unwrap();
        assert!(first.starts_with(b"time,car,"));
    }
    until("exports that nobody reads end", || {
        let (status, text) = get(&server, "/api/v1/export?table=obd");
        assert!(status != 200 || text.lines().count() == 6_001);
        status == 200
    });
}

#[test]
fn bad_exports_are_refused() {
    let server = serve(cars);
    refused(
        &server,
        404,
        "E_NOT_FOUND",
        &[
            "/api/v1/export?table=none",
            "/api/v1/export?stream=obd%2Ccar%3Dz",
            "/api/v1/export?table=obd&fields=height",
        ],
    );
    refused(
        &server,
        400,
        "E_PARAMETER",
        &[
            "/api/v1/export",
            "/api/v1/export?table=obd&stream=obd%2Ccar%3Da",
            "/api/v1/export?stream=obd%2Ccar%3Da&stream=door%2Croom%3Dk",
            "/api/v1/export?table=obd&format=xml",
            "/api/v1/export?table=obd&time=days",
            "/api/v1/export?table=obd&format=lp&time=rfc3339",
            "/api/v1/export?table=obd&format=parquet&time=rfc3339",
        ],
    );
}

#[test]
fn storage_tells_what_is_there() {
    let server = serve(cars);
    let storage = json(&server, "/api/v1/storage");
    assert_eq!(
        (&storage["events"], &storage["streams"]),
        (&value!(6_004), &value!(3))
    );
    assert_eq!(storage["events_accepted"], 6_004);
    let tables = storage["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 2);
    let obd = tables.iter().find(|t| t["table"] == "obd").unwrap();
    assert_eq!(
        (&obd["streams"], &obd["events"]),
        (&value!(2), &value!(6_000))
    );
    // Not what its partitions may hold: the first of them begins with time itself.
    let last = START + 2_999 * SECOND;
    assert_eq!(
        (&obd["first"], &obd["last"]),
        (&value!(START.to_string()), &value!(last.to_string()))
    );
    let partitions = storage["partitions"].as_array().unwrap();
    let sum = |field: &str| {
        partitions
            .iter()
            .map(|p| p[field].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(sum("events"), 6_004);
    assert!(sum("bytes") > 0 && storage["bytes_on_disk"].as_u64().unwrap() > sum("bytes"));
    assert!(storage["bytes_per_event"].as_f64().unwrap() > 0.0);
    assert_eq!(storage["write_amplification"]["by_cause"]["flush"], 6_004);
    assert_eq!(storage["memory"]["budget"], 64 << 20);
    assert_eq!(storage.get("mqtt"), Some(&value!(null)));
    let late = &storage["late"];
    assert!(
        late["policy"].as_str().unwrap().starts_with("adaptive: "),
        "{late}"
    );
    assert_eq!(late["share"], 0.0);
    let candidates = late["candidates"].as_array().unwrap();
    let predicted = candidates.iter().map(|c| c["predicted"].as_f64().unwrap());
    assert!(predicted.into_iter().all(|p| p >= 1.0), "{late}");
    assert_eq!(late["decisions"], value!([]));
    let without = json(&server, "/api/v1/storage?late=false");
    assert_eq!(without.get("late"), Some(&value!(null)));
    assert_eq!(without["tables"], storage["tables"]);
    refused(
        &server,
        400,
        "E_PARAMETER",
        &["/api/v1/storage?all=1", "/api/v1/storage?late=no"],
    );
}
