//! The rules of the repository that no lint knows, and what reads sources for them. The rules are
//! the tests of this crate; each lists every offence at once, with the file and what to do.
//!
//! Invariants: nothing here needs the network or builds anything of ours; sources are parsed, not
//! searched by patterns, where a rule is about code.
//! Failure: a source that cannot be read or parsed is a panic with its name: the compiler says
//! more.
#![allow(clippy::disallowed_methods, reason = "it reads sources")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use it, and they are to end with a message"
)]

pub mod architecture;
pub mod counts;
pub mod modules;
pub mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// The top folder of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let tidy = Path::new(env!("CARGO_MANIFEST_DIR"));
    tidy.ancestors()
        .nth(2)
        .expect("crates/tidy lies two folders below the top")
        .to_owned()
}

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 6] = [
    "target",
    ".git",
    "node_modules",
    "demo.db",
    "sample.db",
    "seeds",
];

/// All files below `dir` whose name ends in `ending`, sorted, as paths from the top folder with
/// `/`.
#[must_use]
pub fn files(dir: &str, ending: &str) -> Vec<String> {
    fn walk(dir: &Path, ending: &str, out: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(dir) else {
            return;
        };
        for entry in entries.map(Result::unwrap) {
            let (name, kind) = (entry.file_name(), entry.file_type().unwrap());
            let name = name.to_string_lossy();
            if kind.is_dir() && !SKIPPED.contains(&&*name) {
                walk(&entry.path(), ending, out);
            } else if kind.is_file() && name.ends_with(ending) {
                out.push(entry.path());
            }
        }
    }
    let root = root();
    let mut out = Vec::new();
    walk(&root.join(dir), ending, &mut out);
    let mut out: Vec<String> = out
        .iter()
        .map(|path| {
            path.strip_prefix(&root)
                .unwrap()
                .to_string_lossy()
                .replace('\\', "/")
        })
        .collect();
    out.sort();
    out
}

/// The folders of all crates that the rules hold for, sorted, as `crates/engine`: those below
/// `crates/`, and the package for Python.
#[must_use]
pub fn crates() -> Vec<String> {
    let manifests = files("", "Cargo.toml").into_iter();
    let folders = manifests.filter_map(|path| path.strip_suffix("/Cargo.toml").map(str::to_owned));
    folders
        .filter(|folder| folder.starts_with("crates/") || folder == "bindings/python")
        .collect()
}

/// Panics with every crate that is missing from a list, or that is too much in it: `add` says what
/// to write for a crate that is missing.
pub fn assert_all_crates(list: &str, listed: &[&str], add: impl Fn(&str) -> String) {
    let there = crates();
    let mut offences = Vec::new();
    for folder in &there {
        match listed.iter().filter(|listed| *listed == folder).count() {
            1 => {}
            0 => offences.push(format!("{folder} is missing, add\n{}", add(folder))),
            _ => offences.push(format!("{folder} stands there more than once")),
        }
    }
    for folder in listed {
        if !there.iter().any(|there| there == folder) {
            offences.push(format!("{folder} is no crate, take it out"));
        }
    }
    assert_none(&format!("{list} has a line for every crate"), &offences);
}

/// The text of a file, by its path from the top folder.
#[must_use]
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Panics with all offences against a rule, if there are any.
pub fn assert_none(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}\n  {}\n", offences.join("\n  "));
}
