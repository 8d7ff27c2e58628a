//! Targets: the bound, the measured value, and whether it was met.

use crate::table;
use serde::Serialize;

/// Bound of a measured value.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn is_met(self, measured: f64) -> bool {
        match self {
            Bound::AtLeast(wanted) => measured >= wanted,
            Bound::AtMost(wanted) => measured <= wanted,
        }
    }
}

/// Syncs up to this median, in microseconds, make a target count that depends on fast ones.
const FAST_SYNC_US: f64 = 300.0;

#[derive(Debug, Serialize)]
struct MeasuredTarget {
    what: String,
    bound: Bound,
    unit: &'static str,
    measured: f64,
    met: bool,
    /// The median of syncs in the same run, for targets that only apply if syncs are fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    sync_median_us: Option<f64>,
}

/// The targets of an experiment.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Targets(Vec<MeasuredTarget>);

impl Targets {
    /// Adds a target. `unit` follows the numbers, with a leading space if needed.
    pub(crate) fn add(
        &mut self,
        what: impl Into<String>,
        bound: Bound,
        unit: &'static str,
        measured: f64,
    ) {
        self.push(what.into(), bound, unit, measured, None);
    }

    /// Adds a target that counts only if a sync takes at most 0.3 ms.
    pub(crate) fn add_if_fast_sync(
        &mut self,
        what: impl Into<String>,
        bound: Bound,
        unit: &'static str,
        measured: f64,
        sync_median_us: f64,
    ) {
        self.push(what.into(), bound, unit, measured, Some(sync_median_us));
    }

    fn push(
        &mut self,
        what: String,
        bound: Bound,
        unit: &'static str,
        measured: f64,
        sync_median_us: Option<f64>,
    ) {
        self.0.push(MeasuredTarget {
            what,
            bound,
            unit,
            measured,
            met: bound.is_met(measured),
            sync_median_us,
        });
    }

    /// Prints target, measured value and verdict.
    pub(crate) fn print(&self) {
        if self.0.is_empty() {
            return;
        }
        println!();
        let rows: Vec<Vec<String>> = self.0.iter().map(MeasuredTarget::row).collect();
        table::print(&["target", "wanted", "measured", "verdict"], &rows);
    }
}

impl MeasuredTarget {
    fn row(&self) -> Vec<String> {
        let wanted = match self.bound {
            Bound::AtLeast(x) => format!("≥ {x}{}", self.unit),
            Bound::AtMost(x) => format!("≤ {x}{}", self.unit),
        };
        let verdict = match (self.met, self.sync_median_us) {
            (true, _) => "met".to_owned(),
            (false, Some(sync)) if sync > FAST_SYNC_US => {
                format!("not held to it: a sync takes {sync:.0} µs")
            }
            (false, _) => "missed".to_owned(),
        };
        vec![
            self.what.clone(),
            wanted,
            format!("{}{}", three_digits(self.measured), self.unit),
            verdict,
        ]
    }
}

/// Three digits that count.
pub(crate) fn three_digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !size.is_finite() {
        return format!("{value}");
    }
    let places = (2 - size.log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.places$}")
}
