//! Patterns of topics: `plant/{site}/{device}/{field}`.
//!
//! Invariant: a topic matches a pattern only if it matches the filter that is sent to the broker
//! for it.

use std::fmt;

/// Longest topic that MQTT can carry, in bytes.
const TOPIC_BYTES_MAX: usize = 65_535;

/// One level of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Level {
    /// Exactly this word.
    Word(String),
    /// `+`: any word, which is ignored.
    Any,
    /// `{name}`: any word, which is captured.
    Captured(String),
    /// `#`: the rest of the topic, possibly empty.
    Rest,
    /// `{name#}`: all further levels, at least one, captured with their slashes.
    CapturedRest(String),
}

/// Accepted topics, and the names of their levels.
///
/// ```
/// use headwater_wire::message::TopicPattern;
/// let pattern = TopicPattern::parse("plant/{site}/+/{field}")?;
/// assert_eq!(pattern.filter(), "plant/+/+/+");
/// let kept = pattern.matches("plant/oslo/x/temp").unwrap();
/// assert_eq!(kept, [("site", "oslo"), ("field", "temp")]);
/// assert!(pattern.matches("plant/oslo/temp").is_none());
/// # Ok::<(), headwater_wire::message::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPattern {
    text: String,
    levels: Vec<Level>,
}

/// A text that is not a pattern of topics. The message states the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The text is empty, or longer than MQTT allows.
    #[error("a topic has 1 to {TOPIC_BYTES_MAX} bytes")]
    Length,
    /// A level of an unknown kind.
    #[error("level `{0}`: a level is a word, +, or {{name}}; the last may also be # or {{name#}}")]
    Level(String),
    /// `#` before the end.
    #[error("level `{0}` matches all levels that follow, so it must be the last one")]
    NotLast(String),
    /// A name that occurs twice.
    #[error("{{{0}}} is used twice; each name is for one level")]
    Twice(String),
}

impl TopicPattern {
    /// The pattern that matches only this topic of one level.
    pub(super) fn exactly(word: &str) -> TopicPattern {
        TopicPattern {
            text: word.to_owned(),
            levels: vec![Level::Word(word.to_owned())],
        }
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// When a level is malformed, a name occurs twice, or `#` is not the last level.
    pub fn parse(text: &str) -> Result<TopicPattern, PatternError> {
        if text.is_empty() || text.len() > TOPIC_BYTES_MAX {
            return Err(PatternError::Length);
        }
        let count = text.split('/').count();
        let mut levels = Vec::with_capacity(count);
        for (at, word) in text.split('/').enumerate() {
            let level = level(word)?;
            let takes_rest = matches!(level, Level::Rest | Level::CapturedRest(_));
            if takes_rest && at + 1 < count {
                return Err(PatternError::NotLast(word.to_owned()));
            }
            levels.push(level);
        }
        let pattern = TopicPattern {
            text: text.to_owned(),
            levels,
        };
        let mut names: Vec<&str> = pattern.names().collect();
        names.sort_unstable();
        let twice = names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b);
        match twice {
            Some((twice, _)) => Err(PatternError::Twice((*twice).to_owned())),
            None => Ok(pattern),
        }
    }

