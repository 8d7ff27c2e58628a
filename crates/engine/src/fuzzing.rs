//! Decoders of file formats, for the fuzz targets only.

use crate::metadata::catalog::{AddedFields, Table};
use crate::metadata::tables::PartitionRecord;
use crate::storage::index::{Front, IndexDefinition, IndexId, PolicyRecord, RunRecord};
use crate::storage::segment::{Footer, SegmentHeader, StubHead};
use crate::storage::tombstone::DeleteRecord;
use headwater_codec::Cursor;

/// Decodes a footer, trailer included; a decoded one must encode to the same bytes or decode again
/// to the same footer.
pub fn footer(bytes: &[u8]) {
    if let Ok(footer) = Footer::decode(bytes) {
        assert_eq!(Footer::decode(&footer.encode()).as_ref(), Ok(&footer));
        assert!(crate::storage::segment::index_agrees(bytes, &footer));
    }
}

/// Decodes the root of a checkpoint, and a page; `repair` = appends the right checksum to a root
/// first.
pub fn checkpoint(bytes: &[u8], repair: bool) {
    let mut bytes = bytes.to_vec();
    if repair {
        let crc = headwater_codec::checksum::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    crate::storage::segment::checkpoint_decodes_again(&bytes);
}

/// Decodes the front of a run of an index, and records of the metadata about indexes.
pub fn index(bytes: &[u8]) {
    if let Ok(front) = Front::decode(bytes, 8) {
        assert_eq!(Front::decode(&front.encode(), 8), Ok(front));
    }
    if let Ok(record) = PolicyRecord::decode(bytes) {
        assert_eq!(PolicyRecord::decode(&record.encode()), Ok(record));
    }
    if let Ok(definition) = IndexDefinition::decode(IndexId(1), bytes) {
        let again = IndexDefinition::decode(IndexId(1), &definition.encode());
        assert_eq!(again, Ok(definition));
    }
    if let Ok(record) = RunRecord::decode(bytes) {
        assert_eq!(RunRecord::decode(&record.encode()), Ok(record));
    }
}

/// A segment's header.
pub fn segment_header(bytes: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(bytes) {
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }
}

/// Decodes the head of the remaining parts of a segment; `repair` = appends the right checksum
/// first.
pub fn stub(bytes: &[u8], repair: bool) {
    let mut bytes = bytes.to_vec();
    if repair {
        let crc = headwater_codec::checksum::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    let _ = StubHead::head_bytes(&bytes);
    if let Ok(head) = StubHead::decode(&bytes) {
        assert_eq!(StubHead::decode(&head.encode()), Ok(head));
    }
}

/// A partition's record.
pub fn partition_record(bytes: &[u8]) {
    if let Ok(record) = PartitionRecord::decode(bytes) {
        assert_eq!(PartitionRecord::decode(&record.encode()), Ok(record));
    }
}

/// A table's definition, or fields added to one.
pub fn table_definition(bytes: &[u8]) {
    if let Ok(added) = AddedFields::decode(&mut Cursor::new(bytes)) {
        let mut out = Vec::new();
        added.encode(&mut out);
        assert_eq!(AddedFields::decode(&mut Cursor::new(&out)), Ok(added));
    }
    if let Ok(table) = Table::decode(&mut Cursor::new(bytes)) {
        let mut out = Vec::new();
        table.encode(&mut out);
        assert_eq!(Table::decode(&mut Cursor::new(&out)), Ok(table));
    }
}

/// Decodes the content of a delete's log record.
pub fn delete_record(bytes: &[u8]) {
    if let Ok(record) = DeleteRecord::decode(&mut Cursor::new(bytes)) {
        let out = record.encode();
        assert_eq!(DeleteRecord::decode(&mut Cursor::new(&out)), Ok(record));
    }
}

/// A backup's manifest; `repair` puts the right checksum in first.
pub fn manifest(bytes: &[u8], repair: bool) {
    crate::admin::backup::fuzz_manifest(bytes, repair);
}

/// A state of a database; `repair` puts the right checksum in first.
pub fn state(bytes: &[u8], repair: bool) {
    crate::replication::state::fuzz(bytes, repair);
}

/// Newest events that are sent along; `repair` puts the right checksum in first.
pub fn tail(bytes: &[u8], repair: bool) {
    crate::replication::tail::fuzz(bytes, repair);
}

/// The record of a named snapshot.
pub fn snapshot_record(bytes: &[u8]) {
    crate::storage::named_snapshots::fuzz(bytes);
}

/// Decodes a slot of the file that records the tiers of a database; `repair` = sets the right
/// checksum first.
pub fn tier_record(bytes: &[u8], repair: bool) {
    crate::device::tiers::fuzz_record(bytes, repair);
}

/// Decodes the header of a file with the index of a segment, and the record of a batch in it;
/// `repair` = sets the right ends of both first.
pub fn fast_index(bytes: &[u8], repair: bool) {
    crate::storage::fast_index::fuzz(bytes, repair);
}

/// Decodes the list of files that a repair is about to write; `repair` = appends the right checksum
/// first.
pub fn repairing(bytes: &[u8], repair: bool) {
    crate::metadata::pending_repairs::fuzz(bytes, repair);
}

/// A whole log file.
pub fn log_file(bytes: &[u8]) {
    crate::wal::fuzz_file(bytes);
}
