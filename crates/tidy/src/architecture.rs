//! ARCHITECTURE.md as the tests read it: which rooms each crate has, from the ground up.

use crate::read;

/// The page.
pub const PAGE: &str = "ARCHITECTURE.md";

/// A crate as the page has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rooms {
    /// Its folder, as `crates/engine`.
    pub folder: String,
    /// Its rooms from the ground up, each with what it is for.
    pub rooms: Vec<(String, String)>,
}

/// The crates of the page that have a table of rooms.
#[must_use]
pub fn crates() -> Vec<Rooms> {
    of(&read(PAGE))
}

/// A heading of the third level names a crate in back-quotes; rows that begin with a name in
/// back-quotes are its rooms.
#[must_use]
pub fn of(page: &str) -> Vec<Rooms> {
    let mut out: Vec<Rooms> = Vec::new();
    let mut is_crate = false;
    for line in page.lines() {
        if line.starts_with('#') {
            let name = line.strip_prefix("### `").and_then(|l| l.split_once('`'));
            is_crate = name.is_some();
            if let Some((folder, _)) = name {
                out.push(Rooms {
                    folder: folder.trim_end_matches('/').to_owned(),
                    rooms: Vec::new(),
                });
            }
        }
        let row = line
            .strip_prefix("| `")
            .and_then(|row| row.split_once("` | "));
        if let (true, Some((room, what)), Some(last)) = (is_crate, row, out.last_mut()) {
            let what = what.trim_end_matches('|').trim().to_owned();
            last.rooms.push((room.to_owned(), what));
        }
    }
    out.retain(|of| !of.rooms.is_empty());
    out
}
