//! Messages that servers send, appended to a buffer.

use std::ops::Range;

/// Form of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As text.
    Text,
    /// As bytes, by the type.
    Binary,
}

impl Format {
    /// Format of a code in a message; `None` = the code is invalid.
    #[must_use]
    pub fn of(code: i16) -> Option<Format> {
        match code {
            0 => Some(Format::Text),
            1 => Some(Format::Binary),
            _ => None,
        }
    }
}

/// Description of a column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// The number of its type in `pg_type`.
    pub type_oid: u32,
    /// Bytes of a value; negative = variable.
    pub type_size: i16,
    /// Modifier of its type; -1 = none.
    pub type_modifier: i32,
    /// The form of its values.
    pub format: Format,
}

/// Severity of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The session ends.
    Fatal,
    /// The statement failed.
    Error,
    /// A condition to check.
    Warning,
    /// A message for information.
    Notice,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Fatal => "FATAL",
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// Notice to a client in addition to results: an error, a warning or information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The severity.
    pub severity: Severity,
    /// Five letters and digits, as listed in PostgreSQL's appendix of error codes.
    pub sqlstate: String,
    /// The event.
    pub message: String,
    /// Further explanation.
    pub detail: Option<String>,
    /// The remedy.
    pub hint: Option<String>,
    /// Position in the text of the statement, in characters from 1.
    pub position: Option<u32>,
}

/// Whether a session is in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Not in a transaction.
    Idle,
    /// In a transaction.
    Open,
    /// In a transaction with a failed statement.
    Failed,
}

