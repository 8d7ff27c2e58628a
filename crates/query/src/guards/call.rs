//! One guarded call of a function or operator: before the call, its cost is estimated and checked
//! against the statement's memory.
//!
//! Failure: `memory_limit` for a call whose result is too large, `too_large` for one that takes too
//! long on a single row. Calls that take long on many rows are split into parts, between which the
//! statement can be ended.

use super::extent::{of_scalar, of_value};
use super::function_cost::{self, GrowthKind};
use super::statement;
use crate::error::Error;
use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::{concat, min};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, Volatility};
use std::sync::Arc;

/// Steps of work between two checks whether the statement may continue: some hundredths of a
/// second.
const PART_WORK: usize = 20_000_000;
/// Maximum steps of work for one row, since a call cannot be ended within a row.
const ROW_WORK_MAX: usize = 500_000_000;

/// Calls a function if the statement's memory suffices for it, and accounts for its result.
pub(super) fn guarded_call(
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
        // All rows are the same: the result is computed once.
        args.number_rows = 1;
    }
    let rows = args.number_rows;
    let kind = GrowthKind::of(name);
    if kind == GrowthKind::Pad
        && let Some(length) = args.args.get_mut(1)
    {
        not_negative(length);
    }
    let cost = function_cost::cost(kind, &args.args, rows);
    statement::check_fold(cost.bytes, kind.grows(), name)?;
    // A growing result is copied.
    statement::check_memory(cost.bytes.saturating_mul(2), name)?;
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
        // The value is expanded to all rows.
        statement::check_memory(of_scalar(value).saturating_mul(all_rows), name)?;
    }
    statement::record_built(bytes);
    Ok(made)
}

/// Treats negative lengths as zero, as PostgreSQL does: the library fails on a column of such
/// lengths.
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
