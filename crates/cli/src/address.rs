//! Names of streams and fields as typed by people: `TABLE,TAG=VALUE.FIELD`.
//!
//! Rule: the field begins behind the last dot that leaves the name of a table with known streams
//! before it and the name of one of its fields behind it, so dots in tags and in fields need no
//! quoting. Tags may be left out as long as one stream is meant.

use crate::failure::Failure;
use headwater::{ErrorKind, FieldType, Snapshot, StreamName};

/// Names listed in a message.
const NAMES_SHOWN: usize = 10;

/// Streams and fields that an address names.
#[derive(Debug)]
pub(crate) struct Address {
    /// The streams that have the tags of the address, by name.
    pub(crate) streams: Vec<StreamName>,
    /// The field, when one was named.
    pub(crate) field: Option<(String, FieldType)>,
}

impl Address {
    /// Streams, or a field of streams.
    pub(crate) fn of_streams(snapshot: &Snapshot, text: &str) -> Result<Address, Failure> {
        if let Some(name) = StreamName::parse(text) {
            let streams = streams_of(snapshot, &name)?;
            if !streams.is_empty() {
                return Ok(Address {
                    streams,
                    field: None,
                });
            }
        }
        match find_field(snapshot, text)? {
            Some(address) => Ok(address),
            None => Err(not_found(snapshot, text)),
        }
    }

    /// A field of exactly one stream.
    pub(crate) fn of_field(
        snapshot: &Snapshot,
        text: &str,
    ) -> Result<(StreamName, String, FieldType), Failure> {
        let Some(address) = find_field(snapshot, text)? else {
            return Err(not_found(snapshot, text));
        };
        let Some((field, field_type)) = address.field else {
            return Err(not_found(snapshot, text));
        };
        match address.streams.as_slice() {
            [stream] => Ok((stream.clone(), field, field_type)),
            streams => Err(Failure::failed(format!(
                "`{text}` matches {} streams, name one of them:\n  {}",
                streams.len(),
                listed(streams.iter().map(|s| format!("{s}.{field}")), "\n  ")
            ))),
        }
    }
}

fn find_field(snapshot: &Snapshot, text: &str) -> Result<Option<Address>, Failure> {
    for (at, _) in text.rmatch_indices('.') {
        let (stream, field) = (text.get(..at), text.get(at + 1..));
        let (Some(name), Some(field)) = (stream.and_then(StreamName::parse), field) else {
            continue;
        };
        let Some(field_type) = field_type(snapshot, name.table(), field)? else {
            continue;
        };
        let streams = streams_of(snapshot, &name)?;
        if !streams.is_empty() {
            return Ok(Some(Address {
                streams,
                field: Some((field.to_owned(), field_type)),
            }));
        }
    }
    Ok(None)
}

/// The streams that have all tags of `name`; the one stream of exactly that name if there is one
/// and tags are given.
fn streams_of(snapshot: &Snapshot, name: &StreamName) -> Result<Vec<StreamName>, Failure> {
    match snapshot.streams(name.table(), name.tags()) {
        Ok(streams) if !name.tags().is_empty() && streams.contains(name) => Ok(vec![name.clone()]),
        Ok(mut streams) => {
            streams.sort();
            Ok(streams)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn field_type(snapshot: &Snapshot, table: &str, field: &str) -> Result<Option<FieldType>, Failure> {
    match snapshot.fields(table) {
        Ok(fields) => Ok(fields.into_iter().find(|(n, _)| n == field).map(|(_, t)| t)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Says how far the address leads.
fn not_found(snapshot: &Snapshot, text: &str) -> Failure {
    let table_end = text.find([',', '.']).unwrap_or(text.len());
    let mut tables: Vec<&str> = text
        .match_indices(['.', ','])
        .map(|(at, _)| at)
        .chain([table_end, text.len()])
        .filter_map(|at| text.get(..at))
        .filter(|table| snapshot.fields(table).is_ok())
        .collect();
    tables.sort_by_key(|t| t.len());
    let Some(table) = tables.pop() else {
        return Failure::failed(format!(
            "`{text}`: the table does not exist; `headwater table show` lists the tables"
        ));
    };
    let fields = snapshot.fields(table).unwrap_or_default();
    let mut streams = snapshot.streams(table, &[]).unwrap_or_default();
    streams.sort();
    // What names a stream, and perhaps a field, that is not there is no mistake of form.
    let is_stream = StreamName::parse(text).is_some_and(|name| name.table() == table);
    let what = match is_stream {
        true => "it matches no stream and no field",
        false => "expected TABLE,TAG=VALUE.FIELD",
    };
    Failure::failed(format!(
        "`{text}`: {what}\n  table `{table}` has the fields: {}\n  and the streams: {}",
        listed(fields.into_iter().map(|(name, _)| name), ", "),
        listed(streams.iter().map(StreamName::to_string), "  ")
    ))
}

fn listed(names: impl ExactSizeIterator<Item = String>, separator: &str) -> String {
    let count = names.len();
    let mut text = names.take(NAMES_SHOWN).collect::<Vec<_>>().join(separator);
    if count == 0 {
        text.push_str("none");
    }
    if count > NAMES_SHOWN {
        text.push_str(&format!("{separator}… and {} more", count - NAMES_SHOWN));
    }
    text
}
