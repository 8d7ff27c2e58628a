//! Arrows between our crates, what the embedded library pulls in, and the licences of everything.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use tidy::{assert_none, root};

/// For each crate, the crates of ours that it may use (ARCHITECTURE.md). `lab` may use any, `tidy`
/// reads sources and uses none.
const ARROWS: [(&str, &[&str]); 24] = [
    ("headwater-types", &[]),
    ("headwater-codec", &["headwater-types"]),
    ("headwater-io", &["headwater-types"]),
    ("headwater-late", &["headwater-codec", "headwater-types"]),
    ("headwater-block", &["headwater-io"]),
    (
        "headwater-engine",
        &[
            "headwater-types",
            "headwater-codec",
            "headwater-io",
            "headwater-late",
        ],
    ),
    (
        "headwater-protocol",
        &[
            "headwater-types",
            "headwater-codec",
            "headwater-io",
            "headwater-engine",
        ],
    ),
    (
        "headwater",
        &[
            "headwater-types",
            "headwater-io",
            "headwater-late",
            "headwater-engine",
        ],
    ),
    ("headwater-wire", &["headwater-types"]),
    ("headwater-ask", &["headwater", "headwater-wire"]),
    ("headwater-columnar", &["headwater", "headwater-wire"]),
    (
        "headwater-lake",
        &[
            "headwater",
            "headwater-bucket",
            "headwater-columnar",
            "headwater-types",
            "headwater-wire",
        ],
    ),
    (
        "headwater-query",
        &[
            "headwater",
            "headwater-ask",
            "headwater-columnar",
            "headwater-watch",
            "headwater-wire",
        ],
    ),
    ("headwater-watch", &["headwater-codec", "headwater-io"]),
    (
        "headwater-postgres",
        &["headwater", "headwater-query", "headwater-wire"],
    ),
    (
        "headwater-shell",
        &[
            "headwater",
            "headwater-io",
            "headwater-protocol",
            "headwater-wire",
        ],
    ),
    (
        "headwater-cluster",
        &[
            "headwater-types",
            "headwater-io",
            "headwater-engine",
            "headwater-protocol",
            "headwater-shell",
            "headwater-bucket",
            "headwater-wire",
        ],
    ),
    (
        "headwater-bucket",
        &["headwater-types", "headwater-codec", "headwater-io"],
    ),
    (
        "headwater-server",
        &[
            "headwater",
            "headwater-bucket",
            "headwater-io",
            "headwater-ask",
            "headwater-columnar",
            "headwater-lake",
            "headwater-query",
            "headwater-postgres",
            "headwater-shell",
            "headwater-cluster",
            "headwater-protocol",
            "headwater-watch",
            "headwater-wire",
        ],
    ),
    (
        "headwater-cli",
        &[
            "headwater",
            "headwater-ask",
            "headwater-block",
            "headwater-bucket",
            "headwater-columnar",
            "headwater-lake",
            "headwater-query",
            "headwater-wire",
            "headwater-server",
            "headwater-cluster",
        ],
    ),
    ("headwater-ffi", &["headwater"]),
    ("headwater-python", &["headwater", "headwater-wire"]),
    ("headwater-testing", &["headwater"]),
    ("tidy", &[]),
];
const LAB: &str = "lab";
const TESTING: &str = "headwater-testing";

/// The crate embedders depend on, and what must never come with it.
const EMBEDDED: &str = "headwater";
const NOT_EMBEDDED: [&str; 16] = [
    "arrow",
    "async-std",
    "axum",
    "datafusion",
    "futures",
    "h2",
    "http",
    "hyper",
    "mio",
    "native-tls",
    "object_store",
    "openssl",
    "parquet",
    "reqwest",
    "rustls",
    "tokio",
];

/// Licences under which everything we ship may be passed on.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Under other licences, but only used by tests: nothing of them is in what we ship.
const TEST_TOOLS: [(&str, &str); 1] = [("cbindgen", "MPL-2.0")];

#[test]
fn crates_depend_on_each_other_as_the_architecture_says() {
    let metadata = Metadata::load();
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    let ours: BTreeSet<&str> = metadata.members().map(|p| text(p, "name")).collect();
    let mut offences = Vec::new();
    for package in metadata.members() {
        let name = text(package, "name");
        let Some(allowed) = arrows.get(name) else {
            if name != LAB {
                offences.push(format!(
                    "{name}: a new crate needs a line in ARROWS and one in ARCHITECTURE.md"
                ));
            }
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = text(dependency, "name");
            // A crate may use itself in its own tests with other features.
            let is_own_test = used == name && dependency["kind"] == "dev";
            // What tests share is for tests of every crate, and for nothing else.
            let is_shared_by_tests = used == TESTING && dependency["kind"] == "dev";
            let is_test = is_own_test || is_shared_by_tests;
            if ours.contains(used) && !allowed.contains(&used) && !is_test {
                offences.push(format!("{name} uses {used}, it may use {allowed:?}"));
            }
        }
    }
    assert_none(
        "an arrow between crates needs a design note first",
        &offences,
    );
}

