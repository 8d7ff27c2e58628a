//! Messages from an MQTT 5 broker, into the database.
//!
//! Purpose: connects with the settings, subscribes, parses messages by the rules of their topics,
//! passes them to the engine, and acknowledges them to the broker. Manual for operators:
//! docs/mqtt.md.
//!
//! Invariants: a message of QoS 1 is acknowledged only when the engine reports its values as
//! durable as the database is configured, or when it can never be stored and that has been counted
//! and logged. Acknowledgements are sent in the order in which messages arrived. A message is
//! acknowledged only on the connection it arrived on: after that the broker sends it again, and its
//! number may mean another one. Rows of a stream are written in the order of their messages. No
//! more than `mqtt.receive_max` messages of QoS 1 and `mqtt.bytes_max` bytes are in memory; beyond
//! that, reading stops.
//!
//! Concurrency: three tasks: [`connection`] reads from the broker, [`storing`] parses and writes
//! (on the threads of [`crate::ingest`]), and awaits durability. A batch consists of all messages
//! that arrived while the previous batch was written.
//!
//! Failure: a lost connection is re-established, with growing pauses; the session at the broker
//! remains, so the broker sends unacknowledged messages again. While the engine cannot store (full,
//! busy, closed), no message is acknowledged and storing is retried. If a task panics, all three
//! start over.

mod component;
mod connection;
mod metrics;
mod publisher;
mod storing;

pub(crate) use component::Broker;
use metrics::BrokerMetrics;

use crate::app::App;
use crate::settings::{Mqtt, Settings};
use crate::start_error::StartError;
use bytes::Bytes;
use connection::Connection;
use headwater::Timestamp;
use headwater_cluster::broker::options;

use parking_lot::Mutex;
use rumqttc::v5::AsyncClient;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::Publish;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// Pause between the end of the tasks by a panic and their restart.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// Approximate memory of a message without its topic and payload.
const MESSAGE_BYTES: usize = 256;
/// Bytes per permit.
const PERMIT_BYTES: usize = 256;

/// Source of messages: a broker.
#[derive(Debug)]
pub(crate) struct Source {
    settings: Mqtt,
    pub(crate) metrics: Arc<BrokerMetrics>,
}

/// Message in flight.
#[derive(Debug)]
struct Message {
    topic: Bytes,
    payload: Bytes,
    /// Packet identifier; 0 for a message without acknowledgement.
    number: u16,
    /// Number of its connection.
    connection: u64,
    qos: QoS,
    arrived: Timestamp,
    received: Instant,
    /// The message is only acknowledged: a retained message, which the subscription excludes.
    is_skipped: bool,
    /// Released when the message is stored.
    _permit: OwnedSemaphorePermit,
}

/// Memory budget of messages, in permits of [`PERMIT_BYTES`].
struct Budget {
    permits: Arc<Semaphore>,
    total: u32,
}

impl Budget {
    fn new(permits: usize) -> Budget {
        let total = u32::try_from(permits).unwrap_or(u32::MAX).max(1);
        Budget {
            permits: Arc::new(Semaphore::new(total as usize)),
            total,
        }
    }

    /// Waits until `bytes` are free; for more than the whole budget, until the whole budget is
    /// free.
    async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let permits = permits.min(self.total);
        // Acquiring fails only when the semaphore is closed, which never happens.
        Arc::clone(&self.permits)
            .acquire_many_owned(permits)
            .await
            .ok()
    }
}

/// State that the tasks share.
struct Shared {
    app: Arc<App>,
    settings: Mqtt,
    metrics: Arc<BrokerMetrics>,
    client: AsyncClient,
    /// Number of the live connection. Locked while acknowledgements are queued on it, so that no
    /// acknowledgement is sent on the next connection.
    connection: Mutex<u64>,
    /// Requests a new connection, on which the broker sends unacknowledged messages again.
    reconnect: Notify,
    stopping: watch::Receiver<bool>,
}

impl Shared {
    /// Acknowledges messages of the live connection; the broker sends others again.
    fn acknowledge(&self, messages: &[Message]) {
        let connection = self.connection.lock();
        for message in messages {
            if message.number == 0 || message.connection != *connection {
                continue;
            }
            let mut publish = Publish::new("", message.qos, Bytes::new(), None);
            publish.pkid = message.number;
            if let Err(error) = self.client.try_ack(&publish) {
                // The queue fits all messages that can be open, so this is the end of the client.
                tracing::warn!(%error, "mqtt: a message could not be acknowledged: connecting again");
                self.reconnect.notify_one();
                return;
            }
        }
    }

    /// Waits, unless the server stops earlier. True when the server stops.
    async fn pause(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => true,
            () = tokio::time::sleep(time) => false,
        }
    }
}

impl Source {
    /// Creates the source of the settings; `None` when the settings do not name a broker.
    ///
    /// # Errors
    /// When certificates or passwords cannot be read.
    pub(crate) fn new(settings: &Settings) -> Result<Option<Source>, StartError> {
        if settings.mqtt.login.broker.is_none() {
            return Ok(None);
        }
        let settings = settings.mqtt.clone();
        options("mqtt", &settings.login).map_err(StartError::Mqtt)?;
        Ok(Some(Source {
            settings,
            metrics: Arc::default(),
        }))
    }

    /// Receives messages until the server stops; then returns after all received messages are
    /// stored and acknowledged.
    pub(crate) async fn run(self, app: Arc<App>) {
        loop {
            let tasks = tokio::spawn(tasks(
                Arc::clone(&app),
                self.settings.clone(),
                Arc::clone(&self.metrics),
            ));
            let Err(error) = tasks.await else {
                return;
            };
            self.metrics.disconnected();
            tracing::error!(%error, "mqtt: the subscriber panicked and restarts");
            let mut stopping = app.shell.stopping();
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(AFTER_PANIC) => {}
            }
        }
    }
}

/// One run of the three tasks.
async fn tasks(app: Arc<App>, settings: Mqtt, metrics: Arc<BrokerMetrics>) {
    // Fails only where it failed at the start, unless files were removed since: then the connection
    // reports the error.
    let connection = loop {
        match options("mqtt", &settings.login) {
            Ok(options) => break Connection::new(options),
            Err(error) => {
                tracing::error!(%error, "mqtt: cannot connect");
                tokio::time::sleep(AFTER_PANIC).await;
            }
        }
    };
    let (send, receive) = mpsc::channel(usize::from(settings.login.receive_max).max(1024));
    let permits = settings.bytes_max.max(settings.login.packet_max) / PERMIT_BYTES;
    let shared = Arc::new(Shared {
        stopping: app.shell.stopping(),
        app,
        settings,
        metrics,
        client: connection.client(),
        connection: Mutex::new(0),
        reconnect: Notify::new(),
    });
    // Messages of an earlier run are dropped.
    shared.metrics.waiting.set(0);
    let stored = Arc::new(Notify::new());
    let storing = storing::run(Arc::clone(&shared), receive, Arc::clone(&stored));
    let connection = connection.run(Arc::clone(&shared), send, Budget::new(permits), stored);
    tokio::join!(connection, storing);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_message_of_the_largest_size_finds_room_although_others_take_it() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let budget = Budget::new(16);
            let small = budget.reserve(1).await;
            let whole = budget.reserve(1 << 30);
            let waits = tokio::time::timeout(Duration::from_millis(20), whole).await;
            assert!(waits.is_err() && small.is_some());
            drop(small);
            assert!(budget.reserve(1 << 30).await.is_some());
        });
    }
}

#[cfg(test)]
mod redelivery_tests;
