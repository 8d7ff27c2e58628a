//! A table's definition and its bytes.
//!
//! Invariants: a definition is immutable, and every change makes a new one; the furthest point that
//! aging ever reached never goes back. Concurrency: plain data. Failure: bytes that are not a
//! definition are refused, with the expected ones named.

use super::cutoff::Cutoff;
use crate::Error;
use crate::common::ids::TableId;
use crate::wal::RecordKind;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::{FieldId, FieldType, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Handling of two events of a stream with one timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// The later write replaces the earlier one, field by field; an absent field never clears. The
    /// default.
    #[default]
    Last,
    /// Both are stored, in order of arrival.
    Keep,
}

impl Duplicates {
    /// `last` or `keep`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Duplicates::Last => "last",
            Duplicates::Keep => "keep",
        }
    }
}

/// A field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub field_type: FieldType,
}

/// A table's definition. Immutable; a change makes a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) id: TableId,
    pub(crate) name: String,
    pub(crate) duplicates: Duplicates,
    pub(crate) leaf_events: u32,
    pub(crate) fields: Vec<Field>,
    /// Declared tag keys, sorted; streams may have others.
    pub(crate) tags: Vec<String>,
    pub(crate) lifetime: TableLifetime,
}

/// Lifetime of a table's rows: the policy that was set (retention, aging), how far it has been
/// carried out, and whether the table is dropped. A row's own expiry is stored with the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableLifetime {
    /// Rows older than this are removed; less than 2^63 ns.
    pub(crate) retention: Option<Duration>,
    /// Rows older than this are removed and leave their aggregates; less than 2^63 ns.
    pub(crate) raw_for: Option<Duration>,
    /// Progress of retention: no data before this instant exists any more.
    pub(crate) retention_cutoff: Cutoff,
    /// Progress of aging: rows before this instant are or will be only aggregates; no more rows may
    /// arrive there.
    pub(crate) aged_to: Cutoff,
    /// The furthest value that "aged to" ever had: rows before it may be aged, even where rows may
    /// be written again.
    pub(crate) aged_to_max: Cutoff,
    /// True when any write carried an expiry.
    pub(crate) expires: bool,
    /// The table is dropped; only its number is still reserved.
    pub(crate) dropped: bool,
}

impl TableLifetime {
    /// Lifetime of rows that are kept for ever.
    pub(crate) const FOREVER: TableLifetime = TableLifetime {
        retention: None,
        raw_for: None,
        retention_cutoff: Cutoff::NONE,
        aged_to: Cutoff::NONE,
        aged_to_max: Cutoff::NONE,
        expires: false,
        dropped: false,
    };

    /// The earliest instant at which a row may be written.
    pub(crate) fn floor(&self) -> Cutoff {
        self.retention_cutoff.max(self.aged_to)
    }

    /// True when there may be aged stretches where rows may be written again.
    pub(crate) fn has_writable_aged_range(&self) -> bool {
        self.aged_to_max > self.aged_to
    }

    /// True when rows of the table are aged, or were.
    pub(crate) fn ages(&self) -> bool {
        self.raw_for.is_some() || self.aged_to_max.is_set()
    }

    /// The largest level of a partition: at most an eighth of the shortest lifetime, so that whole
    /// partitions can be removed.
    pub(crate) fn level_max(&self) -> Option<i32> {
        let shortest = match (self.retention, self.raw_for) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        Some(level_at_most(shortest / 8))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.expires) | u8::from(self.dropped) << 1);
        for span in [self.retention, self.raw_for] {
            let ns = span.map_or(0, |span| span.as_nanos());
            out.put_varint(u64::try_from(ns).unwrap_or(i64::MAX.unsigned_abs()));
        }
        out.put_i64(self.retention_cutoff.as_nanos());
        out.put_i64(self.aged_to.as_nanos());
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<TableLifetime, DecodeError> {
        let flags = cursor.u8("table flags")?;
        if flags > 3 {
            return Err(cursor.expected("table flags 0 to 3"));
        }
        let mut duration = |what| -> Result<Option<Duration>, DecodeError> {
            let ns = cursor.varint(what)?;
            if i64::try_from(ns).is_err() {
                return Err(cursor.expected("a duration below 2^63 ns"));
            }
            Ok(Some(Duration::from_nanos(ns)).filter(|d| !d.is_zero()))
        };
        let (retention, raw_for) = (duration("retention")?, duration("duration of raw rows")?);
        let retention_cutoff = Cutoff::from_nanos(cursor.i64("retention cutoff")?);
        let aged_to = Cutoff::from_nanos(cursor.i64("aged to")?);
        Ok(TableLifetime {
            retention,
            raw_for,
            retention_cutoff,
            aged_to,
            aged_to_max: aged_to,
            expires: flags & 1 != 0,
            dropped: flags & 2 != 0,
        })
    }
}

