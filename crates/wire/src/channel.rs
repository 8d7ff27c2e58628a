//! Names of channels as programs write them: `STREAM.FIELD`, and addresses of tiles.
//!
//! Rule: a backslash escapes the next character; the channel is cut at its last dot without a
//! backslash, so dots in the stream need no quoting and dots in a field do. [`Channel::parse`]
//! reads back the text that [`Channel`] prints.

use headwater_types::{Level, StreamName};
use std::fmt;

/// A field of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The stream.
    pub stream: StreamName,
    /// The field.
    pub field: String,
}

impl Channel {
    /// Reads `table,tag=value.field`.
    ///
    /// ```
    /// use headwater_wire::channel::Channel;
    /// let channel = Channel::parse("obd,car=v1.5.speed").unwrap();
    /// assert_eq!(channel.stream.tag("car"), Some("v1.5"));
    /// assert_eq!(channel.field, "speed");
    /// assert_eq!(Channel::parse(r"a.b\.c").unwrap().field, "b.c");
    /// assert!(Channel::parse("a").is_none());
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Channel> {
        let mut cut = None;
        let mut is_kept = false;
        for (at, c) in text.char_indices() {
            if c == '.' && !is_kept {
                cut = Some(at);
            }
            is_kept = c == '\\' && !is_kept;
        }
        let cut = cut?;
        let mut field = String::new();
        let mut chars = text.get(cut + 1..)?.chars();
        while let Some(c) = chars.next() {
            field.push(if c == '\\' { chars.next()? } else { c });
        }
        if field.is_empty() {
            return None;
        }
        Some(Channel {
            stream: StreamName::parse(text.get(..cut)?)?,
            field,
        })
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.stream)?;
        for c in self.field.chars() {
            if matches!(c, '.' | '\\') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

/// Name of a tile: `LEVEL.OFFSET.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileName {
    /// Level; the buckets are 2^level seconds wide.
    pub level: Level,
    /// Number of the tile, counted from 1970.
    pub offset: i64,
}

impl TileName {
    /// Reads `-3.1234.json`.
    ///
    /// ```
    /// use headwater_wire::channel::TileName;
    /// let name = TileName::parse("-3.-12.json").unwrap();
    /// assert_eq!((name.level.get(), name.offset), (-3, -12));
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<TileName> {
        let (level, offset) = text.strip_suffix(".json")?.split_once('.')?;
        Some(TileName {
            level: Level::new(level.parse().ok()?)?,
            offset: offset.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_dot_counts_unless_it_is_kept() {
        let parts = |text: &str| Channel::parse(text).map(|c| (c.stream.to_string(), c.field));
        let some = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(parts("t.f"), some("t", "f"));
        assert_eq!(parts("a.b.c"), some("a.b", "c"));
        // A table that ends with a backslash, then the dot.
        assert_eq!(parts(r"t\\.f"), some(r"t\\", "f"));
        assert_eq!(parts(r"t\.f"), None);
        for bad in ["", ".", "t.", ".f", "t", "t,x.f", r"t.f\"] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_of_tiles_are_read() {
        let offset = |text: &str| TileName::parse(text).map(|t| t.offset);
        assert_eq!(offset("0.9223372036854775807.json"), Some(i64::MAX));
        for bad in [
            "0.9223372036854775808.json",
            "41.0.json",
            "-21.0.json",
            "0.0",
            "0.json",
            "1.2.3.json",
            "x.1.json",
        ] {
            assert_eq!(offset(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn channels_read_back(table in ".{1,9}", tag in ".{1,9}", value in ".{0,9}", field in ".{1,9}") {
            let channel = Channel { stream: StreamName::new(table, [(tag, value)]), field };
            prop_assert_eq!(Channel::parse(&channel.to_string()), Some(channel));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = Channel::parse(&text);
            let _ = TileName::parse(&text);
        }
    }
}
