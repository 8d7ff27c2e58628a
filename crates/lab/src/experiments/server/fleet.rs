//! A hundred devices with ten fields each, as line protocol.
//!
//! Fields of each device: three walks rounded to 0.01, two noises of full precision, a counter, two
//! on/off, a constant, a slow ramp; about a row a second, with a jitter of milliseconds.

use crate::harness::Random;
use std::fmt::Write;

pub(crate) const FIELDS: usize = 10;
const BEGIN_MS: i64 = 1_700_000_000_000;

/// Lines in the order of their arrival, and the expected content.
pub(crate) struct Fleet {
    pub(crate) lines: Vec<String>,
    pub(crate) devices: usize,
    /// Rows of each device.
    pub(crate) rows: usize,
}

struct Device {
    walks: [i64; 3],
    switches: [bool; 2],
}

/// A number of the normal distribution, by Box and Muller.
fn normal(dice: &mut Random) -> f64 {
    let (u, v) = (1.0 - dice.unit(), dice.unit());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

impl Fleet {
    /// `late_percent` of the rows arrive later by lognormal(5, 2) seconds.
    pub(crate) fn new(devices: usize, rows: usize, late_percent: u64) -> Fleet {
        let mut dice = Random::new(11);
        let mut arrivals: Vec<(f64, String)> = Vec::with_capacity(devices * rows);
        let mut states: Vec<Device> = (0..devices)
            .map(|d| Device {
                walks: [2_000 + d as i64, 50_000, -300],
                switches: [d % 2 == 0, false],
            })
            .collect();
        for row in 0..rows {
            for (number, device) in states.iter_mut().enumerate() {
                for walk in &mut device.walks {
                    *walk += dice.below(21) as i64 - 10;
                }
                for (switch, one_in) in device.switches.iter_mut().zip([100, 1_000]) {
                    *switch ^= dice.below(one_in) == 0;
                }
                let jitter_ms = dice.below(20) as i64;
                let time_ms =
                    BEGIN_MS + row as i64 * 1_000 + number as i64 * 10 % 1_000 + jitter_ms;
                let delay_s = if dice.below(100) < late_percent {
                    (5.0 + 2.0 * normal(&mut dice)).exp()
                } else {
                    0.0
                };
                let [a, b, c] = device.walks.map(|w| w as f64 / 100.0);
                let (x, y) = (dice.unit(), 100.0 * dice.unit());
                let [on, open] = device.switches.map(|s| if s { 't' } else { 'f' });
                let ramp = 20.0 + (row / 60) as f64 / 1_000.0;
                let mut line = String::with_capacity(200);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    line,
                    "fleet,device=d{number:04} walk_a={a:.2},walk_b={b:.2},walk_c={c:.2},noise_x={x},noise_y={y},count={row}i,on={on},open={open},rated=230.5,ramp={ramp:.3} {time_ms}000000"
                );
                arrivals.push((time_ms as f64 / 1e3 + delay_s, line));
            }
        }
        // A stable sort: equal arrivals retain their order.
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        Fleet {
            lines: arrivals.into_iter().map(|(_, line)| line).collect(),
            devices,
            rows,
        }
    }

    /// Values in all.
    pub(crate) fn values(&self) -> usize {
        self.lines.len() * FIELDS
    }
}
