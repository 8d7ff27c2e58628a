//! `headwater table`: declares, changes and shows tables.

use super::import::DuplicatesArg;
use super::stat::{duplicates_name, table_list};
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{print, print_json};
use crate::store::DbArgs;
use clap::{Args, Subcommand, ValueEnum};
use headwater::{Database, Duplicates, FieldSpec, FieldType, TableChange, TableInfo, TableSpec};
use serde::Serialize;

/// Declare, change and show tables
#[derive(Debug, Args)]
pub(crate) struct Table {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Declare a table; the first write would make it too
    Create(Create),
    /// Add fields, widen an i64 field to f64, change settings
    Alter(Alter),
    /// List the tables, or the fields of one
    Show(Show),
}

#[derive(Debug, Args)]
struct Settings {
    /// A field and its type: f64, i64, u64, bool, string or bytes; may be repeated
    #[arg(long = "field", value_name = "NAME:TYPE", value_parser = parse_field)]
    fields: Vec<FieldSpec>,

    /// Same stream, same time: the last value of each field counts, or all are kept
    #[arg(long, value_enum)]
    duplicates: Option<DuplicatesArg>,

    /// Events of a full leaf
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(16..=65_536))]
    leaf_events: Option<u32>,
}

#[derive(Debug, Args)]
struct Create {
    #[command(flatten)]
    db: DbArgs,

    /// Name of the table
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Alter {
    #[command(flatten)]
    db: DbArgs,

    /// Name of the table
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    db: DbArgs,

    /// Name of one table
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = ShowFormat::Table)]
    format: ShowFormat,
}

/// How tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShowFormat {
    // For reading
    Table,
    // For programs
    Json,
}

/// `NAME:TYPE`; the name may contain colons.
fn parse_field(text: &str) -> Result<FieldSpec, String> {
    let (name, type_name) = text
        .rsplit_once(':')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("expected NAME:TYPE")?;
    let field_type = FieldType::from_name(type_name)
        .ok_or("expected the type f64, i64, u64, bool, string or bytes after the colon")?;
    Ok(FieldSpec {
        name: name.to_owned(),
        field_type,
    })
}

impl Table {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Create(action) => action.run(),
            Action::Alter(action) => action.run(),
            Action::Show(action) => action.run(),
        }
    }
}

impl Create {
    fn run(self) -> Result<(), Failure> {
        let db = Database::open(self.db.options())?;
        let mut spec = TableSpec::new(self.name);
        spec.fields = self.settings.fields;
        spec.leaf_events = self.settings.leaf_events;
        spec.duplicates = self
            .settings
            .duplicates
            .map_or(Duplicates::Last, Duplicates::from);
        db.create_table(&spec)?;
        db.close()?;
        Ok(())
    }
}

impl Alter {
    fn run(self) -> Result<(), Failure> {
        let db = self.db.open_existing()?;
        let change = TableChange {
            leaf_events: self.settings.leaf_events,
            duplicates: self.settings.duplicates.map(Duplicates::from),
            add_fields: self.settings.fields,
        };
        if change == TableChange::default() {
            return Err(Failure::usage(
                "nothing to change: give --field, --duplicates or --leaf-events",
            ));
        }
        db.alter_table(&self.name, &change)?;
        db.close()?;
        Ok(())
    }
}

#[derive(Serialize)]
struct ShownTable {
    name: String,
    duplicates: &'static str,
    leaf_events: u32,
    streams: u64,
    tags: Vec<String>,
    fields: Vec<ShownField>,
}

#[derive(Serialize)]
struct ShownField {
    name: String,
    #[serde(rename = "type")]
    type_name: &'static str,
}

impl ShownTable {
    fn of(info: &TableInfo) -> ShownTable {
        ShownTable {
            name: info.name.clone(),
            duplicates: duplicates_name(info.duplicates),
            leaf_events: info.leaf_events,
            streams: info.streams,
            tags: info.tags.clone(),
            fields: info
                .fields
                .iter()
                .map(|f| ShownField {
                    name: f.name.clone(),
                    type_name: f.field_type.name(),
                })
                .collect(),
        }
    }
}

impl Show {
    fn run(self) -> Result<(), Failure> {
        let db = self.db.open_existing()?;
        let mut tables = db.tables();
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(name) = &self.name {
            tables.retain(|t| t.name == *name);
            if tables.is_empty() {
                return Err(Failure::failed(format!("there is no table `{name}`")));
            }
        }
        if self.format == ShowFormat::Json {
            return print_json(&tables.iter().map(ShownTable::of).collect::<Vec<_>>());
        }
        let mut text = table_list(&tables);
        if self.name.is_some() {
            for table in &tables {
                let rows: Vec<Vec<String>> = table
                    .fields
                    .iter()
                    .map(|f| vec![f.name.clone(), f.field_type.name().to_owned()])
                    .collect();
                text.push('\n');
                text.push_str(&render(
                    &[Heading::text("field"), Heading::text("type")],
                    &rows,
                ));
            }
        }
        print(&text)
    }
}
