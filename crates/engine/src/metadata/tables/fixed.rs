//! Metadata that never change: of a database that is made from a state, such as a copy as it was
//! received, or a state of the past.
//!
//! Invariants: `by_key` has each key once, with the newest stream that has it. Concurrency:
//! immutable. Failure: none; what such a database does not have (counters, producers, deletes) is
//! empty.

use super::PartitionRecord;
use crate::common::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::metadata::catalog::{SavedDefinitions, StreamRecord, Table, Walk};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Contents of such metadata.
#[derive(Debug)]
pub(crate) struct FixedContents {
    pub(crate) identity: u64,
    pub(crate) shards: u16,
    /// Sequence of the newest record of the state.
    pub(crate) at: Sequence,
    pub(crate) tables: Vec<Arc<Table>>,
    /// By number.
    pub(crate) streams: Arc<[StreamRecord]>,
    /// By number.
    pub(crate) partitions: Vec<(SegmentId, PartitionRecord)>,
}

/// Fixed metadata with the order of their keys.
#[derive(Debug)]
pub(super) struct FixedMeta {
    contents: FixedContents,
    /// Positions of streams, in the order of their keys.
    by_key: Box<[u32]>,
}

impl FixedMeta {
    pub(super) fn new(contents: FixedContents) -> FixedMeta {
        let streams = &contents.streams;
        assert!(
            streams.is_sorted_by(|a, b| a.id < b.id),
            "the streams of a state are sorted by number"
        );
        let newest: BTreeMap<&[u8], u32> = (0u32..)
            .zip(streams.iter())
            .map(|(at, s)| (&*s.key, at))
            .collect();
        let by_key = newest.into_values().collect();
        FixedMeta { contents, by_key }
    }

    /// The number of this name in the state of the metadata.
    pub(super) fn state(&self, key: &str) -> Option<u64> {
        let contents = &self.contents;
        match key {
            "identity" => Some(contents.identity),
            "shards" => Some(contents.shards.into()),
            "step_sequence" => Some(contents.at.0),
            "next_segment" => {
                let last = contents.partitions.iter().map(|(id, _)| id.0).max();
                last.map(|last| last.saturating_add(1))
            }
            "next_stream" => Some(self.next_stream().into()),
            _ => None,
        }
    }

    fn next_stream(&self) -> u32 {
        let last = self.contents.streams.last();
        last.map_or(0, |record| record.id.0.saturating_add(1))
    }

    pub(super) fn identity(&self) -> u64 {
        self.contents.identity
    }

    pub(super) fn tables(&self) -> &[Arc<Table>] {
        &self.contents.tables
    }

    pub(super) fn partitions(&self) -> &[(SegmentId, PartitionRecord)] {
        &self.contents.partitions
    }

    pub(super) fn definitions(&self) -> SavedDefinitions {
        let mut counts: BTreeMap<TableId, u64> = BTreeMap::new();
        let mut tag_keys: BTreeSet<(TableId, &str)> = BTreeSet::new();
        for record in self.contents.streams.iter() {
            *counts.entry(record.table).or_default() += 1;
            tag_keys.extend(record.tag_keys().map(|key| (record.table, key)));
        }
        SavedDefinitions {
            tables: self.contents.tables.clone(),
            next_stream: self.next_stream(),
            dropped: Vec::new(),
            stream_counts: counts.into_iter().collect(),
            tag_keys: tag_keys
                .into_iter()
                .map(|(table, key)| (table, key.to_owned()))
                .collect(),
        }
    }

    fn at(&self, position: u32) -> Option<&StreamRecord> {
        self.contents.streams.get(usize::try_from(position).ok()?)
    }

    fn key(&self, position: u32) -> &[u8] {
        self.at(position).map_or(&[], |record| &record.key)
    }

    /// Position in `by_key` of the first key from a bound on.
    fn first(&self, from: Bound<&[u8]>) -> usize {
        self.by_key.partition_point(|at| match from {
            Bound::Included(from) => self.key(*at) < from,
            Bound::Excluded(from) => self.key(*at) <= from,
            Bound::Unbounded => false,
        })
    }

