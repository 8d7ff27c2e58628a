//! What stands in intervals without values.

use super::arithmetic::{finite, number};
use headwater::Value;
use headwater_wire::influxql::Fill;
use std::collections::BTreeMap;

/// Values for the intervals from `first` to `last`, of those that have some. With [`Fill::None`]
/// only those.
pub(super) fn filled(
    values: BTreeMap<i64, Value>,
    first: i64,
    last: i64,
    fill: Fill,
) -> Vec<(i64, Option<Value>)> {
    if fill == Fill::None {
        return values.into_iter().map(|(n, v)| (n, Some(v))).collect();
    }
    let mut out = Vec::new();
    let mut before: Option<(i64, &Value)> = None;
    for number in first..=last {
        let value = values.get(&number);
        let stands = match (value, fill) {
            (Some(value), _) => Some(value.clone()),
            (None, Fill::Null | Fill::None) => None,
            (None, Fill::Integer(v)) => Some(Value::I64(v)),
            (None, Fill::Float(v)) => Some(Value::F64(v)),
            (None, Fill::Previous) => before.map(|(_, v)| v.clone()),
            (None, Fill::Linear) => {
                let after = values.range(number..).next();
                before
                    .zip(after)
                    .and_then(|(a, (n, v))| line(a, (*n, v), number))
            }
        };
        if let Some(value) = value {
            before = Some((number, value));
        }
        out.push((number, stands));
    }
    out
}

/// What lies on the line between two points. Between integers it is an integer, cut.
fn line(a: (i64, &Value), b: (i64, &Value), at: i64) -> Option<Value> {
    let (from, to) = (number(a.1.as_ref())?, number(b.1.as_ref())?);
    let share = (at as f64 - a.0 as f64) / (b.0 as f64 - a.0 as f64);
    let value = from + (to - from) * share;
    match (a.1, b.1) {
        (Value::I64(_) | Value::U64(_), Value::I64(_) | Value::U64(_)) => {
            Some(Value::I64(value as i64))
        }
        _ => finite(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_filling() {
        let values = || BTreeMap::from([(1, Value::F64(1.0)), (4, Value::F64(4.0))]);
        let f = |v| Some(Value::F64(v));
        for (fill, expected) in [
            (Fill::Null, vec![None, f(1.0), None, None, f(4.0), None]),
            (Fill::Integer(7), {
                let seven = Some(Value::I64(7));
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
            let found = filled(values(), 0, 5, fill);
            let numbers: Vec<i64> = found.iter().map(|(n, _)| *n).collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
            let found: Vec<_> = found.into_iter().map(|(_, v)| v).collect();
            assert_eq!(found, expected, "{fill:?}");
        }
        assert_eq!(filled(values(), 0, 5, Fill::None).len(), 2);
        let whole = BTreeMap::from([(0, Value::I64(1)), (2, Value::I64(4))]);
        let line = filled(whole, 0, 2, Fill::Linear);
        assert_eq!(line.get(1), Some(&(1, Some(Value::I64(2)))));
    }
}
