//! The order of modules inside each crate, as its page has it: a module may name those below it,
//! and no circle is made.

use std::collections::BTreeSet;
use tidy::modules::Crate;
use tidy::{architecture, assert_all_crates, assert_none};

/// Crates that are one module.
const OF_ONE_MODULE: [&str; 1] = ["crates/headwater"];

/// Circles that there still are among the files of the modules of a crate; every other crate has
/// none.
const CIRCLES: [(&str, usize); 0] = [];

#[test]
fn no_module_names_one_above_it() {
    let mut offences = Vec::new();
    let mut seen = BTreeSet::new();
    for architecture::Modules { folder, tables } in architecture::crates() {
        let of = Crate::read(&folder);
        for table in &tables {
            offences.append(&mut misplaced(&of, &folder, table));
        }
        seen.insert(folder);
    }
    let of_one_module = OF_ONE_MODULE.iter().copied();
    let listed: Vec<&str> = seen
        .iter()
        .map(String::as_str)
        .chain(of_one_module)
        .collect();
    assert_all_crates("the pages of crates", &listed, |folder| {
        format!(
            "{folder}/README.md with\n\n| Module | Contents |\n| --- | --- |\n| `its module` | what that is for |"
        )
    });
    assert_none("arrows that lead up", &offences);
}

/// What a table has otherwise than the sources: modules, and arrows that lead up.
fn misplaced(of: &Crate, folder: &str, table: &architecture::Table) -> Vec<String> {
    let parent = table.parent.iter().flat_map(|path| path.split("::"));
    let parent: Vec<String> = parent.map(str::to_owned).collect();
    let title: String = parent.iter().map(|name| format!("`{name}`: ")).collect();
    let mut offences = Vec::new();
    let there = of.children(&parent);
    let modules = &table.modules;
    let said: BTreeSet<String> = modules.iter().map(|(name, _)| name.clone()).collect();
    for module in there.symmetric_difference(&said) {
        offences.push(format!(
            "{folder}: {title}`{module}` is in the crate or in the table of {folder}/README.md, and not in the other"
        ));
    }
    for (name, contents) in modules {
        if contents.split_whitespace().count() < 3 {
            offences.push(format!("{folder}: {title}what is in `{name}`?"));
        }
    }
    let order: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
    let place = |name: &str| order.iter().position(|m| *m == name);
    for ((from, to), (source, line)) in of.between(&parent) {
        if let (Some(a), Some(b)) = (place(&from), place(&to))
            && b > a
        {
            offences.push(format!(
                "{source}:{line}: {title}`{from}` names `{to}`, which stands above it"
            ));
        }
    }
    offences
}

#[test]
fn no_circle_is_made_among_the_files_of_a_module() {
    let mut offences = Vec::new();
    let crates = tidy::crates();
    for (folder, _) in CIRCLES {
        if !crates.iter().any(|there| there == folder) {
            offences.push(format!("{folder} is no crate, take it out of CIRCLES"));
        }
    }
    for folder in &crates {
        let of = Crate::read(folder);
        let known = CIRCLES.iter().find(|(of, _)| of == folder);
        let most = known.map_or(0, |(_, most)| *most);
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

#[test]
fn modules_are_read_from_the_page() {
    let page = "# `crates/a`\n\nIt is.\n\n| Module | Contents |\n| --- | --- |\n| `b` | what it does |\n\n| c | no |\n\n## `b`\n\n| `e` | part of it |\n";
    let of = architecture::of("crates/a", page);
    assert_eq!(of.folder, "crates/a");
    let [all, inner] = of.tables.as_slice() else {
        panic!("{of:?}");
    };
    assert_eq!(all.parent, None);
    assert_eq!(all.modules, [("b".to_owned(), "what it does".to_owned())]);
    assert_eq!(inner.parent, Some("b".to_owned()));
    assert_eq!(inner.modules, [("e".to_owned(), "part of it".to_owned())]);
}

#[test]
fn the_overview_is_read_in_one_sitting_and_leads_to_every_crate() {
    let page = tidy::read("ARCHITECTURE.md");
    let lines = page.lines().count();
    assert!(
        lines <= 300,
        "ARCHITECTURE.md has {lines} lines, at most 300"
    );
    let missing: Vec<String> = tidy::crates()
        .into_iter()
        .filter(|folder| !page.contains(&format!("| [`{folder}`](")))
        .collect();
    assert_none("crates without a line in ARCHITECTURE.md", &missing);
}
