//! Parts common to all statements: tokens, names, numbers, and the choice of a statement's reader.

use super::ast::{CreateDatabase, MeasurementName, Policy, Removal, Source, Statement};
use super::error::ParseError;
use super::lexer::{Lexer, Token};
use super::parameters::Parameters;

/// Statements of a text.
pub const STATEMENTS_MAX: usize = 256;
/// Parentheses and calls within each other.
pub const NESTING_MAX: usize = 48;
/// Maximum number of arithmetic operators in a text, which also limits its depth.
pub const OPERATORS_MAX: usize = 256;

/// Words that a text may begin with.
const STATEMENTS: &str = "SELECT, EXPLAIN, SHOW, DELETE, CREATE DATABASE, DROP DATABASE, DROP MEASUREMENT, DROP SERIES, CREATE RETENTION POLICY, ALTER RETENTION POLICY, DROP RETENTION POLICY";

/// Words that are not names unless they are in double quotes.
const RESERVED: [&str; 28] = [
    "ALL", "AND", "AS", "ASC", "BY", "CREATE", "DATABASE", "DESC", "DROP", "FROM", "GROUP", "IN",
    "INTO", "KEY", "KEYS", "LIMIT", "OFFSET", "ON", "OR", "ORDER", "SELECT", "SHOW", "SLIMIT",
    "SOFFSET", "TAG", "VALUES", "WHERE", "WITH",
];

/// Reads a text of one or more statements, with `;` between them.
///
/// ```
/// use headwater_wire::influxql::{Parameters, Statement, parse};
/// let statements = parse("SHOW DATABASES; SELECT mean(v) FROM m GROUP BY time(1m)", &Parameters::default())?;
/// assert!(matches!(statements[1], Statement::Select(_)));
/// let error = parse("SELECT v FORM m", &Parameters::default()).unwrap_err();
/// assert_eq!((error.line, error.column), (1, 10));
/// # Ok::<(), headwater_wire::influxql::ParseError>(())
/// ```
///
/// # Errors
/// For the first mistake; for a text without a statement.
pub fn parse(text: &str, parameters: &Parameters) -> Result<Vec<Statement>, ParseError> {
    let mut parser = Parser {
        text,
        lexer: Lexer::new(text),
        parameters,
        nesting: 0,
        operators: 0,
        queries: 0,
    };
    let mut statements = Vec::new();
    loop {
        while parser.take_symbol(";")? {}
        let (token, at) = parser.peek()?;
        if token == Token::End {
            break;
        }
        if statements.len() == STATEMENTS_MAX {
            return Err(parser.error(at, format!("more than {STATEMENTS_MAX} statements")));
        }
        statements.push(parser.statement()?);
        let (token, at) = parser.next()?;
        match token {
            Token::End => break,
            Token::Symbol(";") => {}
            found => return Err(parser.unexpected(&found, at, ";, EOF")),
        }
    }
    if statements.is_empty() {
        return Err(parser.error(text.len(), "found EOF, expected a statement"));
    }
    Ok(statements)
}

pub(super) struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    pub(super) parameters: &'a Parameters,
    pub(super) nesting: usize,
    pub(super) operators: usize,
    pub(super) queries: usize,
}

