//! Connection to an MQTT 5 broker: publishes notices of this node, receives notices of others.
//!
//! Invariants: the broker retains the newest notice of this node, sent with QoS 1, and published
//! again on each new connection. The broker has no session: polling the nodes replaces missed
//! notices. A link exists after the broker has granted the subscription. Concurrency: one task.
//! Failure: a connection that ends is re-established, with growing pauses.

use super::pauses::Pauses;
use super::{LastWords, Notices, next};
use crate::broker::options;
use headwater_protocol::notice::{Event, NOTICE_BYTES_MAX};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Filter, LastWill, Packet, PubAckReason, RetainForwardRule, SubscribeReasonCode,
};
use rumqttc::v5::{AsyncClient, Event as Happened, EventLoop, MqttOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Requests that may wait in the client.
const REQUESTS_MAX: usize = 16;
/// Largest packet that is accepted: a notice, its topic, and the overhead of MQTT.
const PACKET_MAX: u32 = 4 * 1024;
/// Keep-alive interval of the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// State of one connection.
struct Connection<'a> {
    notices: &'a Notices,
    client: AsyncClient,
    /// Notices may be sent.
    is_there: Notify,
}

/// Maintains a connection, for ever.
pub(super) async fn run_connections(notices: &Notices, last_words: Option<LastWords>) {
    let mut pauses = Pauses::default();
    let number = AtomicU64::new(0);
    loop {
        notices.until_open().await;
        let before = notices.metrics.connects.get();
        let ended = match connecting(notices, last_words.as_ref(), &number) {
            Ok(options) => tokio::select! {
                why = once(notices, options) => why,
                () = notices.until_paused() => {
                    pauses.begin_pause(notices);
                    continue;
                }
            },
            Err(why) => why,
        };
        tokio::time::sleep(pauses.after(notices, before, &ended)).await;
    }
}

/// Options of the next connection.
fn connecting(
    notices: &Notices,
    last_words: Option<&LastWords>,
    number: &AtomicU64,
) -> Result<MqttOptions, String> {
    let settings = &notices.settings;
    let mut login = settings.login.clone();
    // A new identifier at each start, so that two servers with the same name do not close each
    // other's connections for ever; no state is stored under the identifier.
    let chance = headwater_shell::access::token::random_hex::<8>().map_err(|e| e.to_string())?;
    login.client_id = format!("headwater-{}-{chance}", settings.name);
    login.keep_alive = KEEP_ALIVE;
    let mut options = options("notices", &login)?;
    options.set_clean_start(true);
    options.set_session_expiry_interval(None);
    options.set_receive_maximum(None);
    options.set_manual_acks(false);
    options.set_max_packet_size(Some(PACKET_MAX));
    if let (Some(words), Some(signer)) = (last_words, &notices.signer) {
        let number = number.fetch_add(1, Ordering::SeqCst) + 1;
        let words = words(number);
        // Not retained: a later subscriber polls each node anyway.
        let will = LastWill::new(&signer.topic, words, QoS::AtLeastOnce, false, None);
        options.set_last_will(will);
    }
    Ok(options)
}

/// Runs one connection until it ends. Returns the reason.
async fn once(notices: &Notices, options: MqttOptions) -> String {
    let (client, events) = AsyncClient::new(options, REQUESTS_MAX);
    let connection = Connection {
        notices,
        client,
        is_there: Notify::new(),
    };
    tokio::select! {
        why = connection.read(events) => why,
        why = connection.publish_notices() => why,
    }
}

impl Connection<'_> {
    /// Publishes notices of this node, the newest first of all.
    async fn publish_notices(&self) -> String {
        self.is_there.notified().await;
        let mut published = self.notices.published.subscribe();
        loop {
            if let Event::Notice { topic, bytes } = next(&mut published).await {
                let bytes = bytes.to_vec();
                let sent = self.client.publish(&*topic, QoS::AtLeastOnce, true, bytes);
                if let Err(error) = sent.await {
                    return error.to_string();
                }
            }
        }
    }

    async fn read(&self, mut events: EventLoop) -> String {
        loop {
            match events.poll().await {
                Ok(Happened::Incoming(packet)) => {
                    if let Err(why) = self.take(packet).await {
                        return why;
                    }
                }
                Ok(Happened::Outgoing(_)) => {}
                Err(error) => return error.to_string(),
            }
        }
    }

    async fn take(&self, packet: Packet) -> Result<(), String> {
        let metrics = &self.notices.metrics;
        match packet {
            Packet::ConnAck(_) => {
                metrics.connects.inc();
                let broker = self.notices.settings.login.broker.as_ref();
                tracing::info!(
                    broker = broker.map(ToString::to_string),
                    "notices: connected"
                );
                if self.notices.signer.is_some() {
                    metrics.connected.set(1);
                    self.is_there.notify_one();
                    return Ok(());
                }
                let topics = format!("{}/+", self.notices.settings.topic);
                let mut filter = Filter::new(topics, QoS::AtLeastOnce);
                filter.retain_forward_rule = RetainForwardRule::OnEverySubscribe;
                let subscribed = self.client.subscribe_many([filter]).await;
                subscribed.map_err(|error| error.to_string())
            }
            Packet::SubAck(answer) => {
                let is_granted =
                    |code: &SubscribeReasonCode| matches!(code, SubscribeReasonCode::Success(_));
                if !answer.return_codes.iter().all(is_granted) {
                    metrics.refused.inc();
                    return Err(format!(
                        "the broker refuses the subscription: {:?}",
                        answer.return_codes
                    ));
                }
                metrics.connected.set(1);
                self.notices.received.set_linked(true);
                Ok(())
            }
            Packet::Publish(publish) => {
                let topic = std::str::from_utf8(&publish.topic);
                match topic {
                    Ok(topic) if publish.payload.len() <= NOTICE_BYTES_MAX => {
                        self.notices.received.publish(topic, &publish.payload);
                    }
                    _ => metrics.garbled(),
                }
                Ok(())
            }
            Packet::PubAck(answer) => {
                let has_it = matches!(
                    answer.reason,
                    PubAckReason::Success | PubAckReason::NoMatchingSubscribers
                );
                if !has_it {
                    metrics.refused.inc();
                    tracing::error!(
                        reason = ?answer.reason,
                        "notices: the broker does not accept notices from this node"
                    );
                }
                Ok(())
            }
            Packet::Disconnect(answer) => Err(format!(
                "the broker ends the connection: {:?}",
                answer.reason_code
            )),
            _ => Ok(()),
        }
    }
}
