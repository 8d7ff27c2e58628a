//! Values of payloads, as the types of fields.
//!
//! Invariant: a value becomes a field of the same number, boolean or text, or is refused; only
//! decimal fractions are rounded, to the nearest `f64`.

use super::json::{self, Scalar};
use super::rules::TimeReading;
use crate::column_builder::{ParsedValue, is_base16};
use crate::csv::TimeFormat;
use crate::instant::parse_rfc3339;
use crate::number;
use crate::refusal::{Fault, RefusalCode, shown};
use headwater_types::{FieldType, Timestamp};
use std::borrow::Cow;

fn type_fault(message: String) -> Fault {
    Fault::new(RefusalCode::Type, message)
}

/// The value of a bare payload. `None` when the payload is empty, which removes a retained value at
/// the broker, and when it is JSON's `null`, which is neither a value nor a text.
pub(super) fn bare(payload: &[u8]) -> Result<Option<Scalar<'_>>, Fault> {
    let payload = payload.trim_ascii();
    let Ok(text) = std::str::from_utf8(payload) else {
        return Err(Fault::new(
            RefusalCode::Utf8,
            format!(
                "the payload is not UTF-8: {}; send numbers as text, and bytes as base-16 digits",
                shown(payload)
            ),
        ));
    };
    if text.is_empty() || text == "null" {
        return Ok(None);
    }
    if let Some(read) = json::string(text) {
        return Ok(Some(Scalar::Text(read?)));
    }
    Ok(Some(match text {
        "true" | "True" | "TRUE" => Scalar::Bool(true),
        "false" | "False" | "FALSE" => Scalar::Bool(false),
        _ if number::scan(payload).is_some_and(|(_, rest)| rest.is_empty()) => Scalar::Number(text),
        _ => Scalar::Text(Cow::Borrowed(text)),
    }))
}

/// The value for a field. `None` when the value is absent.
pub(super) fn value_for_field<'a>(
    field: &str,
    scalar: &'a Scalar<'_>,
    wanted: Option<FieldType>,
    text_max: usize,
) -> Result<Option<ParsedValue<'a>>, Fault> {
    let found = match scalar {
        Scalar::Null => return Ok(None),
        Scalar::Number(text) => number_for(field, text, wanted)?,
        Scalar::Bool(value) => match wanted {
            None | Some(FieldType::Bool) => ParsedValue::plain(FieldType::Bool, u64::from(*value)),
            Some(FieldType::String) => {
                ParsedValue::text(if *value { "true" } else { "false" }, false)
            }
            Some(other) => {
                return Err(other_type(
                    field,
                    other,
                    if *value { "true" } else { "false" },
                ));
            }
        },
        Scalar::Text(text) => text_for(field, text, wanted, text_max)?,
    };
    Ok(Some(found))
}

fn number_for<'a>(
    field: &str,
    text: &'a str,
    wanted: Option<FieldType>,
) -> Result<ParsedValue<'a>, Fault> {
    let Some((number, [])) = number::scan(text.as_bytes()) else {
        return Err(other_type(field, wanted.unwrap_or(FieldType::F64), text));
    };
    let outside = |range: &str| {
        let shown = shown(text.as_bytes());
        type_fault(format!(
            "field `{field}`: {shown} is outside the range of {range}"
        ))
    };
    Ok(match wanted {
        None | Some(FieldType::F64) => {
            let value = number.to_f64().ok_or_else(|| outside("f64 (±1.8e308)"))?;
            // Whole numbers mean themselves, to the last digit.
            if !number.is_float && !is_exact(text, value) {
                return Err(type_fault(format!(
                    "field `{field}`: an f64 cannot hold {} exactly; give the field a type: types = {{ \"{field}\" = \"i64\" }}",
                    shown(text.as_bytes())
                )));
            }
            ParsedValue::plain(FieldType::F64, value.to_bits())
        }
        Some(FieldType::I64) => {
            let value = number.to_i64();
            let value = value.ok_or_else(|| outside("i64, or not a whole number"))?;
            ParsedValue::plain(FieldType::I64, value as u64)
        }
        Some(FieldType::U64) => {
            let value = number.to_u64();
            let value = value.ok_or_else(|| outside("u64, or not a whole number"))?;
            ParsedValue::plain(FieldType::U64, value)
        }
        Some(FieldType::Bool) => match text {
            "0" => ParsedValue::plain(FieldType::Bool, 0),
            "1" => ParsedValue::plain(FieldType::Bool, 1),
            _ => return Err(other_type(field, FieldType::Bool, text)),
        },
        Some(FieldType::String) => ParsedValue::text(text, false),
        Some(FieldType::Bytes) => base16(field, text)?,
    })
}

