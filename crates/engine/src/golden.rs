//! Golden bytes of the engine's own formats: the present files must stay readable for ever.
#![allow(clippy::disallowed_methods, reason = "tests")]

use crate::common::ids::{SegmentId, Sequence, ShardIndex, StreamId, TableId};
use crate::metadata::catalog::{
    AddedFields, Cutoff, Duplicates, Field, StreamRecord, Table, TableLifetime,
};
use crate::metadata::tables::PartitionRecord;
use crate::storage::index::{
    BlockLocation, Front, IndexBudget, IndexDefinition, IndexId, IndexPolicy, PolicyRecord,
    RunRecord,
};
use crate::storage::segment::{
    BlockEntry, CheckpointLocation, CheckpointNote, Cover, Footer, LeafEntry, Replaces,
    SegmentHeader, StreamDelta,
};
use crate::storage::tombstone::DeleteRecord;
use crate::wal::{FileHeader, RecordHeader};
use headwater_codec::Cursor;
use headwater_types::{ClosedRange, FieldId, FieldType, Level, Timestamp};

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let lines: Vec<&str> = (0..digits.len())
        .step_by(64)
        .filter_map(|i| digits.get(i..(i + 64).min(digits.len())))
        .collect();
    lines.join("\n") + "\n"
}

/// Compares with the file under `tests/golden`; with `HEADWATER_WRITE_GOLDEN=1` writes it.
pub(crate) fn check(name: &str, bytes: &[u8]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.hex"));
    let found = hex(bytes);
    if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, expected,
        "{name}: the bytes changed. A format that shipped never changes shape: give the new one a new version, keep the old \
         reader, describe both in docs/format"
    );
}

fn cutoff(ns: i64) -> Cutoff {
    Cutoff::at(Timestamp::from_nanos(ns))
}

fn table() -> Table {
    Table {
        id: TableId(3),
        name: "weather".into(),
        duplicates: Duplicates::Keep,
        leaf_events: 2048,
        fields: FieldType::ALL
            .into_iter()
            .map(|t| Field {
                name: format!("field of {t}"),
                field_type: t,
            })
            .collect(),
        tags: Vec::new(),
        lifetime: TableLifetime {
            retention: Some(std::time::Duration::from_secs(86_400)),
            raw_for: None,
            retention_cutoff: cutoff(1_700_000_000_000_000_000),
            aged_to: Cutoff::NONE,
            aged_to_max: Cutoff::NONE,
            expires: true,
            dropped: false,
        },
    }
}

/// Bytes that an earlier version wrote.
pub(crate) fn old(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.hex"));
    let text: String = std::fs::read_to_string(path)
        .unwrap()
        .split_whitespace()
        .collect();
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[i * 2..i * 2 + 2], 16).unwrap())
        .collect()
}

fn stream_key() -> Box<[u8]> {
    let mut key = Vec::new();
    crate::metadata::catalog::stream_key(TableId(3), &[("station".into(), "EWR".into())], &mut key);
    key.into()
}

fn footer() -> Footer {
    let leaf = |first, last, count, row_start, leaf_rows| LeafEntry {
        first: Timestamp::from_nanos(first),
        last: Timestamp::from_nanos(last),
        count,
        row_start,
        offset: 4096 + first as u64 % 100,
        bytes: 777,
        leaf_rows,
    };
    let full = StreamDelta {
        stream: StreamId(7),
        key: Some(stream_key()),
        removed: vec![(64, 0), (900, 17)],
        added: vec![leaf(-5, 10, 4, 0, 4), leaf(11, i64::MAX, 2048, 0, 2048)],
        clear_late: true,
        late_runs: vec![vec![leaf(0, 5, 3, 100, 256)]],
        base: Level::new(-3),
        removed_blocks: vec![555],
        added_blocks: vec![BlockEntry {
            level: Level::clamped(-1),
            first_bucket: -2,
            last_bucket: 61,
            count: 64,
            offset: 5000,
            bytes: 321,
        }],
        stale: Some(vec![ClosedRange::nanos(-1, 1)]),
        covers: vec![Cover {
            sequence: Sequence(99),
            range: ClosedRange::ALL,
        }],
        last_row: Some([1, 2, 3].into()),
    };
    let small = StreamDelta {
        stream: StreamId(300),
        added: vec![leaf(1, 1, 1, 0, 1)],
        ..StreamDelta::default()
    };
    Footer {
        previous: Some((2000, 100)),
        group_offset: 4000,
        sequence: Sequence(100),
        table: Some(table()),
        checkpoint: CheckpointNote::Nothing,
        streams: vec![full, small],
    }
}

#[test]
fn a_table_definition() {
    let mut bytes = Vec::new();
    table().encode(&mut bytes);
    check("table", &bytes);
    assert_eq!(Table::decode(&mut Cursor::new(&bytes)), Ok(table()));
}

#[test]
fn a_table_definition_with_tags() {
    let tagged = Table {
        tags: vec!["site".into(), "station".into()],
        ..table()
    };
    let mut bytes = Vec::new();
    tagged.encode(&mut bytes);
    check("table_with_tags", &bytes);
    assert_eq!(Table::decode(&mut Cursor::new(&bytes)), Ok(tagged));
}

