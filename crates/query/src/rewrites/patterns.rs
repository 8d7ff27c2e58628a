//! Patterns of `SIMILAR TO` as regular expressions, and patterns of `LIKE` with the escape
//! character that the SQL library supports.
//!
//! `%` matches any characters and `_` one; `|`, `*`, `+`, `?`, `{m,n}` and both kinds of brackets
//! have their meaning in regular expressions, and every other character is literal. A pattern must
//! match the whole text. The character after the escape character, by default the backslash, is
//! literal; `ESCAPE ''` disables it.

use crate::error::Error;
use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// `similar_to_escape(pattern, escape)`, as PostgreSQL calls it: the regular expression of a
/// pattern.
pub(super) const FUNCTION: &str = "similar_to_escape";

/// `like_escape(pattern, escape)`, as PostgreSQL calls it: a pattern of `LIKE` whose escape
/// character is the backslash.
pub(super) const LIKE_FUNCTION: &str = "like_escape";

/// Default escape character.
pub(super) const ESCAPE: &str = "\\";

/// The special characters of a regular expression.
const SIGNS: &str = r"\.+*?()|[]{}^$#&-~";

fn put_literal(out: &mut String, c: char) {
    if SIGNS.contains(c) {
        out.push('\\');
    }
    out.push(c);
}

/// A list of characters, after its opening bracket; ends after the closing one.
fn put_list(
    out: &mut String,
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    escape: Option<char>,
) -> std::result::Result<(), Error> {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let Some(c) = rest.next() else {
            return Err(Error::invalid_expression(
                "a pattern of SIMILAR TO has a [ without its ]",
            ));
        };
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(());
            }
            // Classes such as [:alpha:].
            '[' if rest.peek() == Some(&':') => {
                out.push('[');
                for c in rest.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            c if Some(c) == escape => match rest.next() {
                Some(c) => put_literal(out, c),
                None => return Err(open_escape("SIMILAR TO")),
            },
            '-' => out.push('-'),
            c => put_literal(out, c),
        }
        first = false;
    }
}

fn open_escape(of: &str) -> Error {
    Error::invalid_value(format!("a pattern of {of} ends with its escape character"))
        .with_hint("double the escape character to match it literally")
}

/// The regular expression of a pattern.
pub(super) fn expression(
    pattern: &str,
    escape: Option<char>,
) -> std::result::Result<String, Error> {
    let mut out = String::with_capacity(pattern.len() + 16);
    out.push_str("^(?s:");
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            c if Some(c) == escape => match rest.next() {
                Some(c) => put_literal(&mut out, c),
                None => return Err(open_escape("SIMILAR TO")),
            },
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => out.push(c),
            '[' => put_list(&mut out, &mut rest, escape)?,
            c => put_literal(&mut out, c),
        }
    }
    out.push_str(")$");
    Ok(out)
}

/// A pattern of `LIKE` with the backslash as its escape character.
pub(super) fn like(pattern: &str, escape: Option<char>) -> std::result::Result<String, Error> {
    let mut out = String::with_capacity(pattern.len() + 4);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        let (c, is_escaped) = match c {
            c if Some(c) == escape => match rest.next() {
                Some(c) => (c, true),
                None => return Err(open_escape("LIKE")),
            },
            c => (c, false),
        };
        if c == '\\' || (is_escaped && matches!(c, '%' | '_')) {
            out.push('\\');
        }
        out.push(c);
    }
    Ok(out)
}

/// The escape character in a text.
pub(super) fn escape_of(text: &str) -> std::result::Result<Option<char>, Error> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (escape, None) => Ok(escape),
        _ => Err(Error::invalid_value(format!(
            "ESCAPE takes one character or none, found '{text}'"
        ))),
    }
}

/// Rewrites a pattern with an escape character.
type PatternRewriter = fn(&str, Option<char>) -> std::result::Result<String, Error>;

/// The functions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Escape {
    name: &'static str,
    signature: Signature,
}

impl Escape {
    pub(crate) fn similar_to() -> Escape {
        Escape::named(FUNCTION)
    }

    pub(crate) fn like() -> Escape {
        Escape::named(LIKE_FUNCTION)
    }

    fn named(name: &'static str) -> Escape {
        Escape {
            name,
            signature: Signature::string(2, Volatility::Immutable),
        }
    }

    fn rewriter(&self) -> PatternRewriter {
        match self.name {
            LIKE_FUNCTION => like,
            _ => expression,
        }
    }
}

impl ScalarUDFImpl for Escape {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [patterns, escapes] = take_function_args(self.name, args.args)?;
        let make = self.rewriter();
        let constant = matches!(
            (&patterns, &escapes),
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))
        );
        let rows = if constant { 1 } else { rows };
        let texts = |value: ColumnarValue| -> Result<ArrayRef> {
            Ok(cast(&value.into_array(rows)?, &DataType::Utf8)?)
        };
        let (patterns, escapes) = (texts(patterns)?, texts(escapes)?);
        let pairs = patterns.as_string::<i32>().iter();
        let pairs = pairs.zip(escapes.as_string::<i32>());
        let made = pairs.map(|pair| match pair {
            (Some(pattern), Some(escape)) => Ok(Some(make(pattern, escape_of(escape)?)?)),
            _ => Ok(None),
        });
        let made: StringArray = made.collect::<std::result::Result<_, Error>>()?;
        Ok(match constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(Arc::new(made)),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn patterns_of_like_have_the_backslash_as_their_escape() {
        for (pattern, escape, made) in [
            ("%!_y", Some('!'), r"%\_y"),
            ("!!%!a", Some('!'), "!%a"),
            (r"a\_!\", Some('!'), r"a\\_\\"),
            (r"a\%", None, r"a\\%"),
            (r"a\%\a", Some('\\'), r"a\%a"),
            ("x%%_", Some('%'), r"x\%_"),
        ] {
            assert_eq!(like(pattern, escape).unwrap(), made, "{pattern}");
        }
        assert!(like("a!", Some('!')).is_err());
    }

    #[test]
    fn patterns_are_about_whole_texts_and_their_signs_mean_what_sql_says() {
        for (pattern, made) in [
            ("a%", "^(?s:a.*)$"),
            ("_b", "^(?s:.b)$"),
            ("(a|b)c*", "^(?s:(?:a|b)c*)$"),
            ("a{2,3}", "^(?s:a{2,3})$"),
            ("a.c^$", r"^(?s:a\.c\^\$)$"),
            (r"50\%", r"^(?s:50%)$"),
            ("<a>-b", r"^(?s:<a>\-b)$"),
            ("[a-c%_]", r"^(?s:[a-c%_])$"),
            ("[^]x]", r"^(?s:[^\]x])$"),
            ("[[:digit:]&&a]", r"^(?s:[[:digit:]\&\&a])$"),
            (r"[\]]", r"^(?s:[\]])$"),
        ] {
            assert_eq!(expression(pattern, Some('\\')).unwrap(), made, "{pattern}");
        }
        assert_eq!(expression("a#%b", Some('#')).unwrap(), r"^(?s:a%b)$");
        assert_eq!(expression(r"a\%", None).unwrap(), r"^(?s:a\\.*)$");
        assert!(expression("[ab", None).is_err());
        assert!(expression("a\\", Some('\\')).is_err());
        assert!(escape_of("ab").is_err());
    }
}
