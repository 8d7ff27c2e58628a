//! Source files as text: found, unpacked and split into cells, without the parser under test.

use super::Mapping;
use flate2::read::GzDecoder;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Stands for an absent value in exports; no cell of any file holds it.
pub(crate) const ABSENT: &str = "\u{2205}";

/// How a time column is written.
#[derive(Clone, Copy)]
pub(crate) enum Stamp {
    Millis,
    Nanos,
    Rfc3339,
}

impl Stamp {
    /// Nanoseconds since 1970.
    pub(crate) fn read(self, cell: &str) -> i64 {
        match self {
            Stamp::Millis => cell.parse::<i64>().unwrap() * 1_000_000,
            Stamp::Nanos => cell.parse().unwrap(),
            Stamp::Rfc3339 => rfc3339(cell),
        }
    }
}

/// `2020-02-26T20:58:51.057Z`, in UTC only. Nanoseconds since 1970.
pub(crate) fn rfc3339(cell: &str) -> i64 {
    let (text, fraction) = match cell.strip_suffix('Z').unwrap().split_once('.') {
        Some((text, fraction)) => (text, fraction),
        None => (cell.strip_suffix('Z').unwrap(), ""),
    };
    assert!(text.len() == 19 && fraction.len() <= 9, "{cell}");
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().unwrap();
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    // Days since 1970 of a year that begins in March, so that the leap day is its last.
    let shifted = if month > 2 { year } else { year - 1 };
    let month_index = (month + 9) % 12;
    let days = shifted * 365 + shifted / 4 - shifted / 100
        + shifted / 400
        + (month_index * 153 + 2) / 5
        + day
        - 1
        - 719_468;
    let seconds = days * 86_400 + number(11, 13) * 3_600 + number(14, 16) * 60 + number(17, 19);
    let nanos: i64 = format!("{fraction:0<9}").parse().unwrap();
    seconds * 1_000_000_000 + nanos
}

/// A file in memory.
pub(crate) struct Source {
    path: PathBuf,
    text: String,
    header: Vec<String>,
    /// Where each row begins, and the end of the text.
    starts: Vec<usize>,
}

impl Source {
    /// The file of a mapping; `None`, with a message, when it is not there.
    pub(crate) fn load(mapping: &Mapping) -> Option<Source> {
        let name = format!("{}.csv.gz", mapping.file);
        let top = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
        let path = [top.join("data"), top.join("../shared/data")]
            .map(|folder| folder.join(&name))
            .into_iter()
            .find(|path| path.is_file());
        let Some(path) = path else {
            assert_ne!(mapping.file, super::WEATHER.file, "it is in the repository");
            headwater_testing::recording_is_missing(&name);
            return None;
        };
        let mut text = String::new();
        GzDecoder::new(File::open(&path).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        Some(Source::of_text(path, text))
    }

    /// A text as if it were a file.
    pub(crate) fn of_text(path: PathBuf, text: String) -> Source {
        assert!(text.ends_with('\n'));
        let mut starts = Vec::new();
        let mut at = 0;
        while let Some(length) = text[at..].find('\n') {
            at += length + 1;
            starts.push(at);
        }
        let header = cells(text.lines().next().unwrap())
            .into_iter()
            .map(Cow::into_owned)
            .collect();
        Source {
            path,
            text,
            header,
            starts,
        }
    }

    /// The rows that `wanted` accepts, as a file of their own.
    pub(crate) fn only(&self, wanted: impl Fn(&[Cow<'_, str>]) -> bool) -> Source {
        let mut text = format!("{}\n", self.text.lines().next().unwrap());
        for row in 0..self.row_count() {
            if wanted(&self.cells(row)) {
                text.push_str(self.line(row));
                text.push('\n');
            }
        }
        Source::of_text(PathBuf::from("-"), text)
    }

    /// The rows whose first cell is one of these, as a file of their own. Cheaper than
    /// [`Source::only`].
    pub(crate) fn of_streams(&self, wanted: &HashSet<&str>) -> Source {
        let mut text = format!("{}\n", self.text.lines().next().unwrap());
        for row in 0..self.row_count() {
            let line = self.line(row);
            if wanted.contains(line.split_once(',').unwrap().0) {
                text.push_str(line);
                text.push('\n');
            }
        }
        Source::of_text(PathBuf::from("-"), text)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn row_count(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    /// The place of a column.
    pub(crate) fn at(&self, column: &str) -> usize {
        self.header
            .iter()
            .position(|name| name == column)
            .unwrap_or_else(|| panic!("no column {column}"))
    }

    pub(crate) fn line(&self, row: usize) -> &str {
        &self.text[self.starts[row]..self.starts[row + 1] - 1]
    }

    pub(crate) fn cells(&self, row: usize) -> Vec<Cow<'_, str>> {
        let cells = cells(self.line(row));
        assert_eq!(cells.len(), self.header.len(), "{}", self.line(row));
        cells
    }

    pub(crate) fn column(&self, name: &str) -> impl Iterator<Item = Cow<'_, str>> {
        let at = self.at(name);
        (0..self.row_count()).map(move |row| self.cells(row).swap_remove(at))
    }
}

/// The cells of a line. No file has a line break within a cell.
pub(crate) fn cells(line: &str) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(',').map(Cow::Borrowed).collect();
    }
    let mut out = Vec::new();
    let mut rest = Some(line);
    while let Some(text) = rest {
        if let Some(quoted) = text.strip_prefix('"') {
            let mut end = quoted.find('"').unwrap();
            while quoted[end + 1..].starts_with('"') {
                end += 2 + quoted[end + 2..].find('"').unwrap();
            }
            out.push(Cow::Owned(quoted[..end].replace("\"\"", "\"")));
            let tail = &quoted[end + 1..];
            assert!(tail.is_empty() || tail.starts_with(','), "{line}");
            rest = tail.strip_prefix(',');
        } else {
            let (cell, tail) = match text.split_once(',') {
                Some((cell, tail)) => (cell, Some(tail)),
                None => (text, None),
            };
            out.push(Cow::Borrowed(cell));
            rest = tail;
        }
    }
    out
}

#[test]
fn lines_are_split_at_commas_outside_quotes() {
    for (line, wanted) in [
        ("a,,b,", vec!["a", "", "b", ""]),
        ("\"a, b\",\"\",c", vec!["a, b", "", "c"]),
        ("x,\"say \"\"hi\"\"\"", vec!["x", "say \"hi\""]),
        ("\"\"\"\",1", vec!["\"", "1"]),
    ] {
        assert_eq!(cells(line), wanted, "{line}");
    }
}

#[test]
fn stamps_are_counted_from_1970() {
    for (text, wanted) in [
        ("1970-01-01T00:00:00.000Z", 0),
        ("2000-02-29T23:59:59.999Z", 951_868_799_999),
        ("2020-02-26T20:58:51.057Z", 1_582_750_731_057),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1900-01-01T00:00:00Z", -2_208_988_800_000),
    ] {
        assert_eq!(rfc3339(text), wanted * 1_000_000, "{text}");
    }
}
