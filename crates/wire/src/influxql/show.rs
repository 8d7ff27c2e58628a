//! `SHOW …`.

use super::ast::{KeyFilter, MeasurementName, Show, ShowKind, Source};
use super::error::ParseError;
use super::lexer::Token;
use super::parser::Parser;

impl Parser<'_> {
    /// Behind the word `SHOW`.
    pub(super) fn show(&mut self) -> Result<Show, ParseError> {
        let (what, exact) = self.show_kind()?;
        let database = if self.take_word("ON")? {
            Some(self.name()?)
        } else {
            None
        };
        let mut show = Show {
            kind: what,
            exact,
            database,
            sources: Vec::new(),
            key: None,
            condition: None,
            descending: false,
            limit: None,
            offset: None,
            slimit: None,
            soffset: None,
        };
        match what {
            ShowKind::Databases
            | ShowKind::RetentionPolicies
            | ShowKind::ContinuousQueries
            | ShowKind::Users
            | ShowKind::Queries
            | ShowKind::Shards
            | ShowKind::ShardGroups => return Ok(show),
            ShowKind::Stats | ShowKind::Diagnostics => {
                // `FOR 'component'`: no component has data here.
                if self.take_word("FOR")? {
                    let (token, at) = self.next()?;
                    if !matches!(token, Token::Text(_)) {
                        return Err(self.unexpected(&token, at, "a text such as 'runtime'"));
                    }
                }
                return Ok(show);
            }
            _ => {}
        }
        if what == ShowKind::Measurements {
            if self.take_words(&["WITH", "MEASUREMENT"])? {
                show.sources = vec![self.with_measurement()?];
            }
        } else if self.take_word("FROM")? {
            show.sources = self.sources()?;
        }
        if self.take_words(&["WITH", "KEY"])? {
            show.key = Some(self.with_key()?);
        } else if matches!(what, ShowKind::TagValues | ShowKind::TagValuesCardinality) {
            let (found, at) = self.next()?;
            return Err(self.unexpected(&found, at, "WITH KEY"));
        }
        show.condition = self.optional_condition()?;
        show.descending = self.order_by_time()?;
        show.limit = self.count("LIMIT")?;
        show.offset = self.count("OFFSET")?;
        show.slimit = self.count("SLIMIT")?;
        show.soffset = self.count("SOFFSET")?;
        Ok(show)
    }

    fn show_kind(&mut self) -> Result<(ShowKind, bool), ParseError> {
        for (what, words) in ShowKind::ALL {
            if self.take_words(words)? {
                return Ok((what, false));
            }
            if let Some((last @ &"CARDINALITY", first)) = words.split_last() {
                let mut words = first.to_vec();
                words.extend(["EXACT", last]);
                if self.take_words(&words)? {
                    return Ok((what, true));
                }
            }
        }
        let (found, at) = self.next()?;
        let expected: Vec<String> = ShowKind::ALL.iter().map(|(w, _)| w.words()).collect();
        Err(self.unexpected(&found, at, &expected.join(", ")))
    }

    fn with_measurement(&mut self) -> Result<Source, ParseError> {
        let (token, at) = self.next()?;
        let name = match token {
            Token::Symbol("=") => match self.next_or_regex()? {
                (Token::Regex(pattern), _) => MeasurementName::Matching(pattern),
                (token, at) => MeasurementName::Exact(self.as_name(token, at)?),
            },
            Token::Symbol("=~") => MeasurementName::Matching(self.pattern()?),
            found => return Err(self.unexpected(&found, at, "=, =~")),
        };
        Ok(Source {
            database: None,
            policy: None,
            name,
        })
    }

    fn pattern(&mut self) -> Result<String, ParseError> {
        match self.next_or_regex()? {
            (Token::Regex(pattern), _) => Ok(pattern),
            (found, at) => Err(self.unexpected(&found, at, "regex")),
        }
    }

    fn with_key(&mut self) -> Result<KeyFilter, ParseError> {
        if self.take_word("IN")? {
            self.expect_symbol("(")?;
            let mut keys = vec![self.name()?];
            while self.take_symbol(",")? {
                keys.push(self.name()?);
            }
            self.expect_symbol(")")?;
            return Ok(KeyFilter::In(keys));
        }
        let (token, at) = self.next()?;
        match token {
            Token::Symbol("=") => self.name().map(KeyFilter::Equal),
            Token::Symbol("!=" | "<>") => self.name().map(KeyFilter::NotEqual),
            Token::Symbol("=~") => self.pattern().map(KeyFilter::Matching),
            Token::Symbol("!~") => self.pattern().map(KeyFilter::NotMatching),
            found => Err(self.unexpected(&found, at, "=, !=, =~, !~, IN")),
        }
    }
}
