//! What an export must say: the rows of a source by stream and time, with equal times kept or
//! merged.
//!
//! Rule: a value is the same when its text is, or when both texts are read as the same number to
//! the last bit. Numbers whose text says more than the number (leading zeros, a plus sign) must not
//! have become numbers at all.

use super::Mapping;
use super::source::{ABSENT, Source, cells};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// What a table does with equal times in a stream.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Duplicates {
    Keep,
    Last,
}

/// The rows of a stream: times and row numbers of the source, by time, then arrival.
type Rows = Vec<(i64, u32)>;

/// A source as its table must hold it.
pub(crate) struct Expected<'s> {
    source: &'s Source,
    null: Option<&'s str>,
    tags: Vec<(String, usize)>,
    time: usize,
    duplicates: Duplicates,
    streams: BTreeMap<String, Rows>,
}

impl<'s> Expected<'s> {
    pub(crate) fn new(source: &'s Source, mapping: &'s Mapping, duplicates: Duplicates) -> Self {
        let mut tags: Vec<(String, usize)> = mapping
            .tags
            .iter()
            .map(|tag| ((*tag).to_owned(), source.at(tag)))
            .collect();
        tags.sort();
        let time = source.at(mapping.time);
        let mut streams: HashMap<String, Rows> = HashMap::new();
        let mut name = String::new();
        for row in 0..source.row_count() {
            let cells = source.cells(row);
            name.clear();
            for (tag, at) in &tags {
                push_tag(&mut name, tag, &cells[*at]);
            }
            let entry = (mapping.stamp.read(&cells[time]), row as u32);
            match streams.get_mut(&name) {
                Some(rows) => rows.push(entry),
                None => drop(streams.insert(name.clone(), vec![entry])),
            }
        }
        for rows in streams.values_mut() {
            rows.sort_by_key(|(at, _)| *at);
        }
        Expected {
            source,
            null: mapping.null,
            tags,
            time,
            duplicates,
            streams: streams.into_iter().collect(),
        }
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Rows after merging.
    pub(crate) fn row_count(&self) -> usize {
        self.streams
            .values()
            .map(|rows| self.groups(rows).count())
            .sum()
    }

    /// Rows that are one event: those of equal times where the last counts.
    fn groups<'r>(&self, rows: &'r [(i64, u32)]) -> impl Iterator<Item = &'r [(i64, u32)]> {
        let merges = self.duplicates == Duplicates::Last;
        rows.chunk_by(move |a, b| merges && a.0 == b.0)
    }

    /// Begins a comparison with an export of this header.
    pub(crate) fn start<'e>(
        &'e self,
        header: &str,
        types: &[(String, String)],
    ) -> Comparison<'e, 's> {
        let header: Vec<String> = cells(header).into_iter().map(Cow::into_owned).collect();
        let first_field = 1 + self.tags.len();
        assert_eq!(header[0], "time");
        let tags: Vec<&String> = self.tags.iter().map(|(tag, _)| tag).collect();
        assert_eq!(header[1..first_field].iter().collect::<Vec<_>>(), tags);
        assert_eq!(header.len() - first_field, types.len());
        let fields = header[first_field..]
            .iter()
            .zip(types)
            .map(|(name, (declared, field_type))| {
                assert_eq!(name, declared);
                Field {
                    at: self.source.at(name),
                    kind: ColumnKind::of(field_type),
                }
            })
            .collect();
        let missing = (0..self.source.header().len())
            .filter(|at| *at != self.time && !tags.contains(&&self.source.header()[*at]))
            .filter(|at| {
                types
                    .iter()
                    .all(|(name, _)| *name != self.source.header()[*at])
            })
            .collect();
        Comparison {
            expected: self,
            fields,
            missing,
            stream: String::new(),
            groups: Box::new(std::iter::empty()),
            open: self.streams.keys().map(String::as_str).collect(),
            rows: 0,
        }
    }
}

fn push_tag(name: &mut String, tag: &str, value: &str) {
    if !value.is_empty() && value != ABSENT {
        name.push_str(tag);
        name.push('\u{1}');
        name.push_str(value);
        name.push('\u{2}');
    }
}

struct Field {
    /// The place of its cells in the source.
    at: usize,
    kind: ColumnKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ColumnKind {
    F64,
    I64,
    Bool,
    Text,
}

impl ColumnKind {
    fn of(name: &str) -> ColumnKind {
        match name {
            "f64" => ColumnKind::F64,
            "i64" => ColumnKind::I64,
            "bool" => ColumnKind::Bool,
            "string" => ColumnKind::Text,
            other => panic!("no file has columns of type {other}"),
        }
    }

