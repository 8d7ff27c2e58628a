//! Studies a recording of events with their generation and arrival times, before or after they are
//! stored.
//!
//! All inputs of a shard's analyzer are computed from the order of arrival alone; delays, their
//! quantiles and their autocorrelation, and the paper's own advice, from the arrival times. The
//! candidates are predicted for a given memory, and counted by a replay of the stream with the most
//! events.
//!
//! Invariants: a stream's events are passed in the order of arrival. Concurrency: a value. Failure:
//! none. Memory: 16 bytes an event, up to [`EVENTS_KEPT`] events; later ones are counted, but not
//! replayed.

use super::choose::{Knobs, PolicyChoice, Ranked, Space};
use super::lateness::{Lateness, Tracker};
use super::law::Sample;
use super::model::{Candidate, Configuration};
use super::paper::{Algorithm1, PaperModel};
use super::shadow::Shadow;
use headwater_types::invariant::part_of;
use std::collections::HashMap;

/// Maximum events whose times are stored for the replay.
pub const EVENTS_KEPT: usize = 16 << 20;
/// Maximum of delays of a stream for the autocorrelation.
const CORRELATED_MAX: usize = 1 << 16;
/// Lags with a reported autocorrelation.
const LAGS: [usize; 6] = [1, 2, 5, 10, 50, 100];
/// Maximum memory, in events, for which the paper's formulas are evaluated.
const PAPER_MEMORY_MAX: f64 = 1024.0;
/// Points of the curve of delays.
const CURVE_POINTS: usize = 256;

/// Assumed settings for storing the events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StudySettings {
    /// Events that fit into memory, of all streams.
    pub memory_events: f64,
    /// Events of a leaf.
    pub leaf_events: u32,
    /// Maximum late runs that wait.
    pub late_runs_max: usize,
    /// The parameters that may be chosen.
    pub knobs: Knobs,
}

/// A recording that is being read.
#[derive(Debug)]
pub struct Study {
    settings: StudySettings,
    streams: HashMap<u32, Stream>,
    lateness: Lateness,
    newest: Option<i64>,
    across: u64,
    inside: u64,
    events: u64,
    kept: usize,
    delays: Vec<f64>,
}

#[derive(Debug, Default)]
struct Stream {
    tracker: Tracker,
    events: u64,
    times: Vec<i64>,
    delays: Vec<f64>,
}

/// Statistics and predictions of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyReport {
    /// Number of events.
    pub events: u64,
    /// Number of streams.
    pub streams: u64,
    /// Events older than the newest of their own stream.
    pub out_of_order_inside: u64,
    /// Events older than the newest of any stream.
    pub out_of_order_across: u64,
    /// The median distance of two events of the busiest stream, in ns.
    pub interval_ns: f64,
    /// Shares of the events, and the delay in ns they do not exceed; empty without arrival times.
    pub delays: Vec<(f64, f64)>,
    /// Shares, in descending order, and the delay in ns that this share exceeds: evenly spaced on a
    /// logarithmic scale.
    pub delay_curve: Vec<(f64, f64)>,
    /// Lags, and the correlation of delays with this lag in events, in the busiest stream.
    pub autocorrelation: Vec<(usize, f64)>,
    /// Memory for the stream of an event, in events.
    pub memory_events: f64,
    /// The initial candidate of a shard.
    pub first: Candidate,
    /// Every candidate, the least cost first.
    pub candidates: Vec<Ranked>,
    /// Result of the paper's Algorithm 1 from the delays, and its memory in events.
    pub paper: Option<(u32, Algorithm1)>,
}

/// Shares for which delays are reported.
const QUANTILES: [f64; 7] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

impl Study {
    /// Begins a study without events.
    #[must_use]
    pub fn new(settings: StudySettings) -> Study {
        Study {
            settings,
            streams: HashMap::new(),
            lateness: Lateness::new(512),
            newest: None,
            across: 0,
            inside: 0,
            events: 0,
            kept: 0,
            delays: Vec::new(),
        }
    }