/// The largest level whose buckets are at most this wide.
pub(crate) fn level_at_most(span: Duration) -> i32 {
    let ns = i128::try_from(span.as_nanos()).unwrap_or(i128::MAX);
    (-20..=34)
        .rev()
        .find(|level| headwater_types::Level::clamped(*level).bucket_start_wide(1) <= ns)
        .unwrap_or(-20)
}

/// Description of a table by [`crate::Database::tables`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// Handling of equal timestamps.
    pub duplicates: Duplicates,
    /// Events of a full leaf.
    pub leaf_events: u32,
    /// Tag keys of its streams, and declared ones, sorted.
    pub tags: Vec<String>,
    /// Its fields, in the order they were added.
    pub fields: Vec<Field>,
    /// Number of streams.
    pub streams: u64,
    /// Rows older than this are removed; `None` = never.
    pub retention: Option<Duration>,
    /// Rows older than this are removed and leave their aggregates; `None` = never.
    pub raw_for: Option<Duration>,
    /// No data before this instant is visible, and no rows can be written there. The instant goes
    /// back when the retention is raised.
    pub cut: Option<Timestamp>,
    /// No rows can be written before this instant: only aggregates are, or shortly will be,
    /// available there.
    pub aged_to: Option<Timestamp>,
}

/// A field to declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// Its name.
    pub name: String,
    /// Its type.
    pub field_type: FieldType,
}

/// A table to declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name.
    pub name: String,
    /// Handling of equal timestamps.
    pub duplicates: Duplicates,
    /// Events of a full leaf, 16 to 65,536; `None` = the database's default.
    pub leaf_events: Option<u32>,
    /// Fields to declare; writes may add more.
    pub fields: Vec<FieldSpec>,
    /// Tag keys to declare, so that they are known before the first write; writes may add more.
    pub tags: Vec<String>,
    /// Rows older than this are removed; `None` = never.
    pub retention: Option<Duration>,
    /// Rows older than this are removed and leave their aggregates; `None` = never.
    pub raw_for: Option<Duration>,
}

impl TableSpec {
    /// A table without declared fields, with the default settings.
    pub fn new(name: impl Into<String>) -> TableSpec {
        TableSpec {
            name: name.into(),
            duplicates: Duplicates::Last,
            leaf_events: None,
            fields: Vec::new(),
            tags: Vec::new(),
            retention: None,
            raw_for: None,
        }
    }
}

/// Version of a record without declared tags (docs/format/meta.md); version 1 had no lifetimes.
const VERSION: u8 = 2;
/// Version of a record with declared tags.
const VERSION_WITH_TAGS: u8 = 3;
/// Version of a record of a table whose aging went back.
const VERSION_AGED_BACK: u8 = 4;

impl Table {
    pub(crate) fn field_id(&self, name: &str) -> Option<FieldId> {
        let at = self.fields.iter().position(|f| f.name == name)?;
        u32::try_from(at).ok().map(FieldId)
    }

    pub(crate) fn field(&self, id: FieldId) -> Option<&Field> {
        self.fields.get(id.0 as usize)
    }

    pub(crate) fn keeps_duplicates(&self) -> bool {
        self.duplicates == Duplicates::Keep
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let went_back = self.lifetime.has_writable_aged_range();
        let version = match (went_back, self.tags.is_empty()) {
            (true, _) => VERSION_AGED_BACK,
            (false, true) => VERSION,
            (false, false) => VERSION_WITH_TAGS,
        };
        out.put_u8(version);
        out.put_varint(u64::from(self.id.0));
        out.put_prefixed(self.name.as_bytes());
        out.put_u8(match self.duplicates {
            Duplicates::Last => 0,
            Duplicates::Keep => 1,
        });
        out.put_varint(u64::from(self.leaf_events));
        encode_fields(&self.fields, out);
        self.lifetime.encode(out);
        if version >= VERSION_WITH_TAGS {
            out.put_varint(self.tags.len() as u64);
            for tag in &self.tags {
                out.put_prefixed(tag.as_bytes());
            }
        }
        if went_back {
            out.put_i64(self.lifetime.aged_to_max.as_nanos());
        }
    }

