//! Events with their times of generation in the order of arrival: made up by a law and a seed, or
//! read from a file.

use crate::harness::{Failure, Random};
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Nanoseconds of a millisecond: the papers state times in ms.
pub(crate) const MS: i64 = 1_000_000;

/// Times of generation in the order of arrival, with the delays that belong to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    /// When events were generated, in nanoseconds.
    pub(crate) generated: Vec<i64>,
    /// Nanoseconds from generation to arrival.
    pub(crate) delays: Vec<i64>,
}

/// Law of delays, each drawn independently.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogNormal {
    /// Mean of the logarithm of the delay in ms.
    pub(crate) mu: f64,
    /// Standard deviation of that logarithm.
    pub(crate) sigma: f64,
}

impl LogNormal {
    /// A delay in nanoseconds.
    pub(crate) fn draw(self, normal: f64) -> i64 {
        ((self.mu + self.sigma * normal).exp() * MS as f64) as i64
    }
}

/// Normal numbers, by the polar method of Marsaglia.
pub(crate) struct Normal {
    random: Random,
    spare: Option<f64>,
}

impl Normal {
    pub(crate) fn new(seed: u64) -> Normal {
        Normal {
            random: Random::new(seed),
            spare: None,
        }
    }

    pub(crate) fn next(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (
                2.0 * self.random.unit() - 1.0,
                2.0 * self.random.unit() - 1.0,
            );
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }
}

impl Arrivals {
    /// Sorts events by arrival; of equal arrivals the older event is first.
    pub(crate) fn in_order_of_arrival(events: impl IntoIterator<Item = (i64, i64)>) -> Arrivals {
        let mut arrivals: Vec<(i64, i64)> = events
            .into_iter()
            .map(|(generated, delay)| (generated.saturating_add(delay), generated))
            .collect();
        arrivals.sort_unstable();
        Arrivals {
            generated: arrivals.iter().map(|(_, g)| *g).collect(),
            delays: arrivals.iter().map(|(a, g)| a - g).collect(),
        }
    }

    /// The first ones to arrive.
    pub(crate) fn first(mut self, count: usize) -> Arrivals {
        self.generated.truncate(count);
        self.delays.truncate(count);
        self
    }
}

/// Most rows of a file that are read.
const ROWS_MAX: usize = 200_000_000;

/// Reads rows `t_g,t_a` in the order of arrival; a first row without numbers is a header. The time
/// of arrival may be missing, and is only used to check that the rows are in its order.
///
/// Times of generation that are not all whole and positive are replaced by their ranks: lateness,
/// and the leaves that a merge rewrites, depend only on their order.
pub(crate) fn read_csv(path: &Path) -> Result<Vec<i64>, Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut times = Vec::new();
    let mut arrived = f64::MIN;
    let mut backwards = 0u64;
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(failed)?;
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let mut cells = line.split(',').map(str::trim);
        let generated = cells.next().and_then(Instant::read);
        let arrival = cells.next().map(|c| Instant::read(c).map(Instant::float));
        match (generated, arrival) {
            (Some(time), None | Some(Some(_))) => {
                if let Some(Some(arrival)) = arrival {
                    backwards += u64::from(arrival < arrived);
                    arrived = arrival;
                }
                times.push(time);
            }
            _ if index == 0 => {}
            _ => {
                return Err(format!(
                    "{}, line {}: `{line}` is not `t_g,t_a`, two numbers",
                    path.display(),
                    index + 1
                )
                .into());
            }
        }
        if times.len() > ROWS_MAX {
            return Err(format!("{}: more than {ROWS_MAX} rows", path.display()).into());
        }
    }
    if times.is_empty() {
        return Err(format!("{}: no rows `t_g,t_a`", path.display()).into());
    }
    if backwards > 0 {
        eprintln!(
            "lab: {}: {backwards} rows arrive before the one above them; they are taken in the order of the file",
            path.display()
        );
    }
    let whole = times
        .iter()
        .map(|t| t.whole())
        .collect::<Option<Vec<i64>>>();
    Ok(whole.unwrap_or_else(|| ranks(&times)))
}

/// A number of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Instant {
    Whole(i64),
    Float(f64),
}

impl Instant {
    fn read(text: &str) -> Option<Instant> {
        if let Ok(whole) = text.parse() {
            return Some(Instant::Whole(whole));
        }
        let float: f64 = text.parse().ok()?;
        float.is_finite().then_some(Instant::Float(float))
    }

    fn float(self) -> f64 {
        match self {
            Instant::Whole(whole) => whole as f64,
            Instant::Float(float) => float,
        }
    }

    /// The number, if it is whole and not below 0.
    fn whole(self) -> Option<i64> {
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0; // 2^53
        match self {
            Instant::Whole(whole) => (whole >= 0).then_some(whole),
            Instant::Float(float) => {
                ((0.0..=EXACT_MAX).contains(&float) && float.fract() == 0.0).then_some(float as i64)
            }
        }
    }
}

/// The place of each number among all different ones, in milliseconds.
fn ranks(numbers: &[Instant]) -> Vec<i64> {
    let order = |a: &Instant, b: &Instant| match (a, b) {
        (Instant::Whole(a), Instant::Whole(b)) => a.cmp(b),
        // The sum makes -0 a 0.
        _ => (a.float() + 0.0).total_cmp(&(b.float() + 0.0)),
    };
    let mut sorted = numbers.to_vec();
    sorted.sort_by(order);
    sorted.dedup_by(|a, b| order(a, b).is_eq());
    numbers
        .iter()
        .map(|n| sorted.partition_point(|s| order(s, n).is_lt()) as i64 * MS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_file_keep_their_order() {
        let read = |texts: &[&str]| -> Vec<Instant> {
            texts.iter().filter_map(|t| Instant::read(t)).collect()
        };
        let whole = read(&["50", "5.0e1", "0.0"]);
        let expected = [Some(50), Some(50), Some(0)];
        assert_eq!(
            whole.iter().map(|n| n.whole()).collect::<Vec<_>>(),
            expected
        );
        let mixed = read(&["0.05", "-3", "0.1", "0.05", "2", "-0.0", "0"]);
        assert_eq!(mixed[0].whole(), None);
        let expected = [2, 0, 3, 2, 4, 1, 1].map(|r| r * MS);
        assert_eq!(ranks(&mixed), expected);
        assert_eq!(Instant::read("nan"), None);
        assert_eq!(Instant::read("x"), None);
    }

    #[test]
    fn arrivals_are_sorted_by_when_they_come() {
        let arrivals = Arrivals::in_order_of_arrival([(0, 100), (10, 5), (20, 80), (30, 1)]);
        assert_eq!(arrivals.generated, [10, 30, 0, 20]);
        assert_eq!(arrivals.delays, [5, 1, 100, 80]);
    }

    #[test]
    fn delays_follow_their_law() {
        let law = LogNormal {
            mu: 4.0,
            sigma: 1.5,
        };
        let mut normal = Normal::new(1);
        let mut delays: Vec<i64> = (0..100_001).map(|_| law.draw(normal.next())).collect();
        delays.sort_unstable();
        let quantile = |at: usize| (delays[at] as f64 / MS as f64).ln();
        // The median, and the quantile one deviation above it.
        assert!((quantile(50_000) - 4.0).abs() < 0.02);
        assert!((quantile(84_134) - 5.5).abs() < 0.04);
    }
}
