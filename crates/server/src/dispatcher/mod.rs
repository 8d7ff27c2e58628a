//! The role of a server that holds nothing and knows who does: it sends each question to the node
//! or the edge that answers it, or passes the answer on.
//!
//! From bottom to top: `peer` asks a node over HTTP; `figures` what is counted; `desk` what all
//! requests share; `follow` what nodes hold; `asked` what is asked; `plan` who answers; `pieces`
//! takes answers apart; `relay` passes on; `merge` makes one answer of several; `answer` a redirect
//! or an answer; `routes` where all of that is asked for.
//!
//! Invariants: it is stateless: what it knows it has asked for, and asks for again. Who may read
//! what says its own list of tokens, and again whoever answers, by the ticket.
//! Concurrency: one worker for each node; requests share the tables, which are locked for look-ups.
//! Failure: without a node that answers it is not ready, and questions are answered 503.

mod answer;
mod asked;
mod desk;
mod figures;
mod follow;
mod merge;
mod peer;
mod pieces;
mod plan;
mod relay;
mod routes;

use crate::notices::{Figures as NoticeFigures, Notices};
use crate::settings::Settings;
use crate::start_error::StartError;
use axum::http::StatusCode;
use desk::Desk;
use figures::Figures;
use headwater_protocol::dispatch::NodeIndex;
use headwater_shell::{Bound, ErrorAnswer, Listener, Role, Route, Shell, Work};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What a shell serves of a dispatcher.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    desk: Arc<Desk>,
}

impl Dispatcher {
    /// One that listens.
    ///
    /// # Errors
    /// When its token, its certificates or its key cannot be read.
    pub(crate) fn begin(
        settings: &Settings,
        listener: Listener,
    ) -> Result<(Bound, Dispatcher), StartError> {
        let figures = Figures::default();
        let notices = Notices::open(settings, NoticeFigures::default())?;
        let bound = listener.shell(|registry| {
            figures.register(registry);
            notices.figures.register(registry);
        });
        let desk = Desk::new(settings, Arc::clone(bound.shell()), figures, notices)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            addr = %bound.local_addr(),
            nodes = desk.nodes.len(),
            tokens = !bound.shell().guard().is_open(),
            "dispatching"
        );
        let desk = Arc::new(desk);
        Ok((bound, Dispatcher { desk }))
    }
}

impl Role for Dispatcher {
    const HEALTHY: &'static str = "ready for queries";

    type Error = StartError;

    fn begin(&mut self, shell: &Arc<Shell>) -> Work {
        let mut work = Work::default();
        let notices = Arc::clone(&self.desk.notices);
        work.workers
            .push(Box::pin(notices.run(None, shell.stopping())));
        for at in 0..self.desk.nodes.len() {
            let following = follow::follow(Arc::clone(&self.desk), NodeIndex(at), shell.stopping());
            work.workers.push(Box::pin(following));
        }
        work
    }

    fn routes(&self, _: &Arc<Shell>) -> Vec<Route> {
        let routes = routes::all().into_iter();
        routes
            .map(|route| route.with_state(Arc::clone(&self.desk)))
            .collect()
    }

    /// Ready means that a node has told what it holds, and answers.
    fn ready(&self) -> Result<Map<String, Value>, ErrorAnswer> {
        let live = self.desk.tables.read().live().count();
        if live == 0 {
            return Err(ErrorAnswer::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "E_UNREACHABLE",
                "no node has told what it holds yet",
            )
            .retry_after(1));
        }
        let mut answer = Map::new();
        answer.insert("nodes".to_owned(), live.into());
        answer.insert("nodes_listed".to_owned(), self.desk.nodes.len().into());
        Ok(answer)
    }

    fn close(&self) -> Result<(), StartError> {
        tracing::info!("stopped");
        Ok(())
    }
}
