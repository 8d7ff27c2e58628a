//! Functions that rules put into plans. A statement cannot call them by name.

use super::decimals;
use crate::error::Error;
use crate::rewrites::{lengths, times};
use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, IntervalMonthDayNanoArray, StringArray,
};
use arrow::compute::cast;
use arrow::compute::kernels::numeric;
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{ExprSchema, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The name of the function [`canonical`].
pub(crate) const CANONICAL: &str = "canonical_float";

/// Operation of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// The nearest integer; halves to the even one.
    Round,
    /// The nearest integer, or the nearest number with this many digits; halves away from zero.
    RoundDecimal,
    /// The same bits for both zeros, and for all NaN.
    Canonical,
    Add,
    Subtract,
    Multiply,
    /// A text of a time as the SQL library reads it.
    TimeText,
    /// An interval multiplied by a number.
    Times,
    /// An interval divided by a number.
    Over,
    /// A text as an interval.
    Interval,
    /// The value unchanged, but never merged with an equal expression.
    Apart,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfNumbers {
    signature: Signature,
    work: Work,
}

fn function(work: Work, arguments: usize) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(OfNumbers {
        signature: Signature::any(arguments, Volatility::Immutable),
        work,
    }))
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),*): $work:ident;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name($($arg: Expr),*) -> Expr {
            static FUNCTION: LazyLock<Arc<ScalarUDF>> =
                LazyLock::new(|| function(Work::$work, [$(stringify!($arg)),*].len()));
            FUNCTION.call(vec![$($arg),*])
        })*
    };
}

functions! {
    /// The nearest integral float; halves to the even one, as PostgreSQL rounds floats.
    rint(value): Round;
    /// The nearest integral float; halves away from zero, as PostgreSQL rounds decimals.
    round_decimal(value): RoundDecimal;
    /// The same with this many fraction digits.
    round_decimal_to(value, digits): RoundDecimal;
    /// A float with the same bits for all equal floats: one zero, and one NaN.
    canonical(value): Canonical;
    /// The text of a time as the SQL library reads it.
    time_text(value): TimeText;
    /// An interval multiplied by a number.
    times_interval(interval, number): Times;
    /// An interval divided by a number.
    over_interval(interval, number): Over;
    /// The interval of a text.
    interval_of_text(value): Interval;
    /// The value unchanged; rules do not merge values with different numbers.
    apart(value, number): Apart;
}

/// An operation on integers that fails if its result does not fit their type.
pub(crate) fn checked(op: Operator) -> Option<&'static Arc<ScalarUDF>> {
    static ADD: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::Add, 2));
    static SUBTRACT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::Subtract, 2));
    static MULTIPLY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::Multiply, 2));
    Some(match op {
        Operator::Plus => &ADD,
        Operator::Minus => &SUBTRACT,
        Operator::Multiply => &MULTIPLY,
        _ => return None,
    })
}

/// The type of an expression. Unlike in the SQL library, nested calls of this module's functions
/// are not visited again from each level, nor does each get a name.
pub(crate) fn type_of(expr: &Expr, schema: &dyn ExprSchema) -> Result<DataType> {
    let mut expr = expr;
    loop {
        let inner = match expr {
            Expr::Alias(alias) => Some(alias.expr.as_ref()),
            Expr::ScalarFunction(call) => {
                let own = call.func.inner().downcast_ref::<OfNumbers>();
                let own = own.filter(|own| own.work.is_of_first());
                own.and_then(|_| call.args.first())
            }
            _ => None,
        };
        match inner {
            Some(inner) => expr = inner,
            None => return expr.get_type(schema),
        }
    }
}

impl Work {
    /// Whether the result has the type of the first argument.
    fn is_of_first(self) -> bool {
        match self {
            Work::TimeText | Work::Times | Work::Over | Work::Interval => false,
            Work::Round | Work::RoundDecimal | Work::Canonical | Work::Apart => true,
            Work::Add | Work::Subtract | Work::Multiply => true,
        }
    }
}

/// Maximum length of a call's name, so that names of nested calls do not grow with the nesting.
const NAME_MAX: usize = 200;

