//! Counts of rows over whole tables.

use super::{SECOND, START, cars, get, json, refused, serve, write};
use serde_json::json as value;

#[test]
fn a_table_is_counted_over_all_its_streams() {
    let server = serve(cars);
    assert_eq!(
        json(&server, "/api/v1/count"),
        value!({
            "tables": [{"table": "door", "streams": 1, "rows": 4}, {"table": "obd", "streams": 2, "rows": 6_000}],
            "rows": 6_004,
        })
    );
    // Of a gear there is a value every ten seconds.
    assert_eq!(
        json(&server, "/api/v1/count?table=obd&fields=gear,speed,gear"),
        value!({
            "tables": [{"table": "obd", "streams": 2, "rows": 6_000, "fields": {"gear": 600, "speed": 6_000}}],
            "rows": 6_000,
        })
    );
    let (from, to) = (START + 5 * SECOND, START + 17 * SECOND);
    let range = format!("from={from}&to={to}");
    let counts = json(&server, &format!("/api/v1/count?search=car=b&{range}"));
    assert_eq!(
        counts,
        value!({"tables": [{"table": "obd", "streams": 1, "rows": 12}], "rows": 12})
    );
    // Outside of what is stored the table is there, and nothing in it.
    assert_eq!(
        json(&server, "/api/v1/count?table=door&to=1960-01-01"),
        value!({"tables": [{"table": "door", "streams": 0, "rows": 0}], "rows": 0})
    );
}

#[test]
fn what_is_written_again_counts_once_and_what_is_new_at_once() {
    let server = serve(cars);
    let again = format!("obd,car=a speed=1 {START}");
    let new = format!("obd,car=a speed=1 {}\nobd,car=c gear=1u {START}", START + 1);
    for lines in [again, new] {
        assert_eq!(write(&server, &lines).0, 204);
    }
    let counts = json(&server, "/api/v1/count?table=obd&fields=gear");
    let table = &counts["tables"][0];
    assert_eq!(
        (&table["streams"], &table["rows"], &table["fields"]["gear"]),
        (&value!(3), &value!(6_002), &value!(601))
    );
    // As many as are exported.
    let (status, text) = get(&server, "/api/v1/export?table=obd");
    assert_eq!((status, text.lines().count()), (200, 6_003));
}

#[test]
fn bad_counts_are_refused() {
    let server = serve(cars);
    refused(
        &server,
        404,
        "E_NOT_FOUND",
        &[
            "/api/v1/count?table=none",
            "/api/v1/count?table=obd&fields=height",
        ],
    );
    refused(
        &server,
        400,
        "E_PARAMETER",
        &[
            "/api/v1/count?fields=speed",
            "/api/v1/count?from=never",
            "/api/v1/count?stream=obd%2Ccar%3Da",
        ],
    );
}
