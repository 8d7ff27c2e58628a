//! Frames of a connection: messages between source and copy, and notes about the two nodes.
//!
//! A binary frame is a compression byte (0 uncompressed, 1 zstd) and a message
//! (docs/format/sync.md), or the byte 2 and a list of rights, compressed by zstd
//! (docs/format/rights.md). A text frame is a note in JSON.
//!
//! Invariants: a message larger than the limit of the receiver, [`MESSAGE_MAX`] at a cloud and
//! [`EDGE_MESSAGE_MAX`] at an edge, is never decompressed, however small its frame. Texts of the
//! other side are bounded and printable. Concurrency: the receiver decides which frames it unpacks
//! at the same time; [`is_large`] says for which ones that counts.

use headwater_protocol::replication::{Message, PauseCause, decode, encode};
use headwater_protocol::rights::RIGHTS_BYTES_MAX;
use serde::{Deserialize, Serialize};
use tokio_tungstenite::tungstenite::Message as Frame;

/// Largest message to a cloud, in bytes. The state of an edge with a million streams is a tenth of
/// it.
pub const MESSAGE_MAX: usize = 256 << 20;
/// Largest message to an edge, in bytes. The largest ones are confirmations: this much is one of
/// some 90,000 segments.
pub const EDGE_MESSAGE_MAX: usize = 4 << 20;
/// Largest frame to a cloud, in bytes.
pub(crate) const FRAME_MAX: usize = 64 << 20;
/// Messages above this size are unpacked one at a time.
const LARGE: usize = 4 << 20;
/// Largest note, in bytes: a list of revoked tokens is a quarter of it.
const NOTE_MAX: usize = 64 << 10;
/// Longest version of a program, in bytes.
const VERSION_MAX: usize = 64;
/// Longest reason, in bytes.
const TEXT_MAX: usize = 1 << 10;
/// Most certificates of an edge that are read, and digits of the digest of each.
const CERTIFICATES_MAX: usize = 16;
const DIGEST_DIGITS: usize = 64;
/// Most nodes of a path that are read; more are refused.
const PATH_MAX: usize = 32;
/// Smaller ones are not packed: it would not help.
const PACK_MIN: usize = 512;
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
const RIGHTS: u8 = 2;
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
    /// Longest time in seconds without a sign of life; 0 = of an earlier version, 10 seconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub heartbeat_seconds: u64,
}

/// The beginning of a text of another node, without characters that a terminal does not show.
fn printable(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let shown = match c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() {
            true => c,
            false => '?',
        };
        if out.len() + shown.len_utf8() > most {
            break;
        }
        out.push(shown);
    }
    out
}

/// Certificates by which an edge verifies its cloud, as it reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trusts {
    /// SHA-256 of each certificate, as 64 hexadecimal digits; empty where the edge has none of its
    /// own.
    pub(crate) certificates: Vec<String>,
    /// The connection has TLS.
    pub(crate) is_verified: bool,
}

