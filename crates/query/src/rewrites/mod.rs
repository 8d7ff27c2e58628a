//! Compatibility rewrites: statements with PostgreSQL's meaning, where the SQL library interprets
//! them differently or does not support them.
//!
//! [`names`] permits columns of a query with equal names, `casts` calls with equal names, `lookups`
//! and `lateral` rewrite subqueries, [`patterns`] are those of `SIMILAR TO`, [`lengths`] parses
//! texts of intervals, [`times`] texts of instants, and this module rewrites a parsed statement so
//! that the library interprets it as PostgreSQL does.
//!
//! Invariants: a statement without any of these is unchanged; a replacement has the position of the
//! original.

pub(crate) mod asof;
mod called;
mod casts;
mod lateral;
pub(crate) mod lengths;
mod lookups;
pub(crate) mod names;
pub(crate) mod patterns;
pub(crate) mod times;
pub(crate) mod toolkit;

pub use called::first_select;

pub(crate) use called::folded;
pub(crate) use lookups::binary;

use crate::error::{Error, Result};
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, Interval, LimitClause, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins, UnaryOperator,
    Value, ValueWithSpan, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use lookups::Lookups;
use std::ops::ControlFlow;

/// Rewrites a statement to PostgreSQL's meaning.
pub(crate) fn reword(statement: &mut Parse) -> Result<()> {
    let parsed = match statement {
        Parse::Statement(parsed) => parsed,
        Parse::Explain(explain) => return reword(&mut explain.statement),
        _ => return Ok(()),
    };
    names::distinguish(parsed);
    match parsed.visit(&mut Reword) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// A selected series returns a row for each of its values, as in PostgreSQL; the library's is a
/// list.
fn rows_of_series(item: &mut SelectItem) {
    let (expr, alias) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, Ident::new(SERIES)),
        SelectItem::ExprWithAlias { expr, alias } => (expr, alias.clone()),
        _ => return,
    };
    if let Expr::Function(function) = &*expr
        && is_called(function, SERIES)
    {
        *item = SelectItem::ExprWithAlias {
            expr: call("unnest", vec![expr.clone()]),
            alias,
        };
    }
}

/// Returns a list of numbers or instants.
const SERIES: &str = "generate_series";

/// `SELECT * FROM table`
pub(crate) fn all_of_table(name: ObjectName) -> Query {
    let table = TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    };
    let select = Select {
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        from: vec![TableWithJoins {
            relation: table,
            joins: Vec::new(),
        }],
        ..lookups::empty_select()
    };
    Query {
        body: Box::new(SetExpr::Select(Box::new(select))),
        ..lookups::empty_query()
    }
}

/// `SELECT CAST(NULL AS type)`
pub(crate) fn null_as(data_type: &DataType) -> Query {
    let cast = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value(Value::Null)),
        data_type: data_type.clone(),
        array: false,
        format: None,
    };
    let select = Select {
        projection: vec![SelectItem::UnnamedExpr(cast)],
        ..lookups::empty_select()
    };
    Query {
        body: Box::new(SetExpr::Select(Box::new(select))),
        ..lookups::empty_query()
    }
}

struct Reword;

