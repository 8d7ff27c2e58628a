//! Prefetch policies: the participating shares, and their weights.
//!
//! Four of them are the migration policies of the RESPAWN paper (section IV-D), applied to ranges
//! instead of tiles; shares by weight are ours.
//!
//! Concurrency: plain data.

use crate::replication::copy::request_order::shares::{TrafficShare, Weights};

/// Order of prefetch. Ranges that readers request, pins and states travel under every policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// No prefetch.
    None,
    /// Ranges that tiles need, coarse before fine; then the subscribed rows, in their order.
    Periodic,
    /// Ranges that tiles need, since scores are computed from tiles; then rows, the highest score
    /// first.
    Deviation,
    /// The former two in turn, a byte of one for a byte of the other.
    Both,
    /// All shares at once, each by its weight.
    #[default]
    Shares,
}

impl Policy {
    /// True if a share may request ranges; `lacks_summaries`: a range that tiles need is missing.
    pub(crate) fn allows(self, share: TrafficShare, lacks_summaries: bool) -> bool {
        match share {
            TrafficShare::States | TrafficShare::Requested => true,
            TrafficShare::Periodic => self != Policy::None,
            TrafficShare::Proactive => match self {
                Policy::None | Policy::Periodic => false,
                Policy::Deviation => !lacks_summaries,
                Policy::Both | Policy::Shares => true,
            },
            TrafficShare::Backlog => match self {
                Policy::None | Policy::Deviation => false,
                Policy::Periodic | Policy::Both => !lacks_summaries,
                Policy::Shares => true,
            },
        }
    }

    /// The weights under it, where `weights` were set.
    pub(crate) fn weights(self, weights: Weights) -> Weights {
        match self {
            Policy::Shares => weights,
            Policy::None | Policy::Periodic | Policy::Deviation | Policy::Both => Weights {
                periodic: 1,
                proactive: 1,
                backlog: 1,
                states: 8,
                requested: 8,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_lets_the_shares_that_it_is_named_for() {
        let of = |policy: Policy, lacks_summaries| {
            let lets = |share: &TrafficShare| policy.allows(*share, lacks_summaries);
            TrafficShare::ALL
                .into_iter()
                .filter(lets)
                .collect::<Vec<_>>()
        };
        let always = [TrafficShare::States, TrafficShare::Requested];
        for lacks in [true, false] {
            assert_eq!(of(Policy::None, lacks), always);
            assert_eq!(of(Policy::Shares, lacks), TrafficShare::ALL);
        }
        let with = |more: &[TrafficShare]| {
            let all = TrafficShare::ALL.into_iter();
            let found = all.filter(|s| always.contains(s) || more.contains(s));
            found.collect::<Vec<_>>()
        };
        let (periodic, proactive) = (TrafficShare::Periodic, TrafficShare::Proactive);
        assert_eq!(of(Policy::Periodic, true), with(&[periodic]));
        assert_eq!(
            of(Policy::Periodic, false),
            with(&[periodic, TrafficShare::Backlog])
        );
        assert_eq!(of(Policy::Deviation, true), with(&[periodic]));
        assert_eq!(of(Policy::Deviation, false), with(&[periodic, proactive]));
        assert_eq!(of(Policy::Both, true), with(&[periodic, proactive]));
        assert_eq!(of(Policy::Both, false), TrafficShare::ALL);
    }
}
