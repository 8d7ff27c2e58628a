//! Reads the footers of a segment: completely, or by their directories.
//!
//! Invariants: the state is the same either way; parts that a directory skips are checked when they
//! are read, and all of them before a group is written after them. Concurrency: as in [`super`].
//! Failure: an invalid directory is not used; the reader of the whole footer reports whether it is
//! damaged.

use super::super::checkpoint::CheckpointIndex;
use super::super::directory::Directory;
use super::super::format::{CheckpointLocation, CheckpointNote, Footer};
use super::super::index::{GroupIndex, SegmentState};
use super::super::state::Sums;
use super::{Partition, Store};
use crate::common::ids::SegmentId;
use crate::{Error, Result};
use headwater_types::invariant::length;

/// Ways to read footers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Footers {
    /// By their directories, if they have one: parts that no reader needs are not read.
    ByDirectory,
    /// Completely, so that every byte is checked.
    Full,
}

/// The streams of a footer, as far as they were read.
enum FooterRest {
    Index(GroupIndex),
    /// All bytes of the footer.
    Raw(Vec<u8>),
}

/// Minimum bytes of a footer that is read by its directory.
const DIRECTORY_WORTH: u32 = 8 << 10;
/// Bytes that are read at its start, and at its end: most directories fit.
const FRONT_READ: u32 = 512;
const TAIL_READ: u32 = 4 << 10;

/// Returns the checkpoint that a footer refers to, if it should be used.
type FindCheckpoint<'a> =
    &'a mut dyn FnMut(&Footer, (u64, u32), CheckpointLocation) -> Result<Option<CheckpointIndex>>;

impl Store {
    /// The state up to a footer: from the newest usable checkpoint on, or from the first group on.
    /// Sums are those of the footers alone.
    pub(super) fn fold_back(
        &self,
        id: SegmentId,
        newest: (u64, u32),
        footers: Footers,
        find: FindCheckpoint<'_>,
    ) -> Result<SegmentState> {
        let mut groups = Vec::new();
        let mut state = self.new_state(id);
        let mut next = Some(newest);
        let mut counts = true;
        while let Some((offset, bytes)) = next {
            let wrong = |e| Error::decode(&self.path(id), offset, e);
            let (front, rest) = match footers {
                Footers::ByDirectory => self.by_directory(id, (offset, bytes))?,
                Footers::Full => None,
            }
            .map_or_else(
                || {
                    let raw = self.read(id, offset, bytes)?;
                    let front = Footer::front(&raw).map_err(wrong)?;
                    Ok::<_, Error>((front, FooterRest::Raw(raw)))
                },
                |(front, index)| Ok((front, FooterRest::Index(index))),
            )?;
            counts &= front.checkpoint != CheckpointNote::Revoked;
            if let CheckpointNote::Written(place) = front.checkpoint
                && counts
                && let Some(checkpoint) = find(&front, (offset, bytes), place)?
            {
                let sums = Sums::default();
                state = SegmentState::of_checkpoint(id, self.page_shift, checkpoint, sums);
                break;
            }
            let index = match rest {
                FooterRest::Index(index) => index,
                FooterRest::Raw(raw) => {
                    let read = GroupIndex::read(&raw, offset, self.page_shift);
                    read.map_err(wrong)?.1
                }
            };
            next = self.before(id, offset, &front)?;
            groups.push((index, front.table));
        }
        groups.reverse();
        Ok(state.with_groups(groups))
    }

    /// Checks completely all footers of which only a part was read, once for each segment: a group
    /// is written only after valid footers, since a repair reverts everything after a damaged one.
    pub(crate) fn check_before_append(&self, partition: &Partition) -> Result<()> {
        let id = partition.id();
        if self.checked.lock().contains(&id) {
            return Ok(());
        }
        for (offset, bytes) in self.state(partition)?.read_in_part() {
            let raw = self.read(id, offset, bytes)?;
            Footer::checked(&raw).map_err(|e| Error::decode(&self.path(id), offset, e))?;
        }
        self.checked.lock().insert(id);
        Ok(())
    }

    /// The index of a footer from its directory and the part before its streams. `None` = the
    /// footer has no usable directory: all of it must be read.
    fn by_directory(
        &self,
        id: SegmentId,
        (offset, bytes): (u64, u32),
    ) -> Result<Option<(Footer, GroupIndex)>> {
        if bytes < DIRECTORY_WORTH || self.distrusted.lock().contains(&id) {
            return Ok(None);
        }
        let begin = self.read(id, offset, FRONT_READ)?;
        if !Footer::has_directory(&begin) {
            return Ok(None);
        }
        let end = offset + u64::from(bytes);
        let mut tail = self.read(id, end - u64::from(TAIL_READ), TAIL_READ)?;
        let Some(trailer) = Footer::trailer_at(&tail, bytes) else {
            return Ok(None);
        };
        let trailer_bytes = TAIL_READ - trailer;
        tail.truncate(length(trailer));
        let found = Directory::bytes_at_end(&tail).filter(|d| *d <= bytes - trailer_bytes);
        let Some(directory_bytes) = found else {
            return Ok(None);
        };
        let before = bytes - trailer_bytes - directory_bytes;
        let directory = match tail.len().checked_sub(length(directory_bytes)) {
            Some(at) => tail.split_off(at),
            None => self.read(id, offset + u64::from(before), directory_bytes)?,
        };
        // The reader of the whole footer reports whether it is damaged.
        let Ok(directory) = Directory::decode(&directory, before) else {
            return Ok(None);
        };
        let front = match begin.get(..length(directory.front_bytes)) {
            Some(front) => front,
            None => &self.read(id, offset, directory.front_bytes)?,
        };
        let index = GroupIndex::of_directory(front, directory, (offset, bytes), self.page_shift);
        Ok(index.ok().flatten())
    }
}
