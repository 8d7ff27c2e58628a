//! Messages of the protocol, decoded and encoded byte by byte.
//!
//! Invariants: decoders read fixed or bounded numbers of bytes and never panic. Concurrency: plain
//! functions. Failure: an impossible message is `None`; a request that must not be carried out has
//! an error number.

/// The most that a request may read or write.
pub(crate) const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Maximum size of an option's data that is processed.
pub(crate) const OPTION_BYTES_MAX: u32 = 64 << 10;
/// The longest name that the protocol allows.
const NAME_BYTES_MAX: usize = 4096;
/// The only context there is.
pub(crate) const ALLOCATION: &str = "base:allocation";
pub(crate) const ALLOCATION_ID: u32 = 1;

pub(crate) const GREETING: [u8; 18] = *b"NBDMAGICIHAVEOPT\x00\x03";
pub(crate) const CLIENT_FIXED: u32 = 1;
pub(crate) const CLIENT_NO_ZEROES: u32 = 2;
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Options that a client may send before the transmission phase.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to an option.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR + 1;
    pub(crate) const INVALID: u32 = ERROR + 3;
    pub(crate) const UNKNOWN: u32 = ERROR + 6;
    pub(crate) const SHUTDOWN: u32 = ERROR + 7;
    pub(crate) const TOO_BIG: u32 = ERROR + 9;
}

/// Kinds of information on an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Capabilities of an export.
pub(crate) mod export_flag {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const DONT_FRAGMENT: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
    pub(crate) const FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request.
mod request_flag {
    pub(super) const FUA: u16 = 1;
    pub(super) const NO_HOLE: u16 = 2;
    pub(super) const DONT_FRAGMENT: u16 = 4;
    pub(super) const ONE: u16 = 8;
    pub(super) const FAST_ZERO: u16 = 16;
}

/// Why a request is not carried out.
pub(crate) mod errno {
    pub(crate) const IO: u32 = 5;
    pub(crate) const NO_MEMORY: u32 = 12;
    pub(crate) const INVALID: u32 = 22;
    pub(crate) const NO_SPACE: u32 = 28;
    pub(crate) const NOT_SUPPORTED: u32 = 95;
    pub(crate) const SHUTDOWN: u32 = 108;
}

fn u16_of(bytes: &[u8], offset: usize) -> Option<u16> {
    let found = bytes.get(offset..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*found))
}

fn u32_of(bytes: &[u8], offset: usize) -> Option<u32> {
    let found = bytes.get(offset..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*found))
}

fn u64_of(bytes: &[u8], offset: usize) -> Option<u64> {
    let found = bytes.get(offset..)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*found))
}

/// An option's number and the length of its data.
pub(crate) fn option_header(bytes: &[u8; 16]) -> Option<(u32, u32)> {
    if !bytes.starts_with(OPTION_MAGIC) {
        return None;
    }
    Some((u32_of(bytes, 8)?, u32_of(bytes, 12)?))
}

/// A name with a length prefix at the front of some bytes, and the remaining bytes.
fn prefixed_name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let length = usize::try_from(u32_of(bytes, 0)?).ok()?;
    let (name, rest) = bytes.get(4..)?.split_at_checked(length)?;
    Some((name_of(name)?, rest))
}

/// A name as the protocol allows it.
pub(crate) fn name_of(bytes: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(bytes).ok()?;
    (bytes.len() <= NAME_BYTES_MAX && !bytes.contains(&0)).then_some(name)
}

/// Name of the requested export, and the information requested beside its size.
pub(crate) fn info_request(data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let (name, rest) = prefixed_name(data)?;
    let count = usize::from(u16_of(rest, 0)?);
    let asked = rest.get(2..)?;
    if asked.len() != count * 2 {
        return None;
    }
    let asked = asked.chunks_exact(2).filter_map(|two| u16_of(two, 0));
    Some((name, asked.collect()))
}

/// The export and the contexts that are requested.
pub(crate) fn context_request(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = prefixed_name(data)?;
    let count = u32_of(rest, 0)?;
    let mut rest = rest.get(4..)?;
    let mut queries = Vec::new();
    for _ in 0..count {
        let (query, behind) = prefixed_name(rest)?;
        queries.push(query);
        rest = behind;
    }
    rest.is_empty().then_some((name, queries))
}

/// An answer to an option.
pub(crate) fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut out = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&length_of(data.len()).to_be_bytes());
    out.extend_from_slice(data);
    out
}

/// Lengths are bounded before they are encoded.
fn length_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read,
    Write {
        fua: bool,
    },
    Disconnect,
    Flush,
    Trim {
        fua: bool,
    },
    Zero {
        keeps_space: bool,
        fua: bool,
    },
    Status {
        only_one: bool,
    },
    /// An unknown operation, or one that is not allowed: the error number.
    Wrong(u32),
}

