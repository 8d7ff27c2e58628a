//! Explanations of what is here of a stream, asked of the connection of its edge.
//!
//! Invariants: a question fails after [`ANSWER_WITHIN`]; at most [`WAITING_MAX`] questions wait for
//! an edge. Failure: the copy's own errors, and no connection.

use super::EdgeCopies;
use crate::error::{ClusterError, ClusterErrorKind};
use crate::status::{LagStatus, StreamWhy};
use crate::why::WhyRequest;
use headwater_types::{ClosedRange, StreamName};
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Most questions that wait.
const WAITING_MAX: usize = 16;

impl EdgeCopies {
    /// Explains why the rows of a stream in a span of time are here, or not yet.
    ///
    /// # Errors
    /// `not_found` for an unknown edge, `unreachable` without a connection, with the lag as the
    /// reason, the copy's own.
    pub async fn why(
        &self,
        edge: &str,
        stream: StreamName,
        span: ClosedRange,
    ) -> Result<StreamWhy, ClusterError> {
        let status = self.edge_status(edge).ok_or_else(|| {
            ClusterError::new(
                ClusterErrorKind::NotFound,
                format!("there is no edge `{edge}`; list the edges with `headwater edges`"),
            )
        })?;
        if !status.state.is_connected() {
            return Err(not_connected(edge, &status.lag));
        }
        let held = self.entry(edge);
        let tags = self.edge(edge).map(|edge| edge.added_tags());
        // The planner knows it by the edge's own name, which is accepted, too.
        let own = tags.unwrap_or_default().own(&stream);
        let own = own.unwrap_or_else(|| stream.clone());
        let (request, answered) = WhyRequest::new(own, span);
        {
            let mut live = held.live.lock();
            live.why.retain(|waiting| !waiting.is_given_up());
            if live.why.len() >= WAITING_MAX {
                return Err(ClusterError::new(
                    ClusterErrorKind::Unreachable,
                    format!("{WAITING_MAX} questions about `{edge}` wait already; ask again"),
                ));
            }
            live.why.push(request);
        }
        held.wake.notify_one();
        match timeout(ANSWER_WITHIN, answered).await {
            Ok(Ok(found)) => Ok(StreamWhy {
                edge: edge.to_owned(),
                stream: stream.to_string(),
                lag: status.lag,
                ranges: found?,
            }),
            _ => Err(not_connected(edge, &status.lag)),
        }
    }
}

fn not_connected(edge: &str, lag: &LagStatus) -> ClusterError {
    let cause = lag
        .cause
        .map_or("its connection has ended", |cause| cause.text());
    ClusterError::new(
        ClusterErrorKind::Unreachable,
        format!("nothing is requested from `{edge}` now: {cause}"),
    )
}
