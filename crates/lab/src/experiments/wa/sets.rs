//! The sets of arrivals: the paper's, sets that violate its assumptions, sequences that change, and
//! real ones.

use super::arrivals::{Arrivals, LogNormal, MS, Normal};
use crate::harness::{Failure, Random};
use headwater_wire::csv::{CsvOptions, CsvParser};
use std::io::Read;
use std::path::Path;

/// A set that can be made with any number of events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Set {
    /// The paper's table II: a fixed interval, delays drawn from one law.
    Paper(Paper),
    /// Delays as in M5, but intervals from milliseconds to seconds, and pauses.
    Irregular,
    /// Delays as in M5, with autocorrelated logarithms: the autocorrelation.
    Autocorrelated(f64),
    /// One event each interval (in ms); while the link is down a device retains its events, and
    /// sends them together every 50 s, like the paper's data set H.
    Resend(i64),
}

/// A set of the paper's table II.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Paper {
    /// The M in its name is this.
    pub(crate) number: u8,
    /// Between two events, in ms.
    pub(crate) interval_ms: i64,
    pub(crate) law: LogNormal,
}

/// M1 to M12.
pub(crate) fn paper() -> Vec<Paper> {
    let mut all = Vec::with_capacity(12);
    for interval_ms in [50, 10] {
        for mu in [4.0, 5.0] {
            for sigma in [1.5, 1.75, 2.0] {
                all.push(Paper {
                    number: all.len() as u8 + 1,
                    interval_ms,
                    law: LogNormal { mu, sigma },
                });
            }
        }
    }
    all
}

/// Sets that violate the paper's assumptions.
pub(crate) const OTHERS: [Set; 5] = [
    Set::Irregular,
    Set::Autocorrelated(0.9),
    Set::Autocorrelated(0.99),
    Set::Resend(1000),
    Set::Resend(100),
];

const M5: LogNormal = LogNormal {
    mu: 5.0,
    sigma: 1.75,
};
/// Interval at which retained events are sent again, ns.
const RESEND: i64 = 50_000 * MS;

impl Paper {
    pub(crate) fn name(&self) -> String {
        Set::Paper(*self).name()
    }
}

impl Set {
    pub(crate) fn name(&self) -> String {
        match self {
            Set::Paper(paper) => format!("M{}", paper.number),
            Set::Irregular => "irregular".to_owned(),
            Set::Autocorrelated(r) => format!("autocorrelated {r}"),
            Set::Resend(ms) => format!("resend {ms} ms"),
        }
    }

    /// Generates `events` events. A fifth more are generated, and the first ones to arrive are
    /// used: otherwise the end would only have long overdue events.
    pub(crate) fn make(&self, events: usize, seed: u64) -> Arrivals {
        // No two sets share their luck.
        let of_set: u64 = self.name().bytes().fold(seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        self.generate(events + events / 5, of_set).first(events)
    }

    fn generate(&self, events: usize, seed: u64) -> Arrivals {
        let mut normal = Normal::new(seed);
        let mut random = Random::new(seed ^ 0x5851_f42d_4c95_7f2d);
        let ids = 0..events as i64;
        match *self {
            Set::Paper(paper) => Arrivals::in_order_of_arrival(
                ids.map(|i| (i * paper.interval_ms * MS, paper.law.draw(normal.next()))),
            ),
            Set::Irregular => {
                let mut at = 0;
                Arrivals::in_order_of_arrival(ids.map(|_| {
                    // Mean about 50 ms; one pause of a minute in ten thousand.
                    let pause = if random.below(10_000) == 0 {
                        60_000 * MS
                    } else {
                        0
                    };
                    at += LogNormal {
                        mu: 2.9,
                        sigma: 1.4,
                    }
                    .draw(normal.next())
                    .max(1)
                        + pause;
                    (at, M5.draw(normal.next()))
                }))
            }
            Set::Autocorrelated(r) => {
                let mut level = normal.next();
                Arrivals::in_order_of_arrival(ids.map(|i| {
                    level = r * level + (1.0 - r * r).sqrt() * normal.next();
                    (i * 50 * MS, M5.draw(level))
                }))
            }
            Set::Resend(interval_ms) => {
                let link = LogNormal {
                    mu: 4.0,
                    sigma: 0.75,
                };
                let mut down = false;
                Arrivals::in_order_of_arrival(ids.map(|i| {
                    let at = i * interval_ms * MS;
                    // Down for a fiftieth of the events, four in a row on average.
                    down = random.below(1_000_000) < if down { 750_000 } else { 5_100 };
                    let delay = link.draw(normal.next());
                    let kept = if down { RESEND - at % RESEND } else { 0 };
                    (at, kept + delay)
                }))
            }
        }
    }
}

/// Consecutive laws, each for a number of events; times of generation continue.
pub(crate) struct Sequence {
    pub(crate) name: &'static str,
    pub(crate) interval_ms: i64,
    pub(crate) parts: Vec<Law>,
}

/// A law of one part of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Law {
    LogNormal(LogNormal),
    /// Mean in ms.
    Exponential(f64),
    /// Uniform delays up to this many ms.
    Uniform(f64),
    /// Delays of at least this many ms, with a tail of this power.
    Pareto(f64, f64),
    /// Mean and deviation in ms; never below 0.
    Normal(f64, f64),
}

