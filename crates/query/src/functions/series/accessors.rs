//! Accessors of the results of the aggregates over points: `rate(counter_agg(time, bytes))`,
//! `average(time_weight('Linear', time, temp))`, `duration_in(state_agg(time, state), 'on')`.
//!
//! Invariant: every part of a NULL result is NULL.

use super::points::seconds;
use super::signature::expected;
use super::states::duration_in;
use super::units::unit_seconds;
use crate::columns::time_type;
use arrow::array::{
    Array, ArrayRef, AsArray, DurationNanosecondArray, Float64Array, Int64Array, StructArray,
    TimestampNanosecondArray,
};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, TimestampNanosecondType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Part of a result that an accessor returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ResultPart {
    Rate,
    Delta,
    Increase,
    TimeDelta,
    Resets,
    Changes,
    Elements,
    Average,
    Integral,
    FirstValue,
    LastValue,
    FirstTime,
    LastTime,
    DurationIn,
}

const PARTS: [(&str, ResultPart); 14] = [
    ("rate", ResultPart::Rate),
    ("delta", ResultPart::Delta),
    ("increase", ResultPart::Increase),
    ("time_delta", ResultPart::TimeDelta),
    ("num_resets", ResultPart::Resets),
    ("num_changes", ResultPart::Changes),
    ("num_elements", ResultPart::Elements),
    ("average", ResultPart::Average),
    ("integral", ResultPart::Integral),
    ("first_val", ResultPart::FirstValue),
    ("last_val", ResultPart::LastValue),
    ("first_time", ResultPart::FirstTime),
    ("last_time", ResultPart::LastTime),
    ("duration_in", ResultPart::DurationIn),
];

impl ResultPart {
    /// The fields that the result requires for this part.
    fn needs(self) -> &'static [&'static str] {
        match self {
            ResultPart::Rate | ResultPart::Delta => &["delta", "first_time", "last_time"],
            ResultPart::Increase | ResultPart::Resets => &["delta", "resets"],
            ResultPart::Changes => &["changes"],
            ResultPart::Elements => &["elements"],
            ResultPart::Average | ResultPart::Integral => &["area", "first_time", "last_time"],
            _ => &["first_time", "first_value", "last_time", "last_value"],
        }
    }

    fn example(self) -> &'static str {
        match self {
            ResultPart::Average => "average(time_weight('Linear', time, temp))",
            ResultPart::Integral => "integral(time_weight('Linear', time, temp), 'hour')",
            ResultPart::DurationIn => "duration_in(state_agg(time, state), 'on')",
            ResultPart::Increase => "increase(counter_agg(time, bytes))",
            ResultPart::Resets => "num_resets(counter_agg(time, bytes))",
            _ => "rate(counter_agg(time, bytes))",
        }
    }
}

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) struct Accessor {
    signature: Signature,
    name: &'static str,
    part: ResultPart,
}

impl Accessor {
    pub(in crate::functions) fn all() -> impl Iterator<Item = Accessor> {
        PARTS.into_iter().map(|(name, part)| Accessor {
            signature: Signature::user_defined(Volatility::Immutable),
            name,
            part,
        })
    }

    fn wrong(&self) -> datafusion::common::DataFusionError {
        let what = match self.part {
            ResultPart::DurationIn => "the result of state_agg, and a state",
            ResultPart::Average | ResultPart::Integral => "the result of time_weight",
            ResultPart::Increase | ResultPart::Resets => "the result of counter_agg",
            _ => "the result of counter_agg, gauge_agg or time_weight",
        };
        expected(self.name, what, self.part.example())
    }
}

/// Whether a type is a list of states with their durations.
fn is_states(of: &DataType) -> bool {
    match of {
        DataType::List(item) => match item.data_type() {
            DataType::Struct(fields) => {
                fields.find("state").is_some() && fields.find("duration").is_some()
            }
            _ => false,
        },
        _ => false,
    }
}

