//! Negotiation between client and server, before the first request.
//!
//! Invariants: an option is answered by its own reply or ends the connection; the number and the
//! length of a client's options are bounded. Concurrency: one connection's, on its own thread.
//! Failure: an error ends the connection.

use std::io::{self, Read, Write};

use super::message::{
    ALLOCATION, ALLOCATION_ID, Agreed, CLIENT_FIXED, CLIENT_NO_ZEROES, GREETING, OPTION_BYTES_MAX,
    REQUEST_BYTES_MAX, context_request, export_flag, info, info_request, name_of, option,
    option_header, option_reply, reply,
};
use crate::BLOCK_BYTES;

/// A client needs a handful.
const OPTIONS_MAX: usize = 64;
/// Maximum bytes of a too long option that are read and discarded; a longer option ends the
/// connection.
const SKIPPED_BYTES_MAX: u32 = 1 << 20;
/// Number of zeros that old clients expect after the answer to a name.
const ZEROS: usize = 124;

/// The export that is served: the default export, which has a name, too.
#[derive(Clone, Debug)]
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) size: u64,
}

impl Export {
    fn is_called(&self, name: &str) -> bool {
        name.is_empty() || name == self.name
    }

    fn flags(&self, agreed: &Agreed) -> u16 {
        let always = export_flag::HAS_FLAGS
            | export_flag::FLUSH
            | export_flag::FUA
            | export_flag::TRIM
            | export_flag::WRITE_ZEROES
            | export_flag::FAST_ZERO
            | export_flag::MULTI_CONN;
        match agreed.structured {
            true => always | export_flag::DONT_FRAGMENT,
            false => always,
        }
    }
}

/// Outcome of a negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Requests follow.
    Begin(Agreed),
    /// The client ended the negotiation.
    Ended,
}

/// The step after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Option,
    Begin,
    End,
}

