//! Laws of delays: the share of events with a delay above a value, and their mean excess.
//!
//! Invariants: `survival` decreases from at most 1 to 0; `tail` is its integral from there to
//! infinity, hence convex and decreasing; below 0 the survival is 1. The unit is that of the law's
//! input: the model needs events, the paper's formulas need the unit of the generation interval.
//! Concurrency: laws are values. Failure: none; not-a-number in returns not-a-number.

/// A distribution of delays, with the functions that predictions need.
pub trait DelayLaw {
    /// The share of events with a delay above `x`: 1 − F(x).
    fn survival(&self, x: f64) -> f64;

    /// The integral of the survival from `x` to infinity: the mean excess of delays over `x`. For
    /// negative `x` it grows by −x.
    fn tail(&self, x: f64) -> f64;

    /// The extremal index at depth `x`: 1 where delays above `x` occur alone, and 1/k where they
    /// occur k at a time. The deepest of many events is then as deep as that of fewer independent
    /// ones.
    fn extremal_index(&self, _x: f64) -> f64 {
        1.0
    }

    /// The share of events with a delay of at most `x`: F(x).
    fn distribution(&self, x: f64) -> f64 {
        1.0 - self.survival(x)
    }

    /// −ln F(x), exact also where F is nearly 1.
    fn minus_log_distribution(&self, x: f64) -> f64 {
        let survival = self.survival(x);
        if survival >= 1.0 {
            f64::INFINITY
        } else {
            -(-survival).ln_1p()
        }
    }
}

/// Delays whose logarithm is normal: the paper's synthetic data.
///
/// ```
/// use headwater_late::{DelayLaw, Lognormal};
/// // Half of all delays are below e^mu.
/// let law = Lognormal::new(4.0, 1.5);
/// assert!((law.survival(4.0f64.exp()) - 0.5).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lognormal {
    mu: f64,
    sigma: f64,
}

impl Lognormal {
    /// The law of e^(mu + sigma·N), N standard normal; `sigma` above 0.
    #[must_use]
    pub fn new(mu: f64, sigma: f64) -> Lognormal {
        Lognormal { mu, sigma }
    }

    /// The same delays in units of `unit`: for the model, the generation interval.
    #[must_use]
    pub fn in_units_of(self, unit: f64) -> Lognormal {
        Lognormal {
            mu: self.mu - unit.ln(),
            sigma: self.sigma,
        }
    }
}

impl DelayLaw for Lognormal {
    fn survival(&self, x: f64) -> f64 {
        if x <= 0.0 {
            return 1.0;
        }
        normal_survival((x.ln() - self.mu) / self.sigma)
    }

    fn tail(&self, x: f64) -> f64 {
        let mean = (self.mu + self.sigma * self.sigma / 2.0).exp();
        if x <= 0.0 {
            return mean - x;
        }
        let z = (x.ln() - self.mu) / self.sigma;
        (mean * normal_survival(z - self.sigma) - x * normal_survival(z)).max(0.0)
    }
}

/// The share of a standard normal above `z`.
fn normal_survival(z: f64) -> f64 {
    0.5 * erfc(z / std::f64::consts::SQRT_2)
}

/// The complementary error function.
#[must_use]
pub fn erfc(x: f64) -> f64 {
    libm::erfc(x)
}

/// The law of a sample of delays.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
    /// Sum of the delays from this one on.
    suffix: Vec<f64>,
}

impl Sample {
    /// The law of these delays; negative ones count as 0. `None` without a finite one.
    #[must_use]
    pub fn new(delays: impl IntoIterator<Item = f64>) -> Option<Sample> {
        let mut sorted: Vec<f64> = delays
            .into_iter()
            .filter(|d| d.is_finite())
            .map(|d| d.max(0.0))
            .collect();
        if sorted.is_empty() {
            return None;
        }
        sorted.sort_unstable_by(f64::total_cmp);
        let mut sum = 0.0;
        let mut suffix: Vec<f64> = sorted
            .iter()
            .rev()
            .map(|d| {
                sum += d;
                sum
            })
            .collect();
        suffix.reverse();
        Some(Sample { sorted, suffix })
    }

    /// The delay that a share `q` of the sample does not exceed; `q` from 0 to 1.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let at = (q.clamp(0.0, 1.0) * last as f64).round() as usize;
        self.sorted.get(at).copied().unwrap_or(0.0)
    }

    /// The same sample with every delay in units of `unit`, and `offset` (in the old unit) less.
    #[must_use]
    pub fn in_units_of(&self, unit: f64, offset: f64) -> Option<Sample> {
        Sample::new(self.sorted.iter().map(|d| (d - offset) / unit))
    }
}

impl DelayLaw for Sample {
    fn survival(&self, x: f64) -> f64 {
        let above = self.sorted.len() - self.sorted.partition_point(|d| *d <= x);
        if x < 0.0 {
            return 1.0;
        }
        above as f64 / self.sorted.len() as f64
    }

    fn tail(&self, x: f64) -> f64 {
        let count = self.sorted.len() as f64;
        if x < 0.0 {
            return self.suffix.first().copied().unwrap_or(0.0) / count - x;
        }
        let from = self.sorted.partition_point(|d| *d <= x);
        let Some(sum) = self.suffix.get(from) else {
            return 0.0;
        };
        ((sum - (self.sorted.len() - from) as f64 * x) / count).max(0.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn erfc_is_what_tables_say() {
        // Abramowitz and Stegun, table 7.1, and the asymptotic form.
        for (x, expected) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (1.999_999, 0.004_677_755_648_074),
            (2.0, 0.004_677_734_981_047_266),
            (3.0, 2.209_049_699_858_544e-5),
            (5.0, 1.537_459_794_428_035e-12),
            (-1.0, 1.842_700_792_949_715),
        ] {
            let found = erfc(x);
            assert!(
                (found - expected).abs() <= 1e-10 * expected,
                "erfc({x}) = {found}, expected {expected}"
            );
        }
    }

    #[test]
    fn a_tail_is_the_integral_of_the_survival() {
        let sample = Sample::new((0..1000).map(|i| f64::from(i % 37) * 1.5)).unwrap();
        let lognormal = Lognormal::new(1.0, 0.8);
        let laws: [&dyn DelayLaw; 2] = [&sample, &lognormal];
        for law in laws {
            for x in [-2.0, 0.0, 0.3, 4.0, 30.0] {
                let step = 1e-3;
                let integral: f64 = (0..200_000)
                    .map(|i| law.survival(x + (f64::from(i) + 0.5) * step) * step)
                    .sum();
                let tail = law.tail(x);
                assert!(
                    (tail - integral).abs() < 2e-3 * (1.0 + tail),
                    "{x}: {tail}, integral {integral}"
                );
            }
        }
    }

    #[test]
    fn a_change_of_unit_changes_nothing_else() {
        let law = Lognormal::new(5.0, 2.0);
        let scaled = law.in_units_of(50.0);
        assert!((law.survival(500.0) - scaled.survival(10.0)).abs() < 1e-12);
        assert!((law.tail(500.0) - 50.0 * scaled.tail(10.0)).abs() < 1e-6);
    }
}
