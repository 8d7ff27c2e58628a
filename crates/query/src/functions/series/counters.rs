//! Changes of a counter or a gauge over time: its rise, and its resets.

use super::points::{Point, list, seconds};
use crate::columns::time_type;
use arrow::array::{ArrayRef, StructArray};
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{Result, ScalarValue};
use std::sync::Arc;

/// A record of named values.
pub(super) fn record(fields: &Fields, values: Vec<ScalarValue>) -> Result<ScalarValue> {
    let columns = values.iter().map(|value| value.to_array_of_size(1));
    let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
    let made = StructArray::try_new(fields.clone(), columns, None)?;
    Ok(ScalarValue::Struct(Arc::new(made)))
}

/// Fields that may be absent.
pub(super) fn fields(of: &[(&str, DataType)]) -> Fields {
    let fields = of
        .iter()
        .map(|(name, of)| Field::new(*name, of.clone(), true));
    fields.collect()
}

/// An instant as a value.
pub(super) fn instant(ns: i64) -> ScalarValue {
    ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into()))
}

/// The fields of the first and the last point.
pub(super) fn ends() -> [(&'static str, DataType); 4] {
    [
        ("first_time", time_type()),
        ("first_value", DataType::Float64),
        ("last_time", time_type()),
        ("last_value", DataType::Float64),
    ]
}

/// The values of [`ends`].
pub(super) fn end_values(points: &[Point]) -> Option<Vec<ScalarValue>> {
    let (first, last) = (points.first()?, points.last()?);
    Some(vec![
        instant(first.ns),
        ScalarValue::from(first.value),
        instant(last.ns),
        ScalarValue::from(last.value),
    ])
}

/// The fields of the summary of a counter; a gauge does not have a number of resets.
pub(super) fn summary_fields(counter: bool) -> Fields {
    let mut all = ends().to_vec();
    all.push(("delta", DataType::Float64));
    all.push(("changes", DataType::Int64));
    all.push(("elements", DataType::Int64));
    if counter {
        all.push(("resets", DataType::Int64));
    }
    fields(&all)
}

/// A counter increases, and restarts at zero when its device does: a value below the previous one
/// is the increase since the reset. A gauge may decrease.
pub(super) fn summary(points: &[Point], counter: bool) -> Result<Option<ScalarValue>> {
    let Some(mut values) = end_values(points) else {
        return Ok(None);
    };
    let (mut delta, mut changes, mut resets) = (0.0, 0i64, 0i64);
    for (before, after) in points.iter().zip(points.iter().skip(1)) {
        let reset = counter && after.value < before.value;
        delta += match reset {
            true => after.value,
            false => after.value - before.value,
        };
        resets += i64::from(reset);
        changes += i64::from(after.value.total_cmp(&before.value).is_ne());
    }
    values.push(ScalarValue::from(delta));
    values.push(ScalarValue::from(changes));
    values.push(ScalarValue::from(
        i64::try_from(points.len()).unwrap_or(i64::MAX),
    ));
    if counter {
        values.push(ScalarValue::from(resets));
    }
    record(&summary_fields(counter), values).map(Some)
}

/// Interpolation between points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// Linear interpolation to the next point.
    Linear,
    /// The value of the previous point.
    Last,
}

/// The area below the points, in seconds times their unit.
pub(super) fn area(points: &[Point], between: Between) -> f64 {
    let pairs = points.iter().zip(points.iter().skip(1));
    let areas = pairs.map(|(before, after)| {
        let width = seconds(before.ns, after.ns);
        match between {
            Between::Linear => (before.value + after.value) / 2.0 * width,
            Between::Last => before.value * width,
        }
    });
    // The sum of no areas is zero, not negative zero.
    areas.fold(0.0, |sum, area| sum + area)
}

/// The fields of values weighted by their duration.
pub(super) fn weight_fields() -> Fields {
    let mut all = ends().to_vec();
    all.push(("area", DataType::Float64));
    fields(&all)
}

pub(super) fn weight(points: &[Point], between: Between) -> Result<Option<ScalarValue>> {
    let Some(mut values) = end_values(points) else {
        return Ok(None);
    };
    values.push(ScalarValue::from(area(points, between)));
    record(&weight_fields(), values).map(Some)
}

/// The fields of a point in a list.
pub(super) fn point_fields() -> Fields {
    fields(&[("time", time_type()), ("value", DataType::Float64)])
}

/// A list of points as a value.
pub(super) fn points_value(points: &[Point]) -> Result<ScalarValue> {
    use arrow::array::{Float64Array, TimestampNanosecondArray};
    let times = points.iter().map(|point| point.ns);
    let times = TimestampNanosecondArray::from_iter_values(times).with_timezone("UTC");
    let values = Float64Array::from_iter_values(points.iter().map(|point| point.value));
    let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(values)];
    Ok(list(Arc::new(StructArray::try_new(
        point_fields(),
        columns,
        None,
    )?)))
}
