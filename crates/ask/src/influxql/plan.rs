//! The columns of a `SELECT` for one measurement, with resolved names and checked functions.
//!
//! Invariant: a plan either returns raw rows, or computes; in the latter every field is an argument
//! of a function, unless the only function selects a row, whose other values may then be columns
//! too.

use super::arithmetic::{check_bits, literal, type_of_operation};
use super::columns::{Columns, Written, name_of, names};
use super::condition::Compiler;
use super::field::ReadField;
use super::functions::{Function, Math, Pair};
use super::invalid;
use super::measurements::{GroupKeys, Measurement};
use super::times::is_time;
use super::transform::Transform;
use crate::error::Error;
use headwater::{FieldType, Value};
use headwater_wire::influxql::{Cast, Expression, Literal, Operator, Select};

/// Maximum columns of an answer.
const COLUMNS_MAX: usize = 4_096;
/// Maximum rows of an interval that a function returns.
const ROWS_MAX: i64 = 100_000;
const SECOND: i64 = 1_000_000_000;

/// Source of a column's values.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A field that does not exist.
    Absent,
    Value(Value),
    /// An index in the list of fields to read.
    Field(usize),
    Tag(String),
    /// An index in the list of calls.
    Call(usize),
    Operation(Operator, Box<Node>, Box<Node>),
    Math(Math, Box<Node>),
    Pair(Pair, Box<Node>, Box<Node>),
}

/// A computed series.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    /// The raw values of a field.
    Field(usize),
    Function(Function, usize),
    Transform(Transform, Box<Call>),
}

impl Call {
    /// The function over intervals that it is based on, if any.
    pub(super) fn function(&self) -> Option<(Function, usize)> {
        match self {
            Call::Field(_) => None,
            Call::Function(function, field) => Some((*function, *field)),
            Call::Transform(_, inner) => inner.function(),
        }
    }

    /// The number of intervals before the range that the function reads.
    pub(super) fn reach(&self) -> u32 {
        match self {
            Call::Field(_) | Call::Function(..) => 0,
            Call::Transform(transform, inner) => transform.reach() + inner.reach(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) names: Vec<String>,
    pub(super) nodes: Vec<Node>,
    pub(super) calls: Vec<Call>,
    /// Fields to read, the fields of the condition first.
    pub(super) read: Vec<ReadField>,
    /// True if rows are chosen: a field or tag is outside of functions, or a function returns rows.
    pub(super) chooses_rows: bool,
    /// Key by which the rows of a function are unique.
    pub(super) by: Vec<Node>,
    /// The name of the column of times, if it is not `time`.
    pub(super) time_name: Option<String>,
    /// Indexes of columns that are tags by which rows were chosen.
    pub(super) tag_columns: Vec<usize>,
}

impl Plan {
    /// A plan of one raw field, read as in this plan.
    pub(super) fn of_field(&self, field: usize) -> Plan {
        Plan {
            names: Vec::new(),
            nodes: vec![Node::Field(field)],
            calls: Vec::new(),
            read: self.read.clone(),
            chooses_rows: false,
            by: Vec::new(),
            time_name: None,
            tag_columns: Vec::new(),
        }
    }

    /// A plan of one call, read as in this plan.
    pub(super) fn of_call(&self, call: &Call) -> Plan {
        Plan {
            names: Vec::new(),
            nodes: vec![Node::Call(0)],
            calls: vec![call.clone()],
            read: self.read.clone(),
            chooses_rows: true,
            by: Vec::new(),
            time_name: None,
            tag_columns: Vec::new(),
        }
    }

    pub(super) fn reads_text(&self, field: usize) -> bool {
        let field = self.read.get(field);
        field.is_some_and(|f| f.field_type() == FieldType::String)
    }

    /// The columns that are texts, sorted by their source.
    pub(super) fn texts(&self) -> Vec<usize> {
        let mut out: Vec<(&str, usize)> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            match node {
                Node::Tag(key) => out.push((key, at)),
                Node::Field(field) if self.reads_text(*field) => {
                    out.extend(self.read.get(*field).map(|f| (f.name.as_str(), at)));
                }
                _ => {}
            }
        }
        out.sort_unstable();
        out.into_iter().map(|(_, at)| at).collect()
    }
}

/// The intervals of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Every {
    pub(super) width_ns: i64,
    pub(super) offset_ns: i64,
    /// True if the intervals are those of the outer query.
    pub(super) is_inherited: bool,
}

