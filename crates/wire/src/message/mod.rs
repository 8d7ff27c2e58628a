//! Messages of a broker as rows, made of a topic and a payload.
//!
//! Purpose: [`MessageRules`] define the levels of a topic that are table, tags and field
//! ([`TopicPattern`]) and the form of the payload; [`MessageParser`] turns many messages into one
//! batch, and [`JsonLines`] the lines of a file.
//!
//! Invariants: a message is stored or refused by itself, regardless of other messages; several rows
//! in one JSON array are refused one by one, but only if the whole payload is JSON; numbers are
//! read exactly, and an integer that an `f64` cannot represent is refused rather than rounded. The
//! parser caches only names. Failure: a bad message is data: it is returned as a
//! [`crate::RefusedLine`] whose line is the number of the message. Format: docs/mqtt.md.

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
