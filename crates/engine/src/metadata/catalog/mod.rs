//! Tables, fields and streams.
//!
//! Invariants: ids are dense and never reused; a definition is in the log before any record that
//! uses it, and in the metadata before the log record is recycled; a [`Table`] is immutable, a
//! change makes a new one. A field's type changes only from i64 to f64. Concurrency: one lock over
//! the definitions; it is held while a definition is put into the log, but never during I/O: the
//! metadata are read without it.

mod cutoff;
mod definitions;
mod describe;
mod index;
mod limits;
mod pending;
mod streams;
mod table;
mod tag_filter;

pub(crate) use cutoff::Cutoff;
pub(crate) use definitions::{Catalog, NewStreamKeys, Planned, PlannedTable, Tables};
pub(crate) use index::{SavedDefinitions, StreamIndex};
pub(crate) use limits::{Defined, LimitExceeded, TableLimits};
pub(crate) use pending::Definition;
pub(crate) use streams::{StreamRecord, decode_stream_key, push_tags_text, stream_key};
pub(crate) use table::{
    AddedFields, Table, TableLifetime, TableRecord, check_name, check_tag_value, level_at_most,
};
pub use table::{Duplicates, Field, FieldSpec, TableInfo, TableSpec};
pub(crate) use tag_filter::{KeyMatch, TagFilter, Walk};
