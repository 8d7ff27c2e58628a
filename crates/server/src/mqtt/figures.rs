//! What is counted of messages.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

/// The figures of one broker.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(super) connected: Gauge,
    pub(super) subscriptions_refused: Gauge,
    pub(super) connects: Counter,
    pub(super) failures: Counter,
    pub(super) received: Counter,
    pub(super) skipped: Counter,
    pub(super) acknowledged: Counter,
    pub(super) waiting: Gauge,
    pub(super) values: Counter,
    pub(super) retries: Counter,
    refused: Family<CodeLabel, Counter>,
    pub(super) seconds: Histogram,
}

impl Default for Figures {
    fn default() -> Figures {
        Figures {
            connected: Gauge::default(),
            subscriptions_refused: Gauge::default(),
            connects: Counter::default(),
            failures: Counter::default(),
            received: Counter::default(),
            skipped: Counter::default(),
            acknowledged: Counter::default(),
            waiting: Gauge::default(),
            values: Counter::default(),
            retries: Counter::default(),
            refused: Family::default(),
            // 0.5 ms to 131 s.
            seconds: Histogram::new(exponential_buckets(0.000_5, 4.0, 10)),
        }
    }
}

impl Figures {
    /// Counts what was refused.
    pub(super) fn refused(&self, code: &'static str, count: u64) {
        self.refused
            .get_or_create(&CodeLabel { code })
            .inc_by(count);
    }

    /// There is no connection now.
    pub(super) fn disconnected(&self) {
        self.connected.set(0);
    }

    /// Puts the figures where `/metrics` tells them.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("mqtt");
        registry.register(
            "connected",
            "1 while the broker is connected",
            self.connected.clone(),
        );
        registry.register(
            "subscriptions_refused",
            "Subscriptions that the broker refused when it was connected last",
            self.subscriptions_refused.clone(),
        );
        registry.register("connects", "Connections made", self.connects.clone());
        registry.register(
            "connection_failures",
            "Connections that ended or were not made",
            self.failures.clone(),
        );
        registry.register(
            "messages_received",
            "Messages received, those that came again included",
            self.received.clone(),
        );
        registry.register(
            "messages_skipped",
            "Messages that the broker had kept, and that are set to be skipped",
            self.skipped.clone(),
        );
        registry.register(
            "messages_done",
            "Messages that are stored or refused",
            self.acknowledged.clone(),
        );
        registry.register(
            "messages_waiting",
            "Messages that are received and not yet stored",
            self.waiting.clone(),
        );
        registry.register("values", "Values stored", self.values.clone());
        registry.register(
            "refused",
            "Messages, and rows of messages, that cannot be stored, by code",
            self.refused.clone(),
        );
        registry.register(
            "retries",
            "Times that storing was tried again, since the database was busy, full or closed",
            self.retries.clone(),
        );
        registry.register_with_unit(
            "done",
            "Time from the arrival of a message until it is stored",
            Unit::Seconds,
            self.seconds.clone(),
        );
    }
}
