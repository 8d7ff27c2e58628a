//! Functions that convert between instants and local time of a zone. A statement can call only
//! `timezone`; the others are put into plans by [`super::InZone`].

use super::errors::out_of_range;
use super::read::{As, WALL, instants_of_wall, is_text, times_of_texts};
use crate::columns::time_type;
use crate::error::Error;
use crate::value_texts::put_instant;
use arrow::array::{Array, ArrayRef, AsArray, StringArray, TimestampNanosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimestampNanosecondType};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use headwater_wire::clocks::{Intervals, Width};
use headwater_wire::zone::Zone;
use std::sync::{Arc, LazyLock};

/// Operation of a function; its first argument is a zone's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// An instant to local time, and back.
    TimeZone,
    /// A text to a time; if the flag is set, NULL for an invalid text.
    Read(As, bool),
    /// An instant to a text.
    Write,
    /// The beginning of an instant's interval in local time, with a width and an origin.
    Begin,
    /// The first instant whose local time is at or after a given one.
    First,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfZone {
    signature: Signature,
    work: Work,
}

fn function(work: Work) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(OfZone {
        signature: match work {
            Work::TimeZone => Signature::user_defined(Volatility::Immutable),
            Work::Begin => Signature::any(4, Volatility::Immutable),
            _ => Signature::any(2, Volatility::Immutable),
        },
        work,
    }))
}

/// `timezone(zone, time)`
pub(super) fn timezone() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::TimeZone));
    Arc::clone(&FUNCTION)
}

fn name(zone: &Zone) -> Expr {
    Expr::Literal(ScalarValue::from(zone.name()), None)
}

/// The local time of an instant, or the instant of a local time.
pub(super) fn convert(zone: &Zone, value: Expr) -> Expr {
    timezone().call(vec![name(zone), value])
}

/// The time of a text.
pub(super) fn read(zone: &Zone, text: Expr, wanted: As, lenient: bool) -> Expr {
    function(Work::Read(wanted, lenient)).call(vec![name(zone), text])
}

/// An instant as text.
pub(super) fn write(zone: &Zone, instant: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::Write));
    FUNCTION.call(vec![name(zone), instant])
}

/// The beginning of an instant's interval in local time: of `width_ns` nanoseconds, aligned to an
/// origin in local time.
pub(super) fn begin(zone: &Zone, width_ns: i64, origin_ns: i64, instant: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::Begin));
    let number = |ns: i64| Expr::Literal(ScalarValue::from(ns), None);
    FUNCTION.call(vec![
        name(zone),
        instant,
        number(width_ns),
        number(origin_ns),
    ])
}

/// The first instant whose local time is at or after a given one.
pub(super) fn first(zone: &Zone, wall: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Work::First));
    FUNCTION.call(vec![name(zone), wall])
}

impl ScalarUDFImpl for OfZone {
    fn name(&self) -> &str {
        match self.work {
            Work::TimeZone => "timezone",
            Work::Read(As::Instant, false) => "instant_of_text",
            Work::Read(As::Instant, true) => "instant_of_text_or_null",
            Work::Read(As::Wall, false) => "time_of_text",
            Work::Read(As::Wall, true) => "time_of_text_or_null",
            Work::Write => "text_of_instant",
            Work::Begin => "begin_on_clocks",
            Work::First => "first_on_clocks",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [_, time] = take_function_args("timezone", types)?;
        let time = match time {
            DataType::Timestamp(_, Some(_)) | DataType::Null => time_type(),
            // PostgreSQL does the same with a text of unknown type.
            text if is_text(text) => time_type(),
            DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64 => WALL,
            other => other.clone(),
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.work, types.get(1)) {
            (Work::TimeZone, Some(DataType::Timestamp(_, None))) => time_type(),
            (Work::TimeZone, Some(DataType::Timestamp(_, Some(_)))) => WALL,
            (Work::TimeZone, other) => {
                let found = other.map_or("nothing".to_owned(), ToString::to_string);
                return Err(Error::type_mismatch(format!(
                    "timezone and AT TIME ZONE take a timestamp, found {found}"
                ))
                .into());
            }
            (Work::Read(wanted, _), _) => wanted.data_type(),
            (Work::Write, _) => DataType::Utf8,
            (Work::Begin | Work::First, _) => time_type(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let constant = !args
            .args
            .iter()
            .any(|value| matches!(value, ColumnarValue::Array(_)));
        let [zone, values, more @ ..] = &*args.args else {
            return Err(Error::internal("a function of zones without its arguments").into());
        };
        let intervals = match more {
            [width, origin] => Some((number(width)?, number(origin)?)),
            _ => None,
        };
        let values = values.to_array(if constant { 1 } else { rows })?;
        let done: ArrayRef = match zone {
            ColumnarValue::Scalar(zone) => match zone.try_as_str().flatten() {
                Some(zone) => self.all(&read_zone(zone)?, &values, intervals)?,
                None => {
                    let of = args.return_field.data_type();
                    arrow::array::new_null_array(of, values.len())
                }
            },
            ColumnarValue::Array(zones) => self.each(zones, &values, &args, intervals)?,
        };
        Ok(match constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&done, 0)?),
            false => ColumnarValue::Array(done),
        })
    }
}

