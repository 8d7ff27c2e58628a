//! The field values of a line.

use crate::number;
use crate::refusal::{Fault, RefusalCode, shown};
use headwater_types::FieldType;

/// The type and the bits of a number or a boolean at the front of `text`, and the rest of the text.
/// Strings are read by the caller. Scalars, so that they stay in registers.
///
/// # Errors
/// When the text is not such a value, or is a number outside the range of its type.
#[inline]
pub(super) fn plain(text: &[u8]) -> Result<(FieldType, u64, &[u8]), Box<Fault>> {
    let found = match text.first() {
        Some(b'0'..=b'9' | b'-' | b'.' | b'+') => numeric(text),
        _ => boolean(text),
    };
    match found {
        Some(found) => Ok(found),
        None => Err(Box::new(fault_of(text))),
    }
}

#[inline]
fn numeric(text: &[u8]) -> Option<(FieldType, u64, &[u8])> {
    let (number, rest) = number::scan(text)?;
    match rest {
        [] | [b',' | b' ' | b'\t', ..] => Some((FieldType::F64, number.to_f64()?.to_bits(), rest)),
        [b'i', rest @ ..] => Some((FieldType::I64, number.to_i64()? as u64, rest)),
        [b'u', rest @ ..] => Some((FieldType::U64, number.to_u64()?, rest)),
        _ => None,
    }
}

fn boolean(text: &[u8]) -> Option<(FieldType, u64, &[u8])> {
    let (word, rest) = text.split_at_checked(word_end(text))?;
    let value = match word {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => 1,
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => 0,
        _ => return None,
    };
    Some((FieldType::Bool, value, rest))
}

fn word_end(text: &[u8]) -> usize {
    text.iter()
        .position(|b| matches!(b, b',' | b' ' | b'\t'))
        .unwrap_or(text.len())
}

/// Reason why [`plain`] failed.
#[cold]
fn fault_of(text: &[u8]) -> Fault {
    let word = text.get(..word_end(text)).unwrap_or_default();
    let limits = match number::scan(word) {
        Some((_, [])) => "f64 (±1.8e308)",
        Some((number, b"i")) if !number.is_float => {
            "i64 (-9223372036854775808 to 9223372036854775807)"
        }
        Some((number, b"u")) if !number.is_float => "u64 (0 to 18446744073709551615)",
        _ => return not_a_value(word),
    };
    Fault::new(
        RefusalCode::Type,
        format!("{} is outside the range of {limits}", shown(word)),
    )
}

fn not_a_value(word: &[u8]) -> Fault {
    let message = if word.is_empty() {
        "expected a value after `=`, found nothing; leave the field out when it has no value"
            .to_owned()
    } else if number::not_finite(word).is_some() {
        format!(
            "line protocol cannot represent {}; leave the field out when it has no value",
            shown(word)
        )
    } else {
        format!(
            "expected a number, true, false or a \"quoted\" string, found {}; put text in double quotes",
            shown(word)
        )
    };
    Fault::new(RefusalCode::Parse, message)
}
