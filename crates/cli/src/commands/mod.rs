//! One file per command: its arguments, and what it does.

pub(crate) mod aggregate;
pub(crate) mod analyze;
pub(crate) mod backup;
pub(crate) mod block;
#[cfg(feature = "bucket")]
pub(crate) mod bucket;
pub(crate) mod check;
pub(crate) mod compact;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod edges;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod influxql;
pub(crate) mod join;
pub(crate) mod lake;
pub(crate) mod last;
pub(crate) mod notices;
pub(crate) mod plot;
pub(crate) mod query;
pub(crate) mod repair;
pub(crate) mod replay;
pub(crate) mod restore;
pub(crate) mod rights;
pub(crate) mod scan;
pub(crate) mod serve;
mod shown_table;
pub(crate) mod snapshot;
pub(crate) mod sql;
pub(crate) mod stat;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod tier;
pub(crate) mod tile;
pub(crate) mod token;
pub(crate) mod watch;

/// A cell of CSV output, in quotes where needed.
fn csv_cell(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}
