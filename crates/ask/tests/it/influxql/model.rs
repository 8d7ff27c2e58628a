//! Random questions over random rows, answered here a second time in the plainest way: every row is
//! looked at, and nothing is known of pyramids, streams or the order in which rows are stored.

use super::{World, f, i};
use headwater_testing::Dice;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// The tags of a series, and its rows.
type Series = (Vec<String>, Vec<(i64, Option<f64>)>);

#[derive(Clone, Debug)]
struct Row {
    time: i64,
    host: &'static str,
    /// Empty where the series has none.
    dc: &'static str,
    v: Option<f64>,
    n: Option<i64>,
}

const SERIES: [(&str, &str); 5] = [("a", "x"), ("b", "x"), ("c", "y"), ("d", ""), ("e", "y")];
/// Rows are from 0 s to here.
const END: i64 = 400;

/// Rows of some series; a later one of the same instant takes the place of an earlier one.
fn filled(dice: &mut Dice, world: &World) -> Vec<Row> {
    let mut rows = BTreeMap::new();
    for round in 0..4 {
        for _ in 0..40 {
            let (host, dc) = dice.pick(&SERIES);
            let row = Row {
                time: dice.below(END as u64).cast_signed(),
                host,
                dc,
                // Fourths, so that sums do not depend on their order.
                v: dice
                    .chance(80)
                    .then(|| (dice.below(80).cast_signed() - 40) as f64 / 4.0),
                n: dice.chance(60).then(|| dice.below(20).cast_signed() - 10),
            };
            if row.v.is_none() && row.n.is_none() {
                continue;
            }
            let stream = match dc {
                "" => format!("cpu,host={host}"),
                _ => format!("cpu,dc={dc},host={host}"),
            };
            let mut values = Vec::new();
            values.extend(row.v.map(|v| ("v", f(v))));
            values.extend(row.n.map(|n| ("n", i(n))));
            world.write(&stream, &[(row.time, &values)]);
            let there = rows.entry((row.time, host)).or_insert(row.clone());
            // Field by field.
            there.v = row.v.or(there.v);
            there.n = row.n.or(there.n);
        }
        match round {
            0 => world.db.flush().unwrap(),
            1 => world.db.compact().unwrap(),
            _ => {}
        }
    }
    rows.into_values().collect()
}

/// What is asked.
#[derive(Clone, Debug)]
struct Question {
    function: &'static str,
    field: &'static str,
    range: (i64, i64),
    hosts: Option<BTreeSet<&'static str>>,
    /// Only rows whose `v` is above this.
    above: Option<f64>,
    every: Option<(i64, i64)>,
    by: &'static [&'static str],
    fill: &'static str,
    descending: bool,
    limit: Option<(usize, usize)>,
    series: Option<(usize, usize)>,
}

const FUNCTIONS: [&str; 9] = [
    "count", "sum", "mean", "min", "max", "first", "last", "spread", "median",
];
const TAGS: [&[&str]; 5] = [&[], &["host"], &["dc"], &["dc", "host"], &["host", "none"]];

impl Question {
    fn roll(dice: &mut Dice) -> Question {
        let from = dice.below(200).cast_signed() - 20;
        let every = dice.chance(70).then(|| {
            let width = dice.pick(&[5, 7, 10, 30, 60, 400]);
            (width, dice.pick(&[0, 0, 3, -2]))
        });
        let hosts: BTreeSet<_> = SERIES.iter().map(|(host, _)| *host).collect();
        let hosts = hosts.into_iter().filter(|_| dice.chance(60)).collect();
        Question {
            function: dice.pick(&FUNCTIONS),
            field: dice.pick(&["v", "n"]),
            range: (from, from + 1 + dice.below(300).cast_signed()),
            hosts: dice.chance(40).then_some(hosts),
            above: dice
                .chance(30)
                .then(|| dice.below(12).cast_signed() as f64 - 8.0),
            every,
            by: dice.pick(&TAGS),
            fill: match every {
                None => "",
                Some(_) => {
                    dice.pick(&["", "fill(null)", "fill(none)", "fill(-3)", "fill(previous)"])
                }
            },
            descending: dice.chance(30),
            limit: dice
                .chance(30)
                .then(|| (dice.pick(&[1, 2, 5]), dice.pick(&[0, 0, 1, 4]))),
            series: dice
                .chance(20)
                .then(|| (dice.pick(&[1, 2]), dice.pick(&[0, 0, 1]))),
        }
        .usual()
    }

    /// Without what is said to differ elsewhere: what is before an interval depends on the order.
    fn usual(mut self) -> Question {
        if self.fill == "fill(previous)" {
            self.descending = false;
        }
        self
    }

