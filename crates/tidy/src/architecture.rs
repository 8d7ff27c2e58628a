//! The pages of crates as the tests read them: which modules each has, from the ground up.

use crate::{crates as folders, root};

/// Location of the page of a crate in its folder; the first one that is there, since a package has
/// a `README.md` for those that install it.
const PAGES: [&str; 2] = ["src/README.md", "README.md"];

/// A crate as its page has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modules {
    /// Its folder, as `crates/engine`.
    pub folder: String,
    /// Its tables: the first is of the crate, each other one of the module that its heading names.
    pub tables: Vec<Table>,
}

/// The modules in a module, as a table has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The module they are in, by its path from the root; none for the crate.
    pub parent: Option<String>,
    /// The modules from the ground up, each with its contents.
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
    pages
        .filter(|of| of.tables.iter().any(|table| !table.modules.is_empty()))
        .collect()
}

/// Rows that begin with a name in back-quotes are modules; a heading of the second level that is a
/// name or a path in back-quotes, such as `read` or `read::index`, begins the table of that module.
#[must_use]
pub fn of(folder: &str, page: &str) -> Modules {
    let mut tables = vec![Table::default()];
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("## `") {
            tables.push(Table {
                parent: rest.strip_suffix('`').map(str::to_owned),
                modules: Vec::new(),
            });
        }
        let row = line
            .strip_prefix("| `")
            .and_then(|row| row.split_once("` | "));
        if let (Some((module, contents)), Some(table)) = (row, tables.last_mut()) {
            let contents = contents.trim_end_matches('|').trim();
            table.modules.push((module.to_owned(), contents.to_owned()));
        }
    }
    Modules {
        folder: folder.to_owned(),
        tables,
    }
}
