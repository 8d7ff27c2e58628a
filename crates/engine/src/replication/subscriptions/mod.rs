//! What is wanted of a database by who copies it, and what may leave it: rules by table and tags,
//! and pins, which want all rows of a stretch of time whatever the rules say.
//!
//! Invariants: of each stream one rule decides, the first that fits. "Nothing" is said of whole
//! tables only: a segment's footers name all of its streams with their newest rows, and small
//! streams share leaves, so that nothing can be kept back of one stream beside others.
//! Concurrency: plain data.
//! Failure: rules that say "nothing" of a part of a table are refused.

mod of_state;
mod pin;

pub(crate) use of_state::{Outcome, Wanted};
pub use pin::Pin;

use crate::{Error, Result};
use headwater_types::Level;
use std::time::Duration;

/// How much of a stream is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing at all, not even its name; for whole tables.
    Nothing,
    /// What tiles at this level and above need.
    Summaries(Level),
    /// All rows.
    Full,
}

impl From<Level> for Want {
    /// [`Level::MIN`] wants all rows.
    fn from(level: Level) -> Want {
        match level {
            Level::MIN => Want::Full,
            level => Want::Summaries(level),
        }
    }
}

/// What is wanted of some streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The table; `None` = every table.
    pub table: Option<String>,
    /// Tags that a stream must have, all of them; none = every stream.
    pub tags: Vec<(String, String)>,
    /// How much of them.
    pub want: Want,
    /// What has more of it goes first, among what is wanted for the same reason.
    pub priority: u8,
}

impl Rule {
    fn is_of(&self, table: &str) -> bool {
        self.table.as_deref().is_none_or(|of| of == table)
    }
}

/// What is wanted of a database, or may leave it: the first rule that fits decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    otherwise: Want,
    ahead_bytes: u64,
    kept_for: Duration,
}

impl Default for Rules {
    /// Everything is wanted.
    fn default() -> Rules {
        Rules::from(Want::Full)
    }
}

impl From<Want> for Rules {
    fn from(otherwise: Want) -> Rules {
        Rules {
            rules: Vec::new(),
            otherwise,
            ahead_bytes: 0,
            kept_for: Duration::ZERO,
        }
    }
}

impl From<Level> for Rules {
    fn from(level: Level) -> Rules {
        Rules::from(Want::from(level))
    }
}

