//! Iterator over the beginnings of buckets.

use arrow::datatypes::IntervalMonthDayNano;
use headwater_wire::clocks::{Begins, Intervals, Width};
use headwater_wire::zone::Zone;

const DAY_NS: i64 = 86_400_000_000_000;

/// Step from a bucket to the next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// By a fixed number of nanoseconds.
    Fixed(i64),
    /// By months, or on the clocks of a zone.
    Clocks(Intervals),
}

/// The beginnings of buckets before an end.
#[derive(Clone, Debug)]
pub(super) enum Steps {
    Fixed {
        width_ns: i64,
        next_ns: Option<i64>,
        end_ns: i64,
    },
    Clocks(Box<Begins>),
}

impl Step {
    pub(super) fn new(width: IntervalMonthDayNano, zone: Option<Zone>) -> Option<Step> {
        let days = i64::from(width.days).checked_mul(DAY_NS)?;
        let ns = days.checked_add(width.nanoseconds)?;
        match (width.months, zone) {
            (0, None) => (ns > 0).then_some(Step::Fixed(ns)),
            (0, Some(zone)) => Intervals::new(zone, Width::Fixed(ns), 0).map(Step::Clocks),
            (months, zone) if ns == 0 => {
                let zone = zone.unwrap_or_default();
                Intervals::new(zone, Width::Months(months), 0).map(Step::Clocks)
            }
            _ => None,
        }
    }
}

impl Steps {
    pub(super) fn new(step: &Step, begin_ns: i64, end_ns: i64) -> Steps {
        match step {
            Step::Fixed(width_ns) => Steps::Fixed {
                width_ns: *width_ns,
                next_ns: Some(begin_ns),
                end_ns,
            },
            Step::Clocks(intervals) => Steps::Clocks(Box::new(intervals.begins(begin_ns, end_ns))),
        }
    }
}

impl Iterator for Steps {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        match self {
            Steps::Fixed {
                width_ns,
                next_ns,
                end_ns,
            } => {
                let found = (*next_ns).filter(|ns| ns < end_ns)?;
                *next_ns = found.checked_add(*width_ns);
                Some(found)
            }
            Steps::Clocks(begins) => begins.next(),
        }
    }
}
