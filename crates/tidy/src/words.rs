//! The words of the sources: names of types and modules that say nothing, and openings of doc
//! sentences.
//!
//! Invariants: sources are read line by line; a code block of a doc comment is no prose.

/// An offence: the line, counted from one, and what stands there.
pub type Offence = (usize, String);

/// Words that no doc sentence opens with.
const OPENINGS: [&str; 8] = [
    "Who", "What", "Whose", "How", "That of", "Those", "It", "They",
];

/// Whether a sentence opens with a refused word.
fn is_refused(sentence: &str) -> bool {
    let sentence = sentence.trim_start_matches("**");
    OPENINGS.iter().any(|word| {
        let rest = sentence.strip_prefix(word);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '\''))
    })
}

/// The sentences that begin in a line; `at_start` where the line before ended one.
fn sentences(line: &str, at_start: bool) -> Vec<&str> {
    let mut out = Vec::new();
    if at_start {
        out.push(line);
    }
    for end in [". ", "! ", "? "] {
        for (at, _) in line.match_indices(end) {
            let rest = line.get(at + end.len()..).map(str::trim_start);
            out.extend(rest.filter(|rest| rest.starts_with(char::is_uppercase)));
        }
    }
    out
}

/// Sentences of doc comments that open with Who, What, Whose, How, That of, Those, It or They.
#[must_use]
pub fn openings(source: &str) -> Vec<Offence> {
    let mut out = Vec::new();
    let (mut at_start, mut is_code) = (true, false);
    for (number, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(doc) = doc.map(str::trim) else {
            (at_start, is_code) = (true, false);
            continue;
        };
        if doc.starts_with("```") {
            (at_start, is_code) = (true, !is_code);
            continue;
        }
        if is_code {
            continue;
        }
        let item = doc.trim_start_matches(['-', '*', '|', '#', ' ']);
        let is_item = doc.starts_with(['-', '|', '#']) || doc.starts_with("* ");
        for sentence in sentences(if is_item { item } else { doc }, at_start || is_item) {
            if is_refused(sentence) {
                out.push((number + 1, sentence.chars().take(60).collect()));
            }
        }
        at_start = doc.is_empty() || doc.ends_with(['.', '!', '?']);
    }
    out
}

/// Heading in `docs/glossary.md` of names that no type and no module has.
pub const SAY_NOTHING: &str = "Names that say nothing";
/// Heading of names that no type has alone.
pub const NEED_A_NOUN: &str = "Names that need a noun";

/// Names that `docs/glossary.md` lists under a heading.
///
/// # Panics
/// When the page has no such list.
#[must_use]
pub fn refused_names(glossary: &str, heading: &str) -> Vec<String> {
    let section = glossary.split_once(&format!("## {heading}\n"));
    let (_, section) = section.unwrap_or_else(|| panic!("the glossary lists: {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let names = section.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// Types and modules of a source with one of these names, in any case.
#[must_use]
pub fn names(source: &str, refused: &[String]) -> Vec<Offence> {
    named(source, refused, &KEYWORDS)
}

/// Types of a source with one of these names, in any case. The name of an associated type is the
/// one of its trait, and is no offence.
#[must_use]
pub fn types(source: &str, refused: &[String]) -> Vec<Offence> {
    let lines = source.lines().map(|line| match line.trim_start() {
        associated if associated.starts_with("type ") && associated != line => "",
        _ => line,
    });
    let types = lines.collect::<Vec<_>>().join("\n");
    named(&types, refused, &TYPES)
}

fn named(source: &str, refused: &[String], keywords: &[&str]) -> Vec<Offence> {
    let mut out = Vec::new();
    for (number, line) in source.lines().enumerate() {
        let mut words = line.trim_start().split([' ', '<', '(', '{', ';', ':', '=']);
        let mut word = words.next().unwrap_or_default();
        if word == "pub" {
            // `pub(in a::b)` has its words before the keyword.
            word = words
                .by_ref()
                .find(|word| keywords.contains(word))
                .unwrap_or_default();
        }
        if !keywords.contains(&word) {
            continue;
        }
        let name = words.next().unwrap_or_default();
        if refused
            .iter()
            .any(|refused| refused.eq_ignore_ascii_case(name))
        {
            out.push((number + 1, name.to_owned()));
        }
    }
    out
}

const KEYWORDS: [&str; 6] = ["struct", "enum", "trait", "type", "union", "mod"];
/// The keywords of types.
const TYPES: [&str; 5] = ["struct", "enum", "trait", "type", "union"];
