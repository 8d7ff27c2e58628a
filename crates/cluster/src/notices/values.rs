//! Live values of this node, and live values that it has heard, beside the connection that carries
//! them.
//!
//! Invariants: what is published and stored is bounded by the state machines of
//! `headwater_protocol::live`. Nothing waits for the bus: a writer of values replaces the ones that
//! were not sent yet. Concurrency: a lock each for what is published and what was heard, taken for
//! single calls. Failure: malformed items are counted.

use super::NoticeMetrics;
use crate::settings::NoticeSettings;
use axum::http::Uri;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use headwater_protocol::live::{
    HeardOutcome, HeardValues, PublishAnswer, PublisherLimits, ValueListener, ValuePublisher,
    ValueRequest, topic_of,
};
use headwater_protocol::xmpp::Element;
use headwater_shell::ErrorAnswer;
use headwater_shell::access::Access;
use headwater_types::StreamName;
use headwater_wire::json::{push_integer_text, push_str, push_u64, push_value};
use headwater_wire::query::{Query, QueryError};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Live values of a node.
#[derive(Debug)]
pub struct LiveValues {
    prefix: String,
    hears: bool,
    publishes: bool,
    /// Epoch of items of this start.
    epoch: u64,
    started: Instant,
    publishing: Mutex<Publishing>,
    listener: Mutex<ValueListener>,
    offered: Notify,
    metrics: NoticeMetrics,
}

#[derive(Debug, Default)]
struct Publishing {
    /// `None` before the first values.
    publisher: Option<ValuePublisher>,
    is_connected: bool,
}

impl LiveValues {
    pub(super) fn new(settings: &NoticeSettings, epoch: u64, metrics: NoticeMetrics) -> LiveValues {
        LiveValues {
            prefix: settings.values_topic.clone(),
            hears: settings.hears_values,
            publishes: !settings.values.is_empty(),
            epoch,
            started: Instant::now(),
            publishing: Mutex::default(),
            listener: Mutex::default(),
            offered: Notify::new(),
            metrics,
        }
    }

    /// True where this node publishes values.
    pub fn publishes(&self) -> bool {
        self.publishes
    }

    /// True where this node hears values.
    pub fn hears(&self) -> bool {
        self.hears
    }

    /// Prefix of the topics of streams.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Changes what is published of the database with this identity.
    pub fn publish(&self, identity: u64, change: impl FnOnce(&mut ValuePublisher)) {
        {
            let mut publishing = self.publishing.lock();
            let is_connected = publishing.is_connected;
            let publisher = publishing.publisher.get_or_insert_with(|| {
                let limits = PublisherLimits::default();
                let mut publisher = ValuePublisher::new(limits, identity, self.epoch);
                publisher.set_connected(is_connected);
                publisher
            });
            let before = publisher.counts();
            change(publisher);
            self.metrics.count_published(before, publisher.counts());
        }
        self.offered.notify_one();
    }

    /// Runs a call with the publisher, if there is one.
    fn with<T>(&self, call: impl FnOnce(&mut ValuePublisher) -> T) -> Option<T> {
        let mut publishing = self.publishing.lock();
        let publisher = publishing.publisher.as_mut()?;
        let before = publisher.counts();
        let result = call(publisher);
        self.metrics.count_published(before, publisher.counts());
        Some(result)
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        let mut publishing = self.publishing.lock();
        publishing.is_connected = is_connected;
        if let Some(publisher) = &mut publishing.publisher {
            publisher.set_connected(is_connected);
        }
    }

    /// The next request, with its topic.
    pub(super) fn next_request(&self) -> Option<(String, ValueRequest)> {
        let now = self.now();
        let request = self.with(|publisher| publisher.next(now)).flatten()?;
        Some((topic_of(&self.prefix, request.stream()), request))
    }

    pub(super) fn answered(&self, stream: &str, is_retract: bool, answer: PublishAnswer) {
        let now = self.now();
        self.with(|publisher| publisher.answered(now, stream, is_retract, answer));
    }

    /// Waits until there may be something to publish.
    pub(super) async fn until_due(&self) {
        let due = self.with(|publisher| publisher.due()).flatten();
        // Refusals are tried again; a request that waits for room is woken by an answer.
        let pause = due.map(|due| due.saturating_sub(self.now()));
        let pause = pause.map(|pause| pause.max(Duration::from_millis(100)));
        match pause {
            None => self.offered.notified().await,
            Some(pause) => tokio::select! {
                () = self.offered.notified() => {}
                () = tokio::time::sleep(pause) => {}
            },
        }
    }