/// Builds messages. Texts with a zero byte, which the protocol cannot carry, are cut off there.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// The messages so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops the messages, and retains up to a mebibyte of memory for the next.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
    }

    /// Writes a message with its length.
    fn message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.push(kind);
        let at = self.bytes.len();
        self.bytes.extend([0; 4]);
        body(&mut self.bytes);
        self.put_length(at..self.bytes.len());
    }

    /// Lengths are signed numbers of 32 bits; messages stay far below that.
    fn put_length(&mut self, range: Range<usize>) {
        let length = i32::try_from(range.len()).unwrap_or(i32::MAX);
        self.bytes[range.start..range.start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// The client is admitted.
    pub fn authentication_ok(&mut self) {
        self.message(b'R', |b| b.extend(0u32.to_be_bytes()));
    }

    /// Requests a password, as plain text.
    pub fn authentication_password(&mut self) {
        self.message(b'R', |b| b.extend(3u32.to_be_bytes()));
    }

    /// This server speaks an older minor version, and does not support some parameters of the
    /// protocol.
    pub fn negotiate(&mut self, minor: u16, unknown: &[&str]) {
        self.message(b'v', |b| {
            b.extend((3u32 << 16 | u32::from(minor)).to_be_bytes());
            b.extend((unknown.len() as u32).to_be_bytes());
            unknown.iter().for_each(|name| put_text(b, name));
        });
    }

    /// The value of a setting.
    pub fn parameter_status(&mut self, name: &str, value: &str) {
        self.message(b'S', |b| {
            put_text(b, name);
            put_text(b, value);
        });
    }

    /// Sends the number and the secret with which another connection may cancel this connection's
    /// statements.
    pub fn key_data(&mut self, process: u32, secret: [u8; 4]) {
        self.message(b'K', |b| {
            b.extend(process.to_be_bytes());
            b.extend(secret);
        });
    }

    /// Ready for the next statement.
    pub fn ready(&mut self, status: TransactionStatus) {
        self.message(b'Z', |b| {
            b.push(match status {
                TransactionStatus::Idle => b'I',
                TransactionStatus::Open => b'T',
                TransactionStatus::Failed => b'E',
            });
        });
    }

    /// The columns of the rows that follow, or would.
    pub fn row_description(&mut self, columns: &[Column]) {
        self.message(b'T', |b| {
            b.extend((columns.len() as u16).to_be_bytes());
            for column in columns {
                put_text(b, &column.name);
                // Zeros for the OID of a table and the number of its column: the values are not a
                // table's.
                b.extend([0; 6]);
                b.extend(column.type_oid.to_be_bytes());
                b.extend(column.type_size.to_be_bytes());
                b.extend(column.type_modifier.to_be_bytes());
                b.extend(match column.format {
                    Format::Text => [0, 0],
                    Format::Binary => [0, 1],
                });
            }
        });
    }

    /// The statement does not return rows.
    pub fn no_data(&mut self) {
        self.message(b'n', |_| {});
    }

    /// The types of a statement's parameters.
    pub fn parameter_description(&mut self, types: &[u32]) {
        self.message(b't', |b| {
            b.extend((types.len() as u16).to_be_bytes());
            types.iter().for_each(|oid| b.extend(oid.to_be_bytes()));
        });
    }

    /// A row. `value` appends the value of a column, and returns false when it is null and was not
    /// appended.
    ///
    /// # Errors
    /// Errors of `value`; the row is taken back then.
    pub fn data_row<E>(
        &mut self,
        columns: usize,
        mut value: impl FnMut(usize, &mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let begin = self.bytes.len();
        self.bytes.push(b'D');
        self.bytes.extend([0; 4]);
        self.bytes.extend((columns as u16).to_be_bytes());
        for column in 0..columns {
            let at = self.bytes.len();
            self.bytes.extend([0; 4]);
            match value(column, &mut self.bytes) {
                Ok(true) => {
                    let length = self.bytes.len() - at - 4;
                    let length = i32::try_from(length).unwrap_or(i32::MAX);
                    self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
                }
                Ok(false) => {
                    self.bytes.truncate(at);
                    self.bytes.extend((-1i32).to_be_bytes());
                }
                Err(error) => {
                    self.bytes.truncate(begin);
                    return Err(error);
                }
            }
        }
        self.put_length(begin + 1..self.bytes.len());
        Ok(())
    }

    /// A statement is complete; the tag contains its kind and number of rows.
    pub fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |b| put_text(b, tag));
    }

    /// The text did not contain a statement.
    pub fn empty_query(&mut self) {
        self.message(b'I', |_| {});
    }

    /// A statement is prepared.
    pub fn parse_complete(&mut self) {
        self.message(b'1', |_| {});
    }

    /// A portal is made.
    pub fn bind_complete(&mut self) {
        self.message(b'2', |_| {});
    }

    /// A statement or portal is forgotten.
    pub fn close_complete(&mut self) {
        self.message(b'3', |_| {});
    }

    /// The portal has more rows.
    pub fn portal_suspended(&mut self) {
        self.message(b's', |_| {});
    }

    /// Announces the data of a copy: the number of columns, all in one format.
    pub fn copy_out(&mut self, columns: usize, format: Format) {
        self.copy(b'H', columns, format);
    }

    /// Requests the data of a copy: the number of columns, all in one format.
    pub fn copy_in(&mut self, columns: usize, format: Format) {
        self.copy(b'G', columns, format);
    }

    fn copy(&mut self, kind: u8, columns: usize, format: Format) {
        let code = u8::from(format == Format::Binary);
        self.message(kind, |b| {
            b.push(code);
            b.extend((columns as u16).to_be_bytes());
            b.extend([0, code].repeat(columns));
        });
    }

    /// A row of a copy, or another part of its data.
    pub fn copy_data(&mut self, line: &[u8]) {
        self.message(b'd', |b| b.extend(line));
    }

    /// The end of a copy.
    pub fn copy_done(&mut self) {
        self.message(b'c', |_| {});
    }

    /// An error or less.
    pub fn notice(&mut self, notice: &Notice) {
        let kind = match notice.severity {
            Severity::Fatal | Severity::Error => b'E',
            Severity::Warning | Severity::Notice => b'N',
        };
        self.message(kind, |b| {
            let mut field = |code: u8, text: &str| {
                b.push(code);
                put_text(b, text);
            };
            field(b'S', notice.severity.name());
            field(b'V', notice.severity.name());
            field(b'C', &notice.sqlstate);
            field(b'M', &notice.message);
            if let Some(detail) = &notice.detail {
                field(b'D', detail);
            }
            if let Some(hint) = &notice.hint {
                field(b'H', hint);
            }
            if let Some(position) = notice.position {
                field(b'P', &position.to_string());
            }
            b.push(0);
        });
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let end = memchr::memchr(0, text.as_bytes()).unwrap_or(text.len());
    bytes.extend(&text.as_bytes()[..end]);
    bytes.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_bytes() {
        let mut writer = Writer::default();
        writer.ready(TransactionStatus::Failed);
        writer.command_complete("SELECT\0 1");
        let row = writer.data_row(3, |column, bytes| match column {
            0 => {
                bytes.extend(b"ab");
                Ok(true)
            }
            1 => Ok::<bool, ()>(false),
            _ => Ok(true),
        });
        assert_eq!(row, Ok(()));
        let whole = writer.bytes().to_vec();
        assert_eq!(writer.data_row(1, |_, _| Err("no")), Err("no"));
        assert_eq!(writer.bytes(), whole, "a row that fails leaves nothing");
        assert_eq!(
            whole,
            b"Z\0\0\0\x05EC\0\0\0\x0bSELECT\0D\0\0\0\x14\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0"
        );
    }

    #[test]
    fn errors_tell_code_hint_and_place() {
        let mut writer = Writer::default();
        writer.notice(&Notice {
            severity: Severity::Error,
            sqlstate: "42P01".to_owned(),
            message: "m".to_owned(),
            detail: None,
            hint: Some("h".to_owned()),
            position: Some(15),
        });
        assert_eq!(
            writer.bytes(),
            b"E\0\0\0\x24SERROR\0VERROR\0C42P01\0Mm\0Hh\0P15\0\0"
        );
    }
}
