//! Events of the engine beside the results of calls: recovery, work in the background that failed
//! and is tried again.
//!
//! Invariants: one receiver for the process. When `hw_log_to` returns, the receiver before is not
//! running and is not called again.
//! Concurrency: the receiver is called from any thread, by one or several at a time.
//! Failure: without a receiver events are dropped, as in a Rust program without a subscriber.

use crate::status::{Outcome, guard, hw_error, invalid};
use crate::text::hw_str;
use std::ffi::c_void;
use std::fmt::Write;
use std::sync::{OnceLock, PoisonError, RwLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A person must look: something failed for good.
pub const HW_LOG_ERROR: i32 = 1;
/// Something failed and is tried again, or was put right.
pub const HW_LOG_WARN: i32 = 2;
/// Events of normal operation, such as recovery.
pub const HW_LOG_INFO: i32 = 3;

/// Receives an event of the engine: a level and a text, which is valid during the call. The
/// function must return soon, and must not call the library.
pub type hw_log_fn = Option<unsafe extern "C" fn(user: *mut c_void, level: i32, message: hw_str)>;

struct Receiver {
    call: unsafe extern "C" fn(*mut c_void, i32, hw_str),
    user: *mut c_void,
    level_max: i32,
}

// SAFETY: the pointer is only handed to the caller's function, which takes calls from any thread by
// contract.
unsafe impl Send for Receiver {}
// SAFETY: as above.
unsafe impl Sync for Receiver {}

static RECEIVER: RwLock<Option<Receiver>> = RwLock::new(None);
/// Whether this process lets us listen; checked once.
static LISTENING: OnceLock<bool> = OnceLock::new();

fn number(level: Level) -> i32 {
    match level {
        Level::ERROR => HW_LOG_ERROR,
        Level::WARN => HW_LOG_WARN,
        Level::INFO => HW_LOG_INFO,
        _ => i32::MAX,
    }
}

/// Hands events of the engine on; spans are not looked at.
struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("headwater") && number(*metadata.level()) <= HW_LOG_INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = number(*event.metadata().level());
        let held = RECEIVER.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(receiver) = held.as_ref().filter(|r| level <= r.level_max) {
            let mut text = Text::default();
            event.record(&mut text);
            let message = format!("{}{}", text.message, text.fields);
            // SAFETY: by contract it may be called from any thread until another one is set, which
            // waits for the lock taken here.
            unsafe { (receiver.call)(receiver.user, level, hw_str::of(&message)) };
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event as text: its message, then ` name=value` for each field.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Sets the receiver of the engine's events beside the results of calls, up to a level:
/// HW_LOG_ERROR, HW_LOG_WARN or HW_LOG_INFO. There is one receiver for all databases of the
/// process; receiver NULL = nobody. user is handed on to it as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hw_log_to(
    receiver: hw_log_fn,
    user: *mut c_void,
    level_max: i32,
    error: *mut hw_error,
) -> i32 {
    guard(error, || {
        if !(HW_LOG_ERROR..=HW_LOG_INFO).contains(&level_max) {
            return Err(invalid(format!(
                "level_max: expected HW_LOG_ERROR (1) to HW_LOG_INFO (3), found {level_max}"
            )));
        }
        if receiver.is_some() {
            listen()?;
        }
        *RECEIVER.write().unwrap_or_else(PoisonError::into_inner) = receiver.map(|call| Receiver {
            call,
            user,
            level_max,
        });
        Ok(())
    })
}

fn listen() -> Outcome<()> {
    let is_listening =
        LISTENING.get_or_init(|| tracing::subscriber::set_global_default(Listener).is_ok());
    if *is_listening {
        Ok(())
    } else {
        Err(invalid(
            "this process already has a subscriber of Rust's `tracing`: use it for events of targets that begin with `headwater`",
        ))
    }
}
