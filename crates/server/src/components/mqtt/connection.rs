//! Connection to the broker: established, and re-established.
//!
//! Invariant: a message received by a connection that has ended is not acknowledged; the number of
//! the connection increases under the lock of acknowledgements, where acknowledgements queued for
//! the old connection are dropped.

use super::{Budget, MESSAGE_BYTES, Message, Shared};
use crate::request::now;
use crate::settings::Subscription;
use headwater::Timestamp;
use headwater_cluster::broker::options;
use rumqttc::Outgoing;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnectReturnCode, Filter, Packet, PubAckReason, Publish, RetainForwardRule, SubAck,
    SubscribeReasonCode,
};
use rumqttc::v5::{AsyncClient, ConnectionError, Event, EventLoop, MqttOptions, Request};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// The first pause after a lost connection, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time limit for storing received messages once the server stops.
const STORE_TIME: Duration = Duration::from_secs(10);
/// Time limit for disconnecting.
const GOODBYE_TIME: Duration = Duration::from_secs(1);
/// Requests that may wait in the client: as many acknowledgements as messages can have numbers,
/// plus a reserve. The receive maximum is not a bound: some brokers send more when a session
/// resumes.
const REQUESTS_MAX: usize = 65_536 + 64;

/// Client that is not connected yet.
pub(super) struct Connection {
    client: AsyncClient,
    events: EventLoop,
}

/// State of reading.
struct Reading {
    shared: Arc<Shared>,
    events: EventLoop,
    queue: Option<mpsc::Sender<Message>>,
    budget: Budget,
    is_connected: bool,
    pause: Duration,
    /// Time of the newest message, so that times are unique.
    newest: i64,
}

impl Connection {
    pub(super) fn new(options: MqttOptions) -> Connection {
        let (client, events) = AsyncClient::new(options, REQUESTS_MAX);
        Connection { client, events }
    }

    pub(super) fn client(&self) -> AsyncClient {
        self.client.clone()
    }

    /// Reads until the server stops, then continues until `stored`, so that acknowledgements are
    /// sent.
    pub(super) async fn run(
        self,
        shared: Arc<Shared>,
        queue: mpsc::Sender<Message>,
        budget: Budget,
        stored: Arc<Notify>,
    ) {
        let mut stopping = shared.stopping.clone();
        let mut reading = Reading {
            shared,
            events: self.events,
            queue: Some(queue),
            budget,
            is_connected: false,
            pause: PAUSE,
            newest: i64::MIN,
        };
        tokio::select! {
            // An error means that the server has stopped.
            _ = stopping.wait_for(|stop| *stop) => {}
            () = reading.read() => {}
        }
        // The end of the queue lets the other tasks finish.
        reading.queue = None;
        let finish = async {
            if reading.is_connected {
                tokio::select! {
                    () = stored.notified() => {}
                    () = reading.send_only() => {}
                }
            }
        };
        if tokio::time::timeout(STORE_TIME, finish).await.is_err() {
            tracing::warn!(
                "mqtt: messages were not stored in time; the broker will send them again"
            );
        }
        reading.shared.app.broker().publisher.disconnected();
        reading.goodbye().await;
        reading.shared.metrics.disconnected();
    }
}

impl Reading {
    async fn read(&mut self) {
        loop {
            let event = tokio::select! {
                () = self.shared.reconnect.notified() => None,
                event = self.events.poll() => Some(event),
            };
            match event {
                Some(Ok(Event::Incoming(Packet::Publish(publish)))) => self.message(publish).await,
                Some(Ok(Event::Incoming(Packet::ConnAck(answer)))) => self.connected(&answer),
                Some(Ok(Event::Incoming(Packet::SubAck(answer)))) => self.subscribed(&answer),
                Some(Ok(Event::Outgoing(Outgoing::Publish(number)))) => {
                    self.shared.app.broker().publisher.assign_packet(number);
                }
                Some(Ok(Event::Incoming(Packet::PubAck(answer)))) => {
                    let has_it = matches!(
                        answer.reason,
                        PubAckReason::Success | PubAckReason::NoMatchingSubscribers
                    );
                    self.shared
                        .app
                        .broker()
                        .publisher
                        .acknowledge(answer.pkid, has_it);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.log_failure(&error);
                    self.start_over().await;
                }
                None => self.start_over().await,
            }
        }
    }

    /// Sends pending packets, and receives no more.
    async fn send_only(&mut self) {
        // When the connection ends now, the broker sends unacknowledged messages again when the
        // server is back.
        while self.events.poll().await.is_ok() {}
        self.is_connected = false;
    }

