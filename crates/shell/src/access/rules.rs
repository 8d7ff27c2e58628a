//! Rules: an action and a pattern over streams.
//!
//! A pattern is written like a stream, `weather,origin=E*`: a table, and the required values of
//! some tags. In the table and in values `*` matches any text, including the empty text; a
//! backslash quotes the next character. A tag that the pattern does not name may have any value or
//! be absent; a named tag must be present.

use std::fmt;
use std::str::FromStr;

/// Action of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// See streams and their data.
    Read,
    /// Store data.
    Write,
    /// Change or remove stored data.
    Manage,
}

impl Action {
    const ALL: [(Action, &'static str); 3] = [
        (Action::Read, "read"),
        (Action::Write, "write"),
        (Action::Manage, "manage"),
    ];
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Action::ALL.iter().find(|(action, _)| action == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

/// Reason why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The first word is not one of the actions.
    #[error(
        "`{0}` is not an action: a rule is read, write or manage, a space, and a pattern, such as `read weather,origin=E*`"
    )]
    Action(String),
    /// The table is missing.
    #[error("the pattern `{0}` names no table; `*` is all of them")]
    Table(String),
    /// A part after a comma is not `tag=value`.
    #[error("`{0}` in the pattern is not of the form tag=value")]
    Tag(String),
    /// A backslash is the last character.
    #[error("the pattern `{0}` ends with a backslash, which escapes the next character")]
    Backslash(String),
}

/// A text with `*` for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob {
    /// Texts between the stars.
    parts: Vec<String>,
}

impl Glob {
    fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.parts.split_first() else {
            return text.is_empty();
        };
        let Some(mut text) = text.strip_prefix(first.as_str()) else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else {
            return text.is_empty();
        };
        // The leftmost match of each part leaves the most text for the parts after it.
        for part in middle {
            let Some(at) = text.find(part.as_str()) else {
                return false;
            };
            text = &text[at + part.len()..];
        }
        text.ends_with(last.as_str())
    }

    /// True when the pattern matches some longer text with this beginning.
    fn fits_some_with_prefix(&self, beginning: &str) -> bool {
        let Some((first, rest)) = self.parts.split_first() else {
            return false;
        };
        if rest.is_empty() {
            return first.len() > beginning.len() && first.starts_with(beginning);
        }
        // The part after a star can match at the end of a sufficiently long text.
        first.starts_with(beginning) || beginning.starts_with(first.as_str())
    }

    fn is_everything(&self) -> bool {
        self.parts.len() > 1 && self.parts.iter().all(String::is_empty)
    }
}

/// Streams that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    table: Glob,
    tags: Vec<(String, Glob)>,
}

impl Pattern {
    /// True when the pattern matches a stream of `table` with these tags.
    #[must_use]
    pub fn matches(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.table.matches(table)
            && self.tags.iter().all(|(key, glob)| {
                tags.iter()
                    .any(|(k, value)| k == key && glob.matches(value))
            })
    }

    /// True when the pattern matches every stream, including future ones.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.tags.is_empty() && self.table.is_everything()
    }

    /// True when the pattern could match a stream of this table.
    #[must_use]
    pub fn may_concern(&self, table: &str) -> bool {
        self.table.matches(table)
    }

    /// True when the pattern could match a stream of a table whose name is longer than `beginning`
    /// and starts with it.
    #[must_use]
    pub fn may_concern_prefix(&self, beginning: &str) -> bool {
        self.table.fits_some_with_prefix(beginning)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Pattern {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Pattern, RuleError> {
        let mut tags = Vec::new();
        let mut parts = split(text, ',')?.into_iter();
        let table = parts.next().unwrap_or_default();
        if table.is_empty() {
            return Err(RuleError::Table(text.to_owned()));
        }
        for part in parts {
            let wrong = || RuleError::Tag(part.clone());
            let (key, value) = split_once(&part).ok_or_else(wrong)?;
            if key.is_empty() || value.is_empty() {
                return Err(wrong());
            }
            tags.push((plain(key), glob(value)));
        }
        Ok(Pattern {
            text: text.to_owned(),
            table: glob(&table),
            tags,
        })
    }
}

/// Splits at a character that is not escaped by a backslash; the backslashes stay.
fn split(text: &str, at: char) -> Result<Vec<String>, RuleError> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == at {
            parts.push(String::new());
            continue;
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
            if c == '\\' {
                let kept = chars.next();
                part.push(kept.ok_or_else(|| RuleError::Backslash(text.to_owned()))?);
            }
        }
    }
    Ok(parts)
}