/// A request as it is on the wire, without the data of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestHeader {
    flags: u16,
    kind: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl RequestHeader {
    pub(crate) const BYTES: usize = 28;

    /// Decodes a header; `None` if the magic number is wrong: the connection cannot be read
    /// further.
    pub(crate) fn decode(bytes: &[u8; RequestHeader::BYTES]) -> Option<RequestHeader> {
        if u32_of(bytes, 0)? != REQUEST_MAGIC {
            return None;
        }
        Some(RequestHeader {
            flags: u16_of(bytes, 4)?,
            kind: u16_of(bytes, 6)?,
            cookie: u64_of(bytes, 8)?,
            offset: u64_of(bytes, 16)?,
            length: u32_of(bytes, 24)?,
        })
    }

    /// Bytes that follow the header.
    pub(crate) fn data_bytes(&self) -> u32 {
        match self.kind {
            1 => self.length,
            _ => 0,
        }
    }

    /// The operation on a device of this size, on a connection that agreed on these features.
    pub(crate) fn operation(&self, size: u64, agreed: &Agreed) -> Operation {
        // FUA is allowed with every command, and has an effect on commands that change data.
        let fua = self.flags & request_flag::FUA != 0;
        let has = |flag| self.flags & flag != 0;
        let (operation, flags, needs_range) = match self.kind {
            0 if agreed.structured => (Operation::Read, request_flag::DONT_FRAGMENT, true),
            0 => (Operation::Read, 0, true),
            1 => (Operation::Write { fua }, 0, true),
            2 => return Operation::Disconnect,
            3 => (Operation::Flush, 0, false),
            4 => (Operation::Trim { fua }, 0, true),
            6 => {
                let keeps_space = has(request_flag::NO_HOLE);
                if keeps_space && has(request_flag::FAST_ZERO) {
                    return Operation::Wrong(errno::NOT_SUPPORTED);
                }
                let flags = request_flag::NO_HOLE | request_flag::FAST_ZERO;
                (Operation::Zero { keeps_space, fua }, flags, true)
            }
            7 if agreed.allocation => {
                let only_one = has(request_flag::ONE);
                (Operation::Status { only_one }, request_flag::ONE, true)
            }
            _ => return Operation::Wrong(errno::INVALID),
        };
        if self.flags & !(flags | request_flag::FUA) != 0 {
            return Operation::Wrong(errno::INVALID);
        }
        if !needs_range {
            let is_plain = self.offset == 0 && self.length == 0;
            return if is_plain {
                operation
            } else {
                Operation::Wrong(errno::INVALID)
            };
        }
        self.within(size, operation)
    }

    fn within(&self, size: u64, operation: Operation) -> Operation {
        let moves_bytes = matches!(operation, Operation::Read | Operation::Write { .. });
        if self.length == 0 || (moves_bytes && self.length > REQUEST_BYTES_MAX) {
            return Operation::Wrong(errno::INVALID);
        }
        let end = self.offset.checked_add(u64::from(self.length));
        if end.is_some_and(|end| end <= size) {
            return operation;
        }
        Operation::Wrong(match operation {
            Operation::Write { .. } | Operation::Zero { .. } => errno::NO_SPACE,
            _ => errno::INVALID,
        })
    }
}

/// Features that a connection agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Agreed {
    /// Reads are answered in chunks.
    pub(crate) structured: bool,
    /// Block status may be requested.
    pub(crate) allocation: bool,
}

/// A reply without chunks; data follow it.
pub(crate) fn simple_reply(cookie: u64, error: u32) -> Vec<u8> {
    let mut out = SIMPLE_MAGIC.to_be_bytes().to_vec();
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out
}

fn chunk(kind: u16, cookie: u64, length: usize) -> Vec<u8> {
    const DONE: u16 = 1;
    let mut out = CHUNK_MAGIC.to_be_bytes().to_vec();
    out.extend_from_slice(&DONE.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&length_of(length).to_be_bytes());
    out
}

/// The front of a chunk with the data of a read; they follow it.
pub(crate) fn data_chunk(cookie: u64, offset: u64, bytes: usize) -> Vec<u8> {
    const OFFSET_DATA: u16 = 1;
    let mut out = chunk(OFFSET_DATA, cookie, bytes.saturating_add(8));
    out.extend_from_slice(&offset.to_be_bytes());
    out
}

