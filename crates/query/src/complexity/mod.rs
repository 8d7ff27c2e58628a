//! The complexity check that every statement of every front end passes before it is parsed and
//! planned.
//!
//! The parser, the planner and every visitor of their trees recurse as deep as a statement is
//! nested and as its chains of operators are long, and a stack overflow ends the process. [`weigh`]
//! therefore checks the statement as a sequence of tokens first, without recursion. [`measure`]
//! checks the parsed statement again, by its size after common tables and wildcards are expanded.
//!
//! Invariants: the parser only sees statements that passed; these fit the stacks of the threads
//! that [plan](crate::planner) and [compute](crate::Threads).
//! Failure: `too_large`, with the limit and the position.

mod dialect;
mod measure;

pub use dialect::Counted;
pub(crate) use measure::measure;
pub use measure::measure_least;

use crate::error::{Error, Result};
use crate::planner;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// Maximum nesting depth of brackets, subqueries and `CASE`.
pub(crate) const DEPTH_MAX: usize = 50;
/// Maximum length of a chain of operators: a chain becomes a tree as deep as it is long, in
/// addition to the depth of the brackets within it. Comparisons count between connectives.
const CHAIN_MAX: usize = 500;
/// This many keywords that are not operators count as one operator.
const WORDS: usize = 8;
/// Statements with longer chains are planned as large statements.
const LONG_CHAIN: usize = 100;
/// Statements with more tokens are planned as large ones.
const MANY_TOKENS: usize = 20_000;
/// Parsed statements with more tokens are not cached.
const CACHED_TOKENS_MAX: usize = 500;
/// Approximate bytes of memory per token after parsing.
const TOKEN_BYTES: usize = 512;
/// A longer text is tokenized as a large statement.
pub(crate) const LONG_TEXT: usize = 128 << 10;
/// Steps that the parser may take per token, and for any text.
const STEPS_OF_TOKEN: u64 = 100;
const STEPS: u64 = 20_000;

/// Work that a statement causes, estimated from its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    tokens: usize,
    /// Whether it may need much of the stack or of memory.
    pub(crate) large: bool,
}

impl Weight {
    /// Whether the parsed statement takes too much memory to be cached.
    pub(crate) fn is_much(self) -> bool {
        self.tokens > CACHED_TOKENS_MAX
    }

    /// Memory of the parsed statement, approximately.
    pub(crate) fn bytes(self) -> usize {
        self.tokens * TOKEN_BYTES
    }

    /// Lets the parser take as many steps as such a statement needs.
    pub(crate) fn steps(self) -> u64 {
        STEPS.saturating_add(STEPS_OF_TOKEN.saturating_mul(self.tokens as u64))
    }

    /// Parses a text within its budget of steps.
    pub(crate) fn reading<T>(self, read: impl FnOnce() -> T) -> T {
        planner::clear_steps(Some(self.steps()));
        let read = read();
        planner::clear_steps(None);
        read
    }
}

/// The tokens of a text.
pub(crate) fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>> {
    Tokenizer::new(&Counted, sql)
        .tokenize_with_location()
        .map_err(|error| {
            let at = error.location;
            Error::syntax(error.message).located(position(at.line, at.column))
        })
}

fn position(line: u64, column: u64) -> Option<(u32, u32)> {
    let number = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
    number(line).zip(number(column))
}

/// Effect of a token on the chain that contains it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Opens,
    Closes,
    /// Opens a bracket, and is a link of the chain itself: `a[1][2]`, and types such as `int[][]`.
    Indexes,
    Case,
    /// Between the branches of a `CASE`.
    Branch,
    End,
    Ends,
    Connects,
    Compares,
    Word,
    Nothing,
}

fn link(token: &Token) -> Link {
    match token {
        Token::LParen | Token::LBrace => Link::Opens,
        Token::LBracket => Link::Indexes,
        Token::RParen | Token::RBracket | Token::RBrace => Link::Closes,
        Token::Comma | Token::SemiColon => Link::Ends,
        Token::Word(word) if word.quote_style.is_none() => of_word(word.keyword),
        Token::Word(_)
        | Token::Number(..)
        | Token::Char(_)
        | Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::DollarQuotedString(_)
        | Token::NationalStringLiteral(_)
        | Token::HexStringLiteral(_)
        | Token::UnicodeStringLiteral(_)
        | Token::Placeholder(_)
        | Token::Whitespace(_)
        | Token::Period
        | Token::EOF => Link::Nothing,
        Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq => {
            Link::Compares
        }
        // Operators of every kind, including future ones.
        _ => Link::Connects,
    }
}