    async fn goodbye(&mut self) {
        // Polling without a connection would open a new one.
        if !self.is_connected || self.shared.client.try_disconnect().is_err() {
            return;
        }
        let sent = async {
            loop {
                match self.events.poll().await {
                    Ok(Event::Outgoing(Outgoing::Disconnect)) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        // A lost broker does not need a DISCONNECT.
        let _ = tokio::time::timeout(GOODBYE_TIME, sent).await;
    }

    fn connected(&mut self, answer: &ConnAck) {
        let shared = &self.shared;
        self.is_connected = true;
        shared.metrics.connected.set(1);
        shared.metrics.connects.inc();
        shared
            .app
            .broker()
            .publisher
            .connected(shared.client.clone());
        self.pause = PAUSE;
        let broker = shared.settings.login.broker.as_ref();
        tracing::info!(
            broker = broker.map(ToString::to_string),
            client_id = shared.settings.login.client_id,
            session = if answer.session_present {
                "kept"
            } else {
                "new"
            },
            "mqtt: connected"
        );
        let subscriptions = shared.settings.subscriptions.iter();
        if let Err(error) = shared.client.try_subscribe_many(subscriptions.map(filter)) {
            tracing::error!(%error, "mqtt: cannot subscribe: connecting again");
            shared.reconnect.notify_one();
        }
    }

    fn subscribed(&self, answer: &SubAck) {
        let subscriptions = &self.shared.settings.subscriptions;
        let mut refused = 0;
        for (subscription, code) in subscriptions.iter().zip(&answer.return_codes) {
            let topic = &subscription.rules.topic;
            match code {
                SubscribeReasonCode::Success(QoS::AtMostOnce) => tracing::warn!(
                    %topic,
                    "mqtt: the broker grants only QoS 0: messages may be lost in transit"
                ),
                SubscribeReasonCode::Success(_) => tracing::info!(%topic, "mqtt: subscribed"),
                code => {
                    refused += 1;
                    tracing::error!(%topic, ?code, "mqtt: the broker refuses the subscription");
                }
            }
        }
        self.shared.metrics.subscriptions_refused.set(refused);
    }

    /// Queues a message, after the memory budget allows it.
    async fn message(&mut self, publish: Publish) {
        let shared = &self.shared;
        shared.metrics.received.inc();
        let Some(queue) = &self.queue else {
            return;
        };
        let bytes = publish.payload.len() + publish.topic.len() + MESSAGE_BYTES;
        // Reading stops meanwhile; a broker with a timeout sends unacknowledged messages again.
        let Some(permit) = self.budget.reserve(bytes).await else {
            return;
        };
        // No two messages have the same time, or the second would replace the first.
        let arrived = now().as_nanos().max(self.newest.saturating_add(1));
        self.newest = arrived;
        let is_skipped = publish.retain && skips_retained(shared, &publish.topic);
        if is_skipped {
            shared.metrics.skipped.inc();
        }
        let message = Message {
            topic: publish.topic,
            payload: publish.payload,
            number: publish.pkid,
            connection: *shared.connection.lock(),
            qos: publish.qos,
            arrived: Timestamp::from_nanos(arrived),
            received: Instant::now(),
            is_skipped,
            _permit: permit,
        };
        shared.metrics.waiting.inc();
        if queue.send(message).await.is_err() {
            // Storing has ended, by a panic that ends this too.
            shared.metrics.waiting.dec();
        }
    }

    /// Ends the connection, waits, and starts the next one.
    async fn start_over(&mut self) {
        self.is_connected = false;
        let shared = &self.shared;
        shared.metrics.disconnected();
        shared.metrics.failures.inc();
        {
            let mut connection = shared.connection.lock();
            *connection += 1;
            // Including acknowledgements that were queued since the connection broke.
            self.events.clean();
            // Senders of messages are notified of the loss, and send again.
            self.events
                .pending
                .retain(|request| !matches!(request, Request::Publish(_)));
            shared.app.broker().publisher.disconnected();
        }
        // Packets that were read but not processed: the broker sends unacknowledged messages again.
        let unread = std::mem::take(&mut self.events.state.events);
        for event in unread {
            if let Event::Incoming(Packet::Publish(publish)) = event
                && publish.qos == QoS::AtMostOnce
            {
                self.message(publish).await;
            }
        }
        let pause = with_jitter(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        tracing::info!(
            pause_ms = pause.as_millis(),
            "mqtt: connecting again after a pause"
        );
        tokio::time::sleep(pause).await;
        match options("mqtt", &self.shared.settings.login) {
            Ok(options) => self.events.options = options,
            // With the previous settings: passwords and certificates may be about to be replaced.
            Err(error) => {
                tracing::error!(%error, "mqtt: the settings cannot be read again: the previous ones stay in force")
            }
        }
    }

    fn log_failure(&self, error: &ConnectionError) {
        match error {
            ConnectionError::ConnectionRefused(
                code @ (ConnectReturnCode::BadUserNamePassword
                | ConnectReturnCode::NotAuthorized
                | ConnectReturnCode::ClientIdentifierNotValid
                | ConnectReturnCode::UnsupportedProtocolVersion),
            ) => tracing::error!(?code, "mqtt: the broker refuses the connection"),
            error => tracing::warn!(%error, "mqtt: cannot connect"),
        }
    }
}

fn filter(subscription: &Subscription) -> Filter {
    let mut filter = Filter::new(subscription.rules.topic.filter(), QoS::AtLeastOnce);
    filter.retain_forward_rule = if subscription.skip_retained {
        RetainForwardRule::Never
    } else {
        // Retained messages have arrived already if the session is an old one.
        RetainForwardRule::OnNewSubscribe
    };
    filter
}

/// A broker may send retained messages all the same, for another subscription that matches the
/// topic.
fn skips_retained(shared: &Shared, topic: &[u8]) -> bool {
    let Ok(topic) = std::str::from_utf8(topic) else {
        return false;
    };
    let mut subscriptions = shared.settings.subscriptions.iter();
    subscriptions
        .find(|s| s.rules.topic.matches(topic).is_some())
        .is_some_and(|s| s.skip_retained)
}

/// Between half and all of a time, so that many servers do not reconnect at once.
fn with_jitter(time: Duration) -> Duration {
    let noise = now().as_nanos().unsigned_abs() / 1_000 % 1_000;
    time / 2 + time / 2 * u32::try_from(noise).unwrap_or_default() / 1_000
}
