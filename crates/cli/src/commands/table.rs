//! `headwater table`: declares, changes and shows tables.

use super::import::DuplicatesArg;
use super::shown_table::{ShownTable, lifetime, table_list};
use crate::arguments::{Lifetime, parse_lifetime};
use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{print, print_json};
use crate::server::Server;
use crate::store::{DbTarget, TargetArgs};
use clap::{Args, Subcommand, ValueEnum};
use headwater::{Database, Duplicates, FieldSpec, FieldType, TableChange, TableSpec};
use serde_json::{Value, json};

/// Declare, change and show tables
#[derive(Debug, Args)]
pub(crate) struct Table {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Declare a table; the first write would create it too
    Create(Create),
    /// Add fields, widen an i64 field to f64, change settings
    Alter(Alter),
    /// Drop a table with everything in it
    Drop(DropTable),
    /// List the tables, or the fields of one
    Show(Show),
}

#[derive(Debug, Args)]
struct Settings {
    /// A field and its type: f64, i64, u64, bool, string or bytes; may be repeated
    #[arg(long = "field", value_name = "NAME:TYPE", value_parser = parse_field)]
    fields: Vec<FieldSpec>,

    /// Rows of the same stream and time: the last value of each field wins, or all are stored
    #[arg(long, value_enum)]
    duplicates: Option<DuplicatesArg>,

    /// Events of a full leaf
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(16..=65_536))]
    leaf_events: Option<u32>,

    /// Rows older than this are removed: 30d, 1y, or forever
    #[arg(long, value_name = "AGE", value_parser = parse_lifetime)]
    retention: Option<Lifetime>,

    /// Rows older than this are removed, but not their aggregates, so that tiles stay: 30d, 1y, or
    /// forever
    #[arg(long, value_name = "AGE", value_parser = parse_lifetime)]
    raw_for: Option<Lifetime>,
}

#[derive(Debug, Args)]
struct DropTable {
    #[command(flatten)]
    target: TargetArgs,

    /// Name of the table
    #[arg(value_name = "NAME")]
    name: String,

    /// Confirm: drop the table with all its events
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct Create {
    #[command(flatten)]
    target: TargetArgs,

    /// Name of the table
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Alter {
    #[command(flatten)]
    target: TargetArgs,

    /// Name of the table
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    target: TargetArgs,

    /// Name of one table
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = ShowFormat::Table)]
    format: ShowFormat,
}

/// Format of tables.
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
            Action::Drop(action) => action.run(),
            Action::Show(action) => action.run(),
        }
    }
}

impl Settings {
    /// Request to a server.
    fn request(&self, op: &str, table: &str) -> Value {
        let fields = self.fields.iter();
        let fields: Vec<_> = fields
            .map(|field| (field.name.clone(), field.field_type.name()))
            .collect();
        let life = |life: Option<Lifetime>| {
            life.map(|life| life.0.map_or_else(|| "forever".to_owned(), lifetime))
        };
        json!({
            "op": op, "table": table, "fields": fields,
            "duplicates": self.duplicates.map(|d| Duplicates::from(d).name()),
            "leaf_events": self.leaf_events,
            "retention": life(self.retention), "raw_for": life(self.raw_for),
        })
    }
}

impl Create {
    fn run(self) -> Result<(), Failure> {
        let db = match self.target.open()? {
            DbTarget::Local(db) => db,
            DbTarget::Remote(server) => {
                let asked = self.settings.request("create_table", &self.name);
                return server.manage(&asked).map(drop);
            }
        };
        let db = Database::open(db.options())?;
        let mut spec = TableSpec::new(self.name);
        spec.fields = self.settings.fields;
        spec.leaf_events = self.settings.leaf_events;
        spec.duplicates = self
            .settings
            .duplicates
            .map_or(Duplicates::Last, Duplicates::from);
        spec.retention = self.settings.retention.and_then(|l| l.0);
        spec.raw_for = self.settings.raw_for.and_then(|l| l.0);
        db.create_table(&spec)?;
        db.close()?;
        Ok(())
    }
}

impl Alter {
    fn run(self) -> Result<(), Failure> {
        let target = self.target.open()?;
        let asked = self.settings.request("alter_table", &self.name);
        let change = TableChange {
            leaf_events: self.settings.leaf_events,
            duplicates: self.settings.duplicates.map(Duplicates::from),
            retention: self.settings.retention.map(|l| l.0),
            raw_for: self.settings.raw_for.map(|l| l.0),
            add_fields: self.settings.fields,
            ..TableChange::default()
        };
        if change == TableChange::default() {
            return Err(Failure::usage(
                "nothing to change: give --field, --duplicates, --leaf-events, --retention or --raw-for",
            ));
        }
        match target {
            DbTarget::Remote(server) => server.manage(&asked).map(drop),
            DbTarget::Local(db) => {
                let db = db.open_existing()?;
                db.alter_table(&self.name, &change)?;
                Ok(db.close()?)
            }
        }
    }
}

impl DropTable {
    fn run(self) -> Result<(), Failure> {
        let db = match self.target.open()? {
            DbTarget::Local(db) => db.open_existing()?,
            DbTarget::Remote(server) => {
                let shown = shown_by(&server, Some(&self.name))?;
                self.agreed(shown.first().map(|table| table.streams))?;
                let asked = json!({ "op": "drop_table", "table": self.name });
                return server.manage(&asked).map(drop);
            }
        };
        let tables = db.tables();
        let known = tables.iter().find(|t| t.name == self.name);
        self.agreed(known.map(|t| t.streams))?;
        db.drop_table(&self.name)?;
        db.close()?;
        Ok(())
    }

    /// True when a table with so many streams may be dropped.
    fn agreed(&self, streams: Option<u64>) -> Result<(), Failure> {
        match streams {
            Some(streams) if !self.yes => Err(Failure::failed(format!(
                "table `{}` has {streams} streams: to drop them with all their events, add --yes",
                self.name
            ))),
            _ => Ok(()),
        }
    }
}

/// The tables of a server, or one of them.
fn shown_by(server: &Server, name: Option<&str>) -> Result<Vec<ShownTable>, Failure> {
    let answer = server.manage(&json!({ "op": "show_tables", "table": name }))?;
    let tables = answer.body.get("tables").cloned().unwrap_or(Value::Null);
    serde_json::from_value(tables)
        .map_err(|error| Failure::failed(format!("the server's list of tables: {error}")))
}

impl Show {
    fn run(self) -> Result<(), Failure> {
        let mut tables = match self.target.open()? {
            DbTarget::Local(db) => {
                let db = db.open_existing()?;
                db.tables().iter().map(ShownTable::of).collect()
            }
            DbTarget::Remote(server) => shown_by(&server, self.name.as_deref())?,
        };
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(name) = &self.name {
            tables.retain(|t| t.name == *name);
            if tables.is_empty() {
                return Err(Failure::failed(format!("there is no table `{name}`")));
            }
        }
        if self.format == ShowFormat::Json {
            return print_json(&tables);
        }
        let mut text = table_list(&tables);
        if self.name.is_some() {
            for table in &tables {
                let lines = [
                    ("retention", &table.retention),
                    ("nothing before", &table.cut),
                    ("rows for", &table.raw_for),
                    ("only aggregates before", &table.aged_to),
                ];
                for (name, value) in lines {
                    if let Some(value) = value {
                        text.push_str(&format!("\n{name}: {value}"));
                    }
                }
                let rows: Vec<Vec<String>> = table
                    .fields
                    .iter()
                    .map(|f| vec![f.name.clone(), f.type_name.clone()])
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
