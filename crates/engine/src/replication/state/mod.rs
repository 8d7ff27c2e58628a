//! A state: the contents of a database at one instant, except the rows themselves. Definitions,
//! streams, pending deletes, and partitions with the committed lengths of their segments and the
//! locations of all their footers.
//!
//! A state, together with the bytes below the committed lengths that it names, suffices to read all
//! stored data. Bytes below a committed length never change, so bytes that a copy has once are
//! valid for every later state too.
//!
//! Invariants: streams and partitions are sorted by number; footers of a partition are sorted by
//! offset, and the last one is the one in the partition's record. A state is taken from a database,
//! or decoded: inconsistent bytes are refused. Concurrency: plain data. Format:
//! docs/format/state.md.

mod ends;
mod format;
mod view;

pub(crate) use ends::StateEnds;
pub(crate) use view::{omitted_table, view_of};

use crate::common::ids::{SegmentId, Sequence, TableId};
use crate::metadata::catalog::{StreamRecord, Table};
use crate::metadata::ledger::{Proof, SegmentLedger};
use crate::metadata::tables::{Lineage, PartitionRecord};
use crate::storage::segment::HEADER_BYTES;
use crate::storage::tombstone::{DeleteRecord, Tombstone};
use crate::{Error, Result};
use headwater_types::ByteRange;
use headwater_types::invariant::wide;
use std::sync::Arc;

/// Identifies a state among all states of all databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateName {
    /// Number of the database, drawn when it was made.
    pub identity: u64,
    /// Number drawn when the database was last made, restored or repaired.
    pub incarnation: u64,
    /// Number of the newest process that stored data, or wrote definitions or deletes of the state.
    pub opening: u64,
    /// The number of changes of stored data.
    pub number: u64,
    /// Definitions and deletes up to the record with this number are part of it.
    pub sequence: u64,
    /// Tables left out of it, since their data may not leave the database: a number computed from
    /// the list of them. 0 = none.
    pub view: u64,
}

/// The definitions, streams and partitions of a database at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(crate) name: StateName,
    /// The number of the first state of each remembered opening, sorted ascending, and the opening.
    pub(crate) openings: Vec<(u64, u64)>,
    pub(crate) shards: u16,
    /// By number, dense from 0.
    pub(crate) tables: Vec<Arc<Table>>,
    pub(crate) streams: Arc<[StreamRecord]>,
    /// Deletes that are not carried out in every partition, by sequence.
    pub(crate) deletes: Vec<(Sequence, DeleteRecord)>,
    /// The newest delete of each table that had one, carried out or not.
    pub(crate) newest_deletes: Vec<(TableId, Sequence)>,
    /// Deletes that copies have not confirmed.
    pub(crate) ends: StateEnds,
    pub(crate) partitions: Vec<StatePartition>,
}

/// A partition as a state names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatePartition {
    pub(crate) id: SegmentId,
    pub(crate) record: PartitionRecord,
    /// Offset and length of each footer, with the checkpoint that precedes it, oldest first.
    pub(crate) footers: Arc<[(u64, u32)]>,
    /// Offset of upper blocks in each group, as used by its hashes; complete where the record has
    /// the head of a chain, otherwise empty.
    pub(crate) uppers: Arc<[u64]>,
}

/// A segment that a state names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSegment {
    /// Its number.
    pub id: u64,
    /// Valid bytes of the segment.
    pub bytes: u64,
}

impl StatePartition {
    /// True when it is the same version of the same segment.
    pub(crate) fn is_same(&self, other: &StatePartition) -> bool {
        self.id == other.id && self.record.footer_offset == other.record.footer_offset
    }

    /// The segment's hashes in the ledger, if they are known.
    pub(crate) fn ledger(&self) -> Option<SegmentLedger> {
        let ends = self.footers.iter().map(|(at, len)| at + u64::from(*len));
        Some(SegmentLedger {
            segment: self.id.0,
            bytes: self.record.committed_bytes,
            head: self.record.chain?,
            groups: self.uppers.iter().copied().zip(ends).collect(),
        })
    }

