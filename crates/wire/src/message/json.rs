//! The members of JSON objects, flat, with numbers as written.
//!
//! A number must reach its column exactly, as the nearest `f64` or as an integer of 64 bits, so the
//! library returns each value as its text, and parses only values that are not numbers. Invariants:
//! exactly the JSON of RFC 8259 is accepted, down to [`DEPTH_MAX`] levels; memory is bounded by the
//! length of the text and the maximum number of members.

use crate::refusal::{Fault, RefusalCode, shown};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

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

/// Rows of a text: one for an object, several for an array of objects.
///
/// # Errors
/// When the text is not JSON, is another kind of value, or has more than `members_max` values.
pub(super) fn rows(text: &str, members_max: usize) -> Result<Vec<Members<'_>>, Fault> {
    let whole = Text { whole: text };
    let value = whole.raw(text)?;
    if value.starts_with('[') {
        let items: Vec<&RawValue> = whole.read(value)?;
        return items
            .iter()
            .map(|item| whole.row(item.get(), members_max))
            .collect();
    }
    Ok(vec![whole.row(value, members_max)?])
}

/// The string in a text, if the text is a JSON string.
pub(super) fn string(text: &str) -> Option<Result<Cow<'_, str>, Fault>> {
    text.starts_with('"')
        .then(|| Text { whole: text }.string(text))
}

/// The text being read. Parts are borrowed from it.
#[derive(Clone, Copy)]
struct Text<'a> {
    whole: &'a str,
}

impl<'a> Text<'a> {
    /// Parses the value in a part of the text.
    fn read<T: Deserialize<'a>>(self, part: &'a str) -> Result<T, Fault> {
        serde_json::from_str(part).map_err(|error| self.malformed(part, &error))
    }

    #[cold]
    fn malformed(self, part: &str, error: &serde_json::Error) -> Fault {
        // They count lines and bytes of a line from 1; 0 bytes is before the first.
        let line = error.line().saturating_sub(1);
        let lines: usize = part.split_inclusive('\n').take(line).map(str::len).sum();
        let base = part.as_ptr() as usize - self.whole.as_ptr() as usize;
        let told = error.to_string();
        let (what, _) = told.rsplit_once(" at line ").unwrap_or((&told, ""));
        let (at, found) = match error.is_eof() {
            true => (base + part.len(), String::new()),
            false => {
                let at = base + lines + error.column().saturating_sub(1);
                let rest = self.whole.as_bytes().get(at..).unwrap_or_default();
                (at, format!(", found {}", shown(rest)))
            }
        };
        Fault::new(
            RefusalCode::Parse,
            format!("the JSON is malformed at byte {at}: {what}{found}"),
        )
    }

    /// Text of a value without the surrounding spaces.
    fn raw(self, part: &'a str) -> Result<&'a str, Fault> {
        self.read(part).map(RawValue::get)
    }

    fn string(self, part: &'a str) -> Result<Cow<'a, str>, Fault> {
        self.read(part).map(|name: Unescaped<'a>| name.0)
    }

    fn row(self, value: &'a str, members_max: usize) -> Result<Members<'a>, Fault> {
        if !value.starts_with('{') {
            let found = shown(value.as_bytes());
            let at = value.as_ptr() as usize - self.whole.as_ptr() as usize;
            return Err(Fault::new(
                RefusalCode::Parse,
                format!(
                    "the JSON at byte {at}: expected an object `{{…}}`, whose members are the fields, found {found}"
                ),
            ));
        }
        let mut members = Members::default();
        self.value(value, &mut members, &mut String::new(), 0, members_max)?;
        Ok(members)
    }

    fn value(
        self,
        value: &'a str,
        members: &mut Members<'a>,
        path: &mut String,
        depth: usize,
        members_max: usize,
    ) -> Result<(), Fault> {
        let open = value.as_bytes().first();
        if depth >= DEPTH_MAX && matches!(open, Some(b'{' | b'[')) {
            return Err(too_deep());
        }
        let above = path.len();
        let mut below = |name: &str, value: &'a RawValue, path: &mut String| {
            if depth > 0 {
                path.push('.');
            }
            path.push_str(name);
            self.value(value.get(), members, path, depth + 1, members_max)?;
            path.truncate(above);
            Ok(())
        };
        let scalar = match open {
            Some(b'{') => {
                let list: Pairs<'a> = self.read(value)?;
                return list
                    .0
                    .iter()
                    .try_for_each(|(name, value)| below(&name.0, value, path));
            }
            Some(b'[') => {
                let list: Vec<&RawValue> = self.read(value)?;
                return list
                    .iter()
                    .enumerate()
                    .try_for_each(|(number, value)| below(&number.to_string(), value, path));
            }
            Some(b'"') => Scalar::Text(self.string(value)?),
            Some(b't') => Scalar::Bool(true),
            Some(b'f') => Scalar::Bool(false),
            Some(b'n') => Scalar::Null,
            _ => Scalar::Number(value),
        };
        if members.list.len() >= members_max {
            return Err(Fault::new(
                RefusalCode::LimitFields,
                format!(
                    "the object has more than {members_max} values: split it into several messages"
                ),
            ));
        }
        let start = members.paths.len();
        members.paths.push_str(path);
        members.list.push((start, members.paths.len(), scalar));
        Ok(())
    }
}

#[cold]
fn too_deep() -> Fault {
    Fault::new(
        RefusalCode::Parse,
        format!("objects and arrays are nested deeper than {DEPTH_MAX} levels"),
    )
}

/// Names and values of an object in the order of the text; a name may be repeated.
struct Pairs<'a>(Vec<(Unescaped<'a>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Pairs<'de>, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Pairs<'de>, M::Error> {
                let mut list = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    list.push(pair);
                }
                Ok(Pairs(list))
            }
        }

        reader.deserialize_map(List)
    }
}

/// A string without its escapes, borrowed if it has no escapes.
struct Unescaped<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Unescaped<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Unescaped<'de>, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string in quotes")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }

        reader.deserialize_str(Text).map(Unescaped)
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
            ("", "at byte 0: EOF while parsing a value"),
            ("21.5", "expected an object"),
            (" [{},7]", "at byte 5: expected an object"),
            ("{\"a\":1,}", "at byte 7: key must be a string, found `}`"),
            ("{\"a\":01}", "at byte 6: invalid number"),
            ("{\"a\":1.}", "at byte 7: invalid number"),
            ("{\"a\":nul}", "at byte 8: expected"),
            ("{\"b\":\n{\"a\":\"\\ud800x\"}}", "hex escape, found `x"),
            ("{\"a\":\"\\udc00\"}", "lone leading surrogate"),
            ("{\"a\":\"\t\"}", "control character"),
            ("{\"a\":1} x", "at byte 8: trailing characters, found `x`"),
            ("{\"a\":\"x", "at byte 7: EOF while parsing a string"),
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

    /// Counts values other than objects and arrays.
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
            // The library refuses numbers beyond the largest f64 at once, this module when the
            // column is known.
            let too_large = theirs.as_ref().is_err_and(|e| e.to_string().contains("out of range"));
            prop_assert!(ours == theirs.is_ok() || too_large, "{}: {:?}", text, theirs);
        }
    }
}
