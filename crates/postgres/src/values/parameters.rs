//! Parameters: values of clients as values for the planner.
//!
//! Values that the planner casts itself, such as an instant written as text, are passed on as text.

use super::{EPOCH_DAYS, EPOCH_US, numeric};
use crate::catalog::PgType;
use crate::messages::Format;
use arrow::datatypes::{DataType, IntervalMonthDayNanoType};
use headwater_query::Decimal;
use headwater_query::datafusion::common::ScalarValue;

/// Reason why a parameter cannot be read: PostgreSQL's code, and a text.
pub(crate) type Unreadable = (&'static str, String);

/// Reads a parameter of the type with this number.
///
/// # Errors
/// When the bytes are not a value of the type.
pub(crate) fn parameter(
    bytes: Option<&[u8]>,
    oid: u32,
    wanted: &DataType,
    format: Format,
) -> Result<ScalarValue, Unreadable> {
    let Some(bytes) = bytes else {
        return ScalarValue::try_from(wanted).map_err(|e| ("22023", e.to_string()));
    };
    match format {
        Format::Text => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| ("22021", "a text parameter is not UTF-8".to_owned()))?;
            from_text(text, oid)
        }
        Format::Binary => from_binary(bytes, oid),
    }
}

fn from_text(text: &str, oid: u32) -> Result<ScalarValue, Unreadable> {
    let wrong = |what: &str| {
        let cut: String = text.chars().take(80).collect();
        (
            "22P02",
            format!("invalid input syntax for type {what}: \"{cut}\""),
        )
    };
    let plain = text.trim();
    Ok(match oid {
        16 => ScalarValue::Boolean(Some(match plain.to_ascii_lowercase().as_str() {
            "t" | "true" | "y" | "yes" | "on" | "1" => true,
            "f" | "false" | "n" | "no" | "off" | "0" => false,
            _ => return Err(wrong("boolean")),
        })),
        21 => ScalarValue::Int16(Some(plain.parse().map_err(|_| wrong("smallint"))?)),
        23 => ScalarValue::Int32(Some(plain.parse().map_err(|_| wrong("integer"))?)),
        20 | 26 => ScalarValue::Int64(Some(plain.parse().map_err(|_| wrong("bigint"))?)),
        700 => ScalarValue::Float32(Some(plain.parse().map_err(|_| wrong("real"))?)),
        701 => ScalarValue::Float64(Some(plain.parse().map_err(|_| wrong("double precision"))?)),
        17 => ScalarValue::Binary(Some(bytea(text).ok_or_else(|| wrong("bytea"))?)),
        2950 => ScalarValue::Utf8(Some(uuid_of(plain).ok_or_else(|| wrong("uuid"))?)),
        1700 => decimal_of(plain)?.ok_or_else(|| wrong("numeric"))?,
        1082 | 1114 | 1184 if is_endless(plain) => return Err(far()),
        _ => match PgType::of_array(oid) {
            Some(element) => {
                let parts = list(plain).ok_or_else(|| wrong("array"))?;
                let values = parts
                    .into_iter()
                    .map(|part| match part {
                        Some(part) => from_text(&part, element.oid),
                        None => Ok(null(element.oid)),
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                array(values, element.oid)?
            }
            None => ScalarValue::Utf8(Some(text.to_owned())),
        },
    })
}

/// A UUID as PostgreSQL writes it.
fn uuid(number: u128) -> String {
    let hex = format!("{number:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

/// A UUID in any of its accepted forms: with braces or without, hyphens between any groups of four
/// digits.
fn uuid_of(text: &str) -> Option<String> {
    let bare = text
        .strip_prefix('{')
        .map_or(Some(text), |rest| rest.strip_suffix('}'))?;
    let digits: String = bare.chars().filter(|c| *c != '-').collect();
    let is_hex = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some(uuid(number))
}

/// A null of the type with this number.
fn null(oid: u32) -> ScalarValue {
    let data_type = PgType::parameter(oid).unwrap_or(DataType::Utf8);
    ScalarValue::try_from(data_type).unwrap_or(ScalarValue::Null)
}

/// The values as one list, of their common type: decimals get the largest number of fractional
/// digits among them.
fn array(values: Vec<ScalarValue>, oid: u32) -> Result<ScalarValue, Unreadable> {
    let first = values.iter().find(|value| !value.is_null());
    let mut data_type = first.map_or_else(
        || PgType::parameter(oid).unwrap_or(DataType::Utf8),
        ScalarValue::data_type,
    );
    let decimals = values.iter().filter_map(|value| match value {
        ScalarValue::Decimal128(Some(_), precision, scale)
        | ScalarValue::Decimal256(Some(_), precision, scale) => Some((*precision, *scale)),
        _ => None,
    });
    let widest = decimals.reduce(|(whole, scale), (p, s)| {
        // Digits before the point, and after it.
        let before = |p: u8, s: i8| i16::from(p) - i16::from(s);
        let most = before(whole, scale).max(before(p, s));
        let scale = scale.max(s);
        let precision = (most + i16::from(scale)).clamp(1, 76);
        (u8::try_from(precision).unwrap_or(76), scale)
    });
    if let Some((precision, scale)) = widest {
        data_type = match precision <= 38 {
            true => DataType::Decimal128(precision, scale),
            false => DataType::Decimal256(precision, scale),
        };
    }
    let typed = values.into_iter().map(|value| match value.is_null() {
        true => Ok(ScalarValue::try_from(&data_type).unwrap_or(ScalarValue::Null)),
        false => value
            .cast_to(&data_type)
            .map_err(|why| ("22003", format!("an element of a list: {why}"))),
    });
    let typed: Vec<ScalarValue> = typed.collect::<Result<_, Unreadable>>()?;
    let list = ScalarValue::new_list_nullable(&typed, &data_type);
    Ok(ScalarValue::List(list))
}

fn far() -> Unreadable {
    (
        "22008",
        "date or time out of range: it must be from 1677 to 2262; infinity is not supported"
            .to_owned(),
    )
}

/// True when a text is one of PostgreSQL's infinities.
fn is_endless(text: &str) -> bool {
    let word = text.trim_start_matches(['+', '-']);
    ["infinity", "inf"]
        .iter()
        .any(|end| word.eq_ignore_ascii_case(end))
}

/// A decimal with all the digits of a text, an exponent included; `None` = not a decimal. NaN and
/// infinities, which decimals do not have here, are floats.
fn decimal_of(text: &str) -> Result<Option<ScalarValue>, Unreadable> {
    let word = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    if ["nan", "inf", "infinity"].contains(&word.as_str()) {
        let float = text.parse().ok();
        return Ok(float.map(|float| ScalarValue::Float64(Some(float))));
    }
    match headwater_query::decimal(text) {
        None => Ok(None),
        Some(Decimal::Exact(value)) => Ok(Some(value)),
        Some(Decimal::TooLong) => {
            let cut: String = text.chars().take(80).collect();
            let told =
                format!("numeric out of range: at most 76 digits are supported, found {cut}");
            Err(("22003", told))
        }
    }
}

/// The nanoseconds since 1970 of an instant in the binary form: microseconds since 2000.
///
/// # Errors
/// When the instant does not fit 64 bits; infinity does not.
pub(crate) fn instant_of_binary(us: i64) -> Result<i64, Unreadable> {
    let us = us.checked_add(EPOCH_US);
    us.and_then(|us| us.checked_mul(1_000)).ok_or_else(far)
}

fn from_binary(bytes: &[u8], oid: u32) -> Result<ScalarValue, Unreadable> {
    let wrong = || {
        (
            "22P03",
            format!(
                "incorrect binary data format: {} bytes for type {oid}",
                bytes.len()
            ),
        )
    };
    macro_rules! number {
        ($kind:ty) => {
            <$kind>::from_be_bytes(bytes.try_into().map_err(|_| wrong())?)
        };
    }
    let text = || {
        String::from_utf8(bytes.to_vec())
            .map_err(|_| ("22021", "a text parameter is not UTF-8".to_owned()))
    };
    let instant = || -> Result<i64, Unreadable> { instant_of_binary(number!(i64)) };
    Ok(match oid {
        16 => match bytes {
            [0] => ScalarValue::Boolean(Some(false)),
            [_] => ScalarValue::Boolean(Some(true)),
            _ => return Err(wrong()),
        },
        17 => ScalarValue::Binary(Some(bytes.to_vec())),
        21 => ScalarValue::Int16(Some(number!(i16))),
        23 => ScalarValue::Int32(Some(number!(i32))),
        20 => ScalarValue::Int64(Some(number!(i64))),
        26 => ScalarValue::Int64(Some(number!(u32).into())),
        700 => ScalarValue::Float32(Some(number!(f32))),
        701 => ScalarValue::Float64(Some(number!(f64))),
        1700 => {
            let text = numeric::read(bytes).map_err(|why| ("22P03", why))?;
            decimal_of(&text)?.ok_or_else(wrong)?
        }
        18 | 19 | 25 | 1042 | 1043 | 705 | 0 | 114 => ScalarValue::Utf8(Some(text()?)),
        1082 => match number!(i32) {
            // PostgreSQL's infinities.
            i32::MIN | i32::MAX => return Err(far()),
            days => ScalarValue::Date32(Some(days.checked_add(EPOCH_DAYS).ok_or_else(far)?)),
        },
        1083 => {
            ScalarValue::Time64Nanosecond(Some(number!(i64).checked_mul(1_000).ok_or_else(far)?))
        }
        1114 => ScalarValue::TimestampNanosecond(Some(instant()?), None),
        1184 => ScalarValue::TimestampNanosecond(Some(instant()?), Some("UTC".into())),
        1186 => {
            let (us, rest) = bytes.split_at_checked(8).ok_or_else(wrong)?;
            let (days, months) = rest.split_at_checked(4).ok_or_else(wrong)?;
            let us = i64::from_be_bytes(us.try_into().map_err(|_| wrong())?);
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNanoType::make_value(
                i32::from_be_bytes(months.try_into().map_err(|_| wrong())?),
                i32::from_be_bytes(days.try_into().map_err(|_| wrong())?),
                us.checked_mul(1_000).ok_or_else(far)?,
            )))
        }
        // The binary form begins with the number of its version.
        3802 => match text()?.strip_prefix('\u{1}') {
            Some(text) => ScalarValue::Utf8(Some(text.to_owned())),
            None => return Err(wrong()),
        },
        2950 => ScalarValue::Utf8(Some(uuid(number!(u128)))),
        _ => match PgType::of_array(oid) {
            Some(element) => binary_array(bytes, element).ok_or_else(wrong)??,
            None => {
                return Err((
                    "0A000",
                    format!(
                        "parameters of the type with OID {oid} are not supported in the binary format; send text"
                    ),
                ));
            }
        },
    })
}

/// `None` = the bytes are not an array of one dimension.
fn binary_array(bytes: &[u8], element: &PgType) -> Option<Result<ScalarValue, Unreadable>> {
    fn word(rest: &mut &[u8]) -> Option<i32> {
        let (head, tail) = rest.split_first_chunk::<4>()?;
        *rest = tail;
        Some(i32::from_be_bytes(*head))
    }
    let mut rest = bytes;
    let (dimensions, _, oid) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
    if u32::try_from(oid) != Ok(element.oid) || !(0..=1).contains(&dimensions) {
        return None;
    }
    let mut values = Vec::new();
    if dimensions == 1 {
        let (count, _) = (word(&mut rest)?, word(&mut rest)?);
        for _ in 0..count {
            let length = word(&mut rest)?;
            if length == -1 {
                values.push(null(element.oid));
                continue;
            }
            let (head, tail) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = tail;
            match from_binary(head, element.oid) {
                Ok(value) => values.push(value),
                Err(error) => return Some(Err(error)),
            }
        }
    }
    rest.is_empty().then(|| array(values, element.oid))
}

/// `\x00ff`, or PostgreSQL's older form with backslashes.
fn bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = hex
            .chars()
            .map(|c| c.to_digit(16).map(|d| d as u8))
            .collect::<Option<_>>()?;
        let (pairs, rest) = digits.as_chunks::<2>();
        return rest
            .is_empty()
            .then(|| pairs.iter().map(|[a, b]| a << 4 | b).collect());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        if let Some(tail) = rest.strip_prefix(b"\\") {
            bytes.push(b'\\');
            rest = tail;
            continue;
        }
        let (octal, tail) = rest.split_at_checked(3)?;
        let octal = std::str::from_utf8(octal).ok()?;
        bytes.push(u8::from_str_radix(octal, 8).ok()?);
        rest = tail;
    }
    Some(bytes)
}

/// Elements of `{a,"b c",NULL}`; `None` = not an array, or with inner arrays.
fn list(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut parts = Vec::new();
    if inner.trim().is_empty() {
        return Some(parts);
    }
    let mut chars = inner.chars().peekable();
    loop {
        let mut part = String::new();
        let mut quoted = false;
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next_if_eq(&'"').is_some() {
            quoted = true;
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => part.push(chars.next()?),
                    c => part.push(c),
                }
            }
            while chars.next_if(|c| c.is_whitespace()).is_some() {}
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                match c {
                    '{' | '}' | '"' => return None,
                    '\\' => part.push(chars.next()?),
                    c => part.push(c),
                }
            }
            part.truncate(part.trim_end().len());
        }
        parts.push((quoted || !part.eq_ignore_ascii_case("null")).then_some(part));
        match chars.next() {
            None => return Some(parts),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

/// For tests: converts the value back to an array of one row.
#[cfg(test)]
pub(super) fn one(value: &ScalarValue) -> arrow::array::ArrayRef {
    #[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
    value.to_array_of_size(1).unwrap()
}
