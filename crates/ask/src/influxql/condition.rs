//! `WHERE`: the range of instants, and the condition on tags and fields.
//!
//! Invariant: a condition is split into one range of instants, outside of which it is false, and a
//! remainder. If `time` is compared in parts that are not all required, the range is the narrowest
//! one around all possible instants, and the remainder decides for each row.

use super::arithmetic::{check_bits, literal, type_of_operation};
use super::field::ReadField;
use super::invalid;
use super::predicate::{Operand, Predicate};
use super::times::{is_time, mentions_time};
use crate::error::Error;
use headwater::{ClosedRange, FieldType, Timestamp, Value};
use headwater_wire::influxql::{Cast, Expression, Literal, Operator};
use headwater_wire::instant::parse_instant;
use jiff::tz::TimeZone;
use regex::{Regex, RegexBuilder};

/// Memory of a compiled regular expression.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A condition, split into its range of time and the remainder.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) range: ClosedRange,
    /// True if the statement has a lower bound of time.
    pub(super) has_start: bool,
    /// True if the statement has an upper bound of time.
    pub(super) has_end: bool,
    pub(super) rest: Vec<Expression>,
    /// True if the remainder also compares time.
    pub(super) has_times_in_rest: bool,
}

pub(super) fn compile_regex(pattern: &str) -> Result<Regex, Error> {
    RegexBuilder::new(pattern)
        .size_limit(REGEX_BYTES_MAX)
        .build()
        .map_err(|error| {
            invalid(format!(
                "the regular expression /{pattern}/ is invalid: {error}"
            ))
        })
}

/// A time zone by its name.
pub(super) fn time_zone(name: &str) -> Result<TimeZone, Error> {
    TimeZone::get(name).map_err(|_| invalid(format!("unable to find time zone {name}")))
}

impl Condition {
    pub(super) fn new(
        condition: Option<&Expression>,
        now: Timestamp,
        zone: Option<&TimeZone>,
    ) -> Result<Condition, Error> {
        let mut out = Condition {
            range: ClosedRange::ALL,
            has_start: false,
            has_end: false,
            rest: Vec::new(),
            has_times_in_rest: false,
        };
        if let Some(condition) = condition {
            out.add(condition, now, zone)?;
        }
        Ok(out)
    }

    fn add(
        &mut self,
        part: &Expression,
        now: Timestamp,
        zone: Option<&TimeZone>,
    ) -> Result<(), Error> {
        match part {
            Expression::All(parts) => parts.iter().try_for_each(|p| self.add(p, now, zone)),
            other => {
                let (span, rest) = resolved(other, now, zone)?;
                self.narrow(span.range, span.has_start, span.has_end);
                if compared_time(other).is_none() {
                    self.has_times_in_rest |= mentions_time(other);
                    self.rest.push(rest);
                }
                Ok(())
            }
        }
    }

    /// Refuses conditions whose remainder compares time, for statements that require a single
    /// range. `how` is the advice to the client.
    pub(super) fn must_be_one_range(&self, statement: &str, how: &str) -> Result<(), Error> {
        if !self.has_times_in_rest {
            return Ok(());
        }
        Err(invalid(format!(
            "{statement}: time can be compared only in parts of WHERE that are joined by AND; {how}"
        )))
    }

    /// Intersects the range with the range of the outer query.
    pub(super) fn narrow(&mut self, range: ClosedRange, has_start: bool, has_end: bool) {
        self.range = self.range.intersect(&range);
        self.has_start |= has_start;
        self.has_end |= has_end;
    }
}

/// The instants for which a condition may be true.
#[derive(Clone, Copy)]
struct Span {
    range: ClosedRange,
    has_start: bool,
    has_end: bool,
}

impl Span {
    const ALL: Span = Span {
        range: ClosedRange::ALL,
        has_start: false,
        has_end: false,
    };

    /// The intersection of spans, for `AND`.
    fn of_all(spans: &[Span]) -> Span {
        let both = |a: Span, b: &Span| Span {
            range: a.range.intersect(&b.range),
            has_start: a.has_start || b.has_start,
            has_end: a.has_end || b.has_end,
        };
        spans.iter().fold(Span::ALL, both)
    }

