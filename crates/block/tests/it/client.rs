//! A client of the protocol, as simple as can be: it waits for each reply, or counts what is on its
//! way.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const ZEROES: u16 = 6;
pub(crate) const STATUS: u16 = 7;
pub(crate) const FUA: u16 = 1;

/// A connection to a server.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) size: u64,
    pub(crate) flags: u16,
    pub(crate) structured: bool,
    next: u64,
}

/// An answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Response {
    Done,
    Data(Vec<u8>),
    Extents(Vec<(u32, u32)>),
    Failed(u32),
}

impl Response {
    pub(crate) fn data(self) -> Vec<u8> {
        match self {
            Response::Data(data) => data,
            other => panic!("{other:?}"),
        }
    }
}

/// A connection before its negotiation. A test that waits for what never comes fails some time.
pub(crate) fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    let patience = Some(Duration::from_secs(120));
    stream.set_read_timeout(patience).unwrap();
    stream.set_write_timeout(patience).unwrap();
    stream
}

/// Takes the greeting, and says that fixed newstyle is known.
pub(crate) fn greet(stream: &mut UnixStream) -> io::Result<()> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
    stream.write_all(&3_u32.to_be_bytes())
}

pub(crate) fn send_option(stream: &mut UnixStream, option: u32, data: &[u8]) -> io::Result<()> {
    let mut out = b"IHAVEOPT".to_vec();
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
    stream.write_all(&out)
}

/// One reply to an option: its kind and data.
pub(crate) fn option_reply(stream: &mut UnixStream) -> io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
    let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
    let length = u32::from_be_bytes(head[16..].try_into().unwrap());
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok((kind, data))
}

/// All replies to an option up to its end.
pub(crate) fn option_replies(
    stream: &mut UnixStream,
    option: u32,
    data: &[u8],
) -> Vec<(u32, Vec<u8>)> {
    send_option(stream, option, data).unwrap();
    let mut out = Vec::new();
    loop {
        let reply = option_reply(stream).unwrap();
        let is_last = reply.0 == 1 || reply.0 >= 1 << 31;
        out.push(reply);
        if is_last {
            return out;
        }
    }
}

pub(crate) fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    let mut out = (name.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(rest);
    out
}

impl Client {
    /// Negotiates everything there is, or as little as possible.
    pub(crate) fn new(path: &Path, structured: bool) -> Client {
        let mut stream = connect(path);
        greet(&mut stream).unwrap();
        if structured {
            assert_eq!(option_replies(&mut stream, 8, b""), [(1, vec![])]);
            let query = [&1_u32.to_be_bytes()[..], &named("base:allocation", b"")].concat();
            let told = option_replies(&mut stream, 10, &named("", &query));
            assert_eq!(told[0], (4, b"\0\0\0\x01base:allocation".to_vec()));
        }
        let told = option_replies(&mut stream, 7, &named("", b"\0\0"));
        let (kind, info) = &told[0];
        assert_eq!((*kind, &info[..2]), (3, &b"\0\0"[..]));
        Client {
            stream,
            size: u64::from_be_bytes(info[2..10].try_into().unwrap()),
            flags: u16::from_be_bytes(info[10..].try_into().unwrap()),
            structured,
            next: 1,
        }
    }

    /// Sends a request and gives its cookie.
    pub(crate) fn send(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<u64> {
        let cookie = self.next;
        self.next += 1;
        let mut out = 0x2560_9513_u32.to_be_bytes().to_vec();
        out.extend_from_slice(&flags.to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&cookie.to_be_bytes());
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(data);
        self.stream.write_all(&out)?;
        Ok(cookie)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut out = [0; N];
        self.stream.read_exact(&mut out)?;
        Ok(out)
    }

    /// The next reply, whichever request it is for; `reads` says how long those of reads are.
    pub(crate) fn reply(&mut self, reads: &BTreeMap<u64, u32>) -> io::Result<(u64, Response)> {
        match u32::from_be_bytes(self.take()?) {
            0x6744_6698 => {
                let error = u32::from_be_bytes(self.take()?);
                let cookie = u64::from_be_bytes(self.take()?);
                if error != 0 {
                    return Ok((cookie, Response::Failed(error)));
                }
                let Some(length) = reads.get(&cookie) else {
                    return Ok((cookie, Response::Done));
                };
                assert!(!self.structured, "reads are answered in chunks");
                let mut data = vec![0; *length as usize];
                self.stream.read_exact(&mut data)?;
                Ok((cookie, Response::Data(data)))
            }
            0x668e_33ef => {
                assert!(self.structured);
                assert_eq!(self.take::<2>()?, [0, 1], "there is one chunk");
                let kind = u16::from_be_bytes(self.take()?);
                let cookie = u64::from_be_bytes(self.take()?);
                let mut data = vec![0; u32::from_be_bytes(self.take()?) as usize];
                self.stream.read_exact(&mut data)?;
                let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().unwrap());
                Ok((
                    cookie,
                    match kind {
                        1 => Response::Data(data[8..].to_vec()),
                        5 => Response::Extents(
                            (4..data.len())
                                .step_by(8)
                                .map(|at| (word(at), word(at + 4)))
                                .collect(),
                        ),
                        0x8001 => Response::Failed(word(0)),
                        other => panic!("a chunk of kind {other}"),
                    },
                ))
            }
            other => panic!("no reply begins with {other:08x}"),
        }
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn call(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> Response {
        let cookie = self.send(kind, flags, offset, length, data).unwrap();
        let reads = match kind {
            READ => BTreeMap::from([(cookie, length)]),
            _ => BTreeMap::new(),
        };
        let (of, told) = self.reply(&reads).unwrap();
        assert_eq!(of, cookie);
        told
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.call(READ, 0, offset, length, b"").data()
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let told = self.call(WRITE, 0, offset, data.len() as u32, data);
        assert_eq!(told, Response::Done);
    }

    pub(crate) fn flush(&mut self) {
        assert_eq!(self.call(FLUSH, 0, 0, 0, b""), Response::Done);
    }
}
