//! Comparison and parts of lengths of time.
//!
//! The difference of two instants is a number of nanoseconds (a duration); an `INTERVAL` has
//! separate months, days and nanoseconds. The SQL library compares the two part by part, months
//! first, so that a duration of two years is shorter than `INTERVAL '1 day'`, and it extracts
//! hours, minutes or seconds of a duration in 32 bits.
//!
//! Invariants: lengths are compared by their total, a day being 24 hours; a month does not have a
//! fixed length, and is refused where one is needed. Parts of a duration are those of PostgreSQL:
//! whole days, and hours, minutes and seconds of the last one. Failure: a value without a fixed
//! length, or with a length above 292 years, is an error of the statement.

mod functions;
mod rule;

pub(crate) use rule::{Lengths, is_comparison};
