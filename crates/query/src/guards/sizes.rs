//! Types and parameters whose sizes alone are too large.
//!
//! Failure: `too_large`.

use crate::error::Error;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Expr;

/// Maximum bytes of a value due to its type alone.
const TYPE_BYTES_MAX: usize = 8 << 10;
/// Maximum nesting depth of types.
const TYPE_DEPTH_MAX: usize = 64;
/// Maximum centroids of an approximate percentile: it allocates memory for all of them at once.
const CENTROIDS_MAX: u64 = 10_000;

/// Refuses casts and parameters that are too large by themselves.
pub(super) fn check(expr: &Expr) -> Result<()> {
    match expr {
        Expr::Cast(cast) => check_type(cast.field.data_type()),
        Expr::TryCast(cast) => check_type(cast.field.data_type()),
        Expr::AggregateFunction(call) if call.func.name().starts_with("approx_percentile") => {
            for arg in call.params.args.iter().skip(1) {
                if let Expr::Literal(value, _) = arg
                    && let Ok(ScalarValue::UInt64(Some(count))) = value.cast_to(&DataType::UInt64)
                    && count > CENTROIDS_MAX
                {
                    return Err(Error::too_large(format!(
                        "{} keeps at most {CENTROIDS_MAX} centroids, found {count}",
                        call.func.name()
                    ))
                    .into());
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses types with values of an enormous fixed size, and deeply nested types.
pub(super) fn check_type(data_type: &DataType) -> Result<()> {
    let bytes = type_bytes(data_type, 0)?;
    if bytes > TYPE_BYTES_MAX {
        return Err(Error::too_large(format!(
            "every value of this type would have {bytes} bytes; at most {TYPE_BYTES_MAX} are allowed"
        ))
        .with_hint("use a list without a fixed size")
        .into());
    }
    Ok(())
}

fn type_bytes(data_type: &DataType, depth: usize) -> Result<usize> {
    if depth > TYPE_DEPTH_MAX {
        return Err(
            Error::too_large(format!("types are nested more than {TYPE_DEPTH_MAX} deep")).into(),
        );
    }
    let of = |inner: &DataType| type_bytes(inner, depth + 1);
    let times = |size: i32| usize::try_from(size).unwrap_or(0);
    Ok(match data_type {
        DataType::FixedSizeBinary(size) => times(*size),
        DataType::FixedSizeList(item, size) => of(item.data_type())?.saturating_mul(times(*size)),
        DataType::Struct(fields) => {
            let mut sum = 0usize;
            for field in fields {
                sum = sum.saturating_add(of(field.data_type())?);
            }
            sum
        }
        // A list has a variable number of elements.
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => of(item.data_type())?.max(16),
        DataType::Dictionary(_, value) => of(value)?,
        other => other.primitive_width().unwrap_or(16),
    })
}
