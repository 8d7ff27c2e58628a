//! Role of a server with one database: the part that the shell serves.
//!
//! Invariants: data received in requests or from a broker is stored and acknowledged before the
//! database closes.

use crate::app::App;
use crate::error::ApiError;
use crate::fetch_missing::fetch_missing;
use crate::routes::{self, Needs};
use crate::start_error::StartError;
use axum::middleware::from_fn_with_state;
use futures_util::future::BoxFuture;
use headwater_shell::{Endpoint, ErrorAnswer, Role, Route, Shell, Work, standard_endpoints};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Locations and needs of all routes, including the routes of every server.
#[must_use]
pub fn endpoints() -> Vec<Endpoint> {
    let own = routes::all().into_iter().map(|route| route.endpoint);
    own.chain(standard_endpoints::<Single>()).collect()
}

/// One database behind one HTTP port, and its other front ends.
#[derive(Debug)]
pub(crate) struct Single {
    pub(crate) app: Arc<App>,
}

impl Role for Single {
    const HEALTHY: &'static str = "ready for queries and writes";

    type Error = StartError;

    fn begin(&mut self, _: &Arc<Shell>) -> Work {
        let mut work = Work::default();
        self.app.components.begin(&self.app, &mut work);
        work
    }

    fn routes(&self, _: &Arc<Shell>) -> Vec<Route> {
        let routes = routes::all().into_iter();
        let with_state = |route: routes::Route| route.with_state(Arc::clone(&self.app));
        if self.app.fleet.is_none() {
            return routes.map(with_state).collect();
        }
        let fetching = from_fn_with_state(Arc::clone(&self.app), fetch_missing);
        let routes = routes.map(|mut route| {
            if route.endpoint.needs == Needs::Read {
                route.handler = route.handler.layer(fetching.clone());
            }
            with_state(route)
        });
        routes.collect()
    }

    /// Ready means that the database returns a snapshot, which a closed database does not. Reports
    /// the number of damaged partitions of which no data is readable, if any.
    fn ready(&self) -> Result<Map<String, Value>, ErrorAnswer> {
        let taken = self.app.db().snapshot().map(drop);
        taken.map_err(ApiError::from)?;
        let mut answer = Map::new();
        let unreadable = self.app.db().partitions_unreadable();
        if unreadable > 0 {
            answer.insert("partitions_unreadable".to_owned(), unreadable.into());
        }
        Ok(answer)
    }

    fn refresh_stats(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if !self.app.metrics.engine.wants_fetching() {
                return;
            }
            let fetching = tokio::task::spawn_blocking(move || {
                let stats = self.app.db().stats();
                if let Err(error) = &stats {
                    tracing::warn!(%error, "no figures of the engine");
                }
                self.app.components.collect();
                match self.app.node_status() {
                    Ok(status) => self.app.metrics.nodes.fetched(status),
                    Err(error) => tracing::warn!(%error, "no figures of other nodes"),
                }
                self.app.metrics.engine.fetched(stats.ok());
            });
            if let Err(error) = fetching.await {
                tracing::error!(%error, "fetching the engine's figures panicked");
            }
        })
    }

    fn close(&self) -> Result<(), StartError> {
        self.app.ingest.close();
        if let Some(fleet) = &self.app.fleet
            && let Err(error) = fleet.let_go()
        {
            tracing::warn!(%error, "copies still show the database that is closed");
        }
        let closed = self.app.opened.close();
        closed.map_err(|source| StartError::Database {
            dir: self.app.settings.db().display().to_string(),
            source,
        })?;
        tracing::info!("stopped: the database is closed");
        Ok(())
    }
}