#[test]
fn a_definition_of_which_has_writable_aged_range_keeps_how_far_it_was() {
    for tags in [Vec::new(), vec!["site".to_owned()]] {
        let back = Table {
            lifetime: TableLifetime {
                raw_for: Some(std::time::Duration::from_secs(86_400)),
                aged_to: cutoff(1_600_000_000_000_000_000),
                aged_to_max: cutoff(1_900_000_000_000_000_000),
                ..table().lifetime
            },
            tags,
            ..table()
        };
        let mut bytes = Vec::new();
        back.encode(&mut bytes);
        if back.tags.is_empty() {
            check("table_aged_back", &bytes);
        }
        assert_eq!(Table::decode(&mut Cursor::new(&bytes)), Ok(back));
        for len in 0..bytes.len() {
            assert!(Table::decode(&mut Cursor::new(&bytes[..len])).is_err());
        }
    }
}

#[test]
fn fields_added_to_a_table() {
    let added = AddedFields {
        table: TableId(3),
        first: 300,
        fields: table().fields,
    };
    let mut bytes = Vec::new();
    added.encode(&mut bytes);
    check("added_fields", &bytes);
    assert_eq!(AddedFields::decode(&mut Cursor::new(&bytes)), Ok(added));
    for end in 0..bytes.len() {
        let cut = &bytes[..end];
        assert!(AddedFields::decode(&mut Cursor::new(cut)).is_err());
    }
}

#[test]
fn definitions_without_lives_are_still_read() {
    let before = Table {
        lifetime: TableLifetime::FOREVER,
        ..table()
    };
    let bytes = old("table_v1");
    assert_eq!(Table::decode(&mut Cursor::new(&bytes)), Ok(before.clone()));
    let footer_before = Footer {
        table: Some(before),
        ..footer()
    };
    assert_eq!(Footer::decode(&old("footer_table_v1")), Ok(footer_before));
}

#[test]
fn a_delete() {
    let record = DeleteRecord {
        table: TableId(3),
        streams: Some([StreamId(7), StreamId(300)].into()),
        range: ClosedRange::nanos(-1, 1_700_000_000_000_000_000),
        drops_streams: false,
    };
    let bytes = record.encode();
    check("delete", &bytes);
    assert_eq!(DeleteRecord::decode(&mut Cursor::new(&bytes)), Ok(record));
}

#[test]
fn a_stream_record() {
    let record = StreamRecord {
        id: StreamId(7),
        table: TableId(3),
        shard: ShardIndex(1),
        key: stream_key(),
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    check("stream", &bytes);
    assert_eq!(StreamRecord::decode(&mut Cursor::new(&bytes)), Ok(record));
}

#[test]
fn a_partition_record() {
    let before = PartitionRecord {
        table: TableId(3),
        shard: ShardIndex(1),
        level: Level::clamped(21),
        bucket: -4,
        committed_bytes: 1 << 27,
        footer_offset: (1 << 27) - 200,
        footer_bytes: 200,
        sequence: Sequence(1 << 40),
        events: 12_345_678,
        live_bytes: 1 << 26,
        groups: 12,
        leaves: 6_000,
        late_runs: 3,
        aged: false,
        expires_first: None,
        expires_last: None,
        chain: None,
    };
    assert_eq!(
        PartitionRecord::decode(&old("partition_v1")),
        Ok(before.clone())
    );
    let record = PartitionRecord {
        aged: true,
        expires_first: Some(Timestamp::from_nanos(-1)),
        expires_last: Some(Timestamp::from_nanos(1_700_000_000_000_000_000)),
        ..before
    };
    let bytes = record.encode();
    check("partition", &bytes);
    assert_eq!(PartitionRecord::decode(&bytes), Ok(record.clone()));
    let record = PartitionRecord {
        chain: Some([7; 32]),
        ..record
    };
    let bytes = record.encode();
    check("partition_with_chain", &bytes);
    assert_eq!(PartitionRecord::decode(&bytes), Ok(record));
}

#[test]
fn a_segment_header() {
    let header = SegmentHeader {
        replaces: None,
        id: SegmentId(42),
        table: TableId(3),
        shard: ShardIndex(1),
        level: Level::clamped(-7),
        bucket: -9,
    };
    let bytes = header.encode();
    check("segment_header", &bytes);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    let header = SegmentHeader {
        replaces: Some(Replaces {
            id: SegmentId(17),
            footer_offset: 123_456,
            part: 1,
            parts: 2,
            covers_after: Sequence(99),
        }),
        ..header
    };
    let bytes = header.encode();
    check("segment_header_replacing", &bytes);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
}

#[test]
fn a_footer() {
    let bytes = footer().encode();
    check("footer", &bytes);
    assert_eq!(Footer::decode(&bytes), Ok(footer()));
    assert!(crate::storage::segment::index_agrees(&bytes, &footer()));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(
            Footer::decode(&damaged).is_err(),
            "a changed byte at {at} goes unnoticed"
        );
    }
}

