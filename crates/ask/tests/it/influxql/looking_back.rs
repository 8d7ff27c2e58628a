//! Functions of aggregates look at the interval before the range, as InfluxDB does.

use super::{World, f, i};
use serde_json::json;

/// `v` is the square of the number of ten seconds, `n` counts rows; every 5 s from 0 to 195.
fn squares() -> World {
    let world = World::new();
    for step in 0..40 {
        let second = step * 5;
        let v = ((second / 10) * (second / 10)) as f64;
        world.write("m,host=a", &[(second, &[("v", f(v)), ("n", i(second))])]);
    }
    world
}

#[test]
fn the_first_interval_is_compared_with_the_one_before_the_range() {
    let world = squares();
    let range = "time >= 50s AND time < 80s GROUP BY time(10s)";
    world.check(&[
        (
            &format!("SELECT difference(mean(v)) FROM m WHERE {range}"),
            json!([[50, 9], [60, 11], [70, 13]]),
        ),
        (
            &format!("SELECT derivative(mean(v), 1s) FROM m WHERE {range}"),
            json!([[50, 0.9], [60, 1.1], [70, 1.3]]),
        ),
        (
            &format!("SELECT derivative(mean(v)) FROM m WHERE {range}"),
            json!([[50, 9], [60, 11], [70, 13]]),
        ),
        (
            &format!("SELECT non_negative_derivative(max(v), 10s) FROM m WHERE {range}"),
            json!([[50, 9], [60, 11], [70, 13]]),
        ),
        (
            &format!("SELECT non_negative_difference(last(n)) FROM m WHERE {range}"),
            json!([[50, 10], [60, 10], [70, 10]]),
        ),
        (
            &format!("SELECT elapsed(mean(v), 1s) FROM m WHERE {range}"),
            json!([[50, 10], [60, 10], [70, 10]]),
        ),
        // One interval more, however many values are averaged.
        (
            &format!("SELECT moving_average(mean(v), 2) FROM m WHERE {range}"),
            json!([[50, 20.5], [60, 30.5], [70, 42.5]]),
        ),
        (
            &format!("SELECT moving_average(mean(v), 3) FROM m WHERE {range}"),
            json!([[60, 77.0 / 3.0], [70, 110.0 / 3.0]]),
        ),
        // A sum so far begins with the range.
        (
            &format!("SELECT cumulative_sum(mean(v)) FROM m WHERE {range}"),
            json!([[50, 25], [60, 61], [70, 110]]),
        ),
        // One within the other: two intervals more.
        (
            &format!("SELECT difference(difference(mean(v))) FROM m WHERE {range}"),
            json!([[50, 2], [60, 2], [70, 2]]),
        ),
        (
            &format!("SELECT difference(moving_average(mean(v), 2)) FROM m WHERE {range}"),
            json!([[50, 8], [60, 10], [70, 12]]),
        ),
        // Other columns keep to the range.
        (
            &format!("SELECT difference(mean(v)), mean(v), count(v) FROM m WHERE {range}"),
            json!([[50, 9, 25, 2], [60, 11, 36, 2], [70, 13, 49, 2]]),
        ),
        (
            &format!("SELECT difference(mean(v)) * 2 FROM m WHERE {range}"),
            json!([[50, 18], [60, 22], [70, 26]]),
        ),
        // By rows, since there is a condition on a field.
        (
            &format!("SELECT difference(mean(v)) FROM m WHERE n >= 0 AND {range}"),
            json!([[50, 9], [60, 11], [70, 13]]),
        ),
    ]);
}

#[test]
fn the_interval_before_begins_one_width_before_the_range() {
    let world = squares();
    // The range begins within an interval, and so does what is looked at before it: at 45 s.
    world.check(&[
        (
            "SELECT sum(n) FROM m WHERE time >= 55s AND time < 80s GROUP BY time(10s)",
            json!([[50, 55], [60, 125], [70, 145]]),
        ),
        (
            "SELECT difference(sum(n)) FROM m WHERE time >= 55s AND time < 80s GROUP BY time(10s)",
            json!([[50, 60], [60, 20], [70, 20]]),
        ),
    ]);
    // Nothing lies before the first value.
    world.check(&[(
        "SELECT difference(mean(v)) FROM m WHERE time < 30s GROUP BY time(10s)",
        json!([[10, 1], [20, 3]]),
    )]);
}

