//! What carries notices.

use crate::hub::Subscription;
use std::sync::Arc;

/// What comes from a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It carries notices from now on, or does so no more. What was told between two of these may
    /// be lost.
    Link(bool),
    /// A notice, or what somebody sent as one.
    Notice {
        /// Where it was told.
        topic: Arc<str>,
        /// Its bytes, as they came.
        bytes: Arc<[u8]>,
    },
}

/// Carries notices, at least once: the newest of each topic is kept for who comes later, and those
/// before it may be left out.
///
/// Who may tell and hear is decided where a client is known: by the routes of a server, or by the
/// broker, from the rules of [`mosquitto`](crate::mosquitto).
pub trait Bus: std::fmt::Debug + Send + Sync {
    /// Has a notice told under a topic, now or as soon as there is a link, instead of those before
    /// it. It never waits and never fails: nothing depends on a notice.
    fn publish(&self, topic: &str, notice: &[u8]);

    /// What comes from now on, the newest of each topic and how the link is before that.
    fn subscribe(&self) -> Subscription;
}
