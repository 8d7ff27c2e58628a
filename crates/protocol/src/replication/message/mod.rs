//! Messages between a source and its copy: docs/format/sync.md.
//!
//! Invariants: bytes with a valid checksum that are not a message of this version are refused, like
//! all other invalid bytes; a decoded message needs no more memory than its bytes, except for lists
//! of ranges, which need three times as much.

use crate::replication::missing_ranges::{self, MissingRange};
use headwater_codec::checksum::crc32c;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_engine::{StateName, TailMark, TailPoint};
use headwater_types::ByteRange;
use headwater_types::invariant::wide;

const MAGIC: [u8; 6] = *b"HWSYNC";
/// Newest version, used only for messages that older versions do not know: challenges.
const VERSION: u8 = 5;
/// The last version without challenges.
const VERSION_WITHOUT_CHALLENGES: u8 = 4;
/// The last version without missing ranges of the source and tails.
const VERSION_WITHOUT_TAILS: u8 = 3;
/// The last version without missing ranges of the source.
const VERSION_WITHOUT_HOLES: u8 = 2;
/// Names of states had no view, and confirmations no proofs.
const VERSION_WITHOUT_VIEWS: u8 = 1;
const CRC_BYTES: usize = 4;
const DIGEST_BYTES: usize = 32;
const NONCE_BYTES: usize = 32;

/// The largest range that is sent at once.
pub(crate) const PIECE_MAX: u32 = 1 << 20;
/// Code of a refusal: the state known to the other side is of another history of the database.
pub const REFUSED_HISTORY: &str = "history";

/// SHA-256 of a range.
pub type Digest = [u8; DIGEST_BYTES];
/// Unpredictable bytes of a challenge, used once.
pub type Nonce = [u8; NONCE_BYTES];

/// A range of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRange {
    /// The segment.
    pub segment: u64,
    /// Start of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub bytes: u32,
}

impl SegmentRange {
    /// The range of bytes.
    pub(crate) fn range(&self) -> ByteRange {
        ByteRange::at(self.offset, u64::from(self.bytes))
    }
}

