//! By what rows go before others that are wanted as much.
//!
//! Concurrency: pure.

use headwater_engine::LeafFacts;

/// What says which rows are looked at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScoreBy {
    /// How much their values deviate, over how much those of their stream do: else one noisy
    /// stream would take all.
    #[default]
    Deviation,
    /// From the smallest to the largest of their values, over the same of their stream.
    Spread,
    /// How many they are.
    Events,
    /// How often readers missed something beside them; then by deviation.
    Misses,
}

/// A number as it is, up to 2^32.
fn counted(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

/// The score of a leaf: the higher, the sooner.
#[must_use]
pub fn score(by: ScoreBy, facts: &LeafFacts) -> f64 {
    match by {
        ScoreBy::Deviation => facts.deviation,
        ScoreBy::Spread => facts.spread,
        ScoreBy::Events => counted(facts.events),
        ScoreBy::Misses => counted(facts.misses) + facts.deviation / (1.0 + facts.deviation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_score_prefers_what_it_is_named_for() {
        let quiet = LeafFacts {
            events: 2048,
            deviation: 0.5,
            spread: 0.9,
            misses: 3,
        };
        let wild = LeafFacts {
            events: 16,
            deviation: 1.5,
            spread: 0.7,
            misses: 2,
        };
        let prefers_wild = |by| score(by, &wild) > score(by, &quiet);
        assert!(prefers_wild(ScoreBy::Deviation));
        for by in [ScoreBy::Spread, ScoreBy::Events, ScoreBy::Misses] {
            assert!(!prefers_wild(by), "{by:?}");
        }
    }
}
