//! The columns of a table: their meaning here, and their names and types in Iceberg and Parquet.
//!
//! Invariants: a column retains its number as long as the table exists, and no number is reused. A
//! field whose type changes gets another column: Iceberg cannot widen any of its types. The former
//! column is renamed, and retained for days that are not rewritten.

use crate::names::free_name;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use headwater::FieldType;
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The column of times.
pub(crate) const TIME: &str = "time";
/// Column of the remainder of times in microseconds, in nanoseconds.
const REST: &str = "time_ns";
/// Digits of the decimals that represent unsigned integers.
pub(crate) const U64_DIGITS: u8 = 20;

/// Meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ColumnKind {
    /// The time of a row, in microseconds.
    Time,
    /// Nanoseconds of the time beyond its microseconds.
    Rest,
    /// A tag.
    Tag,
    /// A field.
    Field,
    /// A field before it got another type, or was removed. No new file has it.
    Former,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Column {
    /// Number of the column in Iceberg and Parquet.
    pub(crate) id: i32,
    /// Name of the column there.
    pub(crate) name: String,
    pub(crate) kind: ColumnKind,
    /// The name of the tag or field.
    pub(crate) source: String,
    /// The type of the field, as Headwater calls it.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    type_name: Option<String>,
}

impl Column {
    /// The type of a field.
    pub(crate) fn field_type(&self) -> Option<FieldType> {
        FieldType::from_name(self.type_name.as_deref()?)
    }

    /// The type as Iceberg calls it.
    fn iceberg_type(&self) -> &'static str {
        match (self.kind, self.field_type()) {
            (ColumnKind::Time, _) => "timestamptz",
            (ColumnKind::Rest, _) => "int",
            (ColumnKind::Tag, _) | (_, None | Some(FieldType::String)) => "string",
            (_, Some(FieldType::F64)) => "double",
            (_, Some(FieldType::I64)) => "long",
            (_, Some(FieldType::U64)) => "decimal(20, 0)",
            (_, Some(FieldType::Bool)) => "boolean",
            (_, Some(FieldType::Bytes)) => "binary",
        }
    }

    /// The type of its arrays.
    fn arrow_type(&self) -> DataType {
        match (self.kind, self.field_type()) {
            (ColumnKind::Time, _) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            (ColumnKind::Rest, _) => DataType::Int32,
            (ColumnKind::Tag, _) => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            (_, None | Some(FieldType::String)) => DataType::Utf8,
            (_, Some(FieldType::F64)) => DataType::Float64,
            (_, Some(FieldType::I64)) => DataType::Int64,
            (_, Some(FieldType::U64)) => DataType::Decimal128(U64_DIGITS, 0),
            (_, Some(FieldType::Bool)) => DataType::Boolean,
            (_, Some(FieldType::Bytes)) => DataType::Binary,
        }
    }

    /// Description for people.
    fn doc(&self) -> String {
        match self.kind {
            ColumnKind::Time => "time of the row, in microseconds".to_owned(),
            ColumnKind::Rest => "nanoseconds of the time beyond its microseconds".to_owned(),
            ColumnKind::Tag => format!("tag {}", self.source),
            ColumnKind::Field | ColumnKind::Former => {
                let type_name = self.type_name.as_deref();
                format!("field {} ({})", self.source, type_name.unwrap_or("string"))
            }
        }
    }
}

/// The columns of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Columns {
    pub(crate) all: Vec<Column>,
    /// The largest number ever assigned.
    pub(crate) last_id: i32,
}

/// Effect of a grown table on its columns.
#[derive(Debug)]
pub(crate) struct Growth {
    pub(crate) columns: Columns,
    /// Fields got other types: files that were written before have to be rewritten.
    pub(crate) is_other: bool,
}

impl Columns {
    /// The columns of a table without tags and fields.
    pub(crate) fn new() -> Columns {
        Columns {
            all: vec![Column {
                id: 1,
                name: TIME.to_owned(),
                kind: ColumnKind::Time,
                source: String::new(),
                type_name: None,
            }],
            last_id: 1,
        }
    }

    /// The columns, plus the missing ones of these tags and fields.
    pub(crate) fn grown(&self, tags: &[String], fields: &[(String, FieldType)]) -> Growth {
        let mut columns = self.clone();
        let is_there = |column: &Column| {
            let mut fields = fields.iter();
            fields.any(|(name, of)| *name == column.source && Some(*of) == column.field_type())
        };
        let gone = self.fields().filter(|column| !is_there(column));
        let gone: Vec<i32> = gone.map(|column| column.id).collect();
        for id in &gone {
            columns.retire(*id);
        }
        let is_other = !gone.is_empty();
        for tag in tags {
            columns.add(ColumnKind::Tag, tag, None);
        }
        for (name, field_type) in fields {
            columns.add(ColumnKind::Field, name, Some(*field_type));
        }
        Growth { columns, is_other }
    }

    /// These columns with a column for the remainder of times in microseconds.
    pub(crate) fn with_rest(&self) -> Columns {
        let mut columns = self.clone();
        columns.add(ColumnKind::Rest, "", None);
        columns
    }

