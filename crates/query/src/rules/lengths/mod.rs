//! Lengths of time: comparing them, and taking them apart.
//!
//! The difference of two instants is a number of nanoseconds (a duration); an `INTERVAL` has
//! months, days and nanoseconds apart. The SQL library compares the two part by part, months first,
//! so that for it a duration of two years is shorter than `INTERVAL '1 day'`, and it extracts
//! hours, minutes or seconds of a duration in 32 bits.
//!
//! Invariants: lengths are compared by how long they are, a day being 24 hours; a month has no
//! length, and is refused where one is needed. Parts of a duration are those of PostgreSQL: whole
//! days, and hours, minutes and seconds of the last one.
//! Failure: what has no length, or one beyond 292 years, is an error of the statement.

mod functions;
mod rule;

pub(crate) use rule::{Lengths, is_comparison};
