//! The RESPAWN paper's policies (section IV-D) over tiles: the tiles of the edge at the cloud after
//! a number of copies.

use super::sensors::Channel;
use super::visits::{COARSEST, FINEST, Tile, tiles_of};
use crate::harness::real;
use std::collections::HashSet;

/// A policy of the paper; for deviation also a variant relative to the deviation of the whole
/// channel, like ours: otherwise the channel with the largest numbers would take the whole share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    None,
    Periodic,
    Deviation,
    Both,
    RelativeDeviation,
    RelativeBoth,
}

impl Policy {
    pub(super) const ALL: [(Policy, &'static str); 6] = [
        (Policy::None, "none"),
        (Policy::Periodic, "periodic"),
        (Policy::Deviation, "deviation"),
        (Policy::Both, "both, in turn"),
        (Policy::RelativeDeviation, "relative deviation"),
        (
            Policy::RelativeBoth,
            "periodic and relative deviation, in turn",
        ),
    ];
}

/// Sums of a channel's values and of their squares up to each second, for deviations of tiles.
struct Sums(Vec<(f64, f64)>);

impl Sums {
    fn of(channel: &Channel) -> Sums {
        let mut sums = vec![(0.0, 0.0)];
        let mut sum = (0.0, 0.0);
        // Relative to the first value, to avoid rounding errors.
        let around = channel.values.first().copied().unwrap_or(0.0);
        for value in &channel.values {
            let off = value - around;
            sum = (sum.0 + off, sum.1 + off * off);
            sums.push(sum);
        }
        Sums(sums)
    }

    fn deviation(&self, tile: &Tile) -> f64 {
        let seconds = tile.seconds();
        let count = real(seconds.len());
        let up_to = |second: usize| self.0.get(second).map_or((0.0, 0.0), |sums| *sums);
        let (from, to) = (up_to(seconds.start), up_to(seconds.end));
        let mean = (to.0 - from.0) / count;
        ((to.1 - from.1) / count - mean * mean).max(0.0).sqrt()
    }
}

/// All tiles: coarse before fine, and the highest deviation first.
pub(super) struct Tiles {
    coarse_first: Vec<Tile>,
    by_deviation: Vec<Tile>,
    by_relative: Vec<Tile>,
}

impl Tiles {
    pub(super) fn of(channels: &[Channel]) -> Tiles {
        let levels = (FINEST..=COARSEST).rev();
        let all = levels.flat_map(|l| (0..channels.len()).flat_map(move |c| tiles_of(c, l)));
        let coarse_first: Vec<Tile> = all.collect();
        let sums: Vec<Sums> = channels.iter().map(Sums::of).collect();
        let by = |of: &dyn Fn(&Tile) -> f64| {
            let mut scored: Vec<(f64, Tile)> = coarse_first.iter().map(|t| (of(t), *t)).collect();
            scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            scored.into_iter().map(|(_, tile)| tile).collect()
        };
        let deviation = |tile: &Tile| {
            let sums = sums.get(tile.channel);
            sums.map_or(0.0, |sums| sums.deviation(tile))
        };
        let whole = |channel| tiles_of(channel, COARSEST).next();
        let of_channels: Vec<f64> = (0..channels.len())
            .map(|channel| whole(channel).map_or(1.0, |tile| deviation(&tile)))
            .collect();
        Tiles {
            by_deviation: by(&deviation),
            by_relative: by(&|tile| {
                deviation(tile) / of_channels.get(tile.channel).copied().unwrap_or(1.0)
            }),
            coarse_first,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.coarse_first.len()
    }

    pub(super) fn all(&self) -> &[Tile] {
        &self.coarse_first
    }

    /// The first `count` tiles by a policy.
    pub(super) fn copied(&self, policy: Policy, count: usize) -> HashSet<Tile> {
        let coarse = &self.coarse_first;
        let in_turn = |high| coarse.iter().zip(high).flat_map(|(a, b)| [a, b]);
        let order: Box<dyn Iterator<Item = &Tile>> = match policy {
            Policy::None => return HashSet::new(),
            Policy::Periodic => Box::new(coarse.iter()),
            Policy::Deviation => Box::new(self.by_deviation.iter()),
            Policy::RelativeDeviation => Box::new(self.by_relative.iter()),
            Policy::Both => Box::new(in_turn(&self.by_deviation)),
            Policy::RelativeBoth => Box::new(in_turn(&self.by_relative)),
        };
        let mut copied = HashSet::new();
        for tile in order {
            if copied.len() == count {
                break;
            }
            copied.insert(*tile);
        }
        copied
    }
}
