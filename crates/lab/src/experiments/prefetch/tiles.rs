//! The RESPAWN paper's policies (section IV-D) over tiles: the tiles of the edge at the cloud after
//! a number of copies. Ranked over all channels together, or for each channel by itself.

use super::events::Sums;
use super::sensors::Channel;
use super::visits::{COARSEST, FINEST, Tile, tiles_of};
use crate::harness::{real, size, whole};
use std::collections::{BTreeSet, HashSet};

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

    /// Whether deviations are relative to those of their channels: of one channel the order is the
    /// same as without.
    pub(super) fn is_relative(self) -> bool {
        matches!(self, Policy::RelativeDeviation | Policy::RelativeBoth)
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
            sums.map_or(0.0, |sums| sums.deviation(tile.seconds()))
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

    /// The first tiles by a policy, a share of all channels together.
    pub(super) fn copied(&self, policy: Policy, share: f64) -> HashSet<Tile> {
        self.first(policy, share, |_| true)
    }

    /// The first tiles by a policy, the same share of each channel: the paper decides for each
    /// channel by itself (section III-D, mechanics of migration).
    pub(super) fn copied_by_channel(&self, policy: Policy, share: f64) -> HashSet<Tile> {
        let channels: BTreeSet<usize> = self.coarse_first.iter().map(|t| t.channel).collect();
        let of = |channel| self.first(policy, share, move |tile| tile.channel == channel);
        channels.into_iter().flat_map(of).collect()
    }

    /// The first tiles by a policy, a share of those that are let in.
    fn first(
        &self,
        policy: Policy,
        share: f64,
        is_let_in: impl Fn(&Tile) -> bool,
    ) -> HashSet<Tile> {
        let of = |all: &[Tile]| -> Vec<Tile> {
            let all = all.iter().filter(|tile| is_let_in(tile));
            all.copied().collect()
        };
        let coarse = of(&self.coarse_first);
        let count = size(whole(real(coarse.len()) * share));
        let in_turn = |high: Vec<Tile>| -> Vec<Tile> {
            let pairs = coarse.iter().zip(high);
            pairs.flat_map(|(a, b)| [*a, b]).collect()
        };
        let order = match policy {
            Policy::None => return HashSet::new(),
            Policy::Periodic => coarse,
            Policy::Deviation => of(&self.by_deviation),
            Policy::RelativeDeviation => of(&self.by_relative),
            Policy::Both => in_turn(of(&self.by_deviation)),
            Policy::RelativeBoth => in_turn(of(&self.by_relative)),
        };
        let mut copied = HashSet::new();
        for tile in order {
            if copied.len() == count {
                break;
            }
            copied.insert(tile);
        }
        copied
    }
}
