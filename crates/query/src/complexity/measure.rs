//! Size of a statement after its common tables (`WITH`) and wildcards (`*`) are expanded.
//!
//! The planner copies a common table to each reference, so that twenty of them, each with two
//! references to the previous one, are a million tables. Here nothing is copied: the size of each
//! query is added once per reference.
//!
//! Invariant: the sums are never below the size of the plan, and never overflow.

use crate::error::{Error, Result};
use crate::names::table_name;
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, ObjectName,
    Query, Select, SelectItem, SetExpr, Statement, TableFactor, Visit, Visitor,
};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Maximum tables and subqueries, each counted once per read.
const RELATIONS_MAX: u64 = 2_000;
/// Maximum columns of all steps of a statement together.
const COLUMNS_MAX: u64 = 200_000;
/// Maximum steps on the longest path from a table to the answer.
const DEPTH_MAX: u64 = 1_000;
/// Parts of expressions that any statement may have, and how many times more than were written.
const EXPRESSIONS: u64 = 100_000;
const EXPRESSIONS_GROWTH: u64 = 2;
/// Maximum grouping sets of one query.
const GROUPINGS_MAX: u64 = 256;
/// Maximum brackets of a type that is written as text.
const TYPE_BRACKETS_MAX: usize = 32;
/// Maximum columns of a table of the catalog.
const CATALOG_COLUMNS: u64 = 40;

/// Size of an expanded query.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    relations: u64,
    expressions: u64,
    /// The columns of all its steps.
    columns: u64,
    depth: u64,
    /// The columns of its answer.
    width: u64,
}

#[derive(Default)]
struct Frame {
    /// Size of the parts visited so far.
    size: Size,
    /// Common tables of the query (`WITH`), by address, during their visit.
    named: Vec<(*const Query, String)>,
    /// Sizes of the visited common tables.
    common: HashMap<String, Size>,
    /// For a query: number of `UNION` and other set operations.
    sets: u64,
    /// For a `SELECT`: items of `FROM`, the sum of their columns, and other parts that add steps.
    factors: u64,
    width: u64,
    queries: u64,
    windows: u64,
    /// Columns of the last finished query.
    last: u64,
}

struct Measure<'a> {
    width: &'a dyn Fn(&str) -> Option<u64>,
    frames: Vec<Frame>,
    written: u64,
}

/// Refuses a statement that would become too large. `width` returns the number of columns of a
/// table.
pub(crate) fn measure(statement: &Parse, width: &dyn Fn(&str) -> Option<u64>) -> Result<()> {
    let mut statement = statement;
    while let Parse::Explain(explain) = statement {
        statement = &explain.statement;
    }
    let Parse::Statement(statement) = statement else {
        return Ok(());
    };
    of_statement(statement, width)
}

/// Refuses a statement that would become too large even if its tables had the fewest columns. For
/// front ends that rewrite a parsed statement.
///
/// # Errors
/// When the statement would become too large.
pub fn measure_least(statement: &Statement) -> Result<()> {
    of_statement(statement, &|_| Some(0))
}