    /// The bytes without which the segment cannot be read at all: header, footers and checkpoints.
    pub(crate) fn frame(&self) -> impl Iterator<Item = ByteRange> + '_ {
        let footers = self.footers.iter();
        let footers = footers.map(|(at, len)| ByteRange::at(*at, u64::from(*len)));
        std::iter::once(ByteRange::new(0, HEADER_BYTES)).chain(footers)
    }
}

impl State {
    /// The state's name, which distinguishes it from all others.
    #[must_use]
    pub fn name(&self) -> StateName {
        self.name
    }

    /// True when the database was in a state of this name before this one, or this is it,
    /// regardless of the tables left out of the two. Otherwise the two have different histories:
    /// one of them continued from an older copy of the files.
    #[must_use]
    pub fn descends_from(&self, earlier: &StateName) -> bool {
        let lineage = Lineage {
            identity: self.name.identity,
            incarnation: self.name.incarnation,
            number: self.name.number,
            openings: self.openings.clone(),
        };
        let is_this =
            (earlier.identity, earlier.incarnation) == (self.name.identity, self.name.incarnation);
        is_this
            && earlier.sequence <= self.name.sequence
            && lineage.contains(earlier.opening, earlier.number)
    }

    /// True when this state equals another one, which may have been taken at another record of the
    /// log, with only records without an effect on it in between. Confirmations of deletes are not
    /// compared.
    #[must_use]
    pub fn is_equivalent(&self, other: &State) -> bool {
        let name = StateName {
            sequence: other.name.sequence,
            ..self.name
        };
        name == other.name
            && self.openings == other.openings
            && self.shards == other.shards
            && self.tables == other.tables
            && self.streams == other.streams
            && self.deletes == other.deletes
            && self.newest_deletes == other.newest_deletes
            && self.partitions == other.partitions
    }

    /// The segments it names, by number.
    pub fn segments(&self) -> impl Iterator<Item = StateSegment> + '_ {
        self.partitions.iter().map(|p| StateSegment {
            id: p.id.0,
            bytes: p.record.committed_bytes,
        })
    }

    /// The hashes of a segment; `None` = the state does not name it, or its hashes are not known
    /// yet.
    #[must_use]
    pub fn ledger(&self, segment: u64) -> Option<SegmentLedger> {
        self.partition(SegmentId(segment))?.ledger()
    }

    /// The proof that bytes belong to a segment, without its source reading them.
    #[must_use]
    pub fn proof(&self, segment: u64) -> Option<Proof> {
        Some(Proof::new(self.ledger(segment)?, HEADER_BYTES))
    }

    pub(crate) fn partition(&self, id: SegmentId) -> Option<&StatePartition> {
        let at = self.partitions.binary_search_by_key(&id, |p| p.id).ok()?;
        self.partitions.get(at)
    }

    pub(crate) fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.iter().find(|t| t.id == id)
    }

    pub(crate) fn tombstones(&self) -> Vec<Tombstone> {
        let deletes = self.deletes.iter();
        deletes.map(|(s, record)| record.tombstone(*s)).collect()
    }

    /// The newest delete of a table; 0 = no delete ever.
    pub(crate) fn newest_delete(&self, table: TableId) -> Sequence {
        let newest = self.newest_deletes.iter().find(|(t, _)| *t == table);
        newest.map_or(Sequence(0), |(_, sequence)| *sequence)
    }

    /// The complete state as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        format::encode(self, None)
    }

    /// Encodes the difference from another state of the same incarnation.
    #[must_use]
    pub fn encode_after(&self, known: &State) -> Vec<u8> {
        format::encode(self, Some(known))
    }

    /// Decodes the bytes of [`State::encode`], or, with the known state, of
    /// [`State::encode_after`].
    ///
    /// # Errors
    /// `invalid` for a difference from a state that is not the known one; `corrupt` for bytes that
    /// are not a state.
    pub fn decode(bytes: &[u8], known: Option<&State>) -> Result<State> {
        let parts = format::decode(bytes).map_err(|e| {
            Error::damage(crate::common::error::Damage {
                file: "the received state".into(),
                offset: wide(e.offset),
                expected: e.expected.to_owned(),
                found: "other bytes".to_owned(),
            })
        })?;
        let Some(base) = parts.base else {
            return parts.full().map_err(unfit);
        };
        match known.filter(|known| known.name == base) {
            Some(known) => parts.after(known).map_err(unfit),
            None => Err(Error::invalid(format!(
                "received a difference to state {} (opening {:016x}), which is not known here: request the full state",
                base.number, base.opening
            ))),
        }
    }
}

