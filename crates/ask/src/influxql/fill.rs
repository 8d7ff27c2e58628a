//! Values for empty intervals.

use super::arithmetic::{finite, number};
use headwater::Value;
use headwater_wire::influxql::Fill;
use std::collections::BTreeMap;

/// The fill number of a statement, if any.
pub(super) fn number_of(fill: Fill) -> Option<Value> {
    match fill {
        Fill::Integer(v) => Some(Value::I64(v)),
        Fill::Float(v) => Some(Value::F64(v)),
        Fill::Null | Fill::None | Fill::Previous | Fill::Linear => None,
    }
}

/// The fill number in the type of the neighbouring values: truncated among integers.
pub(super) fn number_among<'a>(
    fill: Fill,
    values: impl IntoIterator<Item = &'a Value>,
) -> Option<Value> {
    let is_whole = |v: &Value| matches!(v, Value::I64(_) | Value::U64(_));
    match number_of(fill) {
        Some(Value::F64(v)) if values.into_iter().all(is_whole) => Some(whole(v)),
        number => number,
    }
}

/// Values for the intervals of a grid, from the first to the last non-empty one. With
/// [`Fill::None`] only the non-empty ones.
pub(super) fn filled(
    values: BTreeMap<i64, Option<Value>>,
    (first, last): (i64, i64),
    fill: Fill,
) -> Vec<(i64, Option<Value>)> {
    if fill == Fill::None {
        return values.into_iter().collect();
    }
    let given = number_among(fill, values.values().flatten());
    let mut out = Vec::new();
    let mut before: Option<(i64, &Value)> = None;
    for number in first..=last {
        let value = values.get(&number);
        let stands = match (value, fill) {
            (Some(value), _) => value.clone(),
            (None, Fill::Previous) => before.map(|(_, v)| v.clone()),
            (None, Fill::Linear) => {
                let after = values
                    .range(number..)
                    .find_map(|(n, v)| Some((*n, v.as_ref()?)));
                before.zip(after).and_then(|(a, b)| line(a, b, number))
            }
            (None, _) => given.clone(),
        };
        if let Some(Some(value)) = value {
            before = Some((number, value));
        }
        out.push((number, stands));
    }
    out
}

/// A number, truncated to an integer.
fn whole(value: f64) -> Value {
    Value::I64(value as i64)
}

/// The linear interpolation of an interval between two others, each given by its number. Between
/// integers the value is an integer, truncated.
fn line(a: (i64, &Value), b: (i64, &Value), interval: i64) -> Option<Value> {
    let (from, to) = (number(a.1.as_ref())?, number(b.1.as_ref())?);
    let share = (interval as f64 - a.0 as f64) / (b.0 as f64 - a.0 as f64);
    let value = from + (to - from) * share;
    match (a.1, b.1) {
        (Value::I64(_) | Value::U64(_), Value::I64(_) | Value::U64(_)) => Some(whole(value)),
        _ => finite(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_filling() {
        let f = |v| Some(Value::F64(v));
        let values = || BTreeMap::from([(1, f(1.0)), (4, f(4.0))]);
        for (fill, expected) in [
            (Fill::Null, vec![None, f(1.0), None, None, f(4.0), None]),
            (Fill::Float(7.0), {
                let seven = Some(Value::F64(7.0));
                vec![
                    seven.clone(),
                    f(1.0),
                    seven.clone(),
                    seven.clone(),
                    f(4.0),
                    seven,
                ]
            }),
            (
                Fill::Previous,
                vec![None, f(1.0), f(1.0), f(1.0), f(4.0), f(4.0)],
            ),
            (
                Fill::Linear,
                vec![None, f(1.0), f(2.0), f(3.0), f(4.0), None],
            ),
        ] {
            let found = filled(values(), (0, 5), fill);
            let numbers: Vec<i64> = found.iter().map(|(n, _)| *n).collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
            let found: Vec<_> = found.into_iter().map(|(_, v)| v).collect();
            assert_eq!(found, expected, "{fill:?}");
        }
        assert_eq!(filled(values(), (0, 5), Fill::None).len(), 2);
        let whole = || BTreeMap::from([(0, Some(Value::I64(1))), (2, Some(Value::I64(4)))]);
        let cut = filled(whole(), (0, 2), Fill::Float(1.5));
        assert_eq!(cut.get(1), Some(&(1, Some(Value::I64(1)))));
        let line = filled(whole(), (0, 2), Fill::Linear);
        assert_eq!(line.get(1), Some(&(1, Some(Value::I64(2)))));
    }
}
