//! Subscription of a copy to a database, and limits of the data that may leave it: rules by table
//! and tags, and pins, which subscribe to all rows of a stretch of time regardless of the rules.
//!
//! Invariants: one rule decides for each stream, the first match. "Nothing" applies to whole tables
//! only: a segment's footers name all of its streams with their newest rows, and small streams
//! share leaves, so that one stream cannot be withheld beside others. Concurrency: plain data.
//! Failure: rules with "nothing" for a part of a table are refused.

mod of_state;
mod pin;

pub(crate) use of_state::{Outcome, Subscription};
pub use pin::Pin;

use crate::{Error, Result};
use headwater_types::Level;
use std::time::Duration;

/// Share of a stream that a copy receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamShare {
    /// No data at all, not even its name; for whole tables.
    Nothing,
    /// The ranges that tiles at this level and above need.
    Summaries(Level),
    /// All rows.
    Full,
}

impl From<Level> for StreamShare {
    /// [`Level::MIN`] means all rows.
    fn from(level: Level) -> StreamShare {
        match level {
            Level::MIN => StreamShare::Full,
            level => StreamShare::Summaries(level),
        }
    }
}

/// Subscription to some streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationRule {
    /// The table; `None` = every table.
    pub table: Option<String>,
    /// Tags that a stream must have, all of them; empty = every stream.
    pub tags: Vec<(String, String)>,
    /// The share that the copy receives.
    pub want: StreamShare,
    /// Streams of higher priority go first, among ranges of the same reason.
    pub priority: u8,
}

impl ReplicationRule {
    fn is_of(&self, table: &str) -> bool {
        self.table.as_deref().is_none_or(|of| of == table)
    }
}

/// Subscription to a database, or limits of the data that may leave it: the first matching rule
/// decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationRules {
    rules: Vec<ReplicationRule>,
    otherwise: StreamShare,
    ahead_bytes: u64,
    retained_for: Duration,
}

impl Default for ReplicationRules {
    /// Subscribes to everything.
    fn default() -> ReplicationRules {
        ReplicationRules::from(StreamShare::Full)
    }
}

impl From<StreamShare> for ReplicationRules {
    fn from(otherwise: StreamShare) -> ReplicationRules {
        ReplicationRules {
            rules: Vec::new(),
            otherwise,
            ahead_bytes: 0,
            retained_for: Duration::ZERO,
        }
    }
}

impl From<Level> for ReplicationRules {
    fn from(level: Level) -> ReplicationRules {
        ReplicationRules::from(StreamShare::from(level))
    }
}

