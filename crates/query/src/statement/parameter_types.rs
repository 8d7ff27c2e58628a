//! The types of a statement's parameters, before it has values for them.

use crate::error::Result;
use crate::parameters::{self, Parameters};
use crate::placeholders::Written;
use crate::rewrites;
use crate::session::Running;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast;

/// Types of a statement's parameters: the declared type, else the type in the plan, else the type
/// in a part that the plan has omitted, else text.
pub(super) async fn parameter_types(
    running: &Running,
    plan: &LogicalPlan,
    written: &Written,
    given: &[Option<DataType>],
) -> Result<Vec<DataType>> {
    let mut types = parameters::types(plan)?;
    let count = types.len().max(written.count).max(given.len());
    types.resize(count, None);
    for (at, data_type) in &written.casts {
        if let Some(slot @ None) = types.get_mut(at - 1) {
            *slot = Some(type_of(running, data_type).await?);
        }
    }
    let types = types.into_iter().enumerate();
    Ok(types
        .map(|(at, planned)| {
            let given = given.get(at).cloned().flatten();
            given.or(planned).unwrap_or(DataType::Utf8)
        })
        .collect())
}

/// The type of a type name.
async fn type_of(running: &Running, data_type: &ast::DataType) -> Result<DataType> {
    let statement = ast::Statement::Query(Box::new(rewrites::null_as(data_type)));
    let plan = running
        .resolve(Parse::Statement(Box::new(statement)))
        .await?;
    let field = plan.schema().fields().first();
    Ok(field.map_or(DataType::Utf8, |field| field.data_type().clone()))
}

/// Null values in the types of parameters, to determine the columns of an answer.
pub(super) fn nulls(types: &[DataType]) -> Result<Parameters> {
    let values: datafusion::common::Result<Vec<ScalarValue>> =
        types.iter().map(ScalarValue::try_new_null).collect();
    Ok(Parameters::positional(values?))
}
