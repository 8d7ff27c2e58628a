//! The members of JSON objects, flat, with numbers as they are written.
//!
//! A reader of its own, since a number must reach its column exactly: as the nearest `f64`, or as an integer of 64 bits.
//! Invariants: exactly what RFC 8259 calls JSON is taken, down to [`DEPTH_MAX`] levels; memory is bounded by the length of the
//! text and the most members that are allowed.

use crate::refusal::{Fault, RefusalCode, shown};
use std::borrow::Cow;

/// Levels of objects and arrays in each other.
const DEPTH_MAX: usize = 32;

/// A value without members.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    /// The text of a number.
    Number(&'a str),
    Text(Cow<'a, str>),
}

/// The members of one object by their paths: `motor.temp`, `phase.0`.
#[derive(Clone, Debug, Default)]
pub(super) struct Members<'a> {
    paths: String,
    list: Vec<(usize, usize, Scalar<'a>)>,
}

impl<'a> Members<'a> {
    /// Paths and values in the order of the text.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Scalar<'a>)> {
        self.list.iter().map(|(start, end, scalar)| {
            let path = self.paths.get(*start..*end).unwrap_or_default();
            (path, scalar)
        })
    }

    /// The last value with this path.
    pub(super) fn get(&self, path: &str) -> Option<&Scalar<'a>> {
        self.list
            .iter()
            .rev()
            .find(|(start, end, _)| self.paths.get(*start..*end) == Some(path))
            .map(|(_, _, scalar)| scalar)
    }
}

/// The rows of a text: an object is one, an array of objects is several.
///
/// # Errors
/// When the text is not JSON, holds something else, or has more than `members_max` values.
pub(super) fn rows(text: &str, members_max: usize) -> Result<Vec<Members<'_>>, Fault> {
    let mut reader = Reader {
        text,
        at: 0,
        members_max,
    };
    let mut rows = Vec::new();
    reader.blanks();
    match reader.peek() {
        Some(b'[') => {
            reader.at += 1;
            reader.items(b']', |reader, _| {
                rows.push(reader.row()?);
                Ok(())
            })?;
        }
        _ => rows.push(reader.row()?),
    }
    reader.end()?;
    Ok(rows)
}

