//! `percentile_cont(fraction)` of floats, exact: the SQL library rounds the position between two
//! values to a millionth.
//!
//! Invariant: the states are those of the library's `percentile_cont`.

use super::numbers::{about_as_float, whole};
use super::series::constant;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;
use std::sync::Arc;

/// Whether a call uses a state of this crate.
pub(super) fn is_own(name: &str, args: &AccumulatorArgs<'_>) -> bool {
    let of = args.expr_fields.first().map(|field| field.data_type());
    name == "percentile_cont" && !args.is_distinct && of == Some(&DataType::Float64)
}

/// The state for a call that [`is_own`]; `None` = the fraction is invalid, which the library
/// reports.
pub(super) fn accumulator(args: &AccumulatorArgs<'_>) -> Option<Box<dyn Accumulator>> {
    let given = constant("percentile_cont", "the fraction", args.exprs, 1).ok()?;
    let ScalarValue::Float64(Some(fraction)) = given.cast_to(&DataType::Float64).ok()? else {
        return None;
    };
    let descends = args
        .order_bys
        .first()
        .is_some_and(|by| by.options.descending);
    (0.0..=1.0).contains(&fraction).then(|| {
        Box::new(Percentile {
            fraction: if descends { 1.0 - fraction } else { fraction },
            values: Vec::new(),
        }) as Box<dyn Accumulator>
    })
}

/// The values of a group.
#[derive(Debug)]
struct Percentile {
    fraction: f64,
    values: Vec<f64>,
}

/// The value at a fraction of the sorted values.
fn percentile(values: &mut [f64], fraction: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    // There are fewer than 2^52 values.
    let place = fraction * about_as_float(i64::try_from(last).ok()?);
    let below = usize::try_from(whole(place)).ok()?.min(last);
    let (_, low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let share = place - place.floor();
    if share == 0.0 {
        return Some(low);
    }
    let high = above.iter().copied().min_by(f64::total_cmp);
    Some(high.map_or(low, |high| low + share * (high - low)))
}

impl Percentile {
    fn take(&mut self, values: &dyn Array) {
        let values = values.as_primitive::<Float64Type>();
        // All NaN are equal, and above every number.
        let flat = |value: f64| if value.is_nan() { f64::NAN } else { value };
        self.values.extend(values.iter().flatten().map(flat));
    }
}

impl Accumulator for Percentile {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if let Some(values) = values.first() {
            self.take(values);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in states
            .iter()
            .flat_map(|lists| lists.as_list::<i32>().iter().flatten())
        {
            self.take(&list);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: ArrayRef = Arc::new(Float64Array::from(std::mem::take(&mut self.values)));
        let list = SingleRowListArrayBuilder::new(values).build_list_array();
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(percentile(
            &mut self.values,
            self.fraction,
        )))
    }

    fn size(&self) -> usize {
        size_of::<Percentile>() + self.values.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_lies_exactly_between_two_values() {
        let of = |values: &[f64], fraction| percentile(&mut values.to_vec(), fraction);
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[7.0], 0.99), Some(7.0));
        assert_eq!(of(&[1e9, 0.0], 0.123_456_789), Some(123_456_789.0));
        assert_eq!(of(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0], 0.5), Some(2.5));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0], 1.0), Some(4.0));
        assert_eq!(of(&[1.0, f64::NAN], 0.0), Some(1.0));
    }
}
