//! Functions that a rule replaces when a statement is planned; a remaining call reports where they
//! are valid.

use crate::error::Error;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use std::sync::Arc;

/// The names.
pub(super) const GAPFILL: &str = "time_bucket_gapfill";
pub(super) const LOCF: &str = "locf";
pub(super) const INTERPOLATE: &str = "interpolate";

/// A function that planning replaces.
#[derive(Debug, PartialEq, Eq, Hash)]
struct GapFunction {
    name: &'static str,
    signature: Signature,
}

/// All of them.
pub(crate) fn all() -> [Arc<ScalarUDF>; 3] {
    [(GAPFILL, 2..=5), (LOCF, 1..=3), (INTERPOLATE, 1..=3)].map(|(name, counts)| {
        let counts = counts.map(TypeSignature::Any);
        // Not a constant, whatever its arguments.
        let signature = Signature::one_of(counts.collect(), Volatility::Stable);
        Arc::new(ScalarUDF::new_from_impl(GapFunction { name, signature }))
    })
}

/// Error for a function in an invalid position.
pub(super) fn misplaced(name: &str) -> Error {
    match name {
        GAPFILL => Error::invalid("time_bucket_gapfill must be an expression of its own in GROUP BY").with_hint(
            "SELECT time_bucket_gapfill('1h', time) AS t, avg(temp) … WHERE time >= … AND time < … GROUP BY t",
        ),
        name => Error::invalid(format!(
            "{name} is allowed only in the SELECT of a query that groups by time_bucket_gapfill"
        ))
        .with_hint(format!(
            "SELECT time_bucket_gapfill('1h', time) AS t, {name}(avg(temp)) … GROUP BY t"
        )),
    }
}

impl ScalarUDFImpl for GapFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let of = match self.name {
            GAPFILL => match types.get(1) {
                Some(DataType::Timestamp(TimeUnit::Nanosecond, Some(_))) => types.get(1),
                _ => {
                    let what = "time_bucket_gapfill: the second argument must be a timestamp";
                    return Err(Error::invalid_value(what)
                        .with_hint("for example: time_bucket_gapfill('1h', time)")
                        .into());
                }
            },
            _ => types.first(),
        };
        if self.name == INTERPOLATE && !of.is_some_and(|of| of.is_numeric() || of.is_null()) {
            return Err(Error::type_mismatch("interpolate: expected a number")
                .with_hint("locf accepts values of any type")
                .into());
        }
        of.cloned().ok_or_else(|| misplaced(self.name).into())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(misplaced(self.name).into())
    }
}
