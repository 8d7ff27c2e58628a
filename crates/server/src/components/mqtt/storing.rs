//! Writes messages to the database, and acknowledges them to the broker.
//!
//! Invariants: batches are written one after the other and acknowledged in that order. A batch that
//! cannot be stored as a whole although the database works is split until the faulty message is
//! isolated.

use super::{Message, Shared};
use crate::ingest::{Outcome, Pending, Terms, Unfinished, hand_in};
use headwater::{Error, ErrorKind};
use headwater_wire::lineprotocol::ParserOptions;
use headwater_wire::message::{MessageParser, MessageRules};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// Maximum messages of a batch, and maximum bytes of their payloads.
const BATCH_MESSAGES: usize = 4096;
const BATCH_BYTES: usize = 2 << 20;
/// Batches whose durability is awaited at the same time.
const UNDER_WAY: usize = 16;
/// Pauses before storing is tried again.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Bad messages are logged this often at most.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Batch to be written.
struct HandedIn {
    parts: Vec<Pending>,
    messages: Arc<Vec<Message>>,
    values: u64,
}

/// Takes messages from the queue until it ends, and signals when all of them are stored.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut queue: mpsc::Receiver<Message>,
    stored: Arc<Notify>,
) {
    let (send, receive) = mpsc::channel(UNDER_WAY);
    let handing = async {
        let mut taker = Taker::new(Arc::clone(&shared), send);
        let mut messages = Vec::new();
        while queue.recv_many(&mut messages, BATCH_MESSAGES).await > 0 {
            for batch in batches(std::mem::take(&mut messages)) {
                taker.store(batch).await;
            }
        }
    };
    let awaiting = await_all(&shared, receive);
    tokio::join!(handing, awaiting);
    stored.notify_one();
}

/// Splits messages into batches of bounded size.
fn batches(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut bytes = 0;
    for message in messages {
        if bytes + message.payload.len() > BATCH_BYTES && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += message.payload.len();
        part.push(message);
    }
    parts.push(part);
    parts
}

/// Waits for each batch to be durable, and acknowledges it.
async fn await_all(shared: &Shared, mut batches: mpsc::Receiver<HandedIn>) {
    while let Some(batch) = batches.recv().await {
        let mut is_durable = true;
        for part in batch.parts {
            match part.ticket.await {
                Ok(written) => shared.app.live.publish(part.news, &written.refused),
                Err(error) => {
                    is_durable = false;
                    tracing::error!(%error, "mqtt: messages are not stored; the broker will send them again");
                }
            }
        }
        let figures = &shared.metrics;
        figures.waiting.dec_by(batch.messages.len() as i64);
        if !is_durable {
            shared.reconnect.notify_one();
            continue;
        }
        shared.acknowledge(&batch.messages);
        figures.acknowledged.inc_by(batch.messages.len() as u64);
        figures.values.inc_by(batch.values);
        shared.app.metrics.points_accepted(batch.values);
        for message in batch.messages.iter() {
            figures
                .seconds
                .observe(message.received.elapsed().as_secs_f64());
        }
    }
}

/// Hands batches to the engine.
struct Taker {
    shared: Arc<Shared>,
    parser: Arc<Mutex<MessageParser>>,
    under_way: mpsc::Sender<HandedIn>,
    logged: Option<Instant>,
    /// Refused messages since the last log line.
    unlogged: u64,
}

/// Reason why a batch was not stored.
enum Failure {
    /// The batch itself is faulty.
    Batch(&'static str, String),
    /// The server stops.
    Stopping,
}

impl Taker {
    fn new(shared: Arc<Shared>, under_way: mpsc::Sender<HandedIn>) -> Taker {
        Taker {
            parser: Arc::new(Mutex::new(parser(&shared))),
            shared,
            under_way,
            logged: None,
            unlogged: 0,
        }
    }

    async fn store(&mut self, messages: Vec<Message>) {
        let mut rest = vec![messages];
        while let Some(mut messages) = rest.pop() {
            let whole = Arc::new(messages);
            match self.hand_in(&whole).await {
                Ok(outcome) => {
                    self.refused(&outcome, &whole);
                    self.await_later(whole, outcome).await;
                    continue;
                }
                // Not acknowledged, so the broker sends the messages again.
                Err(Failure::Stopping) => {
                    self.shared.metrics.waiting.dec_by(whole.len() as i64);
                    continue;
                }
                Err(Failure::Batch(code, message)) if whole.len() == 1 => {
                    self.shared.metrics.refused(code, 1);
                    self.shared.app.metrics.lines_refused(code, 1);
                    self.log(&whole, 1, code, &message, 1);
                    self.await_later(whole, Outcome::default()).await;
                    continue;
                }
                Err(Failure::Batch(..)) => {}
            }
            // The call that had the other reference has ended.
            let Some(taken) = Arc::into_inner(whole) else {
                tracing::error!(
                    "mqtt: messages are still in use; they are stored at their next delivery"
                );
                self.shared.reconnect.notify_one();
                continue;
            };
            messages = taken;
            let second = messages.split_off(messages.len() / 2);
            rest.push(second);
            rest.push(messages);
        }
    }

