//! Expressions: of `AND` and `OR`, comparisons, sums, products, calls.

use super::ast::{Cast, Expression, Literal, Operator, WildcardKind};
use super::error::ParseError;
use super::lexer::Token;
use super::parser::{NESTING_MAX, OPERATORS_MAX, Parser, is_reserved};

/// The precedence of an operator.
pub(super) const fn strength(operator: Operator) -> u8 {
    match operator {
        Operator::Multiply | Operator::Divide | Operator::Modulo | Operator::BitAnd => 2,
        Operator::Add | Operator::Subtract | Operator::BitOr | Operator::BitXor => 1,
        _ => 0,
    }
}

impl Parser<'_> {
    /// Reads a condition.
    pub(super) fn condition(&mut self) -> Result<Expression, ParseError> {
        let mut parts = vec![self.conjunction()?];
        while self.take_word("OR")? {
            parts.push(self.conjunction()?);
        }
        Ok(one_or(parts, Expression::Any))
    }

    fn conjunction(&mut self) -> Result<Expression, ParseError> {
        let mut parts = vec![self.operation(0)?];
        while self.take_word("AND")? {
            parts.push(self.operation(0)?);
        }
        Ok(one_or(parts, Expression::All))
    }

    /// Operands with operators between them of at least this strength, from the left.
    pub(super) fn operation(&mut self, least: u8) -> Result<Expression, ParseError> {
        let mut left = self.operand()?;
        loop {
            let (token, at) = self.peek()?;
            let Some(operator) = operator_of(&token) else {
                return Ok(left);
            };
            if strength(operator) < least {
                return Ok(left);
            }
            self.next()?;
            if !operator.is_comparison() {
                self.count_operator(at)?;
            }
            let right = match operator {
                Operator::Matches | Operator::NotMatches => self.regex()?,
                _ => self.operation(strength(operator) + 1)?,
            };
            left = Expression::Binary {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            };
            if operator.is_comparison() {
                // Comparisons do not chain.
                return Ok(left);
            }
        }
    }

    /// Counts an operator, which may add one level of depth.
    fn count_operator(&mut self, at: usize) -> Result<(), ParseError> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return Err(self.error(at, format!("more than {OPERATORS_MAX} operators")));
        }
        Ok(())
    }

    fn regex(&mut self) -> Result<Expression, ParseError> {
        match self.next_or_regex()? {
            (Token::Regex(pattern), _) => Ok(Expression::Literal(Literal::Regex(pattern))),
            (Token::Parameter(name), at) => match self.parameter(&name, at)? {
                literal @ Literal::Regex(_) => Ok(Expression::Literal(literal)),
                Literal::Text(pattern) => Ok(Expression::Literal(Literal::Regex(pattern))),
                _ => Err(self.error(
                    at,
                    format!("the parameter ${name} is not a regular expression"),
                )),
            },
            (found, at) => Err(self.unexpected(&found, at, "regex")),
        }
    }

    fn parameter(&self, name: &str, at: usize) -> Result<Literal, ParseError> {
        self.parameters
            .get(name)
            .cloned()
            .ok_or_else(|| self.error(at, format!("missing parameter: {name}")))
    }

    /// Parses one level deeper.
    fn deeper<T>(
        &mut self,
        at: usize,
        inner: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.nesting == NESTING_MAX {
            let message = format!("parentheses are nested more than {NESTING_MAX} deep");
            return Err(self.error(at, message));
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    fn operand(&mut self) -> Result<Expression, ParseError> {
        let (token, at) = self.next_or_regex()?;
        let literal = match token {
            Token::Integer(number) => match i64::try_from(number) {
                Ok(number) => Literal::Integer(number),
                Err(_) => Literal::Unsigned(number),
            },
            Token::Float(number) => Literal::Float(number),
            Token::Duration(ns) => Literal::Duration(ns),
            Token::Text(text) => Literal::Text(text),
            Token::Regex(pattern) => Literal::Regex(pattern),
            Token::Parameter(name) => self.parameter(&name, at)?,
            Token::Symbol("-") => return self.negated(at),
            Token::Symbol("+") => return self.deeper(at, Parser::operand),
            Token::Symbol("(") => {
                return self.deeper(at, |parser| {
                    let inner = parser.condition()?;
                    parser.expect_symbol(")")?;
                    Ok(inner)
                });
            }
            Token::Symbol("*") => {
                let kind = if self.take_symbol("::")? {
                    match self.cast()? {
                        Cast::Field => WildcardKind::Fields,
                        Cast::Tag => WildcardKind::Tags,
                        _ => return Err(self.error(at, "expected *::field or *::tag")),
                    }
                } else {
                    WildcardKind::All
                };
                return Ok(Expression::Wildcard(kind));
            }
            Token::Word(word) if word.eq_ignore_ascii_case("true") => Literal::Boolean(true),
            Token::Word(word) if word.eq_ignore_ascii_case("false") => Literal::Boolean(false),
            Token::Word(word) if !is_reserved(&word) && self.take_symbol("(")? => {
                let arguments = self.deeper(at, Parser::arguments)?;
                return Ok(Expression::Call {
                    name: word.to_ascii_lowercase(),
                    arguments,
                });
            }
            Token::Word(word)
                if word.eq_ignore_ascii_case("distinct") && self.is_name_next()? =>
            {
                // Without parentheses, a single name.
                let name = self.name()?;
                return Ok(Expression::Call {
                    name: "distinct".to_owned(),
                    arguments: vec![Expression::reference(name)],
                });
            }
            token @ (Token::Word(_) | Token::Quoted(_)) => {
                let name = self.as_name(token, at)?;
                let cast = if self.take_symbol("::")? {
                    Some(self.cast()?)
                } else {
                    None
                };
                return Ok(Expression::Reference { name, cast });
            }
            found => return Err(self.unexpected(&found, at, "identifier, value, (")),
        };
        Ok(Expression::Literal(literal))
    }

    fn is_name_next(&self) -> Result<bool, ParseError> {
        Ok(match self.peek()?.0 {
            Token::Quoted(_) => true,
            Token::Word(word) => !is_reserved(&word),
            _ => false,
        })
    }

    /// Reads the operand of a minus. The minus of a number becomes part of the number, and is not
    /// an operation.
    fn negated(&mut self, at: usize) -> Result<Expression, ParseError> {
        let inner = match self.peek()? {
            (Token::Integer(_) | Token::Float(_) | Token::Duration(_), _) => self.operand()?,
            _ => self.deeper(at, Parser::operand)?,
        };
        let below = || self.error(at, "the number is less than the smallest integer");
        let literal = match inner {
            Expression::Literal(Literal::Integer(number)) => {
                Literal::Integer(number.checked_neg().ok_or_else(below)?)
            }
            Expression::Literal(Literal::Unsigned(number)) => {
                // One below the smallest is all that is left.
                let number = i64::try_from(-i128::from(number)).map_err(|_| below())?;
                Literal::Integer(number)
            }
            Expression::Literal(Literal::Float(number)) => Literal::Float(-number),
            Expression::Literal(Literal::Duration(ns)) => Literal::Duration(ns.saturating_neg()),
            Expression::Literal(_) => return Err(self.error(at, "only numbers can be negative")),
            inner => {
                self.count_operator(at)?;
                return Ok(Expression::Binary {
                    operator: Operator::Multiply,
                    left: Box::new(Expression::Literal(Literal::Integer(-1))),
                    right: Box::new(inner),
                });
            }
        };
        Ok(Expression::Literal(literal))
    }

    /// Arguments after the opening parenthesis, including the closing one.
    fn arguments(&mut self) -> Result<Vec<Expression>, ParseError> {
        let mut arguments = Vec::new();
        if self.take_symbol(")")? {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.operation(1)?);
            let (token, at) = self.next()?;
            match token {
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(arguments),
                found => return Err(self.unexpected(&found, at, ", or )")),
            }
        }
    }

    fn cast(&mut self) -> Result<Cast, ParseError> {
        let (token, at) = self.next()?;
        if let Token::Word(word) = &token {
            // `tag` is reserved elsewhere.
            let entry = Cast::ALL
                .iter()
                .find(|(_, name)| name.eq_ignore_ascii_case(word));
            if let Some((cast, _)) = entry {
                return Ok(*cast);
            }
        }
        let expected = "field, tag, float, integer, unsigned, string, boolean";
        Err(self.unexpected(&token, at, expected))
    }
}

fn operator_of(token: &Token) -> Option<Operator> {
    let Token::Symbol(symbol) = token else {
        return None;
    };
    if *symbol == "<>" {
        return Some(Operator::NotEqual);
    }
    let entry = Operator::ALL.iter().find(|(_, text)| text == symbol);
    entry.map(|(operator, _)| *operator)
}

fn one_or(mut parts: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1
        && let Some(part) = parts.pop()
    {
        return part;
    }
    many(parts)
}
