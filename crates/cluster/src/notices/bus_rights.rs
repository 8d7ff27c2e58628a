//! The signed list of rights on its way over the bus, so that revocations and new signing keys
//! reach nodes without a connection to their cloud.
//!
//! Invariants: the bus is not trusted: a list that was heard is taken only by a node that trusts a
//! key already, by the rules of `headwater_shell`'s received lists. A list is bounded before it is
//! unpacked. At most [`HEARD_MAX`] lists wait to be taken. Concurrency: a lock each for the newest
//! list of this node and for those that were heard. Failure: a list that is too large for the bus
//! is not published, and logged once.

use crate::rights::SignedRights;
use headwater_protocol::rights::RIGHTS_BYTES_MAX;
use headwater_protocol::xmpp::Element;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Table whose rows represent lists of rights in access rules: the list of the node `NAME` counts
/// as a row with the tag `node=NAME`.
pub const RIGHTS_TABLE: &str = "headwater_rights";

const RIGHTS: &str = "urn:headwater:rights:1";
/// Most bytes of a packed list: servers take stanzas of 256 KiB, and base64 adds a third.
const PACKED_BYTES_MAX: usize = 128 << 10;
/// Most lists that wait to be taken.
const HEARD_MAX: usize = 8;
const PACK_LEVEL: i32 = 9;

/// Lists of rights to and from the bus.
#[derive(Debug, Default)]
pub struct BusRights {
    newest: Mutex<Option<Arc<SignedRights>>>,
    /// The newest list of each topic.
    heard: Mutex<BTreeMap<String, Vec<u8>>>,
    offered: Notify,
    received: Notify,
}

/// The element of a list; `None` for a list that is too large for the bus.
fn written(list: &[u8]) -> Option<Element> {
    let packed = zstd::bulk::compress(list, PACK_LEVEL).ok()?;
    let element = Element::new(RIGHTS, "rights").with("bytes", &list.len().to_string());
    (packed.len() <= PACKED_BYTES_MAX).then(|| element.carrying(&packed))
}

/// The list of an element.
fn read(item: &Element) -> Option<Vec<u8>> {
    let item = Some(item).filter(|item| item.is(RIGHTS, "rights"))?;
    let size: usize = item.attribute("bytes")?.parse().ok()?;
    let packed = item.carried()?;
    if size > RIGHTS_BYTES_MAX || packed.len() > PACKED_BYTES_MAX {
        return None;
    }
    let list = zstd::bulk::decompress(&packed, size).ok()?;
    (list.len() == size).then_some(list)
}

impl BusRights {
    /// Publishes a list, in place of the one before.
    pub fn publish(&self, list: Option<Arc<SignedRights>>) {
        {
            let mut newest = self.newest.lock();
            if *newest == list {
                return;
            }
            *newest = list;
        }
        self.offered.notify_one();
    }

    /// Waits until another list is to be published.
    pub(super) async fn until_offered(&self) {
        self.offered.notified().await;
    }

    /// The list to publish, unless it has this digest: its digest, and the element.
    pub(super) fn next(&self, sent: &str) -> Option<(String, Element)> {
        let newest = self.newest.lock().clone()?;
        if newest.digest == sent {
            return None;
        }
        let element = written(&newest.bytes);
        if element.is_none() {
            tracing::error!(
                number = newest.number,
                bytes = newest.bytes.len(),
                "the list of rights is too large for the bus: nodes without a connection to this cloud do not get it"
            );
            // It is logged once.
            *self.newest.lock() = None;
        }
        Some((newest.digest.clone(), element?))
    }

    /// Processes an item under a topic of lists; false for a malformed one.
    pub(super) fn receive(&self, topic: &str, item: Option<&Element>) -> bool {
        let Some(list) = item.and_then(read) else {
            return false;
        };
        {
            let mut heard = self.heard.lock();
            if heard.len() >= HEARD_MAX && !heard.contains_key(topic) {
                return true;
            }
            heard.insert(topic.to_owned(), list);
        }
        self.received.notify_one();
        true
    }

    /// Waits for lists, and returns them.
    pub async fn heard(&self) -> Vec<Vec<u8>> {
        loop {
            let heard = std::mem::take(&mut *self.heard.lock());
            if !heard.is_empty() {
                return heard.into_values().collect();
            }
            self.received.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_others_are_not() {
        let list = vec![7; 5_000];
        let good = written(&list).unwrap();
        assert_eq!(read(&good), Some(list.clone()));
        let packed = zstd::bulk::compress(&list, PACK_LEVEL).unwrap();
        let with = |bytes: &str| {
            Element::new(RIGHTS, "rights")
                .with("bytes", bytes)
                .carrying(&packed)
        };
        assert!(read(&with("5000")).is_some());
        for bytes in ["4999", "5001", "", "-1", "1048577"] {
            assert_eq!(read(&with(bytes)), None, "{bytes}");
        }
        // One that unpacks to more than it says is not unpacked further.
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], PACK_LEVEL).unwrap();
        let element = Element::new(RIGHTS, "rights").with("bytes", "100");
        assert_eq!(read(&element.carrying(&bomb)), None);
        assert_eq!(read(&Element::new(RIGHTS, "right")), None);
        // Bytes that do not shrink.
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        });
        let noise: Vec<u8> = noise.take(PACKED_BYTES_MAX + 1).collect();
        assert!(written(&noise).is_none());
    }

    #[test]
    fn lists_that_wait_are_bounded() {
        let bus = BusRights::default();
        let item = written(b"a list").unwrap();
        for topic in 0..100 {
            assert!(bus.receive(&format!("t{topic}"), Some(&item)));
        }
        assert!(!bus.receive("t", None) && !bus.receive("t", Some(&Element::new("x", "y"))));
        assert_eq!(bus.heard.lock().len(), HEARD_MAX);
    }
}