impl Note {
    /// The note with bounded texts that can be printed.
    fn bounded(self) -> Note {
        match self {
            Note::About(about) => Note::About(About {
                version: printable(&about.version, VERSION_MAX),
                ..about
            }),
            Note::Refused { code, text } => Note::Refused {
                code: printable(&code, VERSION_MAX),
                text: printable(&text, TEXT_MAX),
            },
            Note::Warning { text } => Note::Warning {
                text: printable(&text, TEXT_MAX),
            },
            Note::Trusts(mut trusts) => {
                trusts.certificates.truncate(CERTIFICATES_MAX);
                for digest in &mut trusts.certificates {
                    *digest = printable(digest, DIGEST_DIGITS);
                }
                Note::Trusts(trusts)
            }
            Note::Path { mut nodes } => {
                nodes.truncate(PATH_MAX);
                Note::Path { nodes }
            }
            other => other,
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Reason for which an edge is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuietCause {
    /// Its hours of quiet.
    QuietHours,
    /// The cap of its day is spent.
    DayCap,
    /// The cap of its month is spent.
    MonthCap,
}

impl From<PauseCause> for QuietCause {
    fn from(cause: PauseCause) -> QuietCause {
        match cause {
            PauseCause::Quiet => QuietCause::QuietHours,
            PauseCause::DayCap => QuietCause::DayCap,
            PauseCause::MonthCap => QuietCause::MonthCap,
        }
    }
}

impl QuietCause {
    /// Reason in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            QuietCause::QuietHours => "quiet hours",
            QuietCause::DayCap => "the cap of the day is spent",
            QuietCause::MonthCap => "the cap of the month is spent",
        }
    }
}

/// Location at which confirmed data survives the loss of the cloud.
pub(crate) const BUCKET: &str = "bucket";
/// The other of two clouds that are peers.
pub(crate) const PEER: &str = "peer";

/// A note. Unknown notes are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Note {
    /// Cloud: the invitation is worth this key from now on.
    Key {
        key: String,
        /// The key that signs the cloud's list of rights, as 64 hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rights_key: Option<String>,
    },
    /// Cloud: the next key of the edge. Both are valid until the edge has stored it.
    NewKey { key: String },
    /// Edge: the next key is stored.
    KeyKept {},
    /// Edge: takes lists of rights, and has this one; number 0 and no digest if it has none.
    Rights { number: u64, digest: String },
    /// Cloud: the key is valid.
    Welcome {
        edge: String,
        /// Clock of the cloud, in nanoseconds since 1970: over TLS it proves this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now_ns: Option<i64>,
        /// The cloud waits for signs of life as long as the edge's report says.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_patient: bool,
        /// The copy answers challenges.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        answers_challenges: bool,
    },
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
    /// Cloud: what somebody should know about the edge while it is served; nothing = not any more.
    Warning { text: String },
    /// Edge, first of all: the number that this process drew when it started, as 16 hexadecimal
    /// digits.
    Process { id: String },
    /// Cloud: further certificates, in PEM, by which it is going to be verified.
    Trust { ca: String },
    /// Edge, in answer to `trust`: the certificates by which it verifies its cloud.
    Trusts(Trusts),
    /// Edge: about it.
    About(About),
    /// Edge: closes the connection, and connects again at `until_ns` of its clock, in nanoseconds
    /// since 1970, because of `cause`: `quiet_hours`, `day_cap` or `month_cap`.
    Quiet { until_ns: i64, cause: QuietCause },
    /// Edge: times of the newest events that it sends now: its clock, how long their request was
    /// held, and the longest time that one of them waited.
    Live {
        sent_ns: i64,
        held_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waited_ms: Option<u64>,
    },
    /// Edge: requests a comparison.
    Verify {},
    /// Edge: the copy of the cloud becomes a closed part, and a new one begins.
    BeginAnew {},
    /// Relay: the nodes through which the relayed data has passed, the relay last, each as 16
    /// hexadecimal digits.
    Path { nodes: Vec<String> },
    /// Relay: the relayed copy is a closed part; `is_succeeded`: another copy goes on in its place.
    Closed { is_succeeded: bool },
    /// Cloud: the key for the copy that goes on in the place of the closed one.
    Successor { key: String },
}

impl Note {
    pub(crate) fn process(id: u64) -> Note {
        Note::Process {
            id: format!("{id:016x}"),
        }
    }

    pub(crate) fn path(nodes: &[u64]) -> Note {
        let nodes = nodes.iter().map(|node| format!("{node:016x}"));
        Note::Path {
            nodes: nodes.collect(),
        }
    }
}

/// Identities of the nodes of a path; an invalid number is replaced by one that no node has.
pub(crate) fn nodes(path: &[String]) -> Vec<u64> {
    path.iter().map(|id| node(id)).collect()
}

/// Number in hexadecimal digits; an invalid one is replaced by one that no node has.
pub(crate) fn node(id: &str) -> u64 {
    u64::from_str_radix(id, 16).unwrap_or(u64::MAX)
}

/// A received frame.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message),
    Note(Note),
    /// A signed list of rights.
    Rights(Vec<u8>),
    /// A sign of life, or a frame that this version does not know.
    KeepAlive,
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

/// A frame with a signed list of rights.
pub(crate) fn rights(list: &[u8]) -> Option<Frame> {
    let packed = zstd::bulk::compress(list, PACK_LEVEL).ok()?;
    Some(Frame::binary(behind(RIGHTS, &packed)))
}

