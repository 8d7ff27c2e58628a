//! State that the requests of a case leave behind.

use super::cases::{BEGIN_MS, Case, Request};
use super::cell::Cell;
use std::collections::BTreeMap;

/// Rows of a stream, by their nanoseconds since 1970.
pub type Rows = BTreeMap<i64, BTreeMap<String, Cell>>;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Names and types of its fields.
    pub fields: BTreeMap<String, String>,
    /// Its streams by their tags, as `a=1,b=2`.
    pub streams: BTreeMap<String, Rows>,
}

/// Tables by their names.
pub type State = BTreeMap<String, Table>;

/// The tags of a stream as text.
pub(super) fn tags_text(tags: &BTreeMap<String, String>) -> String {
    let pairs = tags.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// Where rows of now begin: behind all that have a time of their own.
const NOW_NS: i64 = BEGIN_MS * 1_000_000 + 86_400_000_000_000;

/// Stores what a request stores. Returns how many rows replaced others, of the request or before.
pub(super) fn apply(state: &mut State, request: &Request, is_whole: bool) -> u64 {
    if is_whole && !request.refused.is_empty() {
        return 0;
    }
    let mut replaced = 0;
    for (at, row) in request.rows.iter().enumerate() {
        if request.refused.contains_key(&at) {
            continue;
        }
        let table = state.entry(row.table.clone()).or_default();
        for (name, cell) in &row.fields {
            let known = table.fields.entry(name.clone());
            let known = known.or_insert_with(|| cell.type_name().to_owned());
            if known == "i64" && cell.type_name() == "f64" {
                "f64".clone_into(known);
            }
        }
        let rows = table.streams.entry(tags_text(&row.tags)).or_default();
        let newest = rows.last_key_value().map_or(NOW_NS, |(time, _)| *time);
        let time = row.unix_ns().unwrap_or(newest.max(NOW_NS) + 1);
        replaced += u64::from(rows.contains_key(&time));
        let stored = rows.entry(time).or_default();
        let cells = row.fields.iter().map(|(n, c)| (n.clone(), c.clone()));
        stored.extend(cells);
    }
    for table in state.values_mut() {
        let fields = &table.fields;
        let cells = table.streams.values_mut().flat_map(Rows::values_mut);
        for (name, cell) in cells.flatten() {
            let is_float = fields.get(name).is_some_and(|of| of == "f64");
            if let Cell::I64(integer) = &*cell
                && is_float
            {
                *cell = Cell::F64(integer.to_string().parse().unwrap());
            }
        }
    }
    replaced
}

/// The tables of a case with the types of the stored fields, and of refused ones where nothing else
/// is: the declarations of a client that declares tables.
pub(super) fn tables_of(case: &Case, after: &State) -> State {
    let mut all = after.clone();
    for row in case.requests.iter().flat_map(|request| &request.rows) {
        let table = all.entry(row.table.clone()).or_default();
        for (name, cell) in &row.fields {
            let known = table.fields.entry(name.clone());
            known.or_insert_with(|| cell.type_name().to_owned());
        }
    }
    all
}

/// The differences, in lines.
pub(super) fn differences(expected: &State, found: &State) -> Vec<String> {
    let mut told = Vec::new();
    let names: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    for name in names {
        match (expected.get(name), found.get(name)) {
            (Some(expected), Some(found)) => {
                if expected.fields != found.fields {
                    told.push(format!(
                        "{name}: fields {:?}, expected {:?}",
                        found.fields, expected.fields
                    ));
                }
                let (expected, found) = (lines(expected), lines(found));
                if expected != found {
                    told.push(format!(
                        "{name}: rows\n  {}\nexpected\n  {}",
                        found.join("\n  "),
                        expected.join("\n  ")
                    ));
                }
            }
            (None, Some(found)) => told.push(format!("{name} is there: {found:?}")),
            _ => told.push(format!("{name} is not there")),
        }
    }
    told
}

/// The rows of a table; those of now have no time, and stand in its order.
fn lines(table: &Table) -> Vec<String> {
    let mut told = Vec::new();
    for (tags, rows) in &table.streams {
        told.push(format!("[{tags}]"));
        for (time, row) in rows {
            let time = match *time >= NOW_NS {
                true => "now".to_owned(),
                false => time.to_string(),
            };
            let cells = row.iter().map(|(n, cell)| format!("{n}={}", cell.exact()));
            told.push(format!("{time} {}", cells.collect::<Vec<_>>().join(" ")));
        }
    }
    told
}