/// The string that a text is, if it is one.
pub(super) fn string(text: &str) -> Option<Result<Cow<'_, str>, Fault>> {
    if !text.starts_with('"') {
        return None;
    }
    let mut reader = Reader {
        text,
        at: 0,
        members_max: 0,
    };
    let read = reader.string();
    Some(read.and_then(|string| reader.end().map(|()| string)))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    members_max: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.blanks();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end")),
        }
    }

    #[cold]
    fn expected(&self, what: &str) -> Fault {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let found = if rest.is_empty() {
            "the end".to_owned()
        } else {
            shown(rest)
        };
        Fault::new(
            RefusalCode::Parse,
            format!(
                "the JSON is malformed at byte {}: expected {what}, found {found}",
                self.at
            ),
        )
    }

    fn row(&mut self) -> Result<Members<'a>, Fault> {
        if self.peek() != Some(b'{') {
            return Err(self.expected("an object `{…}`, whose members are the fields"));
        }
        let mut members = Members::default();
        let mut path = String::new();
        self.value(&mut members, &mut path, 0)?;
        Ok(members)
    }

    /// Calls for each item up to `close`, with its number; the opening bracket has been read.
    fn items(
        &mut self,
        close: u8,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.blanks();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(());
        }
        for number in 0.. {
            self.blanks();
            item(self, number)?;
            self.blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ if close == b']' => return Err(self.expected("`,` or `]`")),
                _ => return Err(self.expected("`,` or `}`")),
            }
        }
        Ok(())
    }

    fn value(
        &mut self,
        members: &mut Members<'a>,
        path: &mut String,
        depth: usize,
    ) -> Result<(), Fault> {
        let open = self.peek();
        if depth >= DEPTH_MAX && matches!(open, Some(b'{' | b'[')) {
            return Err(Fault::new(
                RefusalCode::Parse,
                format!("objects and arrays are nested deeper than {DEPTH_MAX} levels"),
            ));
        }
        let above = path.len();
        match open {
            Some(b'{') => {
                self.at += 1;
                self.items(b'}', |reader, _| {
                    if reader.peek() != Some(b'"') {
                        return Err(reader.expected("the name of a member in quotes"));
                    }
                    let name = reader.string()?;
                    reader.blanks();
                    if reader.peek() != Some(b':') {
                        return Err(reader.expected("`:`"));
                    }
                    reader.at += 1;
                    reader.blanks();
                    reader.below(members, path, above, &name, depth)
                })
            }
            Some(b'[') => {
                self.at += 1;
                self.items(b']', |reader, number| {
                    reader.below(members, path, above, &number.to_string(), depth)
                })
            }
            _ => {
                let scalar = self.scalar()?;
                if members.list.len() >= self.members_max {
                    return Err(Fault::new(
                        RefusalCode::LimitFields,
                        format!(
                            "more than {} values in one object; send them in several",
                            self.members_max
                        ),
                    ));
                }
                let start = members.paths.len();
                members.paths.push_str(path);
                members.list.push((start, members.paths.len(), scalar));
                Ok(())
            }
        }
    }

    /// A value one level below `above`.
    fn below(
        &mut self,
        members: &mut Members<'a>,
        path: &mut String,
        above: usize,
        name: &str,
        depth: usize,
    ) -> Result<(), Fault> {
        if depth > 0 {
            path.push('.');
        }
        path.push_str(name);
        self.value(members, path, depth + 1)?;
        path.truncate(above);
        Ok(())
    }

    fn scalar(&mut self) -> Result<Scalar<'a>, Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(Scalar::Text),
            Some(b'-' | b'0'..=b'9') => self.number().map(Scalar::Number),
            Some(b't') => self.word("true", Scalar::Bool(true)),
            Some(b'f') => self.word("false", Scalar::Bool(false)),
            Some(b'n') => self.word("null", Scalar::Null),
            _ => Err(self.expected("a value")),
        }
    }

    fn word(&mut self, word: &str, scalar: Scalar<'a>) -> Result<Scalar<'a>, Fault> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(scalar)
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.expected("a digit"));
        }
        Ok(())
    }

    fn number(&mut self) -> Result<&'a str, Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    /// A string; its opening quote is at the front.
    fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        self.at += 1;
        let mut start = self.at;
        let mut owned: Option<String> = None;
        loop {
            let Some(byte) = self.peek() else {
                return Err(self.expected("a closing quote"));
            };
            match byte {
                b'"' | b'\\' => {
                    let part = self.text.get(start..self.at).unwrap_or_default();
                    self.at += 1;
                    if byte == b'"' {
                        return Ok(match owned {
                            None => Cow::Borrowed(part),
                            Some(mut text) => {
                                text.push_str(part);
                                Cow::Owned(text)
                            }
                        });
                    }
                    let text = owned.get_or_insert_default();
                    text.push_str(part);
                    let c = self.escape()?;
                    text.push(c);
                    start = self.at;
                }
                0..0x20 => return Err(self.expected("\\n, \\t or \\u00XX for a control character")),
                _ => self.at += 1,
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char, Fault> {
        let Some(byte) = self.peek() else {
            return Err(self.expected("an escape"));
        };
        let c = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.code_point();
            }
            _ => return Err(self.expected("an escape")),
        };
        self.at += 1;
        Ok(c)
    }

    fn code_point(&mut self) -> Result<char, Fault> {
        let first = self.four_digits()?;
        let code = match first {
            0xD800..0xDC00 => {
                let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
                if !rest.starts_with(b"\\u") {
                    return Err(self.expected("the second half of a surrogate pair"));
                }
                self.at += 2;
                match self.four_digits()? {
                    second @ 0xDC00..0xE000 => {
                        0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
                    }
                    _ => return Err(self.expected("the second half of a surrogate pair")),
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.expected("a character"))
    }

    fn four_digits(&mut self) -> Result<u32, Fault> {
        let bytes = self.text.as_bytes().get(self.at..self.at + 4);
        let code = bytes.and_then(|bytes| {
            bytes.iter().try_fold(0, |code, byte| {
                Some(code << 4 | char::from(*byte).to_digit(16)?)
            })
        });
        let Some(code) = code else {
            return Err(self.expected("four digits in base 16"));
        };
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn flat(text: &str) -> Vec<(String, Scalar<'_>)> {
        let rows = rows(text, 100).unwrap();
        let members = rows[0].iter();
        members
            .map(|(path, s)| (path.to_owned(), s.clone()))
            .collect()
    }

    #[test]
    fn members_are_named_by_their_paths() {
        let found =
            flat(r#" {"a": 1.50, "b":{"c":[true,{"d":null}]}, "e\u00e9\ud83d\ude00": "x\n"} "#);
        let expected = [
            ("a", Scalar::Number("1.50")),
            ("b.c.0", Scalar::Bool(true)),
            ("b.c.1.d", Scalar::Null),
            ("eé😀", Scalar::Text("x\n".into())),
        ];
        assert_eq!(found.len(), expected.len());
        for ((path, scalar), (name, value)) in found.iter().zip(&expected) {
            assert_eq!((path.as_str(), scalar), (*name, value));
        }
    }

    #[test]
    fn an_array_holds_a_row_in_each_object() {
        assert_eq!(rows("[{\"a\":1},{\"a\":2}]", 9).unwrap().len(), 2);
        assert_eq!(rows("[]", 9).unwrap().len(), 0);
        assert!(rows("[1]", 9).is_err());
    }

    #[test]
    fn faults_say_where() {
        for (text, expected) in [
            ("", "at byte 0: expected an object"),
            ("21.5", "expected an object"),
            (
                "{\"a\":1,}",
                "at byte 7: expected the name of a member in quotes, found `}`",
            ),
            ("{\"a\":01}", "at byte 6: expected `,` or `}`"),
            ("{\"a\":1.}", "expected a digit"),
            ("{\"a\":nul}", "expected a value"),
            ("{\"a\":\"\\ud800x\"}", "second half"),
            ("{\"a\":\"\\udc00\"}", "expected a character"),
            ("{\"a\":\"\t\"}", "control character"),
            ("{\"a\":1} x", "expected the end"),
            ("{\"a\":\"x", "closing quote, found the end"),
        ] {
            let fault = rows(text, 9).unwrap_err();
            assert_eq!(fault.code, RefusalCode::Parse);
            assert!(
                fault.message.contains(expected),
                "{text}: {}",
                fault.message
            );
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
        assert!(rows(&deep, 9).unwrap_err().message.contains("32 levels"));
        let many = rows("{\"a\":[1,2,3]}", 2).unwrap_err();
        assert_eq!(many.code, RefusalCode::LimitFields);
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 24, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Counts what is no object and no array.
    fn scalars(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Array(items) => items.iter().map(scalars).sum(),
            serde_json::Value::Object(members) => members.values().map(scalars).sum(),
            _ => 1,
        }
    }

    proptest! {
        #[test]
        fn every_json_object_is_read(value in json()) {
            let value = serde_json::json!({ "x": value });
            let text = if scalars(&value).is_multiple_of(2) {
                serde_json::to_string(&value).unwrap()
            } else {
                serde_json::to_string_pretty(&value).unwrap()
            };
            let found = rows(&text, 10_000).unwrap();
            prop_assert_eq!(found[0].iter().count(), scalars(&value));
            let texts = found[0].iter().filter_map(|(_, s)| match s {
                Scalar::Text(text) => Some(text.clone().into_owned()),
                _ => None,
            });
            for text in texts {
                let quoted = serde_json::to_string(&text).unwrap();
                prop_assert_eq!(string(&quoted).unwrap().unwrap().into_owned(), text);
            }
        }

        #[test]
        fn what_is_taken_is_what_serde_json_takes(text in r#"[\{\}\[\]",:0-9a-f\-+.eE tru\\nl/]{0,24}"#) {
            let text = format!("{{{text}");
            let ours = rows(&text, 1000).is_ok();
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            // Numbers beyond the largest f64 are refused by them, and by us when they meet their column.
            let too_large = theirs.as_ref().is_err_and(|e| e.to_string().contains("out of range"));
            prop_assert!(ours == theirs.is_ok() || too_large, "{}: {:?}", text, theirs);
        }
    }
}