fn of_statement(statement: &Statement, width: &dyn Fn(&str) -> Option<u64>) -> Result<()> {
    let mut measure = Measure {
        width,
        frames: vec![Frame::default()],
        written: 0,
    };
    match statement.visit(&mut measure) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn too_large(what: String) -> Error {
    Error::too_large(what).with_hint(
        "a query named by WITH is computed at each reference: split the statement, or store a part of it in a table",
    )
}

impl Measure<'_> {
    fn top(&mut self) -> Option<&mut Frame> {
        self.frames.last_mut()
    }

    /// Size of the common table with a name.
    fn common(&self, name: &ObjectName) -> Option<Size> {
        let [part] = name.0.as_slice() else {
            return None;
        };
        let ident = part.as_ident()?;
        let name = match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_lowercase(),
        };
        let mut frames = self.frames.iter().rev();
        frames.find_map(|frame| frame.common.get(&name).copied())
    }

    fn check(&self, size: &Size) -> ControlFlow<Error> {
        let most = EXPRESSIONS.max(self.written.saturating_mul(EXPRESSIONS_GROWTH));
        let why = if size.relations > RELATIONS_MAX {
            format!(
                "the statement reads {} tables and subqueries, at most {RELATIONS_MAX} are allowed: split it, or store an intermediate result",
                size.relations
            )
        } else if size.depth > DEPTH_MAX {
            format!(
                "the statement nests more than {DEPTH_MAX} joins, subqueries and windows: split it, or store an intermediate result"
            )
        } else if size.columns > COLUMNS_MAX {
            format!("the tables of the statement have more than {COLUMNS_MAX} columns in total")
        } else if size.expressions > most {
            format!("the expressions of the statement have more than {most} parts")
        } else {
            return ControlFlow::Continue(());
        };
        ControlFlow::Break(too_large(why))
    }

    /// Adds an item of `FROM`.
    fn factor(&mut self, size: Size, width: u64) -> ControlFlow<Error> {
        let Some(frame) = self.frames.last_mut() else {
            return ControlFlow::Continue(());
        };
        frame.factors += 1;
        frame.width = frame.width.saturating_add(width);
        frame.size.relations = frame.size.relations.saturating_add(size.relations);
        frame.size.expressions = frame.size.expressions.saturating_add(size.expressions);
        frame.size.columns = frame
            .size
            .columns
            .saturating_add(size.columns)
            .saturating_add(frame.width);
        frame.size.depth = frame.size.depth.max(size.depth);
        let size = frame.size;
        self.check(&size)
    }
}

