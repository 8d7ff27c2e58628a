//! Pages: each format has one, and links between pages and out of comments lead somewhere.

use tidy::{assert_none, files, read, root};

/// Every format that leaves the process, to a disk or to a reader.
const FORMATS: [&str; 32] = [
    "backup",
    "block",
    "bucket",
    "copy",
    "csv",
    "device",
    "fastindex",
    "fleet",
    "held",
    "index",
    "lake",
    "jsonlines",
    "leaf",
    "light",
    "lineprotocol",
    "log",
    "meta",
    "notice",
    "repair",
    "rights",
    "segment",
    "snapshot",
    "spent",
    "state",
    "stub",
    "sync",
    "tail",
    "ticket",
    "tier",
    "tile",
    "values",
    "watch",
];

#[test]
fn every_format_has_a_page() {
    let index = read("docs/README.md");
    let mut offences = Vec::new();
    for format in FORMATS {
        let page = format!("docs/format/{format}.md");
        if !root().join(&page).is_file() {
            offences.push(format!("{page} is missing"));
        } else if !index.contains(&format!("format/{format}.md")) {
            offences.push(format!("docs/README.md does not link {page}"));
        }
    }
    for page in files("docs/format", ".md") {
        if !FORMATS
            .iter()
            .any(|format| page == format!("docs/format/{format}.md"))
        {
            offences.push(format!("{page} is not in FORMATS of pages.rs"));
        }
    }
    assert_none("formats and their pages", &offences);
}

#[test]
fn every_decision_is_in_the_index() {
    let index = read("docs/README.md");
    let offences: Vec<String> = files("docs/decisions", ".md")
        .into_iter()
        .filter(|page| !index.contains(page.strip_prefix("docs/").unwrap_or(page)))
        .collect();
    assert_none("decisions that docs/README.md does not link", &offences);
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let mut offences = Vec::new();
    for (at, page) in files("docs/decisions", ".md").into_iter().enumerate() {
        let number = format!("{:04}", at + 1);
        let file = page.rsplit('/').next().unwrap_or_default();
        if !file.starts_with(&format!("{number}-")) {
            offences.push(format!("{page}: expected number {number}"));
        }
        if !read(&page).starts_with(&format!("# {number} ")) {
            offences.push(format!("{page}: its heading begins with another number"));
        }
    }
    assert_none("decisions and their numbers", &offences);
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut offences = Vec::new();
    for page in files("", ".md") {
        let text = read(&page);
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let target = if path.is_empty() {
                page.clone()
            } else {
                resolved(&page, path)
            };
            if !root().join(&target).exists() {
                offences.push(format!(
                    "{page}: `{link}` leads to {target}, which is not there"
                ));
            } else if !anchor.is_empty() && !anchors(&read(&target)).any(|a| a == anchor) {
                offences.push(format!(
                    "{page}: `{link}` names a heading that {target} has not"
                ));
            }
        }
    }
    assert_none("links that lead nowhere", &offences);
}

#[test]
fn pages_that_comments_name_exist() {
    let mut offences = Vec::new();
    for source in files("crates", ".rs")
        .into_iter()
        .chain(files("fuzz", ".rs"))
    {
        for (number, line) in read(&source).lines().enumerate() {
            if !line.trim_start().starts_with("//") {
                continue;
            }
            for named in line
                .match_indices("docs/")
                .filter_map(|(at, _)| page_name(line.get(at..)?))
            {
                if !root().join(named).is_file() {
                    offences.push(format!("{source}:{}: {named} is not there", number + 1));
                }
            }
        }
    }
    assert_none("comments that name a page which is not there", &offences);
}

/// `docs/format/log.md` at the front of a text; `None` for a list like `docs/format/{log,meta}.md`.
fn page_name(text: &str) -> Option<&str> {
    let end = text.find(".md")? + 3;
    text.get(..end).filter(|name| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
    })
}

/// Targets of `[text](target)` outside code.
fn links(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every other piece between back-quotes is code.
        for prose in line.split('`').step_by(2) {
            for (at, _) in prose.match_indices("](") {
                let target = prose.get(at + 2..).unwrap_or_default();
                out.extend(target.split_once(')').map(|(target, _)| target));
            }
        }
    }
    out
}

/// The headings of a page as the anchors that lead to them.
fn anchors(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
}

/// A path relative to a page, as a path from the top folder.
fn resolved(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn links_are_found_and_resolved() {
    assert_eq!(
        links("see [a](b.md#c), `[not](this)`\n```\n[nor](that)\n```\n[d](../e)"),
        ["b.md#c", "../e"]
    );
    assert_eq!(
        resolved("docs/format/log.md", "../decisions/a.md"),
        "docs/decisions/a.md"
    );
    assert_eq!(resolved("README.md", "docs/README.md"), "docs/README.md");
    assert_eq!(
        anchors("# A title, *here*\n").next().as_deref(),
        Some("a-title-here")
    );
    assert_eq!(page_name("docs/format/log.md."), Some("docs/format/log.md"));
    assert_eq!(page_name("docs/format/{log,meta}.md"), None);
}

/// Modules that ARCHITECTURE.md names in back-quotes, as `engine/read/stretches`, are in the tree.
#[test]
fn modules_that_the_overview_names_are_there() {
    let names: Vec<String> = tidy::crates()
        .iter()
        .filter_map(|folder| folder.strip_prefix("crates/").map(str::to_owned))
        .collect();
    let page = read("ARCHITECTURE.md");
    let mut offences = Vec::new();
    for quoted in page.split('`').skip(1).step_by(2) {
        let Some((name, path)) = quoted.split_once('/') else {
            continue;
        };
        let is_module = path
            .chars()
            .all(|c| c.is_ascii_lowercase() || "_/".contains(c));
        if !is_module || !names.iter().any(|known| known == name) {
            continue;
        }
        let at = root().join(format!("crates/{name}/src/{path}"));
        if !at.is_dir() && !at.with_extension("rs").is_file() {
            offences.push(format!("`{quoted}`"));
        }
    }
    assert_none(
        "modules of ARCHITECTURE.md that are not in the tree",
        &offences,
    );
}
