//! A block device in files, and a server that hands it to others by the NBD protocol.
//!
//! Purpose: databases and file systems of others can use queue sets and any medium that implements
//! [`headwater_io::Files`]. Invariants: writes acknowledged by a flush, or written with FUA,
//! survive a power cut, whichever connection wrote them. After a cut every block of 4 KiB has the
//! content of one write, never a mixture of two. See docs/block-device.md for its use and
//! docs/format/device.md for its bytes. Concurrency: [`Device`] and [`Server`] are shared; a queue
//! set carries out one request at a time for its stripes. Failure: [`BlockError`] at start and end,
//! errors of the protocol for clients in between. After a failed sync a set refuses writes until it
//! is opened again.

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
