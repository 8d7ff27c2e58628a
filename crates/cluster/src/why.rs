//! Answers to the question why ranges of a stream are here, or not yet: from the planner of a
//! connection, which belongs to the task of that connection.
//!
//! Invariant: a question is answered once, at the next step of the connection. Concurrency:
//! questions wait beside the status of the edge. Failure: the copy's own errors.

use crate::error::{ClusterError, of_device};
use crate::status::RangeWhy;
use headwater_engine::{NeededFor, RangeExplanation, Reason};
use headwater_protocol::replication::{Now, Planner, TrafficShare};
use headwater_types::{ClosedRange, StreamName};
use tokio::sync::oneshot;

/// Most ranges of an answer.
const RANGES_MAX: usize = 1_000;

pub(crate) type Answer = Result<Vec<RangeWhy>, ClusterError>;

/// A question that waits for the task of a connection.
#[derive(Debug)]
pub(crate) struct WhyRequest {
    stream: StreamName,
    span: ClosedRange,
    answer: oneshot::Sender<Answer>,
}

impl WhyRequest {
    pub(crate) fn new(
        stream: StreamName,
        span: ClosedRange,
    ) -> (WhyRequest, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        let request = WhyRequest {
            stream,
            span,
            answer,
        };
        (request, answered)
    }

    /// True when nobody waits for the answer any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    /// Answers with what the planner knows; `None` = there is no copy yet.
    pub(crate) fn answer(self, planner: Option<&Planner>, now: Now) {
        let found = planner.map_or_else(
            || Ok(Vec::new()),
            |planner| explain(planner, now, &self.stream, self.span),
        );
        // Without a receiver the question was given up.
        let _ = self.answer.send(found);
    }
}

fn explain(planner: &Planner, now: Now, stream: &StreamName, span: ClosedRange) -> Answer {
    let found = planner.explain_stream(stream, span, RANGES_MAX);
    let is_held_back = planner.is_held_back(now);
    let why = |(segment, found): (u64, Option<(RangeExplanation, TrafficShare)>)| {
        let Some((found, share)) = found else {
            return RangeWhy {
                segment,
                state: "not_subscribed".to_owned(),
                ..RangeWhy::default()
            };
        };
        let is_requested = planner.is_requested(segment, found.range.offset);
        let state = match (found.is_here, is_requested) {
            (true, _) => "here",
            (false, true) => "requested",
            (false, false) if is_held_back => "held_back",
            (false, false) => "waiting",
        };
        RangeWhy {
            segment,
            offset: found.range.offset,
            bytes: found.range.bytes,
            state: state.to_owned(),
            needed_for: Some(needed_for(found.range.needed_for).to_owned()),
            reason: Some(reason_name(found.why.reason).to_owned()),
            share: Some(share_name(share).to_owned()),
            priority: found.why.priority,
            pin: found.why.pin,
            score: found.why.score.map(|score| score.to_string()),
        }
    };
    let found = found.map_err(of_device)?;
    Ok(found.into_iter().map(why).collect())
}

fn needed_for(purpose: NeededFor) -> &'static str {
    match purpose {
        NeededFor::Frame => "index",
        NeededFor::Buckets(_) => "buckets",
        NeededFor::LateRows => "late_rows",
        NeededFor::Rows => "rows",
    }
}

/// Reported name of a reason.
pub(crate) fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::Requested => "asked",
        Reason::Summaries => "summaries",
        Reason::Pinned => "pinned",
        Reason::Rows => "rows",
        Reason::Ahead => "ahead",
    }
}

fn share_name(share: TrafficShare) -> &'static str {
    match share {
        TrafficShare::States => "states",
        TrafficShare::Periodic => "periodic",
        TrafficShare::Proactive => "proactive",
        TrafficShare::Requested => "requested",
        TrafficShare::Backlog => "backlog",
    }
}
