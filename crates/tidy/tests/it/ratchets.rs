//! Counts that may only fall: what the rules of the house want seldom, and there is still much of.

use std::fmt::Write;
use tidy::{assert_all_crates, assert_none, counts};

/// For each crate its counts. The test writes the lines for a new one.
const MOST: &[(&str, [(&str, usize); 9])] = &[
    (
        "crates/types",
        [
            (counts::CASTS, 61),
            (counts::INDEXING, 1),
            (counts::DEFAULTED, 11),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 2),
        ],
    ),
    (
        "crates/codec",
        [
            (counts::CASTS, 125),
            (counts::INDEXING, 4),
            (counts::DEFAULTED, 14),
            (counts::SKIPPED, 1),
            (counts::LONG_FUNCTIONS, 1),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 2),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/io",
        [
            (counts::CASTS, 25),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 1),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/late",
        [
            (counts::CASTS, 120),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 1),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 14),
        ],
    ),
    (
        "crates/block",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/watch",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/protocol",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 1),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/engine",
        [
            (counts::CASTS, 353),
            (counts::INDEXING, 28),
            (counts::DEFAULTED, 15),
            (counts::SKIPPED, 24),
            (counts::LONG_FUNCTIONS, 12),
            (counts::MANY_ARGUMENTS, 9),
            (counts::WIDE_COMMENTS, 1),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 12),
        ],
    ),
    (
        "crates/headwater",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/wire",
        [
            (counts::CASTS, 52),
            (counts::INDEXING, 1),
            (counts::DEFAULTED, 36),
            (counts::SKIPPED, 1),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 7),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 1),
        ],
    ),
    (
        "crates/ask",
        [
            (counts::CASTS, 33),
            (counts::INDEXING, 1),
            (counts::DEFAULTED, 2),
            (counts::SKIPPED, 6),
            (counts::LONG_FUNCTIONS, 1),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 11),
        ],
    ),
    (
        "crates/columnar",
        [
            (counts::CASTS, 2),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 2),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/lake",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/query",
        [
            (counts::CASTS, 46),
            (counts::INDEXING, 3),
            (counts::DEFAULTED, 9),
            (counts::SKIPPED, 7),
            (counts::LONG_FUNCTIONS, 3),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 2),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 3),
        ],
    ),
    (
        "crates/postgres",
        [
            (counts::CASTS, 36),
            (counts::INDEXING, 50),
            (counts::DEFAULTED, 10),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 7),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/shell",
        [
            (counts::CASTS, 9),
            (counts::INDEXING, 3),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/cluster",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 1),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 1),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/bucket",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/server",
        [
            (counts::CASTS, 31),
            (counts::INDEXING, 6),
            (counts::DEFAULTED, 5),
            (counts::SKIPPED, 7),
            (counts::LONG_FUNCTIONS, 4),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 2),
        ],
    ),
    (
        "crates/cli",
        [
            (counts::CASTS, 52),
            (counts::INDEXING, 14),
            (counts::DEFAULTED, 7),
            (counts::SKIPPED, 6),
            (counts::LONG_FUNCTIONS, 4),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 5),
        ],
    ),
    (
        "crates/ffi",
        [
            (counts::CASTS, 32),
            (counts::INDEXING, 22),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 18),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/lab",
        [
            (counts::CASTS, 296),
            (counts::INDEXING, 51),
            (counts::DEFAULTED, 12),
            (counts::SKIPPED, 3),
            (counts::LONG_FUNCTIONS, 5),
            (counts::MANY_ARGUMENTS, 1),
            (counts::WIDE_COMMENTS, 2),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 15),
        ],
    ),
    (
        "crates/testing",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 0),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "crates/tidy",
        [
            (counts::CASTS, 0),
            (counts::INDEXING, 21),
            (counts::DEFAULTED, 0),
            (counts::SKIPPED, 1),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 0),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 0),
        ],
    ),
    (
        "bindings/python",
        [
            (counts::CASTS, 4),
            (counts::INDEXING, 0),
            (counts::DEFAULTED, 9),
            (counts::SKIPPED, 1),
            (counts::LONG_FUNCTIONS, 0),
            (counts::MANY_ARGUMENTS, 10),
            (counts::WIDE_COMMENTS, 0),
            (counts::FRAGMENTS, 0),
            (counts::BARE_INSTANTS, 1),
        ],
    ),
];

/// The counts as they are called in [`MOST`].
const NAMES: [(&str, &str); 9] = [
    ("CASTS", counts::CASTS),
    ("INDEXING", counts::INDEXING),
    ("DEFAULTED", counts::DEFAULTED),
    ("SKIPPED", counts::SKIPPED),
    ("LONG_FUNCTIONS", counts::LONG_FUNCTIONS),
    ("MANY_ARGUMENTS", counts::MANY_ARGUMENTS),
    ("WIDE_COMMENTS", counts::WIDE_COMMENTS),
    ("FRAGMENTS", counts::FRAGMENTS),
    ("BARE_INSTANTS", counts::BARE_INSTANTS),
];

/// What to add to [`MOST`] for a crate.
fn lines_for(folder: &str) -> String {
    let found = counts::of(folder);
    let mut lines = format!("    (\n        \"{folder}\",\n        [\n");
    for (name, what) in NAMES {
        let count = found[what];
        writeln!(lines, "            (counts::{name}, {count}),").unwrap();
    }
    lines + "        ],\n    ),"
}

#[test]
fn every_crate_has_its_counts() {
    let listed: Vec<&str> = MOST.iter().map(|(folder, _)| *folder).collect();
    assert_all_crates("MOST of ratchets.rs", &listed, lines_for);
}

#[test]
fn what_is_to_become_seldom_becomes_no_more() {
    let mut offences = Vec::new();
    for &(folder, most) in MOST {
        let found = counts::of(folder);
        assert_eq!(
            found.len(),
            most.len(),
            "{folder}: every count has a number"
        );
        for (what, most) in most {
            let count = found[what];
            if count > most {
                offences.push(format!(
                    "{folder}: {count} × {what}; {most} were there before"
                ));
            } else if count < most {
                offences.push(format!(
                    "{folder}: {count} × {what}; write that number down instead of {most}"
                ));
            }
        }
    }
    assert_none("counts that may only fall", &offences);
}