impl VisitorMut for Reword {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            let offset = offset.as_mut().map(|offset| &mut offset.value);
            for (what, rows) in [("LIMIT", limit.as_mut()), ("OFFSET", offset)] {
                if let Some(rows) = rows
                    && let Err(error) = number_of_rows(what, rows)
                {
                    return ControlFlow::Break(error);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        for from in &mut select.from {
            if let Err(error) = asof::joins(from) {
                return ControlFlow::Break(error);
            }
        }
        for item in &mut select.projection {
            rows_of_series(item);
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                let _ = VisitMut::visit(expr, &mut Lookups::new());
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let TableFactor::Derived {
            lateral: true,
            subquery,
            ..
        } = factor
            && let Some(made) = lateral::limited(subquery)
        {
            **subquery = made;
        }
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
            && let Err(error) = asof::joins(table_with_joins)
        {
            return ControlFlow::Break(error);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Subquery(query) = expr {
            lateral::one_row(query);
            if let Some(made) = lateral::first_value(query) {
                **query = made;
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match changed(expr) {
            Err(error) => return ControlFlow::Break(error),
            Ok(Some(made)) => *expr = made,
            Ok(None) => {}
        }
        ControlFlow::Continue(())
    }
}

/// The replacement of an expression; `None` = unchanged.
fn changed(expr: &Expr) -> Result<Option<Expr>> {
    Ok(match expr {
        Expr::SimilarTo {
            negated,
            expr,
            pattern,
            escape_char,
        } => {
            let escape = match escape_char {
                None => patterns::ESCAPE,
                Some(escape) => escape_of(escape)?,
            };
            let pattern = escaped(pattern, escape, patterns::FUNCTION, patterns::expression)?;
            Some(Expr::BinaryOp {
                left: expr.clone(),
                op: match negated {
                    true => BinaryOperator::PGRegexNotMatch,
                    false => BinaryOperator::PGRegexMatch,
                },
                right: Box::new(pattern),
            })
        }
        Expr::IsDistinctFrom(left, right) => same_as_text(left, right).map(not),
        Expr::IsNotDistinctFrom(left, right) => same_as_text(left, right),
        Expr::Like {
            escape_char: Some(_),
            ..
        }
        | Expr::ILike {
            escape_char: Some(_),
            ..
        } => with_the_backslash(expr)?,
        Expr::Interval(interval) => interval_of(interval).map(Expr::Interval),
        Expr::Cast { .. } => changed_cast(expr),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => negated_base(expr),
        Expr::Function(function) if is_called(function, "array_remove") => {
            // PostgreSQL's function removes all equal elements, the library's only the first.
            let mut all = function.clone();
            all.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(
                "array_remove_all",
            ))]);
            Some(Expr::Function(all))
        }
        Expr::Function(function) if counts(function) => Some(Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(match is_called(function, "array_length") {
                // An empty array has a NULL length.
                true => {
                    let zero = value(Value::Number("0".to_owned(), false));
                    call("nullif", vec![expr.clone(), zero])
                }
                false => expr.clone(),
            }),
            data_type: DataType::BigInt(None),
            array: false,
            format: None,
        }),
        Expr::Function(function) => toolkit::changed(function)?,
        _ => None,
    })
}

/// Converts a row count that is written as text, or with a fraction, to an integer.
fn number_of_rows(what: &str, rows: &mut Expr) -> Result<()> {
    if let Some(number) = rounded(rows) {
        *rows = number;
        return Ok(());
    }
    let Some(text) = constant(rows).and_then(text_of) else {
        return Ok(());
    };
    match text.trim().parse::<i64>() {
        Ok(number) => {
            *rows = value(Value::Number(number.to_string(), false));
            Ok(())
        }
        Err(_) => {
            let cut: String = text.chars().take(80).collect();
            let message = format!("{what}: expected a whole number, found '{cut}'");
            Err(Error::new("invalid_value", "22P02", message))
        }
    }
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(expr),
    }
}

/// Compares two values for equality if one of them is a text literal; as an operator, since the SQL
/// library then casts both operands to one type.
fn same_as_text(left: &Expr, right: &Expr) -> Option<Expr> {
    let is_text = |side| constant(side).and_then(text_of).is_some();
    let same = Expr::BinaryOp {
        left: Box::new(left.clone()),
        op: BinaryOperator::Spaceship,
        right: Box::new(right.clone()),
    };
    (is_text(left) || is_text(right)).then(|| Expr::Nested(Box::new(same)))
}

/// The replacement of a cast; `None` = unchanged.
fn changed_cast(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon,
            expr,
            data_type: DataType::Interval { fields: None, .. },
            ..
        } => constant(expr)
            .and_then(text_of)
            .and_then(|text| Some(Expr::Interval(interval(&lengths::canonical(text)?)))),
        Expr::Cast {
            kind,
            expr: inner,
            data_type,
            array,
            format: None,
        } if is_integer(data_type) => rounded(inner).map(|number| Expr::Cast {
            kind: kind.clone(),
            expr: Box::new(number),
            data_type: data_type.clone(),
            array: *array,
            format: None,
        }),
        Expr::Cast {
            kind,
            expr: inner,
            data_type,
            array: false,
            format: None,
        } if is_decimal(data_type) => written(inner).map(|text| Expr::Cast {
            kind: kind.clone(),
            expr: Box::new(literal(text)),
            data_type: data_type.clone(),
            array: false,
            format: None,
        }),
        _ => None,
    }
}

/// The character of `ESCAPE`.
fn escape_of(escape: &ValueWithSpan) -> Result<&str> {
    text_of(&escape.value).ok_or_else(|| Error::invalid_value("ESCAPE takes a string"))
}

/// `LIKE` and `ILIKE` with an escape character; the SQL library supports only the backslash.
fn with_the_backslash(expr: &Expr) -> Result<Option<Expr>> {
    let mut made = expr.clone();
    if let Expr::Like {
        pattern,
        escape_char,
        any: false,
        ..
    }
    | Expr::ILike {
        pattern,
        escape_char,
        any: false,
        ..
    } = &mut made
        && let Some(escape) = escape_char.take()
    {
        let escape = escape_of(&escape)?;
        **pattern = escaped(pattern, escape, patterns::LIKE_FUNCTION, patterns::like)?;
        return Ok(Some(made));
    }
    Ok(None)
}