    /// Streams in the order of their keys, from a key on.
    fn keys_from(&self, from: &[u8]) -> impl Iterator<Item = &StreamRecord> {
        let rest = self.by_key.iter().skip(self.first(Bound::Included(from)));
        rest.filter_map(|at| self.at(*at))
    }

    pub(super) fn find_stream(&self, key: &[u8]) -> Option<StreamId> {
        let record = self.keys_from(key).next()?;
        (*record.key == *key).then_some(record.id)
    }

    pub(super) fn stream(&self, id: StreamId) -> Option<&StreamRecord> {
        let streams = &self.contents.streams;
        let at = streams.binary_search_by_key(&id, |record| record.id).ok()?;
        streams.get(at)
    }

    /// Streams of a table, in the order of their keys.
    pub(super) fn streams_of(&self, table: TableId) -> Vec<StreamRecord> {
        let first = table.0.to_be_bytes();
        let streams = self.keys_from(&first);
        let of_table = streams.take_while(|record| record.key.starts_with(&first));
        of_table.cloned().collect()
    }

    /// Passes the keys of a table after `after` to `each`, as [`StreamIndex::walk_keys`] does.
    ///
    /// [`StreamIndex::walk_keys`]: crate::metadata::catalog::StreamIndex::walk_keys
    pub(super) fn walk_keys(
        &self,
        table: TableId,
        after: &[u8],
        each: &mut dyn FnMut(&[u8], StreamId) -> Walk,
    ) {
        let first = table.0.to_be_bytes();
        let mut at = self.first(match after.is_empty() {
            true => Bound::Included(&first),
            false => Bound::Excluded(after),
        });
        while let Some(record) = self.by_key.get(at).and_then(|at| self.at(*at))
            && record.key.starts_with(&first)
        {
            at = match each(&record.key, record.id) {
                Walk::Next => at + 1,
                Walk::From(next) => self.first(Bound::Included(&next)).max(at + 1),
                Walk::End => return,
            };
        }
    }

