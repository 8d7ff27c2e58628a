//! The rules of the repository that no lint knows. Each test lists every offence at once, with the file and what to do.
//!
//! Invariant: nothing here needs the network; `cargo metadata` runs offline on what was built.

mod commands;
mod crates;
mod pages;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

/// The top folder of the repository.
fn root() -> PathBuf {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.ancestors()
        .nth(2)
        .expect("crates/lab lies two folders below the top")
        .to_owned()
}

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "demo.db", "seeds"];

/// All files below `dir` whose name ends in `ending`, sorted, as paths from the top folder with `/`.
fn files(dir: &str, ending: &str) -> Vec<String> {
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

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn assert_none(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}\n  {}\n", offences.join("\n  "));
}
