//! Rows of an answer, chunk by chunk.

use crate::error::ApiError;
use axum::body::Bytes;
use futures_util::StreamExt;
use headwater_columnar::{Format, OutputError, TimeText, Writer};
use headwater_query::arrow::array::RecordBatch;
use headwater_query::datafusion::execution::SendableRecordBatchStream;
use headwater_query::{Answer, Slot, done_row};
use headwater_shell::ErrorAnswer;
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Answer in transit.
pub(super) struct Rows {
    rows: SendableRecordBatchStream,
    /// Taken from `rows` before the answer began.
    first: Option<RecordBatch>,
    /// `None` after the end is written.
    writer: Option<Writer>,
    /// Rows that may still be written.
    rows_left: Option<u64>,
    /// True when the answer failed, and its transfer is to be aborted.
    has_failed: bool,
    slot: Slot,
}

impl Rows {
    /// Waits for the first rows, so that most errors are answered as such.
    pub(super) async fn begin(
        ran: Answer,
        format: Format,
        time: TimeText,
        rows_max: Option<u64>,
        slot: Slot,
    ) -> Result<Rows, ApiError> {
        let Answer {
            schema,
            mut rows,
            outcome,
            // Nothing: the scope of the request leaves copies out, and marks the answer.
            left_out: _,
        } = ran;
        let first = rows
            .next()
            .await
            .transpose()
            .map_err(headwater_query::Error::from)?;
        let (schema, first) = match done_row(outcome) {
            Some(row) => (row.schema(), Some(row)),
            None => (schema, first),
        };
        let writer = Writer::new(format, &schema, time).map_err(not_this_form)?;
        Ok(Rows {
            rows,
            first,
            writer: Some(writer),
            rows_left: rows_max,
            has_failed: false,
            slot,
        })
    }

    /// Sends the answer until `end`, in a task that ends with its receiver.
    pub(super) fn send(mut self, end: Instant) -> Sent {
        let (sender, receiver) = mpsc::channel(1);
        let holder = Arc::clone(&self.slot.holder);
        let work = async move {
            while let Some(piece) = self.next().await {
                self.slot.holder.stalls();
                if sender.send(Some(piece)).await.is_err() {
                    return;
                }
                self.slot.holder.goes_on();
            }
            drop(self);
            // The receiver may be dropped.
            drop(sender.send(None).await);
        };
        let task = tokio::spawn(async move {
            let given_up = tokio::select! {
                biased;
                () = work => return,
                () = holder.over() => "the client has read nothing, and another statement needs the slot",
                () = tokio::time::sleep_until(end) => "the statement has timed out",
            };
            tracing::warn!(why = given_up, "an answer to SQL was aborted");
        });
        Sent {
            receiver,
            task,
            ended: false,
        }
    }

    /// The next bytes of the answer; an error cuts the answer off, after the message that the
    /// format allows.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let mut out = Vec::new();
        while out.is_empty() {
            if std::mem::take(&mut self.has_failed) {
                let broken = io::Error::other("the statement failed; the server's log says more");
                return Some(Err(broken));
            }
            self.writer.as_ref()?;
            if let Err(error) = self.more(&mut out).await {
                tracing::warn!(error = error.message, "an answer to SQL was interrupted");
                self.has_failed = true;
                if let Some(writer) = self.writer.take() {
                    let error = ErrorAnswer::from(error).into_body();
                    writer.fail(&error.to_string(), &mut out);
                }
            }
        }
        Some(Ok(out.into()))
    }

    /// Writes the next batch or the end.
    async fn more(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let next = match self.first.take() {
            Some(batch) => Some(batch),
            None => self
                .rows
                .next()
                .await
                .transpose()
                .map_err(headwater_query::Error::from)?,
        };
        let Some(batch) = next else {
            if let Some(writer) = self.writer.take() {
                writer.finish(out).map_err(not_this_form)?;
            }
            return Ok(());
        };
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        let rows = batch.num_rows() as u64;
        match self.rows_left {
            Some(left) if rows > left => {
                let part = batch.slice(0, left as usize);
                writer.write(&part, out).map_err(not_this_form)?;
                if let Some(writer) = self.writer.take() {
                    writer.finish_early(out).map_err(not_this_form)?;
                }
            }
            left => {
                writer.write(&batch, out).map_err(not_this_form)?;
                self.rows_left = left.map(|left| left - rows);
            }
        }
        Ok(())
    }
}

/// Chunks of an answer in transit. Dropping this ends its statement.
pub(super) struct Sent {
    /// `None` is the end marker: without it, the answer was cut off.
    receiver: mpsc::Receiver<Option<io::Result<Bytes>>>,
    task: JoinHandle<()>,
    ended: bool,
}

impl Sent {
    /// The next chunk; an error means that the answer is incomplete.
    pub(super) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.ended {
            return None;
        }
        let next = self.receiver.recv().await;
        let next = next.unwrap_or_else(|| {
            let why = "the client did not read the answer in time; the server's log says more";
            Some(Err(io::Error::other(why)))
        });
        self.ended = !matches!(next, Some(Ok(_)));
        if matches!(next, Some(Err(_))) {
            // The connection is about to be closed: pending output is sent first.
            tokio::task::yield_now().await;
        }
        next
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn not_this_form(error: OutputError) -> ApiError {
    ApiError::new(
        axum::http::StatusCode::BAD_REQUEST,
        "E_INVALID",
        format!(
            "this format cannot represent the columns: {error}; convert them with CAST, or ask for JSON"
        ),
    )
}
