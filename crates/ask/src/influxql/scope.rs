//! Fields, tags and range that a query passes to its subqueries.

use super::plan::Every;
use headwater::ClosedRange;
use jiff::tz::TimeZone;

/// The part of an outer query that restricts a subquery.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// The range of rows that it reads.
    pub(super) range: ClosedRange,
    pub(super) has_start: bool,
    pub(super) has_end: bool,
    /// Tags by which it groups rows.
    pub(super) keys: Vec<String>,
    pub(super) every: Option<Every>,
    pub(super) descending: bool,
    pub(super) zone: Option<TimeZone>,
    /// The only measurement that it currently reads.
    pub(super) only: Option<String>,
}
