//! Selects streams with certain values of certain tags, by their key bytes.
//!
//! Key bytes have a stream's tags sorted by key, so a walk through them in order can skip whole
//! ranges: for a key that does not match, [`TagFilter::look`] returns the start of the next one
//! that may match. A tag with required values is found by one jump per value of the tags before it.
//!
//! Invariants: skipped keys do not match; a position to continue from is always after the current
//! key.

use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::part_of;

/// Required values of tags: each tag must have one of its values.
#[derive(Debug, Default)]
pub(crate) struct TagFilter {
    /// By tag key; the values encoded as in key bytes, sorted.
    tags: Vec<(String, Vec<Vec<u8>>)>,
}

/// Next step of a walk over key bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Continues with the next key.
    Next,
    /// Continues with the first key that is not below this one.
    From(Vec<u8>),
    /// The walk ends.
    End,
}

/// Result for a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyMatch {
    Match,
    Not(Walk),
}

impl TagFilter {
    pub(crate) fn new(tags: &[(String, Vec<String>)]) -> TagFilter {
        let encoded = |value: &String| {
            let mut out = Vec::new();
            out.put_prefixed(value.as_bytes());
            out
        };
        let mut all: Vec<(String, Vec<Vec<u8>>)> = Vec::with_capacity(tags.len());
        for (key, values) in tags {
            let mut values: Vec<Vec<u8>> = values.iter().map(encoded).collect();
            values.sort_unstable();
            values.dedup();
            match all.iter_mut().find(|(known, _)| known == key) {
                // Required twice: the value must be in both lists.
                Some((_, known)) => known.retain(|v| values.binary_search(v).is_ok()),
                None => all.push((key.clone(), values)),
            }
        }
        all.sort_unstable();
        TagFilter { tags: all }
    }

    /// Tests if the stream with these key bytes matches; otherwise returns the position to continue
    /// from.
    pub(crate) fn look(&self, key: &[u8]) -> Result<KeyMatch, DecodeError> {
        let mut cursor = Cursor::new(key);
        cursor.u32("table id")?;
        let mut wanted = self.tags.iter().peekable();
        while let Some((tag, values)) = wanted.peek() {
            if cursor.remaining() == 0 {
                // Streams with more tags follow this key.
                return Ok(KeyMatch::Not(Walk::Next));
            }
            let found = cursor.text("tag key")?;
            let value_at = key.len() - cursor.remaining();
            cursor.text("tag value")?;
            if found < tag.as_str() {
                continue;
            }
            let before = part_of(key, ..value_at, "the key before a tag's value");
            if found > tag.as_str() {
                // Tags are sorted: no key with this prefix has the required tag.
                return Ok(KeyMatch::Not(behind(before)));
            }
            let value = key.get(value_at..key.len() - cursor.remaining());
            let value = value.unwrap_or_default();
            match values.binary_search_by(|v| v.as_slice().cmp(value)) {
                Ok(_) => drop(wanted.next()),
                Err(next) => {
                    return Ok(KeyMatch::Not(match values.get(next) {
                        Some(next) => Walk::From([before, next].concat()),
                        None => behind(before),
                    }));
                }
            }
        }
        Ok(KeyMatch::Match)
    }
}

/// Continues after all keys that begin with these bytes.
fn behind(prefix: &[u8]) -> Walk {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Walk::From(end);
        }
    }
    Walk::End
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::streams::stream_key;
    use super::*;
    use crate::common::ids::TableId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Tags = BTreeMap<String, String>;

    fn key(tags: &Tags) -> Vec<u8> {
        let tags: Vec<_> = tags.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let mut out = Vec::new();
        stream_key(TableId(7), &tags, &mut out);
        out
    }

    proptest! {
        #[test]
        fn a_walk_that_leaves_out_finds_what_one_over_all_finds(
            streams in proptest::collection::btree_set(
                proptest::collection::btree_map("a|b|bb|ab|c", "|x|y|xx|zzz|\u{fc}", 0..4), 0..60),
            wanted in proptest::collection::vec(
                ("a|b|bb|ab|c", proptest::collection::vec("|x|y|xx|zzz|q", 0..3)), 0..3),
        ) {
            let having = TagFilter::new(&wanted);
            let mut keys: Vec<(Vec<u8>, &Tags)> = streams.iter().map(|s| (key(s), s)).collect();
            keys.sort_unstable();
            let fits = |tags: &Tags| wanted.iter().all(|(k, values)| {
                tags.get(k).is_some_and(|v| values.contains(v))
            });
            let mut found = Vec::new();
            let mut at = 0;
            while let Some((key, tags)) = keys.get(at) {
                match having.look(key).unwrap() {
                    KeyMatch::Match => { found.push(*tags); at += 1; }
                    KeyMatch::Not(Walk::Next) => at += 1,
                    KeyMatch::Not(Walk::End) => break,
                    KeyMatch::Not(Walk::From(next)) => {
                        prop_assert!(next > *key);
                        at = keys.partition_point(|(k, _)| *k < next);
                    }
                }
            }
            let expected: Vec<&Tags> =
                keys.iter().map(|(_, tags)| *tags).filter(|tags| fits(tags)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
