//! The types and settings that statements about tables name.

use crate::error::{Error, Result, with_suggestion};
use crate::text;
use datafusion::sql::sqlparser::ast;
use headwater::{Duplicates, FieldType};
use std::time::Duration;

/// What a declared column is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    Time,
    Tag,
    Field(FieldType),
}

/// What a type's name means.
pub(super) fn declared(data_type: &ast::DataType) -> Result<Declared> {
    let text = data_type.to_string().to_uppercase();
    let name = text.split('(').next().unwrap_or(&text).trim();
    let name = if name == "TIMESTAMP" {
        "TIMESTAMP"
    } else {
        name
    };
    Ok(match name {
        "TIMESTAMP"
        | "TIMESTAMPTZ"
        | "TIMESTAMP WITH TIME ZONE"
        | "TIMESTAMP WITHOUT TIME ZONE"
        | "DATETIME" => Declared::Time,
        "TAG" => Declared::Tag,
        "DOUBLE" | "DOUBLE PRECISION" | "FLOAT" | "REAL" | "FLOAT8" | "FLOAT4" | "FLOAT64" => {
            Declared::Field(FieldType::F64)
        }
        "BIGINT" | "INT" | "INTEGER" | "SMALLINT" | "INT8" | "INT4" | "INT2" | "INT64" => {
            Declared::Field(FieldType::I64)
        }
        "BIGINT UNSIGNED" | "UBIGINT" | "UINT64" | "INT UNSIGNED" | "INTEGER UNSIGNED" => {
            Declared::Field(FieldType::U64)
        }
        "BOOLEAN" | "BOOL" => Declared::Field(FieldType::Bool),
        "TEXT" | "VARCHAR" | "STRING" | "CHARACTER VARYING" => Declared::Field(FieldType::String),
        "BYTEA" | "BLOB" | "BYTES" | "VARBINARY" => Declared::Field(FieldType::Bytes),
        other => {
            return Err(Error::unsupported(format!("a column cannot be of type {other}"))
                .with_hint(
                    "types are TIMESTAMP, TAG, DOUBLE, BIGINT, BIGINT UNSIGNED, BOOLEAN, TEXT, BYTEA",
                ));
        }
    })
}

/// The name of a column as it is stored.
pub(super) fn column_name(ident: &ast::Ident) -> String {
    if ident.quote_style.is_some() {
        ident.value.clone()
    } else {
        ident.value.to_lowercase()
    }
}

/// Settings of a table that a statement changes; `Some(None)` = back to none.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TableSettings {
    pub(super) retention: Option<Option<Duration>>,
    pub(super) raw_for: Option<Option<Duration>>,
    pub(super) duplicates: Option<Duplicates>,
    pub(super) leaf_events: Option<u32>,
}

const SETTINGS: [&str; 4] = ["retention", "raw_for", "duplicates", "leaf_events"];

impl TableSettings {
    pub(super) fn of(options: &[ast::SqlOption]) -> Result<TableSettings> {
        let mut settings = TableSettings::default();
        for option in options {
            let ast::SqlOption::KeyValue { key, value } = option else {
                return Err(Error::syntax(format!(
                    "`{option}`: settings of a table are written as name = value"
                )));
            };
            settings.set(&column_name(key), &literal(value)?)?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let wrong = |expected: &str| {
            Error::invalid_value(format!("{name}: expected {expected}, found `{value}`"))
        };
        let life = || -> Result<Option<Duration>> {
            if ["none", "forever"].contains(&value) {
                return Ok(None);
            }
            let ns = text::duration_ns(value)
                .and_then(|ns| u64::try_from(ns).ok())
                .ok_or_else(|| wrong("a duration such as '30d', or 'none'"))?;
            Ok(Some(Duration::from_nanos(ns)))
        };
        match name {
            "retention" => self.retention = Some(life()?),
            "raw_for" => self.raw_for = Some(life()?),
            "duplicates" => {
                self.duplicates = Some(match value {
                    "last" => Duplicates::Last,
                    "keep" => Duplicates::Keep,
                    _ => return Err(wrong("'last' or 'keep'")),
                });
            }
            "leaf_events" => {
                self.leaf_events = Some(value.parse().map_err(|_| wrong("a number"))?);
            }
            _ => {
                let error = Error::unknown_setting(format!("a table has no setting `{name}`"));
                return Err(with_suggestion(error, name, &SETTINGS));
            }
        }
        Ok(())
    }
}

/// A text or number written out, or a bare word.
pub(super) fn literal(expr: &ast::Expr) -> Result<String> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => {
                Ok(text.clone())
            }
            ast::Value::Number(number, _) => Ok(number.clone()),
            ast::Value::Boolean(value) => Ok(value.to_string()),
            other => Err(Error::invalid_value(format!("`{other}` is no plain value"))),
        },
        ast::Expr::Identifier(ident) => Ok(ident.value.clone()),
        other => Err(Error::invalid_value(format!("`{other}` is no plain value"))),
    }
}
