//! Commands that the session answers itself: settings, transactions without effect, cursors.

use super::answer::Sent;
use super::commands::Command;
use super::connection::Connection;
use super::errors::{Failure, error, information, warning};
use super::extended_query::no_portal;
use super::link::Stream;
use super::statement::{Portal, Prepared, State, columns};
use crate::messages::{Format, TransactionStatus};
use crate::values::{Clocks, rows};
use headwater_query::Parameters;
use headwater_query::arrow::array::{ArrayRef, RecordBatch, StringArray};
use headwater_query::arrow::datatypes::{DataType, Field, Schema};
use headwater_query::datafusion::common::ScalarValue;
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
            Command::Nothing(tag) => *tag,
            Command::CreateDatabase(name) => self.create_database(name),
            Command::Set(name, value) if name.starts_with("headwater.") => {
                self.set_own(name, value.as_deref()).await?
            }
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
            "nothing was made: \"{name}\" is served already, since every name of a database is the one that this server has"
        ));
        self.link.out.notice(&notice);
        "CREATE DATABASE"
    }

    /// Sets a setting of Headwater's own, which the query session has.
    async fn set_own(&mut self, name: &str, value: Option<&str>) -> Result<&'static str, Failure> {
        let value = value.map_or("DEFAULT".to_owned(), |value| {
            format!("'{}'", value.replace('\'', "''"))
        });
        let sql = format!("SET {name} = {value}");
        let set = self.session.run(&sql, Parameters::none());
        self.link.wait(set).await??;
        Ok("SET")
    }

    /// Sets a setting of the session, without a value to its default.
    fn set(&mut self, name: &str, value: Option<&str>) -> Result<&'static str, Failure> {
        let mut variables = self.seen.variables.write();
        let told = match value {
            Some(value) => variables.set(name, value)?,
            None => variables.reset(name)?,
        };
        drop(variables);
        self.tell(told);
        Ok("SET")
    }

    /// Resets a setting to its default; without a name, all settings.
    fn reset(&mut self, name: Option<&str>) -> Result<&'static str, Failure> {
        match name {
            Some(name) => {
                let told = self.seen.variables.write().reset(name)?;
                self.tell(told);
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

    /// Closes a cursor; without a name, all cursors.
    fn close_cursor(&mut self, name: Option<&str>) -> Result<&'static str, Failure> {
        let Some(name) = name else {
            self.portals.clear();
            return Ok("CLOSE CURSOR ALL");
        };
        self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        Ok("CLOSE CURSOR")
    }

    /// Sends the rows of `SHOW`.
    fn show(
        &mut self,
        command: &Command,
        formats: &[Format],
        simple: bool,
    ) -> Result<&'static str, Failure> {
        if let Some(batch) = self.shown(command)? {
            let told = columns(&batch.schema(), None, formats);
            let formats: Vec<Format> = told.iter().map(|column| column.format).collect();
            if simple {
                self.link.out.row_description(&told);
            }
            let clocks = self.clocks();
            rows(
                &mut self.link.out,
                &batch,
                0,
                batch.num_rows(),
                &formats,
                &clocks,
            )
            .map_err(|why| error("0A000", why))?;
        }
        Ok("SHOW")
    }

    fn tell(&mut self, told: Option<(&'static str, String)>) {
        if let Some((name, value)) = told {
            self.link.out.parameter_status(name, &value);
        }
    }

    /// As [`Self::clocks`], with all digits: copied rows can be copied back in without loss.
    pub(super) fn exact_clocks(&self) -> Clocks {
        Clocks {
            nanoseconds: true,
            ..self.clocks()
        }
    }

    /// The form of the session's times.
    pub(super) fn clocks(&self) -> Clocks {
        let variables = self.seen.variables.read();
        Clocks {
            zone: variables.zone().clone(),
            nanoseconds: variables.nanoseconds(),
        }
    }

    fn reset_all(&mut self) {
        self.seen.variables.write().reset_all();
        let variables = self.seen.variables.read().clone();
        for (name, value) in variables.told() {
            self.link.out.parameter_status(name, value);
        }
    }

    fn begin(&mut self) -> &'static str {
        if self.status == TransactionStatus::Idle {
            self.status = TransactionStatus::Open;
            self.changed = false;
            if !self.warned {
                self.warned = true;
                let mut notice = information(
                    "transactions are none here: each statement is stored when it is done",
                );
                notice.detail = Some("BEGIN, COMMIT and ROLLBACK are taken for the sake of drivers; this is said once.".to_owned());
                self.link.out.notice(&notice);
            }
        } else {
            let notice = warning("25001", "there is already a transaction in progress");
            self.link.out.notice(&notice);
        }
        "BEGIN"
    }

    fn commit(&mut self) -> &'static str {
        let failed = self.status == TransactionStatus::Failed;
        self.end_of_transaction();
        if failed { "ROLLBACK" } else { "COMMIT" }
    }

    fn rollback(&mut self) -> &'static str {
        if self.changed && self.status != TransactionStatus::Idle {
            let notice = warning(
                "01000",
                "what was stored since BEGIN stays: there are no transactions to roll back",
            );
            self.link.out.notice(&notice);
        }
        self.end_of_transaction();
        "ROLLBACK"
    }

    fn end_of_transaction(&mut self) {
        if self.status == TransactionStatus::Idle {
            let notice = warning("25P01", "there is no transaction in progress");
            self.link.out.notice(&notice);
        }
        self.status = TransactionStatus::Idle;
        self.changed = false;
        self.portals.retain(|_, portal| portal.hold);
    }

    fn savepoint(&mut self, command: &Command) -> Result<&'static str, Failure> {
        if self.status == TransactionStatus::Idle {
            return Err(error("25P01", "savepoints can only be used in transaction blocks").into());
        }
        Ok(match command {
            Command::Savepoint => "SAVEPOINT",
            Command::Release => "RELEASE",
            _ => {
                if self.changed {
                    let notice = warning(
                        "01000",
                        "what was stored since the savepoint stays: there are no transactions to roll back",
                    );
                    self.link.out.notice(&notice);
                }
                self.status = TransactionStatus::Open;
                "ROLLBACK"
            }
        })
    }

    /// The rows of `SHOW`; `None` for other commands.
    pub(super) fn shown(&self, command: &Command) -> Result<Option<RecordBatch>, Failure> {
        let Command::Show(name) = command else {
            return Ok(None);
        };
        let variables = self.seen.variables.read();
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

    /// Declares a cursor, which is stored as a portal.
    pub(super) fn declare(
        &mut self,
        name: String,
        hold: bool,
        query: Arc<Prepared>,
        parameters: Vec<ScalarValue>,
    ) -> Result<(), Failure> {
        if self.status == TransactionStatus::Idle && !hold {
            return Err(error(
                "25P01",
                "DECLARE CURSOR can only be used in transaction blocks, or WITH HOLD",
            )
            .into());
        }
        if self.portals.contains_key(&name) {
            return Err(error("42P03", format!("cursor \"{name}\" already exists")).into());
        }
        let rows = matches!(query.as_ref(), Prepared::Query { prepared, .. } if prepared.done().has_rows());
        if !rows {
            return Err(error("42601", "a cursor needs a query that gives rows").into());
        }
        let portal = Portal {
            statement: query,
            parameters,
            formats: Vec::new(),
            state: State::Ready,
            hold,
        };
        self.keep_portal(name, portal)?;
        self.link.out.command_complete("DECLARE CURSOR");
        Ok(())
    }

    async fn fetch(
        &mut self,
        name: &str,
        rows: u64,
        silent: bool,
        formats: &[Format],
        simple: bool,
    ) -> Result<(), Failure> {
        let mut cursor = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let statement = Arc::clone(&cursor.statement);
        let Prepared::Query { text, prepared, .. } = statement.as_ref() else {
            return Err(no_portal(name));
        };
        if simple && !silent {
            let told = columns(
                &prepared.schema(),
                text.rewritten.labels.as_deref(),
                formats,
            );
            self.link.out.row_description(&told);
        }
        cursor.formats = formats.to_vec();
        let _place = self.place().await?;
        self.start(&mut cursor).await?;
        let sent = self
            .send_rows(&mut cursor, rows, Some(text), silent)
            .await?;
        let count = match (sent, &cursor.state) {
            (Sent::Part(count), _) => count,
            (Sent::All(_), State::Rows(state)) => state.sent,
            (Sent::All(_), _) => 0,
        };
        if count < rows {
            // No rows remain; the stream is not polled again.
            cursor.state = State::Finished;
        }
        self.suspend(&mut cursor)?;
        let verb = if silent { "MOVE" } else { "FETCH" };
        self.link.out.command_complete(&format!("{verb} {count}"));
        self.portals.insert(name.to_owned(), cursor);
        Ok(())
    }
}
