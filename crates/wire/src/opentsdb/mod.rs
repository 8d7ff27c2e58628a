//! Requests of OpenTSDB's clients: points, as JSON, and queries, as JSON or in an address.
//!
//! A metric is a table, its tags are tags, and its value is the field [`VALUE`].
//!
//! Invariants: no bytes make a reader panic, or store more than a bounded number of parts of a
//! query; a bad point is data and does not affect other points. Failure: a body that is not a list
//! of points, or not a query, is an error that states the expected and the found text. Page:
//! docs/http/opentsdb.md.

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

/// Name of the field for the value of a point.
pub const VALUE: &str = "value";