    /// The narrowest span around all spans, for `OR`.
    fn of_any(spans: &[Span]) -> Span {
        let around = |a: Span, b: &Span| Span {
            range: ClosedRange::new(
                a.range.first.min(b.range.first),
                a.range.last.max(b.range.last),
            ),
            has_start: a.has_start && b.has_start,
            has_end: a.has_end && b.has_end,
        };
        let mut there = spans.iter().filter(|span| !span.range.is_empty());
        match there.next() {
            Some(first) => there.fold(*first, around),
            None => Span {
                range: ClosedRange::EMPTY,
                has_start: true,
                has_end: true,
            },
        }
    }

    /// The span of a comparison of `time`.
    fn compared(operator: Operator, at: i128) -> Result<Span, Error> {
        let all = ClosedRange::ALL;
        let clamped =
            |at: i128| Timestamp::from_nanos(at.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        let from = |at: i128| match at > i64::MAX.into() {
            true => ClosedRange::EMPTY,
            false => ClosedRange::new(clamped(at), all.last),
        };
        let to = |at: i128| match at < i64::MIN.into() {
            true => ClosedRange::EMPTY,
            false => ClosedRange::new(all.first, clamped(at)),
        };
        let range = match operator {
            Operator::Equal => from(at).intersect(&to(at)),
            Operator::Greater => from(at + 1),
            Operator::GreaterOrEqual => from(at),
            Operator::Less => to(at - 1),
            Operator::LessOrEqual => to(at),
            _ => {
                let text = operator.text();
                return Err(invalid(format!(
                    "invalid time comparison operator: {text}; expected =, <, <=, > or >=, such as (time < 10s OR time > 10s)"
                )));
            }
        };
        Ok(Span {
            range,
            has_start: !matches!(operator, Operator::Less | Operator::LessOrEqual),
            has_end: !matches!(operator, Operator::Greater | Operator::GreaterOrEqual),
        })
    }

    /// The condition that a row is within the span.
    fn condition(self) -> Expression {
        if self.range.is_empty() || self.range == ClosedRange::ALL {
            return Expression::Literal(Literal::Boolean(!self.range.is_empty()));
        }
        let bound = |operator, at: Timestamp| Expression::Binary {
            operator,
            left: Box::new(Expression::reference("time")),
            right: Box::new(Expression::Literal(Literal::Integer(at.as_nanos()))),
        };
        Expression::All(vec![
            bound(Operator::GreaterOrEqual, self.range.first),
            bound(Operator::LessOrEqual, self.range.last),
        ])
    }
}

/// The comparison of time in an expression, with time before the operator.
fn compared_time(expression: &Expression) -> Option<(Operator, &Expression)> {
    match expression {
        Expression::Binary {
            operator,
            left,
            right,
        } if is_time(left) => Some((*operator, right)),
        Expression::Binary {
            operator,
            left,
            right,
        } if is_time(right) => Some((operator.mirrored(), left)),
        _ => None,
    }
}

/// The instants for which an expression may be true, and the same expression with the operands that
/// time is compared with replaced by instants.
fn resolved(
    expression: &Expression,
    now: Timestamp,
    zone: Option<&TimeZone>,
) -> Result<(Span, Expression), Error> {
    if let Some((operator, value)) = compared_time(expression) {
        let span = Span::compared(operator, instant(value, now, zone)?)?;
        return Ok((span, span.condition()));
    }
    if !mentions_time(expression) {
        return Ok((Span::ALL, expression.clone()));
    }
    let each = |parts: &[Expression]| -> Result<(Vec<Span>, Vec<Expression>), Error> {
        let parts = parts.iter().map(|part| resolved(part, now, zone));
        let parts: Vec<_> = parts.collect::<Result<_, Error>>()?;
        Ok(parts.into_iter().unzip())
    };
    match expression {
        Expression::All(parts) => {
            let (spans, parts) = each(parts)?;
            Ok((Span::of_all(&spans), Expression::All(parts)))
        }
        Expression::Any(parts) => {
            let (spans, parts) = each(parts)?;
            Ok((Span::of_any(&spans), Expression::Any(parts)))
        }
        other => Err(invalid(format!(
            "{other}: time can only be compared with a literal or now(), such as time > now() - 1h, and not used in arithmetic"
        ))),
    }
}

/// An instant in ns since 1970.
fn instant(value: &Expression, now: Timestamp, zone: Option<&TimeZone>) -> Result<i128, Error> {
    match value {
        Expression::Literal(Literal::Integer(ns) | Literal::Duration(ns)) => Ok((*ns).into()),
        Expression::Literal(Literal::Unsigned(ns)) => Ok((*ns).into()),
        Expression::Literal(Literal::Float(ns)) => Ok(*ns as i128),
        Expression::Literal(Literal::Text(text)) => instant_of_text(text, zone),
        Expression::Call { name, arguments } if name == "now" && arguments.is_empty() => {
            Ok(now.as_nanos().into())
        }
        Expression::Binary {
            operator: operator @ (Operator::Add | Operator::Subtract),
            left,
            right,
        } => {
            let (left, right) = (instant(left, now, zone)?, instant(right, now, zone)?);
            // Each operand is at most 2^127 / 2^48, and there are at most some hundred.
            Ok(match operator {
                Operator::Add => left.saturating_add(right),
                _ => left.saturating_sub(right),
            })
        }
        other => Err(invalid(format!(
            "time is compared with {other}: expected an integer of nanoseconds, a number with a unit, a text such as '2015-08-18T00:00:00Z', now(), or a sum or difference of these"
        ))),
    }
}

/// `2015-08-18T00:00:00.5Z`, `2015-08-18 00:00:00.5`, `2015-08-18`; without an offset in the zone
/// of the statement.
fn instant_of_text(text: &str, zone: Option<&TimeZone>) -> Result<i128, Error> {
    let text = text.trim();
    let wrong = || {
        invalid(format!(
            "invalid time '{text}': expected RFC 3339, '2015-08-18 00:00:00' or '2015-08-18'"
        ))
    };
    if !text.contains('-') {
        return Err(wrong());
    }
    let has_offset = parse_instant(text).is_ok() && text.len() > 10;
    if has_offset {
        return Ok(parse_instant(text).map_err(|_| wrong())?.as_nanos().into());
    }
    let shown = match text.len() {
        11.. => parse_instant(&format!("{text}Z")),
        _ => parse_instant(text),
    };
    let shown = i128::from(shown.map_err(|_| wrong())?.as_nanos());
    let Some(zone) = zone else {
        return Ok(shown);
    };
    // The local time of the zone is first read as if it were UTC, including a second of 60.
    let local = jiff::Timestamp::from_nanosecond(shown).map_err(|_| wrong())?;
    let at = zone.to_timestamp(TimeZone::UTC.to_datetime(local));
    Ok(at.map_err(|_| wrong())?.as_nanosecond())
}

/// Compiles predicates for the streams of one table.
pub(super) struct Compiler<'a> {
    /// The fields of the table.
    pub(super) table_fields: &'a [(String, FieldType)],
    /// Fields to read, in the order of their columns.
    pub(super) read: Vec<ReadField>,
}