#[test]
fn the_embedded_library_brings_no_runtime_and_no_server() {
    let metadata = Metadata::load();
    let names: BTreeSet<&str> = metadata
        .shipped_with(EMBEDDED)
        .into_iter()
        .map(|p| text(p, "name"))
        .collect();
    assert!(
        names.contains("redb"),
        "the walk over dependencies found only {names:?}"
    );
    let offences: Vec<String> = names
        .iter()
        .filter(|name| {
            NOT_EMBEDDED
                .iter()
                .any(|bad| *name == bad || name.starts_with(&format!("{bad}-")))
        })
        .map(|name| format!("{name}: see `cargo tree --package {EMBEDDED} --invert {name}`"))
        .collect();
    assert_none(
        "crates that must not come with the embedded library",
        &offences,
    );
}

#[test]
fn every_dependency_has_a_licence_we_may_pass_on() {
    let metadata = Metadata::load();
    let mut offences = Vec::new();
    for package in metadata.json["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or("none");
        let is_test_tool = TEST_TOOLS.contains(&(text(package, "name"), licence));
        if !is_allowed(licence) && !is_test_tool {
            offences.push(format!(
                "{} {}: {licence}",
                text(package, "name"),
                text(package, "version")
            ));
        }
    }
    for member in metadata.members() {
        for package in metadata.shipped_with(text(member, "name")) {
            let name = text(package, "name");
            if TEST_TOOLS.iter().any(|(tool, _)| *tool == name) {
                offences.push(format!(
                    "{name} is for tests only, {} ships it",
                    text(member, "name")
                ));
            }
        }
    }
    assert_none("licences that are not in LICENCES", &offences);
}

#[test]
fn licence_expressions_are_read_right() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in [
        "none",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR Apache-2.0) AND NCSA",
        "MIT WITH odd-exception",
        "MIT OR",
    ] {
        assert!(!is_allowed(bad), "{bad}");
    }
}

/// Evaluates an SPDX expression: true when its terms can be met with `LICENCES` alone.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    either(&mut rest) == Some(true) && rest.is_empty()
}

fn either(rest: &mut &[&str]) -> Option<bool> {
    let mut any = both(rest)?;
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        any |= both(rest)?;
    }
    Some(any)
}

fn both(rest: &mut &[&str]) -> Option<bool> {
    let mut all = one(rest)?;
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        all &= one(rest)?;
    }
    Some(all)
}

fn one(rest: &mut &[&str]) -> Option<bool> {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let inner = either(rest)?;
            let [")", tail @ ..] = *rest else { return None };
            *rest = tail;
            Some(inner)
        }
        [name, "WITH", exception, tail @ ..] => {
            *rest = tail;
            Some(LICENCES.contains(name) && *exception == "LLVM-exception")
        }
        [name, tail @ ..] => {
            *rest = tail;
            Some(LICENCES.contains(name))
        }
        [] => None,
    }
}

/// What cargo knows of the workspace and of everything it uses on this platform.
struct Metadata {
    json: Value,
}

impl Metadata {
    fn load() -> Metadata {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
            .arg("-vV")
            .output()
            .unwrap();
        let version = String::from_utf8(rustc.stdout).unwrap();
        let host = version
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .expect("rustc names its host");
        let output = Command::new(cargo)
            .current_dir(root())
            .args([
                "metadata",
                "--format-version=1",
                "--offline",
                "--locked",
                "--filter-platform",
                host,
            ])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Metadata {
            json: serde_json::from_slice(&output.stdout).unwrap(),
        }
    }

    fn package(&self, id: &str) -> &Value {
        let packages = self.json["packages"].as_array().unwrap();
        packages
            .iter()
            .find(|p| p["id"] == id)
            .expect("every id has a package")
    }

    fn members(&self) -> impl Iterator<Item = &Value> {
        self.json["workspace_members"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| self.package(id.as_str().unwrap()))
    }

    /// A member and everything that is linked into it, tests aside.
    fn shipped_with(&self, member: &str) -> Vec<&Value> {
        let nodes = self.json["resolve"]["nodes"].as_array().unwrap();
        let start = self
            .members()
            .find(|p| text(p, "name") == member)
            .expect("a member of this name");
        let mut found = BTreeSet::new();
        let mut open = vec![text(start, "id")];
        while let Some(id) = open.pop() {
            if !found.insert(id) {
                continue;
            }
            let node = nodes
                .iter()
                .find(|n| n["id"] == id)
                .expect("every package has a node");
            for dependency in node["deps"].as_array().unwrap() {
                if dependency["dep_kinds"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|kind| kind["kind"].is_null())
                {
                    open.push(text(dependency, "pkg"));
                }
            }
        }
        found.into_iter().map(|id| self.package(id)).collect()
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("cargo metadata gives text here")
}
