//! Role of a server without data of its own, which knows the inventories of nodes: it redirects
//! each query to the node or the edge that answers it, or relays the answer.
//!
//! From bottom to top: `peer` sends a request to a node over HTTP; `metrics` counts; `state` is
//! shared by all requests; `follow` fetches inventories; `request` parses; `plan` chooses the
//! nodes; `split` parses answers; `relay` forwards; `merge` combines several answers into one;
//! `answer` is a redirect or an answer; `routes` lists the endpoints.
//!
//! Invariants: the dispatcher is stateless: every inventory was fetched, and can be fetched again.
//! The dispatcher checks access against its own list of tokens, and the answering node checks it
//! again by the ticket. Concurrency: one worker for each node; requests share the tables, which are
//! locked for look-ups. Failure: without an answering node the dispatcher is not ready, and answers
//! queries with 503.

mod answer;
mod follow;
mod merge;
mod metrics;
mod peer;
mod plan;
mod relay;
mod request;
mod routes;
mod split;
mod state;

use crate::notices::{NoticeMetrics, Notices};
use crate::settings::Settings;
use crate::start_error::StartError;
use axum::http::StatusCode;
use headwater_protocol::dispatch::NodeIndex;
use headwater_shell::{Bound, ErrorAnswer, Listener, Role, Route, Shell, Work};
use metrics::DispatcherMetrics;
use serde_json::{Map, Value};
use state::DispatcherState;
use std::sync::Arc;

/// Role `dispatcher` of the HTTP server scaffold.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    state: Arc<DispatcherState>,
}

impl Dispatcher {
    /// Binds the listener and creates the dispatcher.
    ///
    /// # Errors
    /// When its token, its certificates or its key cannot be read.
    pub(crate) fn begin(
        settings: &Settings,
        listener: Listener,
    ) -> Result<(Bound, Dispatcher), StartError> {
        let metrics = DispatcherMetrics::default();
        let notices = Notices::open(settings, NoticeMetrics::default())?;
        let bound = listener.shell(|registry| {
            metrics.register(registry);
            notices.metrics.register(registry);
        });
        let state = DispatcherState::new(settings, Arc::clone(bound.shell()), metrics, notices)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            addr = %bound.local_addr(),
            nodes = state.nodes.len(),
            tokens = !bound.shell().guard().is_open(),
            "dispatching"
        );
        let state = Arc::new(state);
        Ok((bound, Dispatcher { state }))
    }
}

impl Role for Dispatcher {
    const HEALTHY: &'static str = "ready for queries";

    type Error = StartError;

    fn begin(&mut self, shell: &Arc<Shell>) -> Work {
        let mut work = Work::default();
        let notices = Arc::clone(&self.state.notices);
        work.workers
            .push(Box::pin(notices.run(None, shell.stopping())));
        for at in 0..self.state.nodes.len() {
            let following =
                follow::follow(Arc::clone(&self.state), NodeIndex(at), shell.stopping());
            work.workers.push(Box::pin(following));
        }
        work
    }

    fn routes(&self, _: &Arc<Shell>) -> Vec<Route> {
        let routes = routes::all().into_iter();
        routes
            .map(|route| route.with_state(Arc::clone(&self.state)))
            .collect()
    }

    /// Ready means that a node has reported its inventory, and answers.
    fn ready(&self) -> Result<Map<String, Value>, ErrorAnswer> {
        let live = self.state.tables.read().live().count();
        if live == 0 {
            return Err(ErrorAnswer::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "E_UNREACHABLE",
                "no node has reported its inventory yet",
            )
            .retry_after(1));
        }
        let mut answer = Map::new();
        answer.insert("nodes".to_owned(), live.into());
        answer.insert("nodes_listed".to_owned(), self.state.nodes.len().into());
        Ok(answer)
    }

    fn close(&self) -> Result<(), StartError> {
        tracing::info!("stopped");
        Ok(())
    }
}
