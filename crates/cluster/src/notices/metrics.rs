//! Metrics of notices.
//!
//! Concurrency: counters are atomics.

use headwater_protocol::live::{HeardOutcome, PublishCounts};
use headwater_protocol::notice::{NoticeOutcome, QueryReason};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabel {
    why: &'static str,
}

fn gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Metrics of notices. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct NoticeMetrics {
    /// 1 while the broker carries notices.
    pub(crate) connected: Gauge,
    pub(crate) connects: Counter,
    pub(crate) failures: Counter,
    pub(crate) refused: Counter,
    pub(crate) published: Counter,
    missed: Counter,
    received: Family<KindLabel, Counter>,
    queries: Family<WhyLabel, Counter>,
    /// Failures of applying access lists.
    pub(crate) list_failures: Counter,
    lists: Gauge,
    lists_behind: Gauge,
    lists_behind_seconds: Gauge,
    values_published: Counter,
    values_replaced: Counter,
    values_refused: Counter,
    values_streams: Gauge,
    values_beyond: Gauge,
    values_received: Family<KindLabel, Counter>,
    values_missed: Counter,
}

impl NoticeMetrics {
    /// Adds the counts to `/metrics`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("notices");
        registry.register(
            "connected",
            "1 while a broker carries notices",
            self.connected.clone(),
        );
        registry.register("connects", "Connections made", self.connects.clone());
        registry.register(
            "connection_failures",
            "Connections that ended or failed",
            self.failures.clone(),
        );
        registry.register(
            "refused",
            "Subscriptions and notices that the broker refused",
            self.refused.clone(),
        );
        registry.register("told", "Notices of this node", self.published.clone());
        registry.register(
            "missed",
            "Notices of other nodes that were lost, by their numbers",
            self.missed.clone(),
        );
        registry.register(
            "heard",
            "Notices of other nodes, by kind: news, known, late, forged, garbled",
            self.received.clone(),
        );
        registry.register(
            "asked",
            "Requests to nodes, by reason: unknown, news, gone, gap, check, waiting",
            self.queries.clone(),
        );
        self.register_values(registry);
    }

    /// Adds the counts of live values and access lists to `/metrics`.
    fn register_values(&self, registry: &mut Registry) {
        registry.register(
            "lists",
            "Topics whose access lists this node applies at the server",
            self.lists.clone(),
        );
        registry.register(
            "lists_behind",
            "Topics whose access list at the server is not the one of the list of rights yet",
            self.lists_behind.clone(),
        );
        registry.register(
            "lists_behind_seconds",
            "Time for which the oldest change of an access list has not been applied",
            self.lists_behind_seconds.clone(),
        );
        registry.register(
            "list_failures",
            "Attempts to apply an access list that failed",
            self.list_failures.clone(),
        );
        registry.register(
            "values_streams",
            "Streams whose newest values this node publishes",
            self.values_streams.clone(),
        );
        registry.register(
            "values_streams_beyond",
            "Streams that notices.values selects beyond the limit, and that are not published",
            self.values_beyond.clone(),
        );
        registry.register(
            "values_told",
            "Newest values of streams that the server has taken",
            self.values_published.clone(),
        );
        registry.register(
            "values_replaced",
            "Newest values of streams that newer ones replaced before they were sent",
            self.values_replaced.clone(),
        );
        registry.register(
            "values_refused",
            "Newest values of streams that the server refused, or that have no topic",
            self.values_refused.clone(),
        );
        registry.register(
            "values_heard",
            "Newest values that were heard, by kind: news, known, late, garbled, full",
            self.values_received.clone(),
        );
        registry.register(
            "values_missed",
            "Changes of heard streams that were not published, by their numbers",
            self.values_missed.clone(),
        );
    }

    /// Counts what a publisher has done between two counts.
    pub(crate) fn count_published(&self, before: PublishCounts, now: PublishCounts) {
        self.values_published
            .inc_by(now.published - before.published);
        self.values_replaced.inc_by(now.replaced - before.replaced);
        self.values_refused.inc_by(now.refused - before.refused);
        self.values_streams.set(gauge(now.streams));
        self.values_beyond.set(gauge(now.beyond));
    }

    /// Counts an item of a stream.
    pub(crate) fn count_heard(&self, outcome: HeardOutcome) {
        let what = match outcome {
            HeardOutcome::News { missed } => {
                self.values_missed.inc_by(missed);
                "news"
            }
            HeardOutcome::AlreadyKnown => "known",
            HeardOutcome::Late => "late",
            HeardOutcome::Garbled => "garbled",
            HeardOutcome::Full => "full",
        };
        self.values_received
            .get_or_create(&KindLabel { what })
            .inc();
    }

    /// Sets the state of the access lists.
    pub(crate) fn set_lists(&self, topics: usize, (behind, age): (usize, Duration)) {
        self.lists.set(gauge(topics));
        self.lists_behind.set(gauge(behind));
        let seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        self.lists_behind_seconds.set(seconds);
    }

    /// Counts a notice of a followed node.
    pub fn count_notice(&self, heard: NoticeOutcome) {
        let what = match heard {
            NoticeOutcome::News { missed } => {
                self.missed.inc_by(missed);
                "news"
            }
            NoticeOutcome::AlreadyKnown => "known",
            NoticeOutcome::Late => "late",
            NoticeOutcome::Forged => "forged",
            // The worker that follows that node counts it.
            NoticeOutcome::NotThisNode => return,
        };
        self.received.get_or_create(&KindLabel { what }).inc();
    }

    /// Counts an invalid notice.
    pub fn garbled(&self) {
        let what = "garbled";
        self.received.get_or_create(&KindLabel { what }).inc();
    }

    /// Counts a request; without a reason, a request that waits at the node.
    pub fn count_query(&self, why: Option<QueryReason>) {
        let why = match why {
            Some(QueryReason::Unknown) => "unknown",
            Some(QueryReason::News) => "news",
            Some(QueryReason::Disconnected) => "gone",
            Some(QueryReason::Gap) => "gap",
            Some(QueryReason::Check) => "check",
            None => "waiting",
        };
        self.queries.get_or_create(&WhyLabel { why }).inc();
    }
}
