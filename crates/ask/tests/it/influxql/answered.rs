//! What other questions answered: their tags, rows without the value asked for, and names.

use super::{World, f, i, t};
use serde_json::json;

fn cpu() -> World {
    let world = World::new();
    let row = |second: i64, v: f64, s: &str| {
        let values = [("v", f(v)), ("c", i(second * 10)), ("s", t(s))];
        (second, values)
    };
    for (tags, second, v, s) in [
        ("cpu,host=a,dc=x", 1, 1.0, "p"),
        ("cpu,host=a,dc=x", 2, 2.0, "q"),
        ("cpu,host=b,dc=x", 3, 3.0, "r"),
        ("cpu,host=b,dc=y", 4, 4.0, "r"),
    ] {
        let (second, values) = row(second, v, s);
        world.write(tags, &[(second, &values)]);
    }
    world.write(
        "q,host=a",
        &[(1, &[("a", f(1.0)), ("b", f(1.0))]), (2, &[("b", f(2.0))])],
    );
    world.write("q", &[(3, &[("b", f(3.0))]), (4, &[("a", f(4.0))])]);
    world
}

#[test]
fn tags_alone_are_rows_of_what_another_question_answered() {
    let world = cpu();
    let hosts = json!([[1, "a"], [2, "a"], [3, "b"], [4, "b"]]);
    world.check(&[
        (
            "SELECT host FROM (SELECT mean(v) AS m FROM cpu GROUP BY host) WHERE m < 3",
            json!([[0, "a"]]),
        ),
        ("SELECT host FROM (SELECT mean(v) AS m FROM cpu GROUP BY host)", json!([[0, "a"], [0, "b"]])),
        ("SELECT host::tag AS h FROM (SELECT mean(v) FROM cpu GROUP BY host)", json!([[0, "a"], [0, "b"]])),
        ("SELECT *::tag FROM (SELECT mean(v) FROM cpu GROUP BY host, dc)", json!([
            [0, "x", "a"], [0, "x", "b"], [0, "y", "b"]])),
        ("SELECT host FROM (SELECT v FROM cpu GROUP BY *)", hosts.clone()),
        ("SELECT host FROM (SELECT v, host FROM cpu)", hosts.clone()),
        ("SELECT host FROM (SELECT v FROM cpu GROUP BY /ho/)", hosts.clone()),
        ("SELECT host, dc FROM (SELECT v FROM cpu GROUP BY *) WHERE v > 2", json!([
            [3, "b", "x"], [4, "b", "y"]])),
        // Two levels, with conditions on what the innermost computes.
        (
            "SELECT host FROM (SELECT m FROM (SELECT mean(v) AS m FROM cpu GROUP BY host, dc) WHERE m > 1 GROUP BY host)",
            json!([[0, "a"], [0, "b"], [0, "b"]]),
        ),
        (
            "SELECT host FROM (SELECT host FROM (SELECT mean(v) AS m FROM cpu GROUP BY host))",
            json!([[0, "a"], [0, "b"]]),
        ),
        (
            "SELECT host, dc FROM (SELECT count(*) AS ten FROM (SELECT mean(v) AS mv FROM cpu WHERE time >= 0 AND time < 10s GROUP BY time(1s), host, dc) WHERE mv > 1 GROUP BY host, dc) WHERE ten_mv > 0",
            json!([[0, "a", "x"], [0, "b", "x"], [0, "b", "y"]]),
        ),
        ("SELECT host FROM (SELECT count(*) AS x FROM cpu GROUP BY host) WHERE x_v > 1", json!([[0, "a"], [0, "b"]])),
        (
            "SELECT host FROM (SELECT mean(v) AS m FROM cpu WHERE time >= 3s AND time < 5s GROUP BY host, time(1s) fill(0))",
            json!([[3, "b"], [4, "b"]]),
        ),
        ("SELECT host FROM (SELECT mean(v) AS m FROM cpu GROUP BY host) LIMIT 1", json!([[0, "a"]])),
        ("SELECT host FROM (SELECT mean(v) AS m FROM cpu GROUP BY host) WHERE host = 'b'", json!([[0, "b"]])),
        // What is not there makes no rows.
        ("SELECT host FROM cpu", json!([])),
        ("SELECT host FROM (SELECT v FROM cpu)", json!([])),
        ("SELECT nope FROM (SELECT mean(v) FROM cpu GROUP BY host)", json!([])),
        ("SELECT dc FROM (SELECT v FROM cpu GROUP BY host) GROUP BY dc", json!([])),
        ("SELECT host, nope FROM (SELECT mean(v) FROM cpu GROUP BY host)", json!([[0, "a", null], [0, "b", null]])),
        // Functions of tags are of texts.
        ("SELECT count(host) FROM (SELECT v FROM cpu GROUP BY host)", json!([[0, 4]])),
        ("SELECT distinct(host) FROM (SELECT v FROM cpu GROUP BY host)", json!([[0, "a"], [0, "b"]])),
        ("SELECT count(host) FROM (SELECT host, v FROM cpu)", json!([[0, 4]])),
        ("SELECT count(host) FROM cpu", json!([])),
    ]);
    let by_host = json!([
        { "name": "cpu", "tags": {"host": "a"}, "columns": ["time", "host"], "values": [[0, "a"]] },
        { "name": "cpu", "tags": {"host": "b"}, "columns": ["time", "host"], "values": [[0, "b"]] },
    ]);
    for by in ["host", "*"] {
        let text =
            format!("SELECT host FROM (SELECT mean(v) AS m FROM cpu GROUP BY host) GROUP BY {by}");
        assert_eq!(world.series(&text), by_host, "{text}");
    }
}