    /// Renames a column of a field, so that another column can have the field's name.
    fn retire(&mut self, id: i32) {
        let Some(at) = self.all.iter().position(|column| column.id == id) else {
            return;
        };
        let mut column = self.all.remove(at);
        let type_name = column.type_name.as_deref().unwrap_or("string");
        let wanted = format!("{}_was_{type_name}", column.name);
        column.name = free_name(&wanted, |name| self.has_name(name));
        column.kind = ColumnKind::Former;
        self.all.insert(at, column);
    }

    fn has_name(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.all
            .iter()
            .any(|column| column.name.to_lowercase() == name)
    }

    fn add(&mut self, kind: ColumnKind, source: &str, field_type: Option<FieldType>) {
        let is_it = |column: &Column| column.kind == kind && column.source == source;
        if self.all.iter().any(is_it) {
            return;
        }
        let wanted = if kind == ColumnKind::Rest {
            REST
        } else {
            source
        };
        let name = free_name(wanted, |name| self.has_name(name));
        self.last_id += 1;
        self.all.push(Column {
            id: self.last_id,
            name,
            kind,
            source: source.to_owned(),
            type_name: field_type.map(|t| t.name().to_owned()),
        });
    }

    pub(crate) fn tags(&self) -> impl Iterator<Item = &Column> {
        self.all
            .iter()
            .filter(|column| column.kind == ColumnKind::Tag)
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &Column> {
        self.all
            .iter()
            .filter(|column| column.kind == ColumnKind::Field)
    }

    /// Columns of new files.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Column> + Clone {
        self.all
            .iter()
            .filter(|column| column.kind != ColumnKind::Former)
    }

    /// The schema as Iceberg writes it.
    pub(crate) fn iceberg(&self, schema_id: i32) -> Value {
        let fields: Vec<Value> = self
            .all
            .iter()
            .map(|column| {
                json!({
                    "id": column.id,
                    "name": column.name,
                    "required": column.kind == ColumnKind::Time,
                    "type": column.iceberg_type(),
                    "doc": column.doc(),
                })
            })
            .collect();
        json!({"type": "struct", "schema-id": schema_id, "fields": fields})
    }

    /// Sort order of a file's rows in Iceberg's format: the tags, then the time.
    pub(crate) fn sort_order(&self, order_id: i32) -> Value {
        let time = self
            .all
            .iter()
            .filter(|column| column.kind == ColumnKind::Time);
        let fields: Vec<Value> = self
            .tags()
            .chain(time)
            .map(|column| {
                json!({
                    "transform": "identity",
                    "source-id": column.id,
                    "direction": "asc",
                    "null-order": "nulls-first",
                })
            })
            .collect();
        json!({"order-id": order_id, "fields": fields})
    }

    /// The schema of batches, with the numbers of the columns.
    pub(crate) fn arrow(&self) -> SchemaRef {
        let fields: Vec<Field> = self
            .written()
            .map(|column| {
                let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), column.id.to_string());
                Field::new(
                    &column.name,
                    column.arrow_type(),
                    column.kind != ColumnKind::Time,
                )
                .with_metadata(HashMap::from([id]))
            })
            .collect();
        Arc::new(Schema::new(fields))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn names(columns: &Columns) -> Vec<(i32, &str)> {
        columns
            .all
            .iter()
            .map(|c| (c.id, c.name.as_str()))
            .collect()
    }

    #[test]
    fn columns_keep_their_numbers_while_a_table_grows() {
        let tags = ["host".to_owned()];
        let of = |fields: &[(&str, FieldType)]| -> Vec<(String, FieldType)> {
            fields.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect()
        };
        let first = Columns::new().grown(&tags, &of(&[("x", FieldType::I64)]));
        assert!(!first.is_other);
        assert_eq!(names(&first.columns), [(1, "time"), (2, "host"), (3, "x")]);
        let tags = ["host".to_owned(), "Time".to_owned()];
        let fields = of(&[("x", FieldType::I64), ("X", FieldType::Bool)]);
        let second = first.columns.grown(&tags, &fields);
        assert!(!second.is_other);
        let expected = [
            (1, "time"),
            (2, "host"),
            (3, "x"),
            (4, "Time_1"),
            (5, "X_1"),
        ];
        assert_eq!(names(&second.columns), expected);
        assert_eq!(names(&second.columns.with_rest())[5], (6, "time_ns"));
        // A field of another type is another column.
        let fields = of(&[("x", FieldType::F64), ("X", FieldType::Bool)]);
        let third = second.columns.grown(&tags, &fields);
        assert!(third.is_other);
        let expected = [
            (1, "time"),
            (2, "host"),
            (3, "x_was_i64"),
            (4, "Time_1"),
            (5, "X_1"),
            (6, "x"),
        ];
        assert_eq!(names(&third.columns), expected);
        let again = third.columns.grown(&tags, &fields);
        assert!(!again.is_other && again.columns == third.columns);
    }
}
