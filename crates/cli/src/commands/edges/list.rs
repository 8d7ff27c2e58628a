//! Files of new edges: CSV with a heading, or JSON lines.
//!
//! ```text
//! name,want,keep,ahead,tags
//! pump-7,summaries:12,90d,50MiB,site=4;gateway
//! {"name":"pump-8","want":"full","tags":{"site":"4","gateway":null}}
//! ```
//!
//! A file whose first character is `{` has JSON lines. Empty cells, and members that are missing,
//! have the values of the options of the command. Blank lines are left out.

use super::{RetentionArg, naming, parse_retention, parse_want};
use crate::arguments::parse_size;
use crate::failure::Failure;
use headwater_cluster::StreamShare;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

/// Largest file in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most bad lines that are printed.
const LINES_SHOWN: usize = 20;
const COLUMNS: [&str; 5] = ["name", "want", "keep", "ahead", "tags"];

/// A line of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    #[serde(default)]
    want: Option<String>,
    #[serde(default)]
    keep: Option<String>,
    #[serde(default)]
    ahead: Option<String>,
    /// Tags; those without a value have the name of the edge.
    #[serde(default)]
    tags: BTreeMap<String, Option<String>>,
}

/// A new edge, and its line.
#[derive(Debug)]
pub(super) struct ListedEdge {
    pub(super) line: usize,
    name: String,
    want: Option<StreamShare>,
    keep_seconds: Option<u64>,
    ahead: usize,
    tags: BTreeMap<String, Option<String>>,
}

impl ListedEdge {
    fn of(line: usize, given: Line) -> Result<ListedEdge, String> {
        let given_text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let named = |column: &'static str| move |why: String| format!("{column}: {why}");
        if given.name.is_empty() {
            return Err("name: expected the name of an edge".to_owned());
        }
        let want = given_text(given.want).map(|text| parse_want(&text));
        let keep = given_text(given.keep).map(|text| parse_retention(&text));
        let ahead = given_text(given.ahead).map(|text| parse_size(&text));
        if given.tags.iter().any(|(key, _)| key.is_empty()) {
            return Err("tags: expected TAG=VALUE, or TAG, several separated by `;`".to_owned());
        }
        let keep = keep.transpose().map_err(named("keep"))?;
        Ok(ListedEdge {
            line,
            name: given.name,
            want: want.transpose().map_err(named("want"))?,
            keep_seconds: keep.and_then(|RetentionArg(seconds)| seconds),
            ahead: ahead.transpose().map_err(named("ahead"))?.unwrap_or(0),
            tags: given.tags,
        })
    }

    /// The edge as the server takes it, with tags that all edges get.
    pub(super) fn asked(&self, tags: &[naming::Added]) -> Value {
        let mut all = naming::tags(tags, &self.name);
        for (key, value) in &self.tags {
            let value = value.clone().unwrap_or_else(|| self.name.clone());
            all.insert(key.clone(), value);
        }
        json!({
            "edge": self.name, "want": self.want, "keep_seconds": self.keep_seconds,
            "ahead_bytes": self.ahead, "tags": all,
        })
    }
}

/// Cells of a line of CSV: a cell in quotes may have commas, and quotes that are doubled.
fn cells(line: &str) -> Result<Vec<String>, String> {
    let mut cells = Vec::new();
    let mut cell = String::new();
    let mut letters = line.chars().peekable();
    loop {
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next() {
                    Some('"') if letters.next_if_eq(&'"').is_some() => cell.push('"'),
                    Some('"') => break,
                    Some(letter) => cell.push(letter),
                    None => return Err("a quoted cell has no end".to_owned()),
                }
            }
            if letters.peek().is_some_and(|next| *next != ',') {
                return Err("expected a comma after a quoted cell".to_owned());
            }
        }
        match letters.next() {
            Some(',') => cells.push(std::mem::take(&mut cell)),
            Some(letter) => cell.push(letter),
            None => {
                cells.push(cell);
                return Ok(cells);
            }
        }
    }
}

/// Tags of a cell, such as `site=4;gateway`.
fn tags(cell: &str) -> BTreeMap<String, Option<String>> {
    let parts = cell
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let pair = |part: &str| match part.split_once('=') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (part.to_owned(), None),
    };
    parts.map(pair).collect()
}

/// Names of the columns, from the heading.
fn heading(line: &str) -> Result<Vec<String>, String> {
    let columns = cells(line)?;
    let columns: Vec<String> = columns.iter().map(|c| c.trim().to_owned()).collect();
    if let Some(other) = columns.iter().find(|c| !COLUMNS.contains(&c.as_str())) {
        let known = COLUMNS.join(", ");
        return Err(format!(
            "`{other}` is not a column; expected a heading of {known}, of which only name is required"
        ));
    }
    let count = |name: &str| columns.iter().filter(|c| *c == name).count();
    if let Some(twice) = COLUMNS.iter().find(|name| count(name) > 1) {
        return Err(format!("the column `{twice}` is there twice"));
    }
    match count("name") {
        0 => Err("the heading has no column `name`".to_owned()),
        _ => Ok(columns),
    }
}

fn of_csv(columns: &[String], line: &str) -> Result<Line, String> {
    let cells = cells(line)?;
    if cells.len() != columns.len() {
        return Err(format!(
            "{} cells, and the heading has {}",
            cells.len(),
            columns.len()
        ));
    }
    let by_name: HashMap<&str, String> = columns
        .iter()
        .map(String::as_str)
        .zip(cells.into_iter().map(|cell| cell.trim().to_owned()))
        .collect();
    let cell = |name: &str| by_name.get(name).cloned();
    Ok(Line {
        name: cell("name").unwrap_or_default(),
        want: cell("want"),
        keep: cell("keep"),
        ahead: cell("ahead"),
        tags: tags(&cell("tags").unwrap_or_default()),
    })
}

