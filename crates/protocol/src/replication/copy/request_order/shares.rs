//! Shares of the traffic: a copy's requests are filled from the shares in turn, by weight.
//!
//! The position of a share is the number of bytes requested from it, divided by its weight; the
//! next range is taken from the share with the lowest position. A share without ranges to request
//! resumes at the position of the others: unused bytes are not saved.
//!
//! Invariants: no share starves: the weighted bytes of two shares that always have ranges to
//! request differ by at most one range of each, weighted. Concurrency: plain data.

use headwater_engine::Reason;

/// Resolution of the division of bytes by weights.
const SCALE: u64 = 1 << 10;

/// Share by which a range or a state travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficShare {
    /// States of the source.
    States,
    /// Ranges that tiles at the levels of the rules need, coarse before fine.
    Periodic,
    /// Rows that a score predicts to be read first.
    Proactive,
    /// Ranges that readers requested, and pinned ones.
    Requested,
    /// The other subscribed rows, in their order.
    Backlog,
}

impl TrafficShare {
    /// All of them, in their order.
    pub const ALL: [TrafficShare; 5] = [
        TrafficShare::States,
        TrafficShare::Periodic,
        TrafficShare::Proactive,
        TrafficShare::Requested,
        TrafficShare::Backlog,
    ];

    /// The share of a reason, where no score brings the range forward.
    #[must_use]
    pub fn of(reason: Reason) -> TrafficShare {
        match reason {
            Reason::Summaries => TrafficShare::Periodic,
            Reason::Requested | Reason::Pinned => TrafficShare::Requested,
            Reason::Rows => TrafficShare::Backlog,
            Reason::Ahead => TrafficShare::Proactive,
        }
    }
}

/// Weight of each share while it has something; 0 counts as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Weight of states.
    pub states: u32,
    /// Weight of ranges that tiles need.
    pub periodic: u32,
    /// Weight of rows by score.
    pub proactive: u32,
    /// Weight of requested and pinned ranges.
    pub requested: u32,
    /// Weight of the other rows.
    pub backlog: u32,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights {
            states: 8,
            periodic: 8,
            proactive: 2,
            requested: 8,
            backlog: 4,
        }
    }
}

impl Weights {
    fn of(&self, share: TrafficShare) -> u64 {
        let weight = match share {
            TrafficShare::States => self.states,
            TrafficShare::Periodic => self.periodic,
            TrafficShare::Proactive => self.proactive,
            TrafficShare::Requested => self.requested,
            TrafficShare::Backlog => self.backlog,
        };
        u64::from(weight.max(1))
    }
}

/// Something for each share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForEach<T>([T; TrafficShare::ALL.len()]);

impl<T: Default + Copy> ForEach<T> {
    pub(crate) fn get(&self, share: TrafficShare) -> T {
        let mut all = TrafficShare::ALL.iter().zip(&self.0);
        let found = all.find(|(of, _)| **of == share);
        found.map_or_else(T::default, |(_, value)| *value)
    }

    pub(crate) fn change(&mut self, share: TrafficShare, change: impl FnOnce(&mut T)) {
        let mut all = TrafficShare::ALL.iter().zip(&mut self.0);
        if let Some((_, value)) = all.find(|(of, _)| **of == share) {
            change(value);
        }
    }
}

/// The turns of the shares.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    weights: Weights,
    /// Position of each share.
    positions: ForEach<u64>,
    /// Shares that had something at the last turn.
    was_ready: ForEach<bool>,
    /// Position of the share that was served last.
    position: u64,
}

impl Turns {
    pub(crate) fn set_weights(&mut self, weights: Weights) {
        self.weights = weights;
    }

    /// The next share to serve, of the shares for which `is_ready` is true.
    pub(crate) fn next(&mut self, is_ready: impl Fn(TrafficShare) -> bool) -> Option<TrafficShare> {
        let now = self.position;
        for share in TrafficShare::ALL {
            let is_ready = is_ready(share);
            if is_ready && !self.was_ready.get(share) {
                self.positions.change(share, |gone| *gone = now.max(*gone));
            }
            self.was_ready.change(share, |was| *was = is_ready);
        }
        let ready = TrafficShare::ALL
            .into_iter()
            .filter(|s| self.was_ready.get(*s));
        let next = ready.min_by_key(|share| self.positions.get(*share))?;
        self.position = self.positions.get(next);
        Some(next)
    }

    fn by_weight(&self, share: TrafficShare, bytes: u64) -> u64 {
        let by_weight = bytes.max(1).saturating_mul(SCALE) / self.weights.of(share);
        by_weight.max(1)
    }

    /// Charges requested bytes to a share.
    pub(crate) fn charge(&mut self, share: TrafficShare, bytes: u64) {
        let by_weight = self.by_weight(share, bytes);
        self.positions
            .change(share, |gone| *gone = gone.saturating_add(by_weight));
    }

    /// Credits bytes that were not granted, as if they had not been requested.
    pub(crate) fn refund(&mut self, share: TrafficShare, bytes: u64) {
        let by_weight = self.by_weight(share, bytes);
        self.positions
            .change(share, |gone| *gone = gone.saturating_sub(by_weight));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_get_bytes_by_weight_while_they_have_something(
            weights in prop::array::uniform5(1u32..20),
            turns in prop::collection::vec((prop::array::uniform5(any::<bool>()), 1u64..5000), 1..300),
        ) {
            let [states, periodic, proactive, requested, backlog] = weights;
            let weights = Weights { states, periodic, proactive, requested, backlog };
            let mut all = Turns::default();
            all.set_weights(weights);
            // For each pair of shares: bytes of each since both have always been ready.
            let mut since = vec![vec![(0u64, 0u64); 5]; 5];
            for (ready, bytes) in turns {
                let index = |share: TrafficShare| TrafficShare::ALL.iter().position(|s| *s == share).unwrap();
                let next = all.next(|share| ready[index(share)]);
                prop_assert_eq!(next.is_some(), ready.contains(&true));
                let Some(next) = next else { continue };
                prop_assert!(ready[index(next)]);
                all.charge(next, bytes);
                for a in 0..5 {
                    for b in 0..5 {
                        let pair = &mut since[a][b];
                        if !(ready[a] && ready[b]) {
                            *pair = (0, 0);
                            continue;
                        }
                        pair.0 += if a == index(next) { bytes } else { 0 };
                        pair.1 += if b == index(next) { bytes } else { 0 };
                        let (of_a, of_b) = (weights.of(TrafficShare::ALL[a]), weights.of(TrafficShare::ALL[b]));
                        // The largest range of each, by weight, and the error of rounding.
                        let most = 2 * (5000 / of_a + 5000 / of_b + 10);
                        prop_assert!((pair.0 / of_a).abs_diff(pair.1 / of_b) <= most);
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_share_did_not_need_it_has_not_saved() {
        let mut turns = Turns::default();
        for _ in 0..1000 {
            assert_eq!(
                turns.next(|s| s == TrafficShare::Backlog),
                Some(TrafficShare::Backlog)
            );
            turns.charge(TrafficShare::Backlog, 1000);
        }
        let both = |s| matches!(s, TrafficShare::Backlog | TrafficShare::Requested);
        let mut asked = 0;
        for _ in 0..300 {
            let next = turns.next(both).unwrap();
            turns.charge(next, 1000);
            asked += u32::from(next == TrafficShare::Requested);
        }
        assert!((199..=201).contains(&asked), "{asked} of 300");
    }
}
