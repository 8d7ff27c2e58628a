//! Commands of a device, and their answers.
//!
//! Invariants: offsets and lengths are in bytes of the device.
//! Concurrency and failure: plain values.

use headwater_io::queue::{Direction, Purpose, Request};

use crate::numbers::long;

/// A command to a device. Offsets and lengths are in bytes, and need not be aligned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Reads bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Writes bytes.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// True to answer when the bytes are durable.
        fua: bool,
    },
    /// Makes the range read as zeros.
    Zero {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// True to preserve the allocation of the range for later writes.
        keeps_space: bool,
        /// True to answer when the change is durable.
        fua: bool,
    },
    /// Discards the range: whole blocks in it read as zeros, partial ones are unchanged.
    Trim {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// True to answer when the change is durable.
        fua: bool,
    },
    /// Makes all commands durable that were answered before.
    Flush,
    /// Lists the written and the unwritten parts of a range.
    Status {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

/// A part of a range that was written, or was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Number of bytes.
    pub length: u64,
    /// False = the part reads as zeros, and has no space allocated.
    pub is_written: bool,
}

/// Answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Success, without data.
    Done,
    /// The bytes that were read.
    Data(Vec<u8>),
    /// The parts of the range, in its order.
    Extents(Vec<Extent>),
}

impl Command {
    /// Offset and length of the affected range.
    pub(super) fn range(&self) -> (u64, u64) {
        match self {
            Command::Read { offset, length }
            | Command::Zero { offset, length, .. }
            | Command::Trim { offset, length, .. }
            | Command::Status { offset, length } => (*offset, *length),
            Command::Write { offset, data, .. } => (*offset, long(data.len())),
            Command::Flush => (0, 0),
        }
    }

    /// True when it has to be durable before it is answered.
    pub(super) fn is_durable(&self) -> bool {
        match self {
            Command::Write { fua, .. } | Command::Zero { fua, .. } | Command::Trim { fua, .. } => {
                *fua
            }
            Command::Flush => true,
            Command::Read { .. } | Command::Status { .. } => false,
        }
    }

    /// The command as a request to queue sets. Parts for several sets go to their owners, so that
    /// they are carried out side by side.
    pub(super) fn request(&self, client: u64, sets: usize) -> Request {
        let (place, length) = self.range();
        let direction = match self {
            Command::Read { .. } | Command::Status { .. } => Direction::Read,
            _ => Direction::Write,
        };
        let is_short = sets <= 1 && !self.is_durable();
        Request {
            length: is_short.then_some(length),
            purpose: match self {
                Command::Flush => Purpose::Log,
                _ => Purpose::Caller,
            },
            ..Request::of_caller(client, place, length, direction)
        }
    }
}
