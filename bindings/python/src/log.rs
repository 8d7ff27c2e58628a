//! Events of the engine beside the results of calls (recovery, work in the background that failed),
//! on their way to Python's `logging`.
//!
//! Invariants: threads of the engine never wait for Python. Events are put into a queue of at most
//! [`QUEUE_MAX`]; further events are counted and dropped. A thread of the Python side removes them.

use pyo3::prelude::*;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Events that may wait.
const QUEUE_MAX: usize = 1000;

struct Queue {
    events: VecDeque<(u32, String)>,
    lost: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    events: VecDeque::new(),
    lost: 0,
});
static FILLED: Condvar = Condvar::new();
static LISTENING: Once = Once::new();

/// The level as `logging` numbers it; 0 for events that are not passed on.
fn number(level: Level) -> u32 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 0,
    }
}

/// An event as text: the message, then its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

/// Queues events of the engine; spans are not looked at.
struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("headwater") && number(*metadata.level()) > 0
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.events.len() < QUEUE_MAX {
            let told = (
                number(*event.metadata().level()),
                text.message + &text.fields,
            );
            queue.events.push_back(told);
        } else {
            queue.lost += 1;
        }
        FILLED.notify_one();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The next event, as level and text; waits for one, at most `seconds`. `None` after the timeout.
#[pyfunction]
pub(crate) fn next_event(py: Python<'_>, seconds: f64) -> Option<(u32, String)> {
    LISTENING.call_once(|| {
        // This library has no other listener, so this cannot fail.
        let _ = tracing::subscriber::set_global_default(Listener);
    });
    let longest = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    py.detach(|| {
        let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        let empty = |queue: &mut Queue| queue.events.is_empty() && queue.lost == 0;
        let (mut queue, _) = FILLED
            .wait_timeout_while(queue, longest, empty)
            .unwrap_or_else(PoisonError::into_inner);
        queue.events.pop_front().or_else(|| {
            let lost = std::mem::take(&mut queue.lost);
            (lost > 0).then(|| {
                (
                    30,
                    format!("{lost} messages were dropped: they arrived too fast"),
                )
            })
        })
    })
}
