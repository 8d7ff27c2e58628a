//! `derivative(value, time [, unit]) OVER (… ORDER BY time)`: the change of a value since the
//! previous row with a value, per second or `unit`.

use super::series::{expected, is_instant, is_number, seconds, unit_seconds};
use crate::columns::time_type;
use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, TimestampNanosecondType};
use datafusion::common::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, Signature, Volatility, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Derivative {
    signature: Signature,
}

impl Derivative {
    pub(super) fn new() -> Derivative {
        Derivative {
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl WindowUDFImpl for Derivative {
    fn name(&self) -> &str {
        "derivative"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [value, time] if is_number(value) && is_instant(time) => {
                Ok(vec![DataType::Float64, time_type()])
            }
            [value, time, unit] if is_number(value) && is_instant(time) => {
                Ok(vec![DataType::Float64, time_type(), unit.clone()])
            }
            _ => {
                let example = "derivative(bytes, time) OVER (PARTITION BY host ORDER BY time)";
                Err(expected("derivative", "a number and a timestamp", example))
            }
        }
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let unit = match args.input_exprs().get(2) {
            None => 1.0,
            Some(unit) => match unit.downcast_ref::<Literal>() {
                Some(unit) => unit_seconds(unit.value())?,
                None => {
                    return Err(
                        Error::invalid_value("derivative: the unit must be a constant").into(),
                    );
                }
            },
        };
        Ok(Box::new(Evaluator { unit }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Float64, true)))
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

#[derive(Debug)]
struct Evaluator {
    unit: f64,
}

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let [values, times, ..] = values else {
            return Err(Error::internal("derivative without its arguments").into());
        };
        let values = cast(values, &DataType::Float64)?;
        let times = cast(times, &time_type())?;
        let values = values.as_primitive::<Float64Type>().iter();
        let times = times.as_primitive::<TimestampNanosecondType>().iter();
        let mut before: Option<(f64, i64)> = None;
        let made = values.zip(times).map(|(value, ns)| {
            let (value, ns) = (value?, ns?);
            let known = before.replace((value, ns));
            let (earlier, since) = known?;
            let passed = seconds(since, ns);
            (passed != 0.0).then(|| (value - earlier) / passed * self.unit)
        });
        let made: Float64Array = made.collect();
        Ok(Arc::new(made))
    }
}
