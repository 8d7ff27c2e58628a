//! Log lines: text or JSON on stderr, times in UTC with milliseconds.

use crate::settings::LogFormat;
use headwater_io::{Clock as _, SystemClock};
use headwater_wire::instant::Rfc3339;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// RFC 3339, UTC, milliseconds.
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        write!(w, "{:.3}", Rfc3339(SystemClock::new().now()))
    }
}

/// Checks that a text is a level or directives.
///
/// # Errors
/// A description of the defect.
pub fn check_level(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("there is no level".to_owned());
    }
    EnvFilter::builder()
        .parse(text)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Starts logging at this level, or by these directives; the variable `HEADWATER_LOG` overrides
/// both. No effect if the program already logs in another way.
pub fn begin(level: &str, format: LogFormat) {
    // The level was checked when the setting was parsed.
    let filter = EnvFilter::try_from_env("HEADWATER_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_timer(Clock)
        .with_ansi(std::io::stderr().is_terminal());
    // An error means that a subscriber is already installed.
    let _ = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .try_init(),
    };
}
