//! Rounds and events that are made up.

use headwater_watch::{Bounds, Change, Key, Match, Persisted, Position, Round, Step};
use std::collections::BTreeMap;

pub(crate) const BOUNDS: Bounds = Bounds {
    within_ns: 10,
    corrections_ns: 20,
    absence: false,
};

pub(crate) fn match_of(partition: &str, first_ns: i64, last_ns: i64, row: &str) -> Match {
    Match {
        key: Key {
            partition: partition.to_owned(),
            first: Position {
                time_ns: first_ns,
                skip: 0,
            },
        },
        last_ns,
        decided_ns: last_ns,
        next: Position {
            time_ns: last_ns,
            skip: 1,
        },
        row: row.to_owned(),
    }
}

pub(crate) fn round(watermark_ns: i64, matches: Vec<Match>) -> Round {
    Round {
        now_ns: watermark_ns,
        watermark_ns,
        is_quiet: false,
        matches,
        newest: BTreeMap::new(),
    }
}

pub(crate) fn step(kept: &Persisted, round: &Round) -> Step {
    kept.state.step(BOUNDS, round).unwrap()
}

/// Some events of a watch, written down nowhere.
pub(crate) fn reported_events(count: i64) -> Persisted {
    let mut kept = Persisted::new(1, 0);
    for at in 0..count {
        let begin = kept.state.settled_ns();
        let all = (begin..=at).map(|at| match_of("[]", at, at, "{}"));
        let step = step(&kept, &round(at, all.collect()));
        kept.apply(&Change::Step(step));
    }
    kept
}