impl Visitor for Measure<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        let named = named.map(|common| {
            let name = &common.alias.name;
            let name = match name.quote_style {
                Some(_) => name.value.clone(),
                None => name.value.to_lowercase(),
            };
            (&raw const *common.query, name)
        });
        self.frames.push(Frame {
            named: named.collect(),
            sets: sets(&query.body),
            width: match query.body.as_ref() {
                SetExpr::Values(values) => values.rows.first().map_or(0, |row| row.len() as u64),
                _ => 0,
            },
            ..Frame::default()
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        let Some(frame) = self.frames.pop() else {
            return ControlFlow::Continue(());
        };
        let width = frame.width.max(frame.size.width);
        let size = Size {
            relations: frame.size.relations,
            expressions: frame.size.expressions,
            columns: frame
                .size
                .columns
                .saturating_add(width.saturating_mul(frame.sets + 1)),
            depth: frame.size.depth.saturating_add(frame.sets + 1),
            width,
        };
        if let Some(around) = self.frames.last_mut() {
            let place = around
                .named
                .iter()
                .position(|(at, _)| std::ptr::eq(*at, query));
            match place {
                Some(place) => {
                    let (_, name) = around.named.swap_remove(place);
                    around.common.insert(name, size);
                }
                None => {
                    around.queries += 1;
                    around.last = size.width;
                    let sum = &mut around.size;
                    sum.relations = sum.relations.saturating_add(size.relations + 1);
                    sum.expressions = sum.expressions.saturating_add(size.expressions);
                    sum.columns = sum.columns.saturating_add(size.columns);
                    sum.depth = sum.depth.max(size.depth);
                    // A query in brackets is the whole enclosing query.
                    sum.width = sum.width.max(size.width);
                }
            }
        }
        self.check(&size)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        self.frames.push(Frame::default());
        let sets = groupings(&select.group_by);
        if sets > GROUPINGS_MAX {
            let error = Error::too_large(format!(
                "GROUP BY with CUBE, ROLLUP and GROUPING SETS makes {sets} sets of columns; at most {GROUPINGS_MAX} are allowed"
            ));
            let hint = "name the sets that are needed in GROUPING SETS";
            return ControlFlow::Break(error.with_hint(hint));
        }
        if let Some(frame) = self.top() {
            // Each expression is computed once per grouping set.
            frame.size.columns = sets.saturating_mul(expressions_of(&select.group_by));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        let Some(frame) = self.frames.pop() else {
            return ControlFlow::Continue(());
        };
        let mut width = 0u64;
        for item in &select.projection {
            width = width.saturating_add(match item {
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => frame.width.max(1),
                _ => 1,
            });
        }
        let mut size = frame.size;
        size.relations = size.relations.saturating_add(1);
        size.columns = size.columns.saturating_add(width.saturating_mul(2));
        let steps = 1 + 2 * frame.factors.saturating_sub(1) + 2 * frame.queries + 3 * frame.windows;
        size.depth = size.depth.saturating_add(steps);
        size.width = width;
        if let Some(around) = self.frames.last_mut() {
            let sum = &mut around.size;
            sum.relations = sum.relations.saturating_add(size.relations);
            sum.expressions = sum
                .expressions
                .saturating_add(size.expressions)
                .saturating_add(width);
            sum.columns = sum.columns.saturating_add(size.columns);
            sum.depth = sum.depth.max(size.depth);
            sum.width = sum.width.max(size.width);
        }
        self.check(&size)
    }

    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Error> {
        match factor {
            TableFactor::Table { name, .. } => {
                if let Some(size) = self.common(name) {
                    return self.factor(size, size.width);
                }
                let width = table_name(name).ok().and_then(|name| (self.width)(&name));
                let table = Size {
                    relations: 1,
                    ..Size::default()
                };
                self.factor(table, width.unwrap_or(CATALOG_COLUMNS))
            }
            // Its content was added at its end.
            TableFactor::Derived { .. } => {
                let width = self.top().map_or(0, |frame| frame.last);
                self.factor(Size::default(), width)
            }
            TableFactor::NestedJoin { .. } => ControlFlow::Continue(()),
            _ => self.factor(Size::default(), 2),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Error> {
        self.written = self.written.saturating_add(1);
        if let Some(frame) = self.frames.last_mut() {
            frame.size.expressions = frame.size.expressions.saturating_add(1);
            if let Expr::Function(function) = expr
                && function.over.is_some()
            {
                frame.windows += 1;
            }
        }
        types_in_text(expr)
    }
}

/// Refuses deeply nested types that are written as text, since these are parsed recursively.
fn types_in_text(expr: &Expr) -> ControlFlow<Error> {
    let Expr::Function(function) = expr else {
        return ControlFlow::Continue(());
    };
    let name = function.name.0.last().and_then(|part| part.as_ident());
    let reads_types = name.is_some_and(|name| {
        let name = name.value.to_lowercase();
        name.contains("arrow") && name.contains("cast")
    });
    let FunctionArguments::List(arguments) = &function.args else {
        return ControlFlow::Continue(());
    };
    if !reads_types {
        return ControlFlow::Continue(());
    }
    for argument in arguments.args.iter().skip(1) {
        let text = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => {
                value.value.clone().into_string()
            }
            _ => None,
        };
        let Some(text) = text else {
            let error = Error::invalid_value("the type to convert to must be a string literal");
            return ControlFlow::Break(error);
        };
        if text.matches(['(', '<', '[', '{']).count() > TYPE_BRACKETS_MAX {
            return ControlFlow::Break(Error::too_large(format!(
                "a type has more than {TYPE_BRACKETS_MAX} brackets"
            )));
        }
    }
    ControlFlow::Continue(())
}

/// Number of consecutive set operations, such as `UNION`.
fn sets(body: &SetExpr) -> u64 {
    match body {
        SetExpr::SetOperation { left, right, .. } => sets(left) + sets(right) + 1,
        _ => 0,
    }
}

/// Number of grouping sets of a query.
fn groupings(group_by: &GroupByExpr) -> u64 {
    let (keys, whole) = match group_by {
        GroupByExpr::All(modifiers) => (&[][..], !modifiers.is_empty()),
        GroupByExpr::Expressions(keys, modifiers) => (keys.as_slice(), !modifiers.is_empty()),
    };
    let of_keys = product(keys);
    match whole {
        // Upper bound: WITH CUBE.
        true => of_keys.saturating_mul(power_of_two(keys.len())),
        false => of_keys,
    }
}

/// The number of combined grouping sets of several keys.
fn product(keys: &[Expr]) -> u64 {
    keys.iter().fold(1u64, |sets, key| {
        sets.saturating_mul(match key {
            Expr::Cube(parts) => power_of_two(parts.len()),
            Expr::Rollup(parts) => parts.len() as u64 + 1,
            Expr::GroupingSets(parts) => parts
                .iter()
                .fold(0u64, |sum, part| sum.saturating_add(product(part)))
                .max(1),
            // Within GROUPING SETS the parser reads these as calls.
            Expr::Function(call) => called_sets(call),
            _ => 1,
        })
    })
}

fn called_sets(call: &Function) -> u64 {
    let parts = match &call.args {
        FunctionArguments::List(list) => list.args.len(),
        _ => 0,
    };
    match call.name.to_string().to_lowercase().as_str() {
        "cube" => power_of_two(parts),
        "rollup" => parts as u64 + 1,
        _ => 1,
    }
}

fn expressions_of(group_by: &GroupByExpr) -> u64 {
    match group_by {
        GroupByExpr::All(_) => 0,
        GroupByExpr::Expressions(keys, _) => keys
            .iter()
            .map(|key| match key {
                Expr::Cube(parts) | Expr::Rollup(parts) | Expr::GroupingSets(parts) => {
                    parts.iter().map(|part| part.len() as u64).sum()
                }
                _ => 1,
            })
            .sum(),
    }
}

fn power_of_two(exponent: usize) -> u64 {
    u32::try_from(exponent)
        .ok()
        .and_then(|exponent| 1u64.checked_shl(exponent))
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::expect_used,
        clippy::unwrap_used,
        reason = "tests fail by panicking"
    )]

    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn measured(sql: &str) -> Result<()> {
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        of_statement(&parsed[0], &|name| (name == "wide").then_some(2_000))
    }

    fn doubling(tables: usize) -> String {
        let mut with = vec!["c0 AS (SELECT 1 AS x)".to_owned()];
        for i in 1..=tables {
            let before = i - 1;
            with.push(format!(
                "c{i} AS (SELECT a.x FROM c{before} a, C{before} b)"
            ));
        }
        format!("WITH {} SELECT * FROM c{tables}", with.join(", "))
    }

    /// The walk is as deep as the statement, so it too runs on a planner's stack.
    #[test]
    fn what_multiplies_is_refused_and_what_does_not_is_let_in() {
        let walk = std::thread::Builder::new().stack_size(crate::planner::STACK_BYTES);
        walk.spawn(multiplying).unwrap().join().unwrap();
    }

    fn multiplying() {
        for sql in [
            doubling(21),
            doubling(64),
            "SELECT count(*) FROM t GROUP BY CUBE (a,b,c,d,e,f,g,h,i)".to_owned(),
            format!("SELECT 1 FROM t GROUP BY {}a", "ROLLUP (a, b), ".repeat(6)),
            format!("SELECT {}* FROM wide", "*, ".repeat(200)),
            format!("SELECT 1 FROM t{}", ", t".repeat(2_000)),
            "SELECT 1 FROM t GROUP BY GROUPING SETS (CUBE (a,b,c,d,e,f,g,h,i), (a))".to_owned(),
            format!("SELECT 1 FROM wide{}", ", wide".repeat(20)),
            format!("SELECT 1{}", ", sum(a) OVER (ORDER BY a)".repeat(400)),
        ] {
            let error = measured(&sql).expect_err(&sql[..40]);
            assert_eq!(error.code, "too_large", "{}", &sql[..40]);
            assert!(error.hint.is_some());
        }
        for sql in [
            doubling(5),
            "SELECT count(*) FROM t GROUP BY CUBE (a,b,c,d,e,f,g,h)".to_owned(),
            format!("INSERT INTO t VALUES (1){}", ", (2)".repeat(50_000)),
            format!("SELECT a IN (1{})", ", 2".repeat(20_000)),
            format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(499)),
            "SELECT *, * FROM wide".to_owned(),
        ] {
            assert_eq!(measured(&sql), Ok(()), "{}", &sql[..40]);
        }
    }
}
