//! The types of a statement's parameters, before it has values for them.

use crate::error::Result;
use crate::parameters::{self, Parameters};
use crate::placeholders::Written;
use crate::session::Running;
use crate::wording;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Parse;
use datafusion::sql::sqlparser::ast;

/// The types of a statement's parameters: those wanted, else those that the plan tells, else those
/// that are written in parts that the plan has left out, else text.
pub(super) async fn parameter_types(
    running: &Running,
    plan: &LogicalPlan,
    written: &Written,
    wanted: &[Option<DataType>],
) -> Result<Vec<DataType>> {
    let mut told = parameters::types(plan)?;
    let count = told.len().max(written.count).max(wanted.len());
    told.resize(count, None);
    for (at, data_type) in &written.casts {
        if let Some(slot @ None) = told.get_mut(at - 1) {
            *slot = Some(type_of(running, data_type).await?);
        }
    }
    let told = told.into_iter().enumerate();
    Ok(told
        .map(|(at, told)| {
            let wanted = wanted.get(at).cloned().flatten();
            wanted.or(told).unwrap_or(DataType::Utf8)
        })
        .collect())
}

/// The type that a name of a type means.
async fn type_of(running: &Running, data_type: &ast::DataType) -> Result<DataType> {
    let statement = ast::Statement::Query(Box::new(wording::null_as(data_type)));
    let plan = running
        .resolve(Parse::Statement(Box::new(statement)))
        .await?;
    let field = plan.schema().fields().first();
    Ok(field.map_or(DataType::Utf8, |field| field.data_type().clone()))
}

/// Values of no meaning in the types of parameters, to learn the columns of an answer.
pub(super) fn nulls(types: &[DataType]) -> Result<Parameters> {
    let values: datafusion::common::Result<Vec<ScalarValue>> =
        types.iter().map(ScalarValue::try_new_null).collect();
    Ok(Parameters::positional(values?))
}