/// Distinguishes keywords that join neighbours from keywords that nest. Any other keyword counts a
/// little, so that every grammar has a bounded depth.
fn of_word(keyword: Keyword) -> Link {
    match keyword {
        Keyword::CASE => Link::Case,
        Keyword::WHEN | Keyword::THEN | Keyword::ELSE => Link::Branch,
        Keyword::END => Link::End,
        Keyword::AND
        | Keyword::OR
        | Keyword::XOR
        | Keyword::UNION
        | Keyword::EXCEPT
        | Keyword::MINUS
        | Keyword::INTERSECT
        | Keyword::JOIN
        | Keyword::APPLY
        | Keyword::PIVOT
        | Keyword::UNPIVOT
        | Keyword::EXPLAIN
        | Keyword::DESCRIBE
        | Keyword::PREPARE
        | Keyword::INTERVAL
        | Keyword::AT
        | Keyword::COLLATE
        | Keyword::DIV
        | Keyword::OPERATOR
        | Keyword::PRIOR => Link::Connects,
        Keyword::NOT
        | Keyword::LIKE
        | Keyword::ILIKE
        | Keyword::SIMILAR
        | Keyword::REGEXP
        | Keyword::RLIKE
        | Keyword::IS
        | Keyword::NOTNULL
        | Keyword::IN
        | Keyword::BETWEEN
        | Keyword::OVERLAPS
        | Keyword::ANY
        | Keyword::SOME
        | Keyword::EXISTS
        | Keyword::DESC => Link::Compares,
        Keyword::NoKeyword
        | Keyword::ALL
        | Keyword::AS
        | Keyword::ASC
        | Keyword::BY
        | Keyword::DATE
        | Keyword::DISTINCT
        | Keyword::DOUBLE
        | Keyword::FALSE
        | Keyword::FROM
        | Keyword::GROUP
        | Keyword::HAVING
        | Keyword::LIMIT
        | Keyword::NAME
        | Keyword::NULL
        | Keyword::OFFSET
        | Keyword::ON
        | Keyword::ORDER
        | Keyword::SELECT
        | Keyword::TEXT
        | Keyword::TIME
        | Keyword::TIMESTAMP
        | Keyword::TRUE
        | Keyword::TYPE
        | Keyword::VALUE
        | Keyword::VALUES
        | Keyword::WHERE => Link::Nothing,
        _ => Link::Word,
    }
}

/// The part between a pair of brackets, or between `CASE` and `END`.
#[derive(Clone, Copy, Default)]
struct Frame {
    is_case: bool,
    connectives: usize,
    comparisons: usize,
    words: usize,
    /// The deepest closed bracket of this chain.
    within: usize,
    /// The deepest chain before this one.
    before: usize,
}

impl Frame {
    fn chain(&self) -> usize {
        let operators = self.connectives.max(self.comparisons);
        operators + self.words / WORDS + self.within
    }

    fn end_chain(&mut self) {
        *self = Frame {
            is_case: self.is_case,
            before: self.before.max(self.chain()),
            ..Frame::default()
        };
    }
}

/// Counts consecutive operators, nested brackets and words of a statement, and refuses statements
/// that are too deep to be planned.
pub(crate) fn weigh(sql: &str) -> Result<Weight> {
    weigh_tokens(sql, &tokens(sql)?)
}

/// As [`weigh`], for a text with known tokens.
pub(crate) fn weigh_tokens(sql: &str, tokens: &[TokenWithSpan]) -> Result<Weight> {
    let mut frames = vec![Frame::default()];
    let mut longest = 0;
    let mut count = 0;
    for token in tokens {
        let link = link(&token.token);
        if matches!(token.token, Token::Whitespace(_)) {
            continue;
        }
        count += 1;
        let at = || position(token.span.start.line, token.span.start.column);
        if link == Link::Indexes
            && let Some(frame) = frames.last_mut()
        {
            frame.comparisons += 1;
        }
        match link {
            Link::Opens | Link::Indexes | Link::Case => {
                if frames.len() > DEPTH_MAX {
                    let error = Error::too_large(format!(
                        "brackets, subqueries or CASE are nested more than {DEPTH_MAX} deep"
                    ));
                    return Err(error
                        .with_hint("move a part of it into WITH, or into a statement of its own")
                        .located(at()));
                }
                frames.push(Frame {
                    is_case: link == Link::Case,
                    ..Frame::default()
                });
            }
            Link::Closes => {
                // A `CASE` without an `END` in the brackets is closed with them.
                while frames.len() > 1 && frames.last().is_some_and(|frame| frame.is_case) {
                    close(&mut frames);
                }
                close(&mut frames);
            }
            Link::End if frames.last().is_some_and(|frame| frame.is_case) => close(&mut frames),
            _ => {}
        }
        let Some(frame) = frames.last_mut() else {
            continue;
        };
        match link {
            Link::Ends => frame.end_chain(),
            Link::Branch if frame.is_case => frame.end_chain(),
            Link::Connects => {
                frame.connectives += 1;
                frame.comparisons = 0;
            }
            Link::Compares => frame.comparisons += 1,
            Link::Word | Link::Branch | Link::End => frame.words += 1,
            _ => {}
        }
        longest = longest.max(frame.chain());
        if longest > CHAIN_MAX {
            let error = Error::too_large(format!(
                "more than {CHAIN_MAX} operators are chained or nested"
            ));
            return Err(error
                .with_hint("write a long list of alternatives as IN (…)")
                .located(at()));
        }
    }
    Ok(Weight {
        tokens: count,
        large: longest > LONG_CHAIN || count > MANY_TOKENS || sql.len() > LONG_TEXT,
    })
}

