//! Metrics of the database that `/metrics` publishes, in addition to the metrics of every server.
//!
//! Purpose: points taken and refused, clients that follow new data, sizes and write amplification
//! of the database. Names follow the conventions of Prometheus: base units, `_total` for counters.
//!
//! Concurrency: counters are atomics. The engine's stats take locks that maintenance jobs hold over
//! I/O, so they are collected away from the runtime, at most every few seconds, and `/metrics`
//! publishes the newest collected stats. Stats of the engine come from `headwater::STATS`
//! (`engine/read/stat_table`): a new stat of the engine is added there.

mod engine;
mod nodes;

pub(crate) use engine::EngineMetrics;
pub(crate) use nodes::NodeMetrics;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: String,
}

/// The metrics of a server's database.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    points: Family<ResultLabel, Counter>,
    refused: Family<CodeLabel, Counter>,
    live_clients: Gauge,
    pub(crate) engine: Arc<EngineMetrics>,
    pub(crate) nodes: Arc<NodeMetrics>,
}

impl Metrics {
    /// Registers the metrics for `/metrics`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "live_clients",
            "Clients that follow new data",
            self.live_clients.clone(),
        );
        registry.register(
            "ingest_points",
            "Values received for storage, by outcome",
            self.points.clone(),
        );
        registry.register(
            "ingest_refused_lines",
            "Lines refused, by code",
            self.refused.clone(),
        );
        registry.register_collector(Box::new(Arc::clone(&self.engine)));
        registry.register_collector(Box::new(Arc::clone(&self.nodes)));
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

    /// The clients that follow new data.
    pub(crate) fn live_clients(&self) -> &Gauge {
        &self.live_clients
    }
}
