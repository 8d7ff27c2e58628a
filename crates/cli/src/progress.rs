//! Progress on stderr, only when it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar over a known number of bytes, or a spinner.
pub(crate) fn bytes_bar(total: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {msg} {eta}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{prefix} {spinner} {bytes} {bytes_per_sec} {msg} {elapsed}",
        ),
    };
    styled(bar, template)
}

/// A spinner with a message, for work of unknown length.
pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    styled(
        ProgressBar::new_spinner().with_message(message),
        "{spinner} {msg} {elapsed}",
    )
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(125));
    bar
}