    /// Streams from a number on, by number.
    pub(super) fn streams_from(&self, first: StreamId) -> &[StreamRecord] {
        let streams = &self.contents.streams;
        let at = streams.partition_point(|record| record.id < first);
        streams.get(at..).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::ErrorKind;
    use crate::common::ids::ShardIndex;
    use crate::metadata::catalog::{Definition, StreamIndex};
    use crate::metadata::tables::{Meta, MetaChange};
    use headwater_codec::PutBytes;
    use headwater_io::{Files, MemoryFiles, OpenMode};
    use std::path::Path;

    fn stream(id: u32, table: u32, tags: &[(&str, &str)]) -> StreamRecord {
        let mut key = table.to_be_bytes().to_vec();
        for (name, value) in tags {
            key.put_prefixed(name.as_bytes());
            key.put_prefixed(value.as_bytes());
        }
        StreamRecord {
            id: StreamId(id),
            table: TableId(table),
            shard: ShardIndex(0),
            key: key.into(),
        }
    }

    /// Streams of two tables; two of them have the same key, since the older one was dropped.
    fn streams() -> Vec<StreamRecord> {
        vec![
            stream(2, 1, &[("site", "b")]),
            stream(3, 0, &[("site", "c"), ("unit", "1")]),
            stream(7, 0, &[("site", "a")]),
            stream(8, 1, &[]),
            stream(9, 0, &[("site", "c"), ("unit", "1")]),
            stream(12, 0, &[("site", "b")]),
        ]
    }

    fn contents() -> FixedContents {
        FixedContents {
            identity: 77,
            shards: 2,
            at: Sequence(40),
            tables: Vec::new(),
            streams: streams().into(),
            partitions: vec![(SegmentId(5), PartitionRecord::of_nothing())],
        }
    }

    fn fixed() -> Meta {
        Meta::fixed(Path::new("/meta.redb"), contents())
    }

    /// The same contents in a file.
    fn stored() -> Meta {
        let path = Path::new("/meta.redb");
        let file = MemoryFiles::new().open(path, OpenMode::CreateNew).unwrap();
        let meta = Meta::create(path, file, 2, 77).unwrap();
        let definitions = streams().into_iter().map(Arc::new).map(Definition::Stream);
        meta.commit(&MetaChange {
            step_sequence: Sequence(40),
            definitions: definitions.map(|d| (Sequence(40), d)).collect(),
            next_stream: 13,
            next_segment: 6,
            partitions: contents().partitions,
            ..MetaChange::default()
        })
        .unwrap();
        meta
    }

    /// Keys passed by a walk that skips to the second site.
    fn walked(meta: &Meta, after: &[u8]) -> Vec<(Vec<u8>, u32)> {
        let skip_to = stream(0, 0, &[("site", "b")]).key;
        let mut out = Vec::new();
        meta.walk_keys(TableId(0), after, &mut |key, id| {
            out.push((key.to_vec(), id.0));
            match out.len() {
                1 => Walk::From(skip_to.to_vec()),
                2 => Walk::Next,
                _ => Walk::End,
            }
        })
        .unwrap();
        out
    }

    #[test]
    fn fixed_metadata_answer_as_a_file_with_the_same_contents() {
        let (fixed, stored) = (fixed(), stored());
        for meta in [&fixed, &stored] {
            assert_eq!(meta.shards().unwrap(), 2);
            assert_eq!(meta.identity().unwrap(), 77);
            assert_eq!(meta.step_sequence().unwrap(), Sequence(40));
            assert_eq!(meta.next_segment().unwrap(), 6);
            assert_eq!(meta.next_stream().unwrap(), 13);
            assert_eq!(meta.lineage().unwrap().identity, 77);
        }
        assert_eq!(fixed.partitions().unwrap(), stored.partitions().unwrap());
        for record in streams() {
            let found = fixed.find_stream(&record.key).unwrap();
            assert_eq!(found, stored.find_stream(&record.key).unwrap());
            assert!(found.is_some());
            assert_eq!(fixed.streams(&[record.id]).unwrap(), [record]);
        }
        assert_eq!(fixed.find_stream(b"none").unwrap(), None);
        let ids = [StreamId(12), StreamId(4), StreamId(2)];
        assert_eq!(fixed.streams(&ids).unwrap(), stored.streams(&ids).unwrap());
        for table in [TableId(0), TableId(1), TableId(2)] {
            let of_table = stored.streams_of(table).unwrap();
            assert_eq!(fixed.streams_of(table).unwrap(), of_table);
        }
        for after in [Box::default(), streams().swap_remove(2).key] {
            assert_eq!(walked(&fixed, &after), walked(&stored, &after));
        }
        let from = |meta: &Meta| {
            let mut out = Vec::new();
            let mut each = |record: StreamRecord| {
                out.push(record.id.0);
                out.len() < 3
            };
            meta.streams_from(StreamId(3), &mut each).unwrap();
            out
        };
        assert_eq!(
            (from(&fixed), from(&stored)),
            (vec![3, 7, 8], vec![3, 7, 8])
        );
        let definitions = |meta: &Meta| {
            let saved = meta.definitions().unwrap();
            (saved.next_stream, saved.stream_counts, saved.tag_keys)
        };
        assert_eq!(definitions(&fixed), definitions(&stored));
    }

    #[test]
    fn fixed_metadata_are_empty_where_a_state_has_nothing_and_are_never_changed() {
        let meta = fixed();
        assert!(meta.counters().unwrap().is_empty());
        assert!(meta.producers().unwrap().is_empty());
        assert!(meta.analyzers().unwrap().is_empty());
        assert!(meta.newest_deletes().unwrap().is_empty());
        assert!(meta.freed().unwrap().is_empty());
        assert!(meta.hashes(SegmentId(5)).unwrap().is_empty());
        assert_eq!(meta.note("name").unwrap(), None);
        let error = meta.commit(&MetaChange::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
}
