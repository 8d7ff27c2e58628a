//! Columns of several measurements, what columns are called, and conditions on time.

use super::{World, f, i, t};
use headwater::Value;
use serde_json::json;

/// Two measurements that share a tag and a field, of different types.
fn two() -> World {
    let world = World::new();
    world.write(
        "m1,host=a",
        &[
            (1, &[("v", f(1.0)), ("w", i(10))]),
            (3, &[("v", f(3.0)), ("w", i(30))]),
        ],
    );
    world.write("m1,host=b", &[(2, &[("v", f(2.0))])]);
    world.write("m2,host=a,rack=r1", &[(1, &[("u", t("x")), ("v", i(7))])]);
    world.write(
        "m2,rack=r2",
        &[(2, &[("u", t("y")), ("b", Value::Bool(true))])],
    );
    world
}

#[test]
fn wildcards_stand_for_the_columns_of_all_measurements() {
    let world = two();
    let columns = ["time", "b", "host", "rack", "u", "v", "w"];
    let both = json!([
        { "name": "m1", "columns": columns, "values": [
            [1, null, "a", null, null, 1, 10], [2, null, "b", null, null, 2, null],
            [3, null, "a", null, null, 3, 30]] },
        { "name": "m2", "columns": columns, "values": [
            [1, null, "a", "r1", "x", 7, null], [2, true, null, "r2", "y", null, null]] },
    ]);
    for text in [
        "SELECT * FROM m1, m2",
        "SELECT * FROM /m/",
        "SELECT * FROM m2, m1, nope",
        "SELECT * FROM (SELECT * FROM m1, m2)",
    ] {
        assert_eq!(world.series(text), both, "{text}");
    }
    assert_eq!(
        world.series("SELECT mean(*) FROM m1, m2"),
        json!([
            { "name": "m1", "columns": ["time", "mean_v", "mean_w"], "values": [[0, 2, 20]] },
            { "name": "m2", "columns": ["time", "mean_v", "mean_w"], "values": [[0, 7, null]] },
        ])
    );
    let keys = |text: &str| {
        let series = world.series(text);
        let list = series.as_array().unwrap().iter();
        Vec::from_iter(list.map(|s| s["tags"].clone()))
    };
    let all = [
        json!({"host": "a", "rack": ""}),
        json!({"host": "b", "rack": ""}),
        json!({"host": "", "rack": "r2"}),
        json!({"host": "a", "rack": "r1"}),
    ];
    assert_eq!(
        keys("SELECT count(v), count(b) FROM m1, m2 GROUP BY *"),
        all
    );
    assert_eq!(keys("SELECT * FROM /m/ GROUP BY /host|rack/"), all);
    // Of one measurement it has no more than its own.
    let one = world.series("SELECT * FROM m1");
    assert_eq!(one[0]["columns"], json!(["time", "host", "v", "w"]));
}