    /// Processes an item under the topic of a stream.
    pub(super) fn receive(&self, topic: &str, payload: Option<&Element>) {
        let now = self.now();
        let outcome = match payload {
            None => HeardOutcome::Garbled,
            Some(item) => self
                .listener
                .lock()
                .receive(now, (&self.prefix, topic), item),
        };
        self.metrics.count_heard(outcome);
    }

    /// Forgets streams whose topics this node does not hear any more.
    pub(super) fn forget(&self, test: impl Fn(&str) -> bool) {
        let gone = |stream: &str| test(&topic_of(&self.prefix, stream));
        self.listener.lock().retain(|stream| !gone(stream));
    }

    /// Newest heard values, with the time since they arrived, of these streams, or of all: those
    /// that the access may read.
    fn heard(
        &self,
        access: &Access,
        streams: Option<&BTreeSet<StreamName>>,
    ) -> Vec<(HeardValues, Duration)> {
        let now = self.now();
        let listener = self.listener.lock();
        let found = listener.all().filter(|heard| {
            // A name that is not one of a stream belongs to nobody.
            StreamName::parse(&heard.item.stream).is_some_and(|name| {
                streams.is_none_or(|wanted| wanted.contains(&name)) && access.may_read_stream(&name)
            })
        });
        found
            .map(|heard| (heard.clone(), now.saturating_sub(heard.heard)))
            .collect()
    }
}

/// Path of the route about values that were heard.
pub const VALUES_PATH: &str = "/api/v1/notices/values";
/// Most streams of a request.
const STREAMS_MAX: usize = 1_000;

impl LiveValues {
    /// Answers a request about values that were heard: of the streams in its address, or of all.
    /// Streams that were not heard, or may not be read, are left out.
    ///
    /// # Errors
    /// For an address that cannot be parsed.
    pub fn answer(&self, access: &Access, uri: &Uri) -> Result<Response, ErrorAnswer> {
        let query = Query::parse(uri.query().unwrap_or_default())?;
        query.only(&["stream"])?;
        let mut streams = BTreeSet::new();
        for text in query.all("stream") {
            let expected =
                "expected table,tag=value with \\ before a comma, `=` or blank in a name";
            let stream = StreamName::parse(text);
            streams.insert(stream.ok_or_else(|| QueryError::value("stream", expected, text))?);
        }
        if streams.len() > STREAMS_MAX {
            let text = streams.len().to_string();
            return Err(QueryError::value("stream", "expected at most 1000 streams", &text).into());
        }
        let streams = (!streams.is_empty()).then_some(streams);
        let body = heard_json(&self.heard(access, streams.as_ref()));
        let headers = [
            (CONTENT_TYPE, "application/json"),
            (CACHE_CONTROL, "no-cache"),
        ];
        Ok((headers, body).into_response())
    }
}

/// Heard values as JSON.
fn heard_json(all: &[(HeardValues, Duration)]) -> Vec<u8> {
    let mut out = b"{\"streams\":[".to_vec();
    for (index, (heard, age)) in all.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let item = &heard.item;
        out.extend_from_slice(b"{\"stream\":");
        push_str(&mut out, &item.stream);
        out.extend_from_slice(b",\"source\":");
        push_str(&mut out, &format!("{:016x}", item.source));
        out.extend_from_slice(b",\"age_ms\":");
        push_u64(&mut out, u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        out.extend_from_slice(b",\"missed\":");
        push_u64(&mut out, heard.missed);
        out.extend_from_slice(b",\"omitted\":");
        push_u64(&mut out, item.omitted);
        out.extend_from_slice(b",\"fields\":{");
        for (index, value) in item.values.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            push_str(&mut out, &value.field);
            out.extend_from_slice(b":{\"time\":");
            push_integer_text(&mut out, value.time.as_nanos());
            out.extend_from_slice(b",\"value\":");
            push_value(&mut out, value.value.as_ref());
            out.push(b'}');
        }
        out.extend_from_slice(b"}}");
    }
    out.extend_from_slice(b"]}");
    out
}