#[test]
fn footers_that_say_something_of_checkpoints() {
    let place = CheckpointLocation {
        pages_bytes: 3000,
        root_bytes: 700,
    };
    for (name, checkpoint) in [
        ("footer_checkpoint", CheckpointNote::Written(place)),
        ("footer_revoked", CheckpointNote::Revoked),
    ] {
        let footer = Footer {
            checkpoint,
            ..footer()
        };
        let bytes = footer.encode();
        check(name, &bytes);
        assert_eq!(Footer::decode(&bytes).as_ref(), Ok(&footer));
        assert!(crate::storage::segment::index_agrees(&bytes, &footer));
    }
}

#[test]
fn a_footer_with_a_directory() {
    let streams = (1..40).map(|page: u32| StreamDelta {
        stream: StreamId(300 + page * 8),
        ..StreamDelta::default()
    });
    let footer = Footer {
        streams: footer().streams.into_iter().chain(streams).collect(),
        ..footer()
    };
    let bytes = crate::storage::segment::encode_divided(&footer, 3);
    check("footer_directory", &bytes);
    assert_eq!(Footer::decode(&bytes).as_ref(), Ok(&footer));
    assert!(crate::storage::segment::index_agrees(&bytes, &footer));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(
            Footer::decode(&damaged).is_err(),
            "a changed byte at {at} goes unnoticed"
        );
    }
}

#[test]
fn a_log_file() {
    let header = FileHeader {
        generation: 5,
        previous: Sequence(99),
        bytes: 8 << 20,
    };
    let mut bytes = header.encode().to_vec();
    let payload = b"what was written";
    let record = RecordHeader {
        payload_bytes: payload.len() as u32,
        payload_crc: headwater_codec::checksum::crc32c(payload),
        sequence: Sequence(100),
        synced: Sequence(98),
        kind: 1,
    };
    record.encode(5, &mut bytes);
    bytes.extend_from_slice(payload);
    check("log", &bytes);
    assert_eq!(FileHeader::decode(&bytes), Some(header));
    assert_eq!(RecordHeader::decode(5, &bytes[64..]), Some(record));
    assert_eq!(
        RecordHeader::decode(6, &bytes[64..]),
        None,
        "a record of another generation"
    );
}

#[test]
fn what_a_table_says_of_its_indexes() {
    let record = PolicyRecord {
        policy: IndexPolicy {
            auto: true,
            budget: Some(IndexBudget::Percent(10)),
        },
        created: vec![(IndexId(4), "t_a_auto".into())],
    };
    check("index_policy", &record.encode());
    assert_eq!(PolicyRecord::decode(&record.encode()), Ok(record));
    let record = PolicyRecord {
        policy: IndexPolicy {
            auto: false,
            budget: Some(IndexBudget::Bytes(1 << 16)),
        },
        created: Vec::new(),
    };
    check("index_policy_bytes", &record.encode());
    assert_eq!(PolicyRecord::decode(&record.encode()), Ok(record));
}

#[test]
fn an_index_its_run_and_the_front_of_a_run() {
    let definition = IndexDefinition {
        id: IndexId(4),
        table: TableId(3),
        name: "by order".into(),
        fields: vec![FieldId(2), FieldId(0)],
    };
    check("index", &definition.encode());
    let again = IndexDefinition::decode(IndexId(4), &definition.encode());
    assert_eq!(again, Ok(definition));
    let record = RunRecord {
        index: IndexId(4),
        front_offset: 70_000,
        front_bytes: 300,
        front_crc: 0xdead_beef,
        entries: 5_000,
        rows: 6_000,
        types: [2, 5, 0, 0],
        complete_to: 1 << 20,
    };
    check("index_run", &record.encode());
    assert_eq!(RunRecord::decode(&record.encode()), Ok(record));
    let leaf = |first: i64, offset, row_start| LeafEntry {
        first: Timestamp::from_nanos(first),
        last: Timestamp::from_nanos(first + 999),
        count: 10,
        row_start,
        offset,
        bytes: 512,
        leaf_rows: 32,
    };
    let leaves = vec![
        (StreamId(9), leaf(5_000, 9_000, 20)),
        (StreamId(7), leaf(1_000, 64, 0)),
        (StreamId(9), leaf(2_000, 700, 0)),
    ];
    let block = |key: &[u8], offset| BlockLocation {
        first_key: key.into(),
        entries: 1000,
        offset,
        bytes: 100,
        crc: 0x0102_0304,
    };
    let front = Front {
        index: IndexId(4),
        segment: SegmentId(11),
        fields: vec![
            (FieldId(2), FieldType::I64),
            (FieldId(0), FieldType::String),
        ],
        leaves: Front::numbered(leaves).unwrap(),
        blocks: vec![block(b"alpha", 8), block(b"beta", 108)],
    };
    check("index_front", &front.encode());
    assert_eq!(Front::decode(&front.encode(), 8), Ok(front));
}
