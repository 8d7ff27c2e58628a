//! The model of the paper "Separation or Not", with its own names: zeta, r_c, r_s, g, N_arrive and
//! Algorithm 1.
//!
//! Its predictions are shown beside our own ([`super::model`]) for comparison with the paper;
//! decisions do not use them. Three things differ from the print. Equation 2 is evaluated in a form
//! with one integral of a tabulated function ([`PaperModel::zeta`]; [`PaperModel::zeta_as_printed`]
//! is the sum as printed in the paper). Equation 5 follows from the definitions of N_cur and N_bef,
//! which the printed one contradicts. And a separation with hardly any late event has a phase
//! without end instead of a division by zero. Invariants: delays are independent, events are
//! generated every `dt`; both in the same unit of time. In the paper a table has as many events as
//! the memory; its size has no effect (equation 3 counts events, not tables). Concurrency: a model
//! is a value. Failure: none; extreme laws give large or infinite numbers.
//!
//! Source: Y. Kang and others, "Separation or Not: On Handing Out-of-Order Time-Series Data in
//! Leveled LSM-Tree", ICDE 2022, sections II to IV.

use super::law::DelayLaw;

/// Nodes of the tables: half steps up to this position, then steps of [`RATIO`].
const FINE: f64 = 32.0;
const RATIO: f64 = 1.02;
/// A tail this light does not change a product.
const NEGLIGIBLE: f64 = 1e-10;
/// End of the tables, in generation intervals.
const FURTHEST: f64 = 1e12;
/// Maximum arrivals evaluated for g.
const ARRIVALS_MAX: u32 = 1 << 20;

/// The paper's formulas for one law of delays and one generation interval.
///
/// ```
/// use headwater_late::{Lognormal, PaperModel};
/// // The paper's data set M6, 512 events of memory.
/// let law = Lognormal::new(5.0, 2.0);
/// let model = PaperModel::new(&law, 50.0);
/// let advice = model.algorithm_1(512);
/// assert!(advice.n_seq.is_some() && advice.r_s < advice.r_c);
/// ```
pub struct PaperModel<'a> {
    law: &'a dyn DelayLaw,
    /// The generation interval, Δt in the paper.
    dt: f64,
    /// Positions in generation intervals, ascending.
    nodes: Vec<f64>,
    /// Λ at the nodes: the sum over j ≥ 1 of −ln F((v + j)·dt).
    lambda: Vec<f64>,
}

impl std::fmt::Debug for PaperModel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PaperModel")
            .field("dt", &self.dt)
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

/// Result of Algorithm 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Algorithm1 {
    /// The capacity of C_seq for a separation; `None` = pi_c, no separation.
    pub n_seq: Option<u32>,
    /// Predicted write amplification without separation.
    pub r_c: f64,
    /// The least predicted write amplification with separation.
    pub r_s: f64,
}

