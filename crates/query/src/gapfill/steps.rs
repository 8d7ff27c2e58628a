//! The beginnings of buckets, one after the other.

use arrow::array::timezone::Tz;
use arrow::datatypes::{IntervalMonthDayNano, TimestampNanosecondType};
use headwater_wire::zone::Zone;

const DAY_NS: i64 = 86_400_000_000_000;

/// How one goes from one bucket to the next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// By a fixed number of nanoseconds.
    Fixed(i64),
    /// By months, or on the clocks of a zone.
    Clocks {
        width: IntervalMonthDayNano,
        zone: Option<Zone>,
        utc: Tz,
    },
}

/// The beginnings of buckets before an end.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    step: Step,
    /// The next one; as clocks show it where the step goes by them.
    shown_ns: Option<i64>,
    end_ns: i64,
}

impl Step {
    pub(super) fn new(width: IntervalMonthDayNano, zone: Option<Zone>) -> Option<Step> {
        if width.months == 0 && zone.is_none() {
            let days = i64::from(width.days).checked_mul(DAY_NS)?;
            let ns = days.checked_add(width.nanoseconds)?;
            return (ns > 0).then_some(Step::Fixed(ns));
        }
        let utc = "+00:00".parse().ok()?;
        let positive = width.months >= 0 && width.days >= 0 && width.nanoseconds >= 0;
        let some = width.months > 0 || width.days > 0 || width.nanoseconds > 0;
        (positive && some).then_some(Step::Clocks { width, zone, utc })
    }

    fn shown(&self, ns: i64) -> Option<i64> {
        match self {
            Step::Clocks {
                zone: Some(zone), ..
            } => zone.wall_ns(ns),
            _ => Some(ns),
        }
    }

    fn instant(&self, shown_ns: i64) -> Option<i64> {
        match self {
            Step::Clocks {
                zone: Some(zone), ..
            } => zone.instant_ns(shown_ns),
            _ => Some(shown_ns),
        }
    }

    fn next(&self, shown_ns: i64) -> Option<i64> {
        match self {
            Step::Fixed(ns) => shown_ns.checked_add(*ns),
            Step::Clocks { width, utc, .. } => {
                TimestampNanosecondType::add_month_day_nano(shown_ns, *width, *utc)
            }
        }
    }
}

impl Steps {
    pub(super) fn new(step: Step, begin_ns: i64, end_ns: i64) -> Steps {
        Steps {
            shown_ns: step.shown(begin_ns),
            step,
            end_ns,
        }
    }
}

impl Iterator for Steps {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let shown = self.shown_ns?;
        let found = self.step.instant(shown).filter(|ns| *ns < self.end_ns)?;
        self.shown_ns = self.step.next(shown);
        Some(found)
    }
}
