//! Log lines: text or JSON on stderr, times in UTC with milliseconds.

use crate::settings::{LogFormat, Settings};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// RFC 3339, UTC, milliseconds.
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        write!(w, "{:.3}", jiff::Timestamp::now())
    }
}

/// Whether a text is a level or directives.
pub(crate) fn check_level(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("there is no level".to_owned());
    }
    EnvFilter::builder()
        .parse(text)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Begins to write log messages as the settings say; the variable `HEADWATER_LOG` goes before the level set. Does nothing if
/// the program already does so in another way.
pub fn begin(settings: &Settings) {
    // The level was checked when it was set.
    let filter = EnvFilter::try_from_env("HEADWATER_LOG")
        .unwrap_or_else(|_| EnvFilter::new(&settings.log_level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_timer(Clock)
        .with_ansi(std::io::stderr().is_terminal());
    // An error says that there is a subscriber.
    let _ = match settings.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .try_init(),
    };
}