    /// Adds an event, in order of arrival; `arrival` in ns since 1970 like `generation`, if it is
    /// known.
    pub fn observe(&mut self, stream: u32, generation: i64, arrival: Option<i64>) {
        self.events += 1;
        let slot = self.streams.entry(stream).or_default();
        slot.events += 1;
        self.inside += u64::from(slot.tracker.newest().is_some_and(|n| generation < n));
        self.across += u64::from(self.newest.is_some_and(|n| generation < n));
        self.newest = self.newest.max(Some(generation));
        slot.tracker.observe(&[generation], &mut self.lateness);
        let keeps = self.kept < EVENTS_KEPT;
        if keeps {
            self.kept += 1;
            slot.times.push(generation);
        }
        if let Some(arrival) = arrival {
            let delay = (i128::from(arrival) - i128::from(generation)) as f64;
            if keeps {
                self.delays.push(delay);
            }
            if slot.delays.len() < CORRELATED_MAX {
                slot.delays.push(delay);
            }
        }
    }

    /// Number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Reports on the recording. Predicts and replays every candidate: takes a while.
    #[must_use]
    pub fn report(self) -> StudyReport {
        let settings = self.settings;
        let squares: f64 = self
            .streams
            .values()
            .map(|s| (s.events as f64).powi(2))
            .sum();
        let all = (self.events as f64).max(1.0);
        let memory_events = (settings.memory_events * squares / (all * all)).round();
        let space = Space {
            configuration: Configuration {
                memory_events,
                late_runs_max: settings.late_runs_max,
            },
            leaf_events: settings.leaf_events,
            knobs: settings.knobs,
            frames: settings.late_runs_max > 0,
        };
        let first = Candidate {
            policy: PolicyChoice::Adaptive(settings.knobs).first(),
            leaf_events: settings.leaf_events,
        };
        let busiest = self
            .streams
            .iter()
            .max_by_key(|(stream, slot)| (slot.events, std::cmp::Reverse(**stream)))
            .map(|(_, slot)| slot);
        let interval_ns = busiest.map_or(1.0, median_interval);
        let mut candidates = match self.lateness.law() {
            Some(law) if memory_events >= 2.0 => space.ranking(first, &law),
            _ => Vec::new(),
        };
        if let Some(busiest) = busiest {
            replay(&mut candidates, &space.configuration, busiest, interval_ns);
        }
        // Clocks differ: the least delay counts as zero.
        let sample = Sample::new(self.delays.iter().copied());
        let least = self.delays.iter().copied().fold(f64::INFINITY, f64::min);
        let shifted = Sample::new(self.delays.iter().map(|d| d - least));
        let paper = shifted
            .and_then(|s| s.in_units_of(interval_ns.max(1.0), 0.0))
            .filter(|_| memory_events >= 2.0)
            .map(|delays| {
                let memory = memory_events.min(PAPER_MEMORY_MAX) as u32;
                (memory, PaperModel::new(&delays, 1.0).algorithm_1(memory))
            });
        let quantile = |share: f64| raw_quantile(&self.delays, share);
        StudyReport {
            events: self.events,
            streams: self.streams.len() as u64,
            out_of_order_inside: self.inside,
            out_of_order_across: self.across,
            interval_ns,
            delays: match &sample {
                Some(_) => QUANTILES.iter().map(|q| (*q, quantile(*q))).collect(),
                None => Vec::new(),
            },
            delay_curve: curve(&self.delays),
            autocorrelation: busiest.map_or_else(Vec::new, |s| autocorrelation(&s.delays)),
            memory_events,
            first,
            candidates,
            paper,
        }
    }
}

/// Counts the writes of the candidates for a stream.
fn replay(
    candidates: &mut [Ranked],
    configuration: &Configuration,
    stream: &Stream,
    interval_ns: f64,
) {
    let list: Vec<Candidate> = candidates.iter().map(|r| r.candidate).collect();
    let configuration = Configuration {
        late_runs_max: 0,
        ..*configuration
    };
    let mut shadow = Shadow::new(&list, &configuration, None, interval_ns);
    shadow.observe(&stream.times);
    for (ranked, count) in candidates.iter_mut().zip(shadow.counts()) {
        ranked.replayed = Some(count.write_amplification);
    }
}

fn median_interval(stream: &Stream) -> f64 {
    let mut times = stream.times.clone();
    times.sort_unstable();
    let mut distances: Vec<u64> = times
        .windows(2)
        .filter_map(|w| match w {
            [a, b] => Some(b.wrapping_sub(*a) as u64),
            _ => None,
        })
        .collect();
    if distances.is_empty() {
        return 1.0;
    }
    let middle = distances.len() / 2;
    let (_, median, _) = distances.select_nth_unstable(middle);
    (*median as f64).max(1.0)
}