impl Parser<'_> {
    pub(super) fn error(&self, at: usize, message: impl Into<String>) -> ParseError {
        ParseError::at(self.text, at, message)
    }

    pub(super) fn unexpected(&self, found: &Token, at: usize, expected: &str) -> ParseError {
        let message = format!("found {}, expected {expected}", found.described());
        self.error(at, message)
    }

    pub(super) fn next(&mut self) -> Result<(Token, usize), ParseError> {
        self.lexer.next(false)
    }

    /// As [`Parser::next`], where a regular expression is allowed.
    pub(super) fn next_or_regex(&mut self) -> Result<(Token, usize), ParseError> {
        self.lexer.next(true)
    }

    pub(super) fn peek(&self) -> Result<(Token, usize), ParseError> {
        let mut ahead = self.lexer;
        ahead.next(false)
    }

    pub(super) fn peek_or_regex(&self) -> Result<(Token, usize), ParseError> {
        let mut ahead = self.lexer;
        ahead.next(true)
    }

    /// Consumes a symbol if it is next.
    pub(super) fn take_symbol(&mut self, symbol: &str) -> Result<bool, ParseError> {
        let mut ahead = self.lexer;
        let is = matches!(ahead.next(false)?.0, Token::Symbol(s) if s == symbol);
        if is {
            self.lexer = ahead;
        }
        Ok(is)
    }

    pub(super) fn expect_symbol(&mut self, symbol: &'static str) -> Result<(), ParseError> {
        match self.next()? {
            (Token::Symbol(s), _) if s == symbol => Ok(()),
            (found, at) => Err(self.unexpected(&found, at, symbol)),
        }
    }

    /// Consumes a keyword if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> Result<bool, ParseError> {
        self.take_words(&[word])
    }

    /// Consumes keywords if all of them are next.
    pub(super) fn take_words(&mut self, words: &[&str]) -> Result<bool, ParseError> {
        let mut ahead = self.lexer;
        for word in words {
            match ahead.next(false)? {
                (Token::Word(found), _) if found.eq_ignore_ascii_case(word) => {}
                _ => return Ok(false),
            }
        }
        self.lexer = ahead;
        Ok(true)
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<(), ParseError> {
        if self.take_word(word)? {
            return Ok(());
        }
        let (found, at) = self.next()?;
        Err(self.unexpected(&found, at, word))
    }

    /// A name.
    pub(super) fn name(&mut self) -> Result<String, ParseError> {
        let (token, at) = self.next()?;
        self.as_name(token, at)
    }

    pub(super) fn as_name(&self, token: Token, at: usize) -> Result<String, ParseError> {
        match token {
            Token::Quoted(name) => Ok(name),
            Token::Word(word) if !is_reserved(&word) => Ok(word),
            found => Err(self.unexpected(&found, at, "identifier")),
        }
    }

    /// A count after a keyword such as `LIMIT`, if the keyword is next.
    pub(super) fn count(&mut self, word: &str) -> Result<Option<u64>, ParseError> {
        if !self.take_word(word)? {
            return Ok(None);
        }
        match self.next()? {
            (Token::Integer(count), _) => Ok(Some(count)),
            (found, at) => Err(self.unexpected(&found, at, "integer")),
        }
    }

    /// Measurements with commas between them.
    pub(super) fn sources(&mut self) -> Result<Vec<Source>, ParseError> {
        let mut sources = vec![self.source()?];
        while self.take_symbol(",")? {
            sources.push(self.source()?);
        }
        Ok(sources)
    }

    pub(super) fn source(&mut self) -> Result<Source, ParseError> {
        // Up to three names with dots between them; the last may be a regular expression and the
        // middle one absent.
        let mut names: Vec<String> = Vec::new();
        loop {
            let (token, at) = self.next_or_regex()?;
            let last = match token {
                Token::Regex(pattern) => MeasurementName::Matching(pattern),
                Token::Symbol(".") if names.len() == 1 => {
                    names.push(String::new());
                    continue;
                }
                token => {
                    let name = self.as_name(token, at)?;
                    if names.len() < 2 && self.take_symbol(".")? {
                        names.push(name);
                        continue;
                    }
                    MeasurementName::Exact(name)
                }
            };
            let mut names = names.into_iter().rev();
            return Ok(Source {
                policy: names.next(),
                database: names.next(),
                name: last,
            });
        }
    }

    fn statement(&mut self) -> Result<Statement, ParseError> {
        let (token, at) = self.next()?;
        let word = match &token {
            Token::Word(word) => word.to_ascii_uppercase(),
            _ => String::new(),
        };
        match word.as_str() {
            "SELECT" => Ok(Statement::Select(Box::new(self.select()?))),
            "EXPLAIN" => {
                let is_analyzed = self.take_word("ANALYZE")?;
                self.expect_word("SELECT")?;
                let select = Box::new(self.select()?);
                Ok(Statement::Explain {
                    is_analyzed,
                    select,
                })
            }
            "SHOW" => Ok(Statement::Show(Box::new(self.show()?))),
            "CREATE" if self.take_word("DATABASE")? => {
                self.create_database().map(Statement::CreateDatabase)
            }
            "CREATE" if self.take_words(&["RETENTION", "POLICY"])? => {
                self.policy().map(Statement::CreatePolicy)
            }
            "ALTER" if self.take_words(&["RETENTION", "POLICY"])? => {
                self.policy().map(Statement::AlterPolicy)
            }
            "DROP" if self.take_words(&["RETENTION", "POLICY"])? => {
                let name = self.name()?;
                self.expect_word("ON")?;
                let database = self.name()?;
                Ok(Statement::DropPolicy { name, database })
            }
            "DROP" if self.take_word("DATABASE")? => self.name().map(Statement::DropDatabase),
            "DROP" if self.take_word("MEASUREMENT")? => self.name().map(Statement::DropMeasurement),
            "DROP" if self.take_word("SERIES")? => self.removal().map(Statement::DropSeries),
            "DELETE" => self.removal().map(Statement::Delete),
            "ALTER" | "CREATE" | "DROP" | "GRANT" | "KILL" | "REVOKE" | "SET" => {
                let message =
                    format!("{word} of this kind is not supported: expected {STATEMENTS}");
                Err(self.error(at, message))
            }
            _ => Err(self.unexpected(&token, at, STATEMENTS)),
        }
    }

    /// Behind `DELETE` or `DROP SERIES`.
    fn removal(&mut self) -> Result<Removal, ParseError> {
        let sources = match self.take_word("FROM")? {
            true => self.sources()?,
            false => Vec::new(),
        };
        let condition = self.optional_condition()?;
        if sources.is_empty() && condition.is_none() {
            let (found, at) = self.next()?;
            return Err(self.unexpected(&found, at, "FROM, WHERE"));
        }
        Ok(Removal { sources, condition })
    }

    /// Behind `CREATE RETENTION POLICY` and `ALTER RETENTION POLICY`.
    fn policy(&mut self) -> Result<Policy, ParseError> {
        let name = self.name()?;
        self.expect_word("ON")?;
        let mut out = Policy {
            name,
            database: self.name()?,
            ..Policy::default()
        };
        loop {
            if self.take_word("DURATION")? {
                out.duration_ns = Some(self.duration()?);
            } else if let Some(copies) = self.count("REPLICATION")? {
                out.replication = Some(copies);
            } else if self.take_words(&["SHARD", "DURATION"])? {
                out.shard_duration_ns = Some(self.duration()?);
            } else if self.take_word("DEFAULT")? {
                out.is_default = true;
            } else {
                return Ok(out);
            }
        }
    }

    fn create_database(&mut self) -> Result<CreateDatabase, ParseError> {
        let mut out = CreateDatabase {
            name: self.name()?,
            ..CreateDatabase::default()
        };
        if !self.take_word("WITH")? {
            return Ok(out);
        }
        if self.take_word("DURATION")? {
            out.duration_ns = Some(self.duration()?);
        }
        out.replication = self.count("REPLICATION")?;
        if self.take_words(&["SHARD", "DURATION"])? {
            out.shard_duration_ns = Some(self.duration()?);
        }
        if self.take_word("NAME")? {
            out.policy = Some(self.name()?);
        }
        Ok(out)
    }

    /// A length of time, or `INF`, which is 0.
    fn duration(&mut self) -> Result<i64, ParseError> {
        match self.next()? {
            (Token::Duration(ns), _) => Ok(ns),
            (Token::Word(word), _) if word.eq_ignore_ascii_case("INF") => Ok(0),
            (found, at) => Err(self.unexpected(&found, at, "duration")),
        }
    }
}

pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|r| r.eq_ignore_ascii_case(word))
}
