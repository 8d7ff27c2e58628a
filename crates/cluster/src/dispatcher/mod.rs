//! Role of a server without data of its own, which knows the inventories of nodes: it redirects
//! each query to the node or the edge that answers it, or relays the answer.
//!
//! From bottom to top: `metrics` counts; `state` is shared by all requests; `follow` fetches
//! inventories; `request` parses; `plan` chooses the nodes; `partial` refuses or marks answers
//! about a part of the data; `split` parses answers; `relay` forwards; `merge` and `equal_names`
//! combine several answers into one; `answer` is a redirect or an answer; `routes` lists the
//! endpoints.
//!
//! Invariants: the dispatcher is stateless: every inventory was fetched, and can be fetched again.
//! The dispatcher checks access against its own list of tokens, and the answering node checks it
//! again by the ticket. Concurrency: one worker for each node; requests share the tables, which are
//! locked for look-ups. Failure: without an answering node the dispatcher is not ready, and answers
//! queries with 503.

mod answer;
mod answer_elements;
mod equal_names;
mod follow;
mod merge;
mod metrics;
mod partial;
mod plan;
mod relay;
mod request;
mod routes;
mod state;

use crate::notices::{NoticeMetrics, Notices};
use crate::rights::RightsReceiver;
use crate::rights_source::{RightsSource, follow_rights};
use crate::settings::{DispatchSettings, NoticeSettings};
use crate::start_error::StartError;
use axum::http::StatusCode;
use headwater_protocol::dispatch::NodeIndex;
use headwater_shell::{Bound, Endpoint, ErrorAnswer, Listener, Role, Route, Shell, Work};
use metrics::DispatcherMetrics;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use state::DispatcherState;
use std::path::Path;
use std::sync::Arc;

/// Role `dispatcher` of the HTTP server scaffold.
#[derive(Debug)]
pub struct Dispatcher {
    state: Arc<DispatcherState>,
    forwarded: Vec<Endpoint>,
    own: Mutex<Vec<Route>>,
}

/// Settings and routes of a dispatcher.
#[derive(Debug)]
pub struct DispatcherConfig<'a> {
    /// Nodes, and limits.
    pub dispatch: &'a DispatchSettings,
    /// Node whose list of rights is taken, and the receiver of the list.
    pub rights: Option<(RightsSource, RightsReceiver)>,
    /// Bus of the nodes' notices.
    pub notices: &'a NoticeSettings,
    /// Directory of the dispatcher's key.
    pub dir: &'a Path,
    /// Endpoints of nodes: reading ones are dispatched, others are refused.
    pub forwarded: Vec<Endpoint>,
    /// Routes that need no node, such as the page.
    pub own: Vec<Route>,
}

impl Dispatcher {
    /// Binds the listener and creates the dispatcher.
    ///
    /// # Errors
    /// When its token, its certificates or its key cannot be read.
    pub fn begin(
        config: DispatcherConfig<'_>,
        listener: Listener,
    ) -> Result<(Bound, Dispatcher), StartError> {
        let metrics = DispatcherMetrics::default();
        let notices = Notices::open(config.notices, None, NoticeMetrics::default(), None)?;
        let bound = listener.shell(|registry| {
            metrics.register(registry);
            notices.metrics.register(registry);
        });
        let state = DispatcherState::new(&config, Arc::clone(bound.shell()), metrics, notices)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            addr = %bound.local_addr(),
            nodes = state.nodes.len(),
            tokens = !bound.shell().guard().is_open(),
            "dispatching"
        );
        let state = Arc::new(state);
        Ok((
            bound,
            Dispatcher {
                state,
                forwarded: config.forwarded,
                own: Mutex::new(config.own),
            },
        ))
    }
}

impl Role for Dispatcher {
    const HEALTHY: &'static str = "ready for queries";

    type Error = StartError;

    fn begin(&mut self, shell: &Arc<Shell>) -> Work {
        let mut work = Work::default();
        if let Some((source, receiver)) = self.state.rights.clone() {
            let (guard, stopping) = (Arc::clone(shell.guard()), shell.stopping());
            work.workers.push(Box::pin(async move {
                follow_rights(&source, &receiver, &guard, stopping).await;
            }));
        }
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
        let dispatched = routes::all(&self.forwarded).into_iter();
        let dispatched = dispatched.map(|route| route.with_state(Arc::clone(&self.state)));
        let own = std::mem::take(&mut *self.own.lock());
        own.into_iter().chain(dispatched).collect()
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
        let tables = self.state.tables.read();
        let missing = tables.coverage().missing.len();
        answer.insert("missing".to_owned(), missing.into());
        Ok(answer)
    }

    fn close(&self) -> Result<(), StartError> {
        tracing::info!("stopped");
        Ok(())
    }
}
