//! Axes: round numbers for values, round instants for times.

use headwater::Timestamp;
use jiff::ToSpan;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;
/// Characters between two labels of the time axis, at least.
const LABEL_DISTANCE: i128 = 14;

/// The axis of the values.
#[derive(Debug)]
pub(crate) struct ValueAxis {
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl ValueAxis {
    /// An axis from about `low` to about `high`, for this many rows of characters.
    pub(crate) fn new(low: f64, high: f64, height: usize) -> ValueAxis {
        let (low, high) = if low.is_finite() && high.is_finite() {
            (low, high)
        } else {
            (0.0, 1.0)
        };
        let (low, high) = if low < high {
            (low, high)
        } else {
            let margin = (low.abs() * 0.01).max(1e-9);
            (low - margin, high + margin)
        };
        let step = round_step((high / 2.0 - low / 2.0) * 2.0 / (height as f64 / 4.0).max(1.5));
        let places = if step.is_finite() && step > 0.0 {
            (-step.log10().floor()).clamp(0.0, 12.0) as usize
        } else {
            0
        };
        let mut ticks = Vec::new();
        let first = (low / step).ceil();
        for index in 0..=(height * 2) {
            let value = (first + index as f64) * step;
            if !(value.is_finite() && value <= high) {
                break;
            }
            ticks.push((value, label_of(value, places)));
        }
        ValueAxis { low, high, ticks }
    }

    pub(crate) fn label_width(&self) -> usize {
        self.ticks
            .iter()
            .map(|(_, label)| label.chars().count())
            .max()
            .unwrap_or(1)
    }

    /// The row of dots of a value, counted from the top.
    pub(super) fn dot_of(&self, value: f64, dots: usize) -> usize {
        let last = dots.saturating_sub(1) as f64;
        // Halves, so that the width of the whole range of f64 does not overflow.
        let share = (self.high / 2.0 - value / 2.0) / (self.high / 2.0 - self.low / 2.0);
        (share * last).round().clamp(0.0, last) as usize
    }

    /// The label of a row of characters, if a tick falls into it.
    pub(super) fn label_of_row(&self, row: usize, height: usize) -> Option<&str> {
        let dots = height * super::DOTS_HIGH;
        self.ticks
            .iter()
            .find(|(value, _)| self.dot_of(*value, dots) / super::DOTS_HIGH == row)
            .map(|(_, label)| label.as_str())
    }
}

/// 1, 2 or 5 times a power of ten, not below `wanted`.
fn round_step(wanted: f64) -> f64 {
    let power = 10f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= wanted * 0.999_999)
        .filter(|step| step.is_finite() && *step > 0.0)
        .unwrap_or(wanted)
}

fn label_of(value: f64, places: usize) -> String {
    let value = if value == 0.0 { 0.0 } else { value };
    if value != 0.0 && !(1e-9..1e9).contains(&value.abs()) {
        format!("{value:.1e}")
    } else {
        format!("{value:.places$}")
    }
}

/// Columns and labels of round instants, UTC, for `width` characters of `character_ns` each.
pub(super) fn time_ticks(from_ns: i64, character_ns: i128, width: usize) -> Vec<(usize, String)> {
    let from = i128::from(from_ns);
    let until = from + character_ns * width as i128;
    let least = character_ns * LABEL_DISTANCE;
    let column_of = |at: i128| usize::try_from((at - from) / character_ns.max(1)).ok();
    let tick = |at: i128, format: &str| {
        let column = column_of(at)?;
        let at = jiff::Timestamp::from_nanosecond(at).ok()?;
        Some((column, at.strftime(format).to_string()))
    };
    let mut ticks = Vec::new();
    if least > 20 * DAY {
        let months = i32::try_from((least / (30 * DAY) + 1).min(24_000)).unwrap_or(24_000);
        let months = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1_200]
            .into_iter()
            .find(|m| *m >= months)
            .unwrap_or(2_400);
        let format = if months >= 12 { "%Y" } else { "%Y-%m" };
        let mut at = month_before(from_ns, months);
        while let Some(month) = at {
            let Some(nanos) = nanos_of(month).filter(|n| *n < until) else {
                break;
            };
            if nanos >= from {
                ticks.extend(tick(nanos, format));
            }
            at = month.checked_add(months.months()).ok();
        }
        return ticks;
    }
    let steps: [i128; 17] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    ];
    let days: [i128; 5] = [1, 2, 5, 10, 20];
    let step = fractions_of_a_second()
        .chain(steps.into_iter().map(|s| s * SECOND))
        .chain(days.into_iter().map(|d| d * DAY))
        .find(|step| *step >= least)
        .unwrap_or(20 * DAY);
    let mut at = from.div_euclid(step) * step;
    while at < until {
        if at >= from {
            let is_midnight = at.rem_euclid(DAY) == 0;
            let format = if step >= DAY || is_midnight {
                "%Y-%m-%d"
            } else if step >= 60 * SECOND {
                "%H:%M"
            } else if step >= SECOND {
                "%H:%M:%S"
            } else {
                "%H:%M:%S%.f"
            };
            ticks.extend(tick(at, format));
        }
        at += step;
    }
    ticks
}

/// 1, 2 and 5 times the powers of ten below a second.
fn fractions_of_a_second() -> impl Iterator<Item = i128> {
    (0..9).flat_map(|power| [1, 2, 5].map(|factor| factor * 10i128.pow(power)))
}

/// The start of the month, or of the group of months counted from year 0, that an instant lies in.
fn month_before(at_ns: i64, months: i32) -> Option<DateTime> {
    let at = jiff::Timestamp::from_nanosecond(i128::from(Timestamp::from_nanos(at_ns).as_nanos()))
        .ok()?;
    let at = at.to_zoned(TimeZone::UTC);
    let number = i32::from(at.year()) * 12 + i32::from(at.month()) - 1;
    let number = number.div_euclid(months) * months;
    let (year, month) = (number.div_euclid(12), number.rem_euclid(12) + 1);
    DateTime::new(
        i16::try_from(year).ok()?,
        i8::try_from(month).ok()?,
        1,
        0,
        0,
        0,
        0,
    )
    .ok()
}

fn nanos_of(at: DateTime) -> Option<i128> {
    Some(at.to_zoned(TimeZone::UTC).ok()?.timestamp().as_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_ticks_are_round() {
        let axis = ValueAxis::new(10.94, 100.04, 20);
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["20", "40", "60", "80", "100"]);
        let axis = ValueAxis::new(0.0, 0.013, 12);
        assert_eq!(axis.ticks[1].1, "0.005");
    }

    #[test]
    fn time_ticks_fit_the_zoom() {
        let year = time_ticks(1_357_016_400_000_000_000, 365 * DAY / 80, 80);
        assert_eq!(year[0], (19, "2013-04".to_owned()));
        let day = time_ticks(1_372_896_000_000_000_000, DAY / 80, 80);
        assert_eq!(day[0].1, "2013-07-04");
        assert_eq!(day[1].1, "06:00");
        let moment = time_ticks(0, 1_000, 80);
        assert_eq!(moment[1].1, "00:00:00.00002");
        let all = time_ticks(i64::MIN, i128::from(u64::MAX) / 80, 80);
        assert!(!all.is_empty() && all.len() < 20);
    }
}
