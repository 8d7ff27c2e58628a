//! `ALTER TABLE`: adds columns, widens a type, changes settings.

use super::blocking;
use super::create::{check_options, forbidden};
use super::types::{Declared, TableSettings, column_name, declared};
use super::views;
use crate::answer::{Answer, Outcome};
use crate::error::{Error, Result};
use crate::names::{table_name, unknown_table};
use crate::session::Session;
use crate::view::{Role, TableView};
use datafusion::sql::sqlparser::ast;
use headwater::{FieldSpec, FieldType, TableChange};

fn add_column(
    table: &TableView,
    change: &mut TableChange,
    column: &ast::ColumnDef,
    if_not_exists: bool,
) -> Result<()> {
    let name = column_name(&column.name);
    if table.schema.index_of(&name).is_ok() {
        if if_not_exists {
            return Ok(());
        }
        return Err(Error::invalid(format!(
            "table `{}` has a column `{name}` already",
            table.name
        )));
    }
    let what = declared(&column.data_type)?;
    check_options(column, what)?;
    match what {
        Declared::Time => Err(Error::invalid("a table has only one column of timestamps")),
        Declared::Tag => {
            change.add_tags.push(name);
            Ok(())
        }
        Declared::Field(field_type) => {
            change.add_fields.push(FieldSpec { name, field_type });
            Ok(())
        }
    }
}

fn widen(
    table: &TableView,
    change: &mut TableChange,
    column: &ast::Ident,
    data_type: &ast::DataType,
) -> Result<()> {
    let name = column_name(column);
    let field = match table.role(&name) {
        None => {
            return Err(Error::unknown_column(format!(
                "there is no column `{name}`"
            )));
        }
        Some(Role::Field(at)) => table.fields.get(at),
        Some(_) => None,
    };
    match (field, declared(data_type)?) {
        (Some((stored, FieldType::I64 | FieldType::F64)), Declared::Field(FieldType::F64)) => {
            change.add_fields.push(FieldSpec {
                name: stored.clone(),
                field_type: FieldType::F64,
            });
            Ok(())
        }
        _ => Err(Error::unsupported(format!(
            "column `{name}` cannot become {data_type}: only BIGINT can become DOUBLE"
        ))),
    }
}

fn change(
    table: &TableView,
    operations: &[ast::AlterTableOperation],
) -> Result<(TableChange, TableSettings)> {
    let mut change = TableChange::default();
    let mut settings = TableSettings::default();
    for operation in operations {
        match operation {
            ast::AlterTableOperation::AddColumn {
                if_not_exists,
                column_def,
                ..
            } => add_column(table, &mut change, column_def, *if_not_exists)?,
            ast::AlterTableOperation::AlterColumn {
                column_name: column,
                op: ast::AlterColumnOperation::SetDataType { data_type, .. },
            } => widen(table, &mut change, column, data_type)?,
            ast::AlterTableOperation::SetOptionsParens { options }
            | ast::AlterTableOperation::SetTblProperties {
                table_properties: options,
            } => settings.join(TableSettings::of(options)?),
            other => {
                return Err(Error::unsupported_statement(format!(
                    "ALTER TABLE … {other} is not supported"
                ))
                .with_hint(
                    "ADD COLUMN name type, ALTER COLUMN name TYPE DOUBLE, SET (setting = value)",
                ));
            }
        }
    }
    change.retention = settings.retention;
    change.raw_for = settings.raw_for;
    change.duplicates = settings.duplicates;
    change.leaf_events = settings.leaf_events;
    Ok((change, settings))
}

pub(super) async fn run(session: &Session, alter: ast::AlterTable) -> Result<Answer> {
    let name = table_name(&alter.name)?;
    let db = session.query.database()?.clone();
    let running = session.begin()?;
    let Some(table) = running.view.table(&name)? else {
        let new = match alter.operations.as_slice() {
            [
                ast::AlterTableOperation::RenameTable {
                    table_name: ast::RenameTableNameKind::To(new),
                },
            ] => Some(new),
            _ => None,
        };
        if let Some(new) = new
            && views::rename(session, &name, &table_name(new)?).await?
        {
            return Ok(Answer::without_rows(Outcome::Altered));
        }
        if alter.if_exists {
            return Ok(Answer::without_rows(Outcome::Altered));
        }
        return Err(unknown_table(&name));
    };
    if !session.access.all() && !session.access.manages(&name) {
        return Err(forbidden("change", &name));
    }
    let (change, settings) = change(&table, &alter.operations)?;
    blocking(move || {
        db.alter_table(&name, &change)?;
        if let Some(policy) = settings.index_policy(db.index_policy(&name)?) {
            db.set_index_policy(&name, &policy)?;
        }
        Ok(())
    })
    .await?;
    Ok(Answer::without_rows(Outcome::Altered))
}