#[test]
fn a_row_is_there_whatever_is_asked_of_it() {
    let world = cpu();
    world.check(&[
        (
            "SELECT host, a FROM (SELECT a, b FROM q GROUP BY host)",
            json!([[1, "a", 1], [2, "a", null], [3, "", null], [4, "", 4]]),
        ),
        (
            "SELECT a FROM (SELECT a, b FROM q GROUP BY host)",
            json!([[1, 1], [2, null], [3, null], [4, 4]]),
        ),
        (
            "SELECT a FROM (SELECT a, b FROM q) WHERE b > 0",
            json!([[1, 1], [2, null], [3, null]]),
        ),
        (
            "SELECT *::tag FROM (SELECT a, b FROM q GROUP BY host)",
            json!([[1, "a"], [2, "a"], [3, ""], [4, ""]]),
        ),
        (
            "SELECT count(host) FROM (SELECT a, b FROM q GROUP BY host)",
            json!([[0, 4]]),
        ),
        (
            "SELECT count(a) FROM (SELECT a, b FROM q GROUP BY host)",
            json!([[0, 2]]),
        ),
        (
            "SELECT host, a FROM (SELECT a FROM q GROUP BY host)",
            json!([[1, "a", 1], [4, "", 4]]),
        ),
    ]);
}

