//! `SET`, `RESET` and `SHOW` of a session's settings.

use super::refuse::unsupported;
use crate::answer::{Answer, Outcome};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::settings::NAMES;
use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// The setting of a name.
pub(super) fn name(name: &ast::ObjectName) -> String {
    plain(&name.to_string())
}

fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace('"', "");
    match name.as_str() {
        "time zone" | "time_zone" | "time.zone" | "datafusion.execution.time_zone" => {
            "timezone".to_owned()
        }
        _ => name,
    }
}

/// Name of the setting that `SHOW` is for.
pub(super) fn shown(variable: &[ast::Ident]) -> String {
    let parts: Vec<&str> = variable.iter().map(|i| i.value.as_str()).collect();
    plain(&parts.join("."))
}

/// The setting to change, and its new value.
pub(super) fn assignment(set: ast::Set) -> Result<(String, String)> {
    match set {
        ast::Set::SingleAssignment {
            variable, values, ..
        } => match &*values {
            [value] => Ok((name(&variable), super::types::literal(value)?)),
            _ => Err(Error::invalid_value(format!(
                "SET {variable} takes one value"
            ))),
        },
        ast::Set::SetTimeZone { value, .. } => {
            Ok(("timezone".to_owned(), super::types::literal(&value)?))
        }
        other => Err(unsupported(other)),
    }
}

pub(super) fn set(session: &Session, name: &str, value: Option<&str>) -> Result<Answer> {
    session.settings.write().set(name, value)?;
    Ok(Answer::without_rows(Outcome::Set))
}

/// The columns of `SHOW`.
pub(super) fn schema(name: &str) -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    Arc::new(if name == "all" {
        Schema::new(vec![text("name"), text("setting"), text("description")])
    } else {
        Schema::new(vec![text(name)])
    })
}

pub(super) fn show(session: &Session, name: &str) -> Result<Answer> {
    let settings = session.settings_now();
    let text = |values: Vec<String>| Arc::new(StringArray::from(values)) as _;
    let columns = if name == "all" {
        let values: Result<Vec<String>> = NAMES.iter().map(|(n, _)| settings.get(n)).collect();
        vec![
            text(NAMES.iter().map(|(n, _)| (*n).to_owned()).collect()),
            text(values?),
            text(NAMES.iter().map(|(_, d)| (*d).to_owned()).collect()),
        ]
    } else {
        vec![text(vec![settings.get(name)?])]
    };
    let batch = RecordBatch::try_new(schema(name), columns);
    super::show::answer(batch.map_err(|e| Error::internal(e.to_string()))?)
}
