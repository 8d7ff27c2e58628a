//! Damage of a segment that is to be backed up.
//!
//! A backup copies bytes without decoding them. Bytes that replace an older copy are checked more
//! closely: damage must not replace a good copy.

use crate::common::error::Damage;
use crate::common::ids::{SegmentId, Sequence};
use crate::metadata::tables::PartitionRecord;
use crate::storage::segment::{Partition, Store};
use crate::{Error, ErrorKind, Result};

/// A segment with its record in the metadata.
pub(super) struct SegmentSource<'a> {
    pub(super) store: &'a Store,
    pub(super) id: SegmentId,
    pub(super) record: &'a PartitionRecord,
}

/// Damage as a value; other errors stay errors.
fn damage_of(result: Result<()>) -> Result<Option<Damage>> {
    match result {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Corrupt => match error.damaged() {
            Some(damage) => Ok(Some(damage.clone())),
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

impl SegmentSource<'_> {
    /// Valid bytes of the file; fewer than committed if it is truncated, `None` = there is no file.
    pub(super) fn bytes(&self) -> Result<Option<u64>> {
        let len = self.store.file_bytes(self.id)?;
        Ok(len.map(|len| len.min(self.record.committed_bytes)))
    }

    /// Damage of the file's existence, length or header.
    pub(super) fn damage_at_front(&self) -> Result<Option<Damage>> {
        let found = match self.bytes()? {
            Some(bytes) if bytes == self.record.committed_bytes => {
                return damage_of(self.store.verify_header(self.id, self.record));
            }
            Some(bytes) => format!("{bytes} bytes"),
            None => "no file".to_owned(),
        };
        Ok(Some(Damage {
            file: self.store.path(self.id),
            offset: self.record.committed_bytes,
            expected: format!("{} committed bytes", self.record.committed_bytes),
            found,
        }))
    }

    /// Damage like [`SegmentSource::damage_at_front`], of a segment whose rows were freed.
    pub(super) fn damage_of_stub(&self) -> Result<Option<Damage>> {
        match self.damage_at_front() {
            Err(error) if error.kind() == ErrorKind::Corrupt => damage_of(Err(error)),
            other => other,
        }
    }

    /// Damage in its footers.
    pub(super) fn damage_in_footers(&self) -> Result<Option<Damage>> {
        let covers = self.store.covers(self.id, self.record, Sequence(0));
        damage_of(covers.map(drop))
    }

    /// Damage in any part: footers, checkpoints, leaves, blocks.
    pub(super) fn damage_anywhere(&self) -> Result<Option<Damage>> {
        damage_of(self.read_all())
    }

    fn read_all(&self) -> Result<()> {
        let partition = Partition::new(self.record.clone(), self.store.segment_file(self.id));
        let footer = (self.record.footer_offset, self.record.footer_bytes);
        self.store.verify_checkpoint(self.id, footer)?;
        let state = self.store.state(&partition)?;
        for number in state.pages() {
            for (_, stream) in self.store.page(&state, number)?.iter() {
                for leaf in stream.main.iter().chain(stream.late.iter().flatten()) {
                    if self.store.is_leaf_freed(self.id, leaf)? {
                        continue;
                    }
                    let read = self.store.leaf(self.id, leaf)?;
                    read.read(0..read.rows(), None)
                        .map_err(|e| Error::decode(&self.store.path(self.id), leaf.offset, e))?;
                }
                for block in &stream.blocks {
                    self.store.block(self.id, block)?;
                }
            }
        }
        Ok(())
    }
}