/// The rewrite of a pattern with an escape character; a pattern that is not a literal becomes a
/// call.
fn escaped(
    pattern: &Expr,
    escape: &str,
    function: &str,
    make: impl Fn(&str, Option<char>) -> Result<String>,
) -> Result<Expr> {
    Ok(match pattern {
        Expr::Value(value) if text_of(&value.value).is_some() => {
            let text = text_of(&value.value).unwrap_or_default();
            literal(make(text, patterns::escape_of(escape)?)?)
        }
        other => call(function, vec![other.clone(), literal(escape.to_owned())]),
    })
}

/// The text of a literal.
fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
        _ => None,
    }
}

fn constant(expr: &Expr) -> Option<&Value> {
    match expr {
        Expr::Value(value) => Some(&value.value),
        Expr::Nested(inner) => constant(inner),
        _ => None,
    }
}

fn value(value: Value) -> Expr {
    Expr::Value(ValueWithSpan::from(value))
}

fn literal(text: String) -> Expr {
    value(Value::SingleQuotedString(text))
}

/// A call of a function by its name.
pub(crate) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter();
    let args = args.map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn interval(text: &str) -> Interval {
    Interval {
        value: Box::new(literal(text.to_owned())),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }
}

/// An interval in the SQL library's format, if it is a text without a unit after it.
fn interval_of(of: &Interval) -> Option<Interval> {
    if of.leading_field.is_some() || of.last_field.is_some() {
        return None;
    }
    let text = constant(&of.value).and_then(text_of)?;
    Some(interval(&lengths::canonical(text)?))
}

fn is_integer(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Int(_)
            | DataType::Integer(_)
            | DataType::BigInt(_)
            | DataType::SmallInt(_)
            | DataType::TinyInt(_)
            | DataType::Int2(_)
            | DataType::Int4(_)
            | DataType::Int8(_)
            | DataType::IntUnsigned(_)
            | DataType::IntegerUnsigned(_)
            | DataType::BigIntUnsigned(_)
    )
}

fn is_decimal(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_)
    )
}

/// The text of a number whose digits exceed a float's precision.
fn written(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Nested(inner) => written(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => written(expr).map(|text| format!("-{text}")),
        Expr::Value(ValueWithSpan {
            value: Value::Number(text, _),
            ..
        }) if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') => Some(text.clone()),
        _ => None,
    }
}

/// A sign binds tighter than a power: the base of `-2 ^ 2` is `-2`. Brackets keep their content
/// together.
fn negated_base(of: &Expr) -> Option<Expr> {
    let Expr::BinaryOp {
        left,
        op: op @ (BinaryOperator::PGExp | BinaryOperator::BitwiseXor),
        right,
    } = of
    else {
        return None;
    };
    let negated = negated_base(left).unwrap_or_else(|| Expr::UnaryOp {
        op: UnaryOperator::Minus,
        expr: left.clone(),
    });
    Some(Expr::BinaryOp {
        left: Box::new(negated),
        op: op.clone(),
        right: right.clone(),
    })
}

/// A number with a fraction, rounded to an integer, halves away from zero: numeric literals are
/// decimals.
fn rounded(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Nested(inner) => rounded(inner),
        Expr::UnaryOp {
            op: op @ (UnaryOperator::Minus | UnaryOperator::Plus),
            expr,
        } => Some(Expr::UnaryOp {
            op: *op,
            expr: Box::new(rounded(expr)?),
        }),
        Expr::Value(ValueWithSpan {
            value: Value::Number(text, long),
            ..
        }) => {
            let (whole, fraction) = text.split_once('.')?;
            let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
            if !digits(whole) || !digits(fraction) {
                return None;
            }
            let whole: u64 = match whole {
                "" => 0,
                whole => whole.parse().ok()?,
            };
            let up = fraction.bytes().next().is_some_and(|b| b >= b'5');
            let number = whole.checked_add(u64::from(up))?;
            Some(value(Value::Number(number.to_string(), *long)))
        }
        _ => None,
    }
}

fn is_called(function: &Function, name: &str) -> bool {
    match function.name.0.as_slice() {
        [ObjectNamePart::Identifier(called)] => called.value.eq_ignore_ascii_case(name),
        _ => false,
    }
}

/// Whether a function returns numbers of rows or elements, which are `bigint` or `integer` in
/// PostgreSQL, and unsigned in the SQL library. Ranks and estimates are functions of this crate.
fn counts(function: &Function) -> bool {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return false;
    };
    let name = name.value.to_lowercase();
    matches!(
        name.as_str(),
        "array_length"
            | "cardinality"
            | "array_ndims"
            | "array_position"
            | "regr_count"
            | "list_length"
            | "list_position"
    )
}
