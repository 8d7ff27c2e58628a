//! `format(pattern, …)`: texts from patterns with `%s`, `%I`, `%L` and `%%`.

use super::names::{quote_ident, quote_literal};

/// A pattern that cannot be followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The pattern needs more values than were passed.
    TooFew,
    /// A missing or unsupported conversion letter.
    Unknown(Option<char>),
    /// A null value where a name is required.
    NoName,
    /// The text would be longer than [`BYTES_MAX`].
    TooLong,
}

/// The text of a pattern with these values.
pub(super) fn format(pattern: &str, values: &[Option<&str>]) -> Result<String, Wrong> {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    // PostgreSQL counts on from a value that was named.
    let mut next = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut digits = String::new();
        let mut left = false;
        let mut place = None;
        loop {
            match chars.peek() {
                Some('-') if digits.is_empty() => left = true,
                Some(digit) if digit.is_ascii_digit() => digits.push(*digit),
                Some('$') if place.is_none() && !digits.is_empty() => {
                    place = digits.parse::<usize>().ok();
                    digits.clear();
                }
                _ => break,
            }
            chars.next();
        }
        let width = digits.parse::<usize>().unwrap_or(0).min(WIDTH_MAX);
        let at = place.map_or(next, |place| place.wrapping_sub(1));
        let kind = chars.next();
        let value = *values.get(at).ok_or(Wrong::TooFew)?;
        next = at + 1;
        let text = match (kind, value) {
            (Some('s'), value) => value.unwrap_or_default().to_owned(),
            (Some('I'), Some(value)) => quote_ident(value),
            (Some('I'), None) => return Err(Wrong::NoName),
            (Some('L'), value) => value.map_or_else(|| "NULL".to_owned(), quote_literal),
            (other, _) => return Err(Wrong::Unknown(other)),
        };
        if out.len() + text.len() + width > BYTES_MAX {
            return Err(Wrong::TooLong);
        }
        let blanks = " ".repeat(width.saturating_sub(text.chars().count()));
        match left {
            true => out.extend([text, blanks]),
            false => out.extend([blanks, text]),
        }
    }
    Ok(out)
}

/// Bytes of a text: a pattern may ask for a long value again and again.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// Characters that a value is brought to at most.
const WIDTH_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_the_pattern_has_them() {
        let values = [Some("a b"), None, Some("it's")];
        for (pattern, wanted) in [
            ("x", "x"),
            ("%s-%I", "a b-"),
            ("%1$I.%3$L", "\"a b\".'it''s'"),
            ("%s %L %s%%", "a b NULL it's%"),
            ("%3$s %1$s", "it's a b"),
            ("%1$s %s", "a b "),
            ("[%5s] [%-5s]", "[  a b] [     ]"),
        ] {
            let found = format(pattern, &values);
            match pattern {
                "%s-%I" => assert_eq!(found, Err(Wrong::NoName)),
                _ => assert_eq!(found.as_deref(), Ok(wanted), "{pattern}"),
            }
        }
        assert_eq!(format("%s %s", &values[..1]), Err(Wrong::TooFew));
        assert_eq!(format("%d", &values), Err(Wrong::Unknown(Some('d'))));
        assert_eq!(format("%", &values), Err(Wrong::Unknown(None)));
        let long = "x".repeat(1_000);
        let pattern = "%1$s".repeat(2_000);
        assert_eq!(format(&pattern, &[Some(&long)]), Err(Wrong::TooLong));
    }
}
