//! `time_bucket(width, time [, zone] [, origin] [, offset])`: the beginning of the bucket that
//! contains an instant. Another name of `date_bin`, with widths also written as `'5m'` or
//! `'1h30m'`; becomes that function when a statement is planned.
//!
//! With a zone, buckets follow its clocks, as [`headwater_wire::clocks`] describes: days have 23 or
//! 25 hours where the clocks change. An offset moves all buckets. Three or four arguments are
//! distinguished by type; five arguments, and named ones, have fixed positions, and omitted ones
//! are `NULL`.

use super::date_bin;
use crate::columns::time_type;
use crate::error::Error;
use crate::rewrites::lengths;
use crate::text;
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit, TimestampNanosecondType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TypeSignature, Volatility,
};
use headwater_wire::zone::Zone;
use std::sync::{Arc, LazyLock};

/// The type of local time.
const WALL: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);
const DAY_NS: i64 = 86_400_000_000_000;

/// Functions of a time zone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZoneFunctions {
    /// The local time of an instant.
    pub(crate) shown: fn(&Zone, Expr) -> Expr,
    /// The beginning of an instant's interval, with a width and an origin.
    pub(crate) begin: fn(&Zone, i64, i64, Expr) -> Expr,
    /// The first instant at which the local time is at or after a given one.
    pub(crate) first: fn(&Zone, Expr) -> Expr,
}

/// The function.
#[derive(Debug)]
pub(super) struct TimeBucket {
    signature: Signature,
    zone_functions: ZoneFunctions,
}

impl PartialEq for TimeBucket {
    fn eq(&self, other: &TimeBucket) -> bool {
        self.signature == other.signature
    }
}

impl Eq for TimeBucket {}

impl std::hash::Hash for TimeBucket {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.signature.hash(state);
    }
}

/// The function, with the functions for time zones.
pub(crate) fn time_bucket(zone_functions: ZoneFunctions) -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Signature> = LazyLock::new(|| {
        let counts = (2..=5).map(TypeSignature::Any);
        Signature::one_of(counts.collect(), Volatility::Immutable)
    });
    Arc::new(ScalarUDF::new_from_impl(TimeBucket {
        signature: FUNCTION.clone(),
        zone_functions,
    }))
}

fn wrong(message: &str) -> datafusion::common::DataFusionError {
    Error::invalid_value(format!("time_bucket: {message}"))
        .with_hint("for example: time_bucket('5m', time)")
        .into()
}

/// Parses a duration as an interval.
fn length(of: &str) -> Option<IntervalMonthDayNano> {
    let length = text::duration_ns(of).map(|ns| IntervalMonthDayNano::new(0, 0, ns));
    length.or_else(|| lengths::read(of))
}

/// The width as an interval.
pub(crate) fn width(value: &ScalarValue) -> Result<ScalarValue> {
    let interval = match value.try_as_str() {
        Some(Some(text)) => {
            let width = length(text).ok_or_else(|| {
                wrong(&format!(
                    "expected a width such as '5m', '1h30m' or '1 day', found `{text}`"
                ))
            })?;
            ScalarValue::IntervalMonthDayNano(Some(width))
        }
        Some(None) => ScalarValue::IntervalMonthDayNano(None),
        None => value.cast_to(&DataType::Interval(
            arrow::datatypes::IntervalUnit::MonthDayNano,
        ))?,
    };
    Ok(interval)
}

/// The arguments after the width and the instant.
#[derive(Debug, Default)]
struct More {
    zone: Option<Zone>,
    origin: Option<ScalarValue>,
    offset: Option<IntervalMonthDayNano>,
}

impl More {
    fn of(rest: &[Expr]) -> Result<More> {
        let mut more = More::default();
        for (place, expr) in rest.iter().enumerate() {
            let Expr::Literal(value, _) = expr else {
                return Err(wrong(
                    "the zone, the origin and the offset must be constants",
                ));
            };
            if !value.is_null() {
                more.add(value, (rest.len() == 3).then_some(place))?;
            }
        }
        Ok(more)
    }

    /// Takes an argument, known by its position or by its type.
    fn add(&mut self, value: &ScalarValue, place: Option<usize>) -> Result<()> {
        let text = value.try_as_str().flatten();
        let zone = text.map(Zone::read);
        match (place, text, value) {
            (Some(0), Some(_), _) => {
                let zone = zone.transpose().map_err(|why| Error::unknown_zone(&why))?;
                self.zone = zone;
            }
            (None, Some(_), _) if matches!(zone, Some(Ok(_))) => {
                self.zone = zone.and_then(std::result::Result::ok);
            }
            (None | Some(2), Some(text), _) if length(text).is_some() => {
                self.offset = length(text);
            }
            (None | Some(2), _, ScalarValue::IntervalMonthDayNano(Some(offset))) => {
                self.offset = Some(*offset);
            }
            (None | Some(2), _, ScalarValue::DurationNanosecond(Some(ns))) => {
                self.offset = Some(IntervalMonthDayNano::new(0, 0, *ns));
            }
            (None | Some(1), _, origin) => self.origin = Some(origin.clone()),
            (_, _, value) => {
                return Err(wrong(&format!(
                    "expected a zone, an origin and an offset, found {value}"
                )));
            }
        }
        Ok(())
    }
}

