//! Metrics of a dispatcher.
//!
//! Concurrency: counters are atomics; gauges of nodes are as of the last refresh.

use headwater_protocol::dispatch::NodeStats;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlaceLabel {
    place: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

/// Metrics of a dispatcher.
#[derive(Debug, Default)]
pub(crate) struct DispatcherMetrics {
    redirects: Family<PlaceLabel, Counter>,
    relays: Family<PlaceLabel, Counter>,
    relay_bytes: Counter,
    false_hits: Counter,
    live: Family<NodeLabel, Gauge>,
    streams: Family<NodeLabel, Gauge>,
    tiles: Family<NodeLabel, Gauge>,
    tile_bytes: Family<NodeLabel, Gauge>,
}

impl DispatcherMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "dispatch_redirects",
            "Redirected requests, by reason: base, filter, edge, unknown, whole, partial, node",
            self.redirects.clone(),
        );
        registry.register(
            "dispatch_relays",
            "Relayed answers, by reason",
            self.relays.clone(),
        );
        registry.register(
            "dispatch_relay_bytes",
            "Bytes of relayed answers",
            self.relay_bytes.clone(),
        );
        registry.register(
            "dispatch_false_hits",
            "Relayed answers that another node had than the routing tables said",
            self.false_hits.clone(),
        );
        for (name, help, figure) in [
            ("dispatch_node_live", "1 while the node answers", &self.live),
            (
                "dispatch_node_streams",
                "Streams in the inventory of the node",
                &self.streams,
            ),
            (
                "dispatch_node_tiles",
                "Single tiles in the inventory of the node",
                &self.tiles,
            ),
            (
                "dispatch_node_tile_bytes",
                "Bytes of memory for the filters of single tiles",
                &self.tile_bytes,
            ),
        ] {
            registry.register(name, help, figure.clone());
        }
    }

    pub(crate) fn redirected(&self, place: &'static str) {
        self.redirects.get_or_create(&PlaceLabel { place }).inc();
    }

    pub(crate) fn relayed(&self, place: &'static str) {
        self.relays.get_or_create(&PlaceLabel { place }).inc();
    }

    /// Counter of relayed bytes.
    pub(crate) fn passed_bytes(&self) -> Counter {
        self.relay_bytes.clone()
    }

    pub(crate) fn false_hit(&self) {
        self.false_hits.inc();
    }

    /// Sets the gauges of a node.
    pub(crate) fn of_node(&self, url: &str, known: &NodeStats) {
        let label = NodeLabel {
            node: url.to_owned(),
        };
        let wide = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let long = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for (figure, value) in [
            (&self.live, i64::from(known.is_live)),
            (&self.streams, long(known.streams)),
            (&self.tiles, wide(known.tiles)),
            (&self.tile_bytes, long(known.tile_bytes)),
        ] {
            figure.get_or_create(&label).set(value);
        }
    }
}