/// The number of intervals before the range that a statement reads, judged by its text.
pub(super) fn reach(select: &Select) -> u32 {
    let fields = select
        .fields
        .iter()
        .map(|field| reach_of(&field.expression));
    fields.max().unwrap_or(0)
}

fn reach_of(expression: &Expression) -> u32 {
    match expression {
        Expression::Call { name, arguments } => {
            let own = u32::from(LOOKING_BACK.contains(&name.as_str()));
            own + arguments.iter().map(reach_of).max().unwrap_or(0)
        }
        Expression::Binary { left, right, .. } => reach_of(left).max(reach_of(right)),
        _ => 0,
    }
}

/// Functions that compare an interval with one before it.
const LOOKING_BACK: [&str; 6] = [
    "derivative",
    "non_negative_derivative",
    "difference",
    "non_negative_difference",
    "moving_average",
    "elapsed",
];

struct Planner<'a> {
    measurement: &'a Measurement,
    compiler: Compiler<'a>,
    calls: Vec<Call>,
    has_plain: bool,
    has_field: bool,
    every: Option<Every>,
    by: Vec<Node>,
}

/// Plans a statement for a measurement; `None` when the measurement has none of the requested
/// columns.
pub(super) fn plan(
    select: &Select,
    measurement: &Measurement,
    columns: &Columns,
    keys: &GroupKeys,
    every: Option<Every>,
) -> Result<Option<Plan>, Error> {
    let mut planner = Planner {
        measurement,
        compiler: Compiler {
            table_fields: &measurement.fields,
            read: measurement.read.clone(),
        },
        calls: Vec::new(),
        has_plain: false,
        has_field: false,
        every,
        by: Vec::new(),
    };
    let known = columns;
    let mut columns: Vec<Column> = Vec::new();
    let (mut time_name, mut tag_columns) = (None, Vec::new());
    for field in &select.fields {
        if is_time(&field.expression) {
            // The column of times is always the first one.
            time_name = time_name.or_else(|| field.alias.clone());
            continue;
        }
        for Written {
            alias,
            name,
            expression,
        } in known.written_out(field, keys)?
        {
            let node = planner.node(&expression)?;
            columns.push((alias, name, node));
            for (name, node) in planner.beside(&expression) {
                if matches!(node, Node::Tag(_)) {
                    tag_columns.push(columns.len());
                }
                columns.push((None, name, node));
            }
            if columns.len() > COLUMNS_MAX {
                return Err(invalid(format!("more than {COLUMNS_MAX} columns")));
            }
        }
    }
    let Planner {
        compiler,
        calls,
        has_plain,
        has_field,
        by,
        ..
    } = planner;
    if !has_field && calls.is_empty() {
        // Tags alone do not make rows.
        return Ok(None);
    }
    check(&calls, has_plain, every, &columns)?;
    let gives_rows = |call: &Call| call.function().is_some_and(|(f, _)| f.returns_rows());
    let (called, nodes): (Vec<_>, Vec<_>) = columns
        .into_iter()
        .map(|(alias, name, node)| ((alias, name), node))
        .unzip();
    Ok(Some(Plan {
        names: names(&called),
        nodes,
        chooses_rows: !calls.is_empty() && has_plain || calls.iter().any(gives_rows),
        calls,
        read: compiler.read,
        by,
        time_name,
        tag_columns,
    }))
}

/// A column: its alias if it has one, its default name, and its source.
type Column = (Option<String>, String, Node);

