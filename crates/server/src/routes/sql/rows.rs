//! The rows of an answer, piece by piece.

use crate::error::ApiError;
use axum::body::Bytes;
use futures_util::StreamExt;
use headwater_query::Answer;
use headwater_query::arrow::array::RecordBatch;
use headwater_query::datafusion::execution::SendableRecordBatchStream;
use headwater_query::output::{Format, OutputError, TimeText, Writer, done_row};
use std::io;
use tokio::sync::OwnedSemaphorePermit;

/// An answer on its way.
pub(super) struct Rows {
    rows: SendableRecordBatchStream,
    /// Taken from `rows` before the answer began.
    first: Option<RecordBatch>,
    /// None once the end is written.
    writer: Option<Writer>,
    /// Rows that may still be written.
    left: Option<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Rows {
    /// Waits for the first rows, so that most of what can fail is answered as an error.
    pub(super) async fn begin(
        ran: Answer,
        format: Format,
        time: TimeText,
        rows_max: Option<u64>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Rows, ApiError> {
        let Answer {
            schema,
            mut rows,
            done,
        } = ran;
        let first = rows
            .next()
            .await
            .transpose()
            .map_err(headwater_query::Error::from)?;
        let (schema, first) = match done_row(done) {
            Some(row) => (row.schema(), Some(row)),
            None => (schema, first),
        };
        let writer = Writer::new(format, &schema, time).map_err(not_this_form)?;
        Ok(Rows {
            rows,
            first,
            writer: Some(writer),
            left: rows_max,
            _permit: permit,
        })
    }

    /// The next bytes of the answer; an error cuts it off.
    pub(super) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let mut out = Vec::new();
        while out.is_empty() {
            self.writer.as_ref()?;
            if let Err(error) = self.more(&mut out).await {
                self.writer = None;
                tracing::warn!(%error, "an answer to SQL broke off");
                let broken = io::Error::other("the statement failed; the server's log says more");
                return Some(Err(broken));
            }
        }
        Some(Ok(out.into()))
    }

    /// Writes the next batch or the end.
    async fn more(
        &mut self,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
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
                writer.finish(out)?;
            }
            return Ok(());
        };
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        let rows = batch.num_rows() as u64;
        match self.left {
            Some(left) if rows > left => {
                writer.write(&batch.slice(0, left as usize), out)?;
                if let Some(writer) = self.writer.take() {
                    writer.finish_early(out)?;
                }
            }
            left => {
                writer.write(&batch, out)?;
                self.left = left.map(|left| left - rows);
            }
        }
        Ok(())
    }
}

fn not_this_form(error: OutputError) -> ApiError {
    ApiError::new(
        axum::http::StatusCode::BAD_REQUEST,
        "E_INVALID",
        format!(
            "this form of answer cannot hold the columns: {error}; convert them with CAST, or ask for JSON"
        ),
    )
}
