//! Comma-separated values with a header line.
//!
//! Invariants: every good row is stored; a refused row changes nothing, and an open quote costs
//! only its own line; line numbers are the same as in a text editor. Memory is bounded by the
//! batch, the rows inspected for types and the longest record. Format: docs/format/csv.md.

mod error;
mod infer;
mod layout;
mod options;
mod parser;
mod records;
mod streams;
mod time;
mod write;

pub use error::CsvError;
pub use options::CsvOptions;
pub use parser::CsvParser;
pub use time::{TimeFormat, TimeUnit};
pub use write::{CsvWriter, CsvWriterOptions};
