//! `headwater demo`: simulated sensors that send to a running server.
//!
//! Purpose: something to look at while it comes in, with events that arrive late. Everything is in
//! the table `simulated`, so that it is not taken for what someone measured.
//!
//! Invariants: an event's time is when its value was taken, and it is sent when its delay has
//! passed; delays are lognormal, as those of real devices often are. The events depend on the seed
//! and the time alone.

use crate::arguments::parse_duration;
use crate::failure::Failure;
use crate::http::{agent, is_refused_tls};
use clap::Args;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval at which arrived events are sent.
const TICK: Duration = Duration::from_millis(200);
/// Most lines of one request.
const LINES_MAX: usize = 5_000;
const SECOND: f64 = 1e9;

/// Send simulated sensors to a running server: live values, some of them late
#[derive(Debug, Args)]
#[command(after_help = "\
Stores into the table `simulated` of the server at --url. Each sensor takes values at an interval, and each value arrives after a
delay with a lognormal distribution: most at once, a few much later. Ctrl-C ends it.")]
pub(crate) struct Demo {
    /// Send in real time until Ctrl-C
    #[arg(long, required = true)]
    live: bool,

    /// Address of the server
    #[arg(
        long,
        value_name = "URL",
        env = "HEADWATER_URL",
        default_value = "http://127.0.0.1:7373"
    )]
    url: String,

    /// Certificates in PEM of the server or of its issuer, for https: [default:
    /// those that the system trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Token that may write the table `simulated`, if the server requires one
    #[arg(
        long,
        value_name = "TOKEN",
        env = "HEADWATER_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,

    /// Number of sensors
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sensors: u32,

    /// Value of the tag `site` of all sensors; without it there are four sites
    #[arg(long, value_name = "NAME", value_parser = parse_site)]
    site: Option<String>,

    /// Time between values of a sensor
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    interval: i64,

    /// Median of the delays
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = parse_duration)]
    delay: i64,

    /// Spread of the delays: standard deviation of their logarithm
    #[arg(long, value_name = "SIGMA", default_value_t = 1.5)]
    sigma: f64,

    /// Begin this long ago: what would have arrived by now is sent at once
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    history: i64,

    /// Stop after this time instead of at Ctrl-C
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    lasts: Option<i64>,

    /// Another seed gives other values and delays
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Reads a value of a tag that needs no backslashes.
fn parse_site(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !text.is_empty() && text.chars().all(is_part) {
        true => Ok(text.to_owned()),
        false => Err("expected letters, digits, `-`, `_` and `.`".to_owned()),
    }
}

impl Demo {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if !(0.0..=5.0).contains(&self.sigma) {
            return Err(Failure::usage("--sigma: expected 0 to 5"));
        }
        let base = self.url.trim_end_matches('/');
        let sender = Sender {
            agent: agent(base, self.ca.as_deref(), Duration::from_secs(30))?,
            url: format!("{base}/api/v2/write?bucket=demo&precision=ns"),
            token: self.token.clone(),
        };
        let now = now_ns()?;
        let mut simulation = Simulation::new(&self, now - self.history);
        let begun = Instant::now();
        let mut sent = 0u64;
        let mut reported = Instant::now();
        eprintln!(
            "{} simulated sensors send to {base}, table `simulated`; Ctrl-C ends it",
            self.sensors
        );
        loop {
            simulation.advance(now_ns()?);
            let mut lines = simulation.arrived(now_ns()?);
            while !lines.is_empty() {
                let rest = lines.split_off(lines.len().min(LINES_MAX));
                sender.send(&lines)?;
                sent += lines.len() as u64;
                lines = rest;
            }
            if reported.elapsed() >= Duration::from_secs(10) {
                reported = Instant::now();
                eprintln!(
                    "{sent} events sent, {} on their way",
                    simulation.under_way.len()
                );
            }
            if self
                .lasts
                .is_some_and(|ns| begun.elapsed() >= Duration::from_nanos(ns.unsigned_abs()))
            {
                eprintln!("{sent} events sent");
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
    }
}

fn now_ns() -> Result<i64, Failure> {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_nanos()).ok())
        .ok_or_else(|| Failure::failed("the clock of this machine is not between 1970 and 2262"))
}

