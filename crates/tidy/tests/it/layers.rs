//! The order of rooms inside each crate: a module may name those below it, and no circle is made.

use std::collections::BTreeSet;
use tidy::assert_none;
use tidy::modules::Crate;

/// A crate's folder and its modules from the ground up. A module may name those that stand before
/// it; ARCHITECTURE.md has the same rooms with what they are for.
const ORDERS: [(&str, &[&str]); 8] = [
    (
        "crates/types",
        &[
            "time",
            "level",
            "value",
            "column",
            "aggregate",
            "batch",
            "rows",
        ],
    ),
    (
        "crates/codec",
        &[
            "bytes", "checksum", "decimal", "pack", "block", "presence", "text", "leaf", "light",
        ],
    ),
    (
        "crates/io",
        &[
            "chance", "clock", "lock", "files", "laws", "place", "system", "threads", "tree",
            "faulty", "memory", "env",
        ],
    ),
    (
        "crates/wire",
        &[
            "channel",
            "durations",
            "escapes",
            "influxql",
            "instant",
            "json",
            "number",
            "column_builder",
                "query",
            "refusal",
            "parsed_batch",
            "csv",
            "lineprotocol",
            "message",
            "opentsdb",
            "prometheus",
            "tile",
            "tiles",
            "zone",
        ],
    ),
    (
        "crates/ffi",
        &[
            "json",
            "status",
            "handles",
            "text",
            "column",
            "log",
            "options",
            "database",
            "snapshot",
            "stream",
            "aggregate",
            "batch",
            "last",
            "rows",
            "query",
            "scan",
            "arrow",
            "into",
            "tables",
            "write",
        ],
    ),
    (
        "crates/cli",
        &[
            "arguments",
            "chart",
            "failure",
            "address",
            "grid",
            "http",
            "input",
            "late",
            "output",
            "progress",
            "store",
            "ask",
            "values",
            "commands",
        ],
    ),
    (
        "crates/lab",
        &["table", "machine", "harness", "rivals", "experiments"],
    ),
    (
        "bindings/python",
        &[
            "errors",
            "arrow_columns",
            "care",
            "columns",
            "frame",
            "input",
            "arrays",
            "arrow_batches",
            "log",
            "options",
            "shared",
            "scan",
            "ask",
            "write",
            "ticket",
            "database",
        ],
    ),
];

/// Crates, and how many circles there still are among the files of their rooms.
const CIRCLES: [(&str, usize); 8] = [
    ("crates/types", 0),
    ("crates/codec", 0),
    ("crates/io", 0),
    ("crates/wire", 0),
    ("crates/ffi", 0),
    ("crates/cli", 0),
    ("crates/lab", 0),
    ("bindings/python", 0),
];

#[test]
fn no_module_names_one_above_it() {
    let mut offences = Vec::new();
    for (folder, order) in ORDERS {
        let of = Crate::read(folder);
        let there = of.children(&[]);
        let said: BTreeSet<String> = order.iter().map(|m| (*m).to_owned()).collect();
        for module in there.symmetric_difference(&said) {
            offences.push(format!(
                "{folder}: `{module}` is in ORDERS or in the crate, and not in the other"
            ));
        }
        let place = |name: &str| order.iter().position(|m| *m == name);
        for ((from, to), (source, line)) in of.between(&[]) {
            if let (Some(a), Some(b)) = (place(&from), place(&to))
                && b > a
            {
                offences.push(format!(
                    "{source}:{line}: `{from}` names `{to}`, which stands above it"
                ));
            }
        }
    }
    assert_none("arrows that lead up", &offences);
}

#[test]
fn no_circle_is_made_among_the_files_of_a_room() {
    let mut offences = Vec::new();
    for (folder, most) in CIRCLES {
        let of = Crate::read(folder);
        let mut found = Vec::new();
        for parent in &of.modules {
            for circle in of.circles(parent) {
                found.push(format!(
                    "{folder}: `{}`: {}",
                    parent.join("::"),
                    circle.join(" ↔ ")
                ));
            }
        }
        if found.len() != most {
            offences.push(format!(
                "{folder}: {} circles, {most} are known in CIRCLES, and the number may only fall",
                found.len()
            ));
            offences.append(&mut found);
        }
    }
    assert_none("circles", &offences);
}

/// The reading itself: a small crate with each kind of arrow.
#[test]
fn arrows_are_read_as_the_compiler_reads_them() {
    let sources = [
        (
            "lib.rs",
            "mod ground; mod room; mod top; pub use ground::Thing;",
        ),
        (
            "ground.rs",
            "pub struct Thing; #[cfg(test)] mod tests { use crate::top::f; }",
        ),
        // A name that the root passes on leads to where the root has it from.
        (
            "top.rs",
            "pub fn f() { assert!(crate::room::a::g(crate::Thing)); }",
        ),
        ("room/mod.rs", "pub mod a; pub mod b;"),
        (
            "room/a.rs",
            "use super::b::h; pub fn g(_: super::super::Thing) {}",
        ),
        (
            "room/b.rs",
            "pub fn h() { super::a::g(x()) } // crate::top::f",
        ),
    ];
    let of =
        Crate::of(sources.map(|(name, text)| (name.to_owned(), name.to_owned(), text.to_owned())));
    let pairs: Vec<(String, String)> = of.between(&[]).into_keys().collect();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        pairs,
        [
            pair("room", "ground"),
            pair("top", "ground"),
            pair("top", "room")
        ]
    );
    assert_eq!(of.order(&[]), ["ground", "room", "top"]);
    assert!(of.circles(&[]).is_empty());
    assert_eq!(of.circles(&["room".to_owned()]), [["a", "b"]]);
}
