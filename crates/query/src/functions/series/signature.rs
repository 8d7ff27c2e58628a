//! Error messages of the functions over points for arguments of wrong types.

use crate::error::Error;
use arrow::datatypes::DataType;
use datafusion::common::DataFusionError;

/// Whether a type is an instant or NULL.
pub(in crate::functions) fn is_instant(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(..) | DataType::Null)
}

/// Whether a type is numeric or NULL.
pub(in crate::functions) fn is_number(of: &DataType) -> bool {
    of.is_numeric() || of.is_null()
}

/// Error for arguments of wrong types.
pub(in crate::functions) fn expected(name: &str, what: &str, example: &str) -> DataFusionError {
    Error::type_mismatch(format!("{name}: expected {what}"))
        .with_hint(format!("for example: {example}"))
        .into()
}