impl ScalarUDFImpl for OfNumbers {
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let mut name = format!("{}(", self.name());
        for (at, arg) in args.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(name, "{comma}{}", arg.schema_name()).map_err(|_| Error::internal("no name"))?;
            if name.len() > NAME_MAX {
                // A hash of the full name, so that different calls have different names.
                let mut hasher = DefaultHasher::new();
                args.hash(&mut hasher);
                return Ok(format!("{}({:016x})", self.name(), hasher.finish()));
            }
        }
        name.push(')');
        Ok(name)
    }

    fn name(&self) -> &str {
        match self.work {
            Work::Round => "round_to_even",
            Work::RoundDecimal => "round_decimal",
            Work::Canonical => CANONICAL,
            Work::Add => "+",
            Work::Subtract => "-",
            Work::Multiply => "*",
            Work::TimeText => "text_of_time",
            Work::Times => "times_interval",
            Work::Over => "over_interval",
            Work::Interval => "interval_of_text",
            Work::Apart => "apart",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.work, types.first()) {
            (Work::TimeText, _) => DataType::Utf8,
            (Work::Times | Work::Over | Work::Interval, _) => INTERVAL,
            (_, Some(first)) => first.clone(),
            (_, None) => {
                return Err(Error::internal("a function of numbers without its argument").into());
            }
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|arg| arg.to_array(rows));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        let made = match arrays.as_slice() {
            [value] => self.one(value)?,
            [left, right] => self.two(left, right)?,
            _ => return Err(Error::internal("a function of numbers of more than two").into()),
        };
        Ok(match constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

impl OfNumbers {
    fn one(&self, value: &ArrayRef) -> Result<ArrayRef> {
        let floats = |f: fn(f64) -> f64| -> Result<ArrayRef> {
            let floats = cast(value, &DataType::Float64)?;
            let made: Float64Array = floats.as_primitive::<Float64Type>().unary(f);
            Ok(cast(&made, value.data_type())?)
        };
        match self.work {
            Work::Round => floats(f64::round_ties_even),
            Work::RoundDecimal => floats(|v| v.round() + 0.0),
            Work::Canonical => floats(|v| if v.is_nan() { f64::NAN } else { v + 0.0 }),
            Work::TimeText => {
                let texts = cast(value, &DataType::Utf8)?;
                let texts = texts.as_string::<i32>().iter();
                let made: StringArray = texts.map(|text| text.map(times::canonical)).collect();
                Ok(Arc::new(made))
            }
            _ => {
                let texts = cast(value, &DataType::Utf8)?;
                let texts = texts.as_string::<i32>().iter();
                let made = texts.map(|text| match text {
                    None => Ok(None),
                    Some(text) => match lengths::read(text) {
                        Some(interval) => Ok(Some(interval)),
                        None => Err(lengths::no_interval(text)),
                    },
                });
                let made: IntervalMonthDayNanoArray =
                    made.collect::<std::result::Result<_, Error>>()?;
                Ok(Arc::new(made))
            }
        }
    }

    fn two(&self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
        let beyond = |error: arrow::error::ArrowError| match error {
            arrow::error::ArrowError::ArithmeticOverflow(_) => Error::out_of_range(format!(
                "the result of `{}` is out of range for a 64-bit integer",
                self.name()
            ))
            .with_hint("use floats: CAST(x AS DOUBLE)")
            .into(),
            other => datafusion::common::DataFusionError::from(other),
        };
        match self.work {
            Work::Add => numeric::add(left, right).map_err(beyond),
            Work::Subtract => numeric::sub(left, right).map_err(beyond),
            Work::Multiply => numeric::mul(left, right).map_err(beyond),
            Work::Apart => Ok(Arc::clone(left)),
            Work::RoundDecimal => {
                let values = cast(left, &DataType::Float64)?;
                let digits = cast(right, &DataType::Int64)?;
                let digits = digits.as_primitive::<Int64Type>().iter();
                let values = values.as_primitive::<Float64Type>().iter();
                let made: Float64Array = values
                    .zip(digits)
                    .map(|(value, digits)| Some(decimals::round_to(value?, digits?)))
                    .collect();
                Ok(Arc::new(made))
            }
            work => many(left, right, work == Work::Over),
        }
    }
}

/// Intervals multiplied or divided; a fraction of a month becomes days, a fraction of a day hours.
fn many(intervals: &ArrayRef, numbers: &ArrayRef, divides: bool) -> Result<ArrayRef> {
    let far = || Error::out_of_range("an interval is too long");
    let intervals = cast(intervals, &INTERVAL)?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let whole = matches!(
        numbers.data_type(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64
    );
    let floats = cast(numbers, &DataType::Float64)?;
    let floats = floats.as_primitive::<Float64Type>();
    let integers = match whole && !divides {
        true => Some(cast(numbers, &DataType::Int64)?),
        false => None,
    };
    let mut made = Vec::with_capacity(intervals.len());
    for (row, interval) in intervals.iter().enumerate() {
        let Some(interval) = interval.filter(|_| floats.is_valid(row)) else {
            made.push(None);
            continue;
        };
        let one = match &integers {
            Some(integers) => exactly(interval, integers.as_primitive::<Int64Type>().value(row)),
            None if divides => {
                let number = floats.value(row);
                about(interval, |part| part / number)
            }
            None => about(interval, |part| part * floats.value(row)),
        };
        made.push(Some(one.ok_or_else(far)?));
    }
    Ok(Arc::new(IntervalMonthDayNanoArray::from(made)))
}

fn exactly(of: IntervalMonthDayNano, times: i64) -> Option<IntervalMonthDayNano> {
    Some(IntervalMonthDayNano::new(
        i32::try_from(i64::from(of.months).checked_mul(times)?).ok()?,
        i32::try_from(i64::from(of.days).checked_mul(times)?).ok()?,
        of.nanoseconds.checked_mul(times)?,
    ))
}

fn about(of: IntervalMonthDayNano, times: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    const DAY_NS: f64 = 86_400e9;
    let within = |value: f64, most: f64| (value.abs() < most).then_some(value);
    let months = within(times(f64::from(of.months)), f64::from(i32::MAX))?;
    let days = times(f64::from(of.days)) + near((months - months.trunc()) * 30.0);
    let days = within(days, f64::from(i32::MAX))?;
    let ns = times(about_as_float(of.nanoseconds)) + (days - days.trunc()) * DAY_NS;
    let ns = within(ns, 9.2e18)?;
    Some(IntervalMonthDayNano::new(
        i32::try_from(whole(months)).ok()?,
        i32::try_from(whole(days)).ok()?,
        whole(ns.round_ties_even()),
    ))
}

/// A number of days, rounded to microseconds: removes the rounding errors of fractions of months.
fn near(days: f64) -> f64 {
    const DAY_US: f64 = 86_400e6;
    (days * DAY_US).round_ties_even() / DAY_US
}

/// The integer part of a float that fits into 64 bits.
pub(super) fn whole(value: f64) -> i64 {
    value.trunc() as i64
}

/// The nearest float.
pub(super) fn about_as_float(value: i64) -> f64 {
    value as f64
}