    fn filled_by(&self, fill: &'static str) -> Question {
        Question {
            fill,
            ..self.clone()
        }
    }

    fn condition(&self) -> String {
        let mut parts = vec![format!(
            "time >= {}s AND time < {}s",
            self.range.0, self.range.1
        )];
        if let Some(hosts) = &self.hosts {
            let any: Vec<_> = hosts
                .iter()
                .map(|host| format!("host = '{host}'"))
                .collect();
            parts.push(match any.is_empty() {
                true => "host = 'nobody'".to_owned(),
                false => format!("({})", any.join(" OR ")),
            });
        }
        parts.extend(self.above.map(|v| format!("v > {v}")));
        parts.join(" AND ")
    }

    fn text(&self) -> String {
        let mut groups: Vec<String> = Vec::new();
        groups.extend(
            self.every
                .map(|(width, plus)| format!("time({width}s, {plus}s)")),
        );
        groups.extend(self.by.iter().map(|tag| (*tag).to_owned()));
        let mut text = format!(
            "SELECT {}({}) AS x FROM cpu WHERE {}",
            self.function,
            self.field,
            self.condition()
        );
        if !groups.is_empty() {
            text += &format!(" GROUP BY {}", groups.join(", "));
        }
        text += &format!(" {}", self.fill);
        if self.descending {
            text += " ORDER BY time DESC";
        }
        if let Some((limit, offset)) = self.limit {
            text += &format!(" LIMIT {limit} OFFSET {offset}");
        }
        if let Some((limit, offset)) = self.series {
            text += &format!(" SLIMIT {limit} SOFFSET {offset}");
        }
        text
    }

    /// Every value that counts: its series' tags, its instant, and itself.
    fn values<'a>(&'a self, rows: &'a [Row]) -> impl Iterator<Item = (Vec<String>, i64, f64)> + 'a {
        rows.iter().filter_map(|row| {
            let is_in = (self.range.0..self.range.1).contains(&row.time)
                && self
                    .hosts
                    .as_ref()
                    .is_none_or(|hosts| hosts.contains(row.host))
                && self
                    .above
                    .is_none_or(|v| row.v.is_some_and(|found| found > v));
            let value = match self.field {
                "v" => row.v,
                _ => row.n.map(|n| n as f64),
            };
            let tags = self.by.iter().map(|tag| match *tag {
                "host" => row.host.to_owned(),
                "dc" => row.dc.to_owned(),
                _ => String::new(),
            });
            value
                .filter(|_| is_in)
                .map(|value| (tags.collect(), row.time, value))
        })
    }

    /// The value of a function, and the instant of the value that it chose.
    fn of(&self, values: &[(i64, f64)]) -> (f64, Option<i64>) {
        let count = values.len() as f64;
        let sum: f64 = values.iter().map(|(_, value)| value).sum();
        let chosen = |best: (i64, f64)| (best.1, Some(best.0));
        let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        let at = |wanted: f64| *values.iter().find(|(_, value)| *value == wanted).unwrap();
        // Of several values of one instant the greatest.
        let greatest_at = |time: i64| {
            let of_it = values.iter().filter(|(at, _)| *at == time);
            (
                time,
                of_it.map(|(_, value)| *value).fold(f64::MIN, f64::max),
            )
        };
        match self.function {
            "count" => (count, None),
            "sum" => (sum, None),
            "mean" => (sum / count, None),
            "spread" => (most - least, None),
            "min" => chosen(at(least)),
            "max" => chosen(at(most)),
            "first" => chosen(greatest_at(values[0].0)),
            "last" => chosen(greatest_at(values[values.len() - 1].0)),
            _ => {
                let half = sorted.len() / 2;
                let even = sorted.len().is_multiple_of(2);
                let low = sorted[if even { half - 1 } else { half }];
                (f64::midpoint(low, sorted[half]), None)
            }
        }
    }

    /// The answer: for each series its tags and its rows.
    fn answer(&self, rows: &[Row]) -> Vec<Series> {
        let mut series: BTreeMap<Vec<String>, Vec<(i64, f64)>> = BTreeMap::new();
        for (tags, time, value) in self.values(rows) {
            series.entry(tags).or_default().push((time, value));
        }
        let mut all: Vec<_> = series
            .into_iter()
            .map(|(tags, mut values)| {
                // Rows stand in the order of their hosts; time comes first.
                values.sort_by_key(|(time, _)| *time);
                (tags, self.rows(&values))
            })
            .collect();
        if self.descending {
            all.reverse();
        }
        let (most, past) = self.series.unwrap_or((usize::MAX, 0));
        let mut all: Vec<_> = all.into_iter().skip(past).take(most).collect();
        let (most, past) = self.limit.unwrap_or((usize::MAX, 0));
        for (_, rows) in &mut all {
            if self.descending {
                rows.reverse();
            }
            *rows = rows.iter().copied().skip(past).take(most).collect();
        }
        all.retain(|(_, rows)| !rows.is_empty());
        all
    }

