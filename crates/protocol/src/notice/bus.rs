//! What carries notices.

use crate::notice::hub::{Hub, Subscription};

/// Carries notices, at least once: the newest of each topic is kept for who comes later, and those
/// before it may be left out.
///
/// Who may tell and hear is decided where a client is known: by the routes of a server, or by the
/// broker, from the rules of [`mosquitto`](crate::notice::mosquitto).
pub trait Bus: std::fmt::Debug + Send + Sync {
    /// Has a notice told under a topic, now or as soon as there is a link, instead of those before
    /// it. It never waits and never fails: nothing depends on a notice.
    fn publish(&self, topic: &str, notice: &[u8]);

    /// What comes from now on, the newest of each topic and how the link is before that.
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