/// Negotiates with a client. `is_stopping` is true while the server is stopping.
pub(crate) fn negotiate(
    stream: &mut (impl Read + Write),
    export: &Export,
    is_stopping: &dyn Fn() -> bool,
) -> io::Result<Outcome> {
    stream.write_all(&GREETING)?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !(CLIENT_FIXED | CLIENT_NO_ZEROES) != 0 {
        return Err(wrong("the client set unknown flags"));
    }
    let mut state = Negotiation {
        export,
        agreed: Agreed::default(),
        allocation_of: None,
    };
    for _ in 0..OPTIONS_MAX {
        let mut header = [0; 16];
        stream.read_exact(&mut header)?;
        let Some((number, length)) = option_header(&header) else {
            return Err(wrong("the client did not send an option"));
        };
        if number == option::EXPORT_NAME {
            let begin = state.by_name(stream, length, flags & CLIENT_NO_ZEROES == 0)?;
            return Ok(Outcome::Begin(begin));
        }
        if flags & CLIENT_FIXED == 0 {
            return Err(wrong("the client does not support option replies"));
        }
        if length > OPTION_BYTES_MAX {
            skip(stream, length)?;
            let why = format!("options have at most {OPTION_BYTES_MAX} bytes");
            stream.write_all(&option_reply(number, reply::TOO_BIG, why.as_bytes()))?;
            continue;
        }
        let mut data = vec![0; usize::try_from(length).unwrap_or(0)];
        stream.read_exact(&mut data)?;
        if is_stopping() && number != option::ABORT {
            let why = b"the server is shutting down";
            stream.write_all(&option_reply(number, reply::SHUTDOWN, why))?;
            return Ok(Outcome::Ended);
        }
        let (answer, next) = state.answer(number, &data);
        stream.write_all(&answer)?;
        match next {
            Next::Option => {}
            Next::Begin => return Ok(Outcome::Begin(state.agreed)),
            Next::End => return Ok(Outcome::Ended),
        }
    }
    Err(wrong("the client sent too many options"))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads and discards an option that is too long.
fn skip(stream: &mut impl Read, length: u32) -> io::Result<()> {
    if length > SKIPPED_BYTES_MAX {
        return Err(wrong("the client sent an option of more than 1 MiB"));
    }
    let skipped = io::copy(&mut stream.take(u64::from(length)), &mut io::sink())?;
    if skipped < u64::from(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

struct Negotiation<'a> {
    export: &'a Export,
    agreed: Agreed,
    /// The export for which block status was requested.
    allocation_of: Option<String>,
}

impl Negotiation<'_> {
    /// Old-style selection of the export: a refusal cannot be answered.
    fn by_name(
        &mut self,
        stream: &mut (impl Read + Write),
        length: u32,
        has_zeros: bool,
    ) -> io::Result<Agreed> {
        if length > 4096 {
            return Err(wrong("the client sent a name of more than 4096 bytes"));
        }
        let mut data = vec![0; usize::try_from(length).unwrap_or(0)];
        stream.read_exact(&mut data)?;
        let name = name_of(&data).filter(|name| self.export.is_called(name));
        let Some(name) = name else {
            return Err(wrong("the client requested an unknown export"));
        };
        self.begin(name);
        let mut answer = self.export.size.to_be_bytes().to_vec();
        answer.extend_from_slice(&self.export.flags(&self.agreed).to_be_bytes());
        if has_zeros {
            answer.resize(answer.len() + ZEROS, 0);
        }
        stream.write_all(&answer)?;
        Ok(self.agreed)
    }

    /// Block status counts for the export for which it was requested.
    fn begin(&mut self, name: &str) {
        self.agreed.allocation =
            self.agreed.structured && self.allocation_of.as_deref() == Some(name);
    }

    fn answer(&mut self, number: u32, data: &[u8]) -> (Vec<u8>, Next) {
        let say = |kind, text: &str| option_reply(number, kind, text.as_bytes());
        let invalid = |text: &str| (say(reply::INVALID, text), Next::Option);
        match number {
            option::ABORT => (say(reply::ACK, ""), Next::End),
            option::LIST if data.is_empty() => {
                let mut out = option_reply(number, reply::SERVER, &prefixed(&self.export.name));
                out.extend(say(reply::ACK, ""));
                (out, Next::Option)
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.agreed.structured = true;
                (say(reply::ACK, ""), Next::Option)
            }
            option::LIST | option::STRUCTURED_REPLY => invalid("this option takes no data"),
            option::INFO | option::GO => match info_request(data) {
                None => invalid("expected a name and a list of information types"),
                Some((name, _)) if !self.export.is_called(name) => {
                    (say(reply::UNKNOWN, &self.unknown()), Next::Option)
                }
                Some((name, asked)) => {
                    if number == option::GO {
                        self.begin(name);
                    }
                    let next = match number {
                        option::GO => Next::Begin,
                        _ => Next::Option,
                    };
                    (self.infos(number, &asked), next)
                }
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => match context_request(data) {
                None => invalid("expected a name, a count and that many queries"),
                Some(_) if !self.agreed.structured => {
                    invalid("metadata contexts need structured replies, which were not negotiated")
                }
                Some((name, _)) if !self.export.is_called(name) => {
                    (say(reply::UNKNOWN, &self.unknown()), Next::Option)
                }
                Some((name, queries)) => (self.contexts(number, name, &queries), Next::Option),
            },
            _ => (
                say(
                    reply::UNSUPPORTED,
                    "this server does not support the option",
                ),
                Next::Option,
            ),
        }
    }

    fn unknown(&self) -> String {
        format!(
            "the only export is `{}`, which is also the default export",
            self.export.name
        )
    }

    fn infos(&self, number: u32, asked: &[u16]) -> Vec<u8> {
        let mut data = info::EXPORT.to_be_bytes().to_vec();
        data.extend_from_slice(&self.export.size.to_be_bytes());
        data.extend_from_slice(&self.export.flags(&self.agreed).to_be_bytes());
        let mut out = option_reply(number, reply::INFO, &data);
        let mut told = Vec::new();
        for kind in asked {
            let mut data = kind.to_be_bytes().to_vec();
            match *kind {
                info::NAME => data.extend_from_slice(self.export.name.as_bytes()),
                info::DESCRIPTION => data.extend_from_slice(b"a Headwater block device"),
                info::BLOCK_SIZE => {
                    let preferred = u32::try_from(BLOCK_BYTES).unwrap_or(1);
                    for bytes in [1, preferred, REQUEST_BYTES_MAX] {
                        data.extend_from_slice(&bytes.to_be_bytes());
                    }
                }
                // Unknown requests are skipped, as the protocol defines.
                _ => continue,
            }
            if !told.contains(kind) {
                told.push(*kind);
                out.extend(option_reply(number, reply::INFO, &data));
            }
        }
        out.extend(option_reply(number, reply::ACK, &[]));
        out
    }

    fn contexts(&mut self, number: u32, name: &str, queries: &[&str]) -> Vec<u8> {
        let is_list = number == option::LIST_META_CONTEXT;
        let wants = |query: &&str| *query == ALLOCATION || (is_list && *query == "base:");
        let is_wanted = queries.iter().any(wants) || (is_list && queries.is_empty());
        if !is_list {
            self.allocation_of = is_wanted.then(|| name.to_owned());
        }
        let mut out = Vec::new();
        if is_wanted {
            let id = if is_list { 0 } else { ALLOCATION_ID };
            let mut data = id.to_be_bytes().to_vec();
            data.extend_from_slice(ALLOCATION.as_bytes());
            out = option_reply(number, reply::META_CONTEXT, &data);
        }
        out.extend(option_reply(number, reply::ACK, &[]));
        out
    }
}

fn prefixed(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).unwrap_or(0);
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(name.as_bytes());
    out
}