impl<'a> PaperModel<'a> {
    /// Tabulates the shared terms of the formulas. `dt` above 0, in the unit of the law's delays.
    #[must_use]
    pub fn new(law: &'a dyn DelayLaw, dt: f64) -> PaperModel<'a> {
        let mut nodes: Vec<f64> = Vec::new();
        let mut at = 0.0;
        while at < FURTHEST {
            nodes.push(at);
            at = if at < FINE { at + 0.5 } else { at * RATIO };
            if at > FINE && law.survival(at * dt) < NEGLIGIBLE {
                nodes.push(at);
                break;
            }
        }
        let hazard = |v: f64| law.minus_log_distribution(v * dt);
        let mut lambda = vec![0.0; nodes.len()];
        // From the far end: after the fine part the sum is the integral from half a step on, by
        // Gauss's rule with two nodes; in the fine part it is the sum itself.
        for index in (0..nodes.len().saturating_sub(1)).rev() {
            let (v, next) = (node(&nodes, index), node(&nodes, index + 1));
            let value = if v >= FINE {
                let (middle, half) = ((v + next) / 2.0 + 0.5, (next - v) / 2.0);
                let offset = half / 3.0f64.sqrt();
                node(&lambda, index + 1)
                    + half * (hazard(middle - offset) + hazard(middle + offset))
            } else {
                // The node two steps on is at v + 1; otherwise it is the first node after the fine
                // part, reached by half a step.
                let on = if v + 1.0 <= FINE {
                    node(&lambda, index + 2)
                } else {
                    let last = node(&lambda, index + 1);
                    (last - 0.5 * hazard(FINE + 0.75)).max(0.0)
                };
                on + hazard(v + 1.0)
            };
            if let Some(slot) = lambda.get_mut(index) {
                *slot = value;
            }
        }
        PaperModel {
            law,
            dt,
            nodes,
            lambda,
        }
    }

    fn lambda_at(&self, v: f64) -> f64 {
        let right = self.nodes.partition_point(|n| *n <= v);
        let (Some(b), Some(lb)) = (self.nodes.get(right), self.lambda.get(right)) else {
            return 0.0;
        };
        let (a, la) = (
            node(&self.nodes, right.saturating_sub(1)),
            node(&self.lambda, right.saturating_sub(1)),
        );
        if !la.is_finite() {
            return la;
        }
        let share = if *b > a { (v - a) / (b - a) } else { 0.0 };
        la + (lb - la) * share
    }

    /// ζ(n): expected number of subsequent points on disk when `n` points are in memory (equation
    /// 2).
    ///
    /// With T_m = m·Δt the sum over i turns the density of the delay into its distribution: ζ(n) =
    /// ∫ F((v + ½)Δt)·(1 − exp(Λ(v + n) − Λ(v))) dv over v ≥ 0, Λ(v) = Σ_{j ≥ 1} −ln F((v + j)Δt).
    #[must_use]
    pub fn zeta(&self, n: f64) -> f64 {
        let value = |v: f64, lambda: f64| {
            let exponent = lambda - self.lambda_at(v + n);
            let some = if exponent.is_nan() {
                1.0
            } else {
                -(-exponent).exp_m1()
            };
            self.law.distribution((v + 0.5) * self.dt) * some
        };
        let mut sum = 0.0;
        let mut before: Option<(f64, f64)> = None;
        for (v, lambda) in self.nodes.iter().zip(&self.lambda) {
            let now = value(*v, *lambda);
            if let Some((last, height)) = before {
                sum += (v - last) * (height + now) / 2.0;
            }
            before = Some((*v, now));
        }
        sum
    }

    /// ζ(n) as printed: the sum over `i` below `disk` of 1 − ∫ f(x)·Π_{j=1..n} F((i + j)Δt + x) dx,
    /// the integral over `parts` quantiles of the delay, which `quantile` returns. Slow; it is here
    /// to check [`PaperModel::zeta`].
    #[must_use]
    pub fn zeta_as_printed(
        &self,
        n: u32,
        disk: u32,
        parts: u32,
        quantile: &dyn Fn(f64) -> f64,
    ) -> f64 {
        let mut sum = 0.0;
        for i in 0..disk {
            let mut product_mean = 0.0;
            for part in 0..parts {
                let x = quantile((f64::from(part) + 0.5) / f64::from(parts));
                let mut log_product = 0.0;
                for j in 1..=n {
                    log_product -= self
                        .law
                        .minus_log_distribution((f64::from(i) + f64::from(j)) * self.dt + x);
                }
                product_mean += log_product.exp();
            }
            sum += 1.0 - product_mean / f64::from(parts);
        }
        sum
    }

    /// r_c(n): write amplification of pi_c, the conventional policy (equation 3).
    #[must_use]
    pub fn r_c(&self, n: f64) -> f64 {
        self.zeta(n) / n + 1.0
    }

    /// g(n_seq): expected number of out-of-order points that arrive while `n_seq` in-order ones do
    /// (equation 1). A point that arrives i intervals after a flush is in order with probability
    /// F(ι_i), ι_i = i·Δt.
    #[must_use]
    pub fn g(&self, n_seq: f64) -> f64 {
        self.g_up_to(n_seq).0
    }

    /// g, and the number of arrivals needed.
    fn g_up_to(&self, n_seq: f64) -> (f64, u32) {
        let mut in_order = 0.0;
        let mut late = 0.0;
        for i in 1..=ARRIVALS_MAX {
            let survival = self.law.survival(f64::from(i) * self.dt);
            let missing = n_seq - in_order;
            if missing <= 1.0 - survival {
                // The last point counts for the part of it that is needed.
                let share = missing / (1.0 - survival).max(f64::MIN_POSITIVE);
                return (late + survival * share, i);
            }
            in_order += 1.0 - survival;
            late += survival;
        }
        (late, ARRIVALS_MAX)
    }

    /// N_arrive(n_seq): points that arrive in a phase (equation 4); infinite without late ones.
    #[must_use]
    pub fn n_arrive(&self, n: f64, n_seq: f64) -> f64 {
        let n_nonseq = n - n_seq;
        n_seq * n_nonseq / self.g(n_seq) + n_nonseq
    }

    /// r_s(n_seq): write amplification of pi_s with a C_seq of `n_seq` of `n` points: equation 5 as
    /// it follows from N_cur and N_bef, r_s = 2 + ζ(N)/N − (n_nonseq + n'_seq)/N.
    #[must_use]
    pub fn r_s(&self, n: f64, n_seq: f64) -> f64 {
        let n_nonseq = n - n_seq;
        let flushes = n_nonseq / self.g(n_seq);
        if !flushes.is_finite() {
            return 2.0;
        }
        let arrive = n_seq * flushes + n_nonseq;
        let last_flushed = (1.0 + flushes - flushes.ceil()) * n_seq;
        2.0 + self.zeta(arrive) / arrive - (n_nonseq + last_flushed) / arrive
    }

    /// Algorithm 1: the policy with the least predicted write amplification, over every n_seq from
    /// 1 to n − 1.
    #[must_use]
    pub fn algorithm_1(&self, n: u32) -> Algorithm1 {
        let r_c = self.r_c(f64::from(n));
        let mut best = (None, f64::INFINITY);
        for n_seq in 1..n {
            let r_s = self.r_s(f64::from(n), f64::from(n_seq));
            if r_s < best.1 {
                best = (Some(n_seq), r_s);
            }
        }
        Algorithm1 {
            n_seq: best.0.filter(|_| best.1 < r_c),
            r_c,
            r_s: best.1,
        }
    }
}

fn node(values: &[f64], index: usize) -> f64 {
    values.get(index).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::law::Lognormal;
    use super::*;

    /// The quantile of a standard normal by bisection: for tests only.
    fn normal_quantile(q: f64) -> f64 {
        let (mut low, mut high) = (-9.0, 9.0);
        for _ in 0..80 {
            let middle = (low + high) / 2.0;
            if 1.0 - Lognormal::new(0.0, 1.0).survival(f64::exp(middle)) < q {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low + high) / 2.0
    }

    #[test]
    fn the_fast_zeta_is_the_sum_as_printed() {
        for (mu, sigma, dt) in [(4.0, 0.6, 50.0), (3.0, 1.0, 10.0), (4.0, 1.0, 25.0)] {
            let law = Lognormal::new(mu, sigma);
            let model = PaperModel::new(&law, dt);
            let quantile = |q: f64| (mu + sigma * normal_quantile(q)).exp();
            for n in [8, 40] {
                let printed = model.zeta_as_printed(n, 300, 40, &quantile);
                let fast = model.zeta(f64::from(n));
                assert!(
                    (fast - printed).abs() < 0.02 * printed + 0.02,
                    "mu {mu}, sigma {sigma}, dt {dt}, n {n}: fast {fast}, as printed {printed}"
                );
            }
        }
    }

    #[test]
    fn lambda_is_the_sum_of_logarithms() {
        let law = Lognormal::new(5.0, 1.5);
        let model = PaperModel::new(&law, 10.0);
        for v in [0.0, 7.0, 31.5, 40.0, 1000.0] {
            let direct: f64 = (1..600_000)
                .map(|j| law.minus_log_distribution((v + f64::from(j)) * 10.0))
                .sum();
            let fast = model.lambda_at(v);
            assert!(
                (fast - direct).abs() < 2e-3 * direct,
                "{v}: {fast}, direct {direct}"
            );
        }
    }

    #[test]
    fn separation_without_late_events_has_a_phase_without_end() {
        let law = super::super::law::Sample::new([0.0]);
        let Some(law) = law else {
            unreachable!("one delay is a sample")
        };
        let model = PaperModel::new(&law, 1.0);
        assert_eq!(model.g(256.0), 0.0);
        assert!(model.n_arrive(512.0, 256.0).is_infinite());
        assert!((model.r_c(512.0) - 1.0).abs() < 1e-9);
        assert_eq!(model.algorithm_1(64).n_seq, None);
    }

    #[test]
    fn in_order_and_late_points_of_a_flank_add_up() {
        let law = Lognormal::new(5.0, 2.0);
        let model = PaperModel::new(&law, 50.0);
        let (late, arrivals) = model.g_up_to(256.0);
        assert!((f64::from(arrivals) - late - 256.0).abs() < 1.0);
        let n = model.n_arrive(512.0, 256.0);
        assert!((n - 256.0 * (1.0 + 256.0 / late)).abs() < 1e-6);
    }

    #[test]
    fn more_delay_writes_more() {
        let mut last = 1.0;
        for sigma in [1.0, 1.5, 1.75, 2.0] {
            let law = Lognormal::new(5.0, sigma);
            let r_c = PaperModel::new(&law, 50.0).r_c(512.0);
            assert!(r_c > last, "{sigma}: {r_c}");
            last = r_c;
        }
    }
}