/// A message. Messages with a number answer the request of that number; every answer to a request
/// ends with [`Message::Done`] or [`Message::Wait`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From the source: its newest state.
    Hello(StateName),
    /// To the source: requests the newest state, as a difference from a known state, or whole.
    AskState {
        /// Which request.
        request: u64,
        /// The known state.
        known_state: Option<StateName>,
    },
    /// From the source: a state as bytes.
    State {
        /// Which request.
        request: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// To the source: ranges of segments that a state names.
    Fetch {
        /// Which request.
        request: u64,
        /// The state.
        state: StateName,
        /// The ranges, the most valuable ones first.
        ranges: Vec<SegmentRange>,
    },
    /// From the source: bytes of a range.
    Bytes {
        /// Which request.
        request: u64,
        /// The segment.
        segment: u64,
        /// Start of the range.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// From the source: the named state, or a range of it, is not available any more.
    Unavailable {
        /// Which request.
        request: u64,
    },
    /// From the source: no more bytes can be sent for this duration.
    Wait {
        /// Which request.
        request: u64,
        /// Milliseconds to wait.
        millis: u64,
    },
    /// From the source: a request is answered.
    Done {
        /// Which request.
        request: u64,
    },
    /// To the source: ranges of a state that are on the device of the copy.
    Confirm {
        /// The state.
        state: StateName,
        /// Segments of which every subscribed range is present: id, and number of subscribed bytes.
        segments: Vec<(u64, u64)>,
        /// Complete segments that are proven on the device of the copy: id, and the head of the
        /// chain of hashes.
        proofs: Vec<(u64, Digest)>,
    },
    /// To the source: digests of ranges of segments that a state names.
    Compare {
        /// Which request.
        request: u64,
        /// The state.
        state: StateName,
        /// The ranges.
        ranges: Vec<SegmentRange>,
    },
    /// From the source: the digests, in the order of the ranges.
    Digests {
        /// Which request.
        request: u64,
        /// One digest for each range.
        digests: Vec<Digest>,
    },
    /// From a source that is a copy itself: its missing ranges in a range of a segment. Sent when a
    /// part of that range was requested, and again when it has changed.
    MissingRanges {
        /// The segment.
        segment: u64,
        /// Range of the segment that the report covers.
        stretch: ByteRange,
        /// Missing ranges, sorted and disjoint.
        missing: Vec<MissingRange>,
    },
    /// To the source: requests its newest events, which no state contains yet, as soon as there are
    /// some.
    AskTail {
        /// Which request.
        request: u64,
        /// Sequence of the known state.
        state: u64,
        /// End of the events that the copy has.
        known_end: Option<TailPoint>,
    },
    /// From the source: its newest events, as [`headwater_engine::Tail`] encodes them.
    Tail {
        /// Which request.
        request: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// From the source, to a copy that answers challenges: requests digests that only a holder of
    /// the bytes can compute, before the source frees them.
    Challenge {
        /// Number of the challenge, chosen by the source.
        request: u64,
        /// Bytes that each digest begins with.
        nonce: Nonce,
        /// The ranges.
        ranges: Vec<SegmentRange>,
    },
    /// To the source: digests of the ranges of a challenge, in their order, read from the device of
    /// the copy.
    ChallengeAnswer {
        /// Which challenge.
        request: u64,
        /// One digest for each range; fewer than requested where the copy reads no more now.
        digests: Vec<Digest>,
    },
    /// From either side: reason why the session cannot continue.
    Refused {
        /// Which request.
        request: u64,
        /// A stable word.
        code: String,
        /// For people.
        text: String,
    },
}

fn put_name(name: &StateName, out: &mut Vec<u8>) {
    let StateName {
        identity,
        incarnation,
        opening,
        number,
        sequence,
        view,
    } = *name;
    for part in [identity, incarnation, opening, number, sequence, view] {
        out.put_u64(part);
    }
}

fn put_ranges(pieces: &[SegmentRange], out: &mut Vec<u8>) {
    out.put_varint(wide(pieces.len()));
    for piece in pieces {
        out.put_varint(piece.segment);
        out.put_varint(piece.offset);
        out.put_varint(u64::from(piece.bytes));
    }
}

/// A message as bytes.
#[must_use]
pub fn encode(message: &Message) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u8(match message {
        Message::Challenge { .. } | Message::ChallengeAnswer { .. } => VERSION,
        Message::AskTail { .. } | Message::Tail { .. } => VERSION_WITHOUT_CHALLENGES,
        Message::MissingRanges { .. } => VERSION_WITHOUT_TAILS,
        _ => VERSION_WITHOUT_HOLES,
    });
    put_message(message, &mut out);
    let crc = crc32c(&out);
    out.put_u32(crc);
    out
}

fn put_message(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Hello(name) => {
            out.put_u8(1);
            put_name(name, out);
        }
        Message::AskState {
            request,
            known_state,
        } => {
            put_request(2, *request, out);
            out.put_u8(u8::from(known_state.is_some()));
            if let Some(known) = known_state {
                put_name(known, out);
            }
        }
        Message::Fetch {
            request,
            state,
            ranges,
        } => {
            put_request(4, *request, out);
            put_name(state, out);
            put_ranges(ranges, out);
        }
        Message::Confirm {
            state,
            segments,
            proofs,
        } => {
            out.put_u8(9);
            put_name(state, out);
            out.put_varint(wide(segments.len()));
            for (segment, bytes) in segments {
                out.put_varint(*segment);
                out.put_varint(*bytes);
            }
            out.put_varint(wide(proofs.len()));
            for (segment, head) in proofs {
                out.put_varint(*segment);
                out.extend_from_slice(head);
            }
        }
        Message::Compare {
            request,
            state,
            ranges,
        } => {
            put_request(10, *request, out);
            put_name(state, out);
            put_ranges(ranges, out);
        }
        Message::AskTail {
            request,
            state,
            known_end,
        } => {
            put_request(14, *request, out);
            out.put_varint(*state);
            put_point(known_end.as_ref(), out);
        }
        Message::ChallengeAnswer { request, digests } => {
            put_request(17, *request, out);
            put_digests(digests, out);
        }
        answer => put_answer(answer, out),
    }
}

fn put_point(point: Option<&TailPoint>, out: &mut Vec<u8>) {
    out.put_u8(match point {
        None => 0,
        Some(TailPoint { last: None, .. }) => 1,
        Some(TailPoint { last: Some(_), .. }) => 2,
    });
    if let Some(point) = point {
        out.put_varint(point.until);
        if let Some(last) = point.last {
            out.put_varint(last.sequence);
            out.put_u32(last.crc);
        }
    }
}

