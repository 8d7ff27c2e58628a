//! Parts of the catalog's functions: a name, a type, and work over arrays.

use arrow::array::{Array, ArrayRef, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

type Run = Arc<dyn Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync>;

/// A function over arrays, identified by its name.
struct Function {
    name: &'static str,
    returns: DataType,
    signature: Signature,
    run: Run,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.run, &other.run)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args
            .args
            .iter()
            .map(|value| value.to_array(rows))
            .collect::<Result<Vec<_>>>()?;
        (self.run)(&arrays, rows).map(ColumnarValue::Array)
    }
}

pub(super) fn function(
    name: &'static str,
    returns: DataType,
    run: impl Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync + 'static,
) -> Arc<ScalarUDF> {
    let any = vec![
        datafusion::logical_expr::TypeSignature::Nullary,
        datafusion::logical_expr::TypeSignature::VariadicAny,
    ];
    Arc::new(ScalarUDF::new_from_impl(Function {
        name,
        returns,
        signature: Signature::one_of(any, Volatility::Stable),
        run: Arc::new(run),
    }))
}

/// An argument as texts; nulls where it is absent.
pub(super) fn texts(arrays: &[ArrayRef], index: usize, rows: usize) -> Result<StringArray> {
    let Some(array) = arrays.get(index) else {
        return Ok(StringArray::new_null(rows));
    };
    let array = cast(array, &DataType::Utf8)?;
    array
        .as_any()
        .downcast_ref::<StringArray>()
        .cloned()
        .ok_or_else(|| exec_datafusion_err!("expected a text"))
}

/// An argument as whole numbers; nulls where it is absent or not a number.
pub(super) fn numbers(arrays: &[ArrayRef], index: usize, rows: usize) -> Result<Int64Array> {
    let Some(array) = arrays.get(index) else {
        return Ok(Int64Array::new_null(rows));
    };
    let array = cast(array, &DataType::Int64)?;
    array
        .as_any()
        .downcast_ref::<Int64Array>()
        .cloned()
        .ok_or_else(|| exec_datafusion_err!("expected a whole number"))
}

/// Error for an object that does not exist.
pub(super) fn missing(
    sqlstate: &'static str,
    code: &'static str,
    message: String,
) -> DataFusionError {
    headwater_query::Error::new(code, sqlstate, message).into()
}

/// The result of a function.
pub(super) fn of_array(made: impl Array + 'static) -> Result<ArrayRef> {
    Ok(Arc::new(made))
}
