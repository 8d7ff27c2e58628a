//! A function within a fence: before it is called it is known what the call will give, and whether
//! the statement may have that.
//!
//! Invariants: a fenced function is the function in everything that the planner asks; only its
//! calls are looked at. It costs some tens of nanoseconds a batch, and some a row for functions
//! that make much of little.
//! Failure: a call that would give too much is refused with `memory_limit`, one that would work too
//! long on a single row with `too_large`; calls that work long on many rows are made in parts,
//! between which the statement can be ended.

use super::cost::{self, Kind};
use super::extent::{of_scalar, of_value};
use super::rule::{fence_calls, fence_types};
use super::statement;
use crate::error::Error;
use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::{concat, min};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{DataFusionError, ExprSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, StructFieldMapping, Volatility,
};
use std::sync::Arc;

/// Steps of work after which it is asked whether the statement may go on: some hundredths of a
/// second.
const PART_WORK: usize = 20_000_000;
/// Steps of work that one row may need, since nothing ends a call within a row.
const ROW_WORK_MAX: usize = 500_000_000;

/// Types within each other, in the name of a type.
const TYPES_MAX: usize = 32;

fn is_deep_type(name: &str) -> bool {
    name.bytes().filter(|byte| *byte == b'(').count() > TYPES_MAX
}

/// A function and its fence.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Fenced {
    inner: Arc<ScalarUDF>,
}

/// The function within a fence.
pub(crate) fn fenced(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    // Those that wait for something else are never called directly.
    if is_fenced(&function) || function.as_async().is_some() {
        return function;
    }
    Arc::new(ScalarUDF::new_from_impl(Fenced { inner: function }))
}

pub(super) fn is_fenced(function: &ScalarUDF) -> bool {
    function.inner().is::<Fenced>()
}

/// The function itself.
pub(super) fn bare(function: &Arc<ScalarUDF>) -> &Arc<ScalarUDF> {
    match function.inner().downcast_ref::<Fenced>() {
        Some(fence) => &fence.inner,
        None => function,
    }
}

impl Fenced {
    fn function(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }
}

/// A call under the eyes of the statement that it is for.
pub(super) fn guard(
    name: &str,
    volatility: Volatility,
    mut args: ScalarFunctionArgs,
    call: &dyn Fn(ScalarFunctionArgs) -> Result<ColumnarValue>,
) -> Result<ColumnarValue> {
    statement::checkpoint()?;
    let all_rows = args.number_rows;
    let is_scalar = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
    let one = volatility != Volatility::Volatile
        && all_rows > 1
        && !args.args.is_empty()
        && args.args.iter().all(is_scalar);
    if one {
        // The same for all rows: it is computed for one.
        args.number_rows = 1;
    }
    let rows = args.number_rows;
    let kind = Kind::of(name);
    if kind == Kind::Pad
        && let Some(length) = args.args.get_mut(1)
    {
        not_negative(length);
    }
    let cost = cost::cost(kind, &args.args, rows);
    statement::room_to_fold(cost.bytes, kind.grows(), name)?;
    // While it grows, what is made is copied.
    statement::room(cost.bytes.saturating_mul(2), name)?;
    if cost.row_work > ROW_WORK_MAX {
        return Err(
            Error::too_large(format!("{name}: the arguments are too large for one call"))
                .with_hint("give it shorter texts, shorter lists, or a pattern with smaller counts")
                .into(),
        );
    }
    let made = if cost.work > PART_WORK && rows > 1 && !args.args.iter().all(is_scalar) {
        in_parts(&args, cost.work, call)?
    } else {
        call(args)?
    };
    let made = match made {
        ColumnarValue::Array(array) if one && array.len() == 1 => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
        }
        made => made,
    };
    let bytes = of_value(&made);
    if let ColumnarValue::Scalar(value) = &made {
        // It becomes as many values as there are rows.
        statement::room(of_scalar(value).saturating_mul(all_rows), name)?;
    }
    statement::made(bytes);
    Ok(made)
}

