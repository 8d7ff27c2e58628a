//! The vocabulary of `docs/glossary.md`: refused names, and openings of doc sentences.

use std::path::Path;
use tidy::{assert_none, crates, files, read, words};

fn sources() -> Vec<String> {
    let folders = crates().into_iter();
    folders
        .flat_map(|folder| files(&format!("{folder}/src"), ".rs"))
        .collect()
}

#[test]
fn doc_sentences_open_with_a_noun_or_a_verb() {
    let mut offences = Vec::new();
    for source in sources() {
        for (line, text) in words::openings(&read(&source)) {
            offences.push(format!("{source}:{line}: {text}"));
        }
    }
    assert_none(
        "no doc sentence opens with Who, What, Whose, How, That of, Those, It, They (docs/glossary.md)",
        &offences,
    );
}

#[test]
fn no_type_or_module_has_a_name_that_says_nothing() {
    let glossary = read("docs/glossary.md");
    let refused = words::refused_names(&glossary, words::SAY_NOTHING);
    assert!(refused.len() > 15, "the glossary has its list: {refused:?}");
    let alone = words::refused_names(&glossary, words::NEED_A_NOUN);
    assert!(alone.len() > 5, "the glossary has its list: {alone:?}");
    let mut offences = Vec::new();
    for source in sources() {
        let stem = Path::new(&source).file_stem().unwrap().to_string_lossy();
        if refused.iter().any(|name| name.eq_ignore_ascii_case(&stem)) {
            offences.push(format!("{source}: the name of the file"));
        }
        let text = read(&source);
        let mut found = words::names(&text, &refused);
        found.append(&mut words::types(&text, &alone));
        for (line, name) in found {
            offences.push(format!("{source}:{line}: `{name}`"));
        }
    }
    assert_none(
        "no type or module has a name of the list in docs/glossary.md",
        &offences,
    );
}

#[test]
fn openings_and_names_are_found() {
    let source = "//! It is one. What follows\n//! is none.\n\n/// The item. They are. Itself.\n/// ```\n/// What();\n/// ```\n/// How so\n// Who\nstruct Asked;\npub(in a::b) enum What {}\npub mod kept;\nlet What = 1;\n";
    let found: Vec<usize> = words::openings(source).into_iter().map(|o| o.0).collect();
    assert_eq!(found, [1, 1, 4, 8]);
    let refused = ["Asked", "What", "Kept"].map(str::to_owned);
    let found: Vec<usize> = words::names(source, &refused)
        .into_iter()
        .map(|o| o.0)
        .collect();
    assert_eq!(found, [10, 11, 12]);
}

#[test]
fn types_that_need_a_noun_are_found_and_associated_ones_are_not() {
    let source = "pub struct Kind;\nmod kind;\nimpl A {\n    type Target = B;\n}\npub type Target = B;\nstruct NoticeKind;\n";
    let refused = ["Kind", "Target"].map(str::to_owned);
    let found: Vec<usize> = words::types(source, &refused)
        .into_iter()
        .map(|o| o.0)
        .collect();
    assert_eq!(found, [1, 6]);
}
