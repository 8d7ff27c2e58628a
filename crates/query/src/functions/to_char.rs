//! `to_char(time, pattern)`, the SQL library's, with strftime patterns: a PostgreSQL pattern, which
//! has no strftime directive, would be returned unchanged for every instant.
//!
//! Failure: a pattern without a directive is refused, also from a column.

use crate::error::Error;
use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::datetime;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::Arc;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ToChar {
    inner: Arc<ScalarUDF>,
}

impl ToChar {
    pub(super) fn new() -> ToChar {
        ToChar {
            inner: datetime::to_char(),
        }
    }
}

/// Checks that a pattern has a directive.
pub(crate) fn check_pattern(pattern: &str) -> std::result::Result<(), Error> {
    if pattern.contains('%') {
        return Ok(());
    }
    let error = Error::invalid_value(format!(
        "to_char: expected a pattern with directives such as %Y-%m-%d %H:%M:%S, found '{pattern}'"
    ));
    Err(error.with_hint("the patterns are those of strftime, not PostgreSQL's"))
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.get(1) {
            Some(ColumnarValue::Array(patterns)) => {
                let patterns = cast(patterns, &DataType::Utf8)?;
                let mut patterns = patterns.as_string::<i32>().iter().flatten();
                patterns.try_for_each(check_pattern)?;
            }
            Some(ColumnarValue::Scalar(pattern)) => {
                let pattern = pattern.try_as_str().flatten();
                pattern.map_or(Ok(()), check_pattern)?;
            }
            None => {}
        }
        self.inner.invoke_with_args(args)
    }
}
