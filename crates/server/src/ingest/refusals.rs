//! Lines of a body that were not stored.
//!
//! Invariant: every refused line is counted under one code; the first [`LINES_MAX`] of each source
//! are retained with their text.

use headwater_wire::RefusedLine;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Refused lines in one answer.
const LINES_MAX: usize = 1_000;

/// Line that was not stored.
#[derive(Debug)]
struct Line {
    line: u64,
    code: &'static str,
    message: String,
    original: String,
}

/// All refusals of a body.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    lines: Vec<Line>,
    by_code: BTreeMap<&'static str, u64>,
}

impl Refusals {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_code.is_empty()
    }

    /// Lines refused in all.
    pub(crate) fn total(&self) -> u64 {
        self.by_code.values().sum()
    }

    pub(crate) fn by_code(&self) -> &BTreeMap<&'static str, u64> {
        &self.by_code
    }

    /// Adds the refusals of the parser.
    pub(super) fn parsed(
        &mut self,
        lines: Vec<RefusedLine>,
        counts: &headwater_wire::RefusalCounts,
    ) {
        for (code, count) in counts.iter() {
            *self.by_code.entry(code.as_str()).or_default() += count;
        }
        self.lines.extend(lines.into_iter().map(|l| Line {
            line: l.line,
            code: l.code.as_str(),
            message: l.message,
            original: l.original,
        }));
    }

    /// Adds a well-formed line that was refused later. [`Refusals::finish`] fills in its text.
    pub(super) fn later(
        &mut self,
        line: u64,
        code: &'static str,
        message: impl FnOnce() -> String,
    ) {
        let count = self.by_code.entry(code).or_default();
        *count += 1;
        if *count <= LINES_MAX as u64 {
            self.lines.push(Line {
                line,
                code,
                message: message(),
                original: String::new(),
            });
        }
    }

    /// As [`Refusals::finish`], with the texts of points, or of other items that are counted as
    /// lines.
    pub(crate) fn finish_points(&mut self, points: &[impl AsRef<[u8]>]) {
        self.lines.sort_by_key(|l| l.line);
        self.lines.truncate(LINES_MAX);
        for line in self.lines.iter_mut().filter(|l| l.original.is_empty()) {
            let at = usize::try_from(line.line)
                .ok()
                .and_then(|n| n.checked_sub(1));
            let text = at.and_then(|at| points.get(at)).map(AsRef::as_ref);
            line.original = headwater_wire::cut_line(text.unwrap_or_default());
        }
    }

    /// Sorts by line, truncates, and fills in texts from the body.
    pub(crate) fn finish(&mut self, text: &[u8]) {
        self.lines.sort_by_key(|l| l.line);
        self.lines.truncate(LINES_MAX);
        let mut wanted = self
            .lines
            .iter_mut()
            .filter(|l| l.original.is_empty())
            .peekable();
        if wanted.peek().is_none() {
            return;
        }
        for (number, original) in (1u64..).zip(text.split(|b| *b == b'\n')) {
            while let Some(line) = wanted.next_if(|l| l.line <= number) {
                line.original = headwater_wire::cut_line(original);
            }
            if wanted.peek().is_none() {
                return;
            }
        }
    }

    /// True when every refusal concerns the content of a well-formed line, not its form.
    pub(crate) fn all_well_formed(&self) -> bool {
        let malformed = ["E_PARSE", "E_TIME", "E_UTF8", "E_LIMIT_LINE"];
        !malformed.iter().any(|code| self.by_code.contains_key(code))
    }

    /// True when all lines were refused for missing rights.
    pub(crate) fn all_forbidden(&self) -> bool {
        !self.by_code.is_empty() && self.by_code.keys().all(|code| *code == "E_ACCESS")
    }

    /// The first retained refusal of each code: line, code and message.
    #[allow(dead_code, reason = "used by optional components")]
    pub(crate) fn first_of_each(&self) -> Vec<(u64, &'static str, &str)> {
        let mut first: Vec<(u64, &'static str, &str)> = Vec::new();
        for line in &self.lines {
            if !first.iter().any(|(_, code, _)| *code == line.code) {
                first.push((line.line, line.code, &line.message));
            }
        }
        first
    }

    /// The first refusal, for the message.
    pub(crate) fn first(&self) -> String {
        self.first_of("line")
    }

    /// The first refusal, of an item called `line` or otherwise.
    pub(crate) fn first_of(&self, what: &str) -> String {
        self.lines
            .first()
            .map(|l| format!("{what} {}: {}: {}", l.line, l.code, l.message))
            .unwrap_or_default()
    }

    /// The list, as in the answer.
    pub(crate) fn to_json(&self) -> Value {
        let lines = self.lines.iter().map(|l| {
            json!({ "line": l.line, "code": l.code, "message": l.message, "original": l.original })
        });
        Value::Array(lines.collect())
    }
}
