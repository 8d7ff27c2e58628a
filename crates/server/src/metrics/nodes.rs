//! Metrics of the connections between nodes, some seconds old.

use headwater::StatValue;
use headwater_fleet::{EdgeStatus, NodeStatus, UplinkState, UplinkStatus};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// The newest status.
#[derive(Debug, Default)]
pub(crate) struct NodeMetrics {
    newest: Mutex<Option<NodeStatus>>,
}

impl NodeMetrics {
    /// Takes a status.
    pub(crate) fn fetched(&self, status: NodeStatus) {
        *self.newest.lock() = Some(status);
    }
}

/// A name, help, and the getter; `None` where the number is unknown.
type Entry<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

/// A count as a float, rounded if it does not fit exactly.
fn count(number: u64) -> f64 {
    StatValue::Count(number).as_f64()
}

const OF_EDGES: [Entry<EdgeStatus>; 7] = [
    (
        "sync_edge_connected",
        "1 while the edge is connected",
        |edge| {
            let state = edge.state.name();
            let is_connected = matches!(state, "current" | "catching" | "paused" | "refused");
            Some(f64::from(u8::from(is_connected)))
        },
    ),
    (
        "sync_edge_missing_bytes",
        "Bytes that are wanted of the edge and not here",
        |edge| edge.copy.as_ref().map(|copy| count(copy.missing_bytes)),
    ),
    (
        "sync_edge_copy_bytes",
        "Bytes that are here of the edge",
        |edge| edge.copy.as_ref().map(|copy| count(copy.bytes)),
    ),
    (
        "sync_edge_current_timestamp_seconds",
        "When everything that the edge had stored by then was here",
        |edge| {
            let millis = edge
                .current_ns
                .map(|ns| ns.max(0).unsigned_abs() / 1_000_000);
            millis.map(|millis| count(millis) / 1e3)
        },
    ),
    (
        "sync_edge_live",
        "1 while the newest events of the edge are all here, before it stores them",
        |edge| {
            let is_live = edge.copy.as_ref().map(|copy| copy.is_live);
            is_live.map(|is_live| f64::from(u8::from(is_live)))
        },
    ),
    (
        "sync_edge_live_bytes",
        "Bytes of newest events that the edge has sent along since it was started",
        |edge| edge.about.as_ref().map(|about| count(about.live_bytes)),
    ),
    (
        "sync_edge_different_bytes",
        "Bytes that the newest comparison found to differ",
        |edge| edge.verified.map(|found| count(found.different)),
    ),
];

const OF_CLOUD: [Entry<UplinkStatus>; 8] = [
    (
        "sync_cloud_connected",
        "1 while the cloud is connected",
        |cloud| Some(f64::from(u8::from(cloud.state == UplinkState::Connected))),
    ),
    (
        "sync_sent_today_bytes",
        "Bytes sent to the cloud on this day (UTC)",
        |cloud| Some(count(cloud.sent_today)),
    ),
    (
        "sync_sent_month_bytes",
        "Bytes sent to the cloud in this month (UTC)",
        |cloud| Some(count(cloud.sent_this_month)),
    ),
    (
        "sync_confirmed_bytes",
        "Bytes of segments that are at the cloud as far as it wants them, on its medium",
        |cloud| Some(count(cloud.confirmed_bytes)),
    ),
    (
        "sync_freed_bytes",
        "Bytes of rows that were freed here, since the cloud has them",
        |cloud| cloud.freed.map(|freed| count(freed.bytes)),
    ),
    (
        "sync_lag_seconds",
        "For how long something has been stored that the cloud has not confirmed",
        |cloud| cloud.lag_seconds.map(count),
    ),
    (
        "sync_live_bytes",
        "Bytes of newest events that were sent along before they were stored, since the start",
        |cloud| Some(count(cloud.live_bytes)),
    ),
    (
        "sync_states_behind",
        "Changes of what is stored that the cloud has not confirmed",
        |cloud| {
            let confirmed = cloud.confirmed_number?;
            Some(count(cloud.state_number.saturating_sub(confirmed)))
        },
    ),
];

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(status) = self.newest.lock().clone() else {
            return Ok(());
        };
        if let Some(edges) = &status.edges {
            for (name, help, read) in OF_EDGES {
                let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
                for edge in edges {
                    if let Some(value) = read(edge) {
                        let labels = [("edge", edge.name.as_str())];
                        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
                    }
                }
            }
        }
        if let Some(cloud) = &status.cloud {
            for (name, help, read) in OF_CLOUD {
                if let Some(value) = read(cloud) {
                    let metric = ConstGauge::new(value);
                    let kind = EncodeMetric::metric_type(&metric);
                    metric.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
                }
            }
        }
        Ok(())
    }
}
