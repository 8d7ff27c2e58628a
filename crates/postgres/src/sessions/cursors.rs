//! Cursors: a portal that is read by `FETCH` and `MOVE`, some rows at a time.
//!
//! Invariant: without `WITH HOLD`, a cursor ends with its transaction.

use super::answer::Sent;
use super::connection::Connection;
use super::errors::{Failure, error};
use super::extended_query::no_portal;
use super::link::Stream;
use super::statement::{Portal, Prepared, State, columns};
use crate::messages::{Format, TransactionStatus};
use headwater_query::datafusion::common::ScalarValue;
use std::sync::Arc;

impl<S: Stream> Connection<S> {
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
        let rows = matches!(query.as_ref(), Prepared::Query { prepared, .. } if prepared.outcome().has_rows());
        if !rows {
            return Err(error("42601", "a cursor needs a query that returns rows").into());
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

    pub(super) async fn fetch(
        &mut self,
        name: &str,
        rows: u64,
        silent: bool,
        formats: &[Format],
        simple: bool,
    ) -> Result<(), Failure> {
        if !self.portals.contains_key(name) {
            return Err(no_portal(name));
        }
        // A cursor stays where there is no slot for now.
        let _place = self.acquire_slot().await?;
        let mut cursor = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let statement = Arc::clone(&cursor.statement);
        let Prepared::Query { text, prepared, .. } = statement.as_ref() else {
            return Err(no_portal(name));
        };
        if simple && !silent {
            let shown = columns(
                &prepared.schema(),
                text.rewritten.labels.as_deref(),
                formats,
            );
            self.link.out.row_description(&shown);
        }
        cursor.formats = formats.to_vec();
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

    /// Closes a cursor; without a name, all cursors.
    pub(super) fn close_cursor(&mut self, name: Option<&str>) -> Result<&'static str, Failure> {
        let Some(name) = name else {
            self.portals.clear();
            return Ok("CLOSE CURSOR ALL");
        };
        self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        Ok("CLOSE CURSOR")
    }
}
