//! Parser of the text of a `PATTERN`.
//!
//! Invariant: symbols are numbered in their order of appearance.

use crate::error::{Error, Result};
use std::iter::Peekable;
use std::str::Chars;

/// Maximum symbols of `PERMUTE`.
const PERMUTED_MAX: usize = 5;
/// The largest count of a quantifier.
const COUNT_MAX: u32 = 10_000;

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Regex {
    Symbol(usize),
    /// One after another.
    Sequence(Vec<Regex>),
    /// The first alternative that leads to a match.
    Either(Vec<Regex>),
    Repeat {
        of: Box<Regex>,
        least: u32,
        /// Upper bound; `None` = unbounded.
        most: Option<u32>,
        greedy: bool,
    },
    /// Rows that are matched, but not output.
    Excluded(Box<Regex>),
    /// The beginning of the partition.
    Start,
    /// The end of the partition.
    End,
}

/// A pattern and the names of its symbols.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    pub(super) regex: Regex,
    pub(super) symbols: Vec<String>,
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    symbols: Vec<String>,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::syntax(format!("PATTERN: {}", what.into()))
        .with_hint("for example: PATTERN (A B+? (C | D){2,5})")
}

/// Parses the text between the brackets of `PATTERN`.
pub(super) fn read(text: &str) -> Result<Pattern> {
    let mut reader = Reader {
        chars: text.chars().peekable(),
        symbols: Vec::new(),
    };
    let regex = reader.either()?;
    match reader.next() {
        None => Ok(Pattern {
            regex,
            symbols: reader.symbols,
        }),
        Some(other) => Err(wrong(format!("unexpected `{other}`"))),
    }
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        while self.chars.next_if(|c| c.is_whitespace()).is_some() {}
        self.chars.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        self.peek()?;
        self.chars.next()
    }

    fn consume(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.chars.next();
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Result<()> {
        match self.next() {
            Some(found) if found == wanted => Ok(()),
            Some(found) => Err(wrong(format!("expected `{wanted}`, found `{found}`"))),
            None => Err(wrong(format!("expected `{wanted}` before its end"))),
        }
    }

    fn either(&mut self) -> Result<Regex> {
        let mut ways = vec![self.sequence()?];
        while self.consume('|') {
            ways.push(self.sequence()?);
        }
        Ok(match ways.len() {
            1 => ways.pop().unwrap_or(Regex::Sequence(Vec::new())),
            _ => Regex::Either(ways),
        })
    }

    fn sequence(&mut self) -> Result<Regex> {
        let mut parts = Vec::new();
        while let Some(next) = self.peek() {
            if matches!(next, '|' | ')' | '-' | ',') {
                break;
            }
            let part = self.part()?;
            parts.push(self.quantified(part)?);
        }
        Ok(match parts.len() {
            1 => parts.pop().unwrap_or(Regex::Sequence(Vec::new())),
            _ => Regex::Sequence(parts),
        })
    }

    fn part(&mut self) -> Result<Regex> {
        Ok(match self.peek() {
            Some('(') => {
                self.expect('(')?;
                let inner = self.either()?;
                self.expect(')')?;
                inner
            }
            Some('{') => {
                self.expect('{')?;
                self.expect('-')?;
                let inner = self.either()?;
                self.expect('-')?;
                self.expect('}')?;
                Regex::Excluded(Box::new(inner))
            }
            Some('^') => {
                self.expect('^')?;
                Regex::Start
            }
            Some('$') => {
                self.expect('$')?;
                Regex::End
            }
            _ => {
                let (name, quoted) = self.name()?;
                if !quoted && name == "permute" && self.peek() == Some('(') {
                    return self.permuted();
                }
                Regex::Symbol(self.symbol(name))
            }
        })
    }

    fn symbol(&mut self, name: String) -> usize {
        let known = self.symbols.iter().position(|symbol| *symbol == name);
        known.unwrap_or_else(|| {
            self.symbols.push(name);
            self.symbols.len() - 1
        })
    }

    /// A name, and whether it is quoted.
    fn name(&mut self) -> Result<(String, bool)> {
        let mut name = String::new();
        if self.consume('"') {
            loop {
                match self.chars.next() {
                    Some('"') if self.chars.next_if_eq(&'"').is_none() => return Ok((name, true)),
                    Some(c) => name.push(c),
                    None => return Err(wrong("a quoted name is not closed")),
                }
            }
        }
        while let Some(c) = self.chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.extend(c.to_lowercase());
        }
        if name.is_empty() {
            return Err(match self.chars.peek() {
                Some(found) => wrong(format!("expected a symbol, found `{found}`")),
                None => wrong("expected a symbol before its end"),
            });
        }
        Ok((name, false))
    }

    fn permuted(&mut self) -> Result<Regex> {
        self.expect('(')?;
        let mut parts = vec![self.sequence()?];
        while self.consume(',') {
            parts.push(self.sequence()?);
        }
        self.expect(')')?;
        if parts.len() > PERMUTED_MAX {
            return Err(Error::too_large(format!(
                "PERMUTE has {} parts; at most {PERMUTED_MAX} are allowed",
                parts.len()
            )));
        }
        let mut ways = Vec::new();
        permute(&mut Vec::new(), &parts, &mut ways);
        Ok(Regex::Either(ways))
    }

    fn number(&mut self) -> Result<Option<u32>> {
        self.peek();
        let mut digits = String::new();
        while let Some(digit) = self.chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if digits.is_empty() {
            return Ok(None);
        }
        let number = digits.parse().ok().filter(|number| *number <= COUNT_MAX);
        number.map(Some).ok_or_else(|| {
            Error::too_large(format!(
                "PATTERN: a count must be at most {COUNT_MAX}, found {digits}"
            ))
        })
    }

    fn quantified(&mut self, of: Regex) -> Result<Regex> {
        let (least, most) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                let mut ahead = self.chars.clone();
                ahead.next();
                if ahead.find(|c| !c.is_whitespace()) == Some('-') {
                    return Ok(of);
                }
                self.expect('{')?;
                let least = self.number()?;
                let most = match self.consume(',') {
                    true => self.number()?,
                    false => Some(least.ok_or_else(|| wrong("a quantifier without a count"))?),
                };
                if self.peek() != Some('}') {
                    return Err(wrong("expected a quantifier {n}, {n,}, {,m} or {n,m}"));
                }
                (least.unwrap_or(0), most)
            }
            _ => return Ok(of),
        };
        self.next();
        let greedy = !self.consume('?');
        if most.is_some_and(|most| most < least || most == 0) {
            return Err(wrong(
                "the maximum of a quantifier must be at least 1 and at least its minimum",
            ));
        }
        if matches!(self.peek(), Some('*' | '+' | '?')) {
            return Err(wrong(
                "a part can have only one quantifier: put parentheses around it",
            ));
        }
        Ok(Regex::Repeat {
            of: Box::new(of),
            least,
            most,
            greedy,
        })
    }
}

