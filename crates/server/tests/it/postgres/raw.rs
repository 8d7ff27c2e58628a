//! A client of PostgreSQL's protocol that sends any bytes and shows each answer as a line.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) struct Client {
    stream: TcpStream,
}

/// A message: its type and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) kind: char,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The texts of an error or notice: `code message`.
    pub(crate) fn error(&self) -> String {
        let part = |kind: u8| {
            let mut parts = self.body.split(|b| *b == 0);
            let found = parts.find(|part| part.first() == Some(&kind));
            found.map_or(String::new(), |part| {
                String::from_utf8_lossy(&part[1..]).into_owned()
            })
        };
        format!("{} {}", part(b'C'), part(b'M'))
    }

    /// A part of an error, by its letter.
    pub(crate) fn error_field(&self, kind: u8) -> Option<String> {
        let mut parts = self.body.split(|b| *b == 0);
        let found = parts.find(|part| part.first() == Some(&kind))?;
        Some(String::from_utf8_lossy(&found[1..]).into_owned())
    }

    /// The values of a row.
    fn row(&self) -> Vec<Option<Vec<u8>>> {
        let mut rest = &self.body[2..];
        let count = u16::from_be_bytes([self.body[0], self.body[1]]);
        (0..count)
            .map(|_| {
                let (head, tail) = rest.split_first_chunk::<4>().unwrap();
                let length = i32::from_be_bytes(*head);
                rest = tail;
                let length = usize::try_from(length).ok()?;
                let (value, tail) = rest.split_at(length);
                rest = tail;
                Some(value.to_vec())
            })
            .collect()
    }

    /// The names and types of a description of rows.
    fn columns(&self) -> String {
        let count = u16::from_be_bytes([self.body[0], self.body[1]]);
        let mut rest = &self.body[2..];
        let mut told = Vec::new();
        for _ in 0..count {
            let end = rest.iter().position(|b| *b == 0).unwrap();
            let name = String::from_utf8_lossy(&rest[..end]).into_owned();
            let fixed = &rest[end + 1..end + 19];
            let oid = u32::from_be_bytes(fixed[6..10].try_into().unwrap());
            let binary = fixed[17] == 1;
            told.push(format!("{name}:{oid}{}", if binary { "b" } else { "" }));
            rest = &rest[end + 19..];
        }
        told.join(",")
    }

    /// One line, in short.
    fn line(&self) -> String {
        match self.kind {
            'E' | 'N' => format!("{} {}", self.kind, self.error()),
            'D' => {
                let values = self.row().into_iter().map(|value| match value {
                    None => "NULL".to_owned(),
                    Some(value) => value.escape_ascii().to_string(),
                });
                format!("D {}", values.collect::<Vec<_>>().join("|"))
            }
            'T' => format!("T {}", self.columns()),
            'C' | 'Z' => {
                let text = String::from_utf8_lossy(&self.body);
                format!("{} {}", self.kind, text.trim_end_matches('\0'))
            }
            'd' => format!("d {}", self.body.escape_ascii()),
            't' => {
                let oids = self.body[2..].chunks(4);
                let oids = oids.map(|oid| u32::from_be_bytes(oid.try_into().unwrap()).to_string());
                format!("t {}", oids.collect::<Vec<_>>().join(","))
            }
            kind => kind.to_string(),
        }
    }
}

pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Texts that each end with a zero byte.
pub(crate) fn texts(parts: &[&str]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|part| [part.as_bytes(), b"\0"].concat())
        .collect()
}

pub(crate) fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = texts(&[name, sql]);
    body.extend(u16::try_from(types.len()).unwrap().to_be_bytes());
    types.iter().for_each(|oid| body.extend(oid.to_be_bytes()));
    message(b'P', &body)
}

/// `format` is that of all parameters and of all columns.
pub(crate) fn bind(
    portal: &str,
    statement: &str,
    format: u16,
    values: &[Option<&[u8]>],
) -> Vec<u8> {
    let mut body = texts(&[portal, statement]);
    body.extend([0, 1]);
    body.extend(format.to_be_bytes());
    body.extend(u16::try_from(values.len()).unwrap().to_be_bytes());
    for value in values {
        match value {
            None => body.extend((-1i32).to_be_bytes()),
            Some(value) => {
                body.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
                body.extend(*value);
            }
        }
    }
    body.extend([0, 1]);
    body.extend(format.to_be_bytes());
    message(b'B', &body)
}

pub(crate) fn describe(kind: &str, name: &str) -> Vec<u8> {
    message(b'D', &[kind.as_bytes(), name.as_bytes(), b"\0"].concat())
}

pub(crate) fn execute(portal: &str, rows: u32) -> Vec<u8> {
    message(
        b'E',
        &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat(),
    )
}

pub(crate) fn sync() -> Vec<u8> {
    message(b'S', &[])
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Client { stream }
    }

    /// Sends bytes as they are; that the server has gone may show only here.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Bytes that are no message.
    pub(crate) fn read_exact(&mut self, bytes: &mut [u8]) {
        self.stream.read_exact(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, messages: &[Vec<u8>]) {
        self.stream.write_all(&messages.concat()).unwrap();
    }

    /// The message that begins a session.
    pub(crate) fn begin(&mut self, parameters: &[(&str, &str)]) {
        let mut body = 196_608u32.to_be_bytes().to_vec();
        for (name, value) in parameters {
            body.extend(texts(&[name, value]));
        }
        body.push(0);
        let bytes = message(0, &body);
        self.send(&[bytes[1..].to_vec()]);
    }

    /// The next message; `None` = the server has ended the connection.
    pub(crate) fn next(&mut self) -> Option<Answer> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap());
        let mut body = vec![0; length as usize - 4];
        self.stream.read_exact(&mut body).ok()?;
        Some(Answer {
            kind: char::from(head[0]),
            body,
        })
    }

    /// What comes until the server is ready, or has ended the connection.
    pub(crate) fn until_ready(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(answer) = self.next() {
            let ready = answer.kind == 'Z';
            answers.push(answer);
            if ready {
                break;
            }
        }
        answers
    }

    /// Reads until the server is ready, which it must become.
    pub(crate) fn ready(&mut self) -> Vec<Answer> {
        let answers = self.until_ready();
        assert_eq!(
            answers.last().map(|a| a.kind),
            Some('Z'),
            "{:?}",
            lines(&answers)
        );
        answers
    }

    /// Runs a text by the simple protocol; what comes back, as lines.
    pub(crate) fn query(&mut self, sql: &str) -> Vec<String> {
        self.send(&[message(b'Q', &texts(&[sql]))]);
        lines(&self.ready())
    }

    /// The rows of a query of the simple protocol, or its error.
    pub(crate) fn rows(&mut self, sql: &str) -> Vec<String> {
        let lines = self.query(sql);
        lines
            .into_iter()
            .filter_map(|line| match line.split_at(1) {
                ("D", row) => Some(row[1..].to_owned()),
                ("E", _) => Some(line),
                _ => None,
            })
            .collect()
    }

    /// Sends messages of the extended protocol; what comes back, as lines.
    pub(crate) fn exchange(&mut self, messages: &[Vec<u8>]) -> Vec<String> {
        self.send(messages);
        lines(&self.ready())
    }

    /// Everything until the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A connection that is reset has ended too.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }
}

pub(crate) fn lines(answers: &[Answer]) -> Vec<String> {
    answers.iter().map(Answer::line).collect()
}
