//! Aggregates over the points of a group, values with their instants, in order of time regardless
//! of the order of rows: counters and gauges, values weighted by time, areas, downsampled points,
//! durations of states; and [`accessors`], which return parts of their results.
//!
//! Invariants: rows without a value or without an instant are skipped; a group without points is
//! `NULL`. A collected point takes 16 bytes, which are reported to the grouping operator and
//! counted as memory of the statement.

mod accessors;
mod counters;
mod points;
mod signature;
mod states;
mod thinning;
mod units;

pub(super) use accessors::Accessor;
pub(crate) use points::seconds;
pub(super) use points::{constant, count, float};
pub(super) use signature::{expected, is_instant, is_number};
pub(super) use states::StateAgg;
pub(super) use units::unit_seconds;

use crate::columns::time_type;
use crate::error::Error;
use crate::rewrites::toolkit::INTEGRAL;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use counters::Between;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use points::Points;
use std::sync::Arc;

/// Maximum points of a group in memory.
const POINTS_MAX: usize = 1_000_000;

/// The aggregates of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Which {
    Counter,
    Gauge,
    Weight,
    Integral,
    Lttb,
    Minmax,
}

/// All aggregates.
pub(super) const ALL: [Which; 6] = [
    Which::Counter,
    Which::Gauge,
    Which::Weight,
    Which::Integral,
    Which::Lttb,
    Which::Minmax,
];

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Series {
    signature: Signature,
    which: Which,
}

impl Series {
    pub(super) fn new(which: Which) -> Series {
        Series {
            signature: Signature::user_defined(Volatility::Immutable),
            which,
        }
    }

    /// Indexes of the instant and the value among the arguments.
    fn argument_indexes(&self) -> (usize, usize) {
        match self.which {
            Which::Weight => (1, 2),
            Which::Integral => (1, 0),
            _ => (0, 1),
        }
    }

    fn example(&self) -> &'static str {
        match self.which {
            Which::Counter => "counter_agg(time, bytes)",
            Which::Gauge => "gauge_agg(time, level)",
            Which::Weight => "time_weight('Linear', time, temp)",
            Which::Integral => "integral(watts, time, 'hour')",
            Which::Lttb => "lttb(time, temp, 500)",
            Which::Minmax => "minmax(time, temp, 500)",
        }
    }

    /// The result to compute from the points.
    fn finish(&self, args: &AccumulatorArgs<'_>) -> Result<Finish> {
        let name = self.name();
        Ok(match self.which {
            Which::Counter => Finish::Summary { counter: true },
            Which::Gauge => Finish::Summary { counter: false },
            Which::Weight => Finish::Weight(method(constant(name, "the method", args.exprs, 0)?)?),
            Which::Integral => Finish::Area(match args.exprs.len() {
                2 => 1.0,
                _ => unit_seconds(constant("integral", "the unit", args.exprs, 2)?)?,
            }),
            Which::Lttb => {
                let wanted = constant(name, "the number of points", args.exprs, 2)?;
                Finish::Lttb(count(name, "the number of points", wanted, 3..=POINTS_MAX)?)
            }
            Which::Minmax => {
                let wanted = constant(name, "the number of points", args.exprs, 2)?;
                Finish::Minmax(count(name, "the number of points", wanted, 2..=POINTS_MAX)?)
            }
        })
    }
}

/// Interpolation of a weight between points.
fn method(value: &ScalarValue) -> Result<Between> {
    let name = value.try_as_str().flatten().map(str::to_lowercase);
    match name.as_deref() {
        Some("linear") => Ok(Between::Linear),
        Some("locf") => Ok(Between::Last),
        _ => Err(Error::invalid_value(format!(
            "time_weight: the method must be 'Linear' or 'LOCF', found {value}"
        ))
        .into()),
    }
}

impl AggregateUDFImpl for Series {
    fn name(&self) -> &str {
        match self.which {
            Which::Counter => "counter_agg",
            Which::Gauge => "gauge_agg",
            Which::Weight => "time_weight",
            Which::Integral => INTEGRAL,
            Which::Lttb => "lttb",
            Which::Minmax => "minmax",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (time, value) = self.argument_indexes();
        let counts = match self.which {
            Which::Counter | Which::Gauge => 2..=2,
            Which::Integral => 2..=3,
            _ => 3..=3,
        };
        let fits = counts.contains(&types.len())
            && types.get(time).is_some_and(is_instant)
            && types.get(value).is_some_and(is_number);
        if !fits {
            let what = "a timestamp and a number in these positions";
            let name = self.example().split('(').next().unwrap_or(self.name());
            return Err(expected(name, what, self.example()));
        }
        let coerced = types.iter().enumerate().map(|(place, of)| match place {
            place if place == time => time_type(),
            place if place == value => DataType::Float64,
            _ => of.clone(),
        });
        Ok(coerced.collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.which {
            Which::Counter => DataType::Struct(counters::summary_fields(true)),
            Which::Gauge => DataType::Struct(counters::summary_fields(false)),
            Which::Weight => DataType::Struct(counters::weight_fields()),
            Which::Integral => DataType::Float64,
            Which::Lttb | Which::Minmax => {
                let point = DataType::Struct(counters::point_fields());
                DataType::List(Arc::new(Field::new_list_field(point, true)))
            }
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let (time, value) = self.argument_indexes();
        Ok(Box::new(Collected {
            finish: self.finish(&args)?,
            of: args.return_field.data_type().clone(),
            time,
            value,
            points: Points::default(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |what: &str, of: DataType| {
            let list = DataType::List(Arc::new(Field::new_list_field(of, true)));
            Arc::new(Field::new(format!("{}[{what}]", args.name), list, true))
        };
        Ok(vec![
            field("times", DataType::Int64),
            field("values", DataType::Float64),
        ])
    }
}

/// Results of the points.
#[derive(Clone, Copy, Debug)]
enum Finish {
    Summary {
        counter: bool,
    },
    Weight(Between),
    /// The area, in units of this many seconds.
    Area(f64),
    Lttb(usize),
    Minmax(usize),
}

/// The points of a group.
#[derive(Debug)]
struct Collected {
    finish: Finish,
    of: DataType,
    /// Indexes of the arguments.
    time: usize,
    value: usize,
    points: Points,
}

impl Accumulator for Collected {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match (values.get(self.time), values.get(self.value)) {
            (Some(times), Some(values)) => self.points.add(times, values),
            _ => Ok(()),
        }
    }

    fn merge_batch(&mut self, parts: &[ArrayRef]) -> Result<()> {
        match parts {
            [times, values] => self.points.merge(times, values),
            _ => Ok(()),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(self.points.state())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let points = self.points.sorted();
        let made = match self.finish {
            _ if points.is_empty() => None,
            Finish::Summary { counter } => counters::summary(points, counter)?,
            Finish::Weight(between) => counters::weight(points, between)?,
            Finish::Area(unit) => Some(ScalarValue::from(
                counters::area(points, Between::Linear) / unit,
            )),
            Finish::Lttb(count) => Some(counters::points_value(&thinning::lttb(points, count))?),
            Finish::Minmax(count) => {
                Some(counters::points_value(&thinning::minmax(points, count))?)
            }
        };
        match made {
            Some(made) => Ok(made),
            None => ScalarValue::try_new_null(&self.of),
        }
    }

    fn size(&self) -> usize {
        size_of::<Collected>() + self.points.bytes()
    }
}