/// The list of rights in a frame; `None` for another frame, or a list that is too large.
fn rights_of(frame: &[u8]) -> Option<Vec<u8>> {
    let packed = frame.strip_prefix(&[RIGHTS])?;
    let size = zstd::zstd_safe::get_frame_content_size(packed).ok()??;
    let size = usize::try_from(size).ok();
    unpacked(packed, size.filter(|size| *size <= RIGHTS_BYTES_MAX)?)
}

pub(crate) fn note(note: &Note) -> Frame {
    // Texts and numbers are always JSON.
    Frame::text(serde_json::to_string(note).unwrap_or_default())
}

/// Reads a frame of a message of at most `most` bytes. A damaged message is ignored: its content is
/// requested again.
pub(crate) fn received(frame: &Frame, most: usize) -> Received {
    match frame {
        Frame::Binary(bytes) if bytes.first() == Some(&RIGHTS) => {
            rights_of(bytes).map_or(Received::KeepAlive, Received::Rights)
        }
        Frame::Binary(bytes) => unpack(bytes, most).map_or(Received::KeepAlive, Received::Message),
        Frame::Text(text) if text.len() > NOTE_MAX => Received::KeepAlive,
        Frame::Text(text) => serde_json::from_str(text)
            .map_or(Received::KeepAlive, |note: Note| {
                Received::Note(note.bounded())
            }),
        Frame::Close(_) => Received::End,
        _ => Received::KeepAlive,
    }
}

/// True for a frame whose message takes much memory.
pub(crate) fn is_large(frame: &Frame) -> bool {
    let Frame::Binary(bytes) = frame else {
        return false;
    };
    size(bytes).is_some_and(|size| size > LARGE)
}

/// Size of the message in a frame, as the frame states it.
fn size(frame: &[u8]) -> Option<usize> {
    let (kind, bytes) = frame.split_first()?;
    match *kind {
        PLAIN => Some(bytes.len()),
        // Frames of this protocol state their size; frames that do not are refused.
        ZSTD => usize::try_from(zstd::zstd_safe::get_frame_content_size(bytes).ok()??).ok(),
        _ => None,
    }
}

fn unpack(frame: &[u8], most: usize) -> Option<Message> {
    let size = size(frame).filter(|size| *size <= most)?;
    let (kind, bytes) = frame.split_first()?;
    match *kind {
        PLAIN => decode(bytes).ok(),
        ZSTD => decode(&unpacked(bytes, size)?).ok(),
        _ => None,
    }
}

