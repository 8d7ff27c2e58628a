//! The data: a week of a laboratory, a value a second of each sensor.
//!
//! Four rooms with four sensors each, generated: temperature follows the day and drifts, light is
//! switched by people who arrive and leave, sound is noise with bursts, and acceleration is zero
//! except for a few dozen events of some seconds to some minutes. Values have the resolution of
//! real sensors.

use crate::harness::{Random, real, size, unsigned};

/// The first second, at a border of tiles of every level that is looked at.
pub(super) const BEGIN: i64 = 1_699_741_696;
pub(super) const SECONDS: usize = 7 * 86_400;
pub(super) const ROOMS: usize = 4;
pub(super) const FIELDS: [&str; 4] = ["temperature", "light", "sound", "acceleration"];

/// Readings of one sensor.
pub(super) struct Channel {
    pub(super) room: usize,
    pub(super) field: usize,
    pub(super) values: Vec<f64>,
}

fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// Start seconds of events, with their durations.
fn events(dice: &mut Random, count: u64, longest: u64) -> Vec<(usize, usize)> {
    let event = |dice: &mut Random| {
        let length = 3 + dice.below(longest);
        (size(dice.below(unsigned(SECONDS))), size(length))
    };
    let mut events: Vec<(usize, usize)> = (0..count).map(|_| event(dice)).collect();
    events.sort_unstable();
    events
}

/// Share of the day that has passed at a second, 0 to 1.
fn of_day(second: usize) -> f64 {
    real(second % 86_400) / 86_400.0
}

fn temperature(dice: &mut Random) -> Vec<f64> {
    let mut drift = 0.0;
    let step = |second: usize| {
        drift += (dice.unit() - 0.5) * 0.004;
        let day = (of_day(second) * std::f64::consts::TAU - 2.0).sin();
        rounded(21.0 + 1.5 * day + drift, 100.0)
    };
    (0..SECONDS).map(step).collect()
}

fn light(dice: &mut Random) -> Vec<f64> {
    let mut is_on = false;
    let step = |second: usize| {
        let at_work = (0.33..0.8).contains(&of_day(second)) && second / 86_400 < 5;
        let switches = dice.below(if at_work { 4_000 } else { 60_000 }) == 0;
        is_on ^= switches;
        is_on &= at_work || dice.below(2_000) != 0;
        let sun = (of_day(second) * std::f64::consts::TAU - 1.6)
            .sin()
            .max(0.0)
            * 180.0;
        let lamps = if is_on { 420.0 } else { 0.0 };
        rounded(sun + lamps + dice.unit() * 4.0, 1.0)
    };
    (0..SECONDS).map(step).collect()
}

fn sound(dice: &mut Random) -> Vec<f64> {
    let bursts = events(dice, 120, 90);
    let quiet = |dice: &mut Random| 32.0 + dice.unit() * 3.0;
    let mut values: Vec<f64> = (0..SECONDS).map(|_| quiet(dice)).collect();
    for (at, length) in bursts {
        let loud = 15.0 + dice.unit() * 40.0;
        for value in values.iter_mut().skip(at).take(length) {
            *value += loud * dice.unit();
        }
    }
    values.iter().map(|v| rounded(*v, 10.0)).collect()
}

fn acceleration(dice: &mut Random) -> Vec<f64> {
    let mut values: Vec<f64> = (0..SECONDS)
        .map(|_| 1.0 + (dice.unit() - 0.5) * 0.004)
        .collect();
    for (at, length) in events(dice, 40, 240) {
        let hard = 0.2 + dice.unit() * 2.0;
        for value in values.iter_mut().skip(at).take(length) {
            *value += (dice.unit() - 0.5) * hard;
        }
    }
    values.iter().map(|v| rounded(*v, 1000.0)).collect()
}

/// Readings of all sensors.
pub(super) fn week(seed: u64) -> Vec<Channel> {
    let mut dice = Random::new(seed);
    let mut channels = Vec::new();
    for room in 0..ROOMS {
        let all = [temperature, light, sound, acceleration];
        for (field, make) in all.into_iter().enumerate() {
            channels.push(Channel {
                room,
                field,
                values: make(&mut dice),
            });
        }
    }
    channels
}
