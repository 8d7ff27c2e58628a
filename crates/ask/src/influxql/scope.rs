//! Fields, tags and range that a query hands on to its subqueries.

use super::plan::Every;
use headwater::ClosedRange;
use jiff::tz::TimeZone;

/// The part of an outer query that restricts a subquery.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// Which rows it looks at.
    pub(super) range: ClosedRange,
    pub(super) has_start: bool,
    pub(super) has_end: bool,
    /// Tags it names to put rows together by.
    pub(super) keys: Vec<String>,
    pub(super) every: Option<Every>,
    pub(super) descending: bool,
    pub(super) zone: Option<TimeZone>,
    /// The one measurement that it reads, for now.
    pub(super) only: Option<String>,
}