fn permute(chosen: &mut Vec<usize>, parts: &[Regex], ways: &mut Vec<Regex>) {
    if chosen.len() == parts.len() {
        let way = chosen.iter().filter_map(|at| parts.get(*at).cloned());
        ways.push(Regex::Sequence(way.collect()));
        return;
    }
    for at in 0..parts.len() {
        if !chosen.contains(&at) {
            chosen.push(at);
            permute(chosen, parts, ways);
            chosen.pop();
        }
    }
}

impl Regex {
    /// Whether it may match zero rows.
    pub(super) fn may_be_empty(&self) -> bool {
        match self {
            Regex::Symbol(_) => false,
            Regex::Start | Regex::End => true,
            Regex::Sequence(parts) => parts.iter().all(Regex::may_be_empty),
            Regex::Either(ways) => ways.iter().any(Regex::may_be_empty),
            Regex::Repeat { of, least, .. } => *least == 0 || of.may_be_empty(),
            Regex::Excluded(of) => of.may_be_empty(),
        }
    }

    /// Maximum number of rows of a match; `None` when unbounded.
    pub(super) fn longest(&self) -> Option<usize> {
        match self {
            Regex::Symbol(_) => Some(1),
            Regex::Start | Regex::End => Some(0),
            Regex::Sequence(parts) => {
                let mut parts = parts.iter().map(Regex::longest);
                parts.try_fold(0usize, |sum, part| sum.checked_add(part?))
            }
            Regex::Either(ways) => {
                let mut ways = ways.iter().map(Regex::longest);
                ways.try_fold(0, |most: usize, way| Some(most.max(way?)))
            }
            Regex::Repeat { of, most, .. } => {
                let most = usize::try_from((*most)?).ok()?;
                of.longest()?.checked_mul(most)
            }
            Regex::Excluded(of) => of.longest(),
        }
    }