fn put_digests(digests: &[Digest], out: &mut Vec<u8>) {
    out.put_varint(wide(digests.len()));
    for digest in digests {
        out.extend_from_slice(digest);
    }
}

fn put_request(kind: u8, request: u64, out: &mut Vec<u8>) {
    out.put_u8(kind);
    out.put_u64(request);
}

fn put_answer(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::State { request, bytes } => {
            put_request(3, *request, out);
            out.put_prefixed(bytes);
        }
        Message::Bytes {
            request,
            segment,
            offset,
            bytes,
        } => {
            put_request(5, *request, out);
            out.put_varint(*segment);
            out.put_varint(*offset);
            out.put_prefixed(bytes);
        }
        Message::Unavailable { request } => put_request(6, *request, out),
        Message::Wait { request, millis } => {
            put_request(7, *request, out);
            out.put_varint(*millis);
        }
        Message::Done { request } => put_request(8, *request, out),
        Message::Digests { request, digests } => {
            put_request(11, *request, out);
            put_digests(digests, out);
        }
        Message::Refused {
            request,
            code,
            text,
        } => {
            put_request(12, *request, out);
            out.put_prefixed(code.as_bytes());
            out.put_prefixed(text.as_bytes());
        }
        Message::MissingRanges {
            segment,
            stretch,
            missing,
        } => {
            out.put_u8(13);
            missing_ranges::put(*segment, *stretch, missing, out);
        }
        Message::Tail { request, bytes } => {
            put_request(15, *request, out);
            out.put_prefixed(bytes);
        }
        Message::Challenge {
            request,
            nonce,
            ranges,
        } => {
            put_request(16, *request, out);
            out.extend_from_slice(nonce);
            put_ranges(ranges, out);
        }
        Message::Hello(_)
        | Message::AskTail { .. }
        | Message::ChallengeAnswer { .. }
        | Message::AskState { .. }
        | Message::Fetch { .. }
        | Message::Confirm { .. }
        | Message::Compare { .. } => {}
    }
}

/// Decodes a message.
///
/// # Errors
/// The expected content, and its offset.
pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
    let wrong = |expected| DecodeError {
        expected,
        offset: 0,
    };
    let Some((body, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
        return Err(wrong("a message of at least four bytes"));
    };
    let mut cursor = Cursor::new(body);
    if cursor.take(MAGIC.len(), "the magic of a message")? != MAGIC {
        return Err(wrong("the magic of a message"));
    }
    let version = cursor.u8("version of a message")?;
    if !(VERSION_WITHOUT_VIEWS..=VERSION).contains(&version) {
        return Err(wrong("a message of version 1 to 5"));
    }
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(wrong("a message with the right checksum"));
    }
    let kind = cursor.u8("kind of a message")?;
    let message = match kind {
        1 => Message::Hello(name(version, &mut cursor)?),
        9 => Message::Confirm {
            state: name(version, &mut cursor)?,
            segments: segments(&mut cursor)?,
            proofs: match version {
                VERSION_WITHOUT_VIEWS => Vec::new(),
                _ => proofs(&mut cursor)?,
            },
        },
        13 => {
            let (segment, stretch, missing) = missing_ranges::read(&mut cursor)?;
            Message::MissingRanges {
                segment,
                stretch,
                missing,
            }
        }
        _ => {
            let request = cursor.u64("number of a request")?;
            of_request(version, kind, request, &mut cursor)?
        }
    };
    cursor.finish()?;
    Ok(message)
}