/// Sends lines, and tries again where that helps.
struct Sender {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

impl Sender {
    fn send(&self, lines: &[String]) -> Result<(), Failure> {
        let body = lines.join("\n");
        for attempt in 1.. {
            let mut request = self.agent.post(&self.url);
            if let Some(token) = &self.token {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let mut answer = match request.send(&body) {
                Ok(answer) => answer,
                Err(error) if is_refused_tls(&error) => {
                    return Err(Failure::failed(format!(
                        "{}: {error}; name the server's certificate, or its issuer's, with --ca",
                        self.url
                    )));
                }
                Err(error) if attempt < 5 => {
                    eprintln!("headwater: {}: {error}; trying again", self.url);
                    std::thread::sleep(Duration::from_secs(1));
                    continue;
                }
                Err(error) => {
                    return Err(Failure::failed(format!(
                        "{}: {error}; start a server with `headwater serve`, or name it with --url",
                        self.url
                    )));
                }
            };
            let status = answer.status().as_u16();
            match status {
                200..=299 => return Ok(()),
                429 | 503 if attempt < 100 => {
                    let wait = answer
                        .headers()
                        .get("retry-after")
                        .and_then(|value| value.to_str().ok()?.parse().ok())
                        .unwrap_or(1);
                    std::thread::sleep(Duration::from_secs(wait));
                }
                _ => {
                    let text = answer.body_mut().read_to_string().unwrap_or_default();
                    return Err(Failure::failed(format!(
                        "{} answered {status}: {text}",
                        self.url
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Random numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Above 0 and at most 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Of the standard normal distribution (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// One sensor and what it has measured last.
struct Sensor {
    tags: String,
    /// Places of the day at which it is warmest, and its mean.
    phase: f64,
    mean: f64,
    drift: f64,
    battery: f64,
    count: u64,
}

impl Sensor {
    fn new(number: u32, site: Option<&str>, dice: &mut Dice) -> Sensor {
        let others = ["north", "south", "east", "west"];
        let site = site.unwrap_or(others[number as usize % 4]);
        Sensor {
            tags: format!("simulated,site={site},sensor=s{:02}", number + 1),
            phase: dice.unit(),
            mean: 12.0 + 10.0 * dice.unit(),
            drift: 0.0,
            battery: 3.5 + 0.6 * dice.unit(),
            count: 0,
        }
    }

    /// The line of the value taken at `at`.
    fn measure(&mut self, at: i64, dice: &mut Dice) -> String {
        let seconds = at as f64 / SECOND;
        let wave = |period: f64| (std::f64::consts::TAU * (seconds / period + self.phase)).sin();
        self.drift = 0.995 * self.drift + 0.05 * dice.normal();
        self.battery -= 1e-7;
        self.count += dice.next() % 4;
        let temperature = self.mean + 5.0 * wave(86_400.0) + 0.8 * wave(600.0) + self.drift;
        let humidity = (60.0 - 2.0 * (temperature - self.mean) + dice.normal()).clamp(0.0, 100.0);
        let vibration = 0.02 * dice.normal().abs() + 0.3 * wave(90.0).max(0.98) - 0.294;
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            line,
            "{} temperature={temperature:.2},humidity={humidity:.1},vibration={vibration:.4},battery={:.3},passed={}i,open={} {at}",
            self.tags,
            self.battery,
            self.count,
            wave(240.0) > 0.9,
        );
        line
    }
}

/// The simulated sensors, and the events on their way.
struct Simulation {
    sensors: Vec<Sensor>,
    dice: Dice,
    interval: i64,
    /// The next time of the first sensor; the others take theirs in between.
    next: i64,
    delay_ns: f64,
    sigma: f64,
    /// Lines by the time they arrive.
    under_way: BinaryHeap<Reverse<(i64, String)>>,
}

impl Simulation {
    fn new(demo: &Demo, start: i64) -> Simulation {
        let mut dice = Dice(demo.seed);
        Simulation {
            sensors: (0..demo.sensors)
                .map(|number| Sensor::new(number, demo.site.as_deref(), &mut dice))
                .collect(),
            dice,
            interval: demo.interval,
            next: start,
            delay_ns: demo.delay as f64,
            sigma: demo.sigma,
            under_way: BinaryHeap::new(),
        }
    }

    /// Takes values up to `now`.
    fn advance(&mut self, now: i64) {
        let count = self.sensors.len() as i64;
        while self.next <= now {
            for (place, sensor) in (0i64..).zip(&mut self.sensors) {
                let at = self.next + self.interval / count * place;
                let line = sensor.measure(at, &mut self.dice);
                let delay = self.delay_ns * (self.sigma * self.dice.normal()).exp();
                self.under_way
                    .push(Reverse((at.saturating_add(delay as i64), line)));
            }
            self.next += self.interval;
        }
    }

    /// The lines that have arrived by `now`, in the order in which they did.
    fn arrived(&mut self, now: i64) -> Vec<String> {
        let mut lines = Vec::new();
        while self
            .under_way
            .peek()
            .is_some_and(|Reverse((at, _))| *at <= now)
        {
            lines.extend(self.under_way.pop().map(|Reverse((_, line))| line));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo() -> Demo {
        Demo {
            live: true,
            url: String::new(),
            ca: None,
            token: None,
            sensors: 3,
            site: None,
            interval: 1_000_000_000,
            delay: 300_000_000,
            sigma: 1.5,
            history: 1,
            lasts: None,
            seed: 7,
        }
    }

    #[test]
    fn every_value_arrives_once_and_some_arrive_late() {
        let mut simulation = Simulation::new(&demo(), 0);
        let mut times = Vec::new();
        for second in 1..=4_000i64 {
            let now = second * 1_000_000_000;
            // As the clock goes on after the last value was taken.
            simulation.advance(now.min(999_000_000_000));
            for line in simulation.arrived(now) {
                let (_, time) = line.rsplit_once(' ').unwrap_or_default();
                times.push(time.parse::<i64>().unwrap_or(-1));
            }
        }
        assert_eq!(times.len() + simulation.under_way.len(), 3_000);
        let mut newest = 0;
        let late = times.iter().filter(|time| {
            let is_late = **time < newest;
            newest = newest.max(**time);
            is_late
        });
        let share = late.count() as f64 / times.len() as f64;
        assert!((0.1..0.8).contains(&share), "{share}");
        times.sort_unstable();
        times.dedup();
        assert!(times.len() > 2_900);
    }

    #[test]
    fn delays_are_lognormal() {
        let mut dice = Dice(3);
        let logs: Vec<f64> = (0..100_000).map(|_| 2.0 * dice.normal() + 5.0).collect();
        let mean = logs.iter().sum::<f64>() / 1e5;
        let deviation = (logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5).sqrt();
        assert!((mean - 5.0).abs() < 0.05 && (deviation - 2.0).abs() < 0.05);
    }
}
