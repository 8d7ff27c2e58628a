//! Metrics of the front end for PostgreSQL's clients.
//!
//! Concurrency: counters are atomics; clones share the same counters.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SqlstateLabel {
    sqlstate: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// The metrics of the front end.
#[derive(Debug, Clone)]
pub struct Metrics {
    connections: Gauge,
    statements: Family<SqlstateLabel, Counter>,
    seconds: Histogram,
    refused: Family<ReasonLabel, Counter>,
}

impl Metrics {
    /// Creates the metrics, registered where the server reports them.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            connections: Gauge::default(),
            statements: Family::default(),
            // 0.1 ms to 6.6 s.
            seconds: Histogram::new(exponential_buckets(0.000_1, 2.0, 17)),
            refused: Family::default(),
        };
        registry.register(
            "postgres_connections",
            "Open connections of PostgreSQL's protocol",
            metrics.connections.clone(),
        );
        registry.register(
            "postgres_statements",
            "Statements of PostgreSQL's clients, by SQLSTATE; 00000 is success",
            metrics.statements.clone(),
        );
        registry.register_with_unit(
            "postgres_statement",
            "Time from a statement of PostgreSQL's clients to the end of its answer",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "postgres_refused_connections",
            "Connections of PostgreSQL's protocol that were refused a session, by reason",
            metrics.refused.clone(),
        );
        metrics
    }

    /// The connections that are open.
    pub(crate) fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// Counts a statement that is over.
    pub(crate) fn statement(&self, sqlstate: &str, took: Duration) {
        let labels = SqlstateLabel {
            sqlstate: sqlstate.to_owned(),
        };
        self.statements.get_or_create(&labels).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a connection that did not become a session.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }
}