/// A chunk with the error of a failed request.
pub(crate) fn error_chunk(cookie: u64, error: u32, why: &str) -> Vec<u8> {
    const ERROR: u16 = (1 << 15) + 1;
    // The protocol's limit, at a border of characters.
    let text = why.get(..why.floor_char_boundary(NAME_BYTES_MAX));
    let text = text.unwrap_or(why);
    let mut out = chunk(ERROR, cookie, text.len().saturating_add(6));
    out.extend_from_slice(&error.to_be_bytes());
    let length = u16::try_from(text.len()).unwrap_or(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    out
}

/// A chunk with the status of a range: lengths, and whether the parts were written.
pub(crate) fn status_chunk(cookie: u64, extents: &[(u32, bool)]) -> Vec<u8> {
    const BLOCK_STATUS: u16 = 5;
    const HOLE_OF_ZEROS: u32 = 3;
    let mut out = chunk(BLOCK_STATUS, cookie, 4 + extents.len() * 8);
    out.extend_from_slice(&ALLOCATION_ID.to_be_bytes());
    for (length, is_written) in extents {
        let flags = if *is_written { 0 } else { HOLE_OF_ZEROS };
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&flags.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn request(kind: u16, flags: u16, offset: u64, length: u32) -> RequestHeader {
        RequestHeader {
            flags,
            kind,
            cookie: 7,
            offset,
            length,
        }
    }

    const ALL: Agreed = Agreed {
        structured: true,
        allocation: true,
    };

    #[test]
    fn requests_are_taken_as_the_protocol_says() {
        let of = |kind, flags, offset, length| {
            request(kind, flags, offset, length).operation(1 << 20, &ALL)
        };
        assert_eq!(of(0, 4, 0, 1), Operation::Read);
        assert_eq!(of(1, 1, 0, 4096), Operation::Write { fua: true });
        assert_eq!(of(3, 1, 0, 0), Operation::Flush);
        assert_eq!(of(4, 0, 0, 1 << 20), Operation::Trim { fua: false });
        assert_eq!(
            of(6, 2, 0, 9),
            Operation::Zero {
                keeps_space: true,
                fua: false
            }
        );
        assert_eq!(of(7, 8, 0, 9), Operation::Status { only_one: true });
        assert_eq!(of(2, 0xffff, 9, 9), Operation::Disconnect);
        for (kind, flags, offset, length, error) in [
            // A flag of another request, a length of zero, and a command that is not offered.
            (1, 4, 0, 1, errno::INVALID),
            (0, 1 << 9, 0, 1, errno::INVALID),
            (5, 0, 0, 1, errno::INVALID),
            (999, 0, 0, 0, errno::INVALID),
            // Lengths and places.
            (0, 0, 0, 0, errno::INVALID),
            (0, 0, 1 << 20, 1, errno::INVALID),
            (0, 0, u64::MAX, 2, errno::INVALID),
            (0, 0, 0, REQUEST_BYTES_MAX + 1, errno::INVALID),
            (1, 0, (1 << 20) - 1, 2, errno::NO_SPACE),
            (6, 0, 1, 1 << 20, errno::NO_SPACE),
            (4, 0, 1, 1 << 20, errno::INVALID),
            (3, 0, 4096, 0, errno::INVALID),
            (6, 18, 0, 9, errno::NOT_SUPPORTED),
        ] {
            assert_eq!(
                of(kind, flags, offset, length),
                Operation::Wrong(error),
                "{kind} {flags} {offset} {length}"
            );
        }
    }

    #[test]
    fn what_was_not_agreed_on_is_refused() {
        let none = Agreed::default();
        let status = request(7, 0, 0, 9).operation(4096, &none);
        let unfragmented = request(0, 4, 0, 9).operation(4096, &none);
        let wrong = Operation::Wrong(errno::INVALID);
        assert_eq!((status, unfragmented), (wrong, wrong));
    }

    #[test]
    fn contexts_and_infos_are_read_and_nothing_may_be_left_over() {
        let mut data = b"\0\0\0\x02ab\0\0\0\x02\0\0\0\x05base:\0\0\0\0".to_vec();
        assert_eq!(context_request(&data).unwrap(), ("ab", vec!["base:", ""]));
        data.push(0);
        assert!(context_request(&data).is_none());
        assert!(context_request(b"\0\0\0\0\xff\xff\xff\xff").is_none());
        assert_eq!(
            info_request(b"\0\0\0\x01x\0\x01\0\x03").unwrap(),
            ("x", vec![3])
        );
        assert!(info_request(b"\0\0\0\x01x\0\x02\0\x03").is_none());
        assert!(info_request(b"\xff\xff\xff\xffx").is_none());
    }

    #[test]
    fn replies_have_the_bytes_of_the_protocol() {
        assert_eq!(
            simple_reply(0x0102, 5),
            b"\x67\x44\x66\x98\0\0\0\x05\0\0\0\0\0\0\x01\x02"
        );
        assert_eq!(
            data_chunk(1, 16, 3),
            b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x0b\0\0\0\0\0\0\0\x10"
        );
        assert_eq!(
            error_chunk(1, 22, "no"),
            b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x01\0\0\0\x08\0\0\0\x16\0\x02no"
        );
        assert_eq!(
            status_chunk(1, &[(4096, true), (512, false)]),
            b"\x66\x8e\x33\xef\0\x01\0\x05\0\0\0\0\0\0\0\x01\0\0\0\x14\0\0\0\x01\
              \0\0\x10\0\0\0\0\0\0\0\x02\0\0\0\0\x03"
        );
        assert_eq!(
            option_reply(7, reply::ACK, b""),
            b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0"
        );
        let long = error_chunk(1, 5, &"ä".repeat(4000));
        assert_eq!(long.len(), 20 + 6 + 4096);
    }
}
