//! `count(DISTINCT text)` with a state that is as large as its texts: the state of the SQL library
//! takes 15 kB per group even when empty.
//!
//! Invariant: the states are those of the library's `count(DISTINCT …)`.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;
use std::collections::HashSet;
use std::sync::Arc;

/// Approximate memory of an entry of the set besides its bytes.
const ENTRY_BYTES: usize = 48;

/// Whether a call counts distinct texts or bytes.
pub(super) fn is_own(name: &str, args: &AccumulatorArgs<'_>) -> bool {
    let [field] = args.expr_fields else {
        return false;
    };
    let of = field.data_type();
    let is_bytes = matches!(
        of,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    );
    name == "count" && args.is_distinct && (of.is_string() || is_bytes)
}

/// The state for a call that [`is_own`].
pub(super) fn accumulator(args: &AccumulatorArgs<'_>) -> Option<Box<dyn Accumulator>> {
    let of = args.expr_fields.first()?.data_type().clone();
    Some(Box::new(Distinct {
        of,
        counted: HashSet::new(),
        bytes: 0,
    }))
}

/// The distinct values of a group.
#[derive(Debug)]
struct Distinct {
    of: DataType,
    counted: HashSet<Box<[u8]>>,
    /// Bytes of the values in the set.
    bytes: usize,
}

impl Distinct {
    fn take(&mut self, values: &dyn Array) -> Result<()> {
        let bytes = cast(values, &DataType::Binary)?;
        for value in bytes.as_binary::<i32>().iter().flatten() {
            if !self.counted.contains(value) {
                self.bytes += value.len();
                self.counted.insert(value.into());
            }
        }
        Ok(())
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().try_for_each(|values| self.take(values))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for lists in states {
            for list in lists.as_list::<i32>().iter().flatten() {
                self.take(&list)?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: ArrayRef = match self.of.is_string() {
            // The inputs were texts.
            true => Arc::new(StringArray::from_iter_values(
                self.counted
                    .iter()
                    .map(|value| String::from_utf8_lossy(value)),
            )),
            false => Arc::new(BinaryArray::from_iter_values(&self.counted)),
        };
        let values = cast(&values, &self.of)?;
        let list = SingleRowListArrayBuilder::new(values).build_list_array();
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let count = i64::try_from(self.counted.len()).unwrap_or(i64::MAX);
        Ok(ScalarValue::Int64(Some(count)))
    }

    fn size(&self) -> usize {
        size_of::<Distinct>() + self.counted.capacity() * ENTRY_BYTES + self.bytes
    }
}
