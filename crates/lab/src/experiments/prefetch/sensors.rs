//! The data: two weeks of a laboratory, a value a second of each sensor.
//!
//! Four rooms with four sensors each, generated. Values have the resolution of real sensors.
//!
//! - [`week`]: temperature follows the day and drifts, light is switched by people who arrive and
//!   leave, sound is noise with bursts, and acceleration is zero except for a few dozen events of
//!   some seconds to some minutes, at any hour.
//! - [`occupied_week`]: a room is occupied in sections of some minutes to some hours, on the days
//!   of work from the morning to the evening, seldom at the weekend, never at night. All four
//!   sensors tell: lamps are on, it is louder and sometimes loud, it becomes warmer, and doors and
//!   tables move.

use crate::harness::{Random, real, size, unsigned, whole};

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
    let all = [temperature, light, sound, acceleration];
    channels(|_, field| all.get(field).map_or_else(Vec::new, |make| make(&mut dice)))
}

fn channels(mut values: impl FnMut(usize, usize) -> Vec<f64>) -> Vec<Channel> {
    let all = (0..ROOMS).flat_map(|room| (0..FIELDS.len()).map(move |field| (room, field)));
    let channel = |(room, field)| Channel {
        room,
        field,
        values: values(room, field),
    };
    all.map(channel).collect()
}

/// Readings of all sensors in a week in which rooms are occupied in sections.
pub(super) fn occupied_week(seed: u64) -> Vec<Channel> {
    let mut dice = Random::new(seed);
    let mut occupied = Vec::new();
    channels(|_, field| {
        if field == 0 {
            occupied = occupancy(&mut dice);
        }
        match field {
            0 => warmed(&mut dice, &occupied),
            1 => lit(&mut dice, &occupied),
            2 => heard(&mut dice, &occupied),
            _ => moved(&mut dice, &occupied),
        }
    })
}

/// Whether a room is occupied, for each second.
fn occupancy(dice: &mut Random) -> Vec<bool> {
    let mut occupied = vec![false; SECONDS];
    let mut section = |day: usize, from: f64, hours: f64| {
        let first = size(whole((real(day) * 24.0 + from) * 3_600.0));
        let seconds = size(whole(hours * 3_600.0));
        for second in occupied.iter_mut().skip(first).take(seconds) {
            *second = true;
        }
    };
    for day in 0..7 {
        if day >= 5 {
            if dice.below(10) < 3 {
                section(day, 10.0 + dice.unit() * 8.0, 0.3 + dice.unit() * 2.5);
            }
            continue;
        }
        let (arrives, pauses) = (8.0 + dice.unit() * 2.0, 11.5 + dice.unit());
        let (returns, leaves) = (12.8 + dice.unit(), 16.5 + dice.unit() * 2.5);
        section(day, arrives, pauses - arrives);
        section(day, returns, leaves - returns);
        if dice.below(4) == 0 {
            section(day, 20.0 + dice.unit() * 2.0, 0.3 + dice.unit());
        }
    }
    occupied
}

fn warmed(dice: &mut Random, occupied: &[bool]) -> Vec<f64> {
    // Degrees above the room's own, towards which people and lamps warm it in some forty minutes.
    let mut above = 0.0;
    let step = |(second, is_occupied): (usize, &bool)| {
        let towards = if *is_occupied { 2.0 } else { 0.0 };
        above += (towards - above) / 2_400.0;
        let day = (of_day(second) * std::f64::consts::TAU - 2.0).sin();
        rounded(20.5 + 0.5 * day + above + dice.unit() * 0.02, 100.0)
    };
    occupied.iter().enumerate().map(step).collect()
}

fn lit(dice: &mut Random, occupied: &[bool]) -> Vec<f64> {
    let step = |(second, is_occupied): (usize, &bool)| {
        let sun = (of_day(second) * std::f64::consts::TAU - 1.6)
            .sin()
            .max(0.0)
            * 180.0;
        let lamps = if *is_occupied { 420.0 } else { 0.0 };
        rounded(sun + lamps + dice.unit() * 4.0, 1.0)
    };
    occupied.iter().enumerate().map(step).collect()
}

/// Values between which each occupied second begins an event with a chance of one in `apart`, of
/// three to `longest` seconds more.
fn with_events(
    dice: &mut Random,
    occupied: &[bool],
    (apart, longest): (u64, u64),
    mut value: impl FnMut(&mut Random, bool, Option<f64>) -> f64,
) -> Vec<f64> {
    // Seconds left of the event, and its strength from 0 to 1.
    let (mut left, mut strength) = (0, 0.0);
    let step = |is_occupied: &bool| {
        if left == 0 && *is_occupied && dice.below(apart) == 0 {
            (left, strength) = (3 + dice.below(longest), dice.unit());
        }
        let event = (left > 0).then_some(strength);
        left -= left.min(1);
        value(dice, *is_occupied, event)
    };
    occupied.iter().map(step).collect()
}

fn heard(dice: &mut Random, occupied: &[bool]) -> Vec<f64> {
    with_events(dice, occupied, (600, 90), |dice, is_occupied, event| {
        let talk = if is_occupied { 6.0 } else { 0.0 };
        let loud = event.map_or(0.0, |strength| 15.0 + strength * 40.0);
        rounded(32.0 + dice.unit() * 3.0 + dice.unit() * (talk + loud), 10.0)
    })
}

fn moved(dice: &mut Random, occupied: &[bool]) -> Vec<f64> {
    with_events(dice, occupied, (1_800, 240), |dice, _, event| {
        let hard = event.map_or(0.004, |strength| 0.2 + strength * 2.0);
        rounded(1.0 + (dice.unit() - 0.5) * hard, 1000.0)
    })
}
