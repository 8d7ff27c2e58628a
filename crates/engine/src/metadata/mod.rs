//! The metadata: the catalog of tables and streams, the tables in redb, producers, the ledger of
//! segments, and the locks of the process that owns them.
//!
//! Invariant: metadata name a file only after it is durable (law 4).

pub(crate) mod catalog;
pub(crate) mod clock;
pub(crate) mod ledger;
pub(crate) mod owner;
pub(crate) mod pending_repairs;
pub(crate) mod producers;
pub(crate) mod removed_rows;
pub(crate) mod tables;

pub use tables::LostRows;
