//! Copies of a cloud node in a bucket: committed copies survive the loss of the node, and another
//! node continues from them.
//!
//! A group of copies has a *head*, the only object that is ever replaced, by conditional puts. The
//! head names *packs*, which never change and contain the new ranges of many copies, and the node
//! with the lease of the group. A node that commits uploads packs and then puts the head; of
//! several nodes one wins.
//!
//! Invariants: every pack that a head names is in the bucket. A node that lost its lease cannot
//! commit. A read returns the bytes that were put, or an error. This crate has no async runtime.
//! Format: docs/format/bucket.md.
#![allow(
    clippy::disallowed_methods,
    reason = "objects in a directory are files of no database, and their locks are those of the system"
)]

mod address;
mod collect;
mod contents;
mod counts;
mod directory;
mod error;
mod head;
mod holder;
mod keys;
mod memory;
mod pack;
#[cfg(feature = "s3")]
mod s3;
mod store;

pub use address::{Address, open_store};
pub use collect::{Collected, Collector};
pub use contents::{Contents, RangeReceiver, Restored, read_group, read_head, without_ranges};
pub use counts::{Counted, DayCounts, KindCounts};
pub use directory::Directory;
pub use error::{BucketError, BucketErrorKind};
pub use head::{CopyEntry, Head, Lease, PackEntry};
/// Environment that supplies clocks and random numbers.
pub use headwater_io::Env;
pub use headwater_types::Now;
pub use holder::{Change, Committed, Holder, Member};
pub use keys::{head_key, node_of, pack_key, pack_of_key, packs_prefix};
pub use memory::{Careless, Faults, Faulty, Memory};
pub use pack::{Addition, IndexEntry, Pack, PackIndex, PackLocation, Range};
#[cfg(feature = "s3")]
pub use s3::{Credentials, S3, S3Location};
pub use store::{
    Answer, Etag, Listed, Object, ObjectStore, Page, Put, Request, StoreFailure, carry_out,
};
