//! What PostgreSQL means by a statement, where the SQL library reads it otherwise or not at all.
//!
//! [`names`] lets columns of a query have one name, [`patterns`] are those of `SIMILAR TO`,
//! [`lengths`] are texts of intervals, [`times`] those of instants, and this module changes a
//! statement that was read into one that means to the library what it means to PostgreSQL.
//!
//! Invariants: a statement without any of these stays as it is; what is put into it stands where
//! the original stood.

pub(crate) mod lengths;
pub(crate) mod names;
pub(crate) mod patterns;
pub(crate) mod times;

use crate::error::{Error, Result};
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, Interval, ObjectName, ObjectNamePart, Query,
    Select, SelectItem, SetExpr, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Changes a statement into what it means.
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

struct Reword;

impl VisitorMut for Reword {
    type Break = Error;

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                let _ = VisitMut::visit(expr, &mut Exists { within: 0 });
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

/// What to put in an expression's place; `None` = it stays.
fn changed(expr: &Expr) -> Result<Option<Expr>> {
    Ok(match expr {
        Expr::SimilarTo {
            negated,
            expr,
            pattern,
            escape_char,
        } => {
            let escape = escape_char.as_ref().map(|escape| text_of(&escape.value));
            let escape = match escape {
                None => patterns::ESCAPE,
                Some(Some(escape)) => escape,
                Some(None) => return Err(Error::invalid_value("ESCAPE takes a text")),
            };
            let pattern = match &**pattern {
                Expr::Value(value) if text_of(&value.value).is_some() => {
                    let text = text_of(&value.value).unwrap_or_default();
                    let escape = patterns::escape_of(escape)?;
                    literal(patterns::expression(text, escape)?)
                }
                other => call(
                    patterns::FUNCTION,
                    vec![other.clone(), literal(escape.to_owned())],
                ),
            };
            Some(Expr::BinaryOp {
                left: expr.clone(),
                op: match negated {
                    true => BinaryOperator::PGRegexNotMatch,
                    false => BinaryOperator::PGRegexMatch,
                },
                right: Box::new(pattern),
            })
        }
        Expr::Interval(interval) => interval_of(interval).map(Expr::Interval),
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
        Expr::Function(function) if counts(function) => Some(Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(expr.clone()),
            data_type: DataType::BigInt(None),
            array: false,
            format: None,
        }),
        _ => None,
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

fn call(name: &str, args: Vec<Expr>) -> Expr {
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

/// An interval as the SQL library reads it, where it is a text without a unit behind it.
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

/// A number with a fraction, rounded to a whole one, halves away from zero: numbers that are
/// written are decimals.
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

/// Whether a function gives numbers of rows or elements, which PostgreSQL has as `bigint` or
/// `integer`, and the SQL library as unsigned integers.
fn counts(function: &Function) -> bool {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return false;
    };
    let name = name.value.to_lowercase();
    match name.as_str() {
        "row_number" | "rank" | "dense_rank" | "ntile" => function.over.is_some(),
        "array_length" | "cardinality" | "array_ndims" | "array_position" | "approx_distinct"
        | "regr_count" | "list_length" | "list_position" => true,
        _ => false,
    }
}

/// Puts what the SQL library can compute in the place of `EXISTS (…)` among what is selected: it
/// knows it only as a condition.
struct Exists {
    within: usize,
}

impl VisitorMut for Exists {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.within == 0
            && let Expr::Exists { subquery, negated } = expr
            && let Some(made) = exists(subquery, *negated)
        {
            *expr = made;
        }
        ControlFlow::Continue(())
    }
}

/// Whether a query has rows, as a subquery of one value; `None` = it is no plain select.
fn exists(query: &Query, negated: bool) -> Option<Expr> {
    let mut query = query.clone();
    let plain = query.limit_clause.is_none() && query.fetch.is_none();
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    let groups = match &select.group_by {
        datafusion::sql::sqlparser::ast::GroupByExpr::Expressions(by, _) => !by.is_empty(),
        datafusion::sql::sqlparser::ast::GroupByExpr::All(_) => true,
    };
    if !plain || groups || select.having.is_some() || aggregates(select) {
        return None;
    }
    query.order_by = None;
    select.distinct = None;
    let wildcard = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
    let mut count = call("count", Vec::new());
    if let Expr::Function(function) = &mut count
        && let FunctionArguments::List(list) = &mut function.args
    {
        list.args.push(wildcard);
    }
    select.projection = vec![SelectItem::UnnamedExpr(Expr::BinaryOp {
        left: Box::new(count),
        op: match negated {
            true => BinaryOperator::Eq,
            false => BinaryOperator::Gt,
        },
        right: Box::new(value(Value::Number("0".to_owned(), false))),
    })];
    Some(Expr::Subquery(Box::new(query)))
}

/// Whether a select may be one that always has one row, since it computes of all rows.
fn aggregates(select: &Select) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => !matches!(
            expr,
            Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)
        ),
        _ => false,
    })
}