impl Rules {
    /// Rules, of which the first that fits a stream decides, and what is wanted where none fits.
    ///
    /// ```
    /// use headwater_engine::{Rule, Rules, Want};
    /// let rule = |table: &str, tags: &[(&str, &str)], want| Rule {
    ///     table: Some(table.into()),
    ///     tags: tags.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
    ///     want,
    ///     priority: 0,
    /// };
    /// let secret = rule("payroll", &[], Want::Nothing);
    /// assert!(Rules::new(vec![secret], Want::Full)?.withholds("payroll"));
    /// let part = rule("pumps", &[("site", "4")], Want::Nothing);
    /// assert!(Rules::new(vec![part], Want::Full).is_err());
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid` where nothing is wanted of some streams of a table and something of others.
    pub fn new(rules: Vec<Rule>, otherwise: Want) -> Result<Rules> {
        let rules = Rules {
            rules,
            ..Rules::from(otherwise)
        };
        // No table is called so: it stands for those that no rule names.
        let named = rules.rules.iter().filter_map(|r| r.table.as_deref());
        for table in named.chain([""]) {
            rules.check(table)?;
        }
        Ok(rules)
    }

    /// So many bytes of rows are fetched ahead of streams of which summaries are wanted, those
    /// first that are likely to be looked at. By default none.
    #[must_use]
    pub fn with_ahead_bytes(self, ahead_bytes: u64) -> Rules {
        Rules {
            ahead_bytes,
            ..self
        }
    }

    /// What the source cuts away because of its age, by retention or aging, is kept for so long
    /// beyond that. By default not at all: then a copy holds what its source holds.
    /// [`Duration::MAX`] keeps it for ever.
    #[must_use]
    pub fn keeping(self, kept_for: Duration) -> Rules {
        Rules { kept_for, ..self }
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
            Want::Nothing => parts.any(|want| want != Want::Nothing),
            Want::Summaries(_) | Want::Full => parts.any(|want| want == Want::Nothing),
        };
        match is_divided {
            false => Ok(()),
            true => Err(Error::invalid(format!(
                "rules want nothing of some streams of {}, and something of others: say \"none\" of \
                 a whole table, before every rule for some of its streams, since its streams share \
                 what tells of them",
                match table {
                    "" => "tables that no rule names".to_owned(),
                    table => format!("table `{table}`"),
                }
            ))),
        }
    }

    /// What is decided of a table where no rule for some of its streams fits.
    pub(crate) fn of_table(&self, table: &str) -> Outcome {
        let mut whole = self.rules.iter().filter(|r| r.tags.is_empty());
        self.outcome(whole.find(|r| r.is_of(table)))
    }

    /// What is decided of a stream.
    pub(crate) fn of_stream(&self, table: &str, tags: &[(String, String)]) -> Outcome {
        let mut fitting = self.rules.iter().filter(|r| r.is_of(table));
        self.outcome(fitting.find(|r| r.tags.iter().all(|tag| tags.contains(tag))))
    }

    fn outcome(&self, rule: Option<&Rule>) -> Outcome {
        Outcome {
            want: rule.map_or(self.otherwise, |r| r.want),
            priority: rule.map_or(0, |r| r.priority),
        }
    }

    /// True when some rule is for some streams of a table only.
    pub(crate) fn looks_at_tags(&self) -> bool {
        self.rules.iter().any(|r| !r.tags.is_empty())
    }

    /// True when nothing of a table is wanted, or may leave.
    #[must_use]
    pub fn withholds(&self, table: &str) -> bool {
        self.of_table(table).want == Want::Nothing
    }

    /// True when nothing is withheld of any table that there is or may be.
    #[must_use]
    pub fn withhold_nothing(&self) -> bool {
        let of_rules = self.rules.iter().map(|r| r.want);
        !of_rules.chain([self.otherwise]).any(|w| w == Want::Nothing)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rule(table: Option<&str>, tag: Option<&str>, want: Want) -> Rule {
        let tags = tag.iter().map(|value| ("site".into(), (*value).into()));
        Rule {
            table: table.map(str::to_owned),
            tags: tags.collect(),
            want,
            priority: 3,
        }
    }

    #[test]
    fn the_first_rule_that_fits_a_stream_decides() {
        let summaries = Want::Summaries(Level::clamped(8));
        let rules = vec![
            rule(Some("secret"), None, Want::Nothing),
            rule(None, Some("north"), Want::Full),
            rule(Some("pumps"), None, summaries),
        ];
        let rules = Rules::new(rules, Want::Nothing);
        // Streams of the north of every table, and nothing of the others.
        assert_eq!(rules.unwrap_err().code(), "invalid");
        let rules = vec![
            rule(Some("secret"), None, Want::Nothing),
            rule(None, Some("north"), Want::Full),
            rule(Some("pumps"), None, summaries),
        ];
        let rules = Rules::new(rules, summaries).unwrap();
        let of = |table: &str, site: &str| {
            let tags = [("id".into(), "7".into()), ("site".into(), site.into())];
            rules.of_stream(table, &tags)
        };
        assert_eq!(of("secret", "north").want, Want::Nothing);
        assert_eq!(of("pumps", "north").want, Want::Full);
        assert_eq!(of("pumps", "south").want, summaries);
        assert_eq!(
            (of("x", "south").want, of("x", "south").priority),
            (summaries, 0)
        );
        assert!(rules.withholds("secret") && !rules.withholds("pumps"));
        assert!(!rules.withhold_nothing() && Rules::default().withhold_nothing());
    }

    #[test]
    fn nothing_is_said_of_whole_tables_only() {
        let refused = |rules: &[Rule], otherwise| {
            let error = Rules::new(rules.to_vec(), otherwise).unwrap_err();
            assert_eq!(error.code(), "invalid");
        };
        refused(&[rule(Some("pumps"), Some("a"), Want::Nothing)], Want::Full);
        refused(&[rule(None, Some("a"), Want::Nothing)], Want::Full);
        refused(&[rule(Some("pumps"), Some("a"), Want::Full)], Want::Nothing);
        let late = [
            rule(None, Some("a"), Want::Full),
            rule(Some("secret"), None, Want::Nothing),
        ];
        refused(&late, Want::Full);
        let [part, whole] = late;
        assert!(Rules::new(vec![whole, part.clone()], Want::Full).is_ok());
        // What comes behind a rule for the whole table decides nothing.
        let behind = rule(Some("pumps"), Some("a"), Want::Nothing);
        let rules = vec![rule(Some("pumps"), None, Want::Full), behind];
        assert!(Rules::new(rules, Want::Full).is_ok());
        // Of a part of a table of which nothing is wanted.
        let rules = vec![rule(Some("pumps"), Some("a"), Want::Nothing)];
        assert!(Rules::new(rules, Want::Nothing).is_ok());
    }
}
