//! Messages that clients send.

use super::Malformed;

/// Longest first message in bytes, as PostgreSQL has it.
const FIRST_MAX: u32 = 10_000;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// First message of a connection; has no type byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// Requests TLS; another first message follows.
    Tls,
    /// Requests encryption by GSSAPI; another first message follows.
    Gss,
    /// Requests the cancellation of another connection's statement.
    Cancel {
        /// Process number of the other connection.
        process: u32,
        /// Secret of the other connection.
        secret: Vec<u8>,
    },
    /// Begins a session.
    Begin {
        /// Minor version of the protocol; the major version is 3.
        minor: u16,
        /// `user`, `database`, and further settings, as sent.
        parameters: Vec<(String, String)>,
    },
}

/// Target of a `Describe` or `Close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescribeTarget {
    /// A prepared statement.
    Statement,
    /// A portal: a statement with its parameters.
    Portal,
}

/// A message of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The answer to a request for a password.
    Password(String),
    /// Statements to be run at once.
    Query(String),
    /// Prepares a statement.
    Parse {
        /// Name; empty = the unnamed statement.
        name: String,
        /// Text of the statement.
        sql: String,
        /// OIDs of the types of the first parameters; 0 = unspecified.
        types: Vec<u32>,
    },
    /// Gives a prepared statement its parameters.
    Bind {
        /// Name of the portal; empty = the unnamed one.
        portal: String,
        /// Name of the statement.
        statement: String,
        /// 0 = text, 1 = binary: empty = text, one element = for all, otherwise one for each.
        formats: Vec<i16>,
        /// The parameters; `None` = null.
        values: Vec<Option<Vec<u8>>>,
        /// Formats of the columns of the result, as above.
        results: Vec<i16>,
    },
    /// Requests the description of parameters and result.
    Describe(DescribeTarget, String),
    /// Forgets a statement or portal.
    Close(DescribeTarget, String),
    /// Runs or continues a portal.
    Execute {
        /// Name of the portal.
        portal: String,
        /// After how many rows to stop; 0 = never.
        rows: u32,
    },
    /// Requests all pending answers.
    Flush,
    /// Ends a series of messages.
    Sync,
    /// Part of the data of a copy.
    CopyData(Vec<u8>),
    /// The end of a copy.
    CopyDone,
    /// The client aborts a copy.
    CopyFail(String),
    /// A call of a function by its number, which is long out of use.
    FunctionCall,
    /// The client disconnects.
    Terminate,
}

/// Reads the first message of a connection, and returns it with its length. `None` = the message is
/// incomplete.
///
/// # Errors
/// When the bytes do not begin a session of this protocol.
pub fn first(bytes: &[u8]) -> Result<Option<(First, usize)>, Malformed> {
    let Some(head) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*head);
    if !(8..=FIRST_MAX).contains(&length) {
        return Err(Malformed::Length {
            length,
            most: FIRST_MAX,
        });
    }
    let Some(whole) = bytes.get(..length as usize) else {
        return Ok(None);
    };
    let mut parts = MessageReader::new(' ', &whole[4..]);
    let code = parts.u32()?;
    let first = match code {
        SSL_REQUEST => First::Tls,
        GSS_REQUEST => First::Gss,
        CANCEL_REQUEST => First::Cancel {
            process: parts.u32()?,
            secret: parts.rest().to_vec(),
        },
        _ => {
            let (major, minor) = ((code >> 16) as u16, code as u16);
            if major != 3 {
                return Err(Malformed::Version(major, minor));
            }
            let mut parameters = Vec::new();
            loop {
                let name = parts.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, parts.text()?));
            }
            First::Begin { minor, parameters }
        }
    };
    parts.end()?;
    Ok(Some((first, whole.len())))
}

/// Reads the next message of a session, of at most `most` bytes, and returns it with its length.
/// `None` = the message is incomplete.
///
/// # Errors
/// When the bytes are not a valid message.
pub fn message(bytes: &[u8], most: u32) -> Result<Option<(Message, usize)>, Malformed> {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    if !b"pQPBDCEFHSXcdf".contains(&kind) {
        return Err(Malformed::Unknown(kind));
    }
    let Some(head) = rest.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*head);
    if !(4..=most).contains(&length) {
        return Err(Malformed::Length { length, most });
    }
    let Some(whole) = rest.get(..length as usize) else {
        return Ok(None);
    };
    let mut parts = MessageReader::new(char::from(kind), &whole[4..]);
    let message = match kind {
        b'p' => Message::Password(parts.text()?),
        b'Q' => Message::Query(parts.text()?),
        b'P' => Message::Parse {
            name: parts.text()?,
            sql: parts.text()?,
            types: parts.list(MessageReader::u32)?,
        },
        b'B' => Message::Bind {
            portal: parts.text()?,
            statement: parts.text()?,
            formats: parts.list(MessageReader::i16)?,
            values: parts.list(MessageReader::value)?,
            results: parts.list(MessageReader::i16)?,
        },
        b'D' => Message::Describe(parts.target()?, parts.text()?),
        b'C' => Message::Close(parts.target()?, parts.text()?),
        b'E' => Message::Execute {
            portal: parts.text()?,
            rows: parts.u32()?,
        },
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'd' => Message::CopyData(parts.rest().to_vec()),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(parts.text()?),
        b'F' => {
            parts.rest();
            Message::FunctionCall
        }
        _ => Message::Terminate,
    };
    parts.end()?;
    Ok(Some((message, 1 + whole.len())))
}