impl ScalarUDFImpl for Accessor {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let fits = match (self.part, types) {
            (ResultPart::DurationIn, [states, _]) => is_states(states),
            (ResultPart::DurationIn, _) => false,
            (part, [DataType::Struct(fields)]) => {
                part.needs().iter().all(|need| fields.find(need).is_some())
            }
            (ResultPart::Integral, [DataType::Struct(fields), _]) => fields.find("area").is_some(),
            _ => false,
        };
        match (fits, types) {
            (true, [states, _]) if self.part == ResultPart::DurationIn => {
                Ok(vec![states.clone(), DataType::Utf8])
            }
            (true, types) => Ok(types.to_vec()),
            (false, _) => Err(self.wrong()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.part {
            ResultPart::Resets | ResultPart::Changes | ResultPart::Elements => DataType::Int64,
            ResultPart::FirstTime | ResultPart::LastTime => time_type(),
            ResultPart::DurationIn => DataType::Duration(TimeUnit::Nanosecond),
            _ => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalars = args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if scalars { 1 } else { args.number_rows };
        let Some(of) = args.args.first() else {
            return Err(self.wrong());
        };
        let of = of.to_array(rows)?;
        let more = args.args.get(1);
        let made: ArrayRef = match self.part {
            ResultPart::DurationIn => durations(&of, more, rows)?,
            part => {
                let unit = match more {
                    Some(ColumnarValue::Scalar(unit)) => unit_seconds(unit)?,
                    Some(ColumnarValue::Array(_)) => return Err(self.wrong()),
                    None => 1.0,
                };
                let record = of.as_struct_opt().ok_or_else(|| self.wrong())?;
                self.of_records(part, record, unit)?
            }
        };
        Ok(match scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

fn durations(of: &ArrayRef, wanted: Option<&ColumnarValue>, rows: usize) -> Result<ArrayRef> {
    let wanted = match wanted {
        Some(wanted) => wanted.to_array(rows)?,
        None => arrow::array::new_null_array(&DataType::Utf8, rows),
    };
    let pairs = of.as_list::<i32>().iter().zip(wanted.as_string::<i32>());
    let lasted = pairs.map(|(states, wanted)| duration_in(&states?, wanted));
    let lasted: DurationNanosecondArray = lasted.collect();
    Ok(Arc::new(lasted))
}

/// The numbers of one record.
struct Numbers<'a> {
    record: &'a StructArray,
    row: usize,
}

impl Numbers<'_> {
    fn float(&self, name: &str) -> Option<f64> {
        let column = self
            .record
            .column_by_name(name)?
            .as_primitive_opt::<Float64Type>()?;
        column.is_valid(self.row).then(|| column.value(self.row))
    }

    fn whole(&self, name: &str) -> Option<i64> {
        let column = self
            .record
            .column_by_name(name)?
            .as_primitive_opt::<Int64Type>()?;
        column.is_valid(self.row).then(|| column.value(self.row))
    }

    fn ns(&self, name: &str) -> Option<i64> {
        let column = self.record.column_by_name(name)?;
        let column = column.as_primitive_opt::<TimestampNanosecondType>()?;
        column.is_valid(self.row).then(|| column.value(self.row))
    }

    fn seconds(&self) -> Option<f64> {
        Some(seconds(self.ns("first_time")?, self.ns("last_time")?))
    }

    /// A number per second; `None` if the duration is zero.
    fn by_time(&self, name: &str) -> Option<f64> {
        let seconds = self.seconds().filter(|seconds| *seconds > 0.0)?;
        Some(self.float(name)? / seconds)
    }
}

impl Accessor {
    fn of_records(&self, part: ResultPart, record: &StructArray, unit: f64) -> Result<ArrayRef> {
        let nulls = record.logical_nulls();
        let each = (0..record.len()).map(|row| {
            let present = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            present.then_some(Numbers { record, row })
        });
        Ok(match part {
            ResultPart::Resets | ResultPart::Changes | ResultPart::Elements => {
                let name = match part {
                    ResultPart::Resets => "resets",
                    ResultPart::Changes => "changes",
                    _ => "elements",
                };
                let made: Int64Array = each.map(|of| of?.whole(name)).collect();
                Arc::new(made)
            }
            ResultPart::FirstTime | ResultPart::LastTime => {
                let name = if part == ResultPart::FirstTime {
                    "first_time"
                } else {
                    "last_time"
                };
                let made: TimestampNanosecondArray = each.map(|of| of?.ns(name)).collect();
                Arc::new(made.with_timezone("UTC"))
            }
            part => {
                let made: Float64Array = each
                    .map(|of| {
                        let of = of?;
                        match part {
                            ResultPart::Rate => of.by_time("delta"),
                            ResultPart::Delta | ResultPart::Increase => of.float("delta"),
                            ResultPart::TimeDelta => of.seconds(),
                            ResultPart::Average => of.by_time("area"),
                            ResultPart::Integral => Some(of.float("area")? / unit),
                            ResultPart::FirstValue => of.float("first_value"),
                            _ => of.float("last_value"),
                        }
                    })
                    .collect();
                Arc::new(made)
            }
        })
    }
}
