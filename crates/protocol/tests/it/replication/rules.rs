//! Rules of copies, drawn by chance.

use crate::replication::compare::LEVEL;
use headwater_engine::{ReplicationRule, ReplicationRules, StreamShare};
use headwater_testing::Dice;
use headwater_types::Level;

/// A rule for the streams of a table, or for one of them.
pub(crate) fn rule(
    table: &str,
    id: Option<u64>,
    want: StreamShare,
    priority: u8,
) -> ReplicationRule {
    let tags = id.iter().map(|id| ("id".to_owned(), id.to_string()));
    ReplicationRule {
        table: Some(table.into()),
        tags: tags.collect(),
        want,
        priority,
    }
}

/// Rules of a copy that want tiles from the level on, of every stream.
pub(crate) fn some_rules(dice: &mut Dice) -> ReplicationRules {
    let summaries = StreamShare::Summaries(Level::clamped(LEVEL));
    match dice.below(4) {
        0 => ReplicationRules::default(),
        1 => ReplicationRules::from(summaries),
        2 => ReplicationRules::from(summaries).with_ahead_bytes(dice.below(20_000)),
        _ => {
            let finer = StreamShare::Summaries(Level::clamped(LEVEL - 2));
            let rules = vec![
                rule("m", Some(0), StreamShare::Full, 2),
                rule("m", Some(dice.below(3)), finer, 7),
            ];
            ReplicationRules::new(rules, summaries).unwrap()
        }
    }
}
