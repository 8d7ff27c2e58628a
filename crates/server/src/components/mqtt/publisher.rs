//! Publishes messages to the broker, over the connection that receives messages from it.
//!
//! Invariants: a message is reported as delivered only when the broker has acknowledged it. A
//! message in flight when the connection ended is reported as lost, and is not repeated here: its
//! sender decides. Concurrency: one lock, held while a message is queued, so that messages are sent
//! in the order in which they were queued.

use crate::component::MessagePublisher;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rumqttc::v5::AsyncClient;
use rumqttc::v5::mqttbytes::QoS;
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;

/// Sends messages to the broker.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// `None` = not connected.
    client: Option<AsyncClient>,
    /// Messages that do not have a packet identifier yet.
    queued: VecDeque<oneshot::Sender<()>>,
    /// Messages that the broker has not acknowledged.
    unacknowledged: HashMap<u16, oneshot::Sender<()>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("is_connected", &self.client.is_some())
            .field("queued", &self.queued.len())
            .field("sent", &self.unacknowledged.len())
            .finish()
    }
}

impl Publisher {
    /// Sets the client of a new connection.
    pub(crate) fn connected(&self, client: AsyncClient) {
        self.inner.lock().client = Some(client);
    }

    /// Assigns a packet identifier to the oldest queued message.
    pub(crate) fn assign_packet(&self, number: u16) {
        let mut inner = self.inner.lock();
        if let Some(sender) = inner.queued.pop_front() {
            inner.unacknowledged.insert(number, sender);
        }
    }

    /// Handles the broker's answer to a message: accepted or refused.
    pub(crate) fn acknowledge(&self, number: u16, has_it: bool) {
        let sender = self.inner.lock().unacknowledged.remove(&number);
        if let Some(sender) = sender.filter(|_| has_it) {
            // The sender may have been cancelled.
            let _ = sender.send(());
        }
    }

    /// Ends the connection, and with it all messages in flight.
    pub(crate) fn disconnected(&self) {
        *self.inner.lock() = Inner::default();
    }
}

impl MessagePublisher for Publisher {
    fn is_connected(&self) -> bool {
        self.inner.lock().client.is_some()
    }

    fn publish<'a>(&'a self, topic: &'a str, payload: String) -> BoxFuture<'a, bool> {
        let acknowledged = {
            let mut inner = self.inner.lock();
            let payload = Bytes::from(payload);
            let queued = inner.client.as_ref().is_some_and(|client| {
                let queued = client.try_publish(topic, QoS::AtLeastOnce, false, payload);
                queued.is_ok()
            });
            queued.then(|| {
                let (sender, acknowledged) = oneshot::channel();
                inner.queued.push_back(sender);
                acknowledged
            })
        };
        Box::pin(async move {
            match acknowledged {
                Some(acknowledged) => acknowledged.await.is_ok(),
                None => false,
            }
        })
    }
}
