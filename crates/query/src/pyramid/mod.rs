//! Answers grouped queries from the pyramid of aggregates if the result is exact.
//!
//! A query that groups one table by a width of time and by expressions over tags (or by one of
//! them, or not at all), computes counts, extremes, means, sums and deviations of fields, and has
//! conditions on time and tags only, needs only the rows at the edges of its bins: the engine has
//! the aggregates of the rest. [`rule`] finds such parts of a plan and replaces them by a table
//! whose rows [`exec`] computes, on the fold that all languages share (`headwater_ask::Fold`).
//!
//! Exactness: counts, extremes and sums of integers equal those of the rows. Means, sums and
//! deviations of floats have the tolerance of the pyramid (docs/sql.md): 1e-12 of the largest
//! magnitude for a mean.

mod exec;
mod finish;
mod members;
mod meter;
mod plan;
mod provider;
mod rule;
mod slices;

pub(crate) use exec::PyramidExec;
pub(crate) use rule::UsePyramid;
