//! `DELETE`, `DROP SERIES`, `DROP MEASUREMENT`, and who may.

use super::{World, f};
use headwater_ask::Access;
use serde_json::json;

fn hosts() -> World {
    let world = World::new();
    for stream in [
        "cpu,host=a",
        "cpu,host=b",
        "cpu,host=b,more=x",
        "disk,host=a",
        "mem",
    ] {
        world.write(stream, &[(1, &[("v", f(1.0))]), (2, &[("v", f(2.0))])]);
    }
    world
}

#[test]
fn rows_are_deleted_by_tags_and_time() {
    let world = hosts();
    let left = |text: &str| world.changed(text, "SELECT count(v) FROM /./ GROUP BY *");
    let after = left("DELETE FROM cpu WHERE host = 'b' AND time < 2s");
    let counts: Vec<_> = after
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["values"][0][1].clone())
        .collect();
    assert_eq!(json!(counts), json!([2, 1, 1, 2, 2]));
    // Of series that have nothing left, only those go of which nothing can be left.
    world.changed("DELETE FROM disk WHERE time > 0", "SHOW SERIES");
    let series = world.changed("DELETE FROM /cpu/ WHERE host = 'a'", "SHOW SERIES");
    assert_eq!(
        series[0]["values"],
        json!([["cpu,host=b"], ["cpu,host=b,more=x"], ["mem"]])
    );
    let series = world.changed(
        "DELETE WHERE time <= 2s AND host =~ /b/",
        "SELECT count(v) FROM /./",
    );
    assert_eq!(
        series,
        json!([{"name": "mem", "columns": ["time", "count"], "values": [[0, 2]]}])
    );
    for (text, part) in [
        ("DELETE FROM mem WHERE v > 1", "fields not allowed"),
        (
            "DROP SERIES FROM mem WHERE time > 1",
            "doesn't support time",
        ),
        ("DROP SERIES FROM mem WHERE v = 1", "fields not allowed"),
    ] {
        let found = world.refused(text);
        assert!(found.contains(part), "{text}: {found}");
    }
    // Nothing that is not there is missed.
    for text in [
        "DELETE FROM nothing",
        "DROP SERIES FROM nothing",
        "DROP MEASUREMENT nothing",
    ] {
        world.changed(text, "SHOW SERIES");
    }
}

#[test]
fn series_and_measurements_are_dropped() {
    let world = hosts();
    let series = world.changed(
        "DROP SERIES FROM cpu WHERE host = 'b' AND more = ''",
        "SHOW SERIES",
    );
    assert_eq!(
        series[0]["values"],
        json!([
            ["cpu,host=a"],
            ["cpu,host=b,more=x"],
            ["disk,host=a"],
            ["mem"]
        ])
    );
    let series = world.changed(
        "DROP SERIES WHERE host = 'a'; DROP MEASUREMENT mem",
        "SHOW SERIES",
    );
    assert_eq!(series[0]["values"], json!([["cpu,host=b,more=x"]]));
    let measurements = world.changed("DROP MEASUREMENT cpu", "SHOW MEASUREMENTS");
    assert_eq!(measurements, json!([]));
    // What was dropped can be written again, also as something else.
    world.write("cpu,host=a", &[(5, &[("v", super::t("text"))])]);
    assert_eq!(world.rows("SELECT v FROM cpu"), json!([[5, "text"]]));
    // Where nothing may be changed, it is said.
    assert!(world.error("DELETE FROM cpu").contains("read-only"));
}

/// Who may read `cpu` and write to some of it.
struct Partly;

impl Access for Partly {
    fn reads(&self, table: &str, _: &[(String, String)]) -> bool {
        table == "cpu"
    }

    fn writes(&self, table: &str, tags: &[(String, String)]) -> bool {
        table == "mem" || table == "cpu" && tags.iter().any(|(_, value)| value == "a")
    }

    fn manages(&self, _: &str) -> bool {
        false
    }

    fn all(&self) -> bool {
        false
    }
}

#[test]
fn what_may_not_be_written_is_not_removed() {
    let world = hosts();
    for text in [
        "DELETE FROM cpu",
        "DROP MEASUREMENT cpu",
        "DROP SERIES FROM cpu",
        "DELETE WHERE time < 5s",
    ] {
        let result = world.change_as(&Partly, text).remove(0);
        let error = result["error"].as_str().unwrap_or_default();
        assert!(
            error.contains("may not delete from `cpu,host=b"),
            "{text}: {result}"
        );
        assert_eq!(result["code"], "E_ACCESS");
    }
    assert_eq!(world.rows("SHOW SERIES").as_array().unwrap().len(), 5);
    // What may not be seen is as if it were not there.
    for text in [
        "DELETE FROM disk",
        "DROP MEASUREMENT disk",
        "DELETE FROM cpu WHERE host = 'a'",
        "DROP MEASUREMENT mem",
    ] {
        let result = world.change_as(&Partly, text).remove(0);
        assert_eq!(result, json!({"statement_id": 0}), "{text}");
    }
    assert_eq!(
        world.rows("SHOW SERIES"),
        json!([["cpu,host=b"], ["cpu,host=b,more=x"], ["disk,host=a"]])
    );
}