#[test]
fn functions_wildcards_and_fills_at_two_levels() {
    let world = cpu();
    world.check(&[
        ("SELECT host, top FROM (SELECT top(v, host, 2) FROM cpu)", json!([[2, "a", 2], [4, "b", 4]])),
        ("SELECT top(m, 1), host FROM (SELECT mean(v) AS m FROM cpu GROUP BY host)", json!([[0, 3.5, "b"]])),
        ("SELECT top(m, host, 2) FROM (SELECT mean(v) AS m FROM cpu GROUP BY host)", json!([
            [0, 3.5, "b"], [0, 1.5, "a"]])),
        ("SELECT bottom(m, 1) FROM (SELECT mean(v) AS m FROM cpu GROUP BY host)", json!([[0, 1.5]])),
        ("SELECT host, max(m) FROM (SELECT mean(v) AS m FROM cpu GROUP BY host)", json!([[0, "b", 3.5]])),
        ("SELECT max(/m|x/) FROM (SELECT mean(v) AS m, max(c) AS x FROM cpu GROUP BY host)", json!([
            [0, 3.5, 40]])),
        ("SELECT sum(/.*/) AS s FROM (SELECT mean(/v|c/) FROM cpu GROUP BY host)", json!([[0, 50, 5]])),
        ("SELECT mean(*) AS q FROM (SELECT mean(*) AS a FROM cpu GROUP BY host)", json!([[0, 25, 2.5]])),
        ("SELECT sum(m) FROM (SELECT mean(v) AS m FROM cpu WHERE time >= 0 AND time < 8s GROUP BY time(1s) fill(5))", json!([[0, 30]])),
        ("SELECT m FROM (SELECT mean(v) AS m FROM cpu WHERE time >= 0 AND time < 8s GROUP BY time(1s) fill(null))", json!([
            [1, 1], [2, 2], [3, 3], [4, 4]])),
        ("SELECT s FROM (SELECT s, v FROM cpu) WHERE v > 1", json!([[2, "q"], [3, "r"], [4, "r"]])),
        ("SELECT host FROM (SELECT v + 1 AS z, host FROM cpu) WHERE z > 2", json!([
            [2, "a"], [3, "b"], [4, "b"]])),
        ("SELECT sum(x_v) FROM (SELECT count(*) AS x FROM cpu GROUP BY host)", json!([[0, 4]])),
        ("SELECT a_v + a_c * 2 AS z FROM (SELECT mean(*) AS a FROM cpu)", json!([[0, 52.5]])),
        ("SELECT ten FROM (SELECT count(*) AS ten FROM (SELECT mean(v) AS mv FROM cpu GROUP BY host))", json!([])),
    ]);
    let tags = |text: &str| {
        let series = world.series(text);
        let list = series.as_array().unwrap().iter();
        Vec::from_iter(list.map(|one| (one["tags"].clone(), one["values"].clone())))
    };
    assert_eq!(
        tags("SELECT max(m) FROM (SELECT mean(v) AS m FROM cpu GROUP BY *) GROUP BY *"),
        [
            (json!({"dc": "x", "host": "a"}), json!([[0, 1.5]])),
            (json!({"dc": "x", "host": "b"}), json!([[0, 3]])),
            (json!({"dc": "y", "host": "b"}), json!([[0, 4]])),
        ]
    );
    assert_eq!(
        tags(
            "SELECT count(m) FROM (SELECT mean(v) AS m FROM cpu WHERE time >= 0 AND time < 8s GROUP BY time(1s), host fill(linear)) GROUP BY host"
        ),
        [
            (json!({"host": "a"}), json!([[0, 2]])),
            (json!({"host": "b"}), json!([[0, 2]]))
        ]
    );
    assert_eq!(
        tags("SELECT host FROM (SELECT v FROM cpu GROUP BY host) WHERE v > 1 GROUP BY dc"),
        [
            (json!({"dc": "x"}), json!([[2, "a"], [3, "b"]])),
            (json!({"dc": "y"}), json!([[4, "b"]])),
        ]
    );
}

/// A limit that cuts nothing has the rows held.
#[test]
fn rows_that_are_read_as_they_are_asked_for_are_those_that_are_held() {
    let world = cpu();
    world.write(
        "cpu,host=c",
        &[(6, &[("v", f(9.0)), ("u", t("5"))]), (5, &[("s", t("z"))])],
    );
    let inner = [
        "SELECT v, c FROM cpu GROUP BY host",
        "SELECT v AS x, c, s FROM cpu WHERE v > 1 OR s = 'z'",
        "SELECT v / c AS x, v, sqrt(v) AS c FROM cpu GROUP BY *",
        "SELECT * FROM cpu WHERE time > 1s",
        "SELECT host, v AS x, c FROM cpu, q WHERE time >= 2s AND time < 4s OR v = 1",
        "SELECT v::integer AS x, c::float FROM cpu GROUP BY host, dc",
        "SELECT u / 2 AS x, v FROM cpu",
        "SELECT a AS x, b AS c FROM q GROUP BY host",
        "SELECT v AS x, c AS x FROM cpu",
    ];
    let outer = [
        ("SELECT x, c, v", ""),
        ("SELECT *", ""),
        ("SELECT *", "GROUP BY *"),
        (
            "SELECT mean(x), count(c), sum(v)",
            "WHERE time < 9s GROUP BY time(2s), host fill(none)",
        ),
        ("SELECT max(x), host", "GROUP BY dc"),
        ("SELECT last(*)", "WHERE c > 10 OR x < 3"),
        ("SELECT difference(x)", "GROUP BY host"),
        ("SELECT percentile(c, 50), first(x)", ""),
        ("SELECT x", "ORDER BY time DESC LIMIT 2"),
        ("SELECT count(host), count(dc)", "WHERE host != 'b'"),
        ("SELECT count(x)", "WHERE time > 2s"),
    ];
    let mut with_rows = 0;
    for inner in inner {
        for (what, how) in outer {
            let asked = |limit: &str| world.series(&format!("{what} FROM ({inner}{limit}) {how}"));
            let (read, held) = (asked(""), asked(" LIMIT 1000000"));
            assert_eq!(read, held, "{what} FROM ({inner}) {how}");
            with_rows += usize::from(read != json!([]));
        }
    }
    assert!(with_rows > 60, "{with_rows}");
}