impl Compiler<'_> {
    /// The column of a field among the fields to read, cast if requested.
    pub(super) fn column(&mut self, name: &str, cast: Option<Cast>) -> Option<usize> {
        let (name, stored) = self.table_fields.iter().find(|(n, _)| n == name)?;
        let field = ReadField::new(name, *stored, cast);
        if let Some(at) = self.read.iter().position(|read| *read == field) {
            return Some(at);
        }
        self.read.push(field);
        Some(self.read.len() - 1)
    }

    /// The column of a tag, which is read as text.
    pub(super) fn tag(&mut self, name: &str) -> usize {
        let tag = ReadField::of_tag(name);
        let at = self.read.iter().position(|read| *read == tag);
        at.unwrap_or_else(|| {
            self.read.push(tag);
            self.read.len() - 1
        })
    }

    pub(super) fn all(&mut self, parts: &[Expression]) -> Result<Predicate, Error> {
        let parts = parts.iter().map(|p| self.predicate(p));
        Ok(Predicate::All(parts.collect::<Result<_, _>>()?))
    }

    fn predicate(&mut self, expression: &Expression) -> Result<Predicate, Error> {
        match expression {
            Expression::All(parts) => self.all(parts),
            Expression::Any(parts) => {
                let parts = parts.iter().map(|p| self.predicate(p));
                Ok(Predicate::Any(parts.collect::<Result<_, _>>()?))
            }
            Expression::Literal(Literal::Boolean(value)) => Ok(Predicate::Constant(*value)),
            // The form that `resolved` returns.
            Expression::Binary {
                operator,
                left,
                right,
            } if is_time(left) => match &**right {
                Expression::Literal(Literal::Integer(at)) => {
                    let span = Span::compared(*operator, (*at).into())?;
                    Ok(Predicate::During(span.range))
                }
                _ => Err(unfit(expression)),
            },
            Expression::Binary {
                operator: operator @ (Operator::Matches | Operator::NotMatches),
                left,
                right,
            } => {
                let Expression::Literal(Literal::Regex(pattern)) = &**right else {
                    return Err(unfit(expression));
                };
                let operand = self.operand(left)?;
                let wanted = *operator == Operator::Matches;
                Ok(Predicate::Matches(operand, compile_regex(pattern)?, wanted))
            }
            Expression::Binary {
                operator,
                left,
                right,
            } if operator.is_comparison() => {
                let (left, right) = (self.operand(left)?, self.operand(right)?);
                Ok(Predicate::Compare(*operator, left, right))
            }
            // Bit operators of booleans are conditions by themselves, as boolean fields are.
            Expression::Binary { operator, .. } if operator.is_bitwise() => Ok(Predicate::Compare(
                Operator::Equal,
                self.operand(expression)?,
                Operand::Value(Value::Bool(true)),
            )),
            reference @ Expression::Reference { .. } => Ok(Predicate::Compare(
                Operator::Equal,
                self.operand(reference)?,
                Operand::Value(Value::Bool(true)),
            )),
            other => Err(unfit(other)),
        }
    }

    /// The result type of an operand, if known before rows are read.
    fn type_of(&self, operand: &Operand) -> Option<FieldType> {
        match operand {
            Operand::Value(value) => Some(value.as_ref().field_type()),
            Operand::Field(place) => self.read.get(*place).map(ReadField::field_type),
            Operand::Tag(_) => None,
            Operand::Operation(operator, left, right) => {
                type_of_operation(*operator, self.type_of(left), self.type_of(right))
            }
        }
    }

    fn operand(&mut self, expression: &Expression) -> Result<Operand, Error> {
        match expression {
            Expression::Literal(written) => {
                let value = literal(written).ok_or_else(|| unfit(expression))?;
                Ok(Operand::Value(value))
            }
            Expression::Reference { name, cast } => Ok(match cast {
                Some(Cast::Tag) => Operand::Tag(name.clone()),
                cast => match self.column(name, *cast) {
                    Some(column) => Operand::Field(column),
                    None => Operand::Tag(name.clone()),
                },
            }),
            Expression::Binary {
                operator,
                left,
                right,
            } if !operator.is_comparison() => {
                let (left, right) = (self.operand(left)?, self.operand(right)?);
                let types = (self.type_of(&left), self.type_of(&right));
                check_bits(expression, *operator, types)?;
                Ok(Operand::Operation(
                    *operator,
                    Box::new(left),
                    Box::new(right),
                ))
            }
            other => Err(unfit(other)),
        }
    }
}

fn unfit(expression: &Expression) -> Error {
    invalid(format!(
        "{expression} cannot stand in WHERE: expected comparisons of tags and fields with values, joined by AND and OR"
    ))
}
