//! PostgreSQL's protocol, version 3: messages of clients in, messages of servers out, and where
//! statements end.
//!
//! Purpose: framing, and the data of `COPY`. The meaning of a statement, types of values and
//! sockets are the server's.
//!
//! Invariants: a message is read only when it is complete, and only from its own bytes; every count
//! in a message is checked against its remaining bytes. No input makes a reader panic, or use more
//! memory than a few times the message's length. Failure: [`Malformed`] describes the fault; the
//! connection is unusable after it.
//!
//! Source: the chapter "Frontend/Backend Protocol" of PostgreSQL's documentation.

mod backend;
mod copy;
mod copy_binary;
mod frontend;
mod statements;

pub use backend::{Column, Format, Notice, Severity, TransactionStatus, Writer};
pub use copy::{CopyError, CopyFault, CopyFormat, CopyRow, CopyRows};
pub use copy_binary::{
    BinaryError, BinaryFault, BinaryRow, BinaryRows, put_binary_end, put_binary_header,
    put_binary_row,
};
pub use frontend::{DescribeTarget, First, Message, first, message};
pub use statements::{StatementText, split, words};

/// Bytes that are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The length is invalid, or exceeds the limit.
    #[error("the message has {length} bytes; at most {most} are allowed here")]
    Length {
        /// The length in the message.
        length: u32,
        /// The longest that is allowed.
        most: u32,
    },
    /// The message ends within one of its parts, or continues after them.
    #[error("message of type {0}: the content does not match the length")]
    Parts(char),
    /// A text that is not UTF-8.
    #[error("message of type {0}: the text is not valid UTF-8")]
    Text(char),
    /// No message begins with this byte.
    #[error("unknown message type {0}")]
    Unknown(u8),
    /// The first message requests another protocol.
    #[error("unsupported protocol version {0}.{1}; this server supports 3.0")]
    Version(u16, u16),
}
