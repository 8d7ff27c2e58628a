//! Tags that are added to the names of all streams of a part.
//!
//! A part has streams under its own names; among the streams of all parts they are shown with the
//! added tags. This is the only place that maps one to the other: [`super::part::Part`] looks
//! streams up by shown names, and everything below it has own names only.
//!
//! Invariants: two streams of a part never have one shown name. An own tag with the key of an added
//! one is shown as `exported_KEY`, and a tag `exported_KEY` as `exported_exported_KEY`, whether or
//! not the stream has the tag `KEY` too. Concurrency: immutable. Failure: a shown name without the
//! added tags is the name of no stream of the part.

use crate::{Error, Result};
use headwater_types::StreamName;
use std::sync::Arc;

/// Put before the key of an own tag that an added one has as well.
const EXPORTED: &str = "exported_";

/// Tags that are added to the names of all streams of a part ([`crate::SnapshotPart`]).
///
/// ```
/// use headwater_engine::AddedTags;
/// use headwater_types::StreamName;
/// let tags = AddedTags::new([("gateway", "pump-7")])?;
/// let own = StreamName::new("cpu", [("host", "raspberrypi")]);
/// let shown = tags.shown(&own);
/// assert_eq!(shown.to_string(), "cpu,gateway=pump-7,host=raspberrypi");
/// assert_eq!(tags.own(&shown), Some(own));
/// assert_eq!(tags.own(&StreamName::new("cpu", [("gateway", "pump-8")])), None);
/// # Ok::<(), headwater_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedTags(Option<Arc<[(String, String)]>>);

impl AddedTags {
    /// These tags, in any order.
    ///
    /// # Errors
    /// `invalid` for a tag without a key or a value, for a key that begins with `exported_`, and
    /// for two tags of one key.
    pub fn new<K: Into<String>, V: Into<String>>(
        tags: impl IntoIterator<Item = (K, V)>,
    ) -> Result<AddedTags> {
        let tags = tags.into_iter().map(|(k, v)| (k.into(), v.into()));
        let mut tags: Vec<(String, String)> = tags.collect();
        tags.sort();
        for (key, value) in &tags {
            if key.is_empty() || value.is_empty() {
                return Err(Error::invalid(format!(
                    "`{key}={value}`: an added tag has a key and a value, `gateway=pump-7`"
                )));
            }
            if key.starts_with(EXPORTED) {
                return Err(Error::invalid(format!(
                    "`{key}`: the key of an added tag does not begin with `{EXPORTED}`, which is put before the keys of other tags; choose another key"
                )));
            }
        }
        let pairs = tags.iter().zip(tags.iter().skip(1));
        if let Some((tag, _)) = pairs.into_iter().find(|(a, b)| a.0 == b.0) {
            return Err(Error::invalid(format!(
                "the tag `{}` is added twice; give it one value",
                tag.0
            )));
        }
        Ok(AddedTags((!tags.is_empty()).then(|| tags.into())))
    }

    /// True where streams are shown under their own names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The tags, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let tags = self.0.iter().flat_map(|tags| tags.iter());
        tags.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of a tag that is added.
    fn value(&self, key: &str) -> Option<&str> {
        let mut tags = self.iter();
        tags.find(|(added, _)| *added == key)
            .map(|(_, value)| value)
    }

    /// True for the key of an added tag, and for what such keys of a part's own become.
    fn concerns(&self, key: &str) -> bool {
        self.value(key.trim_start_matches(EXPORTED)).is_some()
    }

    /// The key under which an own tag is shown.
    fn shown_key(&self, key: &str) -> String {
        match self.concerns(key) {
            true => format!("{EXPORTED}{key}"),
            false => key.to_owned(),
        }
    }

    /// The name under which a stream of the part is shown.
    #[must_use]
    pub fn shown(&self, own: &StreamName) -> StreamName {
        if self.is_empty() {
            return own.clone();
        }
        let tags = own.tags().iter();
        let tags = tags.map(|(key, value)| (self.shown_key(key), value.clone()));
        let added = self.iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
        StreamName::new(own.table(), tags.chain(added))
    }

    /// The part's own name of a stream; `None` where no stream of the part is shown under this
    /// name.
    #[must_use]
    pub fn own(&self, shown: &StreamName) -> Option<StreamName> {
        if self.is_empty() {
            return Some(shown.clone());
        }
        if self
            .iter()
            .any(|(key, value)| shown.tag(key) != Some(value))
        {
            return None;
        }
        let tags = shown.tags().iter().filter_map(|(key, value)| {
            let key = match self.concerns(key) {
                // An added tag itself has no prefix.
                true => key.strip_prefix(EXPORTED)?,
                false => key,
            };
            Some((key, value.as_str()))
        });
        Some(StreamName::new(shown.table(), tags))
    }

    /// The tag keys of shown names, of the tag keys of own names.
    pub(super) fn shown_keys(&self, own: Vec<String>) -> Vec<String> {
        if self.is_empty() {
            return own;
        }
        let mut keys: Vec<String> = own.iter().map(|key| self.shown_key(key)).collect();
        keys.extend(self.iter().map(|(key, _)| key.to_owned()));
        keys.sort();
        keys
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key() -> impl Strategy<Value = String> {
        let keys = [
            "gateway",
            "exported_gateway",
            "exported_exported_gateway",
            "exported_host",
            "host",
            "a",
        ];
        prop::sample::select(keys.to_vec()).prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn shown_names_are_as_different_as_own_names_and_lead_back_to_them(
            names in prop::collection::vec(prop::collection::btree_map(key(), "[xy]", 0..5), 1..6),
            added in prop::collection::btree_map(
                prop::sample::select(vec!["gateway", "host", "site"]), "[xy]", 0..3,
            ),
        ) {
            let tags = AddedTags::new(added.clone()).unwrap();
            let mut by_shown: BTreeMap<StreamName, StreamName> = BTreeMap::new();
            for own in names {
                let own = StreamName::new("t", own);
                let shown = tags.shown(&own);
                prop_assert!(added.iter().all(|(k, v)| shown.tag(k) == Some(v.as_str())));
                prop_assert_eq!(shown.tags().len(), own.tags().len() + added.len());
                prop_assert_eq!(tags.own(&shown), Some(own.clone()));
                let keys = tags.shown_keys(own.tags().iter().map(|(k, _)| k.clone()).collect());
                let found: Vec<String> = shown.tags().iter().map(|(k, _)| k.clone()).collect();
                prop_assert_eq!(keys, found);
                if let Some(before) = by_shown.insert(shown, own.clone()) {
                    prop_assert_eq!(before, own);
                }
            }
        }
    }

    #[test]
    fn tags_that_would_not_tell_streams_apart_are_refused() {
        let kind = |tags: &[(&str, &str)]| {
            let tags = AddedTags::new(tags.iter().copied());
            tags.err().map(|error| error.kind())
        };
        assert_eq!(kind(&[("gateway", "a"), ("site", "b")]), None);
        let invalid = Some(crate::ErrorKind::Invalid);
        assert_eq!(kind(&[("gateway", "")]), invalid);
        assert_eq!(kind(&[("", "a")]), invalid);
        assert_eq!(kind(&[("exported_gateway", "a")]), invalid);
        assert_eq!(kind(&[("gateway", "a"), ("gateway", "b")]), invalid);
    }
}
