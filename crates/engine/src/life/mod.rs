//! The end of data: deletes, retention, aging, expiry, and what of it waits to be carried out.
//!
//! Invariants: a delete acts on smaller sequences only; no row is accepted before a horizon (retention cut, aging), which goes
//! back when the clock or a setting puts it there; whatever ends data is in the log before a reader or a file knows of it.
//! Concurrency: tombstones stand in every shard's state, under its lock, before their record is published, and leave it in
//! the instant in which the shard's partitions and memory are rid of the events.
//! Failure: carrying out is a step like any other; until it has succeeded readers leave the events out themselves.

mod clock;
mod end;
mod expiry;
mod horizon;
mod tombstone;

pub(crate) use clock::{ClockGuard, Moment};
pub use end::DeleteSpec;
pub(crate) use expiry::{
    ExpirySpan, add_expiry, expiry_of, first_expiry, owner_of, with_expiries, without_companions,
    without_expired,
};
pub(crate) use tombstone::{DeleteRecord, Tombstone, holds, overlapping, swallows, union};