    /// Approximate bytes of memory of the definition.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Table>()
            + self.name.len()
            + fields_bytes(&self.fields)
            + self
                .tags
                .iter()
                .map(|t| TEXT_BYTES + t.len())
                .sum::<usize>()
    }

    /// Adds a field, if it is missing; widens an integer field to floats.
    pub(crate) fn add_field(&mut self, field: &FieldSpec) -> crate::Result<()> {
        use FieldType::{F64, I64};
        match self.fields.iter_mut().find(|f| f.name == field.name) {
            None => self.fields.push(Field {
                name: field.name.clone(),
                field_type: field.field_type,
            }),
            Some(known) if known.field_type == field.field_type => {}
            Some(known) if known.field_type == I64 && field.field_type == F64 => {
                known.field_type = F64;
            }
            Some(known) => {
                return Err(Error::invalid(format!(
                    "field `{}` is {} and cannot be changed to {}",
                    known.name, known.field_type, field.field_type
                )));
            }
        }
        Ok(())
    }

    /// Declares tag keys.
    pub(crate) fn add_tags(&mut self, tags: &[String]) -> crate::Result<()> {
        for tag in tags {
            check_name("tag", tag)?;
        }
        self.tags.extend_from_slice(tags);
        self.tags.sort_unstable();
        self.tags.dedup();
        Ok(())
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Table, DecodeError> {
        let version = cursor.u8("table version")?;
        if !(1..=VERSION_AGED_BACK).contains(&version) {
            return Err(cursor.expected("table definition version 1 to 4"));
        }
        let id = cursor.varint_up_to(u64::from(u32::MAX), "table id")?;
        let name = cursor.text("table name")?.to_owned();
        let duplicates = match cursor.u8("duplicates")? {
            0 => Duplicates::Last,
            1 => Duplicates::Keep,
            _ => return Err(cursor.expected("duplicates 0 or 1")),
        };
        let leaf_events = cursor.varint_up_to(65_536, "leaf events")?.max(1) as u32;
        let fields = decode_fields(cursor)?;
        let mut lifetime = if version == 1 {
            TableLifetime::FOREVER
        } else {
            TableLifetime::decode(cursor)?
        };
        let mut tags = Vec::new();
        if version >= VERSION_WITH_TAGS {
            let count = cursor.varint_up_to(cursor.remaining() as u64, "tag count")?;
            for _ in 0..count {
                tags.push(cursor.text("tag name")?.to_owned());
            }
        }
        if version == VERSION_AGED_BACK {
            let aged_to_max = Cutoff::from_nanos(cursor.i64("furthest aged to")?);
            lifetime.aged_to_max = aged_to_max.max(lifetime.aged_to);
        }
        Ok(Table {
            id: TableId(id as u32),
            name,
            duplicates,
            leaf_events,
            fields,
            tags,
            lifetime,
        })
    }
}

/// Memory of a name in addition to its bytes, with the allocator's share.
const TEXT_BYTES: usize = size_of::<String>() + 16;

/// Bytes of memory of fields, with their names in the lookup table.
fn fields_bytes(fields: &[Field]) -> usize {
    let name_bytes = |f: &Field| size_of::<Field>() + TEXT_BYTES + f.name.len();
    fields.iter().map(name_bytes).sum()
}

/// Fields added at the end of a table, as a record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedFields {
    pub(crate) table: TableId,
    /// Number of fields the table had before.
    pub(crate) first: u32,
    pub(crate) fields: Vec<Field>,
}

impl AddedFields {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(u64::from(self.table.0));
        out.put_varint(u64::from(self.first));
        encode_fields(&self.fields, out);
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<AddedFields, DecodeError> {
        let table = cursor.varint_up_to(u64::from(u32::MAX), "table id")?;
        let first = cursor.varint_up_to(u64::from(u32::MAX), "number of the first field")?;
        Ok(AddedFields {
            table: TableId(table as u32),
            first: first as u32,
            fields: decode_fields(cursor)?,
        })
    }

    /// Number of fields of the table afterwards.
    pub(crate) fn end(&self) -> usize {
        self.first as usize + self.fields.len()
    }

    /// Adds the fields that the table does not have yet.
    pub(crate) fn add_to(&self, table: &mut Table) -> crate::Result<()> {
        let known = table.fields.len().checked_sub(self.first as usize);
        let Some(known) = known.filter(|_| table.id == self.table) else {
            return Err(Error::internal(format!(
                "fields from {} on for table `{}` ({}), which has {}, and not for table {}",
                self.first,
                table.name,
                table.id.0,
                table.fields.len(),
                self.table.0
            )));
        };
        // The table may have all of these fields and more: the metadata can be newer than a record
        // of the log.
        table.fields.extend(self.fields.iter().skip(known).cloned());
        Ok(())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<AddedFields>() + fields_bytes(&self.fields)
    }
}

/// Record of a change of a table in the log.
#[derive(Clone, Debug)]
pub(crate) enum TableRecord {
    Full(Arc<Table>),
    Fields(AddedFields),
}

