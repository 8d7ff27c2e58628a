//! Metrics of the connections between nodes, some seconds old.

use headwater::StatValue;
use headwater_cluster::{
    About, EdgeState, EdgeStatus, FetchStatus, NodeStatus, UplinkState, UplinkStatus,
};
use headwater_shell::encode_alone;
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
    pub(crate) fn set_newest(&self, status: NodeStatus) {
        *self.newest.lock() = Some(status);
    }
}

/// A name, help, and the getter; `None` where the number is unknown.
type Entry<T> = (&'static str, &'static str, fn(&T) -> Option<f64>);

/// A count as a float, rounded if it does not fit exactly.
fn count(number: u64) -> f64 {
    StatValue::Count(number).as_f64()
}

/// Instant in seconds since 1970.
fn timestamp(ns: i64) -> f64 {
    count(ns.max(0).unsigned_abs() / 1_000_000) / 1e3
}

/// Used part of the smaller rest of two caps.
fn cap_used(about: &About) -> Option<f64> {
    let used = |spent: u64, cap: Option<u64>| cap.map(|cap| count(spent) / count(cap.max(1)));
    let day = used(about.sent_today, about.day_max);
    let month = used(about.sent_this_month, about.month_max);
    match (day, month) {
        (Some(day), Some(month)) => Some(day.max(month)),
        (day, month) => day.or(month),
    }
}

const OF_EDGES: [Entry<EdgeStatus>; 17] = [
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
        "Bytes of the edge that are subscribed to and missing here",
        |edge| edge.copy.as_ref().map(|copy| count(copy.missing_bytes)),
    ),
    (
        "sync_edge_copy_bytes",
        "Bytes of the edge that are stored here",
        |edge| edge.copy.as_ref().map(|copy| count(copy.bytes)),
    ),
    (
        "sync_edge_current_timestamp_seconds",
        "The last time at which the copy had everything that the edge had stored",
        |edge| edge.current_ns.map(timestamp),
    ),
    (
        "sync_edge_heard_timestamp_seconds",
        "Time of the last message of the edge",
        |edge| edge.heard_ns.map(timestamp),
    ),
    (
        "sync_edge_lag_seconds",
        "Time since which something that the edge has stored may be missing here",
        |edge| edge.lag.seconds.map(count),
    ),
    (
        "sync_edge_left_seconds",
        "Time until the missing bytes are here, at the rate of the last hour",
        |edge| edge.lag.seconds_left.map(count),
    ),
    (
        "sync_edge_quiet",
        "1 while the edge is not connected as it has announced: quiet hours, or a spent cap",
        |edge| Some(f64::from(u8::from(edge.state == EdgeState::Quiet))),
    ),
    (
        "sync_edge_refused",
        "1 while the edge is refused, or its copy cannot be used",
        |edge| {
            let is_refused = matches!(edge.state, EdgeState::Refused | EdgeState::Failed);
            Some(f64::from(u8::from(is_refused)))
        },
    ),
    (
        "sync_edge_cap_used_ratio",
        "Spent part of the edge's cap of the day or month, whichever is greater",
        |edge| edge.about.as_ref().and_then(cap_used),
    ),
    (
        "sync_edge_next_ca",
        "1 while the edge has the certificates of tls.next_ca, or needs none of them; 0 while it lacks some, or has not answered",
        |edge| {
            edge.next_ca
                .map(|state| f64::from(u8::from(!state.is_open())))
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
        "sync_edge_live_lag_seconds",
        "Longest age of newest events of the connected edge when they arrived last",
        |edge| edge.lag.live_ms.map(|millis| count(millis) / 1e3),
    ),
    (
        "sync_edge_live_bytes",
        "Bytes of newest events that the edge has sent since it was started",
        |edge| edge.about.as_ref().map(|about| count(about.live_bytes)),
    ),
    (
        "sync_edge_conflicting_streams",
        "Streams of the edge that a database of a smaller rank has, too, in the same stretch of time",
        |edge| edge.conflicts.map(|conflicts| count(conflicts.streams)),
    ),
    (
        "sync_edge_hidden_rows",
        "Rows of the edge that are not shown: another database has a row of the stream at that instant",
        |edge| edge.conflicts.map(|conflicts| count(conflicts.hidden_rows)),
    ),
    (
        "sync_edge_different_bytes",
        "Bytes that differed in the last comparison",
        |edge| edge.verified.map(|found| count(found.different)),
    ),
];