fn check(
    calls: &[Call],
    has_plain: bool,
    every: Option<Every>,
    columns: &[Column],
) -> Result<(), Error> {
    let functions = || calls.iter().filter_map(Call::function);
    let own = every.filter(|every| !every.is_inherited);
    if own.is_some() && functions().count() != calls.len().max(1) {
        return Err(invalid(
            "GROUP BY time needs an aggregate function around every field, such as mean(v) or derivative(mean(v))",
        ));
    }
    if every.is_none()
        && calls
            .iter()
            .any(|c| matches!(c, Call::Transform(..)) && c.function().is_some())
    {
        return Err(invalid(
            "a function of an aggregate, such as derivative(mean(v)), needs GROUP BY time",
        ));
    }
    if functions().next().is_some() && functions().count() != calls.len() {
        return Err(invalid(
            "mixing aggregate and non-aggregate queries is not supported",
        ));
    }
    let is_distinct = |c: &Call| matches!(c, Call::Function(Function::Distinct, _));
    if calls.iter().any(is_distinct) && !matches!(columns, [(_, _, Node::Call(_))]) {
        return Err(invalid(
            "aggregate function distinct() cannot be combined with other functions or fields",
        ));
    }
    let called = |call: &Call| match call {
        Call::Function(Function::Top(_), _) => Some("top"),
        Call::Function(Function::Bottom(_), _) => Some("bottom"),
        Call::Function(Function::Sample(_), _) => Some("sample"),
        _ => None,
    };
    // Samples of several fields are combined side by side.
    let are_samples = calls.iter().all(|c| called(c) == Some("sample"));
    if let Some(name) = calls.iter().find_map(called)
        && calls.len() > 1
        && (!are_samples || has_plain)
    {
        return Err(invalid(format!(
            "selector function {name}() cannot be combined with other functions"
        )));
    }
    if has_plain && !calls.is_empty() {
        let is_point = matches!(calls, [Call::Function(f, _)] if f.is_selector());
        if !is_point {
            return Err(invalid(
                "mixing aggregate and non-aggregate queries is not supported, but for one of min, max, first, last, percentile, top, bottom, sample with other fields and tags beside it",
            ));
        }
    }
    Ok(())
}