fn raw_quantile(delays: &[f64], share: f64) -> f64 {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// The delays exceeded by shares of the events, from all to one event, evenly on a logarithmic
/// scale.
fn curve(delays: &[f64]) -> Vec<(f64, f64)> {
    if delays.len() < 2 {
        return Vec::new();
    }
    let mut sorted = delays.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len() as f64;
    (0..CURVE_POINTS)
        .filter_map(|i| {
            let share = count.powf(-(i as f64) / (CURVE_POINTS - 1) as f64);
            let at = ((1.0 - share) * count).round() as usize;
            sorted.get(at.min(sorted.len() - 1)).map(|d| (share, *d))
        })
        .collect()
}

/// Pearson's correlation of the delays with the delays some events later, for each of [`LAGS`].
fn autocorrelation(delays: &[f64]) -> Vec<(usize, f64)> {
    let count = delays.len() as f64;
    let mean = delays.iter().sum::<f64>() / count.max(1.0);
    let variance: f64 = delays.iter().map(|d| (d - mean).powi(2)).sum();
    if variance <= 0.0 {
        return Vec::new();
    }
    LAGS.iter()
        .filter(|lag| delays.len() > **lag * 2)
        .map(|lag| {
            let later = part_of(delays, *lag.., "delays behind a lag");
            let sum: f64 = delays
                .iter()
                .zip(later)
                .map(|(a, b)| (a - mean) * (b - mean))
                .sum();
            (*lag, sum / variance)
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn settings(memory_events: f64) -> StudySettings {
        StudySettings {
            memory_events,
            leaf_events: 128,
            late_runs_max: 0,
            knobs: Knobs::default(),
        }
    }

    #[test]
    fn order_inside_streams_and_across_them_is_told_apart() {
        let mut study = Study::new(settings(1024.0));
        // Two devices, each in order, one an hour behind.
        for i in 0..10_000i64 {
            study.observe(0, i * 1000, Some(i * 1000 + 50));
            study.observe(1, i * 1000 - 3_600_000_000_000, Some(i * 1000 + 50));
        }
        let report = study.report();
        assert_eq!((report.events, report.streams), (20_000, 2));
        assert_eq!(report.out_of_order_inside, 0);
        assert_eq!(report.out_of_order_across, 10_000);
        assert_eq!(report.memory_events, 512.0);
        assert_eq!(report.interval_ns, 1000.0);
        assert!(report.candidates.iter().all(|c| c.predicted == 1.0));
        assert!(report.candidates.iter().all(|c| c.replayed == Some(1.0)));
    }

    #[test]
    fn delays_are_measured_and_their_batches_seen() {
        let mut study = Study::new(settings(512.0));
        // Every 500 events the last 20 arrive together at the end, as after a lost link.
        let mut rows: Vec<(i64, i64)> = (0..50_000i64)
            .map(|i| {
                let within = i % 500;
                let arrival = if within >= 480 { i - within + 999 } else { i };
                (arrival * 1000 + 10, i * 1000)
            })
            .collect();
        rows.sort_unstable();
        for (arrival, generation) in rows {
            study.observe(3, generation, Some(arrival));
        }
        let report = study.report();
        let at = |share: f64| report.delays.iter().find(|d| d.0 == share).unwrap().1;
        assert_eq!((at(0.0), at(0.5)), (10.0, 10.0));
        assert!((500_000.0..520_000.0).contains(&at(1.0)), "{}", at(1.0));
        let first = report.autocorrelation.first().unwrap();
        assert!(first.0 == 1 && first.1 > 0.9, "{first:?}");
        assert!(
            report
                .delay_curve
                .windows(2)
                .all(|w| w[0].0 > w[1].0 && w[0].1 <= w[1].1)
        );
        let share = report.out_of_order_inside as f64 / report.events as f64;
        assert!((share - 0.04).abs() < 0.005, "{share}");
        assert!(report.paper.is_some_and(|(n, _)| n == 512));
        // The predicted and the counted best candidate roughly agree.
        let best = report.candidates.first().unwrap();
        let least = report
            .candidates
            .iter()
            .filter_map(|c| c.replayed)
            .fold(f64::INFINITY, f64::min);
        assert!(
            best.replayed.unwrap() < least * 1.03,
            "{best:?}, least {least}"
        );
    }

    #[test]
    fn nothing_is_no_recording() {
        let report = Study::new(settings(512.0)).report();
        assert_eq!(report.events, 0);
        assert!(report.candidates.is_empty() && report.paper.is_none());
    }
}
