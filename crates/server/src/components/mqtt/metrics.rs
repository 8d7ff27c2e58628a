//! Metrics of the messages of a broker.

use crate::settings::Mqtt;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

/// Metrics of one broker.
#[derive(Debug)]
pub(crate) struct BrokerMetrics {
    pub(crate) connected: Gauge,
    pub(crate) subscriptions_refused: Gauge,
    pub(crate) connects: Counter,
    pub(crate) failures: Counter,
    pub(crate) received: Counter,
    pub(crate) skipped: Counter,
    pub(crate) acknowledged: Counter,
    pub(crate) waiting: Gauge,
    pub(crate) values: Counter,
    pub(crate) retries: Counter,
    refused: Family<CodeLabel, Counter>,
    /// Second count of refusals by code: a metric family cannot list its labels.
    refused_by_code: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) seconds: Histogram,
}

/// Status of a broker in `/api/v1/storage`; the names are stable.
#[derive(Debug, Serialize)]
pub(crate) struct BrokerState {
    broker: String,
    connected: bool,
    connects: u64,
    failures: u64,
    subscriptions: usize,
    subscriptions_refused: i64,
    received: u64,
    skipped: u64,
    done: u64,
    waiting: i64,
    values: u64,
    retries: u64,
    refused: BTreeMap<&'static str, u64>,
}

impl Default for BrokerMetrics {
    fn default() -> BrokerMetrics {
        BrokerMetrics {
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
            refused_by_code: Mutex::default(),
            // 0.5 ms to 131 s.
            seconds: Histogram::new(exponential_buckets(0.000_5, 4.0, 10)),
        }
    }
}

impl BrokerMetrics {
    /// Counts refused messages.
    pub(crate) fn refused(&self, code: &'static str, count: u64) {
        self.refused
            .get_or_create(&CodeLabel { code })
            .inc_by(count);
        *self.refused_by_code.lock().entry(code).or_default() += count;
    }

    /// Status of the broker that these settings name; `None` without one.
    pub(crate) fn state(&self, settings: &Mqtt) -> Option<BrokerState> {
        Some(BrokerState {
            broker: settings.login.broker.as_ref()?.to_string(),
            connected: self.connected.get() > 0,
            connects: self.connects.get(),
            failures: self.failures.get(),
            subscriptions: settings.subscriptions.len(),
            subscriptions_refused: self.subscriptions_refused.get(),
            received: self.received.get(),
            skipped: self.skipped.get(),
            done: self.acknowledged.get(),
            waiting: self.waiting.get(),
            values: self.values.get(),
            retries: self.retries.get(),
            refused: self.refused_by_code.lock().clone(),
        })
    }

    /// Records that the connection is closed.
    pub(crate) fn disconnected(&self) {
        self.connected.set(0);
    }

    /// Registers the metrics for `/metrics`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("mqtt");
        registry.register(
            "connected",
            "1 while the broker is connected",
            self.connected.clone(),
        );
        registry.register(
            "subscriptions_refused",
            "Subscriptions that the broker refused at the last connection",
            self.subscriptions_refused.clone(),
        );
        registry.register("connects", "Connections made", self.connects.clone());
        registry.register(
            "connection_failures",
            "Connections that ended or failed",
            self.failures.clone(),
        );
        registry.register(
            "messages_received",
            "Messages received, including redeliveries",
            self.received.clone(),
        );
        registry.register(
            "messages_skipped",
            "Retained messages that were skipped, as configured",
            self.skipped.clone(),
        );
        registry.register(
            "messages_done",
            "Messages stored or refused",
            self.acknowledged.clone(),
        );
        registry.register(
            "messages_waiting",
            "Messages received and not yet stored",
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
            "Retried writes, because the database was busy, full or closed",
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