    /// Adds the symbols with which a match can begin, without duplicates.
    pub(super) fn firsts(&self, into: &mut Vec<usize>) {
        match self {
            Regex::Symbol(symbol) => {
                if !into.contains(symbol) {
                    into.push(*symbol);
                }
            }
            Regex::Start | Regex::End => {}
            Regex::Sequence(parts) => {
                for part in parts {
                    part.firsts(into);
                    if !part.may_be_empty() {
                        break;
                    }
                }
            }
            Regex::Either(ways) => ways.iter().for_each(|way| way.firsts(into)),
            Regex::Repeat { of, .. } | Regex::Excluded(of) => of.firsts(into),
        }
    }

    /// Whether the pattern refers to an end of the partition.
    pub(super) fn refers_to_ends(&self) -> bool {
        match self {
            Regex::Symbol(_) => false,
            Regex::Start | Regex::End => true,
            Regex::Sequence(parts) | Regex::Either(parts) => {
                parts.iter().any(Regex::refers_to_ends)
            }
            Regex::Repeat { of, .. } | Regex::Excluded(of) => of.refers_to_ends(),
        }
    }

    /// Whether some rows are excluded from the output.
    pub(super) fn excludes(&self) -> bool {
        match self {
            Regex::Excluded(_) => true,
            Regex::Sequence(parts) | Regex::Either(parts) => parts.iter().any(Regex::excludes),
            Regex::Repeat { of, .. } => of.excludes(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn patterns_are_taken_apart() {
        let symbol = Regex::Symbol;
        let taken = |text: &str| read(text).unwrap();
        let pattern = taken("A \"b c\"*? | (A C){2,}$");
        assert_eq!(pattern.symbols, ["a", "b c", "c"]);
        let lazy = Regex::Repeat {
            of: Box::new(symbol(1)),
            least: 0,
            most: None,
            greedy: false,
        };
        let twice = Regex::Repeat {
            of: Box::new(Regex::Sequence(vec![symbol(0), symbol(2)])),
            least: 2,
            most: None,
            greedy: true,
        };
        let first = Regex::Sequence(vec![symbol(0), lazy]);
        let second = Regex::Sequence(vec![twice, Regex::End]);
        assert_eq!(pattern.regex, Regex::Either(vec![first, second]));
        assert!(taken("A {- B+ -} C").regex.excludes());
        let Regex::Either(ways) = taken("PERMUTE(A, B, C)").regex else {
            unreachable!()
        };
        assert_eq!(ways.len(), 6);
        assert_eq!(taken("()").regex, Regex::Sequence(Vec::new()));
        for (text, longest) in [
            ("A B? (C | D D){,3}", Some(8)),
            ("^ A{- B -}{2,4} $", Some(5)),
            ("A+ | B", None),
            ("(A{10000}){10000}", Some(100_000_000)),
            ("()", Some(0)),
        ] {
            assert_eq!(taken(text).regex.longest(), longest, "{text}");
            assert_eq!(taken(text).regex.refers_to_ends(), text.contains('$'));
        }
        for (text, firsts) in [
            ("A B", &[0][..]),
            ("^ A? (B | C* A) D", &[0, 1, 2]),
            ("(A | B)+ C", &[0, 1]),
            ("{- A* -} B C", &[0, 1]),
        ] {
            let mut found = Vec::new();
            taken(text).regex.firsts(&mut found);
            found.sort_unstable();
            assert_eq!(found, firsts, "{text}");
        }
        for bad in [
            "A**", "A{2,1}", "A{0}", "(A", "A)", "A{x}", "A &", "\"A", "A{-B", "A{99999}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
