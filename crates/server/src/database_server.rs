//! Server of one database, in the roles standalone, edge and cloud: the part that the shell serves.
//!
//! Invariants: data received in requests or from a broker is stored and acknowledged before the
//! database closes.

use crate::app::App;
use crate::conflict_report;
use crate::error::ApiError;
use crate::fetch_missing::fetch_missing;
use crate::partial::{allow_partial, take_permission};
use crate::routes::{self, Needs};
use crate::start_error::StartError;
use axum::middleware::{from_fn, from_fn_with_state};
use futures_util::future::BoxFuture;
use headwater_shell::{Endpoint, ErrorAnswer, Role, Route, Shell, Work, standard_endpoints};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Locations and needs of all routes, including the routes of every server.
#[must_use]
pub fn endpoints() -> Vec<Endpoint> {
    let own = routes::all().into_iter().map(|route| route.endpoint);
    own.chain(standard_endpoints::<DatabaseServer>()).collect()
}

/// One database behind one HTTP port, and its other front ends.
#[derive(Debug)]
pub(crate) struct DatabaseServer {
    pub(crate) app: Arc<App>,
}

impl Role for DatabaseServer {
    const HEALTHY: &'static str = "ready for queries and writes";

    type Error = StartError;

    fn begin(&mut self, _: &Arc<Shell>) -> Work {
        let mut work = Work::default();
        self.app.components.begin(&self.app, &mut work);
        work
    }

    fn routes(&self, _: &Arc<Shell>) -> Vec<Route> {
        let routes = routes::all().into_iter();
        if self.app.fleet.is_none() {
            let with_state = |mut route: routes::Route| {
                if route.endpoint.answers_rows {
                    route.prepare = Some(take_permission);
                }
                route.with_state(Arc::clone(&self.app))
            };
            return routes.map(with_state).collect();
        }
        let fetching = from_fn_with_state(Arc::clone(&self.app), fetch_missing);
        let partial = from_fn(allow_partial);
        let warning = from_fn_with_state(Arc::clone(&self.app), conflict_report::warn);
        let routes = routes.map(|mut route| {
            if route.endpoint.answers_rows {
                route.handler = route.handler.layer(warning.clone());
            }
            if route.endpoint.needs == Needs::Read {
                route.handler = route.handler.layer(fetching.clone());
            }
            // The outermost of its layers.
            if route.endpoint.answers_rows {
                route.handler = route.handler.layer(partial.clone());
            }
            route.with_state(Arc::clone(&self.app))
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
            let collecting = Arc::clone(&self);
            let fetching = tokio::task::spawn_blocking(move || {
                let stats = collecting.app.db().stats();
                if let Err(error) = &stats {
                    tracing::warn!(%error, "the stats of the engine cannot be read");
                }
                collecting.app.components.collect();
                match collecting.app.node_status() {
                    Ok(status) => collecting.app.metrics.nodes.set_newest(status),
                    Err(error) => {
                        tracing::warn!(%error, "the status of other nodes cannot be read")
                    }
                }
                collecting.app.metrics.engine.set_newest(stats.ok());
            });
            if let Err(error) = fetching.await {
                tracing::error!(%error, "collecting metrics panicked; /metrics keeps the previous values until they are collected again");
                self.app.metrics.engine.set_newest(None);
            }
        })
    }

    fn close(&self) -> Result<(), StartError> {
        self.app.ingest.close();
        if let Some(fleet) = &self.app.fleet
            && let Err(error) = fleet.let_go()
        {
            tracing::warn!(%error, "the database could not be removed from the merged view of the node before closing");
        }
        if let Some(fleet) = &self.app.fleet
            && let Err(error) = fleet.settle_fetched()
        {
            tracing::warn!(%error, "the bytes that were fetched for readers could not be stored; some are counted twice");
        }
        let closed = self.app.opened_db.close();
        closed.map_err(|source| StartError::Database {
            dir: self.app.settings.db().display().to_string(),
            source,
        })?;
        tracing::info!("stopped: the database is closed");
        Ok(())
    }
}
