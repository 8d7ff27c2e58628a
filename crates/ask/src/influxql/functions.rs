//! The functions: their names, the data that they read, and their results.

use super::arithmetic::{compare, finite, from_wide, number};
use crate::fold::{Bucket, first, last};
use headwater::{FieldType, Sum, Value, ValueRef};
use std::cmp::Ordering;

/// A function that computes one value of many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Function {
    Count,
    CountDistinct,
    Mean,
    Sum,
    Min,
    Max,
    First,
    Last,
    Stddev,
    Spread,
    Median,
    Percentile(f64),
    Mode,
    Distinct,
    /// The area below the line, in values times this many ns.
    Integral(i64),
    /// This many of the greatest values.
    Top(usize),
    /// This many of the smallest values.
    Bottom(usize),
    /// This many values, chosen at random.
    Sample(usize),
}

/// Rows and aggregates that a function needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Aggregate,
    Ends,
    Values,
}

impl Function {
    /// The function of a name, if it has no second argument.
    pub(super) fn named(name: &str) -> Option<Function> {
        Some(match name {
            "count" => Function::Count,
            "mean" => Function::Mean,
            "sum" => Function::Sum,
            "min" => Function::Min,
            "max" => Function::Max,
            "first" => Function::First,
            "last" => Function::Last,
            "stddev" => Function::Stddev,
            "spread" => Function::Spread,
            "median" => Function::Median,
            "mode" => Function::Mode,
            "distinct" => Function::Distinct,
            _ => return None,
        })
    }

