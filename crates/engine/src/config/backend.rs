//! Settings of I/O back ends with a fixed set of words.
//!
//! Invariants: the displayed text parses as the same value; a word, once released, keeps its
//! meaning.
//! Concurrency: plain values.
//! Failure: an unknown word is `invalid`, and the error lists the known ones.

use crate::{Error, Result};
use headwater_io::queue::PlacementRule;
use std::fmt;
use std::str::FromStr;

/// System calls for reading and writing files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoBackend {
    /// Blocking calls. The default.
    #[default]
    File,
    /// Blocking calls, and for read-ahead a queue of the kernel (io_uring); only blocking calls
    /// where the kernel refuses a queue, which is logged.
    Uring,
}

/// Assignment of segments to queue sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueuePlacement {
    /// The queue set with the least load: the sum of the requests for its segments per unit of
    /// time. The default.
    #[default]
    Load,
    /// As in the paper on queue sets: the one with the least frequent requests per segment on
    /// average, regardless of the number of its segments.
    Interval,
}

/// The words of a setting, and their meanings.
const BACKENDS: [(&str, IoBackend); 2] = [("file", IoBackend::File), ("uring", IoBackend::Uring)];
const PLACEMENTS: [(&str, QueuePlacement); 2] = [
    ("load", QueuePlacement::Load),
    ("interval", QueuePlacement::Interval),
];

impl IoBackend {
    /// The allowed words.
    pub const WORDS: &[&str] = &["file", "uring"];
}

impl QueuePlacement {
    /// The allowed words.
    pub const WORDS: &[&str] = &["load", "interval"];

    pub(crate) fn rule(self) -> PlacementRule {
        match self {
            QueuePlacement::Load => PlacementRule::LeastLoad,
            QueuePlacement::Interval => PlacementRule::LargestMeanInterval,
        }
    }
}

fn read<T: Copy>(what: &str, words: &[(&str, T)], text: &str) -> Result<T> {
    let found = words.iter().find(|(word, _)| *word == text.trim());
    found.map(|(_, value)| *value).ok_or_else(|| {
        let expected: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Error::invalid(format!(
            "{what}: expected {}, found `{text}`",
            expected.join(" or ")
        ))
    })
}

impl FromStr for IoBackend {
    type Err = Error;

    fn from_str(text: &str) -> Result<IoBackend> {
        read("io.backend", &BACKENDS, text)
    }
}

impl FromStr for QueuePlacement {
    type Err = Error;

    fn from_str(text: &str) -> Result<QueuePlacement> {
        read("io.placement", &PLACEMENTS, text)
    }
}

impl fmt::Display for IoBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoBackend::File => "file",
            IoBackend::Uring => "uring",
        })
    }
}

impl fmt::Display for QueuePlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueuePlacement::Load => "load",
            QueuePlacement::Interval => "interval",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn words_read_back_as_what_they_show_and_others_are_refused() {
        for (word, value) in BACKENDS {
            assert_eq!(word.parse::<IoBackend>().unwrap(), value);
            assert_eq!(value.to_string(), word);
        }
        for (word, value) in PLACEMENTS {
            assert_eq!(word.parse::<QueuePlacement>().unwrap(), value);
            assert_eq!(value.to_string(), word);
        }
        assert!(BACKENDS.iter().map(|(word, _)| word).eq(IoBackend::WORDS));
        assert!(
            PLACEMENTS
                .iter()
                .map(|(word, _)| word)
                .eq(QueuePlacement::WORDS)
        );
        let error = "iouring".parse::<IoBackend>().unwrap_err().to_string();
        assert!(
            error.contains("expected file or uring, found `iouring`"),
            "{error}"
        );
    }
}
