//! Scores that order rows of the same rank.
//!
//! Concurrency: pure.

use headwater_engine::LeafFacts;

/// Criterion of the order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScoreBy {
    /// Deviation of the row's values, relative to the deviation of the stream: otherwise one noisy
    /// stream would take the whole share.
    #[default]
    Deviation,
    /// Spread of their values from the smallest to the largest, relative to their stream's.
    Spread,
    /// Number of events.
    Events,
    /// Number of reads that missed something beside them; then deviation.
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
