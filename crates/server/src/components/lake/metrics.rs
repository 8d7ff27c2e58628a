//! Metrics of the lake.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the lake, of all its databases together.
#[derive(Debug, Default)]
pub(crate) struct LakeMetrics {
    pub(crate) rows: Counter,
    pub(crate) days: Counter,
    pub(crate) failures: Counter,
    /// Days that could not be read in the last turn.
    pub(crate) blocked: Gauge,
    /// End of the last turn without a failure, in seconds since 1970.
    pub(crate) written_at: Gauge,
}

impl LakeMetrics {
    /// Registers the metrics that `/metrics` publishes.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("lake_rows", "Rows written to the lake", self.rows.clone());
        registry.register(
            "lake_days",
            "Days of tables written to the lake",
            self.days.clone(),
        );
        registry.register(
            "lake_failures",
            "Failed attempts to write a table to the lake",
            self.failures.clone(),
        );
        registry.register(
            "lake_days_blocked",
            "Days that the last run could not read; the lake has an older version of them or none",
            self.blocked.clone(),
        );
        registry.register(
            "lake_written_at_seconds",
            "When the last run without a failure ended, since 1970; 0 = none has",
            self.written_at.clone(),
        );
    }
}
