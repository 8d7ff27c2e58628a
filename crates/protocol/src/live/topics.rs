//! The topic of a stream, and who may publish and hear there.
//!
//! A subject that may read a stream may hear its topic; a subject that may write the stream may
//! publish there, as with rows.
//!
//! Invariants: no right is granted beyond the rights of the subjects, except that with XMPP a
//! publisher may hear its own topic. A stream has exactly one topic, whose name does not have the
//! name of the stream. Concurrency: plain data.

use crate::live::item::STREAM_BYTES_MAX;
use crate::notice::{Lists, TopicRight, is_node_name};
use crate::xmpp::is_xml_text;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Prefix of the hashed bytes.
const CONTEXT: &[u8] = b"headwater topic 1\n";
/// Digits of the hash in a topic.
const DIGITS: usize = 32;

/// Rights of a subject at streams, by the name of its account.
pub trait StreamReaders {
    /// Names of accounts that may hear the stream, and of those that may publish there.
    fn rights_of(&self, stream: &str) -> (Vec<String>, Vec<String>);
}

/// True when a stream can have a topic: its name has at most 256 bytes, all of which XML can carry.
#[must_use]
pub fn is_publishable(stream: &str) -> bool {
    (1..=STREAM_BYTES_MAX).contains(&stream.len()) && is_xml_text(stream)
}

/// The topic of a stream. Servers list the names of topics to all accounts, so the name of the
/// stream is not in it: the last part is the beginning of a hash.
///
/// ```
/// use headwater_protocol::live::{is_value_topic, topic_of};
/// let topic = topic_of("headwater/values", "pump,id=a");
/// assert!(is_value_topic("headwater/values", &topic));
/// assert!(!is_value_topic("headwater/values", "headwater/values/pump,id=a"));
/// ```
#[must_use]
pub fn topic_of(prefix: &str, stream: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(CONTEXT);
    hash.update(stream.as_bytes());
    let hash = HEXLOWER.encode(&hash.finalize());
    format!("{prefix}/{}", hash.get(..DIGITS).unwrap_or(&hash))
}

/// True for the topic of a stream under this prefix.
#[must_use]
pub fn is_value_topic(prefix: &str, topic: &str) -> bool {
    let digits = topic
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('/'));
    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// The lists of the topics of streams, for accounts of `domain`. Subjects whose names are not valid
/// accounts, and streams that cannot have a topic, are left out.
#[must_use]
pub fn value_lists(
    prefix: &str,
    domain: &str,
    streams: &[String],
    rights: &dyn StreamReaders,
) -> Lists {
    let is_account = |name: &String| is_node_name(name) && !name.chars().any(char::is_uppercase);
    let publishable = streams.iter().filter(|stream| is_publishable(stream));
    let lists = publishable.map(|stream| {
        let (readers, writers) = rights.rights_of(stream);
        let mut who = BTreeMap::new();
        for (names, right) in [
            (readers, TopicRight::Subscribe),
            (writers, TopicRight::Publish),
        ] {
            for name in names.into_iter().filter(is_account) {
                who.insert(format!("{name}@{domain}"), right);
            }
        }
        (topic_of(prefix, stream), who)
    });
    lists.collect()
}
