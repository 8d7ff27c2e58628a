//! Frames of a connection: messages between source and copy, and notes about the two nodes.
//!
//! A binary frame is a compression byte (0 uncompressed, 1 zstd) and a message
//! (docs/format/sync.md). A text frame is a note in JSON.
//!
//! Invariant: a message larger than [`MESSAGE_MAX`] is never decompressed, however small its frame.

use headwater_protocol::replication::{Message, decode, encode};
use serde::{Deserialize, Serialize};
use tokio_tungstenite::tungstenite::Message as Frame;

/// Largest message, in bytes. The state of an edge with a million streams is a tenth of it.
pub const MESSAGE_MAX: usize = 256 << 20;
/// Smaller ones are not packed: it would not help.
const PACK_MIN: usize = 512;
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
const PACK_LEVEL: i32 = 3;

/// Facts of an edge that it reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Version of the program.
    pub version: String,
    /// Clock of the sender, in nanoseconds since 1970.
    pub now_ns: i64,
    /// Bytes sent on this day of its clock.
    pub sent_today: u64,
    /// Bytes sent in this month.
    pub sent_this_month: u64,
    /// Bytes that it may send in a second, a day and a month; `None` = unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// See `rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day_max: Option<u64>,
    /// See `rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month_max: Option<u64>,
    /// Bytes of its database.
    pub disk_bytes: u64,
    /// Bytes written to its device since its start: the wear of the device.
    pub written_bytes: u64,
    /// The edge sends its newest events along before a flush stores them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sends_live: bool,
    /// Bytes of newest events that it has sent since its start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub live_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Location at which confirmed data survives the loss of the cloud.
pub(crate) const BUCKET: &str = "bucket";

/// A note. Unknown notes are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Note {
    /// Cloud: the invitation is worth this key from now on.
    Key { key: String },
    /// Cloud: the key is valid.
    Welcome { edge: String },
    /// Cloud: data that it confirms over this connection survives its own loss, since it is also
    /// stored at `at`.
    Survives { at: String },
    /// Cloud: requests have ended, with the reason.
    Refused { code: String, text: String },
    /// Cloud: result of a comparison.
    Verified {
        equal: u64,
        different: u64,
        missing: u64,
    },
    /// Cloud: tokens whose tickets were revoked, as reported by dispatchers.
    Revoked { list: String },
    /// Edge: about it.
    About(About),
    /// Edge: requests a comparison.
    Verify {},
    /// Edge: the cloud is to put its copy aside, and create a new one.
    BeginAnew {},
    /// Relay: the nodes through which the relayed data has passed, the relay last, each as 16
    /// hexadecimal digits.
    Path { nodes: Vec<String> },
}

impl Note {
    pub(crate) fn path(nodes: &[u64]) -> Note {
        let nodes = nodes.iter().map(|node| format!("{node:016x}"));
        Note::Path {
            nodes: nodes.collect(),
        }
    }
}

/// Identities of the nodes of a path; an invalid number is replaced by one that no node has.
pub(crate) fn nodes(path: &[String]) -> Vec<u64> {
    let nodes = path.iter().map(|node| u64::from_str_radix(node, 16));
    nodes.map(|node| node.unwrap_or(u64::MAX)).collect()
}

/// A received frame.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message),
    Note(Note),
    /// A sign of life, or a frame that this version does not know.
    Nothing,
    /// The other side closes the connection.
    End,
}

pub(crate) fn message(message: &Message) -> Frame {
    let plain = encode(message);
    if plain.len() >= PACK_MIN
        && let Ok(packed) = zstd::bulk::compress(&plain, PACK_LEVEL)
        && packed.len() + packed.len() / 16 < plain.len()
    {
        return Frame::binary(behind(ZSTD, &packed));
    }
    Frame::binary(behind(PLAIN, &plain))
}

fn behind(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes.len() + 1);
    frame.push(kind);
    frame.extend_from_slice(bytes);
    frame
}

pub(crate) fn note(note: &Note) -> Frame {
    // Texts and numbers are always JSON.
    Frame::text(serde_json::to_string(note).unwrap_or_default())
}

/// Reads a frame. A damaged message is ignored: its content is requested again.
pub(crate) fn received(frame: &Frame) -> Received {
    match frame {
        Frame::Binary(bytes) => unpack(bytes).map_or(Received::Nothing, Received::Message),
        Frame::Text(text) => serde_json::from_str(text).map_or(Received::Nothing, Received::Note),
        Frame::Close(_) => Received::End,
        _ => Received::Nothing,
    }
}

fn unpack(frame: &[u8]) -> Option<Message> {
    let (kind, bytes) = frame.split_first()?;
    match *kind {
        PLAIN => decode(bytes).ok(),
        ZSTD => decode(&unpacked(bytes)?).ok(),
        _ => None,
    }
}

/// Decompressed bytes, if within the size limit.
fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    // Frames of this protocol state their size; frames that do not are refused.
    let size = zstd::zstd_safe::get_frame_content_size(bytes).ok()??;
    let size = usize::try_from(size).ok().filter(|n| *n <= MESSAGE_MAX)?;
    zstd::bulk::decompress(bytes, size).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    fn text(len: usize) -> Message {
        Message::Refused {
            request: 7,
            code: "piece".to_owned(),
            text: "x".repeat(len),
        }
    }

    #[test]
    fn messages_come_as_they_were_sent_packed_where_that_helps() {
        for len in [0, 100, 5000, 200_000] {
            let frame = message(&text(len));
            let Frame::Binary(bytes) = &frame else {
                panic!("{frame:?}");
            };
            assert_eq!(bytes[0] == ZSTD, len >= 5000);
            let Received::Message(found) = received(&frame) else {
                panic!("{len}");
            };
            assert_eq!(found, text(len));
        }
    }

    #[test]
    fn what_is_no_message_is_nothing() {
        let packed = zstd::bulk::compress(&vec![0; MESSAGE_MAX + 1], 1).unwrap();
        for bytes in [
            Vec::new(),
            vec![PLAIN],
            vec![ZSTD],
            vec![9, 1, 2],
            behind(ZSTD, b"no zstd"),
            behind(ZSTD, &packed),
        ] {
            assert!(matches!(received(&Frame::binary(bytes)), Received::Nothing));
        }
        for text in ["", "{}", "{\"unknown\":{}}", "[", "{\"key\":{\"key\":1}}"] {
            assert!(
                matches!(received(&Frame::text(text)), Received::Nothing),
                "{text}"
            );
        }
    }

    #[test]
    fn notes_have_the_form_of_the_protocols_page() {
        let json = |n: &Note| note(n).into_text().unwrap().to_string();
        assert_eq!(json(&Note::Verify {}), "{\"verify\":{}}");
        let survives = Note::Survives { at: BUCKET.into() };
        assert_eq!(json(&survives), "{\"survives\":{\"at\":\"bucket\"}}");
        let verified = Note::Verified {
            equal: 1,
            different: 2,
            missing: 3,
        };
        assert_eq!(
            json(&verified),
            "{\"verified\":{\"equal\":1,\"different\":2,\"missing\":3}}"
        );
        let Received::Note(found) = received(&note(&verified)) else {
            panic!("no note");
        };
        assert_eq!(found, verified);
        let path = Note::path(&[10, u64::MAX]);
        assert_eq!(
            json(&path),
            "{\"path\":{\"nodes\":[\"000000000000000a\",\"ffffffffffffffff\"]}}"
        );
        assert_eq!(nodes(&["a".into(), "x".into()]), [10, u64::MAX]);
    }
}
