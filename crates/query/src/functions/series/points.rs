//! Points, values with their instants, collected for functions that need them sorted by time.
//!
//! Invariant: [`Points::sorted`] returns them sorted by instant, and within one instant by value,
//! so that the order of rows does not matter.

use crate::error::Error;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use std::sync::Arc;

/// Nanoseconds of a second.
const SECOND_NS: i128 = 1_000_000_000;

/// A value and its instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) ns: i64,
    pub(super) value: f64,
}

/// Points in the order of their rows.
#[derive(Debug, Default)]
pub(super) struct Points {
    all: Vec<Point>,
}

impl Points {
    /// Adds the rows that have both a value and an instant.
    pub(super) fn add(&mut self, times: &ArrayRef, values: &ArrayRef) -> Result<()> {
        let times = numbers(times)?;
        let values = cast(values, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        self.all.reserve(times.len());
        let pairs = times.iter().zip(values.iter());
        let pairs = pairs.filter_map(|(ns, value)| {
            Some(Point {
                ns: ns?,
                value: value?,
            })
        });
        self.all.extend(pairs);
        Ok(())
    }

    /// Adds the points of another partial state: lists of instants and of values.
    pub(super) fn merge(&mut self, times: &ArrayRef, values: &ArrayRef) -> Result<()> {
        let (times, values) = (times.as_list::<i32>(), values.as_list::<i32>());
        for (times, values) in times.iter().zip(values.iter()) {
            if let (Some(times), Some(values)) = (times, values) {
                self.add(&times, &values)?;
            }
        }
        Ok(())
    }

    pub(super) fn state(&self) -> Vec<ScalarValue> {
        let times = self.all.iter().map(|point| point.ns);
        let values = self.all.iter().map(|point| point.value);
        vec![
            list(Arc::new(Int64Array::from_iter_values(times))),
            list(Arc::new(Float64Array::from_iter_values(values))),
        ]
    }

    /// The points, sorted.
    pub(super) fn sorted(&mut self) -> &[Point] {
        let by = |a: &Point, b: &Point| a.ns.cmp(&b.ns).then(a.value.total_cmp(&b.value));
        if !self.all.is_sorted_by(|a, b| by(a, b).is_le()) {
            self.all.sort_unstable_by(by);
        }
        &self.all
    }

    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Point>()
    }
}

/// Instants as numbers of nanoseconds.
pub(super) fn numbers(times: &ArrayRef) -> Result<Int64Array> {
    let numbers = match times.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Int64 => {
            cast(times, &DataType::Int64)?
        }
        _ => {
            let instants = DataType::Timestamp(TimeUnit::Nanosecond, None);
            cast(&cast(times, &instants)?, &DataType::Int64)?
        }
    };
    Ok(numbers.as_primitive::<Int64Type>().clone())
}

/// A single value of list type.
pub(super) fn list(items: ArrayRef) -> ScalarValue {
    let list: ListArray = SingleRowListArrayBuilder::new(items).build_list_array();
    ScalarValue::List(Arc::new(list))
}

/// An integer as the nearest float.
pub(in crate::functions) fn float(number: i64) -> f64 {
    // Both halves are exact, so that there is a single rounding.
    let high = i32::try_from(number >> 32).map_or(f64::NAN, f64::from);
    let low = u32::try_from(number & 0xffff_ffff).map_or(f64::NAN, f64::from);
    high * 4_294_967_296.0 + low
}

/// Seconds between two instants.
pub(crate) fn seconds(begin_ns: i64, end_ns: i64) -> f64 {
    let ns = i128::from(end_ns) - i128::from(begin_ns);
    let whole = i64::try_from(ns.div_euclid(SECOND_NS)).map_or(f64::NAN, float);
    let rest = i64::try_from(ns.rem_euclid(SECOND_NS)).map_or(f64::NAN, float);
    whole + rest / 1e9
}

/// An argument that is a constant of the statement.
pub(in crate::functions) fn constant<'a>(
    name: &str,
    what: &str,
    args: &'a [Arc<dyn PhysicalExpr>],
    place: usize,
) -> Result<&'a ScalarValue> {
    let literal = args
        .get(place)
        .and_then(|arg| arg.downcast_ref::<Literal>());
    literal.map(Literal::value).ok_or_else(|| {
        Error::invalid_value(format!("{name}: {what} must be a constant"))
            .with_hint("use a value, not a column")
            .into()
    })
}

/// A constant integer within bounds.
pub(in crate::functions) fn count(
    name: &str,
    what: &str,
    value: &ScalarValue,
    bounds: std::ops::RangeInclusive<usize>,
) -> Result<usize> {
    let given = match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(Some(given))) => given,
        _ => -1,
    };
    let fits = usize::try_from(given).ok().filter(|n| bounds.contains(n));
    fits.ok_or_else(|| {
        let (least, most) = bounds.into_inner();
        Error::invalid_value(format!(
            "{name}: {what} must be a whole number from {least} to {most}, found {value}"
        ))
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_become_the_nearest_float() {
        for number in [
            0,
            1,
            -1,
            1 << 53,
            i64::MAX,
            i64::MIN,
            4_294_967_296,
            -4_294_967_297,
        ] {
            assert_eq!(float(number).to_string(), (number as f64).to_string());
        }
        assert_eq!(seconds(0, 1_500_000_000).to_string(), "1.5");
        assert_eq!(seconds(1_500_000_000, 0).to_string(), "-1.5");
        assert_eq!(
            seconds(i64::MIN, i64::MAX).to_string(),
            "18446744073.709553"
        );
    }
}
