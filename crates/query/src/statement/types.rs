//! Types and settings in statements about tables.

use crate::error::{Error, Result, with_suggestion};
use crate::text;
use datafusion::sql::sqlparser::ast;
use headwater::{Duplicates, FieldType, IndexBudget, IndexPolicy};
use std::time::Duration;

/// Kinds of declared columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    Time,
    Tag,
    Field(FieldType),
}

/// The kind of column of a type name.
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
            let hint = match other {
                "SERIAL" | "BIGSERIAL" | "SMALLSERIAL" | "SERIAL4" | "SERIAL8" | "SERIAL2" => {
                    "rows are identified by their tags and time, not by a generated number: leave the column out, or store your own number as BIGINT"
                }
                "JSON" | "JSONB" | "UUID" | "XML" => {
                    "store it as TEXT, or as TAG if it names a device; store each value of an object in a column of its own"
                }
                _ => {
                    "types are TIMESTAMP, TAG, DOUBLE, BIGINT, BIGINT UNSIGNED, BOOLEAN, TEXT, BYTEA"
                }
            };
            let error = Error::unsupported(format!("a column cannot be of type {other}"));
            return Err(error.with_hint(hint));
        }
    })
}

/// The stored name of a column.
pub(super) fn column_name(ident: &ast::Ident) -> String {
    if ident.quote_style.is_some() {
        ident.value.clone()
    } else {
        ident.value.to_lowercase()
    }
}

/// Settings of a table that a statement changes; `Some(None)` = remove the setting.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TableSettings {
    pub(super) retention: Option<Option<Duration>>,
    pub(super) raw_for: Option<Option<Duration>>,
    pub(super) duplicates: Option<Duplicates>,
    pub(super) leaf_events: Option<u32>,
    auto_index: Option<bool>,
    index_budget: Option<Option<IndexBudget>>,
}

const SETTINGS: [&str; 6] = [
    "retention",
    "raw_for",
    "duplicates",
    "leaf_events",
    "auto_index",
    "index_budget",
];

/// Parses a size: `10%` of the table's size, or bytes as `64MB`.
fn index_budget(value: &str) -> Option<IndexBudget> {
    if let Some(percent) = value.strip_suffix('%') {
        return percent.trim().parse().ok().map(IndexBudget::Percent);
    }
    let digits = value.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = value.split_at(digits.unwrap_or(value.len()));
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kb" | "kib" => 10,
        "mb" | "mib" => 20,
        "gb" | "gib" => 30,
        "tb" | "tib" => 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    Some(IndexBudget::Bytes(bytes))
}

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
            "auto_index" => {
                self.auto_index = Some(match value {
                    "on" | "true" => true,
                    "off" | "false" => false,
                    _ => return Err(wrong("'on' or 'off'")),
                });
            }
            "index_budget" if value == "none" => self.index_budget = Some(None),
            "index_budget" => {
                let budget = index_budget(value).ok_or_else(|| {
                    wrong("a percentage such as '10%', a size such as '64MB', or 'none'")
                })?;
                self.index_budget = Some(Some(budget));
            }
            _ => {
                let error = Error::unknown_setting(format!("a table has no setting `{name}`"));
                return Err(with_suggestion(error, name, &SETTINGS));
            }
        }
        Ok(())
    }

    /// The table's index policy after the statement; `None` = unchanged.
    pub(super) fn index_policy(&self, before: IndexPolicy) -> Option<IndexPolicy> {
        let after = IndexPolicy {
            auto: self.auto_index.unwrap_or(before.auto),
            budget: self.index_budget.unwrap_or(before.budget),
        };
        (after != before).then_some(after)
    }

    /// Merges the settings of one statement; later ones override.
    pub(super) fn join(&mut self, later: TableSettings) {
        *self = TableSettings {
            retention: later.retention.or(self.retention),
            raw_for: later.raw_for.or(self.raw_for),
            duplicates: later.duplicates.or(self.duplicates),
            leaf_events: later.leaf_events.or(self.leaf_events),
            auto_index: later.auto_index.or(self.auto_index),
            index_budget: later.index_budget.or(self.index_budget),
        };
    }
}

/// A text or number literal, or a bare word.
pub(super) fn literal(expr: &ast::Expr) -> Result<String> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::DoubleQuotedString(text) => {
                Ok(text.clone())
            }
            ast::Value::Number(number, _) => Ok(number.clone()),
            ast::Value::Boolean(value) => Ok(value.to_string()),
            other => Err(Error::invalid_value(format!("`{other}` is not a literal"))),
        },
        ast::Expr::Identifier(ident) => Ok(ident.value.clone()),
        other => Err(Error::invalid_value(format!("`{other}` is not a literal"))),
    }
}
