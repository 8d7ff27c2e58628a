//! A function with a guard: the size of the result is estimated before each call, and checked
//! against the statement's memory.
//!
//! Invariants: a guarded function is transparent to all queries of the planner; only its calls are
//! checked. The check costs some tens of nanoseconds per batch, and also some per row for functions
//! with large results. Failure: `memory_limit` for a call whose result is too large, `too_large`
//! for one that takes too long on a single row; calls that take long on many rows are split into
//! parts, between which the statement can be ended.

use super::call::guarded_call;
use super::sizes::{check, check_type};
use super::{aggregates, operator, windows};
use crate::error::Error;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, ExprSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, StructFieldMapping,
};
use std::sync::Arc;

/// Maximum nesting depth of types in the name of a type.
const TYPES_MAX: usize = 32;

fn is_deep_type(name: &str) -> bool {
    name.bytes().filter(|byte| *byte == b'(').count() > TYPES_MAX
}

/// A function and its guard.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Guarded {
    inner: Arc<ScalarUDF>,
}

/// Adds a guard to a function.
pub(crate) fn guarded(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    // Asynchronous functions are never called directly.
    if is_guarded(&function) || function.as_async().is_some() {
        return function;
    }
    Arc::new(ScalarUDF::new_from_impl(Guarded { inner: function }))
}

pub(super) fn is_guarded(function: &ScalarUDF) -> bool {
    function.inner().is::<Guarded>()
}

/// The function without its guard.
pub(super) fn bare(function: &Arc<ScalarUDF>) -> &Arc<ScalarUDF> {
    match function.inner().downcast_ref::<Guarded>() {
        Some(guard) => &guard.inner,
        None => function,
    }
}

impl Guarded {
    fn function(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }
}

/// True when an expression itself needs a guard that it does not have.
pub(super) fn needs_guard(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => !is_guarded(&call.func) && call.func.as_async().is_none(),
        Expr::AggregateFunction(call) => !aggregates::is_guarded(&call.func),
        Expr::WindowFunction(call) => !windows::is_guarded(&call.fun),
        other => operator::needs_guard(other),
    }
}

/// Adds a guard to the expression; its arguments are unchanged.
pub(super) fn guard_expr(expr: Expr) -> Result<Transformed<Expr>> {
    if !needs_guard(&expr) {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(match expr {
        Expr::ScalarFunction(mut call) => {
            call.func = guarded(call.func);
            Expr::ScalarFunction(call)
        }
        Expr::AggregateFunction(mut call) => {
            call.func = aggregates::guarded(call.func);
            Expr::AggregateFunction(call)
        }
        Expr::WindowFunction(mut call) => {
            call.fun = windows::guarded(call.fun);
            Expr::WindowFunction(call)
        }
        other => match operator::guard(other) {
            Expr::ScalarFunction(mut call) => {
                call.func = guarded(call.func);
                Expr::ScalarFunction(call)
            }
            other => other,
        },
    }))
}

/// Adds guards to the functions and operators of an expression. Aggregates and windows get theirs
/// with the plan: until then the planner compares them for equality.
pub(super) fn guard_calls(expr: Expr) -> Result<Expr> {
    let guarded = expr.transform_up(|part| {
        check(&part)?;
        match part {
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) => Ok(Transformed::no(part)),
            part => guard_expr(part),
        }
    })?;
    Ok(guarded.data)
}

fn of_types(name: &str, types: &[DataType], what: &str) -> Error {
    let types: Vec<&str> = types.iter().map(headwater_columnar::type_name).collect();
    let what = what.lines().next().unwrap_or_default();
    Error::type_mismatch(format!(
        "`{name}` does not accept arguments of these types: {name}({}): {what}",
        types.join(", ")
    ))
    .with_hint("convert them with CAST, for example CAST(x AS DOUBLE)")
}

impl ScalarUDFImpl for Guarded {
    fn name(&self) -> &str {
        self.function().name()
    }

    fn aliases(&self) -> &[String] {
        self.function().aliases()
    }

    #[expect(deprecated, reason = "what it answers is the function's affair")]
    fn display_name(&self, args: &[Expr]) -> Result<String> {
        self.function().display_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.function().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.function().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.function().return_type(types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = self.function().with_updated_config(config)?;
        Some(ScalarUDF::new_from_impl(Guarded {
            inner: Arc::new(inner),
        }))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        // The names of types are parsed recursively.
        let mut texts = args.scalar_arguments.iter().flatten();
        if self.name().contains("cast")
            && texts.any(|text| text.try_as_str().flatten().is_some_and(is_deep_type))
        {
            return Err(Error::too_large(format!(
                "{}: types are nested more than {TYPES_MAX} deep",
                self.name()
            ))
            .into());
        }
        let field = self.function().return_field_from_args(args)?;
        check_type(field.data_type())?;
        Ok(field)
    }

    #[expect(deprecated, reason = "what it answers is the function's affair")]
    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        self.function().is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.function().is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let function = self.function();
        let volatility = function.signature().volatility;
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        let made = guarded_call(function.name(), volatility, args, &|args| {
            function.invoke_with_args(args)
        });
        made.map_err(|error| match error.find_root() {
            // The library accepts some types that its functions then cannot compute.
            DataFusionError::Internal(what) => of_types(function.name(), &types, what).into(),
            _ => error,
        })
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // Functions recognise each other only without guards.
        let args = args.into_iter().map(|arg| match arg {
            Expr::ScalarFunction(mut call) => {
                call.func = Arc::clone(bare(&call.func));
                Expr::ScalarFunction(call)
            }
            other => other,
        });
        Ok(match self.function().simplify(args.collect(), info)? {
            ExprSimplifyResult::Original(args) => {
                let args = args.into_iter().map(guard_calls);
                ExprSimplifyResult::Original(args.collect::<Result<_>>()?)
            }
            ExprSimplifyResult::Simplified(expr) => {
                ExprSimplifyResult::Simplified(guard_calls(expr)?)
            }
        })
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        self.function().preimage(args, literal, info)
    }

    fn short_circuits(&self) -> bool {
        self.function().short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.function().conditional_arguments(args)
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval> {
        self.function().evaluate_bounds(input)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.function().propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.function().output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.function().preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.function().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function().coerce_types(types)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.function().struct_field_mapping(literals)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function().documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.function().placement(args)
    }
}
