//! The function that marks the comparison of an `ASOF JOIN`.

use crate::error::Error;
use crate::rewrites::asof::NEAREST;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nearest {
    signature: Signature,
}

/// The marker function.
pub(crate) fn nearest() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Nearest {
        signature: Signature::exact(vec![DataType::Boolean], Volatility::Stable),
    }))
}

impl ScalarUDFImpl for Nearest {
    fn name(&self) -> &str {
        NEAREST
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let what = "the comparison of an ASOF JOIN stands where there is none";
        Err(Error::unsupported(what).into())
    }
}