/// Takes nothing for what is less than nothing, as PostgreSQL does: the library fails on a column
/// of such lengths.
fn not_negative(length: &mut ColumnarValue) {
    match length {
        ColumnarValue::Array(array) if *array.data_type() == DataType::Int64 => {
            let lengths = array.as_primitive::<Int64Type>();
            if min(lengths).is_some_and(|least| least < 0) {
                let lengths: Int64Array = lengths.unary(|length| length.max(0));
                *array = Arc::new(lengths);
            }
        }
        ColumnarValue::Scalar(value) => {
            if let ScalarValue::Int64(Some(length)) = value {
                *length = (*length).max(0);
            }
        }
        ColumnarValue::Array(_) => {}
    }
}

fn in_parts(
    args: &ScalarFunctionArgs,
    work: usize,
    call: &dyn Fn(ScalarFunctionArgs) -> Result<ColumnarValue>,
) -> Result<ColumnarValue> {
    let rows = args.number_rows;
    let step = (rows / (work / PART_WORK + 1)).max(1);
    let mut parts = Vec::with_capacity(rows / step + 1);
    let mut from = 0;
    while from < rows {
        statement::checkpoint()?;
        let number_rows = step.min(rows - from);
        let part = args.args.iter().map(|arg| match arg {
            ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, number_rows)),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value.clone()),
        });
        let made = call(ScalarFunctionArgs {
            args: part.collect(),
            arg_fields: args.arg_fields.clone(),
            number_rows,
            return_field: Arc::clone(&args.return_field),
            config_options: Arc::clone(&args.config_options),
        })?;
        parts.push(made.into_array(number_rows)?);
        from += number_rows;
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(ColumnarValue::Array(concat(&parts)?))
}

fn of_types(name: &str, types: &[DataType], what: &str) -> Error {
    let types: Vec<&str> = types.iter().map(headwater_columnar::type_name).collect();
    let what = what.lines().next().unwrap_or_default();
    Error::type_mismatch(format!(
        "`{name}` takes no arguments of these types: {name}({}); it says: {what}",
        types.join(", ")
    ))
    .with_hint("convert them with CAST, for example CAST(x AS DOUBLE)")
}

impl ScalarUDFImpl for Fenced {
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
        Some(ScalarUDF::new_from_impl(Fenced {
            inner: Arc::new(inner),
        }))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        // The names of types are read by recursion.
        let mut texts = args.scalar_arguments.iter().flatten();
        if self.name().contains("cast")
            && texts.any(|text| text.try_as_str().flatten().is_some_and(is_deep_type))
        {
            return Err(Error::too_large(format!(
                "{}: more than {TYPES_MAX} types lie within each other",
                self.name()
            ))
            .into());
        }
        let field = self.function().return_field_from_args(args)?;
        fence_types(field.data_type())?;
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
        let made = guard(function.name(), volatility, args, &|args| {
            function.invoke_with_args(args)
        });
        made.map_err(|error| match error.find_root() {
            // The library takes some types that its functions then do not compute with.
            DataFusionError::Internal(what) => of_types(function.name(), &types, what).into(),
            _ => error,
        })
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // Functions know each other without their fences.
        let args = args.into_iter().map(|arg| match arg {
            Expr::ScalarFunction(mut call) => {
                call.func = Arc::clone(bare(&call.func));
                Expr::ScalarFunction(call)
            }
            other => other,
        });
        Ok(match self.function().simplify(args.collect(), info)? {
            ExprSimplifyResult::Original(args) => {
                let args = args.into_iter().map(fence_calls);
                ExprSimplifyResult::Original(args.collect::<Result<_>>()?)
            }
            ExprSimplifyResult::Simplified(expr) => {
                ExprSimplifyResult::Simplified(fence_calls(expr)?)
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
