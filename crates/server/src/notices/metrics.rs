//! Metrics of notices.
//!
//! Concurrency: counters are atomics.

use headwater_protocol::notice::{Heard, Why};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhatLabel {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabel {
    why: &'static str,
}

/// Metrics of notices. Clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct NoticeMetrics {
    /// 1 while the broker carries notices.
    pub(crate) connected: Gauge,
    pub(crate) connects: Counter,
    pub(crate) failures: Counter,
    pub(crate) refused: Counter,
    pub(crate) told: Counter,
    missed: Counter,
    heard: Family<WhatLabel, Counter>,
    asked: Family<WhyLabel, Counter>,
}

impl NoticeMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("notices");
        registry.register(
            "connected",
            "1 while a broker carries notices",
            self.connected.clone(),
        );
        registry.register("connects", "Connections made", self.connects.clone());
        registry.register(
            "connection_failures",
            "Connections that ended or were not made",
            self.failures.clone(),
        );
        registry.register(
            "refused",
            "Subscriptions and notices that the broker refused",
            self.refused.clone(),
        );
        registry.register("told", "Notices of this node", self.told.clone());
        registry.register(
            "missed",
            "Notices of other nodes that did not come, as their numbers say",
            self.missed.clone(),
        );
        registry.register(
            "heard",
            "Notices of other nodes, by what they were: news, known, late, forged, garbled",
            self.heard.clone(),
        );
        registry.register(
            "asked",
            "Questions to nodes, by why: unknown, news, gone, gap, check, waiting",
            self.asked.clone(),
        );
    }

    /// Counts a notice of a followed node.
    pub(crate) fn heard(&self, heard: Heard) {
        let what = match heard {
            Heard::News { missed } => {
                self.missed.inc_by(missed);
                "news"
            }
            Heard::Known => "known",
            Heard::Late => "late",
            Heard::Forged => "forged",
            // The worker that follows that node counts it.
            Heard::Other => return,
        };
        self.heard.get_or_create(&WhatLabel { what }).inc();
    }

    /// Counts an invalid notice.
    pub(crate) fn garbled(&self) {
        let what = "garbled";
        self.heard.get_or_create(&WhatLabel { what }).inc();
    }

    /// Counts a request; without a reason, a request that waits at the node.
    pub(crate) fn asked(&self, why: Option<Why>) {
        let why = match why {
            Some(Why::Unknown) => "unknown",
            Some(Why::News) => "news",
            Some(Why::Gone) => "gone",
            Some(Why::Gap) => "gap",
            Some(Why::Check) => "check",
            None => "waiting",
        };
        self.asked.get_or_create(&WhyLabel { why }).inc();
    }
}