/// The error of readable bytes that contradict themselves.
fn unfit(what: String) -> Error {
    Error::damage(crate::common::error::Damage {
        file: "the received state".into(),
        offset: 0,
        expected: "parts that agree with each other; check the source with `headwater check`"
            .to_owned(),
        found: what,
    })
}

/// Reads bytes that may be a state: for the fuzz target.
#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8], repair: bool) {
    let mut bytes = bytes.to_vec();
    if repair {
        format::put_checksum_right(&mut bytes);
    }
    if let Ok(state) = State::decode(&bytes, None) {
        let again = State::decode(&state.encode(), None);
        assert!(again.is_ok_and(|again| again == state));
        let nothing_new = State::decode(&state.encode_after(&state), Some(&state));
        assert!(nothing_new.is_ok_and(|same| same == state));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::common::ids::{ShardIndex, StreamId};
    use crate::metadata::catalog::{Duplicates, TableLifetime};
    use headwater_types::ClosedRange;

    fn table(id: u32, name: &str) -> Arc<Table> {
        Arc::new(Table {
            id: TableId(id),
            name: name.into(),
            duplicates: Duplicates::Last,
            leaf_events: 2048,
            fields: Vec::new(),
            tags: Vec::new(),
            lifetime: TableLifetime::FOREVER,
        })
    }

    fn stream(id: u32) -> StreamRecord {
        let mut key = Vec::new();
        let tags = [("id".to_owned(), id.to_string())];
        crate::metadata::catalog::stream_key(TableId(0), &tags, &mut key);
        StreamRecord {
            id: StreamId(id),
            table: TableId(0),
            shard: ShardIndex(1),
            key: key.into(),
        }
    }

    fn partition(id: u64, bucket: i64, footers: &[(u64, u32)]) -> StatePartition {
        let (footer_offset, footer_bytes) = *footers.last().unwrap();
        StatePartition {
            id: SegmentId(id),
            record: PartitionRecord {
                bucket,
                committed_bytes: footer_offset + u64::from(footer_bytes),
                footer_offset,
                footer_bytes,
                sequence: Sequence(40 + id),
                ..PartitionRecord::of_nothing()
            },
            footers: footers.into(),
            uppers: Arc::default(),
        }
    }

    /// The same partition with a ledger.
    fn hashed(partition: StatePartition, uppers: &[u64]) -> StatePartition {
        StatePartition {
            record: PartitionRecord {
                chain: Some([9; 32]),
                ..partition.record
            },
            uppers: uppers.into(),
            ..partition
        }
    }

    /// Two states of one database, one after the other.
    pub(crate) fn two() -> (State, State) {
        let name = StateName {
            identity: 77,
            incarnation: 0x1111_2222_3333_4444,
            opening: 5,
            number: 9,
            sequence: 1_000,
            view: 0,
        };
        let delete = DeleteRecord {
            table: TableId(0),
            streams: Some([StreamId(3), StreamId(9)].into()),
            range: ClosedRange::nanos(-1, 50),
            drops_streams: false,
        };
        let before = State {
            name,
            openings: vec![(3, 4), (8, 5)],
            shards: 2,
            tables: vec![table(0, "weather"), table(1, "pumps")],
            streams: [stream(3), stream(7), stream(9)].into(),
            deletes: vec![(Sequence(990), delete.clone())],
            newest_deletes: vec![(TableId(0), Sequence(990))],
            ends: StateEnds {
                from: Sequence(980),
                deletes: vec![(Sequence(990), delete.clone())],
            },
            partitions: vec![
                partition(4, -2, &[(500, 60), (900, 70)]),
                partition(6, 0, &[(300, 40)]),
                partition(7, 1, &[(80, 40)]),
            ],
        };
        let after = State {
            name: StateName {
                opening: 6,
                number: 12,
                sequence: 1_050,
                view: 3,
                ..name
            },
            openings: vec![(3, 4), (8, 5), (10, 6)],
            tables: vec![table(0, "weather"), table(1, "engines"), table(2, "new")],
            streams: [stream(3), stream(9), stream(10)].into(),
            deletes: vec![(Sequence(1_020), delete.clone())],
            newest_deletes: vec![(TableId(0), Sequence(1_020))],
            ends: StateEnds {
                from: Sequence(985),
                deletes: vec![(Sequence(990), delete.clone()), (Sequence(1_020), delete)],
            },
            partitions: vec![
                partition(4, -2, &[(500, 60), (900, 70), (2_000, 33), (2_100, 41)]),
                partition(7, 1, &[(80, 40)]),
                hashed(partition(8, 0, &[(700, 90)]), &[650]),
            ],
            ..before.clone()
        };
        (before, after)
    }

    #[test]
    fn a_state_comes_back_from_its_bytes_whole_and_as_what_differs() {
        let (before, after) = two();
        for state in [&before, &after] {
            assert_eq!(State::decode(&state.encode(), None).unwrap(), *state);
        }
        let differs = after.encode_after(&before);
        assert!(differs.len() < after.encode().len());
        assert_eq!(State::decode(&differs, Some(&before)).unwrap(), after);
        // A segment's hashes are carried on as well.
        let mut later = after.clone();
        later.name.number += 1;
        later.partitions[2] = hashed(partition(8, 0, &[(700, 90), (800, 20)]), &[650, 795]);
        later.partitions[1] = hashed(later.partitions[1].clone(), &[70]);
        let differs_later = later.encode_after(&after);
        assert_eq!(State::decode(&differs_later, Some(&after)).unwrap(), later);
        assert!(after.descends_from(&before.name) && after.descends_from(&after.name));
        assert!(!before.descends_from(&after.name));
        for known in [None, Some(&after)] {
            let error = State::decode(&differs, known).unwrap_err();
            assert_eq!(error.code(), "invalid", "{error}");
        }
    }

    #[test]
    fn bytes_of_states_do_not_change() {
        let (before, after) = two();
        crate::golden::check("state_whole", &before.encode());
        crate::golden::check("state_after", &after.encode_after(&before));
    }

    #[test]
    fn states_of_version_1_are_read_and_nothing_was_left_out_of_them() {
        let (before, after) = two();
        let mut after = State {
            name: StateName {
                view: 0,
                ..after.name
            },
            ..after
        };
        after.partitions[2].record.chain = None;
        after.partitions[2].uppers = Arc::default();
        let (before, after) = (without_ends(before), without_ends(after));
        let whole = crate::golden::old("state_whole_v1");
        assert_eq!(State::decode(&whole, None).unwrap(), before);
        let differs = crate::golden::old("state_after_v1");
        assert_eq!(State::decode(&differs, Some(&before)).unwrap(), after);
    }

    /// As encoded by a version that lists only pending deletes.
    fn without_ends(state: State) -> State {
        State {
            ends: StateEnds::unknown(state.name.sequence),
            ..state
        }
    }

    #[test]
    fn states_of_version_2_are_read_and_say_nothing_of_deletes_that_were_carried_out() {
        let (before, after) = two();
        let (before, after) = (without_ends(before), without_ends(after));
        let whole = crate::golden::old("state_whole_v2");
        assert_eq!(State::decode(&whole, None).unwrap(), before);
        let differs = crate::golden::old("state_after_v2");
        assert_eq!(State::decode(&differs, Some(&before)).unwrap(), after);
    }

    #[test]
    fn deletes_since_a_number_are_told_where_all_of_them_are_known() {
        let (_, state) = two();
        let since = |sequence, newest| {
            let found = state
                .ends
                .since(Sequence(sequence), (TableId(0), Sequence(newest)));
            found.map(|all| all.iter().map(|(s, _)| s.0).collect::<Vec<_>>())
        };
        assert_eq!(since(985, 1_020), Some(vec![990, 1_020]));
        assert_eq!(since(990, 1_020), Some(vec![1_020]));
        assert_eq!(since(984, 1_020), None);
        // No delete since.
        assert_eq!(since(3, 3), Some(vec![]));
    }

    #[test]
    fn deletes_are_remembered_for_who_was_not_told_of_them() {
        let (before, after) = two();
        let remembered = |ends: &StateEnds, told, most| {
            let ends = ends.clone().remembering(&before, Sequence(told), most);
            let deletes = ends.deletes.iter().map(|(s, _)| s.0);
            (ends.from.0, deletes.collect::<Vec<_>>())
        };
        assert_eq!(remembered(&after.ends, 0, 9), (980, vec![990, 1_020]));
        assert_eq!(remembered(&after.ends, 983, 9), (983, vec![990, 1_020]));
        assert_eq!(remembered(&after.ends, 995, 9), (985, vec![990, 1_020]));
        assert_eq!(remembered(&after.ends, 0, 1), (990, vec![1_020]));
        // The source has forgotten the deletes that this one has confirmed.
        let forgot = StateEnds {
            from: Sequence(1_000),
            deletes: after.ends.deletes[1..].to_vec(),
        };
        assert_eq!(remembered(&forgot, 0, 9), (980, vec![990, 1_020]));
        // Some deletes after the previous state are not known.
        let gap = StateEnds {
            from: Sequence(1_001),
            ..forgot.clone()
        };
        assert_eq!(remembered(&gap, 0, 9), (1_001, vec![1_020]));
        // A state with fewer deletes than the difference was made from claims no more than its own.
        let mut other = before.clone();
        other.ends = StateEnds::unknown(before.name.sequence);
        let told = State {
            ends: after.ends.clone().remembering(&before, Sequence(0), 9),
            ..after
        };
        let found = State::decode(&told.encode_after(&before), Some(&other)).unwrap();
        assert_eq!(found.ends.from, Sequence(1_000));
        let found = found.ends.deletes.iter().map(|(s, _)| s.0);
        assert_eq!(found.collect::<Vec<_>>(), [1_020]);
    }

    #[test]
    fn a_state_that_was_changed_or_cut_is_refused() {
        let (before, after) = two();
        for bytes in [before.encode(), after.encode_after(&before)] {
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 0x10;
                let found = State::decode(&other, Some(&before));
                assert!(found.is_err(), "a changed byte at {at} goes unnoticed");
                assert!(State::decode(&bytes[..at], Some(&before)).is_err());
            }
        }
    }

    #[test]
    fn what_does_not_fit_together_is_no_state() {
        let (good, after) = two();
        let twice = State {
            partitions: vec![good.partitions[0].clone(), good.partitions[0].clone()],
            ..good.clone()
        };
        let mut longer = good.clone();
        longer.partitions[0].record.footer_bytes += 1;
        let mut behind = good.clone();
        behind.partitions[1].footers = [(300, 40), (310, 40)].into();
        behind.partitions[1].record.footer_offset = 310;
        behind.partitions[1].record.committed_bytes = 350;
        let mut front = good.clone();
        front.partitions[1].footers = [(30, 40)].into();
        front.partitions[1].record.footer_offset = 30;
        front.partitions[1].record.committed_bytes = 70;
        let mut elsewhere = good.clone();
        elsewhere.partitions[1].record.shard = ShardIndex(2);
        let mut unknown = good.clone();
        unknown.partitions[1].record.table = TableId(2);
        let mut sparse = good.clone();
        sparse.tables.remove(0);
        let mut meeting = good.clone();
        meeting.partitions[1].record.bucket = -2;
        let mut ahead = good.clone();
        ahead.openings[1].0 = 10;
        let mut other = good.clone();
        other.name.opening = 9;
        let mut below = after.clone();
        below.partitions[2].uppers = [63].into();
        let mut above = after.clone();
        above.partitions[2].uppers = [701].into();
        for bad in [
            below, above, twice, longer, behind, front, elsewhere, unknown, sparse, meeting, ahead,
            other,
        ] {
            let found = State::decode(&bad.encode(), None);
            assert_eq!(found.unwrap_err().code(), "corrupt");
        }
    }
}
