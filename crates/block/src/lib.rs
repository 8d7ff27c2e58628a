//! A block device in files, and a server that hands it to others by the NBD protocol.
//!
//! Purpose: databases and file systems of others can sit on queue sets and on whatever medium
//! [`headwater_io::Files`] stands for.
//! Invariants: what a flush, or a write with FUA, acknowledged survives a power cut, whichever
//! connection wrote it. After a cut every block of 4 KiB is as one write left it, never a mixture
//! of two. See docs/block-device.md for its use and docs/format/device.md for its bytes.
//! Concurrency: [`Device`] and [`Server`] are shared; a queue set carries out one request at a time
//! for its stripes.
//! Failure: [`BlockError`] at start and end, errors of the protocol for clients in between. After a
//! failed sync a set takes no more writes until it is opened again.

mod device;
mod error;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod layout;
mod nbd;
mod numbers;
mod server;
mod socket;
mod store;

pub use device::{Answer, Command, Device, DeviceOptions, Extent};
pub use error::{BlockError, BlockErrorKind};
pub use headwater_io::queue::Order;
pub use server::{ServeOptions, Server};
pub use socket::Address;

/// The unit that is never torn, in bytes.
pub const BLOCK_BYTES: usize = 4096;
