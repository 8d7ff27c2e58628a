//! Running a statement and sending its rows.

use super::connection::Connection;
use super::errors::{Failure, error, warning};
use super::link::{FLUSH, Stream};
use super::statement::{Portal, Prepared, Rows, State, Text, spread, tag};
use crate::values::rows;
use futures_util::StreamExt;
use headwater_query::arrow::datatypes::DataType;
use headwater_query::{Answer, LeftOut, Parameters, Slot};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Rows that are encoded between two checks whether to send.
const CHUNK: usize = 128;
/// Maximum cursors of a session whose rows are being computed.
const CURSORS_MAX: usize = 16;
/// Time that a statement waits for a slot.
const SLOT_WAIT: Duration = Duration::from_secs(5);

/// True when values of a type may follow a description of another type: all decimals have one OID,
/// whatever their digits.
fn is_described_by(was: &DataType, is: &DataType) -> bool {
    was == is || (was.is_decimal() && is.is_decimal())
}

impl<S: Stream> Connection<S> {
    /// Waits for a statement slot, but only briefly, so that a client receives the reason.
    pub(super) async fn acquire_slot(&mut self) -> Result<Slot, Failure> {
        let places = Arc::clone(&self.front_end.statements.slots);
        let owner = self.grant.owner();
        let taken = self.link.wait(places.acquire(&owner, SLOT_WAIT)).await?;
        let place = taken.map_err(|why| {
            let mut notice = error("53300", why.to_string());
            notice.detail = Some("code busy".to_owned());
            notice.hint = Some("retry later, or send fewer statements at once".to_owned());
            notice
        })?;
        self.link
            .sends_for(&place.holder, self.front_end.settings.statement_timeout);
        Ok(place)
    }

    /// Runs a statement on the compute threads, so that this thread stays free for its connections.
    pub(super) async fn answer(
        &mut self,
        sql: &str,
    ) -> Result<headwater_query::Result<Answer>, Failure> {
        let (threads, session, sql) = (
            Arc::clone(&self.front_end.statements.threads),
            self.session.clone(),
            sql.to_owned(),
        );
        let run = async move { session.run(&sql, Parameters::none()).await };
        self.link.wait(threads.answer(run)).await
    }

    /// Applies the settings of a statement's `set_config`.
    pub(super) fn apply(&mut self, text: &Text) -> Result<(), Failure> {
        for (name, value) in &text.rewritten.settings {
            let told = self.listing.variables.write().set(name, value)?;
            if let Some((name, value)) = told {
                self.link.out.parameter_status(name, &value);
            }
        }
        Ok(())
    }

    /// Runs a portal that was not run yet.
    pub(super) async fn start(&mut self, portal: &mut Portal) -> Result<(), Failure> {
        let (State::Ready, Prepared::Query { text, prepared, .. }) =
            (&portal.state, portal.statement.as_ref())
        else {
            return Ok(());
        };
        let parameters = Parameters::positional(portal.parameters.clone());
        let (threads, planned) = (
            Arc::clone(&self.front_end.statements.threads),
            prepared.as_ref().clone(),
        );
        let run = async move { planned.run(parameters).await };
        let answer = self.link.wait(threads.answer(run)).await?;
        let answer = answer.map_err(|why| text.failure(why))?;
        let (was, is) = (prepared.schema(), Arc::clone(&answer.schema));
        let same = was.fields().len() == is.fields().len()
            && was
                .fields()
                .iter()
                .zip(is.fields())
                .all(|(was, is)| is_described_by(was.data_type(), is.data_type()));
        if answer.outcome.has_rows() && !same {
            let mut notice = error("0A000", "cached plan must not change result type");
            notice.hint = Some(
                "the columns of the table have changed: prepare the statement again".to_owned(),
            );
            return Err(notice.into());
        }
        self.apply(text)?;
        self.answered(portal, answer);
        Ok(())
    }

    /// Warns of parts of the data that an answer leaves out.
    pub(super) fn warn_of(&mut self, left_out: &LeftOut) {
        if left_out.is_empty() {
            return;
        }
        let mut notice = warning(
            "01000",
            format!("the answer is partial: without {left_out}"),
        );
        notice.detail = Some("code partial".to_owned());
        notice.hint = Some(
            "repair what cannot be read, or SET headwater.partial = refuse to get an error instead"
                .to_owned(),
        );
        self.link.out.notice(&notice);
    }

    /// Puts an answer into its portal.
    pub(super) fn answered(&mut self, portal: &mut Portal, answer: Answer) {
        self.warn_of(&answer.left_out);
        self.changed |= answer.outcome.has_changed();
        portal.state = State::Rows(Box::new(Rows {
            schema: answer.schema,
            stream: answer.rows,
            batch: None,
            sent: 0,
            done: answer.outcome,
            until: Instant::now() + self.front_end.settings.statement_timeout,
            cursor: None,
        }));
    }