    fn is_same(self, source: &str, exported: &str) -> bool {
        let text_is_same = source == exported;
        match self {
            ColumnKind::Text | ColumnKind::Bool => text_is_same,
            // An integer is written in one way only.
            ColumnKind::I64 => text_is_same && exported.parse::<i64>().is_ok(),
            ColumnKind::F64 => {
                let digits = source.strip_prefix('-').unwrap_or(source).as_bytes();
                let says_more = matches!(digits, [b'0', b'0'..=b'9', ..] | [b'+', ..] | []);
                let bits = |text: &str| text.parse::<f64>().map(f64::to_bits);
                !says_more
                    && (text_is_same || bits(source).is_ok() && bits(source) == bits(exported))
            }
        }
    }
}

/// An export being compared.
pub(crate) struct Comparison<'e, 's> {
    expected: &'e Expected<'s>,
    fields: Vec<Field>,
    /// Columns of the source that the export has not.
    missing: Vec<usize>,
    stream: String,
    groups: Box<dyn Iterator<Item = &'e [(i64, u32)]> + 'e>,
    /// Streams not met yet.
    open: Vec<&'e str>,
    rows: usize,
}

impl<'e> Comparison<'e, '_> {
    /// Compares the next row of the export.
    pub(crate) fn row(&mut self, line: &str) {
        self.rows += 1;
        let exported = cells(line);
        let expected = self.expected;
        let mut stream = String::new();
        for ((tag, _), value) in expected.tags.iter().zip(&exported[1..]) {
            push_tag(&mut stream, tag, value);
        }
        if stream != self.stream || self.rows == 1 {
            assert!(
                self.groups.next().is_none(),
                "rows missing of {}",
                self.stream
            );
            let at = self.open.iter().position(|name| *name == stream);
            let name = self
                .open
                .swap_remove(at.unwrap_or_else(|| panic!("no stream for {line}")));
            self.groups = Box::new(expected.groups(&expected.streams[name]));
            self.stream = stream;
        }
        let group = self
            .groups
            .next()
            .unwrap_or_else(|| panic!("one row too many: {line}"));
        assert_eq!(exported[0].parse(), Ok(group[0].0), "the time of {line}");
        let sources: Vec<_> = group
            .iter()
            .map(|(_, row)| expected.source.cells(*row as usize))
            .collect();
        let values = &exported[1 + expected.tags.len()..];
        assert_eq!(values.len(), self.fields.len(), "{line}");
        for (field, value) in self.fields.iter().zip(values) {
            let wanted = self.value(&sources, field);
            let is_same = match wanted {
                None => value == ABSENT,
                Some(wanted) => value != ABSENT && field.kind.is_same(wanted, value),
            };
            assert!(
                is_same,
                "column {}: expected {wanted:?}, found `{value}` ({:?}) in {line}",
                expected.source.header()[field.at],
                field.kind
            );
        }
        for at in &self.missing {
            let is_empty = sources
                .iter()
                .all(|cells| self.is_absent(&cells[*at], ColumnKind::F64));
            assert!(is_empty, "column {at} is not exported: {line}");
        }
    }

    /// The newest value that is there.
    fn value<'c>(&self, sources: &'c [Vec<Cow<'_, str>>], field: &Field) -> Option<&'c str> {
        sources
            .iter()
            .rev()
            .map(|cells| cells[field.at].as_ref())
            .find(|cell| !self.is_absent(cell, field.kind))
    }

    /// With a text for absent values, an empty cell is an empty text.
    fn is_absent(&self, cell: &str, kind: ColumnKind) -> bool {
        match self.expected.null {
            None => cell.is_empty(),
            Some(null) => cell == null || (cell.is_empty() && kind != ColumnKind::Text),
        }
    }

    /// Ends the comparison: nothing may be left. Returns the rows.
    pub(crate) fn finish(mut self) -> usize {
        assert!(
            self.groups.next().is_none(),
            "rows missing of {}",
            self.stream
        );
        assert!(self.open.is_empty(), "streams missing: {:?}", self.open);
        self.rows
    }
}

#[test]
fn numbers_are_compared_to_the_bit() {
    for (kind, source, exported, wanted) in [
        (ColumnKind::F64, "3.350", "3.35", true),
        (ColumnKind::F64, "39", "39.0", true),
        (ColumnKind::F64, "0.1", "0.10000000000000002", false),
        (ColumnKind::F64, "-0.0", "0.0", false),
        (ColumnKind::F64, "0012", "12.0", false),
        (ColumnKind::F64, "+5", "5.0", false),
        (ColumnKind::F64, "NA", "NaN", false),
        (ColumnKind::I64, "07", "7", false),
        (ColumnKind::I64, "-7", "-7", true),
        (ColumnKind::Text, "a", "a ", false),
    ] {
        assert_eq!(
            kind.is_same(source, exported),
            wanted,
            "{source} {exported}"
        );
    }
}
