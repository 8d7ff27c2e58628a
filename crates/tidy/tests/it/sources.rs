//! Sources: headers, length, nothing unfinished, nothing switched off, no file that nothing uses.

use tidy::{assert_none, files, read};

/// Sources may have this many lines.
const LINES_MAX: usize = 700;
/// An excuse is taken back when the source has become this short.
const EXCUSED_LINES_MIN: usize = 600;
/// Longer sources, and why each is one file.
const LONG: [(&str, &str); 2] = [
    (
        "crates/engine/tests/it/crash.rs",
        "the crash sweep: the lives that are cut and the harness that cuts them",
    ),
    (
        "crates/engine/tests/it/support.rs",
        "what all tests of the engine share, so that a change of the interface is made once",
    ),
];

/// Crates that are interfaces to programs in other languages, which call by addresses.
const FOREIGN: [&str; 1] = ["crates/ffi/"];
/// Other sources with unsafe code, and why. All but tests have a note in docs/decisions, or say all
/// there is to say where it stands.
const UNSAFE: [(&str, &str); 8] = [
    (
        "bindings/python/src/arrow_columns.rs",
        "columns come as addresses, by the interface of Arrow",
    ),
    (
        "crates/io/src/pmem/lines.rs",
        "stores past the caches and flushes are instructions",
    ),
    (
        "crates/io/src/pmem/mapping.rs",
        "a mapping is made by calls on addresses",
    ),
    (
        "crates/io/src/pmem/tests.rs",
        "a recorder stands where those instructions do",
    ),
    (
        "crates/io/src/uring/ring.rs",
        "the kernel has buffers while a request is on its way",
    ),
    ("crates/io/src/uring/tests.rs", "a process is forked"),
    (
        "crates/query/src/guards/allocator.rs",
        "an allocator is unsafe by its nature",
    ),
    (
        "fuzz/src/lib.rs",
        "it stands in for a function of the system's library",
    ),
];

/// Words of unfinished or switched-off code, in two halves so that this file does not hold them.
const UNFINISHED: [(&str, &str); 6] = [
    ("todo", "!("),
    ("unimplemented", "!("),
    ("#[ig", "nore"),
    ("dbg", "!("),
    ("TO", "DO"),
    ("FIX", "ME"),
];

fn sources() -> Vec<String> {
    files("crates", ".rs")
        .into_iter()
        .chain(files("fuzz", ".rs"))
        .chain(files("bindings", ".rs"))
        .collect()
}

#[test]
fn sources_are_found() {
    assert!(sources().len() > 50, "{:?}", sources());
}

#[test]
fn every_source_says_what_it_is_for() {
    let offences: Vec<String> = sources()
        .into_iter()
        .filter(|source| !read(source).trim_start().starts_with("//!"))
        .collect();
    assert_none("sources without a `//!` header at the top", &offences);
}

#[test]
fn sources_are_short_or_say_why_not() {
    let mut offences = Vec::new();
    for source in sources() {
        let lines = read(&source).lines().count();
        let excused = LONG.iter().any(|(path, _)| *path == source);
        if lines > LINES_MAX && !excused {
            offences.push(format!(
                "{source}: {lines} lines; a file this long holds two nouns"
            ));
        } else if lines < EXCUSED_LINES_MIN && excused {
            offences.push(format!("{source}: {lines} lines; take it out of LONG"));
        }
    }
    assert_none("sources of more than 700 lines", &offences);
}

#[test]
fn nothing_is_unfinished_or_switched_off() {
    let mut offences = Vec::new();
    for source in sources() {
        for (number, line) in read(&source).lines().enumerate() {
            for (a, b) in UNFINISHED {
                if line.contains(&format!("{a}{b}")) {
                    offences.push(format!("{source}:{}: {}", number + 1, line.trim()));
                }
            }
        }
    }
    assert_none("code that is unfinished or switched off", &offences);
}

