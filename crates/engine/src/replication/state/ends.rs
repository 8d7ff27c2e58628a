//! The deletes that a state lists in addition to the pending ones: all above a number, carried out
//! or not, for a copy that retains data that its source has removed.

use super::State;
use crate::common::ids::{Sequence, TableId};
use crate::storage::tombstone::DeleteRecord;
use headwater_codec::{Cursor, DecodeError, PutBytes};
use headwater_types::invariant::wide;
use std::collections::BTreeMap;

/// Deletes above a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateEnds {
    /// All deletes above this number are listed.
    pub(crate) from: Sequence,
    /// By sequence.
    pub(crate) deletes: Vec<(Sequence, DeleteRecord)>,
}

impl StateEnds {
    /// For a state without such a list, which includes deletes up to this number.
    pub(super) fn unknown(sequence: u64) -> StateEnds {
        StateEnds {
            from: Sequence(sequence),
            deletes: Vec::new(),
        }
    }

    pub(super) fn put(&self, known: Option<&State>, out: &mut Vec<u8>) {
        let known = known.map(|known| known.ends.deletes.as_slice());
        let known = known.unwrap_or_default();
        let is_known = |(sequence, _): &&(Sequence, DeleteRecord)| {
            known.binary_search_by_key(sequence, |(s, _)| *s).is_ok()
        };
        out.put_varint(self.from.0);
        let new: Vec<_> = self.deletes.iter().filter(|end| !is_known(end)).collect();
        out.put_varint(wide(new.len()));
        for delete in new {
            put_delete(delete, out);
        }
    }

    pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<StateEnds, DecodeError> {
        Ok(StateEnds {
            from: Sequence(cursor.varint("first sequence of known deletes")?),
            deletes: deletes(cursor)?,
        })
    }

    /// Adds the previously known deletes. If the base of the difference had more earlier deletes
    /// than are known here, because the state took another route, those are not claimed.
    pub(super) fn after(self, known: &State) -> StateEnds {
        let from = self.from.max(known.ends.from);
        self.with(&known.ends, from)
    }

    fn with(self, earlier: &StateEnds, from: Sequence) -> StateEnds {
        let mut all: BTreeMap<Sequence, DeleteRecord> = earlier.deletes.iter().cloned().collect();
        all.extend(self.deletes);
        all.retain(|sequence, _| *sequence > from);
        StateEnds {
            from,
            deletes: all.into_iter().collect(),
        }
    }

    /// Adds the deletes of an earlier state above the number `told`, for a copy that has not
    /// received them yet, at most `most`, the newest.
    pub(crate) fn remembering(self, earlier: &State, told: Sequence, most: usize) -> StateEnds {
        if self.from.0 > earlier.name.sequence {
            // Some in between are not known.
            return self;
        }
        let from = earlier.ends.from.max(told).min(self.from);
        let mut out = self.with(&earlier.ends, from);
        let over = out.deletes.len().saturating_sub(most);
        if let Some((last, _)) = out.deletes.drain(..over).next_back() {
            out.from = last;
        }
        out
    }

    /// The deletes of a table above a number; `None` when some of them may not be known.
    pub(crate) fn since(
        &self,
        sequence: Sequence,
        (table, newest): (TableId, Sequence),
    ) -> Option<Vec<(Sequence, DeleteRecord)>> {
        if newest <= sequence {
            return Some(Vec::new());
        }
        let meant = self.deletes.iter();
        let meant = meant.filter(|(of, record)| *of > sequence && record.table == table);
        (self.from <= sequence).then(|| meant.cloned().collect())
    }
}

pub(super) fn put_delete((sequence, record): &(Sequence, DeleteRecord), out: &mut Vec<u8>) {
    out.put_varint(sequence.0);
    out.put_prefixed(&record.encode());
}

pub(super) fn deletes(
    cursor: &mut Cursor<'_>,
) -> Result<Vec<(Sequence, DeleteRecord)>, DecodeError> {
    let count = cursor.varint_up_to(wide(cursor.remaining()), "number of deletes")?;
    let mut out: Vec<(Sequence, DeleteRecord)> = Vec::new();
    for _ in 0..count {
        let sequence = Sequence(cursor.varint("sequence of a delete")?);
        if out.last().is_some_and(|(last, _)| *last >= sequence) {
            return Err(cursor.expected("deletes in ascending order"));
        }
        let mut bytes = Cursor::new(cursor.prefixed("delete record")?);
        let record = DeleteRecord::decode(&mut bytes)?;
        bytes.finish()?;
        out.push((sequence, record));
    }
    Ok(out)
}