/// An integer argument of a function.
fn number(given: &ColumnarValue) -> Result<i64> {
    let given = cast(&given.to_array(1)?, &DataType::Int64)?;
    Ok(given.as_primitive::<Int64Type>().value(0))
}

fn read_zone(name: &str) -> Result<Zone> {
    Zone::read(name).map_err(|why| Error::unknown_zone(&why).into())
}

impl OfZone {
    /// Converts values in one zone.
    fn all(
        &self,
        zone: &Zone,
        values: &ArrayRef,
        intervals: Option<(i64, i64)>,
    ) -> Result<ArrayRef> {
        let times = || values.as_primitive::<TimestampNanosecondType>();
        let each = |f: &dyn Fn(i64) -> Option<i64>| {
            let made = times().iter().map(|at| {
                let made = at.map(|at| f(at).ok_or_else(|| out_of_range(zone)));
                made.transpose()
            });
            made.collect::<Result<TimestampNanosecondArray>>()
        };
        Ok(match (self.work, values.data_type()) {
            (Work::TimeZone, DataType::Timestamp(_, None)) => {
                Arc::new(instants_of_wall(times(), zone)?)
            }
            (Work::TimeZone, _) => Arc::new(each(&|at| zone.wall_ns(at))?),
            (Work::Begin, _) => {
                let (width_ns, origin_ns) = intervals.unwrap_or_default();
                let intervals = Intervals::new(zone.clone(), Width::Fixed(width_ns), origin_ns)
                    .ok_or_else(|| Error::invalid_value("the width must be greater than zero"))?;
                let begins = each(&|at| intervals.begin(at))?;
                Arc::new(begins.with_timezone("UTC"))
            }
            (Work::First, _) => {
                let firsts = each(&|shown| zone.first_showing_ns(shown))?;
                Arc::new(firsts.with_timezone("UTC"))
            }
            (Work::Read(wanted, lenient), _) => {
                let texts = cast(values, &DataType::Utf8)?;
                times_of_texts(texts.as_string::<i32>(), zone, wanted, lenient)?
            }
            (Work::Write, _) => {
                let texts = times().iter();
                let texts: StringArray = texts.map(|at| at.map(|at| text(zone, at))).collect();
                Arc::new(texts)
            }
        })
    }

    /// Converts values of rows that each name their zone.
    fn each(
        &self,
        zones: &ArrayRef,
        values: &ArrayRef,
        args: &ScalarFunctionArgs,
        intervals: Option<(i64, i64)>,
    ) -> Result<ArrayRef> {
        let zones = cast(zones, &DataType::Utf8)?;
        let zones = zones.as_string::<i32>();
        let mut known: Option<Zone> = None;
        let mut made = Vec::with_capacity(zones.len());
        for (row, name) in zones.iter().enumerate() {
            let Some(name) = name else {
                made.push(ScalarValue::try_new_null(args.return_field.data_type())?);
                continue;
            };
            let zone = match known.take() {
                Some(zone) if zone.name() == name => zone,
                _ => read_zone(name)?,
            };
            let one = self.all(&zone, &values.slice(row, 1), intervals)?;
            made.push(ScalarValue::try_from_array(&one, 0)?);
            known = Some(zone);
        }
        match made.is_empty() {
            true => Ok(arrow::array::new_empty_array(args.return_field.data_type())),
            false => ScalarValue::iter_to_array(made),
        }
    }
}

/// An instant in PostgreSQL's format for a zone: `2024-05-01 14:00:00+02`.
fn text(zone: &Zone, at: i64) -> String {
    let mut bytes = Vec::new();
    put_instant(at.into(), Some(zone.offset_seconds(at.into())), &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