#[test]
fn unsafe_code_is_where_it_is_known_to_be() {
    let mut offences = Vec::new();
    for source in sources() {
        let allowed = UNSAFE.iter().any(|(path, _)| *path == source);
        let blocks = read(&source)
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("//"))
            .filter(|line| {
                ["{", "fn", "impl", "extern"]
                    .iter()
                    .any(|block| line.contains(&["unsafe", block].join(" ")))
            })
            .count();
        if blocks > 0 && !allowed && !FOREIGN.iter().any(|crate_| source.starts_with(crate_)) {
            offences.push(format!(
                "{source}: {blocks} × unsafe; write down in UNSAFE why, and a note in docs/decisions"
            ));
        } else if blocks == 0 && allowed {
            offences.push(format!("{source}: no unsafe code; take it out of UNSAFE"));
        }
    }
    assert_none("unsafe code that is not known", &offences);
}

#[test]
fn a_module_with_parts_lies_in_their_folder() {
    let all = sources();
    let has_parts = |folder: &str| all.iter().any(|source| source.starts_with(folder));
    let beside = all.iter().filter(|source| {
        let folder = format!("{}/", source.trim_end_matches(".rs"));
        has_parts(&folder)
    });
    let offences: Vec<String> = beside
        .map(|source| {
            format!(
                "{source}: move it to `{}/mod.rs`",
                source.trim_end_matches(".rs")
            )
        })
        .collect();
    assert_none("modules beside the folder of their parts", &offences);
}

#[test]
fn every_source_is_part_of_a_crate() {
    let all = sources();
    let mut offences = Vec::new();
    for source in &all {
        let (dir, file) = source.rsplit_once('/').unwrap();
        let stem = file.trim_end_matches(".rs");
        let is_root = matches!(stem, "lib" | "main" | "build")
            || dir.ends_with("/examples")
            || dir.ends_with("/benches")
            || dir.ends_with("/bin")
            || dir.ends_with("/targets");
        if is_root {
            continue;
        }
        // `a/b.rs` is declared in `a.rs`, `a/mod.rs`, or the crate's root in `a`; `a/b/mod.rs` one
        // folder up.
        let (dir, name) = if stem == "mod" {
            dir.rsplit_once('/').unwrap()
        } else {
            (dir, stem)
        };
        let parents = [
            format!("{dir}.rs"),
            format!("{dir}/mod.rs"),
            format!("{dir}/lib.rs"),
            format!("{dir}/main.rs"),
        ];
        let declared = parents
            .iter()
            .filter(|parent| all.contains(parent))
            .any(|parent| {
                let text = read(parent);
                text.lines().any(|line| {
                    let line = line.trim();
                    !line.starts_with("//") && line.ends_with(&format!("mod {name};"))
                })
            });
        if !declared {
            offences.push(source.clone());
        }
    }
    assert_none("sources that no `mod` line names", &offences);
}

#[test]
fn comments_and_pages_name_no_machine() {
    // In halves, so that this file does not hold them.
    let words = [
        ["/ro", "ot/"].concat(),
        ["/ho", "me/"].concat(),
        ["/wo", "rk/"].concat(),
        ["crates", ".io"].concat(),
    ];
    let pages = files("", ".md")
        .into_iter()
        .chain(sources())
        .chain(["Makefile".into(), "Cargo.toml".into()]);
    let mut offences = Vec::new();
    for page in pages {
        for (number, line) in read(&page).lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                offences.push(format!("{page}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none("names of machines' folders or registries", &offences);
}

#[test]
fn no_function_has_more_than_100_lines() {
    let folders = tidy::crates().into_iter();
    let offences: Vec<String> = folders
        .flat_map(|folder| tidy::counts::functions_beyond(&folder, 100))
        .collect();
    assert_none("functions of more than 100 lines", &offences);
}

/// Modules of the server that connect optional features to it.
const FEATURES: [&str; 2] = [
    "crates/server/src/built.rs",
    "crates/server/src/components/mod.rs",
];

#[test]
fn optional_features_of_the_server_are_connected_in_one_place() {
    let sources = files("crates/server/src", ".rs").into_iter();
    let elsewhere = sources.filter(|path| !FEATURES.contains(&path.as_str()));
    let offences = elsewhere.filter(|path| {
        let text = read(path);
        // An attribute, or the macro.
        text.lines()
            .any(|line| line.contains("cfg") && line.contains("feature ="))
    });
    assert_none(
        "an optional feature is connected in components/mod.rs, and a constant in built.rs",
        &offences.collect::<Vec<_>>(),
    );
}