    async fn await_later(&self, messages: Arc<Vec<Message>>, outcome: Outcome) {
        let batch = HandedIn {
            parts: outcome.parts,
            messages,
            values: outcome.values,
        };
        // The receiver lives as long as this.
        let _ = self.under_way.send(batch).await;
    }

    /// Writes a batch, and retries while the database cannot accept it.
    async fn hand_in(&mut self, messages: &Arc<Vec<Message>>) -> Result<Outcome, Failure> {
        let mut pause = RETRY;
        loop {
            let call = {
                let (parser, messages) = (Arc::clone(&self.parser), Arc::clone(messages));
                self.shared.app.ingest.call(move |context| {
                    let parsed = {
                        let mut parser = parser.lock();
                        let numbered = (1..).zip(messages.iter());
                        for (number, message) in numbered.filter(|(_, m)| !m.is_skipped) {
                            let topic = String::from_utf8_lossy(&message.topic);
                            parser.add(&topic, &message.payload, message.arrived, number);
                        }
                        parser.take()
                    };
                    let terms = Terms {
                        access: None,
                        accept_partial: true,
                        producer: None,
                    };
                    let mut outcome = Outcome::default();
                    hand_in(context, terms, parsed, &mut outcome)?;
                    Ok::<Outcome, Error>(outcome)
                })
            };
            let why = match call.await {
                Ok(Ok(outcome)) => return Ok(outcome),
                Ok(Err(error)) if error.kind() == ErrorKind::Invalid => {
                    return Err(Failure::Batch("E_LIMIT_BATCH", error.to_string()));
                }
                Ok(Err(error)) => error.to_string(),
                Err(Unfinished::Busy) => "too many writes are waiting".to_owned(),
                Err(Unfinished::Stopping) => return Err(Failure::Stopping),
                Err(Unfinished::Panicked) => {
                    self.parser = Arc::new(Mutex::new(parser(&self.shared)));
                    let message = "reading the message failed inside the server".to_owned();
                    return Err(Failure::Batch("E_INTERNAL", message));
                }
            };
            self.shared.metrics.retries.inc();
            if pause > RETRY {
                tracing::warn!(
                    why,
                    pause_ms = pause.as_millis(),
                    "mqtt: messages cannot be stored now; they wait, and are not acknowledged"
                );
            }
            if self.shared.pause(pause).await {
                return Err(Failure::Stopping);
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    fn refused(&mut self, outcome: &Outcome, messages: &[Message]) {
        let refusals = &outcome.refusals;
        if refusals.is_empty() {
            return;
        }
        for (code, count) in refusals.by_code() {
            self.shared.metrics.refused(code, *count);
            self.shared.app.metrics.lines_refused(code, *count);
        }
        for (number, code, message) in refusals.first_of_each() {
            let count = refusals.by_code().get(code).copied().unwrap_or_default();
            self.log(messages, number, code, message, count);
        }
    }

    /// Logs a bad message, unless one was logged recently.
    fn log(&mut self, messages: &[Message], number: u64, code: &str, message: &str, count: u64) {
        if self.logged.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            self.unlogged += count;
            return;
        }
        let index = usize::try_from(number).unwrap_or_default().wrapping_sub(1);
        let bad = messages.get(index);
        let topic = bad.map(|m| String::from_utf8_lossy(&m.topic).into_owned());
        let payload = bad.map(|m| headwater_wire::cut_line(&m.payload));
        tracing::warn!(
            topic,
            code,
            message,
            payload,
            count,
            not_logged = self.unlogged,
            "mqtt: a message cannot be stored, and is skipped"
        );
        self.logged = Some(Instant::now());
        self.unlogged = 0;
    }
}

fn parser(shared: &Shared) -> MessageParser {
    let rules: Vec<MessageRules> = shared
        .settings
        .subscriptions
        .iter()
        .map(|subscription| subscription.rules.clone())
        .collect();
    let mut options = ParserOptions::new(headwater::Timestamp::from_nanos(0));
    options.line_bytes_max = shared.app.ingest.limits().line_max;
    options.instants = Some(Arc::clone(shared.app.db().instants()));
    MessageParser::new(rules, options)
}