    /// The name in statements.
    pub(super) fn name(self) -> &'static str {
        match self {
            Function::Count => "count",
            Function::CountDistinct => "count(distinct)",
            Function::Mean => "mean",
            Function::Sum => "sum",
            Function::Min => "min",
            Function::Max => "max",
            Function::First => "first",
            Function::Last => "last",
            Function::Stddev => "stddev",
            Function::Spread => "spread",
            Function::Median => "median",
            Function::Percentile(_) => "percentile",
            Function::Mode => "mode",
            Function::Distinct => "distinct",
            Function::Integral(_) => "integral",
            Function::Top(_) => "top",
            Function::Bottom(_) => "bottom",
            Function::Sample(_) => "sample",
        }
    }

    pub(super) fn need(self) -> Need {
        match self {
            Function::Count
            | Function::Mean
            | Function::Sum
            | Function::Min
            | Function::Max
            | Function::Stddev
            | Function::Spread => Need::Aggregate,
            Function::First | Function::Last => Need::Ends,
            Function::CountDistinct
            | Function::Median
            | Function::Percentile(_)
            | Function::Mode
            | Function::Distinct
            | Function::Integral(_)
            | Function::Top(_)
            | Function::Bottom(_)
            | Function::Sample(_) => Need::Values,
        }
    }

    /// Whether it accepts values of any type, not only numbers.
    pub(super) fn accepts_any_type(self) -> bool {
        matches!(
            self,
            Function::Count
                | Function::CountDistinct
                | Function::First
                | Function::Last
                | Function::Mode
                | Function::Distinct
                | Function::Sample(_)
        )
    }

    /// Whether the result is one of the values, with its time.
    pub(super) fn is_selector(self) -> bool {
        matches!(
            self,
            Function::Min
                | Function::Max
                | Function::First
                | Function::Last
                | Function::Percentile(_)
        ) || self.returns_rows()
    }

    /// Whether it returns several of the rows, each with its own time.
    pub(super) fn returns_rows(self) -> bool {
        matches!(
            self,
            Function::Top(_) | Function::Bottom(_) | Function::Sample(_)
        )
    }

    /// The result type for a field; `None` if it depends on values.
    pub(super) fn result_type(self, field: FieldType) -> Option<FieldType> {
        match self {
            Function::Count | Function::CountDistinct => Some(FieldType::I64),
            Function::Mean | Function::Stddev | Function::Median | Function::Integral(_) => {
                Some(FieldType::F64)
            }
            // A result out of the range of its type has another type.
            Function::Sum | Function::Spread => (field == FieldType::F64).then_some(FieldType::F64),
            _ if field == FieldType::String && !self.accepts_any_type() => Some(FieldType::F64),
            _ => Some(field),
        }
    }

    /// The result for an interval, from its aggregate or ends.
    pub(super) fn of_bucket(self, bucket: &Bucket, field_type: FieldType) -> Option<Value> {
        let a = bucket.aggregate(0);
        let is_bool = field_type == FieldType::Bool;
        let as_field = |v: Value| match v {
            Value::I64(v) if is_bool => Value::Bool(v != 0),
            other => other,
        };
        match self {
            Function::Count => Some(from_wide(a.count.into())),
            Function::Mean => a.mean().and_then(finite),
            Function::Sum => a.sum().and_then(from_sum),
            Function::Min => a.extremes.min().map(as_field),
            Function::Max => a.extremes.max().map(as_field),
            Function::Spread => a.spread().and_then(from_sum),
            // Sample deviation, as in InfluxDB: missing for a single value.
            Function::Stddev => a.sample_stddev().and_then(finite),
            Function::First => first(bucket).and_then(|end| end.value.clone()),
            Function::Last => last(bucket).and_then(|end| end.value.clone()),
            _ => None,
        }
    }

    /// The index of a percentile among `count` sorted values.
    pub(super) fn rank(self, percent: f64, count: usize) -> Option<usize> {
        let rank = (count as f64 * percent / 100.0 + 0.5).floor();
        (rank >= 1.0 && rank <= count as f64).then(|| rank as usize - 1)
    }

    /// The result for an interval, from its values sorted by time; [`Function::Distinct`] returns
    /// several.
    pub(super) fn of_values(self, values: &mut Vec<(i64, Value)>) -> Vec<(Option<i64>, Value)> {
        let one = |value: Option<Value>| value.map(|v| (None, v)).into_iter().collect();
        match self {
            Function::Median => {
                let mut numbers: Vec<f64> = values
                    .iter()
                    .filter_map(|(_, v)| number(v.as_ref()))
                    .collect();
                numbers.sort_unstable_by(f64::total_cmp);
                let middle = numbers.len() / 2;
                let at = |index: usize| numbers.get(index).copied();
                one(match numbers.len() % 2 {
                    1 => at(middle).and_then(finite),
                    _ => middle
                        .checked_sub(1)
                        .and_then(|below| finite(at(below)? / 2.0 + at(middle)? / 2.0)),
                })
            }
            Function::Percentile(percent) => {
                values.sort_by(|(_, a), (_, b)| order(a, b));
                let at = self.rank(percent, values.len());
                let found = at.and_then(|at| values.get(at));
                found
                    .map(|(time, value)| (Some(*time), value.clone()))
                    .into_iter()
                    .collect()
            }
            Function::Mode => {
                // Among equally frequent values the earliest.
                values.sort_by(|(_, a), (_, b)| order(a, b));
                let mut best: Option<(usize, i64, &Value)> = None;
                for run in values.chunk_by(|(_, a), (_, b)| order(a, b) == Ordering::Equal) {
                    let earliest = run.iter().map(|(t, _)| *t).min().unwrap_or_default();
                    if let Some((_, value)) = run.first()
                        && best.is_none_or(|(n, t, _)| {
                            run.len() > n || (run.len() == n && earliest < t)
                        })
                    {
                        best = Some((run.len(), earliest, value));
                    }
                }
                one(best.map(|(_, _, value)| value.clone()))
            }
            Function::Distinct | Function::CountDistinct => {
                values.sort_by(|(_, a), (_, b)| order(a, b));
                values.dedup_by(|(_, a), (_, b)| order(a, b) == Ordering::Equal);
                if self == Function::CountDistinct {
                    return one((!values.is_empty()).then(|| from_wide(values.len() as i128)));
                }
                values.iter().map(|(_, v)| (None, v.clone())).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The area below the line through values sorted by time, in values times `unit_ns`, for each
/// interval. A line that crosses the end of an interval is cut there, and its rest belongs to the
/// next interval; an interval that has only a value at its beginning has no area. `interval`
/// returns the number, the beginning and the end of an instant's interval.
pub(super) fn areas(
    points: impl IntoIterator<Item = (i64, f64)>,
    unit_ns: i64,
    interval: &dyn Fn(i64) -> (i64, i64, i64),
) -> Vec<(i64, Option<Value>)> {
    let mut out = Vec::new();
    let mut points = points.into_iter();
    let Some(mut before) = points.next() else {
        return out;
    };
    let width = |from: i64, to: i64| (i128::from(to) - i128::from(from)) as f64;
    let between =
        |a: (i64, f64), b: (i64, f64)| width(a.0, b.0) / unit_ns as f64 * (a.1 / 2.0 + b.1 / 2.0);
    let (mut number, mut begin, mut end) = interval(before.0);
    let mut area = 0.0;
    for point in points {
        if point.0 == before.0 {
            before = point;
            continue;
        }
        let next = interval(point.0);
        if next.0 != number {
            if before.0 != end {
                let share = width(before.0, end) / width(before.0, point.0);
                let cut = (end, before.1 + (point.1 - before.1) * share);
                area += between(before, cut);
                before = cut;
            }
            out.push((number, finite(area)));
            area = 0.0;
            (number, begin, end) = next;
        }
        area += between(before, point);
        before = point;
    }
    if before.0 != begin {
        out.push((number, finite(area)));
    }
    out
}

fn from_sum(sum: Sum) -> Option<Value> {
    match sum {
        Sum::Integer(sum) => Some(from_wide(sum)),
        Sum::Float(sum) => finite(sum),
    }
}

/// A total order: values that cannot be compared are ordered by type; NaN is after all numbers.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    let (a, b) = (a.as_ref(), b.as_ref());
    if let Some(ordering) = compare(a, b) {
        return ordering;
    }
    let rank = |v: ValueRef<'_>| match v {
        ValueRef::F64(v) if v.is_nan() => 1,
        ValueRef::F64(_) | ValueRef::I64(_) | ValueRef::U64(_) => 0,
        ValueRef::Bool(_) => 2,
        ValueRef::String(_) => 3,
        ValueRef::Bytes(_) => 4,
    };
    rank(a).cmp(&rank(b))
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    Pow,
    Log,
    Atan2,
}

impl Pair {
    const ALL: [(Pair, &'static str); 3] = [
        (Pair::Pow, "pow"),
        (Pair::Log, "log"),
        (Pair::Atan2, "atan2"),
    ];

    pub(super) fn named(name: &str) -> Option<Pair> {
        let entry = Pair::ALL.iter().find(|(_, n)| *n == name);
        entry.map(|(pair, _)| *pair)
    }

    pub(super) fn of(self, a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Value> {
        let (a, b) = (number(a)?, number(b)?);
        finite(match self {
            Pair::Pow => a.powf(b),
            // Logarithm to the base b.
            Pair::Log => a.ln() / b.ln(),
            Pair::Atan2 => a.atan2(b),
        })
    }
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Math {
    Abs,
    Ceil,
    Floor,
    Round,
    Sqrt,
    Ln,
    Log2,
    Log10,
    Exp,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
}

impl Math {
    const ALL: [(Math, &'static str); 15] = [
        (Math::Abs, "abs"),
        (Math::Ceil, "ceil"),
        (Math::Floor, "floor"),
        (Math::Round, "round"),
        (Math::Sqrt, "sqrt"),
        (Math::Ln, "ln"),
        (Math::Log2, "log2"),
        (Math::Log10, "log10"),
        (Math::Exp, "exp"),
        (Math::Sin, "sin"),
        (Math::Cos, "cos"),
        (Math::Tan, "tan"),
        (Math::Asin, "asin"),
        (Math::Acos, "acos"),
        (Math::Atan, "atan"),
    ];

    pub(super) fn named(name: &str) -> Option<Math> {
        let entry = Math::ALL.iter().find(|(_, n)| *n == name);
        entry.map(|(math, _)| *math)
    }

    pub(super) fn of(self, value: ValueRef<'_>) -> Option<Value> {
        if let (ValueRef::I64(_) | ValueRef::U64(_), Math::Ceil | Math::Floor | Math::Round) =
            (value, self)
        {
            return Some(value.to_owned());
        }
        if let (ValueRef::I64(v), Math::Abs) = (value, self) {
            return Some(from_wide(i128::from(v).abs()));
        }
        let v = number(value)?;
        finite(match self {
            Math::Abs => v.abs(),
            Math::Ceil => v.ceil(),
            Math::Floor => v.floor(),
            Math::Round => v.round(),
            Math::Sqrt => v.sqrt(),
            Math::Ln => v.ln(),
            Math::Log2 => v.log2(),
            Math::Log10 => v.log10(),
            Math::Exp => v.exp(),
            Math::Sin => v.sin(),
            Math::Cos => v.cos(),
            Math::Tan => v.tan(),
            Math::Asin => v.asin(),
            Math::Acos => v.acos(),
            Math::Atan => v.atan(),
        })
    }
}
