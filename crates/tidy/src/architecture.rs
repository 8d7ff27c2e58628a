//! The pages of crates as the tests read them: which modules each has, from the ground up.

use crate::{crates as folders, root};

/// Where the page of a crate lies in its folder; the first one that is there, since a package has a
/// `README.md` for those who install it.
const PAGES: [&str; 2] = ["src/README.md", "README.md"];

/// A crate as its page has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modules {
    /// Its folder, as `crates/engine`.
    pub folder: String,
    /// Its modules from the ground up, each with what it is for.
    pub modules: Vec<(String, String)>,
}

/// The crates whose page has a table of modules.
#[must_use]
pub fn crates() -> Vec<Modules> {
    let pages = folders().into_iter().filter_map(|folder| {
        let mut pages = PAGES.iter().map(|page| root().join(&folder).join(page));
        let page = pages.find_map(|path| std::fs::read_to_string(path).ok())?;
        Some(of(&folder, &page))
    });
    pages.filter(|of| !of.modules.is_empty()).collect()
}

/// Rows that begin with a name in back-quotes are its modules.
#[must_use]
pub fn of(folder: &str, page: &str) -> Modules {
    let rows = page.lines().filter_map(|line| {
        let (module, what) = line.strip_prefix("| `")?.split_once("` | ")?;
        let what = what.trim_end_matches('|').trim();
        Some((module.to_owned(), what.to_owned()))
    });
    Modules {
        folder: folder.to_owned(),
        modules: rows.collect(),
    }
}
