//! `version()`: the program's version instead of the SQL library's.

use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Version {
    signature: Signature,
}

impl Version {
    pub(super) fn new() -> Version {
        Version {
            signature: Signature::nullary(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Version {
    fn name(&self) -> &str {
        "version"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = format!("Headwater {}", env!("CARGO_PKG_VERSION"));
        Ok(ColumnarValue::Scalar(ScalarValue::from(text)))
    }
}