    fn rows(&self, values: &[(i64, f64)]) -> Vec<(i64, Option<f64>)> {
        let Some((width, plus)) = self.every else {
            let (value, at) = self.of(values);
            return vec![(at.unwrap_or(self.range.0), Some(value))];
        };
        let begin = |time: i64| (time - plus).div_euclid(width) * width + plus;
        let mut out: Vec<(i64, Option<f64>)> = Vec::new();
        let mut at = begin(self.range.0);
        while at < self.range.1 {
            let within: Vec<_> = values
                .iter()
                .copied()
                .filter(|(time, _)| begin(*time) == at)
                .collect();
            let found = (!within.is_empty()).then(|| self.of(&within).0);
            let empty = match (self.fill, self.function) {
                ("fill(none)", _) => None,
                ("fill(-3)", _) => Some(Some(-3.0)),
                ("fill(previous)", _) => Some(out.last().and_then(|(_, value)| *value)),
                ("" | "fill(null)", "count") => Some(Some(0.0)),
                _ => Some(None),
            };
            out.extend(found.map(Some).or(empty).map(|value| (at, value)));
            at += width;
        }
        out
    }
}

/// What was answered, in the same form.
fn answered_series(question: &Question, series: &Json) -> Vec<Series> {
    let of = |one: &Json| {
        let tags = question
            .by
            .iter()
            .map(|tag| one["tags"][tag].as_str().unwrap().to_owned());
        let rows = one["values"].as_array().unwrap().iter();
        let rows = rows.map(|row| (row[0].as_i64().unwrap(), row[1].as_f64()));
        (tags.collect(), rows.collect())
    };
    series.as_array().unwrap().iter().map(of).collect()
}

fn near(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
        (a, b) => a.is_none() && b.is_none(),
    }
}

#[test]
fn random_questions_have_the_answers_of_a_plain_reading() {
    let seeds = std::env::var("HEADWATER_INFLUXQL_SEEDS").map_or(6, |n| n.parse().unwrap());
    let first = std::env::var("HEADWATER_INFLUXQL_SEED").map_or(1, |n| n.parse().unwrap());
    for seed in first..first + seeds {
        let mut dice =
            Dice::new(0x9e37_79b9_7f4a_7c15 ^ u64::wrapping_mul(seed, 0x2545_f491_4f6c_dd1d));
        let world = World::new();
        let rows = filled(&mut dice, &world);
        for _ in 0..150 {
            let question = Question::roll(&mut dice);
            let text = question.text();
            let (found, expected) = (
                answered_series(&question, &world.series(&text)),
                question.answer(&rows),
            );
            let is_same = found.len() == expected.len()
                && found.iter().zip(&expected).all(|(a, b)| {
                    let rows = || a.1.iter().zip(&b.1);
                    a.0 == b.0
                        && a.1.len() == b.1.len()
                        && rows().all(|(a, b)| a.0 == b.0 && near(a.1, b.1))
                });
            assert!(
                is_same,
                "seed {seed}: {text}\n found {found:?}\n wanted {expected:?}"
            );
            within(&question, &rows, &world, seed);
        }
    }
}

/// The same question within another one: of its rows the greatest, and how many there are.
fn within(question: &Question, rows: &[Row], world: &World, seed: u64) {
    if question.limit.is_some() || question.series.is_some() || question.descending {
        return;
    }
    // Empty intervals of a question within are not there, unless its `fill` puts something in.
    let fill = match question.fill {
        "" | "fill(null)" => "fill(none)",
        fill => fill,
    };
    let inner = question.filled_by(fill).answer(rows);
    let values: Vec<f64> = inner
        .iter()
        .flat_map(|(_, rows)| rows.iter().filter_map(|(_, value)| *value))
        .collect();
    let text = format!("SELECT count(x), max(x) FROM ({})", question.text());
    let found = world.rows(&text);
    let most = values.iter().copied().reduce(f64::max);
    let expected = most.map(|most| json!([values.len(), most]));
    let told = found.get(0).map(|row| json!([row[1], row[2]]));
    let is_same = match (&told, &expected) {
        (Some(a), Some(b)) => a[0] == b[0] && near(a[1].as_f64(), b[1].as_f64()),
        (a, b) => a.is_none() && b.is_none(),
    };
    assert!(
        is_same,
        "seed {seed}: {text}: {told:?}, wanted {expected:?}"
    );
}
