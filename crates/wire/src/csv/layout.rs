//! Roles of the columns.
//!
//! Invariant: the indices of `time`, `tags` and `fields` are below `cell_count`, the number of
//! cells of the header.

use super::error::CsvError;
use super::options::CsvOptions;
use super::time::TimeFormat;
use headwater_types::FieldType;

/// The columns of a file, by their part.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) cell_count: usize,
    pub(super) time: Column,
    /// `None` until inferred.
    pub(super) time_format: Option<TimeFormat>,
    pub(super) tags: Vec<Column>,
    pub(super) fields: Vec<FieldColumn>,
}

/// A column of the file.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) cell: usize,
    pub(super) name: String,
}

/// A column to store.
#[derive(Debug)]
pub(super) struct FieldColumn {
    pub(super) cell: usize,
    pub(super) name: String,
    pub(super) declared: Option<FieldType>,
}

impl Layout {
    pub(super) fn new(headers: &[String], options: &CsvOptions) -> Result<Layout, CsvError> {
        check_names(headers)?;
        let header = Header(headers);
        let (time, format) = header.find("the time", &options.time)?;
        let time_format = format.map(TimeFormat::parse).transpose()?;
        let mut tags: Vec<Column> = Vec::new();
        for name in &options.tags {
            let (column, rest) = header.find("a tag", name)?;
            if rest.is_some() {
                return Err(header.missing("a tag", name));
            }
            if tags.iter().any(|t| t.cell == column.cell) {
                return Err(CsvError::RepeatedColumn {
                    role: "a tag",
                    name: column.name,
                });
            }
            tags.push(column);
        }
        let mut fields = match &options.fields {
            Some(texts) => header.chosen_fields(texts)?,
            None => header.other_fields(&time, &tags),
        };
        if fields.is_empty() {
            return Err(CsvError::NoFields {
                headers: header.list(),
            });
        }
        if fields.len() > options.fields_max {
            return Err(CsvError::TooManyFields {
                count: fields.len(),
                max: options.fields_max,
            });
        }
        for text in &options.types {
            let (column, rest) = header.find("a type", text)?;
            let declared = field_type(&column.name, rest.unwrap_or_default())?;
            for field in fields.iter_mut().filter(|f| f.cell == column.cell) {
                field.declared = Some(declared);
            }
        }
        Ok(Layout {
            cell_count: headers.len(),
            time,
            time_format,
            tags,
            fields,
        })
    }
}

struct Header<'a>(&'a [String]);

impl Header<'_> {
    /// The column with the longest name that `text` starts with, followed by the end of the text,
    /// or by a colon and more text.
    fn find<'t>(
        &self,
        role: &'static str,
        text: &'t str,
    ) -> Result<(Column, Option<&'t str>), CsvError> {
        self.0
            .iter()
            .enumerate()
            .filter_map(|(cell, name)| match text.strip_prefix(name.as_str())? {
                "" => Some((cell, name, None)),
                rest => Some((cell, name, Some(rest.strip_prefix(':')?))),
            })
            .max_by_key(|(_, name, _)| name.len())
            .map(|(cell, name, rest)| {
                let name = name.clone();
                (Column { cell, name }, rest)
            })
            .ok_or_else(|| self.missing(role, text))
    }

    fn missing(&self, role: &'static str, name: &str) -> CsvError {
        CsvError::NoSuchColumn {
            role,
            name: name.to_owned(),
            headers: self.list(),
        }
    }

    fn list(&self) -> String {
        list(self.0)
    }

    fn chosen_fields(&self, texts: &[String]) -> Result<Vec<FieldColumn>, CsvError> {
        let mut fields: Vec<FieldColumn> = Vec::new();
        for text in texts {
            let (column, rest) = self.find("a field", text)?;
            if fields.iter().any(|f| f.cell == column.cell) {
                return Err(CsvError::RepeatedColumn {
                    role: "a field",
                    name: column.name,
                });
            }
            let declared = rest
                .map(|rest| field_type(&column.name, rest))
                .transpose()?;
            fields.push(FieldColumn {
                cell: column.cell,
                name: column.name,
                declared,
            });
        }
        Ok(fields)
    }

    fn other_fields(&self, time: &Column, tags: &[Column]) -> Vec<FieldColumn> {
        self.0
            .iter()
            .enumerate()
            .filter(|(cell, _)| *cell != time.cell && tags.iter().all(|t| t.cell != *cell))
            .map(|(cell, name)| FieldColumn {
                cell,
                name: name.clone(),
                declared: None,
            })
            .collect()
    }
}

fn check_names(headers: &[String]) -> Result<(), CsvError> {
    for (index, name) in headers.iter().enumerate() {
        if name.is_empty() {
            return Err(CsvError::UnnamedColumn {
                number: index + 1,
                headers: list(headers),
            });
        }
        if headers.iter().take(index).any(|other| other == name) {
            return Err(CsvError::DuplicateColumn {
                name: name.clone(),
                headers: list(headers),
            });
        }
    }
    Ok(())
}

fn field_type(column: &str, text: &str) -> Result<FieldType, CsvError> {
    FieldType::from_name(text).ok_or_else(|| CsvError::FieldType {
        column: column.to_owned(),
        text: text.to_owned(),
    })
}

/// The names, separated by commas; very many are cut.
fn list(headers: &[String]) -> String {
    const NAMES_MAX: usize = 60;
    let mut text = headers
        .iter()
        .take(NAMES_MAX)
        .map(|h| if h.is_empty() { "\"\"" } else { h })
        .collect::<Vec<_>>()
        .join(", ");
    if headers.len() > NAMES_MAX {
        text.push_str(&format!(" and {} more", headers.len() - NAMES_MAX));
    }
    text
}