    /// Suspends a portal until the client requests more rows, unless too many portals are
    /// suspended.
    pub(super) fn suspend(&self, portal: &mut Portal) -> Result<(), Failure> {
        let State::Rows(rows) = &mut portal.state else {
            return Ok(());
        };
        if rows.cursor.is_some() {
            return Ok(());
        }
        let open = self.portals.values();
        let open = open.filter(|portal| matches!(portal.state, State::Rows(_)));
        if open.count() >= CURSORS_MAX {
            let why = format!(
                "{CURSORS_MAX} cursors of this session are open, which is the maximum: close some"
            );
            return Err(error("54000", why).into());
        }
        rows.cursor = self.front_end.quota.cursor();
        if rows.cursor.is_none() {
            let why =
                "too many cursors are open in all sessions: read all rows at once, or retry later";
            return Err(error("53300", why).into());
        }
        Ok(())
    }

    /// When the first of the open cursors is late.
    pub(super) fn cursors_until(&self) -> Option<Instant> {
        let open = self
            .portals
            .values()
            .filter_map(|portal| match &portal.state {
                State::Rows(rows) => Some(rows.until),
                _ => None,
            });
        open.min()
    }

    /// Closes cursors that have exceeded their time, to free their resources.
    pub(super) fn end_late_cursors(&mut self) {
        let now = Instant::now();
        for portal in self.portals.values_mut() {
            if matches!(&portal.state, State::Rows(rows) if now >= rows.until) {
                portal.state = State::Late;
            }
        }
    }

    /// Sends at most `most` rows of a portal, and then the completion message.
    pub(super) async fn send(
        &mut self,
        portal: &mut Portal,
        most: u64,
        text: Option<&Text>,
    ) -> Result<(), Failure> {
        match self.send_rows(portal, most, text, false).await? {
            Sent::All(tag) => {
                portal.state = State::Finished;
                self.link.out.command_complete(&tag);
            }
            Sent::Part(_) => self.link.out.portal_suspended(),
        }
        Ok(())
    }

    /// Sends at most `most` rows of a portal. `silent` = skips them.
    pub(super) async fn send_rows(
        &mut self,
        portal: &mut Portal,
        most: u64,
        text: Option<&Text>,
        silent: bool,
    ) -> Result<Sent, Failure> {
        if matches!(portal.state, State::Late) {
            let mut notice = error(
                "57014",
                "canceling statement due to statement timeout: its rows were not all fetched in time",
            );
            notice.hint =
                Some("fetch more rows at once, or raise the setting sql.timeout".to_owned());
            return Err(notice.into());
        }
        let State::Rows(state) = &mut portal.state else {
            return Ok(Sent::All("SELECT 0".to_owned()));
        };
        let formats = spread(&portal.formats, state.schema.fields().len());
        let time_format = self.time_format();
        let mut left = most;
        state.sent = 0;
        loop {
            if left == 0 {
                return Ok(Sent::Part(state.sent));
            }
            let (batch, from) = match state.batch.take() {
                Some(taken) => taken,
                None => match self.link.wait(state.stream.next()).await? {
                    None => {
                        let done = tag(state.done, state.sent);
                        if let Some(stored) = state.done.stored() {
                            self.notify_replaced(stored);
                        }
                        return Ok(Sent::All(done));
                    }
                    Some(Ok(batch)) => (batch, 0),
                    Some(Err(why)) => {
                        let why = headwater_query::Error::from(why);
                        return Err(match text {
                            Some(text) => text.failure(why),
                            None => why.into(),
                        });
                    }
                },
            };
            if !self.grant.is_current() {
                return Err(super::errors::fatal(
                    "57P01",
                    "terminating connection: its token has expired or was revoked",
                )
                .into());
            }
            let room = usize::try_from(left).unwrap_or(usize::MAX);
            let to = batch.num_rows().min(from.saturating_add(room));
            let mut at = from;
            while at < to && !silent {
                let end = to.min(at + CHUNK);
                rows(&mut self.link.out, &batch, at, end, &formats, &time_format)
                    .map_err(|why| error("0A000", why))?;
                at = end;
                if self.link.out.bytes().len() >= FLUSH {
                    self.link.flush().await?;
                }
            }
            let count = (to - from) as u64;
            left -= count;
            state.sent += count;
            if to < batch.num_rows() {
                state.batch = Some((batch, to));
            }
        }
    }
}

/// Outcome of sending rows.
pub(super) enum Sent {
    /// All rows were sent; with the tag of the command.
    All(String),
    /// As many rows as were requested.
    Part(u64),
}
