//! What is asked of a device, and what it gives.
//!
//! Invariants: offsets and lengths are in bytes of the device.
//! Concurrency and failure: plain values.

use headwater_io::queue::{Direction, Purpose, Request};

use crate::numbers::long;

/// What is asked of a device. Offsets and lengths are in bytes, and need not be aligned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Bytes, please.
    Read {
        /// From where on.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// These bytes go there.
    Write {
        /// From where on.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// It is answered when it is durable.
        fua: bool,
    },
    /// The range reads as zeros from now on.
    Zero {
        /// From where on.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// The range shall keep its space, so that later writes find some.
        keeps_space: bool,
        /// It is answered when it is durable.
        fua: bool,
    },
    /// Nobody needs the range any more: whole blocks in it read as zeros, the others stay.
    Trim {
        /// From where on.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// It is answered when it is durable.
        fua: bool,
    },
    /// Everything that was answered before is to be durable.
    Flush,
    /// Which parts of a range were written?
    Status {
        /// From where on.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
}

/// A part of a range that was written, or was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// How many bytes.
    pub length: u64,
    /// False = it reads as zeros, and takes no space.
    pub is_written: bool,
}

/// What a command gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It was done.
    Done,
    /// What was read.
    Data(Vec<u8>),
    /// The parts of the range, in its order.
    Extents(Vec<Extent>),
}

impl Command {
    /// Offset and length of what it touches.
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

    /// How queue sets see it. Parts for several sets go to their owners, so that they are carried
    /// out side by side.
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
