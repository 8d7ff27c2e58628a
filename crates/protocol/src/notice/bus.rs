//! The transport of notices.

use crate::notice::hub::{Hub, Subscription};

/// Carries notices, at least once: the newest of each topic is retained for later subscribers, and
/// the ones before it may be left out.
///
/// The right to publish and hear is checked where a client is known: by the routes of a server, or
/// by the broker, from the rules of [`mosquitto`](crate::notice::mosquitto).
pub trait Bus: std::fmt::Debug + Send + Sync {
    /// Publishes a notice under a topic, now or as soon as there is a link, in place of the ones
    /// before it. Never waits and never fails: nothing depends on a notice.
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