#[test]
fn what_columns_are_called() {
    let world = two();
    let columns = |text: &str| world.series(text)[0]["columns"].clone();
    for (text, expected) in [
        ("SELECT time AS t, v FROM m1", json!(["t", "v"])),
        ("SELECT v, time FROM m1", json!(["time", "v"])),
        ("SELECT v, v FROM m1", json!(["time", "v", "v_1"])),
        (
            "SELECT v AS v_1, v, v FROM m1",
            json!(["time", "v_1", "v", "v_2"]),
        ),
        ("SELECT v AS x, w AS x FROM m1", json!(["time", "x", "x"])),
        (
            "SELECT count(*) AS x FROM m1",
            json!(["time", "x_v", "x_w"]),
        ),
        (
            "SELECT count(*) AS x, mean(*) FROM m1",
            json!(["time", "x_v", "x_w", "mean_v", "mean_w"]),
        ),
        ("SELECT last(/^w/) AS y FROM m1", json!(["time", "y_w"])),
        (
            "SELECT round(mean(*)) AS r FROM m1",
            json!(["time", "r_v", "r_w"]),
        ),
        ("SELECT * AS z FROM m1", json!(["time", "host", "v", "w"])),
        (
            "SELECT sum(/./) AS s FROM (SELECT mean(*) AS a FROM m1 GROUP BY host)",
            json!(["time", "s_a_v", "s_a_w"]),
        ),
        (
            "SELECT derivative(mean(*)) AS d FROM m1 WHERE time < 5s GROUP BY time(1s)",
            json!(["time", "d_v", "d_w"]),
        ),
    ] {
        assert_eq!(columns(text), expected, "{text}");
    }
    for (text, part) in [
        ("SELECT v AS time FROM m1", "use another name"),
        ("SELECT host AS \"TIME\", v FROM m1", "use another name"),
        (
            "SELECT x FROM (SELECT v AS time FROM m1)",
            "use another name",
        ),
        ("SELECT time FROM m1", "at least 1 non-time field"),
        (
            "SELECT time AS a, time AS b, v FROM m1",
            "several names: a, b",
        ),
        ("SELECT v + time FROM m1", "cannot be used in arithmetic"),
        ("SELECT max(time) FROM m1", "cannot be used in arithmetic"),
        (
            "SELECT mean(*) + 1 FROM m1",
            "unsupported expression with wildcard",
        ),
        (
            "SELECT -mean(/v/) FROM m1",
            "unsupported expression with wildcard",
        ),
        (
            "SELECT * + 1 FROM m1",
            "unsupported expression with wildcard",
        ),
        (
            "SELECT count(*::tag) FROM m1",
            "unable to use tag wildcard in count()",
        ),
    ] {
        let error = world.error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn time_may_stand_in_parts_of_which_not_all_must_hold() {
    let world = two();
    world.check(&[
        // AND binds more tightly than OR.
        ("SELECT v FROM m1 WHERE time > 1s AND v = 1 OR v = 3", json!([[3, 3]])),
        ("SELECT v FROM m1 WHERE time > 2s AND host = 'a' OR host = 'b'", json!([[2, 2], [3, 3]])),
        ("SELECT v FROM m1 WHERE (time > 2s AND v = 3) OR v = 1", json!([[1, 1], [3, 3]])),
        ("SELECT v FROM m1 WHERE (time > 1s) AND (v = 3 OR v = 1)", json!([[3, 3]])),
        ("SELECT v FROM m1 WHERE time = 1s OR time = 3s", json!([[1, 1], [3, 3]])),
        ("SELECT v FROM m1 WHERE time < 2s OR 3s <= time", json!([[1, 1], [3, 3]])),
        ("SELECT v FROM m1 WHERE (time > 2s OR v = 1) AND v < 3", json!([[1, 1]])),
        ("SELECT count(v) FROM m1 WHERE time = 1s OR time = 3s", json!([[1, 2]])),
        ("SELECT sum(v) FROM m1 WHERE (time < 2s OR time > 2s) AND time < 100s", json!([[0, 4]])),
        (
            "SELECT count(v) FROM m1 WHERE (time >= 1s AND time < 2s) OR (time >= 3s AND time < 4s) GROUP BY time(1s)",
            json!([[1, 1], [2, 0], [3, 1]]),
        ),
        ("SELECT x FROM (SELECT v AS x FROM m1) WHERE time = 1s OR x = 2", json!([[1, 1], [2, 2]])),
        ("SELECT v FROM m1 WHERE time > 5s AND time < 1s OR v = 2", json!([[2, 2]])),
        ("SELECT v FROM m1 WHERE (time > 5s AND time < 1s) OR (time > 9s AND time < 8s)", json!([])),
        (
            "SELECT v FROM m1 WHERE time < -9223372036854775808 OR time > 9223372036854775807 OR v = 2",
            json!([[2, 2]]),
        ),
    ]);
    for (text, part) in [
        (
            "SELECT v FROM m1 WHERE time != 1s",
            "(time < 10s OR time > 10s)",
        ),
        (
            "SELECT v FROM m1 WHERE v = 1 OR time = v",
            "time is compared with",
        ),
        (
            "SELECT v FROM m1 WHERE time + 1s > 2s OR v = 1",
            "not used in arithmetic",
        ),
        (
            "SHOW SERIES WHERE time > 1s OR host = 'a'",
            "ask once for each range",
        ),
    ] {
        let error = world.error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
    for text in [
        "DELETE FROM m1 WHERE time = 1s OR time = 3s",
        "DELETE FROM m1 WHERE (time > 1s AND host = 'a') OR host = 'b'",
        "DROP SERIES FROM m1 WHERE time = 1s OR host = 'a'",
    ] {
        world.refused(text);
        assert_eq!(
            world.rows("SELECT v FROM m1"),
            json!([[1, 1], [2, 2], [3, 3]]),
            "{text}"
        );
    }
}

#[test]
fn bits_of_integers_and_booleans() {
    let world = World::new();
    let b = Value::Bool;
    world.write(
        "m",
        &[
            (
                1,
                &[
                    ("i", i(5)),
                    ("j", i(3)),
                    ("f", f(1.5)),
                    ("b", b(true)),
                    ("c", b(false)),
                ],
            ),
            (
                2,
                &[
                    ("i", i(6)),
                    ("j", i(12)),
                    ("f", f(2.5)),
                    ("b", b(false)),
                    ("c", b(true)),
                ],
            ),
        ],
    );
    world.write("other", &[(1, &[("i", f(1.0))])]);
    world.check(&[
        (
            "SELECT i & 3, i | 2, i ^ 1 FROM m",
            json!([[1, 1, 7, 4], [2, 2, 6, 7]]),
        ),
        (
            "SELECT b & c, b | c, b ^ c, b & true FROM m",
            json!([[1, false, true, true, true], [2, false, true, true, false]]),
        ),
        // As tightly as * and /, and as + and -.
        (
            "SELECT 1 + i & 3 * 2, i | 8 + 1, i ^ j | 8, i | j & 4, -i & 7 FROM m",
            json!([[1, 3, 14, 14, 5, 3], [2, 5, 15, 10, 6, 2]]),
        ),
        (
            "SELECT i & -1, i & nope FROM m",
            json!([[1, 5, null], [2, 6, null]]),
        ),
        ("SELECT sum(i) & 3 FROM m", json!([[0, 3]])),
        ("SELECT f::integer & 1 FROM m", json!([[1, 1], [2, 0]])),
        ("SELECT i FROM m WHERE i & 1 = 1", json!([[1, 5]])),
        (
            "SELECT i FROM m WHERE b & c OR b ^ c",
            json!([[1, 5], [2, 6]]),
        ),
        ("SELECT i FROM m WHERE b & c", json!([])),
        (
            "SELECT i FROM m WHERE i & 2 = 2 AND j | 1 = 13",
            json!([[2, 6]]),
        ),
        (
            "SELECT x & 4 FROM (SELECT max(i) AS x FROM m)",
            json!([[2, 4]]),
        ),
    ]);
    for text in [
        "SELECT i & f FROM m",
        "SELECT i | 3.0 FROM m",
        "SELECT i ^ b FROM m",
        "SELECT mean(i) & 3 FROM m",
        "SELECT i & 'x' FROM m",
        "SELECT i FROM m WHERE f & 1 = 1",
        "SELECT i FROM m WHERE i / 2 & 1 = 1",
        "SELECT i & 1 FROM m, other",
    ] {
        let error = world.error(text);
        assert!(error.starts_with("type error: "), "{text}: {error}");
    }
}