/// The edges of a text, or its bad lines, each with its number.
fn parse(text: &str) -> Result<Vec<ListedEdge>, Vec<(usize, String)>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate();
    let mut lines = lines
        .map(|(at, line)| (at + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty())
        .peekable();
    let is_json = lines.peek().is_some_and(|(_, line)| line.starts_with('{'));
    let columns = match lines.peek().copied() {
        Some((at, line)) if !is_json => {
            lines.next();
            heading(line).map_err(|why| vec![(at, why)])?
        }
        _ => Vec::new(),
    };
    let (mut edges, mut faults) = (Vec::new(), Vec::new());
    let mut first: HashMap<String, usize> = HashMap::new();
    for (at, line) in lines {
        let given = match is_json {
            true => serde_json::from_str(line).map_err(|error| error.to_string()),
            false => of_csv(&columns, line),
        };
        let read = given.and_then(|given| ListedEdge::of(at, given));
        let read = read.and_then(|edge| match first.insert(edge.name.clone(), at) {
            Some(before) => Err(format!("`{}` is on line {before}, too", edge.name)),
            None => Ok(edge),
        });
        match read {
            Ok(edge) => edges.push(edge),
            Err(why) => faults.push((at, why)),
        }
    }
    if faults.is_empty() && edges.is_empty() {
        faults.push((1, "the file has no edges".to_owned()));
    }
    match faults.is_empty() {
        true => Ok(edges),
        false => Err(faults),
    }
}

/// The failure for lines that were not added, each with its number.
pub(super) fn bad_lines(from: &Path, faults: &[(usize, String)]) -> Failure {
    let mut text = format!(
        "{}: no edge was added; {} bad {}:",
        from.display(),
        faults.len(),
        if faults.len() == 1 { "line" } else { "lines" }
    );
    for (line, why) in faults.iter().take(LINES_SHOWN) {
        text.push_str(&format!("\n  line {line}: {why}"));
    }
    if let Some(more) = faults
        .len()
        .checked_sub(LINES_SHOWN)
        .filter(|more| *more > 0)
    {
        text.push_str(&format!("\n  and {more} more"));
    }
    Failure::failed(text)
}

/// Reads a file of new edges; `-` is stdin.
pub(super) fn read(path: &Path) -> Result<Vec<ListedEdge>, Failure> {
    let failed = |why: String| Failure::failed(format!("{}: {why}", path.display()));
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX + 1;
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().take(limit).read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|f| f.take(limit).read_to_end(&mut bytes)),
    };
    read.map_err(|e| failed(e.to_string()))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(failed("the file has more than 16 MiB".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".to_owned()))?;
    parse(&text).map_err(|faults| bad_lines(path, &faults))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn asked(text: &str) -> Vec<Value> {
        let edges = parse(text).unwrap();
        edges.iter().map(|edge| edge.asked(&[])).collect()
    }

    #[test]
    fn both_forms_say_the_same() {
        let csv = "\u{feff}tags, name,want,keep,ahead\r\n\r\n\"site=4;gateway\",pump-7,summaries:12,90d,1KiB\r\n,pump-8,,,\r\n";
        let json = "{\"name\":\"pump-7\",\"want\":\"summaries:12\",\"keep\":\"90d\",\"ahead\":\"1KiB\",\"tags\":{\"site\":\"4\",\"gateway\":null}}\n\n{\"name\":\"pump-8\"}";
        let wanted = json!([
            {
                "edge": "pump-7", "want": {"summaries": 12}, "keep_seconds": 7_776_000,
                "ahead_bytes": 1024, "tags": {"site": "4", "gateway": "pump-7"},
            },
            {"edge": "pump-8", "want": null, "keep_seconds": null, "ahead_bytes": 0, "tags": {}},
        ]);
        assert_eq!(json!(asked(csv)), wanted);
        assert_eq!(json!(asked(json)), wanted);
        let kept = asked("name,keep\na,forever\nb,0s\n");
        assert_eq!(kept[0]["keep_seconds"], Value::Null);
        assert_eq!(kept[1]["keep_seconds"], 0);
    }

    #[test]
    fn every_bad_line_is_named() {
        let faults = |text: &str| -> Vec<usize> {
            let faults = parse(text).unwrap_err();
            assert!(faults.iter().all(|(_, why)| !why.is_empty()));
            faults.iter().map(|(line, _)| *line).collect()
        };
        assert_eq!(
            faults("name,want,tags\na,full,\n,full,\nb,half,\na,,\nc,,=4\nd,\n\"e,,\n"),
            [3, 4, 5, 6, 7, 8]
        );
        for heading in ["nome", "want", "name,name", "", "name,", "\"name"] {
            assert_eq!(faults(&format!("{heading}\n")), [1], "{heading}");
        }
        assert_eq!(
            faults(
                "{\"name\":\"a\"}\n{\"name\":7}\n{\"nome\":\"b\"}\nx\n{\"name\":\"c\",\"keep\":\"-1\"}"
            ),
            [2, 3, 4, 5]
        );
    }

    #[test]
    fn cells_may_be_quoted() {
        assert_eq!(cells("a,\"b,\"\"c\",").unwrap(), ["a", "b,\"c", ""]);
        assert_eq!(cells("").unwrap(), [""]);
        assert!(cells("\"a").is_err() && cells("\"a\"b").is_err());
    }
}
