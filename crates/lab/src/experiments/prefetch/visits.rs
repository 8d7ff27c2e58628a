//! Model of visits: overview, drill-down, panning; and the tiles that they request.
//!
//! A visit starts with the whole week of a sensor. Then, until it ends, the visitor
//!
//! - zooms in by 2, 4 or 8 (55 %): to a salient part of the plot (7 of 10), which is a sixteenth of
//!   the view, weighted by the square of the height of its band from the smallest to the largest
//!   value; otherwise anywhere in the view;
//! - moves half a view or a whole one to either side (22 %);
//! - zooms out by 2, 4 or 8 (15 %);
//! - looks at another sensor of the same room at the same time (8 %).
//!
//! A view is drawn with 512 to 1,024 buckets, so with two or three tiles. Tiles that are on the
//! page already are not requested again. The model is independent of the policies: it uses the
//! minimum and maximum visible in a plot, and no deviation.

use super::sensors::{BEGIN, Channel, FIELDS, SECONDS};
use crate::harness::{Random, real, signed, size, unsigned, whole};
use headwater_types::TILE_BUCKETS;
use std::collections::HashSet;

/// The finest and the coarsest level of requested tiles.
pub(super) const FINEST: i32 = 0;
pub(super) const COARSEST: i32 = 11;
/// Parts of a view that may draw the eye.
pub(super) const PARTS: usize = 16;
/// The narrowest view in seconds.
pub(super) const NARROWEST: f64 = 512.0;

/// A tile of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Tile {
    pub(super) channel: usize,
    pub(super) level: i32,
    pub(super) offset: i64,
}

impl Tile {
    /// Seconds of the week that it is of.
    pub(super) fn seconds(&self) -> std::ops::Range<usize> {
        let width = TILE_BUCKETS << self.level;
        let first = self.offset * width - BEGIN;
        let within = |second: i64| size(second.clamp(0, signed(SECONDS)));
        within(first)..within(first + width)
    }
}

/// All tiles of a channel at a level.
pub(super) fn tiles_of(channel: usize, level: i32) -> impl Iterator<Item = Tile> {
    let width = TILE_BUCKETS << level;
    let last = BEGIN + signed(SECONDS) - 1;
    (BEGIN.div_euclid(width)..=last.div_euclid(width)).map(move |offset| Tile {
        channel,
        level,
        offset,
    })
}

/// Smallest and largest value of each span of 64 seconds, from which a plot is drawn.
struct MinMaxSpans(Vec<Vec<(f64, f64)>>);

const BAND: usize = 64;

impl MinMaxSpans {
    fn of(channels: &[Channel]) -> MinMaxSpans {
        let band = |values: &[f64]| {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (least, most)
        };
        let bands = channels
            .iter()
            .map(|c| c.values.chunks(BAND).map(band).collect());
        MinMaxSpans(bands.collect())
    }

    /// Height of the band over some seconds.
    fn height(&self, channel: usize, from: f64, to: f64) -> f64 {
        let second = |at: f64| size(whole(at));
        let (from, to) = (second(from) / BAND, second(to).div_ceil(BAND));
        let bands = self.0.get(channel).into_iter().flatten();
        let bands = bands.take(to).skip(from);
        let (least, most) = bands.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (c, d)| {
            (a.min(*c), b.max(*d))
        });
        (most - least).max(0.0)
    }
}

/// The view on the screen: a channel, the first second and the number of seconds.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) channel: usize,
    pub(super) first: f64,
    pub(super) seconds: f64,
}

impl View {
    /// The whole week of a channel.
    pub(super) fn overview(channel: usize) -> View {
        View {
            channel,
            first: 0.0,
            seconds: real(SECONDS),
        }
    }

    /// The nearest view inside of the week.
    pub(super) fn within(self) -> View {
        let seconds = self.seconds.clamp(NARROWEST, real(SECONDS));
        View {
            first: self.first.clamp(0.0, real(SECONDS) - seconds),
            seconds,
            ..self
        }
    }

    /// Tiles that it is drawn from, with at least `points` buckets, and less than twice as many.
    pub(super) fn tiles(&self, points: i64) -> impl Iterator<Item = Tile> + use<> {
        let level = whole((self.seconds / real(points)).log2().floor());
        let level = i32::try_from(level).unwrap_or(COARSEST);
        let level = level.clamp(FINEST, COARSEST);
        let width = TILE_BUCKETS << level;
        let first = BEGIN + whole(self.first);
        let last = BEGIN + whole(self.first + self.seconds).min(signed(SECONDS)) - 1;
        let channel = self.channel;
        (first.div_euclid(width)..=last.div_euclid(width)).map(move |offset| Tile {
            channel,
            level,
            offset,
        })
    }

    fn next(self, bands: &MinMaxSpans, dice: &mut Random) -> View {
        let times = f64::from(1u32 << (1 + dice.below(3)));
        let side = if dice.below(2) == 0 { 1.0 } else { -1.0 };
        let moved = match dice.below(100) {
            0..=54 => {
                let middle = self.focus(bands, dice);
                let seconds = self.seconds / times;
                View {
                    first: middle - seconds / 2.0,
                    seconds,
                    ..self
                }
            }
            55..=76 => {
                let part = if dice.below(2) == 0 { 0.5 } else { 1.0 };
                View {
                    first: self.first + side * part * self.seconds,
                    ..self
                }
            }
            77..=91 => View {
                first: self.first - self.seconds * (times - 1.0) / 2.0,
                seconds: self.seconds * times,
                ..self
            },
            _ => {
                let fields = FIELDS.len();
                let other = (self.channel + 1 + size(dice.below(unsigned(fields) - 1))) % fields;
                View {
                    channel: self.channel / fields * fields + other,
                    ..self
                }
            }
        };
        moved.within()
    }

    /// The second that is looked at more closely.
    fn focus(&self, bands: &MinMaxSpans, dice: &mut Random) -> f64 {
        let part = self.seconds / real(PARTS);
        if dice.below(10) >= 7 {
            return self.first + dice.unit() * self.seconds;
        }
        let heights = (0..PARTS).map(|n| {
            let from = self.first + part * real(n);
            bands.height(self.channel, from, from + part).powi(2)
        });
        let heights: Vec<f64> = heights.collect();
        let mut left = dice.unit() * heights.iter().sum::<f64>();
        let found = heights.iter().position(|height| {
            left -= height;
            left <= 0.0
        });
        self.first + part * (real(found.unwrap_or(PARTS / 2)) + dice.unit())
    }
}

/// Requests of a visit, in order, by a seed.
fn visit(channels: usize, bands: &MinMaxSpans, seed: u64) -> Vec<Tile> {
    let mut dice = Random::new(seed);
    let mut view = View::overview(size(dice.below(unsigned(channels))));
    let mut seen = HashSet::new();
    let mut asked = Vec::new();
    for _ in 0..12 + dice.below(24) {
        asked.extend(view.tiles(TILE_BUCKETS).filter(|tile| seen.insert(*tile)));
        view = view.next(bands, &mut dice);
    }
    asked
}

/// Visits by seeds from 1 on.
pub(super) fn visits(channels: &[Channel], count: u64) -> Vec<Vec<Tile>> {
    let bands = MinMaxSpans::of(channels);
    (1..=count)
        .map(|seed| visit(channels.len(), &bands, seed))
        .collect()
}
