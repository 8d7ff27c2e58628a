//! Metrics of every server at `/metrics`, in the OpenMetrics text format, or in its predecessor.
//!
//! Purpose: requests by route and status, times to answer, connections, and the process; a role
//! adds its own metrics. Names follow the conventions of Prometheus: base units, `_total` for
//! counters.
//!
//! Concurrency: counters are atomics.

mod certificate;
mod nameless;
mod plain;
mod process;
mod rights;

pub(crate) use nameless::nameless;
pub(crate) use plain::plain;

use crate::access::guard::Guard;
use crate::route::{Endpoint, Needs};
use crate::tls::Certificate;
use axum::http::StatusCode;
use certificate::CertificateCollector;
use headwater_io::Env;
use process::ProcessCollector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use rights::RightsCollector;
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

/// Writes a metric that has no labels.
///
/// # Errors
/// When the text cannot be written.
pub fn encode_alone(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    metric: &impl EncodeMetric,
) -> std::fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// The metrics of a shell, and of its role.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabel, Histogram>,
    connections: Gauge,
}

/// Counters of the requests of one route.
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
    /// Creates the metrics; `more` registers the metrics of the role.
    pub(crate) fn new(
        env: &Env,
        (certificate, guard): (Option<&Arc<Certificate>>, &Arc<Guard>),
        more: impl FnOnce(&mut Registry),
    ) -> Metrics {
        let mut registry = Registry::with_prefix("headwater");
        // 0.1 ms to 6.6 s.
        let seconds: Family<RouteLabel, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 2.0, 17)));
        let (requests, connections) = (Family::default(), Gauge::default());
        registry.register(
            "build",
            "Version of the running program",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register(
            "http_requests",
            "Requests answered, by route and status; `other` are paths without a route",
            requests.clone(),
        );
        registry.register_with_unit(
            "http_request",
            "Time from the head of a request to the head of its answer",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register("http_connections", "Open connections", connections.clone());
        if let Some(certificate) = certificate {
            let collector = CertificateCollector::new(certificate, &env.clock);
            registry.register_collector(Box::new(collector));
        }
        registry.register_collector(Box::new(RightsCollector::new(guard)));
        more(&mut registry);
        let mut all = Registry::default();
        // The process metrics have their own customary names.
        all.register_collector(Box::new(ProcessCollector::new(env.clock.now())));
        *all.sub_registry_with_prefix("") = registry;
        Metrics {
            registry: all,
            requests,
            seconds,
            connections,
        }
    }

    /// Creates the counters of the requests of a route.
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

    /// The connections that are open.
    pub(crate) fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// The text of `/metrics`.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