impl ReplicationRules {
    /// Rules, the first of which that matches a stream decides, and the share without a match.
    ///
    /// ```
    /// use headwater_engine::{ReplicationRule, ReplicationRules, StreamShare};
    /// let rule = |table: &str, tags: &[(&str, &str)], want| ReplicationRule {
    ///     table: Some(table.into()),
    ///     tags: tags.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
    ///     want,
    ///     priority: 0,
    /// };
    /// let secret = rule("payroll", &[], StreamShare::Nothing);
    /// assert!(ReplicationRules::new(vec![secret], StreamShare::Full)?.withholds("payroll"));
    /// let part = rule("pumps", &[("site", "4")], StreamShare::Nothing);
    /// assert!(ReplicationRules::new(vec![part], StreamShare::Full).is_err());
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid` where some streams of a table are withheld and others are not.
    pub fn new(rules: Vec<ReplicationRule>, otherwise: StreamShare) -> Result<ReplicationRules> {
        let rules = ReplicationRules {
            rules,
            ..ReplicationRules::from(otherwise)
        };
        // Not a valid table name: it represents tables without a rule.
        let named = rules.rules.iter().filter_map(|r| r.table.as_deref());
        for table in named.chain([""]) {
            rules.check(table)?;
        }
        Ok(rules)
    }

    /// Sets the bytes of rows that are prefetched for streams with summaries only, the likeliest
    /// reads first. 0 by default.
    #[must_use]
    pub fn with_ahead_bytes(self, ahead_bytes: u64) -> ReplicationRules {
        ReplicationRules {
            ahead_bytes,
            ..self
        }
    }

    /// Sets the additional time for which data is retained that the source removes because of its
    /// age, by retention or aging. Zero by default: then a copy has the same data as its source.
    /// [`Duration::MAX`] retains it for ever.
    #[must_use]
    pub fn keeping(self, retained_for: Duration) -> ReplicationRules {
        ReplicationRules {
            retained_for,
            ..self
        }
    }

    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes
    }

    fn check(&self, table: &str) -> Result<()> {
        let fitting = self.rules.iter().filter(|r| r.is_of(table));
        let parts = fitting.take_while(|r| !r.tags.is_empty());
        let mut parts = parts.map(|r| r.want);
        let whole = self.of_table(table).want;
        let is_divided = match whole {
            StreamShare::Nothing => parts.any(|want| want != StreamShare::Nothing),
            StreamShare::Summaries(_) | StreamShare::Full => {
                parts.any(|want| want == StreamShare::Nothing)
            }
        };
        match is_divided {
            false => Ok(()),
            true => Err(Error::invalid(format!(
                "the rules exclude some streams of {} and include others: only whole tables can be excluded, by a \"none\" rule before every rule for some of their streams, since the streams of a table share metadata",
                match table {
                    "" => "tables that no rule names".to_owned(),
                    table => format!("table `{table}`"),
                }
            ))),
        }
    }

    /// The outcome for a table where no rule for some of its streams matches.
    pub(crate) fn of_table(&self, table: &str) -> Outcome {
        let mut whole = self.rules.iter().filter(|r| r.tags.is_empty());
        self.outcome(whole.find(|r| r.is_of(table)))
    }

    /// The outcome for a stream.
    pub(crate) fn of_stream(&self, table: &str, tags: &[(String, String)]) -> Outcome {
        let mut fitting = self.rules.iter().filter(|r| r.is_of(table));
        self.outcome(fitting.find(|r| r.tags.iter().all(|tag| tags.contains(tag))))
    }

    fn outcome(&self, rule: Option<&ReplicationRule>) -> Outcome {
        Outcome {
            want: rule.map_or(self.otherwise, |r| r.want),
            priority: rule.map_or(0, |r| r.priority),
        }
    }

    /// True when some rule applies to a part of the streams of a table.
    pub(crate) fn looks_at_tags(&self) -> bool {
        self.rules.iter().any(|r| !r.tags.is_empty())
    }

    /// True when a table is withheld: its data is not subscribed, or may not leave.
    #[must_use]
    pub fn withholds(&self, table: &str) -> bool {
        self.of_table(table).want == StreamShare::Nothing
    }

    /// True when no existing or future table is withheld.
    #[must_use]
    pub fn withhold_nothing(&self) -> bool {
        let of_rules = self.rules.iter().map(|r| r.want);
        !of_rules
            .chain([self.otherwise])
            .any(|w| w == StreamShare::Nothing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rule(table: Option<&str>, tag: Option<&str>, want: StreamShare) -> ReplicationRule {
        let tags = tag.iter().map(|value| ("site".into(), (*value).into()));
        ReplicationRule {
            table: table.map(str::to_owned),
            tags: tags.collect(),
            want,
            priority: 3,
        }
    }

    #[test]
    fn the_first_rule_that_fits_a_stream_decides() {
        let summaries = StreamShare::Summaries(Level::clamped(8));
        let rules = vec![
            rule(Some("secret"), None, StreamShare::Nothing),
            rule(None, Some("north"), StreamShare::Full),
            rule(Some("pumps"), None, summaries),
        ];
        let rules = ReplicationRules::new(rules, StreamShare::Nothing);
        // Streams of the north of every table, and no data of the others.
        assert_eq!(rules.unwrap_err().code(), "invalid");
        let rules = vec![
            rule(Some("secret"), None, StreamShare::Nothing),
            rule(None, Some("north"), StreamShare::Full),
            rule(Some("pumps"), None, summaries),
        ];
        let rules = ReplicationRules::new(rules, summaries).unwrap();
        let of = |table: &str, site: &str| {
            let tags = [("id".into(), "7".into()), ("site".into(), site.into())];
            rules.of_stream(table, &tags)
        };
        assert_eq!(of("secret", "north").want, StreamShare::Nothing);
        assert_eq!(of("pumps", "north").want, StreamShare::Full);
        assert_eq!(of("pumps", "south").want, summaries);
        assert_eq!(
            (of("x", "south").want, of("x", "south").priority),
            (summaries, 0)
        );
        assert!(rules.withholds("secret") && !rules.withholds("pumps"));
        assert!(!rules.withhold_nothing() && ReplicationRules::default().withhold_nothing());
    }

    #[test]
    fn nothing_is_said_of_whole_tables_only() {
        let refused = |rules: &[ReplicationRule], otherwise| {
            let error = ReplicationRules::new(rules.to_vec(), otherwise).unwrap_err();
            assert_eq!(error.code(), "invalid");
        };
        refused(
            &[rule(Some("pumps"), Some("a"), StreamShare::Nothing)],
            StreamShare::Full,
        );
        refused(
            &[rule(None, Some("a"), StreamShare::Nothing)],
            StreamShare::Full,
        );
        refused(
            &[rule(Some("pumps"), Some("a"), StreamShare::Full)],
            StreamShare::Nothing,
        );
        let late = [
            rule(None, Some("a"), StreamShare::Full),
            rule(Some("secret"), None, StreamShare::Nothing),
        ];
        refused(&late, StreamShare::Full);
        let [part, whole] = late;
        assert!(ReplicationRules::new(vec![whole, part.clone()], StreamShare::Full).is_ok());
        // A rule after one for the whole table has no effect.
        let behind = rule(Some("pumps"), Some("a"), StreamShare::Nothing);
        let rules = vec![rule(Some("pumps"), None, StreamShare::Full), behind];
        assert!(ReplicationRules::new(rules, StreamShare::Full).is_ok());
        // Withholds a part of a table.
        let rules = vec![rule(Some("pumps"), Some("a"), StreamShare::Nothing)];
        assert!(ReplicationRules::new(rules, StreamShare::Nothing).is_ok());
    }
}