impl Law {
    fn draw(self, normal: &mut Normal, random: &mut Random) -> i64 {
        let ms = match self {
            Law::LogNormal(law) => return law.draw(normal.next()),
            Law::Exponential(mean) => -mean * (1.0 - random.unit()).ln(),
            Law::Uniform(most) => most * random.unit(),
            Law::Pareto(least, power) => least * (1.0 - random.unit()).powf(-1.0 / power),
            Law::Normal(mean, deviation) => (mean + deviation * normal.next()).max(0.0),
        };
        (ms * MS as f64) as i64
    }
}

/// The paper's figure 10: the deviation decreases from 2 to 1.
pub(crate) fn figure_10() -> Sequence {
    Sequence {
        name: "Figure 10",
        interval_ms: 50,
        parts: [2.0, 1.75, 1.5, 1.25, 1.0]
            .map(|sigma| Law::LogNormal(LogNormal { mu: 5.0, sigma }))
            .to_vec(),
    }
}

/// Like the paper's figure 17, which does not name its five laws: five of different kinds.
pub(crate) fn figure_17() -> Sequence {
    Sequence {
        name: "five laws",
        interval_ms: 50,
        parts: vec![
            Law::Exponential(2_000.0),
            Law::LogNormal(LogNormal {
                mu: 5.0,
                sigma: 2.0,
            }),
            Law::Uniform(4_000.0),
            Law::Pareto(50.0, 1.1),
            Law::Normal(500.0, 200.0),
        ],
    }
}

/// Two laws in turn.
pub(crate) fn alternating() -> Sequence {
    let calm = Law::LogNormal(LogNormal {
        mu: 4.0,
        sigma: 1.0,
    });
    let wild = Law::LogNormal(LogNormal {
        mu: 5.0,
        sigma: 2.0,
    });
    Sequence {
        name: "alternating",
        interval_ms: 50,
        parts: vec![calm, wild, calm, wild, calm, wild],
    }
}

impl Sequence {
    /// Generates `events_each` events of each part, and uses the first ones to arrive, as
    /// [`Set::make`]; the last law continues.
    pub(crate) fn make(&self, events_each: usize, seed: u64) -> Arrivals {
        let mut normal = Normal::new(seed);
        let mut random = Random::new(seed ^ 0x5851_f42d_4c95_7f2d);
        let events = self.parts.len() * events_each;
        let made = Arrivals::in_order_of_arrival((0..events + events_each).map(|i| {
            let law = self.parts[(i / events_each).min(self.parts.len() - 1)];
            (
                i as i64 * self.interval_ms * MS,
                law.draw(&mut normal, &mut random),
            )
        }));
        made.first(events)
    }
}

/// A file of real events with two clocks.
pub(crate) struct RealFile {
    pub(crate) name: &'static str,
    file: &'static str,
    generated: &'static str,
    arrived: &'static str,
    null: Option<&'static str>,
}

/// See `data/README.md` for their sources.
pub(crate) const REAL: [RealFile; 5] = [
    RealFile {
        name: "phones",
        file: "phones_umts_d1_d5",
        generated: "S.Client.Detection.Time:ms",
        arrived: "S.Message.received.time.ms:ms",
        null: Some("NA"),
    },
    RealFile {
        name: "lorawan ftd",
        file: "lorawan_helium_ftd",
        generated: "hotspot.reported_at:ms",
        arrived: "_timestamp:ms",
        null: None,
    },
    RealFile {
        name: "lorawan imst",
        file: "lorawan_helium_imst",
        generated: "hotspot.reported_at:ms",
        arrived: "_timestamp:ms",
        null: None,
    },
    RealFile {
        name: "quakes 2020",
        file: "usgs_quakes_2020_snapshots",
        generated: "time:rfc3339",
        arrived: "updated:rfc3339",
        null: None,
    },
    RealFile {
        name: "quakes 2025",
        file: "usgs_quakes_2025_snapshots",
        generated: "time:rfc3339",
        arrived: "updated:rfc3339",
        null: None,
    },
];

