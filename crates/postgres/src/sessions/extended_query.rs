//! The extended protocol: statements are prepared, bound to parameters, and run in parts.

use super::commands::Command;
use super::connection::{Connection, STATEMENTS_MAX};
use super::errors::{Failure, error};
use super::link::Stream;
use super::statement::{Portal, Prepared, State, Text, columns};
use crate::catalog::PgType;
use crate::messages::{Format, split};
use crate::values::parameter;
use headwater_query::arrow::datatypes::DataType;
use std::sync::Arc;
use std::time::Instant;

impl<S: Stream> Connection<S> {
    pub(super) async fn parse(
        &mut self,
        name: String,
        sql: String,
        types: Vec<u32>,
    ) -> Result<(), Failure> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            return Err(error(
                "42P05",
                format!("prepared statement \"{name}\" already exists"),
            )
            .into());
        }
        if self.statements.len() >= STATEMENTS_MAX {
            return Err(error(
                "54000",
                format!(
                    "there are {STATEMENTS_MAX} prepared statements, which is the maximum: close some"
                ),
            )
            .into());
        }
        self.link
            .begin(self.listing.variables.read().statement_timeout());
        let pieces = split(&sql);
        let prepared = match pieces.as_slice() {
            [] => Prepared::Empty,
            [piece] => {
                let (statement, at) = (piece.text.to_owned(), piece.at);
                self.prepare_one(sql, &statement, at, types).await?
            }
            _ => {
                return Err(error(
                    "42601",
                    "cannot insert multiple commands into a prepared statement",
                )
                .into());
            }
        };
        // The previous statement may have the same name, if it is the unnamed one.
        self.statements.remove(&name);
        self.share(prepared.bytes())?;
        self.statements.insert(name, Arc::new(prepared));
        self.link.out.parse_complete();
        Ok(())
    }

    /// Counts the memory that this session retains, plus `more` bytes.
    fn share(&mut self, more: usize) -> Result<(), Failure> {
        let statements = self.statements.values().map(|statement| statement.bytes());
        let portals = self.portals.values().map(Portal::bytes);
        let bytes: usize = statements.chain(portals).sum();
        let shared = self.share.set(bytes + more);
        shared.map_err(|why| error("53200", why).into())
    }

    /// Stores a portal, if memory for its parameters is available.
    pub(super) fn keep_portal(&mut self, name: String, portal: Portal) -> Result<(), Failure> {
        if self.portals.len() >= STATEMENTS_MAX {
            return Err(error(
                "54000",
                format!("there are {STATEMENTS_MAX} portals, which is the maximum: close some"),
            )
            .into());
        }
        // A long parameter of the running statement is not retained, so it does not count.
        if !name.is_empty() {
            self.share(portal.bytes())?;
        }
        self.portals.insert(name, portal);
        Ok(())
    }

    async fn prepare_one(
        &mut self,
        whole: String,
        statement: &str,
        at: usize,
        types: Vec<u32>,
    ) -> Result<Prepared, Failure> {
        let command = Command::read(statement)?;
        self.check(command.as_ref().is_some_and(Command::ends_transaction))?;
        match command {
            Some(Command::Declare {
                name,
                hold,
                query_at,
            }) => {
                let query = &statement[query_at..];
                let query = self.prepare(whole, at + query_at, query, types).await?;
                let query = Arc::new(query);
                Ok(Prepared::Declare { name, hold, query })
            }
            Some(command) => Ok(Prepared::Command(command)),
            None => self.prepare(whole, at, statement, types).await,
        }
    }

    /// Lets the planner prepare a statement, with the OIDs of the types of its parameters; 0 =
    /// unspecified.
    pub(super) async fn prepare(
        &mut self,
        whole: String,
        at: usize,
        statement: &str,
        declared: Vec<u32>,
    ) -> Result<Prepared, Failure> {
        self.session.may_run(statement)?;
        let (text, prepared) = {
            let _place = self.acquire_slot().await?;
            let text = self.text(whole, at, statement).await?;
            let wanted = parameter_types(&text, &declared);
            let work = self.session.prepare(text.sql(), &wanted);
            let prepared = self.link.wait(work).await?;
            let prepared = prepared.map_err(|why| text.failure(why))?;
            (text, prepared)
        };
        let types = prepared
            .parameters()
            .iter()
            .enumerate()
            .map(|(index, found)| {
                let told = text.rewritten.parameters.iter();
                let told = told.rev().find(|(number, _)| *number == index + 1);
                match (declared.get(index), told) {
                    (None | Some(0), Some((_, told))) => *told,
                    (None | Some(0), None) => PgType::oid_of(found),
                    (Some(declared), _) => *declared,
                }
            })
            .collect();
        Ok(Prepared::Query {
            text,
            prepared: Box::new(prepared),
            types,
        })
    }

    pub(super) fn bind(
        &mut self,
        name: String,
        statement: &str,
        formats: &[i16],
        values: &[Option<Vec<u8>>],
        results: &[i16],
    ) -> Result<(), Failure> {
        let statement = Arc::clone(self.statement(statement)?);
        if !name.is_empty() && self.portals.contains_key(&name) {
            return Err(error("42P03", format!("portal \"{name}\" already exists")).into());
        }
        let types = statement.types();
        if values.len() != types.len() {
            let text = format!(
                "bind message supplies {} parameters, but the statement requires {}",
                values.len(),
                types.len()
            );
            return Err(error("08P01", text).into());
        }
        if formats.len() > 1 && formats.len() != values.len() {
            return Err(error(
                "08P01",
                format!("{} formats for {} parameters", formats.len(), values.len()),
            )
            .into());
        }
        let format = |code: i16| {
            Format::of(code)
                .ok_or_else(|| Failure::from(error("22023", format!("there is no format {code}"))))
        };
        let wanted: &[DataType] = match planned(&statement) {
            Some(prepared) => prepared.parameters(),
            None => &[],
        };
        let parameters = values
            .iter()
            .zip(types)
            .zip(wanted)
            .enumerate()
            .map(|(index, ((value, oid), wanted))| {
                let code = formats.get(index).or(formats.first()).copied().unwrap_or(0);
                parameter(value.as_deref(), *oid, wanted, format(code)?).map_err(
                    |(sqlstate, why)| {
                        error(sqlstate, format!("parameter ${}: {why}", index + 1)).into()
                    },
                )
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        let formats = results
            .iter()
            .map(|code| format(*code))
            .collect::<Result<Vec<_>, Failure>>()?;
        if let Some(prepared) = planned(&statement) {
            let count = prepared.schema().fields().len();
            if formats.len() > 1 && formats.len() != count {
                return Err(error(
                    "08P01",
                    format!("{} formats for {count} columns", formats.len()),
                )
                .into());
            }
        }
        let portal = Portal {
            statement,
            parameters,
            formats,
            state: State::Ready,
            hold: false,
        };
        self.portals.remove(&name);
        self.keep_portal(name, portal)?;
        self.link.out.bind_complete();
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<&Arc<Prepared>, Failure> {
        self.statements.get(name).ok_or_else(|| {
            error(
                "26000",
                format!("prepared statement \"{name}\" does not exist"),
            )
            .into()
        })
    }

    pub(super) fn describe_statement(&mut self, name: &str) -> Result<(), Failure> {
        let statement = Arc::clone(self.statement(name)?);
        self.link.out.parameter_description(statement.types());
        self.describe(&statement, &[])
    }

    pub(super) fn describe_portal(&mut self, name: &str) -> Result<(), Failure> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        let (statement, formats) = (Arc::clone(&portal.statement), portal.formats.clone());
        self.describe(&statement, &formats)
    }

    fn describe(&mut self, statement: &Prepared, formats: &[Format]) -> Result<(), Failure> {
        let told = match statement {
            Prepared::Query { text, prepared, .. } if prepared.outcome().has_rows() => {
                Some(columns(
                    &prepared.schema(),
                    text.rewritten.labels.as_deref(),
                    formats,
                ))
            }
            Prepared::Command(Command::Fetch {
                name,
                silent: false,
                ..
            }) => {
                let cursor = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                match cursor.statement.as_ref() {
                    Prepared::Query { text, prepared, .. } => Some(columns(
                        &prepared.schema(),
                        text.rewritten.labels.as_deref(),
                        formats,
                    )),
                    _ => None,
                }
            }
            Prepared::Command(command) => self
                .shown(command)?
                .map(|batch| columns(&batch.schema(), None, formats)),
            _ => None,
        };
        match told {
            Some(columns) => self.link.out.row_description(&columns),
            None => self.link.out.no_data(),
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, name: &str, rows: u32) -> Result<(), Failure> {
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let begun = Instant::now();
        self.link
            .begin(self.listing.variables.read().statement_timeout());
        let most = if rows == 0 { u64::MAX } else { rows.into() };
        let done = self.go_on(&mut portal, most).await;
        self.observe(begun, &done);
        if done.is_ok() {
            self.suspend(&mut portal)?;
            self.portals.insert(name.to_owned(), portal);
        }
        done
    }

    async fn go_on(&mut self, portal: &mut Portal, most: u64) -> Result<(), Failure> {
        let statement = Arc::clone(&portal.statement);
        match statement.as_ref() {
            Prepared::Empty => {
                self.link.out.empty_query();
                Ok(())
            }
            Prepared::Command(command) => {
                self.check(command.ends_transaction())?;
                self.command(command, &portal.formats, false).await
            }
            Prepared::Declare { name, hold, query } => {
                self.check(false)?;
                let parameters = portal.parameters.clone();
                self.declare(name.clone(), *hold, Arc::clone(query), parameters)
            }
            Prepared::Query { text, .. } => {
                self.check(false)?;
                let _place = self.acquire_slot().await?;
                self.start(portal).await?;
                self.send(portal, most, Some(text)).await?;
                Ok(())
            }
        }
    }
}

/// Types of a statement's parameters, as far as its client states them. Casts and declarations
/// count, also in parts that are not passed to the planner.
fn parameter_types(text: &Text, declared: &[u32]) -> Vec<Option<DataType>> {
    let mut wanted: Vec<Option<DataType>> =
        declared.iter().map(|oid| PgType::parameter(*oid)).collect();
    let written = headwater_query::parameters_in(&text.statement);
    let count = written.last().copied().unwrap_or(0);
    wanted.resize(count.max(wanted.len()), None);
    if let Some(made) = &text.rewritten.sql {
        let kept = headwater_query::parameters_in(made);
        let dropped = text.rewritten.casts.iter();
        for (number, oid) in dropped.filter(|(number, _)| !kept.contains(number)) {
            if let Some(slot @ None) = wanted.get_mut(number.wrapping_sub(1)) {
                *slot = PgType::parameter(*oid);
            }
        }
    }
    wanted
}

/// The statement that the planner prepared, also for a cursor.
pub(super) fn planned(statement: &Prepared) -> Option<&headwater_query::Prepared> {
    match statement {
        Prepared::Query { prepared, .. } => Some(prepared.as_ref()),
        Prepared::Declare { query, .. } => planned(query),
        _ => None,
    }
}

pub(super) fn no_portal(name: &str) -> Failure {
    error("34000", format!("cursor \"{name}\" does not exist")).into()
}
