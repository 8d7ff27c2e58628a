//! `SHOW TABLES` and `DESCRIBE`.

use super::refuse::unsupported;
use crate::answer::{Answer, Outcome};
use crate::error::{Error, Result};
use crate::left_out::LeftOut;
use crate::names::{table_name, unknown_table};
use crate::session::Session;
use crate::view::Role;
use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// An answer from rows in memory.
pub(super) fn answer(batch: RecordBatch) -> Result<Answer> {
    let schema = batch.schema();
    let rows = futures_util::stream::iter([Ok(batch)]);
    Ok(Answer {
        rows: Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows)),
        schema,
        outcome: Outcome::Shown,
        left_out: LeftOut::default(),
    })
}

pub(super) fn tables_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("table_name", DataType::Utf8, false),
        Field::new("streams", DataType::Int64, false),
        Field::new("tags", DataType::Utf8, false),
        Field::new("fields", DataType::Int64, false),
    ]))
}

pub(super) fn tables(
    session: &Session,
    filter: Option<ast::ShowStatementFilterPosition>,
) -> Result<Answer> {
    let pattern = match filter {
        None => None,
        Some(
            ast::ShowStatementFilterPosition::Infix(filter)
            | ast::ShowStatementFilterPosition::Suffix(filter),
        ) => match filter {
            ast::ShowStatementFilter::Like(pattern) => Some(pattern),
            other => {
                return Err(unsupported(format!("SHOW TABLES {other}"))
                    .with_hint("SHOW TABLES LIKE 'pattern'"));
            }
        },
    };
    let running = session.begin()?;
    // A copy that cannot be read may have more of them: `partial=allow` leaves it out.
    running.view.snapshot().require_whole()?;
    let mut names = running.view.table_names()?;
    if let Some(pattern) = pattern {
        let all = StringArray::from(names.clone());
        let pattern = StringArray::new_scalar(pattern);
        let like = arrow::compute::like(&all, &pattern)
            .map_err(|e| Error::invalid_value(e.to_string()))?;
        let mut at = 0;
        names.retain(|_| {
            at += 1;
            like.is_valid(at - 1) && like.value(at - 1)
        });
    }
    let mut streams = Vec::new();
    let mut tags = Vec::new();
    let mut fields = Vec::new();
    for name in &names {
        let table = running.view.table(name)?;
        streams.push(match &table {
            Some(table) => i64::try_from(running.view.stream_count(table)?).unwrap_or(i64::MAX),
            None => 0,
        });
        tags.push(
            table
                .as_ref()
                .map_or_else(String::new, |t| t.keys.join(", ")),
        );
        fields.push(table.as_ref().map_or(0, |t| t.fields.len() as i64));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(names)),
        Arc::new(Int64Array::from(streams)),
        Arc::new(StringArray::from(tags)),
        Arc::new(Int64Array::from(fields)),
    ];
    let batch = RecordBatch::try_new(tables_schema(), columns);
    answer(batch.map_err(|e| Error::internal(e.to_string()))?)
}

pub(super) fn describe_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("column_name", DataType::Utf8, false),
        Field::new("data_type", DataType::Utf8, false),
        Field::new("kind", DataType::Utf8, false),
    ]))
}

pub(super) fn describe(session: &Session, name: &ast::ObjectName) -> Result<Answer> {
    let name = table_name(name)?;
    let running = session.begin()?;
    let table = running
        .view
        .table(&name)?
        .ok_or_else(|| unknown_table(&name))?;
    let columns = table.schema.fields().iter().zip(&table.roles);
    let (mut names, mut types, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    for (field, role) in columns {
        names.push(field.name().clone());
        types.push(match field.data_type() {
            DataType::Timestamp(..) => "TIMESTAMP",
            DataType::Dictionary(..) | DataType::Utf8 => "TEXT",
            DataType::Float64 => "DOUBLE",
            DataType::Int64 => "BIGINT",
            DataType::UInt64 => "BIGINT UNSIGNED",
            DataType::Boolean => "BOOLEAN",
            _ => "BYTEA",
        });
        kinds.push(match role {
            Role::Time => "time",
            Role::Tag(_) => "tag",
            Role::Field(_) => "field",
        });
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(names)),
        Arc::new(StringArray::from(types)),
        Arc::new(StringArray::from(kinds)),
    ];
    let batch = RecordBatch::try_new(describe_schema(), columns);
    answer(batch.map_err(|e| Error::internal(e.to_string()))?)
}
