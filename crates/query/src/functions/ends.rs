//! `first(x, time)` and `last(x, time)`: the present value of the earliest and of the latest
//! instant.
//!
//! Among several rows of that instant the first or last one is used. Absent values and rows without
//! an instant are skipped.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit, TimestampNanosecondType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct End {
    signature: Signature,
    last: bool,
}

impl End {
    pub(super) fn first() -> End {
        End {
            signature: Signature::any(2, Volatility::Immutable),
            last: false,
        }
    }

    pub(super) fn last() -> End {
        End {
            last: true,
            ..End::first()
        }
    }
}

fn instants() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, None)
}

impl AggregateUDFImpl for End {
    fn name(&self) -> &str {
        if self.last { "last" } else { "first" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value, DataType::Timestamp(..)] => Ok(value.clone()),
            _ => Err(crate::error::Error::type_mismatch(format!(
                "{}: expected a value and a timestamp, as in {}(temp, time)",
                self.name(),
                self.name()
            ))
            .into()),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(EndOf {
            last: self.last,
            value: ScalarValue::try_from(args.return_field.data_type())?,
            at: None,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let value = args.return_field.data_type().clone();
        Ok(vec![
            Arc::new(Field::new(format!("{}[value]", args.name), value, true)),
            Arc::new(Field::new(format!("{}[time]", args.name), instants(), true)),
        ])
    }
}

#[derive(Debug)]
struct EndOf {
    last: bool,
    value: ScalarValue,
    at: Option<i64>,
}

impl EndOf {
    fn add(&mut self, values: &ArrayRef, times: &ArrayRef) -> Result<()> {
        let times = cast(times, &instants())?;
        let times = times.as_primitive::<TimestampNanosecondType>();
        let nulls = values.logical_nulls();
        let mut best: Option<(usize, i64)> = None;
        for (row, time) in times.iter().enumerate() {
            let Some(time) = time else { continue };
            if nulls.as_ref().is_some_and(|n| n.is_null(row)) {
                continue;
            }
            let known = best.map(|(_, t)| t).or(self.at);
            let better = match known {
                None => true,
                Some(known) if self.last => time >= known,
                Some(known) => time < known,
            };
            if better {
                best = Some((row, time));
            }
        }
        if let Some((row, time)) = best {
            self.value = ScalarValue::try_from_array(values, row)?;
            self.at = Some(time);
        }
        Ok(())
    }
}

impl Accumulator for EndOf {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values {
            [values, times] => self.add(values, times),
            _ => Ok(()),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            self.value.clone(),
            ScalarValue::TimestampNanosecond(self.at, None),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of::<EndOf>() + self.value.size()
    }
}
