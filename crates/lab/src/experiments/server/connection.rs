//! One persistent connection for queries, with minimal overhead, so that the server is measured.

use crate::harness::Failure;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

/// A query as bytes, to be made once and sent often.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").into_bytes()
}

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are filled.
    filled: usize,
}

/// An answer; its body is in the connection's buffer until the next request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    body: (usize, usize),
}

impl Connection {
    pub(crate) fn open(addr: SocketAddr) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Connection {
            stream,
            buffer: vec![0; 1 << 20],
            filled: 0,
        })
    }

    /// Sends a request and reads its answer.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<Answer, Failure> {
        self.stream.write_all(request)?;
        self.filled = 0;
        let head = loop {
            if let Some(head) = position_of(self.bytes(0..self.filled), b"\r\n\r\n") {
                break head + 4;
            }
            self.fill()?;
        };
        let text = std::str::from_utf8(self.bytes(0..head))?;
        let status = text
            .get(9..12)
            .and_then(|s| s.parse().ok())
            .ok_or("not an answer")?;
        let value_of = |wanted: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_it = name.eq_ignore_ascii_case(wanted);
                is_it.then(|| value.trim().to_owned())
            })
        };
        let length = value_of("content-length").and_then(|value| value.parse::<usize>().ok());
        let is_in_parts = value_of("transfer-encoding").is_some_and(|value| value == "chunked");
        let end = match (length, status) {
            (Some(length), _) => head + length,
            (None, 204 | 304) => head,
            (None, _) if is_in_parts => self.parts(head)?,
            (None, _) => return Err("an answer without a length".into()),
        };
        while self.filled < end {
            self.fill()?;
        }
        Ok(Answer {
            status,
            body: (head, end),
        })
    }

    /// Reads a chunked body, and joins the chunks at the start of the first. Returns their end.
    fn parts(&mut self, head: usize) -> Result<usize, Failure> {
        let (mut from, mut end) = (head, head);
        loop {
            let line = loop {
                if let Some(line) = position_of(self.bytes(from..self.filled), b"\r\n") {
                    break from + line;
                }
                self.fill()?;
            };
            let size = std::str::from_utf8(self.bytes(from..line))?;
            let size = usize::from_str_radix(size.trim(), 16)?;
            let part = line + 2;
            while self.filled < part + size + 2 {
                self.fill()?;
            }
            if size == 0 {
                return Ok(end);
            }
            self.buffer.copy_within(part..part + size, end);
            (from, end) = (part + size + 2, end + size);
        }
    }

    /// The head of an answer in lower case.
    pub(crate) fn head(&self, answer: &Answer) -> String {
        String::from_utf8_lossy(self.bytes(0..answer.body.0)).to_ascii_lowercase()
    }

    pub(crate) fn body(&self, answer: &Answer) -> &[u8] {
        self.bytes(answer.body.0..answer.body.1)
    }

    /// Bytes of a part of the buffer.
    fn bytes(&self, part: Range<usize>) -> &[u8] {
        self.buffer.get(part).unwrap_or_default()
    }

    fn fill(&mut self) -> Result<(), Failure> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        let free = self.buffer.get_mut(self.filled..).unwrap_or_default();
        match self.stream.read(free)? {
            0 => Err("the server closed the connection".into()),
            read => {
                self.filled += read;
                Ok(())
            }
        }
    }
}

fn position_of(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}
