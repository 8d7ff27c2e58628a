//! Messages of a broker as rows: what a topic and a payload say together.
//!
//! Purpose: [`MessageRules`] say which levels of a topic are table, tags and field
//! ([`TopicPattern`]) and how the payload is written; [`MessageParser`] turns many messages into
//! one batch, and [`JsonLines`] the lines of a file.
//!
//! Invariants: a message is stored or refused by itself, whatever stands around it; several rows in
//! one JSON array are refused one by one, but only if all of the payload is JSON; numbers are read
//! exactly, and an integer that an `f64` could not hold is refused rather than rounded. The parser
//! remembers names only.
//! Failure: a bad message is data: it comes back as a [`crate::RefusedLine`] whose line is the
//! number of the message.
//! Format: docs/mqtt.md.

mod json;
mod json_lines;
mod parser;
mod rules;
mod topic;
mod value;

pub use json_lines::JsonLines;
pub use parser::MessageParser;
pub use rules::{MessageRules, PayloadForm, RulesError, TimeReading};
pub use topic::{PatternError, TopicPattern};
