//! `histogram(value, min, max, n)`: the number of values below `min`, in each of `n` buckets of
//! equal width, and from `max` on, as TimescaleDB counts; NaN is above every number.

use super::series::{constant, count, expected, float, is_number};
use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use std::sync::Arc;

/// Maximum number of buckets.
const BUCKETS_MAX: usize = 100_000;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Histogram {
    signature: Signature,
}

impl Histogram {
    pub(super) fn new() -> Histogram {
        Histogram {
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

fn counts_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))
}

fn bound(value: &ScalarValue) -> Result<f64> {
    match value.cast_to(&DataType::Float64)? {
        ScalarValue::Float64(Some(bound)) if bound.is_finite() => Ok(bound),
        _ => Err(Error::invalid_value(format!(
            "histogram: min and max must be finite numbers, found {value}"
        ))
        .into()),
    }
}

impl AggregateUDFImpl for Histogram {
    fn name(&self) -> &str {
        "histogram"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() == 4 && types.iter().all(is_number) {
            let float = DataType::Float64;
            return Ok(vec![float.clone(), float.clone(), float, DataType::Int64]);
        }
        let what = "a number, the least, the greatest and a number of buckets";
        Err(expected("histogram", what, "histogram(temp, 0, 100, 10)"))
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(counts_type())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let name = self.name();
        let least = bound(constant(name, "the least", args.exprs, 1)?)?;
        let greatest = bound(constant(name, "the greatest", args.exprs, 2)?)?;
        let what = "the number of buckets";
        let buckets = count(
            name,
            what,
            constant(name, what, args.exprs, 3)?,
            1..=BUCKETS_MAX,
        )?;
        if least >= greatest {
            return Err(Error::invalid_value(format!(
                "histogram: min must be less than max, found {least} and {greatest}"
            ))
            .into());
        }
        Ok(Box::new(Counts {
            least,
            greatest,
            buckets,
            counts: Vec::new(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = format!("{}[counts]", args.name);
        Ok(vec![Arc::new(Field::new(name, counts_type(), true))])
    }
}

/// A small number of buckets as a float.
fn whole(number: usize) -> f64 {
    float(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The counts of a group; empty before the first value.
#[derive(Debug)]
struct Counts {
    least: f64,
    greatest: f64,
    buckets: usize,
    counts: Vec<i64>,
}

impl Counts {
    fn begin(&mut self) {
        if self.counts.is_empty() {
            self.counts = vec![0; self.buckets + 2];
        }
    }

    /// Beginning of bucket `number`, and end of the previous one.
    fn edge(&self, number: usize) -> f64 {
        match number == self.buckets {
            true => self.greatest,
            false => {
                let share = whole(number) / whole(self.buckets);
                self.least + (self.greatest - self.least) * share
            }
        }
    }

    /// The index of the count for a value: the number of edges that are not above it.
    fn bucket_index(&self, value: f64) -> usize {
        let (mut from, mut to) = (0, self.buckets + 1);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.edge(middle) <= value {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from
    }

    fn value(&self) -> Result<ScalarValue> {
        if self.counts.is_empty() {
            return ScalarValue::try_new_null(&counts_type());
        }
        let counts: ArrayRef = Arc::new(Int64Array::from(self.counts.clone()));
        let list = SingleRowListArrayBuilder::new(counts).build_list_array();
        Ok(ScalarValue::List(Arc::new(list)))
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else {
            return Ok(());
        };
        let values = cast(values, &DataType::Float64)?;
        for value in values.as_primitive::<Float64Type>().iter().flatten() {
            self.begin();
            let place = match value.is_nan() {
                true => self.buckets + 1,
                false => self.bucket_index(value),
            };
            if let Some(count) = self.counts.get_mut(place) {
                *count += 1;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, parts: &[ArrayRef]) -> Result<()> {
        let Some(parts) = parts.first() else {
            return Ok(());
        };
        for part in parts.as_list::<i32>().iter().flatten() {
            self.begin();
            let part = part.as_primitive::<Int64Type>();
            for (count, more) in self.counts.iter_mut().zip(part.values()) {
                *count += more;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.value()
    }

    fn size(&self) -> usize {
        size_of::<Counts>() + self.counts.capacity() * 8
    }
}