/// Splits `key=value` at the first `=` that is not escaped by a backslash.
fn split_once(part: &str) -> Option<(&str, &str)> {
    let mut kept = false;
    for (at, c) in part.char_indices() {
        match c {
            _ if kept => kept = false,
            '\\' => kept = true,
            '=' => return Some((&part[..at], &part[at + 1..])),
            _ => {}
        }
    }
    None
}

/// Returns a text without its backslashes.
fn plain(text: &str) -> String {
    glob_parts(text, false).concat()
}

fn glob(text: &str) -> Glob {
    Glob {
        parts: glob_parts(text, true),
    }
}

fn glob_parts(text: &str, stars: bool) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' if stars => parts.push(String::new()),
            c => {
                let c = if c == '\\' { chars.next() } else { Some(c) };
                if let Some(part) = parts.last_mut() {
                    part.extend(c);
                }
            }
        }
    }
    parts
}

/// A right of a token: an action on some streams. Written `read weather,origin=E*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    /// The permitted action.
    pub action: Action,
    /// Streams of the rule.
    pub pattern: Pattern,
}

impl AccessRule {
    /// True when the rule allows reading.
    pub(crate) fn is_read(&self) -> bool {
        self.action == Action::Read
    }
}

impl fmt::Display for AccessRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.pattern)
    }
}

impl FromStr for AccessRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<AccessRule, RuleError> {
        let (word, pattern) = text.split_once(' ').unwrap_or((text, ""));
        let action = Action::ALL.iter().find(|(_, name)| *name == word);
        Ok(AccessRule {
            action: action.ok_or_else(|| RuleError::Action(word.to_owned()))?.0,
            pattern: pattern.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn a_pattern_says_whether_tables_with_a_beginning_could_be_meant() {
        let fits = |pattern: &str| {
            let pattern: Pattern = pattern.parse().unwrap();
            pattern.may_concern_prefix("yard.")
        };
        for pattern in [
            "*",
            "yard.*",
            "yard.cpu",
            "y*",
            "yard*",
            "*cpu",
            "yard.c*,host=a",
            "y*x*",
        ] {
            assert!(fits(pattern), "{pattern}");
        }
        for pattern in ["cpu", "yard", "yard.", "yards*", "x*", "plant.*", "yar"] {
            assert!(!fits(pattern), "{pattern}");
        }
    }

    #[test]
    fn patterns_choose_streams_by_table_and_tags() {
        let ewr = tags(&[("origin", "EWR"), ("unit", "a,b=c")]);
        for (pattern, wanted) in [
            ("*", true),
            ("weather", true),
            ("wea*", true),
            ("*ther", true),
            ("w*a*h*r", true),
            ("weather*", true),
            ("weathe", false),
            ("eather", false),
            ("w*x*r", false),
            ("weather,origin=EWR", true),
            ("weather,origin=E*", true),
            ("*,origin=*R", true),
            ("weather,origin=E", false),
            ("weather,origin=J*", false),
            ("weather,absent=*", false),
            ("weather,origin=EWR,unit=a\\,b\\=c", true),
            ("weather,origin=EWR,unit=a=c", false),
            ("weather,origin=E\\*", false),
            ("\\weather", true),
        ] {
            let parsed: Pattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches("weather", &ewr), wanted, "{pattern}");
            assert_eq!(parsed.to_string(), pattern);
        }
    }

    #[test]
    fn parts_of_a_glob_do_not_share_characters() {
        let pattern: Pattern = "ab*ba".parse().unwrap();
        assert!(pattern.matches("abba", &[]));
        assert!(!pattern.matches("aba", &[]));
        let star: Pattern = "a\\*b".parse().unwrap();
        assert!(star.matches("a*b", &[]));
        assert!(!star.matches("axb", &[]));
    }

    #[test]
    fn only_the_star_alone_is_everything() {
        for (pattern, wanted) in [("*", true), ("**", true), ("*,a=*", false), ("a*", false)] {
            assert_eq!(
                pattern.parse::<Pattern>().unwrap().is_everything(),
                wanted,
                "{pattern}"
            );
        }
    }

    #[test]
    fn bad_rules_say_what_is_wrong() {
        for (text, part) in [
            ("peek *", "`peek` is not an action"),
            ("read", "names no table"),
            ("read ,a=b", "names no table"),
            ("write t,a", "`a` in the pattern"),
            ("write t,=b", "`=b` in the pattern"),
            ("write t,a=", "`a=` in the pattern"),
            ("manage t\\", "backslash"),
        ] {
            let error = text.parse::<AccessRule>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let rule: AccessRule = "read weather,origin=E*".parse().unwrap();
        assert_eq!(rule.to_string(), "read weather,origin=E*");
    }
}
