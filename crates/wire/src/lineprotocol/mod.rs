//! InfluxDB line protocol: `table,tag=value field=1.5,other=2i 1356998400000000000`.
//!
//! Invariants: every good line is stored, regardless of the lines around it; a refused line changes
//! nothing; the parser caches only names, so that the same bytes always produce the same rows,
//! regardless of previous input. Format, with all deviations: docs/format/lineprotocol.md.

mod faults;
mod options;
mod parser;
mod scan;
mod stream;
mod streams;
mod value;
mod write;

pub(crate) use faults::line_too_long;
pub use options::{ParserOptions, Precision};
pub use parser::LineParser;
pub(crate) use parser::next_instant;
pub use stream::LineStream;
pub(crate) use streams::{push_canonical as push_stream, push_field};
pub use write::{LineWriter, SkippedValues, UnwritableName};