/// The length of an interval without months.
fn fixed_ns(of: IntervalMonthDayNano) -> Option<i64> {
    let days = i64::from(of.days).checked_mul(DAY_NS)?;
    (of.months == 0).then(|| days.checked_add(of.nanoseconds))?
}

fn interval(of: IntervalMonthDayNano) -> Expr {
    Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(of)), None)
}

fn operate(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// The width of intervals on clocks and an origin in local time, both in nanoseconds. `None` = the
/// width is in months, or not positive.
fn on_clocks(
    width: &ScalarValue,
    origin: Option<&ScalarValue>,
    offset: Option<IntervalMonthDayNano>,
) -> Result<Option<(i64, i64)>> {
    let ScalarValue::IntervalMonthDayNano(Some(width)) = width else {
        return Ok(None);
    };
    let origin_ns = match origin {
        None => 0,
        Some(ScalarValue::TimestampNanosecond(Some(ns), _)) => *ns,
        Some(_) => return Ok(None),
    };
    let Some(width_ns) = fixed_ns(*width).filter(|width| *width > 0) else {
        return Ok(None);
    };
    let moved = match offset {
        None => Some(origin_ns),
        Some(offset) => "+00:00"
            .parse()
            .ok()
            .and_then(|utc| TimestampNanosecondType::add_month_day_nano(origin_ns, offset, utc)),
    };
    let moved = moved.ok_or_else(|| wrong("the offset is out of range"))?;
    Ok(Some((width_ns, moved)))
}

impl TimeBucket {
    fn bin(&self, width: ScalarValue, time: Expr, more: More) -> Result<Expr> {
        let fixed = match &width {
            ScalarValue::IntervalMonthDayNano(Some(width)) => width.months == 0,
            _ => true,
        };
        let Some(zone) = more.zone.filter(|zone| !zone.is_utc()) else {
            let width = Expr::Literal(width, None);
            let origin = more.origin.map(|origin| origin.cast_to(&time_type()));
            return self.moved(width, time, origin.transpose()?, more.offset, fixed);
        };
        let origin = match more.origin {
            None => None,
            Some(ScalarValue::TimestampNanosecond(Some(ns), Some(_))) => {
                let shown = zone
                    .wall_ns(ns)
                    .ok_or_else(|| wrong("the origin is out of range"))?;
                Some(ScalarValue::TimestampNanosecond(Some(shown), None))
            }
            Some(origin) => Some(origin.cast_to(&WALL)?),
        };
        if let Some((width_ns, origin_ns)) = on_clocks(&width, origin.as_ref(), more.offset)? {
            return Ok((self.zone_functions.begin)(
                &zone, width_ns, origin_ns, time,
            ));
        }
        let shown = (self.zone_functions.shown)(&zone, time);
        let width = Expr::Literal(width, None);
        let begin = self.moved(width, shown, origin, more.offset, fixed)?;
        Ok((self.zone_functions.first)(&zone, begin))
    }

    /// Bins that are moved by an offset. An offset of fixed length moves the origin, so that the
    /// pyramid can still answer the bins.
    fn moved(
        &self,
        width: Expr,
        time: Expr,
        origin: Option<ScalarValue>,
        offset: Option<IntervalMonthDayNano>,
        fixed: bool,
    ) -> Result<Expr> {
        let literal = |origin: ScalarValue| Expr::Literal(origin, None);
        let Some(offset) = offset else {
            let mut args = vec![width, time];
            args.extend(origin.map(literal));
            return Ok(date_bin().call(args));
        };
        let ns = fixed_ns(offset).filter(|_| fixed);
        let known = match &origin {
            None => Some((0, Some(Arc::from("UTC")))),
            Some(ScalarValue::TimestampNanosecond(ns, zone)) => ns.map(|ns| (ns, zone.clone())),
            Some(_) => None,
        };
        if let (Some(ns), Some((origin_ns, zone))) = (ns, known) {
            let moved = origin_ns.checked_add(ns);
            let moved = moved.ok_or_else(|| wrong("the offset is out of range"))?;
            let moved = ScalarValue::TimestampNanosecond(Some(moved), zone);
            return Ok(date_bin().call(vec![width, time, literal(moved)]));
        }
        let mut args = vec![width, operate(time, Operator::Minus, interval(offset))];
        args.extend(origin.map(literal));
        let bin = date_bin().call(args);
        Ok(operate(bin, Operator::Plus, interval(offset)))
    }
}

impl ScalarUDFImpl for TimeBucket {
    fn name(&self) -> &str {
        "time_bucket"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.get(1) {
            Some(time @ DataType::Timestamp(TimeUnit::Nanosecond, _)) => Ok(time.clone()),
            _ => Err(wrong("the second argument must be a timestamp")),
        }
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let mut own = args.into_iter();
        let (Some(Expr::Literal(first, _)), Some(time)) = (own.next(), own.next()) else {
            return Err(wrong("the width must be a constant"));
        };
        let rest: Vec<Expr> = own.collect();
        let bin = self.bin(width(&first)?, time, More::of(&rest)?)?;
        Ok(ExprSimplifyResult::Simplified(bin))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(wrong("the width and the origin must be constants"))
    }
}