/// Adds the content of a pair of brackets to the chain around it.
fn close(frames: &mut Vec<Frame>) {
    if frames.len() < 2 {
        return;
    }
    if let (Some(closed), Some(around)) = (frames.pop(), frames.last_mut()) {
        around.within = around.within.max(closed.before.max(closed.chain()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn refused(sql: &str) {
        let head: String = sql.chars().take(40).collect();
        match weigh(sql) {
            Err(error) => assert_eq!(error.code, "too_large", "{head}: {error}"),
            Ok(weight) => assert!(weight.large && weight.tokens == 0, "{head} was let in"),
        }
    }

    #[test]
    fn every_kind_of_nesting_is_refused_beyond_its_limit() {
        for (before, link, after, times) in [
            ("", "EXPLAIN ", "SELECT 1", 2_000),
            ("SELECT ", "INTERVAL ", "'1 s'", 501),
            ("SELECT now()", " AT TIME ZONE 'UTC'", "", 501),
            ("SELECT 1", " + 1", "", 501),
            ("SELECT 1", " = 1", "", 501),
            ("SELECT true", " AND true", "", 20_000),
            ("SELECT true", " OR a = 1", "", 501),
            ("SELECT 'a'", " || 'a'", "", 501),
            ("SELECT 1", "::int", "", 501),
            ("SELECT 1::int", "[]", "", 501),
            ("SELECT a", "[1]", "", 501),
            ("SELECT 1", " IS NULL", "", 501),
            ("SELECT 1", " NOTNULL", "", 501),
            ("SELECT ", "NOT ", "true", 501),
            ("SELECT ", "- ", "1", 501),
            ("SELECT ", "~ ", "1", 501),
            ("SELECT 1", " UNION ALL SELECT 1", "", 501),
            ("SELECT * FROM t", " JOIN t USING (a)", "", 501),
            ("SELECT 'a'", " COLLATE \"C\"", "", 501),
            ("SELECT a", " -> b", "", 501),
            ("SELECT ", "(", "1", 51),
            ("SELECT ", "ARRAY[", "1", 51),
            ("SELECT ", "{a: ", "1", 51),
            ("SELECT ", "CASE WHEN ", "1", 51),
            ("SELECT ", "(SELECT ", "1", 51),
            ("", "PREPARE p AS ", "SELECT 1", 501),
            ("", "BEGIN ", "SELECT 1", 10_000),
            ("SELECT ", "ROW ", "1", 10_000),
        ] {
            refused(&format!("{before}{}{after}", link.repeat(times)));
        }
        // Nested chains count together.
        let chain = "1 + ".repeat(60);
        refused(&format!(
            "SELECT {}1",
            format!("({chain}").repeat(10) + &")".repeat(10)
        ));
    }

    #[test]
    fn what_stands_beside_each_other_may_be_long() {
        for sql in [
            format!("SELECT 1 IN (1{})", ", -1".repeat(10_000)),
            format!(
                "INSERT INTO t VALUES (1){}",
                ", (now(), 'a', -1.5)".repeat(20_000)
            ),
            format!(
                "SELECT CASE{} END",
                " WHEN a = 1 AND b > 2 THEN 'x'".repeat(2_000)
            ),
            format!("SELECT a{}", ", a + 1 AS b".repeat(5_000)),
            format!("SELECT 1{}", "; SELECT a + 1".repeat(5_000)),
            format!("SELECT {}1{}", "(".repeat(45), ")".repeat(45)),
            format!("SELECT 1{}", " + (1)".repeat(499)),
        ] {
            assert!(weigh(&sql).is_ok(), "{}", &sql[..40]);
        }
        assert!(!weigh("SELECT a + 1 FROM t WHERE b = 2").unwrap().large);
        assert!(
            weigh(&format!("SELECT 1{}", " + 1".repeat(101)))
                .unwrap()
                .large
        );
    }
}
