//! Summary of an import, on stderr.

use crate::grid::{bytes, grouped};
use headwater::Timestamp;
use headwater_wire::RefusedLine;
use std::collections::BTreeMap;
use std::time::Duration;

/// Refused lines shown with their text.
const SHOWN_MAX: usize = 10;

/// 1971: nothing was measured in that year, but a time in a larger unit than was meant lands before
/// it.
const IMPLAUSIBLE_BEFORE_NS: i64 = 365 * 86_400 * 1_000_000_000;

/// Counts over all files.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) rows: u64,
    /// Of these, rows that fell on the stream and time of another row.
    pub(super) replaced: u64,
    /// The newest time of a row.
    pub(super) newest: Option<Timestamp>,
    pub(super) empty_rows: u64,
    pub(super) lines: u64,
    pub(super) text_bytes: u64,
    pub(super) elapsed: Duration,
    /// The input has no lines, only rows.
    pub(super) counts_rows: bool,
    refused_by_code: BTreeMap<String, u64>,
    /// The refused lines with the lowest file and line, at most [`SHOWN_MAX`].
    shown: BTreeMap<(usize, u64), RefusalSample>,
    files: Vec<String>,
}

#[derive(Debug)]
struct RefusalSample {
    code: String,
    message: String,
    original: String,
}

impl Summary {
    pub(super) fn start_file(&mut self, name: String) {
        self.files.push(name);
    }

    fn file_index(&self) -> usize {
        self.files.len().saturating_sub(1)
    }

    /// Counts lines of a code.
    pub(super) fn count(&mut self, code: &str, lines: u64) {
        if let Some(count) = self.refused_by_code.get_mut(code) {
            *count += lines;
        } else {
            self.refused_by_code.insert(code.to_owned(), lines);
        }
    }

    /// Shows a line of the present file, if it is among the first.
    pub(super) fn show(&mut self, line: u64, code: &str, message: &str, original: &str) {
        let place = (self.file_index(), line);
        let is_full = self.shown.len() >= SHOWN_MAX;
        if is_full
            && self
                .shown
                .last_key_value()
                .is_some_and(|(last, _)| *last < place)
        {
            return;
        }
        let shown = RefusalSample {
            code: code.to_owned(),
            message: message.to_owned(),
            original: original.to_owned(),
        };
        self.shown.insert(place, shown);
        if self.shown.len() > SHOWN_MAX {
            self.shown.pop_last();
        }
    }

    pub(super) fn show_refused(&mut self, refused: &RefusedLine) {
        self.show(
            refused.line,
            refused.code.as_str(),
            &refused.message,
            &refused.original,
        );
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused_by_code.values().sum()
    }

    pub(super) fn print(&self, is_dry_run: bool) {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let verb = if is_dry_run { "would store" } else { "stored" };
        let unit = if self.counts_rows { "row" } else { "line" };
        let units = format!("{unit}s");
        eprintln!(
            "{verb} {} rows from {} {units} in {seconds:.2} s: {} rows/s, {}/s",
            grouped(self.rows),
            grouped(self.lines),
            grouped((self.rows as f64 / seconds) as u64),
            bytes((self.text_bytes as f64 / seconds) as u64),
        );
        if self.replaced > 0 {
            eprintln!(
                "{} of these have the stream and time of another row, and replaced its values field by field (to keep both: a new table with --duplicates keep)",
                grouped(self.replaced)
            );
        }
        if self
            .newest
            .is_some_and(|newest| (0..IMPLAUSIBLE_BEFORE_NS).contains(&newest.as_nanos()))
        {
            eprintln!(
                "warning: all times lie in 1970: is their unit correct? See --precision and --time-format; a spreadsheet's dates, such as 45300.4375, count days since 1900, so export them as text"
            );
        }
        if self.empty_rows > 0 {
            eprintln!(
                "{} rows had no value and store nothing",
                grouped(self.empty_rows)
            );
        }
        if self.refused() == 0 {
            return;
        }
        eprintln!("warning: {} {units} were refused:", grouped(self.refused()));
        for (code, count) in &self.refused_by_code {
            eprintln!("  {:<16} {:>12}", code, grouped(*count));
        }
        eprintln!("the first of them:");
        for ((file, line), shown) in &self.shown {
            let file = match self.files.get(*file) {
                Some(name) if self.files.len() > 1 => format!("{name}, "),
                _ => String::new(),
            };
            eprintln!("  {file}{unit} {line}: {}: {}", shown.code, shown.message);
            if !shown.original.is_empty() {
                eprintln!("    {}", printable(&shown.original));
            }
        }
    }
}

/// Without control characters, which could upset a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{FFFD}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_are_shown_in_whatever_order_they_come() {
        let mut summary = Summary::default();
        summary.start_file("a".into());
        for line in (1..=30).rev() {
            summary.count("E_TYPE", 1);
            summary.show(line, "E_TYPE", "", "");
        }
        let lines: Vec<u64> = summary.shown.keys().map(|(_, line)| *line).collect();
        assert_eq!(lines, (1..=10).collect::<Vec<_>>());
        assert_eq!(summary.refused(), 30);
    }
}
