//! Configuration: options of opening, settings, the engine mode, the I/O back end.
//!
//! Invariant: plain data, checked when a database is opened or a setting changes; recovery does not
//! depend on any setting.

pub(crate) mod backend;
pub(crate) mod mode;
pub(crate) mod options;
pub mod settings;
pub(crate) mod tier_shares;
