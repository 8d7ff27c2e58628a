//! Text and JSON forms of Headwater's data: line protocol, CSV, messages of brokers, remote write
//! of Prometheus, tile JSON, instants, durations and time zones. Bytes in, typed values or located
//! errors out.
//!
//! Invariant: no sockets, no files, no clocks and no threads; the only input and output are byte
//! slices and the [`std::io::Read`] or [`std::fmt::Write`] of the caller. Failure: a bad line is
//! data, is returned as a [`RefusedLine`] and does not affect other lines. No input makes a parser
//! panic or use more memory than its limits.

pub mod channel;
pub mod clocks;
mod column_builder;
pub mod csv;
pub mod durations;
mod escapes;
mod free_name;
pub mod influxql;
pub mod instant;
pub mod json;
pub mod lineprotocol;
pub mod message;
mod number;
pub mod opentsdb;
mod parsed_batch;
pub mod prometheus;
pub mod query;
mod refusal;
pub mod replay;
pub mod tile;
pub mod tiles;
pub mod zone;

pub use free_name::free_name;
pub use parsed_batch::ParsedBatch;
pub use refusal::{Fault, RefusalCode, RefusalCounts, RefusedLine, cut_line};