fn of_request(
    version: u8,
    kind: u8,
    request: u64,
    cursor: &mut Cursor<'_>,
) -> Result<Message, DecodeError> {
    Ok(match kind {
        2 => Message::AskState {
            request,
            known_state: match cursor.u8("whether a state is known")? {
                0 => None,
                1 => Some(name(version, cursor)?),
                _ => return Err(cursor.expected("0 or 1")),
            },
        },
        3 => Message::State {
            request,
            bytes: cursor.prefixed("bytes of a state")?.to_vec(),
        },
        4 => Message::Fetch {
            request,
            state: name(version, cursor)?,
            ranges: segment_ranges(cursor)?,
        },
        5 => Message::Bytes {
            request,
            segment: cursor.varint("segment")?,
            offset: cursor.varint("offset")?,
            bytes: cursor.prefixed("bytes of a piece")?.to_vec(),
        },
        6 => Message::Unavailable { request },
        7 => Message::Wait {
            request,
            millis: cursor.varint("milliseconds")?,
        },
        8 => Message::Done { request },
        10 => Message::Compare {
            request,
            state: name(version, cursor)?,
            ranges: segment_ranges(cursor)?,
        },
        11 => Message::Digests {
            request,
            digests: digests(cursor)?,
        },
        12 => Message::Refused {
            request,
            code: cursor.text("code of a refusal")?.to_owned(),
            text: cursor.text("text of a refusal")?.to_owned(),
        },
        14 => Message::AskTail {
            request,
            state: cursor.varint("sequence of a state")?,
            known_end: point(cursor)?,
        },
        15 => Message::Tail {
            request,
            bytes: cursor.prefixed("bytes of newest events")?.to_vec(),
        },
        16 => Message::Challenge {
            request,
            nonce: nonce(cursor)?,
            ranges: segment_ranges(cursor)?,
        },
        17 => Message::ChallengeAnswer {
            request,
            digests: digests(cursor)?,
        },
        _ => return Err(cursor.expected("a kind from 1 to 17")),
    })
}

fn name(version: u8, cursor: &mut Cursor<'_>) -> Result<StateName, DecodeError> {
    Ok(StateName {
        identity: cursor.u64("identity")?,
        incarnation: cursor.u64("incarnation")?,
        opening: cursor.u64("opening")?,
        number: cursor.u64("state number")?,
        sequence: cursor.u64("sequence")?,
        view: match version {
            VERSION_WITHOUT_VIEWS => 0,
            _ => cursor.u64("view")?,
        },
    })
}

fn point(cursor: &mut Cursor<'_>) -> Result<Option<TailPoint>, DecodeError> {
    let kind = cursor.u8("whether newest events are known")?;
    if kind == 0 {
        return Ok(None);
    }
    let until = cursor.varint("up to where they are known")?;
    let last = match kind {
        1 => None,
        2 => Some(TailMark {
            sequence: cursor.varint("the last one known")?,
            crc: cursor.u32("its checksum")?,
        }),
        _ => return Err(cursor.expected("0, 1 or 2")),
    };
    Ok(Some(TailPoint { until, last }))
}

fn count(cursor: &mut Cursor<'_>, expected: &'static str) -> Result<usize, DecodeError> {
    cursor.varint_up_to(wide(cursor.remaining()), expected)
}

fn segment_ranges(cursor: &mut Cursor<'_>) -> Result<Vec<SegmentRange>, DecodeError> {
    let count = count(cursor, "number of pieces")?;
    let mut out = Vec::new();
    for _ in 0..count {
        let (segment, offset) = (cursor.varint("segment")?, cursor.varint("offset")?);
        let Ok(bytes) = u32::try_from(cursor.varint("length of a piece")?) else {
            return Err(cursor.expected("a piece below 4 GiB"));
        };
        out.push(SegmentRange {
            segment,
            offset,
            bytes,
        });
    }
    Ok(out)
}

fn segments(cursor: &mut Cursor<'_>) -> Result<Vec<(u64, u64)>, DecodeError> {
    let count = count(cursor, "number of segments")?;
    let mut out = Vec::new();
    for _ in 0..count {
        out.push((
            cursor.varint("segment")?,
            cursor.varint("bytes that count")?,
        ));
    }
    Ok(out)
}

fn digest(cursor: &mut Cursor<'_>) -> Result<Digest, DecodeError> {
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(cursor.take(DIGEST_BYTES, "a digest")?);
    Ok(digest)
}

fn nonce(cursor: &mut Cursor<'_>) -> Result<Nonce, DecodeError> {
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(cursor.take(NONCE_BYTES, "the nonce of a challenge")?);
    Ok(nonce)
}

fn proofs(cursor: &mut Cursor<'_>) -> Result<Vec<(u64, Digest)>, DecodeError> {
    let count = count(cursor, "number of proofs")?;
    let mut out = Vec::new();
    for _ in 0..count {
        out.push((cursor.varint("segment")?, digest(cursor)?));
    }
    Ok(out)
}

fn digests(cursor: &mut Cursor<'_>) -> Result<Vec<Digest>, DecodeError> {
    let count = count(cursor, "number of digests")?;
    let mut out = Vec::new();
    for _ in 0..count {
        out.push(digest(cursor)?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