/// True when a float equals the whole number in `text`. False for numbers with more digits than
/// `i128` has.
fn is_exact(text: &str, value: f64) -> bool {
    // Below 2^53 every whole number is exact, and no larger number is rounded to that range.
    if value.abs() < 9_007_199_254_740_992.0 {
        return true;
    }
    text.parse::<i128>()
        .is_ok_and(|whole| value.abs() < 1e38 && value as i128 == whole)
}

fn text_for<'a>(
    field: &str,
    text: &'a str,
    wanted: Option<FieldType>,
    text_max: usize,
) -> Result<ParsedValue<'a>, Fault> {
    if text.len() > text_max {
        return Err(Fault::new(
            RefusalCode::LimitString,
            format!(
                "field `{field}`: a text of {} bytes; at most {text_max} are allowed",
                text.len()
            ),
        ));
    }
    match wanted {
        Some(FieldType::String) => Ok(ParsedValue::text(text, false)),
        Some(FieldType::Bytes) => base16(field, text),
        // A sensor that sends such a text has no value, and a first `NaN` must not make the field a
        // text.
        None if number::not_finite(text.as_bytes()).is_some() => Err(type_fault(format!(
            "field `{field}`: {} is not a finite number; leave the field out when it has no value",
            shown(text.as_bytes())
        ))),
        None => Ok(ParsedValue::text(text, false)),
        Some(FieldType::Bool) => match text {
            "true" | "True" | "TRUE" => Ok(ParsedValue::plain(FieldType::Bool, 1)),
            "false" | "False" | "FALSE" => Ok(ParsedValue::plain(FieldType::Bool, 0)),
            _ => Err(other_type(field, FieldType::Bool, text)),
        },
        // Programs whose numbers are floats send large integers in quotes.
        Some(number) => number_for(field, text, Some(number)),
    }
}

fn base16<'a>(field: &str, text: &'a str) -> Result<ParsedValue<'a>, Fault> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if is_base16(digits) {
        Ok(ParsedValue::base16(digits))
    } else {
        Err(other_type(field, FieldType::Bytes, text))
    }
}

#[cold]
fn other_type(field: &str, wanted: FieldType, text: &str) -> Fault {
    let what = match wanted {
        FieldType::Bytes => "bytes as base-16 digits".to_owned(),
        other => other.to_string(),
    };
    type_fault(format!(
        "field `{field}`: expected {what}, found {}",
        shown(text.as_bytes())
    ))
}

/// The instant in a member.
pub(super) fn time(
    scalar: Option<&Scalar<'_>>,
    path: &str,
    reading: &TimeReading,
) -> Result<Timestamp, Fault> {
    let text = match scalar {
        Some(Scalar::Number(text)) => text,
        Some(Scalar::Text(text)) => text.as_ref(),
        None => {
            return Err(Fault::new(
                RefusalCode::Time,
                format!("the member `{path}`, which should have the time, is missing"),
            ));
        }
        Some(Scalar::Null | Scalar::Bool(_)) => {
            return Err(Fault::new(
                RefusalCode::Time,
                format!(
                    "member `{path}` is the time: expected a number or a string, found null or a boolean"
                ),
            ));
        }
    };
    let read = match reading {
        TimeReading::As(format) => format.read(text),
        TimeReading::Auto => match TimeFormat::of_value(text) {
            Some(format) => format.read(text),
            None => parse_rfc3339(text.as_bytes())
                .map(Timestamp::from_nanos)
                .map_err(|error| {
                    Fault::new(
                        RefusalCode::Time,
                        format!("the time {}: {error}", shown(text.as_bytes())),
                    )
                }),
        },
    };
    read.map_err(|fault| Fault::new(fault.code, format!("member `{path}`: {}", fault.message)))
}

/// The text of a member that is a tag.
pub(super) fn tag<'a>(scalar: Option<&'a Scalar<'_>>, path: &str) -> Result<&'a str, Fault> {
    match scalar {
        Some(Scalar::Text(text)) => Ok(text),
        Some(Scalar::Number(text)) => Ok(text),
        Some(Scalar::Bool(true)) => Ok("true"),
        Some(Scalar::Bool(false)) => Ok("false"),
        None | Some(Scalar::Null) => Err(Fault::new(
            RefusalCode::Parse,
            format!("the member `{path}`, which should be a tag, is missing"),
        )),
    }
}
