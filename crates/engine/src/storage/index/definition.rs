//! The records of indexes in the metadata: definitions, and runs.
//!
//! Invariants: an index has one to four distinct fields; a run's record has the offset and the
//! checksum of its front, so that no other file is taken for it. Format: docs/format/index.md.

use crate::common::ids::TableId;
use crate::metadata::catalog::Table;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::{FieldId, FieldType};

/// Maximum number of fields of an index.
pub(crate) const FIELDS_MAX: usize = 4;

const DEFINITION_VERSION: u8 = 1;
const RUN_VERSION: u8 = 1;

/// The number of an index. Reused once the metadata do not refer to it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IndexId(pub(crate) u32);

/// The definition of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexDefinition {
    pub(crate) id: IndexId,
    pub(crate) table: TableId,
    pub(crate) name: String,
    pub(crate) fields: Vec<FieldId>,
}

impl IndexDefinition {
    /// The bytes of its record; the number is the key.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![DEFINITION_VERSION];
        out.put_varint(u64::from(self.table.0));
        out.put_prefixed(self.name.as_bytes());
        out.put_varint(headwater_types::invariant::wide(self.fields.len()));
        for field in &self.fields {
            out.put_varint(u64::from(field.0));
        }
        out
    }

    pub(crate) fn decode(id: IndexId, bytes: &[u8]) -> Result<IndexDefinition, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("version of an index")? != DEFINITION_VERSION {
            return Err(cursor.expected("an index of version 1"));
        }
        let table = TableId(number(&mut cursor, "table of an index")?);
        let name = cursor.text("name of an index")?.to_owned();
        let count = cursor.varint_up_to(
            headwater_types::invariant::wide(FIELDS_MAX),
            "fields of an index",
        )?;
        let mut fields: Vec<FieldId> = Vec::new();
        for _ in 0..count {
            let field = FieldId(number(&mut cursor, "field of an index")?);
            if fields.contains(&field) {
                return Err(cursor.expected("distinct fields of an index"));
            }
            fields.push(field);
        }
        if fields.is_empty() {
            return Err(cursor.expected("an index with a field"));
        }
        cursor.finish()?;
        Ok(IndexDefinition {
            id,
            table,
            name,
            fields,
        })
    }
}

pub(super) fn number(cursor: &mut Cursor<'_>, what: &'static str) -> Result<u32, DecodeError> {
    let number = cursor.varint(what)?;
    u32::try_from(number).map_err(|_| cursor.expected(what))
}

/// Numbers of types, one for each field of an index, then zeros.
pub(crate) type Types = [u8; FIELDS_MAX];

/// The current types of the fields of an index in its table.
pub(crate) fn types_in(table: &Table, definition: &IndexDefinition) -> Types {
    let fields = definition.fields.iter().filter_map(|id| table.field(*id));
    types_of(fields.map(|field| field.field_type))
}

/// The numbers of these types.
pub(crate) fn types_of(types: impl Iterator<Item = FieldType>) -> Types {
    let mut out = Types::default();
    for (slot, field_type) in out.iter_mut().zip(types) {
        *slot = field_type.number();
    }
    out
}

fn take_types(cursor: &mut Cursor<'_>) -> Result<Types, DecodeError> {
    let mut types = Types::default();
    for slot in &mut types {
        *slot = cursor.u8("type of a field of an index")?;
    }
    Ok(types)
}

/// A run in the metadata: the key is its segment and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunRecord {
    pub(crate) index: IndexId,
    /// Offset of the front, which follows all blocks.
    pub(crate) front_offset: u64,
    pub(crate) front_bytes: u32,
    pub(crate) front_crc: u32,
    pub(crate) entries: u64,
    /// Rows of its leaves.
    pub(crate) rows: u64,
    /// Numbers of the types of its values, one for each field, then zeros.
    pub(crate) types: Types,
    /// Length of the segment up to which this run completes the index: together with the other
    /// runs, it covers all leaves that the segment had at this length; 0 = some leaves are in no
    /// run.
    pub(crate) complete_to: u64,
}

impl RunRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![RUN_VERSION];
        out.put_varint(u64::from(self.index.0));
        out.put_varint(self.front_offset);
        out.put_varint(u64::from(self.front_bytes));
        out.put_u32(self.front_crc);
        out.put_varint(self.entries);
        out.put_varint(self.rows);
        out.put_varint(self.complete_to);
        out.extend_from_slice(&self.types);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<RunRecord, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8("version of an index run")? != RUN_VERSION {
            return Err(cursor.expected("an index run of version 1"));
        }
        let record = RunRecord {
            index: IndexId(number(&mut cursor, "number of an index")?),
            front_offset: cursor.varint("offset of a front")?,
            front_bytes: number(&mut cursor, "length of a front")?,
            front_crc: cursor.u32("checksum of a front")?,
            entries: cursor.varint("entries of an index run")?,
            rows: cursor.varint("rows of an index run")?,
            complete_to: cursor.varint("length of the segment")?,
            types: take_types(&mut cursor)?,
        };
        cursor.finish()?;
        Ok(record)
    }

    /// Bytes of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.front_offset
            .saturating_add(u64::from(self.front_bytes))
    }
}
