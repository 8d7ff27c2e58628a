//! The cases, as they lie in `tests/doors/cases.json`.

use super::cell::Cell;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The instant from which cases count: 2024-01-01T00:00:00Z.
pub(super) const BEGIN_MS: i64 = 1_704_067_200_000;

/// Ability of a form that a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Integers that are no floats.
    Integers,
    /// Integers beyond those with a sign.
    Unsigned,
    /// True and false.
    TruthValues,
    /// Values that are texts.
    Texts,
    /// Texts of several lines, or with blanks around.
    LinesInTexts,
    /// An empty text that is not absent.
    EmptyTexts,
    /// Instants that the sender knows.
    Times,
    /// A limit to how far ahead of the clock an instant may be.
    FarTimes,
    /// Rows without an instant.
    NoTimes,
    /// More than one field in a row.
    SeveralFields,
    /// Rows of more than one table in a request.
    SeveralTables,
    /// More than one tag, and rows that lack one.
    SeveralTags,
    /// Fields, and tables, that nobody declared.
    NewFields,
    /// Values of several types for one field in a request.
    MixedTypes,
    /// Rows of a request that have not all its fields.
    Sparse,
    /// Names with blanks, commas and letters beyond ASCII.
    OddNames,
    /// A field by the name of the column of times.
    FieldCalledTime,
}

impl Need {
    fn read(word: &str) -> Need {
        match word {
            "integers" => Need::Integers,
            "unsigned" => Need::Unsigned,
            "truth values" => Need::TruthValues,
            "texts" => Need::Texts,
            "lines in texts" => Need::LinesInTexts,
            "empty texts" => Need::EmptyTexts,
            "times" => Need::Times,
            "far times" => Need::FarTimes,
            "no times" => Need::NoTimes,
            "several fields" => Need::SeveralFields,
            "several tables" => Need::SeveralTables,
            "several tags" => Need::SeveralTags,
            "new fields" => Need::NewFields,
            "mixed types" => Need::MixedTypes,
            "sparse" => Need::Sparse,
            "odd names" => Need::OddNames,
            "a field called time" => Need::FieldCalledTime,
            other => panic!("tests/doors/cases.json: no need is called `{other}`"),
        }
    }
}

/// Requests, one after the other.
#[derive(Clone, Debug)]
pub struct Case {
    /// The law that it shows.
    pub name: String,
    /// The abilities that a form must have.
    pub needs: Vec<Need>,
    /// The requests, in their order.
    pub requests: Vec<Request>,
}

/// Rows that are sent at once.
#[derive(Clone, Debug)]
pub struct Request {
    /// The rows.
    pub rows: Vec<Row>,
    /// Of these, by their index, those that must be refused, and the code.
    pub refused: BTreeMap<usize, String>,
    /// The number of rows that replace others of the request.
    pub replaced: u64,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its table.
    pub table: String,
    /// Names and values of its tags.
    pub tags: BTreeMap<String, String>,
    /// When it was, in milliseconds since 2024; `None` = now.
    pub time_ms: Option<i64>,
    /// Names and values of its fields.
    pub fields: BTreeMap<String, Cell>,
}

impl Row {
    /// When it was, in milliseconds since 1970.
    pub fn unix_ms(&self) -> Option<i64> {
        Some(self.time_ms? + BEGIN_MS)
    }

    /// When it was, in nanoseconds since 1970, as far as these go.
    pub fn unix_ns(&self) -> Option<i64> {
        Some(self.unix_ms()?.saturating_mul(1_000_000))
    }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/doors/cases.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let read: File = serde_json::from_str(&text).unwrap();
    read.cases.into_iter().map(Case::from).collect()
}

/// The file as it is written.
#[derive(Deserialize)]
struct File {
    cases: Vec<Written>,
}

/// A case as it is written.
#[derive(Deserialize)]
struct Written {
    name: String,
    needs: Vec<String>,
    requests: Vec<WrittenRequest>,
}

/// A request as it is written.
#[derive(Deserialize)]
struct WrittenRequest {
    rows: Vec<WrittenRow>,
    #[serde(default)]
    refused: BTreeMap<usize, String>,
    #[serde(default)]
    replaced: u64,
}

/// A row as it is written: table, tags, milliseconds, fields.
type WrittenRow = (
    String,
    BTreeMap<String, String>,
    Option<i64>,
    BTreeMap<String, String>,
);

impl From<Written> for Case {
    fn from(written: Written) -> Case {
        let requests = written.requests.into_iter().map(|request| Request {
            rows: request.rows.into_iter().map(Row::from).collect(),
            refused: request.refused,
            replaced: request.replaced,
        });
        Case {
            name: written.name,
            needs: written.needs.iter().map(|word| Need::read(word)).collect(),
            requests: requests.collect(),
        }
    }
}

impl From<WrittenRow> for Row {
    fn from((table, tags, time_ms, fields): WrittenRow) -> Row {
        let cells = fields.into_iter();
        Row {
            table,
            tags,
            time_ms,
            fields: cells
                .map(|(name, text)| (name, Cell::read(&text)))
                .collect(),
        }
    }
}