/// Decompressed bytes, of which there are as many as the frame states.
fn unpacked(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
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
            let Received::Message(found) = received(&frame, MESSAGE_MAX) else {
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
            assert!(matches!(
                received(&Frame::binary(bytes), MESSAGE_MAX),
                Received::KeepAlive
            ));
        }
        for text in ["", "{}", "{\"unknown\":{}}", "[", "{\"key\":{\"key\":1}}"] {
            assert!(
                matches!(
                    received(&Frame::text(text), MESSAGE_MAX),
                    Received::KeepAlive
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn an_edge_unpacks_nothing_that_a_cloud_never_sends() {
        for len in [EDGE_MESSAGE_MAX - 100, EDGE_MESSAGE_MAX + 1] {
            let packed = message(&text(len));
            assert!(packed.len() < 8 << 10, "a small frame");
            let plain = Frame::binary(behind(PLAIN, &encode(&text(len))));
            for frame in [packed, plain] {
                let is_read = |most| matches!(received(&frame, most), Received::Message(_));
                assert_eq!(is_read(EDGE_MESSAGE_MAX), len < EDGE_MESSAGE_MAX);
                assert!(is_read(MESSAGE_MAX));
                assert_eq!(is_large(&frame), len > EDGE_MESSAGE_MAX);
            }
        }
        assert!(!is_large(&Frame::binary(vec![ZSTD, 1, 2])) && !is_large(&note(&Note::Verify {})));
    }

    #[test]
    fn a_list_of_rights_comes_as_it_was_sent_and_a_large_one_is_not_unpacked() {
        for len in [1, 5000, RIGHTS_BYTES_MAX, RIGHTS_BYTES_MAX + 1] {
            let list = vec![7; len];
            let frame = rights(&list).unwrap();
            let found = match received(&frame, EDGE_MESSAGE_MAX) {
                Received::Rights(found) => found,
                Received::KeepAlive => Vec::new(),
                other => panic!("{other:?}"),
            };
            let is_taken = len <= RIGHTS_BYTES_MAX;
            assert_eq!(found, if is_taken { list } else { Vec::new() });
        }
        for bytes in [vec![RIGHTS], vec![RIGHTS, 1, 2], behind(RIGHTS, b"none")] {
            let found = received(&Frame::binary(bytes), EDGE_MESSAGE_MAX);
            assert!(matches!(found, Received::KeepAlive));
        }
    }

    #[test]
    fn texts_of_another_node_are_bounded_and_printable() {
        let read = |told: &Note| match received(&note(told), MESSAGE_MAX) {
            Received::Note(found) => found,
            other => panic!("{other:?}"),
        };
        let about = |version: &str| {
            Note::About(About {
                version: version.to_owned(),
                ..About::default()
            })
        };
        assert_eq!(read(&about("0.9.1-rc.2 (é)")), about("0.9.1-rc.2 (é)"));
        let hostile = "\u{1b}[2J\u{9b}1m\u{202e}x\r\n";
        assert_eq!(read(&about(hostile)), about("?[2J?1m?x??"));
        assert_eq!(read(&about(&"é".repeat(1000))), about(&"é".repeat(32)));
        let long = Note::Refused {
            code: "E_IO".into(),
            text: "x\u{7}".repeat(4000),
        };
        let Note::Refused { text, .. } = read(&long) else {
            panic!("no refusal");
        };
        assert_eq!(text, "x?".repeat(512));
        let path = Note::path(&vec![7; 1000]);
        assert!(matches!(read(&path), Note::Path { nodes } if nodes.len() == PATH_MAX));
        let huge = Note::Revoked {
            list: "x".repeat(NOTE_MAX),
        };
        let found = received(&note(&huge), MESSAGE_MAX);
        assert!(matches!(found, Received::KeepAlive));
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
        let Received::Note(found) = received(&note(&verified), MESSAGE_MAX) else {
            panic!("no note");
        };
        assert_eq!(found, verified);
        let quiet = Note::Quiet {
            until_ns: 7,
            cause: QuietCause::DayCap,
        };
        assert_eq!(
            json(&quiet),
            "{\"quiet\":{\"until_ns\":7,\"cause\":\"day_cap\"}}"
        );
        let welcome = |now_ns, is_patient| Note::Welcome {
            edge: "e".into(),
            now_ns,
            is_patient,
            answers_challenges: is_patient,
        };
        let earlier = "{\"welcome\":{\"edge\":\"e\"}}";
        assert_eq!(json(&welcome(None, false)), earlier);
        assert_eq!(
            json(&welcome(Some(5), true)),
            "{\"welcome\":{\"edge\":\"e\",\"now_ns\":5,\"is_patient\":true,\"answers_challenges\":true}}"
        );
        let closed = Note::Closed { is_succeeded: true };
        assert_eq!(json(&closed), "{\"closed\":{\"is_succeeded\":true}}");
        let successor = Note::Successor { key: "k".into() };
        assert_eq!(json(&successor), "{\"successor\":{\"key\":\"k\"}}");
        let process = Note::process(10);
        assert_eq!(
            json(&process),
            "{\"process\":{\"id\":\"000000000000000a\"}}"
        );
        let trusts = Note::Trusts(Trusts {
            certificates: vec!["0a".into()],
            is_verified: true,
        });
        assert_eq!(
            json(&trusts),
            "{\"trusts\":{\"certificates\":[\"0a\"],\"is_verified\":true}}"
        );
        let many = Note::Trusts(Trusts {
            certificates: vec!["x\u{7}".repeat(50); 100],
            is_verified: false,
        });
        let Received::Note(Note::Trusts(read)) = received(&note(&many), MESSAGE_MAX) else {
            panic!("no note");
        };
        assert_eq!(read.certificates, vec!["x?".repeat(32); CERTIFICATES_MAX]);
        let warning = Note::Warning { text: "w".into() };
        assert_eq!(json(&warning), "{\"warning\":{\"text\":\"w\"}}");
        let path = Note::path(&[10, u64::MAX]);
        assert_eq!(
            json(&path),
            "{\"path\":{\"nodes\":[\"000000000000000a\",\"ffffffffffffffff\"]}}"
        );
        assert_eq!(nodes(&["a".into(), "x".into()]), [10, u64::MAX]);
    }
}
