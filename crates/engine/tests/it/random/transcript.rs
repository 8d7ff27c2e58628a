//! What a world has been through: the last steps for whoever has to understand a failure, and
//! counts, so that a test can tell that it tested something.

use std::collections::BTreeMap;

/// Steps that a failure shows.
const SHOWN: usize = 30;

#[derive(Clone, Debug, Default)]
pub(super) struct Transcript {
    lines: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    /// Of all lines (FNV-1a), so that two worlds can be compared.
    hash: u64,
}

impl Transcript {
    pub(super) fn line(&mut self, line: String) {
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if super::is_verbose() {
            eprintln!("{line}");
        }
        self.lines.push(line);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub(super) fn add(&mut self, what: &'static str, number: u64) {
        *self.counts.entry(what).or_default() += number;
    }

    pub(super) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn merge(&mut self, other: &Transcript) {
        for (what, number) in &other.counts {
            self.add(what, *number);
        }
    }

    /// The last steps.
    pub(super) fn last(&self) -> String {
        let from = self.lines.len().saturating_sub(SHOWN);
        self.lines[from..].join("\n")
    }
}