impl RealFile {
    /// The events of the file in the order of their arrival, without duplicate pairs of times;
    /// `None` if the file does not exist.
    pub(crate) fn read(&self, dir: &Path) -> Result<Option<Arrivals>, Failure> {
        let path = dir.join(format!("{}.csv.gz", self.file));
        if !path.exists() {
            return Ok(None);
        }
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(std::fs::File::open(&path)?).read_to_end(&mut text)?;
        let generated = self.column(&text, self.generated)?;
        let arrived = self.column(&text, self.arrived)?;
        let mut pairs: Vec<(i64, i64)> = arrived.into_iter().zip(generated).collect();
        pairs.sort_unstable();
        pairs.dedup();
        Ok(Some(Arrivals::in_order_of_arrival(
            pairs.into_iter().map(|(a, g)| (g, a - g)),
        )))
    }

    /// A column of times. Rows are read one at a time, since batches group rows by stream.
    fn column(&self, text: &[u8], column: &str) -> Result<Vec<i64>, Failure> {
        let mut options = CsvOptions::new("t", column);
        options.null_texts = self.null.iter().map(|n| (*n).to_owned()).collect();
        let mut parser = CsvParser::new(text, options)?;
        let mut times = Vec::new();
        while let Some(parsed) = parser.next_batch(1)? {
            if let Some(refused) = parsed.refused.first() {
                return Err(
                    format!("{}: line {}: {}", self.file, refused.line, refused.message).into(),
                );
            }
            times.extend(
                parsed
                    .batch
                    .entries()
                    .iter()
                    .flat_map(|e| e.times.iter().copied()),
            );
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Plan, Sharing};
    use super::super::reference::simulate;
    use super::*;

    /// Write amplification of whole-table merges of one buffer.
    fn wa(times: &[i64]) -> f64 {
        simulate(times, &Plan::paper(Sharing::Conventional)).wa()
    }

    #[test]
    fn sets_are_the_same_for_a_seed_and_have_every_event_once() {
        let all = paper().into_iter().map(Set::Paper).chain(OTHERS);
        for set in all {
            let made = set.make(2_000, 3);
            let again = set.make(2_000, 3);
            assert_eq!(made.generated, again.generated, "{}", set.name());
            assert_ne!(made.delays, set.make(2_000, 4).delays, "{}", set.name());
            assert!(made.delays.iter().all(|d| *d >= 0));
            let mut times = made.generated.clone();
            times.sort_unstable();
            times.dedup();
            assert_eq!(times.len(), 2_000, "{}", set.name());
        }
    }

    /// The paper's section V.B: WA grows with mu and sigma, and falls with the interval.
    #[test]
    fn disorder_grows_with_the_law_and_falls_with_the_interval() {
        let all: Vec<f64> = paper()
            .into_iter()
            .map(|p| wa(&Set::Paper(p).make(30_000, 1).generated))
            .collect();
        for first in [0, 3, 6, 9] {
            assert!(all[first] < all[first + 1] && all[first + 1] < all[first + 2]);
        }
        for number in [0, 1, 2, 6, 7, 8] {
            assert!(all[number] < all[number + 3]);
        }
        for number in 0..6 {
            assert!(all[number] < all[number + 6]);
        }
    }

    #[test]
    fn kept_events_come_together_every_fifty_seconds() {
        let made = Set::Resend(1000).make(100_000, 1);
        let kept = made.delays.iter().filter(|d| **d > 2_000 * MS).count();
        assert!((1_000..3_000).contains(&kept), "{kept}");
        for (time, delay) in made.generated.iter().zip(&made.delays) {
            if *delay > 2_000 * MS {
                // A tick, and the delay of the link.
                assert!((time + delay) % RESEND < 2_000 * MS);
            }
        }
    }

    #[test]
    fn a_sequence_changes_its_law() {
        let made = figure_10().make(5_000, 1);
        let long = |part: &[i64]| part.iter().filter(|d| **d > 2_000 * MS).count();
        assert!(long(&made.delays[..5_000]) > 3 * long(&made.delays[20_000..]));
        assert_eq!(made.generated.len(), 25_000);
    }
}