#[test]
fn empty_intervals_before_the_range_are_filled_too() {
    let world = World::new();
    world.write("m", &[(50, &[("v", f(3.0))]), (70, &[("v", f(5.0))])]);
    let range = "time >= 50s AND time < 80s GROUP BY time(10s)";
    world.check(&[
        (
            &format!("SELECT difference(count(v)) FROM m WHERE {range}"),
            json!([[50, 1], [60, -1], [70, 1]]),
        ),
        (
            &format!("SELECT difference(mean(v)) FROM m WHERE {range} fill(0)"),
            json!([[50, 3], [60, -3], [70, 5]]),
        ),
        (
            &format!("SELECT non_negative_difference(mean(v)) FROM m WHERE {range} fill(0)"),
            json!([[50, 3], [70, 5]]),
        ),
        (
            &format!("SELECT difference(mean(v)) FROM m WHERE {range}"),
            json!([[70, 2]]),
        ),
        (
            &format!("SELECT difference(mean(v)) FROM m WHERE {range} fill(previous)"),
            json!([[60, 0], [70, 2]]),
        ),
        (
            &format!("SELECT difference(mean(v)) FROM m WHERE {range} fill(linear)"),
            json!([[60, 1], [70, 1]]),
        ),
        (
            &format!("SELECT elapsed(mean(v), 1s) FROM m WHERE {range}"),
            json!([[70, 20]]),
        ),
        // A column without a value where another one has one is filled as well.
        (
            &format!(
                "SELECT non_negative_difference(mean(v)), mean(v) FROM m WHERE {range} fill(0)"
            ),
            json!([[50, 3, 3], [60, 0, 0], [70, 5, 5]]),
        ),
    ]);
}

#[test]
fn newest_first_is_compared_with_what_is_newer() {
    let world = squares();
    let range = "time >= 50s AND time < 80s GROUP BY time(10s) ORDER BY time DESC";
    world.check(&[
        (
            &format!("SELECT mean(v) FROM m WHERE {range}"),
            json!([[70, 49], [60, 36], [50, 25]]),
        ),
        (
            &format!("SELECT difference(mean(v)) FROM m WHERE {range}"),
            json!([[70, -15], [60, -13], [50, -11]]),
        ),
        (
            &format!("SELECT cumulative_sum(mean(v)) FROM m WHERE {range}"),
            json!([[70, 49], [60, 85], [50, 110]]),
        ),
    ]);
}

#[test]
fn of_several_values_of_one_instant_the_first_is_compared() {
    let world = World::new();
    for (host, plus) in [("a", 0.0), ("b", 100.0)] {
        world.write(
            &format!("m,host={host}"),
            &[(1, &[("v", f(1.0 + plus))]), (3, &[("v", f(4.0 + plus))])],
        );
    }
    world.check(&[
        ("SELECT difference(v) FROM m", json!([[3, 3]])),
        ("SELECT derivative(v, 1s) FROM m", json!([[3, 1.5]])),
        (
            "SELECT elapsed(v, 1s) FROM m",
            json!([[1, 0], [3, 2], [3, 0]]),
        ),
    ]);
}

#[test]
fn the_area_below_a_line_is_cut_at_the_ends_of_intervals() {
    let world = World::new();
    world.write(
        "m",
        &[
            (5, &[("v", f(0.0))]),
            (15, &[("v", f(10.0))]),
            (25, &[("v", f(10.0))]),
            (40, &[("v", f(10.0))]),
        ],
    );
    world.check(&[
        ("SELECT integral(v) FROM m", json!([[0, 300]])),
        (
            "SELECT integral(v) FROM m WHERE time >= 0 AND time < 60s GROUP BY time(10s)",
            // What lies over an empty interval belongs to the next one that has a value; the last
            // value stands at the beginning of its interval, which so has no area.
            json!([[0, 12.5], [10, 87.5], [20, 100]]),
        ),
        (
            "SELECT integral(v, 10s) FROM m WHERE time >= 0 AND time < 60s GROUP BY time(20s)",
            json!([[0, 10], [20, 20]]),
        ),
    ]);
}