    /// Names that the pattern captures, in the order of the levels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.levels.iter().filter_map(|level| match level {
            Level::Captured(name) | Level::CapturedRest(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The topic filter for the broker: `+` and `#` instead of names.
    #[must_use]
    pub fn filter(&self) -> String {
        let words: Vec<&str> = self
            .levels
            .iter()
            .map(|level| match level {
                Level::Word(word) => word.as_str(),
                Level::Any | Level::Captured(_) => "+",
                Level::Rest | Level::CapturedRest(_) => "#",
            })
            .collect();
        words.join("/")
    }

    /// Names and words of a topic that matches; `None` when it does not.
    #[must_use]
    pub fn matches<'a>(&'a self, topic: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        let mut kept = Vec::new();
        let mut rest = Some(topic);
        for (at, level) in self.levels.iter().enumerate() {
            // Topics of the broker itself are named, never met by chance.
            if at == 0 && topic.starts_with('$') && !matches!(level, Level::Word(_)) {
                return None;
            }
            match level {
                // Matches the level above too: `a/#` matches `a`.
                Level::Rest => return Some(kept),
                Level::CapturedRest(name) => {
                    kept.push((name.as_str(), rest?));
                    return Some(kept);
                }
                _ => {}
            }
            let (word, tail) = match rest?.split_once('/') {
                Some((word, tail)) => (word, Some(tail)),
                None => (rest?, None),
            };
            match level {
                Level::Word(expected) if expected != word => return None,
                Level::Captured(name) => kept.push((name.as_str(), word)),
                _ => {}
            }
            rest = tail;
        }
        rest.is_none().then_some(kept)
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn level(word: &str) -> Result<Level, PatternError> {
    let plain = |text: &str| !text.contains(['{', '}', '+', '#', '\0']);
    match word {
        "+" => return Ok(Level::Any),
        "#" => return Ok(Level::Rest),
        word if plain(word) => return Ok(Level::Word(word.to_owned())),
        _ => {}
    }
    let inside = word.strip_prefix('{').and_then(|w| w.strip_suffix('}'));
    let (name, is_rest) = match inside {
        Some(name) => match name.strip_suffix('#') {
            Some(name) => (name, true),
            None => (name, false),
        },
        None => ("", false),
    };
    if name.is_empty() || !plain(name) {
        return Err(PatternError::Level(word.to_owned()));
    }
    let name = name.to_owned();
    Ok(if is_rest {
        Level::CapturedRest(name)
    } else {
        Level::Captured(name)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_patterns_say_why() {
        for (text, expected) in [
            ("", "1 to 65535 bytes"),
            ("a/b+/c", "level `b+`"),
            ("a/{}/c", "level `{}`"),
            ("a/{x", "level `{x`"),
            ("a/x{y}", "level `x{y}`"),
            ("a/#/c", "must be the last one"),
            ("{a#}/b", "must be the last one"),
            ("{a}/{b}/{a}", "{a} is used twice"),
        ] {
            let error = TopicPattern::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_rest_of_a_topic_is_kept_with_its_slashes() {
        let pattern = TopicPattern::parse("a/{device}/{field#}").unwrap();
        assert_eq!(pattern.filter(), "a/+/#");
        let kept = pattern.matches("a/d1/motor/temp").unwrap();
        assert_eq!(kept, [("device", "d1"), ("field", "motor/temp")]);
        assert_eq!(pattern.matches("a/d1"), None);
        let open = TopicPattern::parse("a/#").unwrap();
        assert_eq!(open.matches("a"), Some(Vec::new()));
        assert_eq!(open.matches("a/b/c"), Some(Vec::new()));
        assert_eq!(open.matches("b"), None);
    }

    #[test]
    fn wildcards_do_not_meet_the_topics_of_the_broker() {
        let any = TopicPattern::parse("#").unwrap();
        assert!(any.matches("$SYS/broker/uptime").is_none());
        let named = TopicPattern::parse("$SYS/broker/{field}").unwrap();
        assert!(named.matches("$SYS/broker/uptime").is_some());
    }

    /// Matches a filter word by word, as the standard defines it.
    fn filter_matches(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            ([], []) => true,
            (["#"], _) => true,
            (["+", filter @ ..], [_, topic @ ..]) => filter_matches(filter, topic),
            ([a, filter @ ..], [b, topic @ ..]) => a == b && filter_matches(filter, topic),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn what_matches_the_pattern_matches_its_filter(
            pattern in "([ab+]|\\{x\\})(/[ab+]){0,2}(/\\{y\\})?(/(#|\\{z#\\}))?",
            topic in "[ab]?(/[ab]?){0,4}",
        ) {
            let read = TopicPattern::parse(&pattern).unwrap();
            let filter = read.filter();
            let filter: Vec<&str> = filter.split('/').collect();
            let words: Vec<&str> = topic.split('/').collect();
            let found = read.matches(&topic);
            let expected = filter_matches(&filter, &words);
            // A captured rest must be there.
            let lacks_rest = pattern.ends_with("#}") && words.len() < filter.len();
            prop_assert_eq!(found.is_some(), expected && !lacks_rest, "{} {}", pattern, topic);
            if let Some(found) = found {
                prop_assert_eq!(found.len(), read.names().count());
            }
        }
    }
}
