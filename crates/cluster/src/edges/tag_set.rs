//! Tags that are added to names of streams, as set and stored.
//!
//! Invariant: bounded in number and length. Concurrency: plain data. Failure: other tags are
//! refused.

use crate::error::ClusterError;
use headwater_engine::AddedTags;
use std::collections::BTreeMap;

/// Most tags of an edge.
pub(super) const TAGS_MAX: usize = 8;
/// Longest key and longest value, in bytes.
pub(super) const TEXT_MAX: usize = 128;

/// Tags by key.
pub(crate) type Tags = BTreeMap<String, String>;

/// Tags as the engine has them.
pub(crate) fn added(tags: &Tags) -> Result<AddedTags, ClusterError> {
    if tags.len() > TAGS_MAX {
        return Err(ClusterError::invalid(format!(
            "{} tags; at most {TAGS_MAX} are added to the streams of an edge",
            tags.len()
        )));
    }
    for text in tags.iter().flat_map(|(key, value)| [key, value]) {
        if text.len() > TEXT_MAX || text.chars().any(char::is_control) {
            return Err(ClusterError::invalid(format!(
                "a tag of {} bytes: a key and a value have at most {TEXT_MAX} bytes each, and no control characters",
                text.len()
            )));
        }
    }
    AddedTags::new(tags.clone()).map_err(|error| ClusterError::invalid(error.to_string()))
}
