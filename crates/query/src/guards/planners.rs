//! Guards around the functions that the planner makes of syntax (`[1, 2]`, `position('a' IN b)`,
//! `extract(…)`, `a || b`), from the start: arguments of table functions are computed before any
//! rule runs.

use super::function::{bare, guard_calls};
use super::operator::{concatenation, is_concatenation};
use crate::error::Error;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawDictionaryExpr,
    RawFieldAccessExpr, RawWindowExpr, TypePlanner,
};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// Maximum elements of a list whose type includes its length.
const SIZED_MAX: u64 = 1_000;

/// A planner whose functions are guarded.
#[derive(Debug)]
pub(super) struct GuardedPlanner(pub(super) Arc<dyn ExprPlanner>);

fn guard<T>(planned: PlannerResult<T>) -> Result<PlannerResult<T>> {
    Ok(match planned {
        PlannerResult::Planned(Expr::Alias(mut alias)) => {
            alias.expr = Box::new(guard_calls(*alias.expr)?);
            PlannerResult::Planned(Expr::Alias(alias))
        }
        PlannerResult::Planned(expr) => PlannerResult::Planned(guard_calls(expr)?),
        original => original,
    })
}

type Planned = Result<PlannerResult<Vec<Expr>>>;

impl ExprPlanner for GuardedPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        guard(self.0.plan_binary_op(expr, schema)?)
    }

    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        guard(self.0.plan_field_access(expr, schema)?)
    }

    fn plan_array_literal(&self, exprs: Vec<Expr>, schema: &DFSchema) -> Planned {
        guard(self.0.plan_array_literal(exprs, schema)?)
    }

    fn plan_position(&self, args: Vec<Expr>) -> Planned {
        guard(self.0.plan_position(args)?)
    }

    fn plan_dictionary_literal(
        &self,
        expr: RawDictionaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawDictionaryExpr>> {
        guard(self.0.plan_dictionary_literal(expr, schema)?)
    }

    fn plan_extract(&self, args: Vec<Expr>) -> Planned {
        guard(self.0.plan_extract(args)?)
    }

    fn plan_substring(&self, args: Vec<Expr>) -> Planned {
        guard(self.0.plan_substring(args)?)
    }

    fn plan_struct_literal(&self, args: Vec<Expr>, is_named: bool) -> Planned {
        guard(self.0.plan_struct_literal(args, is_named)?)
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> Planned {
        guard(self.0.plan_overlay(args)?)
    }

    fn plan_make_map(&self, args: Vec<Expr>) -> Planned {
        guard(self.0.plan_make_map(args)?)
    }

    fn plan_compound_identifier(
        &self,
        field: &Field,
        qualifier: Option<&TableReference>,
        names: &[String],
    ) -> Planned {
        guard(self.0.plan_compound_identifier(field, qualifier, names)?)
    }

    fn plan_aggregate(&self, expr: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        self.0.plan_aggregate(expr)
    }

    fn plan_window(&self, expr: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        self.0.plan_window(expr)
    }
}

/// `||` between operands that are not lists.
#[derive(Debug)]
pub(super) struct Concatenations;

impl ExprPlanner for Concatenations {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_list = |side: &Expr| match side {
            Expr::ScalarFunction(call) if is_concatenation(bare(&call.func)) => false,
            side => matches!(
                side.get_type(schema),
                Ok(DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
            ),
        };
        if !matches!(expr.op, ast::BinaryOperator::StringConcat)
            || is_list(&expr.left)
            || is_list(&expr.right)
        {
            return Ok(PlannerResult::Original(expr));
        }
        let made = concatenated(expr.left, expr.right);
        Ok(PlannerResult::Planned(guard_calls(made)?))
    }
}

/// `left || right` between texts. A chain becomes one call of many arguments: a nested call would
/// be visited again from each of its levels.
fn concatenated(left: Expr, right: Expr) -> Expr {
    match left {
        Expr::ScalarFunction(mut call) if is_concatenation(bare(&call.func)) => {
            call.args.push(right);
            Expr::ScalarFunction(call)
        }
        left => concatenation(left, right),
    }
}

/// A table function with constant arguments.
#[derive(Debug)]
pub(super) struct GuardedTable {
    pub(super) name: String,
    pub(super) inner: Arc<dyn TableFunctionImpl>,
}

impl TableFunctionImpl for GuardedTable {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let mut all = args.exprs().iter().enumerate();
        let is_constant = |arg: &Expr| match arg {
            Expr::Alias(alias) => matches!(*alias.expr, Expr::Literal(..)),
            other => matches!(other, Expr::Literal(..)),
        };
        if let Some((at, _)) = all.find(|(_, arg)| !is_constant(arg)) {
            return Err(Error::too_large(format!(
                "{}: argument {} is not a constant, or needs too much memory to be evaluated as one",
                self.name,
                at + 1
            ))
            .with_hint("write its value as a literal")
            .into());
        }
        self.inner.call_with_args(args)
    }
}

/// Refuses list types of fixed length, if the length is too large.
#[derive(Debug)]
pub(super) struct Sizes;

impl TypePlanner for Sizes {
    fn plan_type_field(&self, sql: &ast::DataType) -> Result<Option<FieldRef>> {
        let mut elements = 1u64;
        let mut inner = sql;
        while let ast::DataType::Array(of) = inner {
            inner = match of {
                ast::ArrayElemTypeDef::SquareBracket(item, size) => {
                    elements = elements.saturating_mul(size.unwrap_or(1).max(1));
                    item
                }
                ast::ArrayElemTypeDef::AngleBracket(item)
                | ast::ArrayElemTypeDef::Parenthesis(item) => item,
                ast::ArrayElemTypeDef::None => break,
            };
        }
        if elements > SIZED_MAX {
            return Err(Error::too_large(format!(
                "the type {sql} has {elements} elements; at most {SIZED_MAX} are allowed"
            ))
            .with_hint("leave the size out: a list has any number of elements")
            .into());
        }
        Ok(None)
    }
}