const OF_CLOUD: [Entry<UplinkStatus>; 12] = [
    (
        "sync_cloud_connected",
        "1 while the cloud is connected",
        |cloud| Some(f64::from(u8::from(cloud.state == UplinkState::Connected))),
    ),
    (
        "sync_cloud_certificate_end_timestamp_seconds",
        "Last instant at which the certificate of the cloud is valid, as of the last connection",
        |cloud| cloud.certificate_ends_ns.map(timestamp),
    ),
    (
        "sync_sent_today_bytes",
        "Bytes at the socket to and from the cloud on this day (UTC)",
        |cloud| Some(count(cloud.sent_today)),
    ),
    (
        "sync_sent_month_bytes",
        "Bytes at the socket to and from the cloud in this month (UTC)",
        |cloud| Some(count(cloud.sent_this_month)),
    ),
    (
        "sync_confirmed_bytes",
        "Bytes of segments that are durable at the cloud, as far as it subscribes to them",
        |cloud| Some(count(cloud.confirmed_bytes)),
    ),
    (
        "sync_freed_bytes",
        "Bytes of rows that were freed here because the cloud has them",
        |cloud| cloud.freed.map(|freed| count(freed.bytes)),
    ),
    (
        "sync_refuted_segments",
        "Segments that the cloud confirms, and could not prove to have when it was challenged (sync.free)",
        |cloud| {
            cloud
                .freed
                .map(|freed| count(freed.challenges.refuted_segments))
        },
    ),
    (
        "sync_unanswered_challenges",
        "Challenges since the start that the cloud did not answer in time (sync.free)",
        |cloud| cloud.freed.map(|freed| count(freed.challenges.unanswered)),
    ),
    (
        "sync_lost_rows",
        "Rows that were lost on a full disk, to make room for new ones (sync.full)",
        |cloud| cloud.lost.map(|lost| count(lost.rows)),
    ),
    (
        "sync_lag_seconds",
        "Age of the oldest stored change that the cloud has not confirmed",
        |cloud| cloud.lag_seconds.map(count),
    ),
    (
        "sync_live_bytes",
        "Bytes of newest events that were sent before they were stored, since the start",
        |cloud| Some(count(cloud.live_bytes)),
    ),
    (
        "sync_states_behind",
        "Stored changes that the cloud has not confirmed",
        |cloud| {
            let confirmed = cloud.confirmed_number?;
            Some(count(cloud.state_number.saturating_sub(confirmed)))
        },
    ),
];

const OF_FETCHES: [Entry<FetchStatus>; 4] = [
    (
        "sync_fetched_bytes",
        "Bytes that were requested from edges for readers (fetch=true), since the start",
        |fetched| Some(count(fetched.bytes)),
    ),
    (
        "sync_fetched_today_bytes",
        "Bytes of this day (UTC) that count against the budgets of tokens",
        |fetched| {
            let bytes = fetched.tokens.iter().map(|token| token.bytes);
            Some(count(bytes.fold(0, u64::saturating_add)))
        },
    ),
    (
        "sync_fetch_refused",
        "Answers for which a token's budget did not suffice (cloud.fetch_per_day), since the start",
        |fetched| Some(count(fetched.refused)),
    ),
    (
        "sync_fetch_spent_tokens",
        "Tokens whose budget of this day did not suffice for their last query",
        |fetched| {
            let spent = fetched.tokens.iter().filter(|token| token.is_spent);
            Some(count(spent.map(|_| 1).sum()))
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
        if let Some(fetched) = &status.fetched {
            for (name, help, read) in OF_FETCHES {
                if let Some(value) = read(fetched) {
                    encode_alone(&mut encoder, (name, help), &ConstGauge::new(value))?;
                }
            }
        }
        if let Some(cloud) = &status.cloud {
            for (name, help, read) in OF_CLOUD {
                if let Some(value) = read(cloud) {
                    encode_alone(&mut encoder, (name, help), &ConstGauge::new(value))?;
                }
            }
        }
        Ok(())
    }
}
