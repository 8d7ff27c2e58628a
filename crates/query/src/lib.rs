//! SQL over snapshots of a database.

pub mod output;
