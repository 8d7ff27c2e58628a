//! What the server tells about itself at `/metrics`, in the OpenMetrics text format, or in the one before it.
//!
//! Purpose: requests by route and status, times to answer, points taken and refused, sizes and write amplification of the
//! database, and the process. Names follow the conventions of Prometheus: base units, `_total` for counters.
//!
//! Concurrency: counters are atomics. The engine's figures take locks that steps hold over I/O, so they are fetched away from
//! the runtime, at most every few seconds, and the newest ones there are get told: `/metrics` never waits for the engine for long.

mod engine;
mod plain;
mod process;

pub(crate) use engine::EngineFigures;
pub(crate) use plain::plain;

use crate::routes::{Endpoint, Needs};
use axum::http::StatusCode;
use process::ProcessFigures;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: String,
}

/// The metrics of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabel, Histogram>,
    points: Family<ResultLabel, Counter>,
    refused: Family<CodeLabel, Counter>,
    connections: Gauge,
    live_clients: Gauge,
    pub(crate) engine: Arc<EngineFigures>,
}

/// Where the requests of one route are counted.
#[derive(Debug)]
pub(crate) struct Observed {
    requests: Family<RequestLabels, Counter>,
    seconds: Option<Histogram>,
    route: &'static str,
    method: &'static str,
}

impl Observed {
    pub(crate) fn request(&self, status: StatusCode, took: Duration) {
        let labels = RequestLabels {
            route: self.route,
            method: self.method,
            status: status.as_u16(),
        };
        self.requests.get_or_create(&labels).inc();
        if let Some(seconds) = &self.seconds {
            seconds.observe(took.as_secs_f64());
        }
    }
}

impl Metrics {
    /// All of them; `more` registers those of parts that are not always there.
    pub(crate) fn new(more: impl FnOnce(&mut Registry)) -> Metrics {
        let mut registry = Registry::with_prefix("headwater");
        // 0.1 ms to 6.6 s.
        let seconds: Family<RouteLabel, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 2.0, 17)));
        let metrics = Metrics {
            requests: Family::default(),
            seconds,
            points: Family::default(),
            refused: Family::default(),
            connections: Gauge::default(),
            live_clients: Gauge::default(),
            engine: Arc::default(),
            registry: Registry::default(),
        };
        registry.register(
            "build",
            "The version that runs",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register(
            "http_requests",
            "Requests answered, by route and status; `other` are paths without a route",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "http_request",
            "Time from the head of a request to the head of its answer",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "http_connections",
            "Connections that are open",
            metrics.connections.clone(),
        );
        registry.register(
            "live_clients",
            "Clients that follow new data",
            metrics.live_clients.clone(),
        );
        registry.register(
            "ingest_points",
            "Values that came in to be stored, by what became of them",
            metrics.points.clone(),
        );
        registry.register(
            "ingest_refused_lines",
            "Lines refused, by code",
            metrics.refused.clone(),
        );
        registry.register_collector(Box::new(Arc::clone(&metrics.engine)));
        more(&mut registry);
        let mut all = Registry::default();
        // Those of the process have their own customary names.
        all.register_collector(Box::new(ProcessFigures::new()));
        *all.sub_registry_with_prefix("") = registry;
        Metrics {
            registry: all,
            ..metrics
        }
    }

    /// Where the requests of a route are to be counted.
    pub(crate) fn observe(&self, endpoint: &Endpoint) -> Observed {
        let timed = matches!(endpoint.needs, Needs::Read | Needs::Write | Needs::Manage);
        let label = RouteLabel {
            route: endpoint.path,
        };
        Observed {
            requests: self.requests.clone(),
            seconds: timed.then(|| self.seconds.get_or_create_owned(&label)),
            route: endpoint.path,
            method: if endpoint.method == axum::http::Method::POST {
                "POST"
            } else {
                "GET"
            },
        }
    }

    /// Counts a request for a path that is not there.
    pub(crate) fn request_elsewhere(&self) {
        let labels = RequestLabels {
            route: "other",
            method: "",
            status: 404,
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts values (events times fields) that were stored.
    pub(crate) fn points_accepted(&self, count: u64) {
        let labels = ResultLabel { result: "accepted" };
        self.points.get_or_create(&labels).inc_by(count);
    }

    /// Counts lines that were refused.
    pub(crate) fn lines_refused(&self, code: &str, count: u64) {
        let labels = CodeLabel {
            code: code.to_owned(),
        };
        self.refused.get_or_create(&labels).inc_by(count);
    }

    /// The connections that are open.
    pub(crate) fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// The clients that follow new data.
    pub(crate) fn live_clients(&self) -> &Gauge {
        &self.live_clients
    }

    /// The text of `/metrics`.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
