//! The simple protocol: a text of statements, run one after the other.

use super::commands::Command;
use super::connection::Connection;
use super::errors::{Failure, of_query};
use super::link::Stream;
use super::statement::{Portal, Prepared, State, Text, columns};
use crate::messages::split;
use crate::rewrite::rewrite;
use std::sync::Arc;
use std::time::Instant;

impl<S: Stream> Connection<S> {
    /// Runs the statements of a text; a failure skips the rest.
    pub(super) async fn simple(&mut self, text: &str) -> Result<(), Failure> {
        // The unnamed statement and portal end here.
        self.statements.remove("");
        self.portals.remove("");
        let pieces = split(text);
        if pieces.is_empty() {
            self.link.out.empty_query();
        }
        for piece in pieces {
            let begun = Instant::now();
            let limit = self.listing.variables.read().statement_timeout();
            self.link.begin(limit);
            let done = self.run_statement(text, piece.text, piece.at).await;
            self.observe(begun, &done);
            done?;
        }
        self.end_of_statement();
        self.link.out.ready(self.status);
        Ok(())
    }

    async fn run_statement(
        &mut self,
        whole: &str,
        statement: &str,
        at: usize,
    ) -> Result<(), Failure> {
        let command = Command::read(statement)?;
        self.check(command.as_ref().is_some_and(Command::ends_transaction))?;
        match command {
            Some(Command::Declare {
                name,
                hold,
                query_at,
            }) => {
                let query = &statement[query_at..];
                let query = self
                    .prepare(whole.to_owned(), at + query_at, query, Vec::new())
                    .await?;
                self.declare(name, hold, Arc::new(query), Vec::new())
            }
            Some(command) => self.command(&command, &[], true).await,
            None => {
                self.session.may_run(statement)?;
                let _place = self.acquire_slot().await?;
                let text = self.text(whole.to_owned(), at, statement).await?;
                let answer = self.answer(text.sql()).await?;
                let answer = answer.map_err(|why| text.failure(why))?;
                self.apply(&text)?;
                if answer.outcome.has_rows() {
                    let labels = text.rewritten.labels.as_deref();
                    self.link
                        .out
                        .row_description(&columns(&answer.schema, labels, &[]));
                }
                let mut portal = Portal {
                    statement: Arc::new(Prepared::Empty),
                    parameters: Vec::new(),
                    formats: Vec::new(),
                    state: State::Ready,
                    hold: false,
                };
                self.answered(&mut portal, answer);
                self.send(&mut portal, u64::MAX, Some(&text)).await?;
                Ok(())
            }
        }
    }

    /// A statement, rewritten for the planner.
    pub(super) async fn text(
        &mut self,
        whole: String,
        at: usize,
        statement: &str,
    ) -> Result<Text, Failure> {
        let process = self.link.registered.process;
        let seen = Arc::clone(&self.listing);
        let looked = rewrite(&self.session, statement, seen, process);
        let looked = self.link.wait(looked).await?;
        let rewritten = looked.map_err(|why| of_query(why, Some((whole.as_str(), at))))??;
        Ok(Text {
            rewritten,
            whole,
            at,
            statement: statement.to_owned(),
        })
    }
}
