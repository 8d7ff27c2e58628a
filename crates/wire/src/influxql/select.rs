//! Parser of `SELECT`.

use super::ast::{
    Dimension, Expression, Fill, IntoTarget, Literal, Select, SelectField, SelectSource,
};
use super::error::ParseError;
use super::lexer::Token;
use super::parser::Parser;
use crate::instant::parse_instant;

/// Nested queries.
pub(super) const QUERIES_MAX: usize = 16;
/// Columns and groupings of a statement.
const PARTS_MAX: usize = 1_024;

impl Parser<'_> {
    /// Behind the word `SELECT`.
    pub(super) fn select(&mut self) -> Result<Select, ParseError> {
        let mut fields = vec![self.select_field()?];
        while self.take_symbol(",")? {
            fields.push(self.select_field()?);
            if fields.len() > PARTS_MAX {
                let (_, at) = self.peek()?;
                return Err(self.error(at, format!("more than {PARTS_MAX} columns")));
            }
        }
        let (_, at) = self.peek()?;
        let into = match self.take_word("INTO")? {
            true if self.queries > 0 => {
                let message = "INTO is allowed only in the outermost SELECT";
                return Err(self.error(at, message));
            }
            true => Some(self.target()?),
            false => None,
        };
        self.expect_word("FROM")?;
        let mut sources = vec![self.select_source()?];
        while self.take_symbol(",")? {
            sources.push(self.select_source()?);
        }
        let condition = self.optional_condition()?;
        let group_by = self.group_by()?;
        let fill = self.fill()?;
        let descending = self.order_by_time()?;
        let (limit, offset) = (self.count("LIMIT")?, self.count("OFFSET")?);
        let (slimit, soffset) = (self.count("SLIMIT")?, self.count("SOFFSET")?);
        Ok(Select {
            fields,
            into,
            sources,
            condition,
            group_by,
            fill,
            descending,
            limit,
            offset,
            slimit,
            soffset,
            time_zone: self.time_zone()?,
        })
    }

    /// Target after the word `INTO`: up to three names with dots between them; the middle one may
    /// be absent, and the last one may be `:MEASUREMENT`.
    fn target(&mut self) -> Result<IntoTarget, ParseError> {
        let mut names = vec![self.name()?];
        loop {
            let is_last = !self.take_symbol(".")?;
            if is_last || names.len() == 3 {
                break;
            }
            if names.len() == 1 && self.take_symbol(".")? {
                names.push(String::new());
            }
            if self.take_symbol(":")? {
                self.expect_word("MEASUREMENT")?;
                let mut names = names.into_iter().rev();
                return Ok(IntoTarget {
                    policy: names.next(),
                    database: names.next(),
                    name: None,
                });
            }
            names.push(self.name()?);
        }
        let mut names = names.into_iter().rev();
        Ok(IntoTarget {
            name: names.next(),
            policy: names.next(),
            database: names.next(),
        })
    }

    fn select_source(&mut self) -> Result<SelectSource, ParseError> {
        let (_, at) = self.peek_or_regex()?;
        if !self.take_symbol("(")? {
            return self.source().map(SelectSource::Measurement);
        }
        if self.queries == QUERIES_MAX {
            let message = format!("subqueries are nested more than {QUERIES_MAX} deep");
            return Err(self.error(at, message));
        }
        self.queries += 1;
        self.expect_word("SELECT")?;
        let inner = self.select()?;
        self.queries -= 1;
        self.expect_symbol(")")?;
        Ok(SelectSource::Query(Box::new(inner)))
    }

    pub(super) fn optional_condition(&mut self) -> Result<Option<Expression>, ParseError> {
        if self.take_word("WHERE")? {
            return self.condition().map(Some);
        }
        Ok(None)
    }

    fn select_field(&mut self) -> Result<SelectField, ParseError> {
        let expression = self.operation(1)?;
        let alias = if self.take_word("AS")? {
            Some(self.name()?)
        } else {
            None
        };
        Ok(SelectField { expression, alias })
    }

    fn group_by(&mut self) -> Result<Vec<Dimension>, ParseError> {
        if !self.take_words(&["GROUP", "BY"])? {
            return Ok(Vec::new());
        }
        let mut dimensions = Vec::new();
        loop {
            let (_, at) = self.peek_or_regex()?;
            let dimension = self.dimension()?;
            let is_time = |d: &Dimension| matches!(d, Dimension::Time { .. });
            if is_time(&dimension) && dimensions.iter().any(is_time) {
                return Err(self.error(at, "multiple time dimensions not allowed"));
            }
            dimensions.push(dimension);
            if dimensions.len() > PARTS_MAX {
                return Err(self.error(at, format!("more than {PARTS_MAX} groupings")));
            }
            if !self.take_symbol(",")? {
                return Ok(dimensions);
            }
        }
    }

    fn dimension(&mut self) -> Result<Dimension, ParseError> {
        let (token, at) = self.next_or_regex()?;
        match token {
            Token::Symbol("*") => Ok(Dimension::All),
            Token::Regex(pattern) => Ok(Dimension::Matching(pattern)),
            Token::Word(word) if word.eq_ignore_ascii_case("time") && self.take_symbol("(")? => {
                let every_ns = self.duration_value()?;
                if every_ns <= 0 {
                    return Err(self.error(at, "the interval of time() must be longer than zero"));
                }
                let (offset_ns, from_now) = match self.take_symbol(",")? {
                    true => self.offset(every_ns)?,
                    false => (0, false),
                };
                self.expect_symbol(")")?;
                Ok(Dimension::Time {
                    every_ns,
                    offset_ns,
                    from_now,
                })
            }
            token => {
                let name = self.as_name(token, at)?;
                if self.take_symbol("::")? {
                    self.expect_word("tag")?;
                }
                Ok(Dimension::Tag(name))
            }
        }
    }

    /// Offset of intervals with a width: a duration, or an instant at which one of them begins.
    fn offset(&mut self, every_ns: i64) -> Result<(i64, bool), ParseError> {
        let (token, at) = self.peek()?;
        match self.operation(1)? {
            Expression::Literal(Literal::Duration(ns)) => Ok((ns, false)),
            Expression::Literal(Literal::Text(text)) => match parse_instant(&text) {
                Ok(instant) => Ok((instant.as_nanos().rem_euclid(every_ns), false)),
                Err(error) => Err(self.error(at, error.to_string())),
            },
            Expression::Call { name, arguments } if name == "now" && arguments.is_empty() => {
                Ok((0, true))
            }
            _ => Err(self.unexpected(&token, at, "duration such as 10s, now()")),
        }
    }

    /// A length of time, perhaps negative, perhaps from a parameter.
    fn duration_value(&mut self) -> Result<i64, ParseError> {
        let (token, at) = self.peek()?;
        match self.operation(1)? {
            Expression::Literal(Literal::Duration(ns)) => Ok(ns),
            _ => Err(self.unexpected(&token, at, "duration such as 10s")),
        }
    }

    fn fill(&mut self) -> Result<Fill, ParseError> {
        if !self.take_word("FILL")? {
            return Ok(Fill::default());
        }
        self.expect_symbol("(")?;
        let (token, at) = self.peek()?;
        let fill = match &token {
            Token::Word(word) => {
                self.next()?;
                match word.to_ascii_lowercase().as_str() {
                    "null" => Fill::Null,
                    "none" => Fill::None,
                    "previous" => Fill::Previous,
                    "linear" => Fill::Linear,
                    _ => return Err(self.unexpected(&token, at, FILLS)),
                }
            }
            _ => match self.operation(1)? {
                Expression::Literal(Literal::Integer(number)) => Fill::Integer(number),
                Expression::Literal(Literal::Float(number)) => Fill::Float(number),
                _ => return Err(self.unexpected(&token, at, FILLS)),
            },
        };
        self.expect_symbol(")")?;
        Ok(fill)
    }

    /// True for falling order.
    pub(super) fn order_by_time(&mut self) -> Result<bool, ParseError> {
        if !self.take_words(&["ORDER", "BY"])? {
            return Ok(false);
        }
        let (token, at) = self.next()?;
        match &token {
            Token::Word(word) if word.eq_ignore_ascii_case("desc") => return Ok(true),
            Token::Word(word) if word.eq_ignore_ascii_case("asc") => return Ok(false),
            Token::Word(word) | Token::Quoted(word) if word.eq_ignore_ascii_case("time") => {}
            _ => {
                let message = "only ORDER BY time supported at this time";
                return Err(self.error(at, message));
            }
        }
        if self.take_word("DESC")? {
            return Ok(true);
        }
        self.take_word("ASC")?;
        Ok(false)
    }

    fn time_zone(&mut self) -> Result<Option<String>, ParseError> {
        if !self.take_word("TZ")? {
            return Ok(None);
        }
        self.expect_symbol("(")?;
        let name = match self.next()? {
            (Token::Text(name), _) => name,
            (found, at) => {
                return Err(self.unexpected(&found, at, "a time zone such as 'Europe/Oslo'"));
            }
        };
        self.expect_symbol(")")?;
        Ok(Some(name))
    }
}

const FILLS: &str = "null, none, previous, linear, or a number";
