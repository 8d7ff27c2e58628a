//! Conversion of text, days and times without zone to instants, in the local time of a zone.

use super::errors::out_of_range;
use crate::columns::time_type;
use crate::rewrites::lengths;
use crate::rewrites::times::canonical;
use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, IntervalMonthDayNanoArray, StringArray, TimestampNanosecondArray,
};
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, TimeUnit, TimestampNanosecondType};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use datafusion::common::Result;
use headwater_wire::zone::Zone;
use std::sync::Arc;

/// The type of local time.
pub(super) const WALL: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// A cast that fails if a value cannot be converted.
const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

pub(super) fn is_text(of: &DataType) -> bool {
    match of {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// Whether values of a type are local times, which need a zone.
pub(super) fn is_wall(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64
    )
}

/// Target of the conversion of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum As {
    /// The instant of the text; in the zone's local time if the text does not have an offset.
    Instant,
    /// The zone's local time at that instant; without an offset, the text itself.
    Wall,
}

impl As {
    /// The type of the result.
    pub(super) fn data_type(self) -> DataType {
        match self {
            As::Instant => time_type(),
            As::Wall => WALL,
        }
    }
}

fn time_of(text: &str, zone: &Zone, utc: &Tz, other: &Tz, wanted: As) -> Result<i64> {
    let far = || ArrowError::ParseError(format!("the timestamp '{text}' is out of range"));
    let text = &*canonical(text);
    let in_utc = string_to_datetime(utc, text)?.timestamp_nanos_opt();
    let ns = in_utc.ok_or_else(far)?;
    // In another zone it would be another instant, unless it has an offset.
    let has_offset = string_to_datetime(other, text)?.timestamp_nanos_opt() == in_utc;
    let time = match (wanted, has_offset) {
        (As::Instant, true) | (As::Wall, false) => Some(ns),
        (As::Instant, false) => zone.instant_ns(ns),
        (As::Wall, true) => zone.wall_ns(ns),
    };
    time.ok_or_else(|| far().into())
}

/// Converts texts to times. `lenient` = NULL for invalid texts.
pub(super) fn times_of_texts(
    texts: &StringArray,
    zone: &Zone,
    wanted: As,
    lenient: bool,
) -> Result<ArrayRef> {
    let (utc, other): (Tz, Tz) = ("+00:00".parse()?, "+01:00".parse()?);
    let values = texts.iter().map(|text| match text {
        None => Ok(None),
        Some(text) => match time_of(text, zone, &utc, &other, wanted) {
            Ok(ns) => Ok(Some(ns)),
            Err(_) if lenient => Ok(None),
            Err(why) => Err(why),
        },
    });
    let values = values.collect::<Result<TimestampNanosecondArray>>()?;
    Ok(Arc::new(values.with_data_type(wanted.data_type())))
}

/// Parses texts as intervals: PostgreSQL's, and widths such as `5m`.
fn intervals_of_texts(texts: &StringArray) -> Result<IntervalMonthDayNanoArray> {
    let values = texts.iter().map(|text| match text {
        None => Ok(None),
        Some(text) => match lengths::read(text) {
            Some(interval) => Ok(Some(interval)),
            None => Err(lengths::no_interval(text)),
        },
    });
    Ok(values.collect::<std::result::Result<_, crate::Error>>()?)
}

/// Converts local times of a zone to instants.
pub(super) fn instants_of_wall(
    times: &TimestampNanosecondArray,
    zone: &Zone,
) -> Result<TimestampNanosecondArray> {
    let values = times.iter().map(|time| {
        let at = time.map(|time| zone.instant_ns(time).ok_or_else(|| out_of_range(zone)));
        at.transpose()
    });
    let values = values.collect::<Result<TimestampNanosecondArray>>()?;
    Ok(values.with_timezone("UTC"))
}

/// An array cast to another type; times are local times of the zone.
pub(crate) fn cast_in(zone: &Zone, array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    let times: ArrayRef = match wanted {
        DataType::Timestamp(_, of) if !zone.is_utc() && is_text(array.data_type()) => {
            let texts = cast_with_options(array, &DataType::Utf8, &STRICT)?;
            let of = of.as_ref().map_or(As::Wall, |_| As::Instant);
            times_of_texts(texts.as_string::<i32>(), zone, of, false)?
        }
        DataType::Timestamp(_, Some(_)) if !zone.is_utc() && is_wall(array.data_type()) => {
            let times = cast_with_options(array, &WALL, &STRICT)?;
            let times = times.as_primitive::<TimestampNanosecondType>();
            Arc::new(instants_of_wall(times, zone)?)
        }
        DataType::Timestamp(..) if is_text(array.data_type()) => {
            let texts = cast_with_options(array, &DataType::Utf8, &STRICT)?;
            let texts = texts.as_string::<i32>().iter();
            let texts: StringArray = texts.map(|text| text.map(canonical)).collect();
            Arc::new(texts)
        }
        DataType::Interval(_) if is_text(array.data_type()) => {
            let texts = cast_with_options(array, &DataType::Utf8, &STRICT)?;
            Arc::new(intervals_of_texts(texts.as_string::<i32>())?)
        }
        _ => ArrayRef::clone(array),
    };
    Ok(cast_with_options(&times, wanted, &STRICT)?)
}
