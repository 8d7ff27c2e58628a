//! Requests of OpenTSDB's clients: points, as JSON, and queries, as JSON or in an address.
//!
//! A metric is a table, its tags are tags, and its value is the field [`VALUE`].
//!
//! Invariants: no bytes make a reader panic, or hold more than a bounded number of parts of a
//! query; a bad point is data and changes nothing but itself.
//! Failure: a body that is no list of points at all, or no query, is an error that says what was
//! expected and found.
//! Page: docs/http/opentsdb.md.

mod points;
mod question;
#[cfg(test)]
mod tests;
mod times;

pub use points::{PointsError, parse_points, points};
pub use question::{
    Aggregator, Downsample, DownsampleFill, FilterKind, Question, QuestionError, Rate, SubQuestion,
    TagFilter, parse_metric, parse_question,
};
pub use times::{TimeError, parse_time};

/// The field that holds the value of a point.
pub const VALUE: &str = "value";