impl Planner<'_> {
    fn node(&mut self, expression: &Expression) -> Result<Node, Error> {
        match expression {
            Expression::Literal(written) => {
                let value = literal(written);
                value
                    .map(Node::Value)
                    .ok_or_else(|| invalid(format!("{expression} cannot stand in SELECT here")))
            }
            Expression::Reference { name, cast } => {
                self.has_plain = true;
                match (cast, self.compiler.column(name, *cast)) {
                    (Some(Cast::Tag), _) | (None, None) => {
                        // A row of a subquery exists, whichever of its columns are read.
                        self.has_field |= self.measurement.answered_tags.contains(name);
                        Ok(Node::Tag(name.clone()))
                    }
                    // A tag cannot be cast.
                    (Some(_), None) => Ok(Node::Absent),
                    (_, Some(column)) => {
                        self.has_field = true;
                        Ok(Node::Field(column))
                    }
                }
            }
            Expression::Binary {
                operator,
                left,
                right,
            } if !operator.is_comparison() => {
                let (left, right) = (self.node(left)?, self.node(right)?);
                let types = (self.type_of(&left), self.type_of(&right));
                check_bits(expression, *operator, types)?;
                Ok(Node::Operation(*operator, Box::new(left), Box::new(right)))
            }
            Expression::Call { name, arguments } => {
                if let Some(math) = Math::named(name) {
                    let [argument] = arguments.as_slice() else {
                        return Err(arguments_of(name, "one number", arguments.len()));
                    };
                    return Ok(Node::Math(math, Box::new(self.node(argument)?)));
                }
                if let Some(pair) = Pair::named(name) {
                    let [a, b] = arguments.as_slice() else {
                        return Err(arguments_of(name, "two numbers", arguments.len()));
                    };
                    let (a, b) = (self.node(a)?, self.node(b)?);
                    return Ok(Node::Pair(pair, Box::new(a), Box::new(b)));
                }
                let Some(call) = self.call(name, arguments)? else {
                    return Ok(Node::Absent);
                };
                let at = self.calls.iter().position(|c| *c == call);
                Ok(Node::Call(at.unwrap_or_else(|| {
                    self.calls.push(call);
                    self.calls.len() - 1
                })))
            }
            other => Err(invalid(format!("{other} cannot stand in SELECT"))),
        }
    }

    /// The result type of a column, if known before rows are read.
    fn type_of(&self, node: &Node) -> Option<FieldType> {
        match node {
            Node::Value(value) => Some(value.as_ref().field_type()),
            Node::Field(place) => self.compiler.read.get(*place).map(ReadField::field_type),
            Node::Tag(key) => {
                let is_tag = self.measurement.tag_keys.contains(key);
                is_tag.then_some(FieldType::String)
            }
            Node::Call(place) => {
                let (function, field) = self.calls.get(*place).and_then(Call::function)?;
                let field = self.compiler.read.get(field).map(ReadField::field_type)?;
                function.result_type(field)
            }
            Node::Operation(operator, left, right) => {
                type_of_operation(*operator, self.type_of(left), self.type_of(right))
            }
            Node::Pair(..) => Some(FieldType::F64),
            Node::Absent | Node::Math(..) => None,
        }
    }

    /// A function of a field, or of another function; `None` when the field does not exist.
    fn call(&mut self, name: &str, arguments: &[Expression]) -> Result<Option<Call>, Error> {
        let count = arguments.len();
        if matches!(name, "top" | "bottom") {
            return self.rows_of(name, arguments);
        }
        let (of, second) = match arguments {
            [of] => (of, None),
            [of, second] => (of, Some(second)),
            _ => return Err(arguments_of(name, "one or two arguments", count)),
        };
        if let Some(transform) = self.transform(name, second)? {
            let inner = match of {
                Expression::Call { name, arguments } => self.call(name, arguments)?,
                of => self.field(name, of)?.map(Call::Field),
            };
            return Ok(inner.map(|inner| Call::Transform(transform, Box::new(inner))));
        }
        // count(distinct(v)).
        if name == "count"
            && let Expression::Call { name, arguments } = of
            && name == "distinct"
            && let [of] = arguments.as_slice()
        {
            let field = self.field(name, of)?;
            return Ok(field.map(|field| Call::Function(Function::CountDistinct, field)));
        }
        let function = match (name, second) {
            ("sample", Some(Expression::Literal(Literal::Integer(most @ 1..=ROWS_MAX)))) => {
                Function::Sample(usize::try_from(*most).unwrap_or(usize::MAX))
            }
            ("sample", Some(other)) => {
                let expected = format!("a number of rows from 1 to {ROWS_MAX}");
                return Err(second_argument(name, &expected, other));
            }
            ("sample", None) => {
                return Err(arguments_of(name, "a field and a number of rows", count));
            }
            ("percentile", Some(second)) => match second {
                Expression::Literal(Literal::Integer(n)) if (0..=100).contains(n) => {
                    Function::Percentile(*n as f64)
                }
                Expression::Literal(Literal::Float(n)) if (0.0..=100.0).contains(n) => {
                    Function::Percentile(*n)
                }
                other => {
                    return Err(second_argument(name, "a number from 0 to 100", other));
                }
            },
            ("percentile", None) => {
                return Err(arguments_of(
                    name,
                    "a field and a number from 0 to 100",
                    count,
                ));
            }
            ("integral", second) => Function::Integral(self.unit(name, second, SECOND)?),
            (name, None) => Function::named(name).ok_or_else(|| unknown(name))?,
            (name, Some(_)) => {
                Function::named(name).ok_or_else(|| unknown(name))?;
                return Err(arguments_of(name, "one field", count));
            }
        };
        let field = self.field(name, of)?;
        Ok(field.map(|field| Call::Function(function, field)))
    }

    /// `top(field, tag, …, count)`.
    fn rows_of(&mut self, name: &str, arguments: &[Expression]) -> Result<Option<Call>, Error> {
        let wrong = || arguments_of(name, "a field, tags, and how many", arguments.len());
        let ([of, by @ ..], Some(last)) = (arguments, arguments.last()) else {
            return Err(wrong());
        };
        let Expression::Literal(Literal::Integer(most @ 1..=ROWS_MAX)) = last else {
            let expected =
                format!("expected a number of rows from 1 to {ROWS_MAX} as the last one");
            return Err(invalid(format!(
                "invalid arguments for {name}(): {expected}, found {last}"
            )));
        };
        let Some((_, by)) = by.split_last() else {
            return Err(wrong());
        };
        let field = self.field(name, of)?;
        for tag in by {
            let Expression::Reference { name, cast } = tag else {
                return Err(invalid(format!(
                    "only fields or tags are allowed in {name}(), found {tag}"
                )));
            };
            let field = match cast {
                Some(Cast::Tag) => None,
                cast => self.compiler.column(name, *cast),
            };
            self.by
                .push(field.map_or_else(|| Node::Tag(name.clone()), Node::Field));
        }
        let most = usize::try_from(*most).unwrap_or(usize::MAX);
        let function = match name {
            "top" => Function::Top(most),
            _ => Function::Bottom(most),
        };
        Ok(field.map(|field| Call::Function(function, field)))
    }

    /// The columns after the column of `top(field, tag, …, count)`: its tags.
    fn beside(&self, expression: &Expression) -> Vec<(String, Node)> {
        let Expression::Call { name, arguments } = expression else {
            return Vec::new();
        };
        if !matches!(name.as_str(), "top" | "bottom") {
            return Vec::new();
        }
        let names = arguments.iter().skip(1).map(name_of);
        names.zip(self.by.iter().cloned()).collect()
    }

    fn transform(
        &self,
        name: &str,
        second: Option<&Expression>,
    ) -> Result<Option<Transform>, Error> {
        let none = |transform| match second {
            None => Ok(Some(transform)),
            Some(_) => Err(arguments_of(name, "one argument", 2)),
        };
        match name {
            "difference" => none(Transform::Difference(false)),
            "non_negative_difference" => none(Transform::Difference(true)),
            "cumulative_sum" => none(Transform::CumulativeSum),
            "derivative" | "non_negative_derivative" => {
                let unit = self.unit(name, second, self.every.map_or(SECOND, |e| e.width_ns))?;
                let rising = name != "derivative";
                Ok(Some(Transform::Derivative(unit, rising)))
            }
            "elapsed" => Ok(Some(Transform::Elapsed(self.unit(name, second, 1)?))),
            "moving_average" => match second {
                Some(Expression::Literal(Literal::Integer(n @ 2..=1_000_000))) => {
                    let count = usize::try_from(*n).unwrap_or(usize::MAX);
                    Ok(Some(Transform::MovingAverage(count)))
                }
                Some(other) => Err(second_argument(
                    name,
                    "a number of values, 2 or more",
                    other,
                )),
                None => Err(arguments_of(name, "a field and a number of values", 1)),
            },
            _ => Ok(None),
        }
    }

    fn unit(&self, name: &str, second: Option<&Expression>, default: i64) -> Result<i64, Error> {
        match second {
            None => Ok(default),
            Some(Expression::Literal(Literal::Duration(ns))) if *ns > 0 => Ok(*ns),
            Some(other) => Err(second_argument(name, "a length of time such as 1s", other)),
        }
    }

    /// The field of a function; `None` when the measurement does not have it.
    fn field(&mut self, name: &str, of: &Expression) -> Result<Option<usize>, Error> {
        match of {
            Expression::Reference { name, cast } => {
                let field = match cast {
                    Some(Cast::Tag) => None,
                    cast => self.compiler.column(name, *cast),
                };
                // Tags of a subquery's answer are read like its fields.
                let is_answered = self.measurement.answered_tags.contains(name);
                Ok(field.or_else(|| is_answered.then(|| self.compiler.tag(name))))
            }
            other => Err(invalid(format!(
                "{name}({other}): expected a field inside of {name}()"
            ))),
        }
    }
}

fn arguments_of(name: &str, expected: &str, found: usize) -> Error {
    invalid(format!(
        "invalid arguments for {name}(): expected {expected}, found {found}"
    ))
}

fn second_argument(name: &str, expected: &str, found: &Expression) -> Error {
    invalid(format!(
        "invalid arguments for {name}(): expected {expected} as the second one, found {found}"
    ))
}

fn unknown(name: &str) -> Error {
    invalid(format!(
        "undefined function {name}(); there are count, mean, sum, min, max, first, last, stddev, spread, median, mode, percentile, distinct, integral, top, bottom, sample, derivative, non_negative_derivative, difference, non_negative_difference, moving_average, cumulative_sum, elapsed, and pow, log, atan2, abs, ceil, floor, round, sqrt, ln, log2, log10, exp, sin, cos, tan, asin, acos, atan"
    ))
}
