//! Commands that a session answers itself, without the query engine: each kind is passed to its
//! part, and settings, `SHOW` and `DEALLOCATE` are handled here.

use super::commands::Command;
use super::connection::Connection;
use super::errors::{Failure, error, information};
use super::link::Stream;
use super::statement::columns;
use crate::messages::{Format, TransactionStatus};
use crate::values::{TimeFormat, rows};
use headwater_query::arrow::array::{ArrayRef, RecordBatch, StringArray};
use headwater_query::arrow::datatypes::{DataType, Field, Schema};
use std::sync::Arc;

impl<S: Stream> Connection<S> {
    /// Does a command. `simple` = its columns are to be described too.
    pub(super) async fn command(
        &mut self,
        command: &Command,
        formats: &[Format],
        simple: bool,
    ) -> Result<(), Failure> {
        let tag = match command {
            Command::Begin => self.begin(),
            Command::Commit => self.commit(),
            Command::Rollback => self.rollback(),
            Command::RollbackTo | Command::Savepoint | Command::Release => {
                self.savepoint(command)?
            }
            Command::NoEffect(tag) => *tag,
            Command::CreateDatabase(name) => self.create_database(name),
            Command::Set(name, value) => self.set(name, value.as_deref())?,
            Command::Reset(name) => self.reset(name.as_deref())?,
            Command::DiscardAll => self.discard_all()?,
            Command::Deallocate(name) => self.deallocate(name.as_deref())?,
            Command::Close(name) => self.close_cursor(name.as_deref())?,
            Command::Show(_) => self.show(command, formats, simple)?,
            Command::Fetch { name, rows, silent } => {
                return self.fetch(name, *rows, *silent, formats, simple).await;
            }
            Command::Copy(copy) => return self.copy(copy).await,
            Command::Declare { .. } => {
                return Err(error("XX000", "a cursor without its query").into());
            }
        };
        self.link.out.command_complete(tag);
        Ok(())
    }

    /// Reports that no database was created, since every name is served.
    fn create_database(&mut self, name: &str) -> &'static str {
        let notice = information(format!(
            "nothing was created: every database name, \"{name}\" included, refers to the only database of this server"
        ));
        self.link.out.notice(&notice);
        "CREATE DATABASE"
    }

    /// Sets a setting of the session, without a value to its default.
    fn set(&mut self, name: &str, value: Option<&str>) -> Result<&'static str, Failure> {
        let mut variables = self.listing.variables.write();
        let told = match value {
            Some(value) => variables.set(name, value)?,
            None => variables.reset(name)?,
        };
        drop(variables);
        self.report_parameter(told);
        Ok("SET")
    }

    /// Resets a setting to its default; without a name, all settings.
    fn reset(&mut self, name: Option<&str>) -> Result<&'static str, Failure> {
        match name {
            Some(name) => {
                let told = self.listing.variables.write().reset(name)?;
                self.report_parameter(told);
            }
            None => self.reset_all(),
        }
        Ok("RESET")
    }

    /// Brings the session back to its beginning.
    fn discard_all(&mut self) -> Result<&'static str, Failure> {
        if self.status != TransactionStatus::Idle {
            return Err(error("25001", "DISCARD ALL cannot run inside a transaction block").into());
        }
        self.statements.clear();
        self.portals.clear();
        self.reset_all();
        Ok("DISCARD ALL")
    }

    /// Drops a prepared statement; without a name, all of them.
    fn deallocate(&mut self, name: Option<&str>) -> Result<&'static str, Failure> {
        let Some(name) = name else {
            self.statements.clear();
            return Ok("DEALLOCATE ALL");
        };
        if self.statements.remove(name).is_none() {
            return Err(error(
                "26000",
                format!("prepared statement \"{name}\" does not exist"),
            )
            .into());
        }
        Ok("DEALLOCATE")
    }

    /// Sends the rows of `SHOW`.
    fn show(
        &mut self,
        command: &Command,
        formats: &[Format],
        simple: bool,
    ) -> Result<&'static str, Failure> {
        if let Some(batch) = self.shown(command)? {
            let columns = columns(&batch.schema(), None, formats);
            let formats: Vec<Format> = columns.iter().map(|column| column.format).collect();
            if simple {
                self.link.out.row_description(&columns);
            }
            let time_format = self.time_format();
            rows(
                &mut self.link.out,
                &batch,
                0,
                batch.num_rows(),
                &formats,
                &time_format,
            )
            .map_err(|why| error("0A000", why))?;
        }
        Ok("SHOW")
    }

    fn report_parameter(&mut self, reported: Option<(&'static str, String)>) {
        if let Some((name, value)) = reported {
            self.link.out.parameter_status(name, &value);
        }
    }

    /// As [`Self::time_format`], with all digits: copied rows can be copied back in without loss.
    pub(super) fn copy_time_format(&self) -> TimeFormat {
        TimeFormat {
            nanoseconds: true,
            ..self.time_format()
        }
    }

    /// Text form of instants in this session.
    pub(super) fn time_format(&self) -> TimeFormat {
        let variables = self.listing.variables.read();
        TimeFormat {
            zone: variables.zone().clone(),
            nanoseconds: variables.nanoseconds(),
        }
    }

    fn reset_all(&mut self) {
        self.listing.variables.write().reset_all();
        let variables = self.listing.variables.read().clone();
        for (name, value) in variables.reported() {
            self.link.out.parameter_status(name, value);
        }
    }

    /// The rows of `SHOW`; `None` for other commands.
    pub(super) fn shown(&self, command: &Command) -> Result<Option<RecordBatch>, Failure> {
        let Command::Show(name) = command else {
            return Ok(None);
        };
        let variables = self.listing.variables.read();
        let (names, values): (Vec<&str>, Vec<Vec<&str>>) = match name {
            Some(name) => (vec![name.as_str()], vec![vec![variables.get(name)?]]),
            None => {
                let mut columns = vec![Vec::new(), Vec::new(), Vec::new()];
                for (name, value, about) in variables.all() {
                    columns[0].push(name);
                    columns[1].push(value);
                    columns[2].push(about);
                }
                (vec!["name", "setting", "description"], columns)
            }
        };
        let fields: Vec<Field> = names
            .iter()
            .map(|name| Field::new(*name, DataType::Utf8, false))
            .collect();
        let arrays = values
            .into_iter()
            .map(|values| Arc::new(StringArray::from(values)) as ArrayRef)
            .collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(Some(batch.map_err(|why| error("XX000", why.to_string()))?))
    }
}
