//! Metrics of watches.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Metrics of all watches.
#[derive(Debug, Default)]
pub(crate) struct WatchMetrics {
    pub(crate) watches: Gauge,
    pub(crate) stopped: Gauge,
    looks: Family<CauseLabel, Counter>,
    events: Family<KindLabel, Counter>,
    hooks: Family<ResultLabel, Counter>,
}

impl WatchMetrics {
    /// Registers the metrics for `/metrics`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("watches", "Active watches", self.watches.clone());
        registry.register(
            "watches_stopped",
            "Watches whose last evaluation failed",
            self.stopped.clone(),
        );
        registry.register(
            "watch_looks",
            "Evaluations of watches, by cause: a change of the table, or time",
            self.looks.clone(),
        );
        registry.register(
            "watch_events",
            "Events reported, by kind",
            self.events.clone(),
        );
        registry.register(
            "watch_hooks",
            "Events sent to web hooks, by outcome",
            self.hooks.clone(),
        );
    }

    pub(crate) fn looked(&self, cause: &'static str) {
        self.looks.get_or_create(&CauseLabel { cause }).inc();
    }

    pub(crate) fn emitted(&self, kind: &'static str) {
        self.events.get_or_create(&KindLabel { kind }).inc();
    }

    pub(crate) fn sent(&self, result: &'static str) {
        self.hooks.get_or_create(&ResultLabel { result }).inc();
    }
}
