//! The transport of notices.

use crate::notice::hub::{Hub, Subscription};

/// Carries notices, at least once: the newest notice of each topic is retained for later
/// subscribers; older notices may be dropped.
///
/// The right to publish and subscribe is checked by the server's routes, or by the broker with the
/// rules of [`mosquitto`](crate::notice::mosquitto).
pub trait Bus: std::fmt::Debug + Send + Sync {
    /// Publishes a notice under a topic, now or once there is a link, replacing older notices.
    /// Never blocks and never fails: no state depends on a notice.
    fn publish(&self, topic: &str, notice: &[u8]);

    /// Subscribes to later notices, preceded by the newest of each topic and the state of the link.
    fn subscribe(&self) -> Subscription;
}

impl Bus for Hub {
    fn publish(&self, topic: &str, notice: &[u8]) {
        Hub::publish(self, topic, notice);
    }

    fn subscribe(&self) -> Subscription {
        Hub::subscribe(self)
    }
}
