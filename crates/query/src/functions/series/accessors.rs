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
enum Part {
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

const PARTS: [(&str, Part); 14] = [
    ("rate", Part::Rate),
    ("delta", Part::Delta),
    ("increase", Part::Increase),
    ("time_delta", Part::TimeDelta),
    ("num_resets", Part::Resets),
    ("num_changes", Part::Changes),
    ("num_elements", Part::Elements),
    ("average", Part::Average),
    ("integral", Part::Integral),
    ("first_val", Part::FirstValue),
    ("last_val", Part::LastValue),
    ("first_time", Part::FirstTime),
    ("last_time", Part::LastTime),
    ("duration_in", Part::DurationIn),
];

impl Part {
    /// The fields that the result requires for this part.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Part::Rate | Part::Delta => &["delta", "first_time", "last_time"],
            Part::Increase | Part::Resets => &["delta", "resets"],
            Part::Changes => &["changes"],
            Part::Elements => &["elements"],
            Part::Average | Part::Integral => &["area", "first_time", "last_time"],
            _ => &["first_time", "first_value", "last_time", "last_value"],
        }
    }

    fn example(self) -> &'static str {
        match self {
            Part::Average => "average(time_weight('Linear', time, temp))",
            Part::Integral => "integral(time_weight('Linear', time, temp), 'hour')",
            Part::DurationIn => "duration_in(state_agg(time, state), 'on')",
            Part::Increase => "increase(counter_agg(time, bytes))",
            Part::Resets => "num_resets(counter_agg(time, bytes))",
            _ => "rate(counter_agg(time, bytes))",
        }
    }
}

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) struct Accessor {
    signature: Signature,
    name: &'static str,
    part: Part,
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
            Part::DurationIn => "what state_agg gives, and a state",
            Part::Average | Part::Integral => "what time_weight gives",
            Part::Increase | Part::Resets => "what counter_agg gives",
            _ => "what counter_agg, gauge_agg or time_weight gives",
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
            (Part::DurationIn, [states, _]) => is_states(states),
            (Part::DurationIn, _) => false,
            (part, [DataType::Struct(fields)]) => {
                part.needs().iter().all(|need| fields.find(need).is_some())
            }
            (Part::Integral, [DataType::Struct(fields), _]) => fields.find("area").is_some(),
            _ => false,
        };
        match (fits, types) {
            (true, [states, _]) if self.part == Part::DurationIn => {
                Ok(vec![states.clone(), DataType::Utf8])
            }
            (true, types) => Ok(types.to_vec()),
            (false, _) => Err(self.wrong()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.part {
            Part::Resets | Part::Changes | Part::Elements => DataType::Int64,
            Part::FirstTime | Part::LastTime => time_type(),
            Part::DurationIn => DataType::Duration(TimeUnit::Nanosecond),
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
            Part::DurationIn => durations(&of, more, rows)?,
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
    fn of_records(&self, part: Part, record: &StructArray, unit: f64) -> Result<ArrayRef> {
        let nulls = record.logical_nulls();
        let each = (0..record.len()).map(|row| {
            let present = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            present.then_some(Numbers { record, row })
        });
        Ok(match part {
            Part::Resets | Part::Changes | Part::Elements => {
                let name = match part {
                    Part::Resets => "resets",
                    Part::Changes => "changes",
                    _ => "elements",
                };
                let made: Int64Array = each.map(|of| of?.whole(name)).collect();
                Arc::new(made)
            }
            Part::FirstTime | Part::LastTime => {
                let name = if part == Part::FirstTime {
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
                            Part::Rate => of.by_time("delta"),
                            Part::Delta | Part::Increase => of.float("delta"),
                            Part::TimeDelta => of.seconds(),
                            Part::Average => of.by_time("area"),
                            Part::Integral => Some(of.float("area")? / unit),
                            Part::FirstValue => of.float("first_value"),
                            _ => of.float("last_value"),
                        }
                    })
                    .collect();
                Arc::new(made)
            }
        })
    }
}
