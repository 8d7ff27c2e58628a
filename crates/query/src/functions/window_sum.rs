//! Sums of distinct integers over sliding windows.
//!
//! The SQL library's sums have 64 bits and wrap around; these have 128 bits and fail if the sum of
//! a window does not fit, as all sums of integers do here.

use crate::error::Error;
use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use std::collections::HashMap;

/// Error for a sum of integers that exceeds 64 bits.
pub(crate) fn too_large() -> Error {
    Error::out_of_range("the sum of integers is out of range for 64 bits")
        .with_hint("sum(CAST(x AS DECIMAL(38, 0))) is exact, sum(CAST(x AS DOUBLE)) has no bound")
}

/// The values of a window with their numbers of occurrences, and their sum.
#[derive(Debug)]
pub(super) struct DistinctSum {
    of: DataType,
    wide: DataType,
    counts: HashMap<i128, usize>,
    sum: i128,
}

impl DistinctSum {
    /// Sums of integers of type `of`, computed in the type `wide`.
    pub(super) fn new(of: DataType, wide: DataType) -> DistinctSum {
        DistinctSum {
            of,
            wide,
            counts: HashMap::new(),
            sum: 0,
        }
    }

    fn each(
        &mut self,
        values: &[ArrayRef],
        mut work: impl FnMut(&mut DistinctSum, i128),
    ) -> Result<()> {
        let [values] = values else {
            return Err(Error::internal("a sum has one argument").into());
        };
        let values = cast(values, &self.wide)?;
        for value in values.as_primitive::<Decimal128Type>().iter().flatten() {
            work(self, value);
        }
        Ok(())
    }
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, |sum, value| {
            let count = sum.counts.entry(value).or_insert(0);
            *count += 1;
            if *count == 1 {
                // The sum of as many values as fit into memory fits into 128 bits.
                sum.sum += value;
            }
        })
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, |sum, value| {
            let Some(count) = sum.counts.get_mut(&value) else {
                return;
            };
            *count -= 1;
            if *count == 0 {
                sum.counts.remove(&value);
                sum.sum -= value;
            }
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.counts.is_empty() {
            return ScalarValue::try_new_null(&self.of);
        }
        Ok(match self.of {
            DataType::UInt64 => {
                ScalarValue::UInt64(Some(u64::try_from(self.sum).map_err(|_| too_large())?))
            }
            _ => ScalarValue::Int64(Some(i64::try_from(self.sum).map_err(|_| too_large())?)),
        })
    }

    fn size(&self) -> usize {
        size_of::<DistinctSum>() + self.counts.capacity() * size_of::<(i128, usize)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(Error::internal("a window's sum is not computed in parts").into())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(Error::internal("a window's sum is not computed in parts").into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use arrow::array::Int64Array;
    use std::sync::Arc;

    #[test]
    fn a_value_counts_as_long_as_it_is_in_the_window() {
        let wide = DataType::Decimal128(38, 0);
        let mut sum = DistinctSum::new(DataType::Int64, wide);
        let values = |values: Vec<Option<i64>>| -> Vec<ArrayRef> {
            vec![Arc::new(Int64Array::from(values))]
        };
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(None));
        sum.update_batch(&values(vec![Some(2), Some(2), None]))
            .unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(2)));
        sum.retract_batch(&values(vec![Some(2)])).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(2)));
        sum.update_batch(&values(vec![Some(i64::MAX)])).unwrap();
        assert!(sum.evaluate().is_err());
        sum.retract_batch(&values(vec![Some(2), None])).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(i64::MAX)));
        sum.retract_batch(&values(vec![Some(i64::MAX)])).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(None));
    }
}
