//! Fields read as another type, and what is computed of numbers.

use super::{World, f, i, t};
use serde_json::json;

fn world() -> World {
    let world = World::new();
    world.write(
        "m,host=a",
        &[
            (0, &[("v", f(23.9)), ("n", i(7)), ("s", t("5.5"))]),
            (1, &[("v", f(-1.5)), ("n", i(8)), ("s", t("x"))]),
        ],
    );
    world
}

#[test]
fn numbers_are_read_as_numbers_of_another_type() {
    let world = world();
    world.check(&[
        ("SELECT v::integer FROM m", json!([[0, 23], [1, -1]])),
        ("SELECT n::float / 2 FROM m", json!([[0, 3.5], [1, 4]])),
        (
            "SELECT v::integer, v FROM m",
            json!([[0, 23, 23.9], [1, -1, -1.5]]),
        ),
        ("SELECT sum(v::integer) FROM m", json!([[0, 22]])),
        ("SELECT max(v::integer) FROM m", json!([[0, 23]])),
        ("SELECT last(v::integer) FROM m", json!([[1, -1]])),
        ("SELECT v FROM m WHERE v::integer = 23", json!([[0, 23.9]])),
        ("SELECT v FROM m WHERE v::integer < 0", json!([[1, -1.5]])),
        // What cannot be such a value is not there.
        ("SELECT v::string FROM m", json!([])),
        ("SELECT s::float FROM m", json!([])),
        (
            "SELECT n::boolean, n FROM m",
            json!([[0, null, 7], [1, null, 8]]),
        ),
        (
            "SELECT v::float, s::string FROM m",
            json!([[0, 23.9, "5.5"], [1, -1.5, "x"]]),
        ),
        (
            "SELECT host::tag, host::string, n FROM m",
            json!([[0, "a", null, 7], [1, "a", null, 8]]),
        ),
    ]);
}

#[test]
fn numbers_of_two_numbers() {
    let world = world();
    world.check(&[
        ("SELECT pow(n, 2) FROM m", json!([[0, 49], [1, 64]])),
        ("SELECT log(n, 2) FROM m WHERE n = 8", json!([[1, 3]])),
        ("SELECT pow(max(n), 2) FROM m", json!([[1, 64]])),
        ("SELECT atan2(n, n) * 0 FROM m LIMIT 1", json!([[0, 0]])),
    ]);
    assert!(world.error("SELECT pow(n) FROM m").contains("two numbers"));
}

#[test]
fn distinct_needs_no_parentheses() {
    let world = world();
    world.check(&[
        ("SELECT DISTINCT n FROM m", json!([[0, 7], [0, 8]])),
        ("SELECT count(DISTINCT n) FROM m", json!([[0, 2]])),
        ("SELECT COUNT(DISTINCT(n)) FROM m", json!([[0, 2]])),
    ]);
}

#[test]
fn intervals_may_end_now() {
    let mut world = world();
    world.now = 17;
    world.check(&[(
        "SELECT count(n) FROM m WHERE time > now() - 30s GROUP BY time(10s, now())",
        json!([[-13, 0], [-3, 2], [7, 0], [17, 0]]),
    )]);
}