impl TableRecord {
    /// The smallest record that leads from one definition to the other.
    pub(crate) fn of(old: Option<&Arc<Table>>, new: &Arc<Table>) -> TableRecord {
        let whole = || TableRecord::Full(Arc::clone(new));
        let Some(old) = old else {
            return whole();
        };
        let (count, as_before) = (old.fields.len(), new.fields.get(..old.fields.len()));
        let Ok(first) = u32::try_from(count) else {
            return whole();
        };
        let only_fields = (old.id, &old.name, old.duplicates, old.leaf_events)
            == (new.id, &new.name, new.duplicates, new.leaf_events)
            && (&old.tags, old.lifetime) == (&new.tags, new.lifetime);
        match new.fields.get(count..) {
            Some(added) if only_fields && as_before == Some(&*old.fields) => {
                TableRecord::Fields(AddedFields {
                    table: new.id,
                    first,
                    fields: added.to_vec(),
                })
            }
            _ => whole(),
        }
    }

    /// The table that the record defines.
    pub(crate) fn table(&self) -> TableId {
        match self {
            TableRecord::Full(table) => table.id,
            TableRecord::Fields(added) => added.table,
        }
    }

    pub(crate) fn kind(&self) -> RecordKind {
        match self {
            TableRecord::Full(_) => RecordKind::Table,
            TableRecord::Fields(_) => RecordKind::Fields,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            TableRecord::Full(table) => table.encode(out),
            TableRecord::Fields(added) => added.encode(out),
        }
    }

    /// Bytes of memory of the record until it is in the metadata.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            TableRecord::Full(table) => table.heap_bytes(),
            TableRecord::Fields(added) => added.heap_bytes(),
        }
    }
}

fn encode_fields(fields: &[Field], out: &mut Vec<u8>) {
    out.put_varint(fields.len() as u64);
    for field in fields {
        out.put_u8(field.field_type as u8);
        out.put_prefixed(field.name.as_bytes());
    }
}

fn decode_fields(cursor: &mut Cursor<'_>) -> Result<Vec<Field>, DecodeError> {
    let count = cursor.varint_up_to(cursor.remaining() as u64, "field count")?;
    let mut fields = Vec::with_capacity(count);
    for _ in 0..count {
        let number = cursor.u8("field type")?;
        let Some(field_type) = FieldType::from_number(number) else {
            return Err(cursor.expected("a field type 1 to 6"));
        };
        fields.push(Field {
            name: cursor.text("field name")?.to_owned(),
            field_type,
        });
    }
    Ok(fields)
}

/// Maximum characters of a refused name that its message shows.
const NAME_SHOWN: usize = 80;

/// True for a character that changes the text direction around it, so that a displayed name would
/// differ from the real one.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks the value of a tag. Line ends and tabs are text of other systems' labels.
pub(crate) fn check_tag_value(key: &str, value: &str) -> crate::Result<()> {
    if value.len() > 4096 {
        return Err(Error::invalid(format!(
            "the value of tag `{key}` is longer than 4096 bytes"
        )));
    }
    let plain = value.bytes().all(|b| (b' '..0x7f).contains(&b));
    let is_hidden = |c: char| turns_text(c) || (c.is_control() && !matches!(c, '\t' | '\n' | '\r'));
    if !plain && let Some(found) = value.chars().find(|c| is_hidden(*c)) {
        return Err(Error::invalid(format!(
            "the value of tag `{key}` contains the invisible character U+{:04X}: remove it",
            u32::from(found)
        )));
    }
    Ok(())
}

/// Checks a name of a table, tag or field.
pub(crate) fn check_name(what: &str, name: &str) -> crate::Result<()> {
    let plain = name.bytes().all(|b| (b' '..0x7f).contains(&b));
    let is_hidden = |c: char| c.is_control() || turns_text(c);
    if name.is_empty() || name.len() > 255 || (!plain && name.chars().any(is_hidden)) {
        // A name may be as long as a line, and the message is returned for each line.
        let shown: String = name.chars().take(NAME_SHOWN).collect();
        let more = if shown.len() < name.len() { "…" } else { "" };
        return Err(Error::invalid(format!(
            "{what} name {shown:?}{more}: expected 1 to 255 bytes without control characters, found {} bytes",
            name.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod name_tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_in_no_name_and_in_no_value_of_a_tag() {
        for name in ["weather", "Wetter in Köln", "a\u{300}", "עברית", "🌡"] {
            assert!(check_name("table", name).is_ok(), "{name}");
            assert!(check_tag_value("site", name).is_ok(), "{name}");
        }
        for name in ["a\0", "\u{202e}b", "a\u{2066}", "a\u{7f}", "a\u{85}"] {
            assert!(check_name("table", name).is_err(), "{name:?}");
            assert!(check_tag_value("site", name).is_err(), "{name:?}");
        }
        // Labels of other systems have several lines.
        assert!(check_name("table", "a\nb").is_err());
        assert!(check_tag_value("site", "a\n\tb\r").is_ok());
        assert!(check_tag_value("site", "").is_ok());
        assert!(check_tag_value("site", &"x".repeat(4097)).is_err());
    }
}
