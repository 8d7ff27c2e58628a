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
pub use frontend::{First, Message, Target, first, message};
pub use statements::{StatementText, split, words};

/// Bytes that are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The length is invalid, or exceeds the limit.
    #[error("a message of {length} bytes, of which {most} are the most here")]
    Length {
        /// The length in the message.
        length: u32,
        /// The longest that is allowed.
        most: u32,
    },
    /// The message ends within one of its parts, or continues after them.
    #[error("a message of type {0} whose parts do not fit its length")]
    Parts(char),
    /// A text that is not UTF-8.
    #[error("a message of type {0} whose text is not UTF-8")]
    Text(char),
    /// No message begins with this byte.
    #[error("no message begins with byte {0}")]
    Unknown(u8),
    /// The first message requests another protocol.
    #[error("protocol version {0}.{1} is not spoken here; this is version 3.0")]
    Version(u16, u16),
}