/// The rest of one message.
struct MessageReader<'a> {
    kind: char,
    bytes: &'a [u8],
}

impl<'a> MessageReader<'a> {
    fn new(kind: char, bytes: &'a [u8]) -> MessageReader<'a> {
        MessageReader { kind, bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or(Malformed::Parts(self.kind))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Malformed::Parts(self.kind))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// A text that ends with a zero byte.
    fn text(&mut self) -> Result<String, Malformed> {
        let end = memchr::memchr(0, self.bytes).ok_or(Malformed::Parts(self.kind))?;
        let text = self.take(end)?;
        self.take(1)?;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed::Text(self.kind))
    }

    fn target(&mut self) -> Result<DescribeTarget, Malformed> {
        match self.take(1)? {
            b"S" => Ok(DescribeTarget::Statement),
            b"P" => Ok(DescribeTarget::Portal),
            _ => Err(Malformed::Parts(self.kind)),
        }
    }

    fn value(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        match i32::from_be_bytes(self.array()?) {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| Malformed::Parts(self.kind))?;
                Ok(Some(self.take(length)?.to_vec()))
            }
        }
    }

    /// A count and that number of elements. Memory grows with the present elements, not with the
    /// count.
    fn list<T>(
        &mut self,
        one: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = u16::from_be_bytes(self.array()?);
        (0..count).map(|_| one(self)).collect()
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Parts(self.kind))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use proptest::prelude::*;

    fn with_length(kind: Option<u8>, body: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = kind.into_iter().collect();
        bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_session_begins_with_its_parameters() {
        let body = b"\0\x03\0\0user\0a\0database\0b\0\0";
        let bytes = with_length(None, body);
        let begin = First::Begin {
            minor: 0,
            parameters: vec![
                ("user".to_owned(), "a".to_owned()),
                ("database".to_owned(), "b".to_owned()),
            ],
        };
        assert_eq!(first(&bytes), Ok(Some((begin, bytes.len()))));
        for end in 0..bytes.len() {
            assert_eq!(first(&bytes[..end]), Ok(None), "{end} bytes");
        }
        assert_eq!(
            first(b"\0\0\0\x08\x04\xd2\x16\x2f"),
            Ok(Some((First::Tls, 8)))
        );
        assert_eq!(
            first(b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07abcd"),
            Ok(Some((
                First::Cancel {
                    process: 7,
                    secret: b"abcd".to_vec()
                },
                16
            )))
        );
        assert_eq!(
            first(b"GET / HTTP/1.1\r\n\r\n"),
            Err(Malformed::Length {
                length: 0x4745_5420,
                most: FIRST_MAX
            })
        );
        assert_eq!(
            first(&with_length(None, b"\0\x02\0\0\0")),
            Err(Malformed::Version(2, 0))
        );
    }

    #[test]
    fn parts_that_do_not_fit_are_told() {
        for (kind, body) in [
            (b'Q', &b"select 1"[..]),
            (b'Q', b"select 1\0x"),
            (b'P', b"\0select 1\0\0\x02\0\0\0\x10"),
            (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'D', b"X\0"),
            (b'E', b"\0\0\0\0"),
            (b'S', b"\0"),
        ] {
            assert_eq!(
                message(&with_length(Some(kind), body), 1 << 20),
                Err(Malformed::Parts(char::from(kind))),
                "{}",
                body.escape_ascii()
            );
        }
        assert_eq!(
            message(&with_length(Some(b'Q'), b"\xff\0"), 100),
            Err(Malformed::Text('Q'))
        );
        assert_eq!(message(b"!", 100), Err(Malformed::Unknown(b'!')));
        for length in [0u32, 3, 101, u32::MAX] {
            let mut bytes = vec![b'Q'];
            bytes.extend(length.to_be_bytes());
            assert_eq!(
                message(&bytes, 100),
                Err(Malformed::Length { length, most: 100 })
            );
        }
    }

    #[test]
    fn a_bind_has_values_in_both_formats() {
        let body = b"p\0s\0\0\x02\0\0\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\x01\0\x01";
        let bytes = with_length(Some(b'B'), body);
        let bind = Message::Bind {
            portal: "p".to_owned(),
            statement: "s".to_owned(),
            formats: vec![0, 1],
            values: vec![Some(b"x".to_vec()), None],
            results: vec![1],
        };
        assert_eq!(message(&bytes, 1 << 20), Ok(Some((bind, bytes.len()))));
        for end in 0..bytes.len() {
            assert_eq!(message(&bytes[..end], 1 << 20), Ok(None), "{end} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), short in any::<bool>()) {
            if short && bytes.len() > 4 {
                bytes[1..4].fill(0);
            }
            if let Ok(Some((_, taken))) = message(&bytes, 1 << 20) {
                prop_assert!(taken >= 5 && taken <= bytes.len());
            }
            if let Ok(Some((_, taken))) = first(&bytes) {
                prop_assert!(taken >= 8 && taken <= bytes.len());
            }
        }
    }
}
