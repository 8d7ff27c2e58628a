//! Parts of segments in the fast tier: reads, and writes after a commit.
//!
//! Invariants: the index, where it exists, repeats everything but the leaves of every segment:
//! headers, blocks, checkpoints and footers, up to a committed footer; the newest segments, where
//! they exist, are repeated completely. Bytes that are read from the fast tier equal those of the
//! segment. Concurrency: as in [`super`]; the writer of a segment's part holds no lock but, in a
//! job, the lock of the job. Failure: where the tier has no data, or none that is trusted, bulk is
//! read.

use super::{Partition, Store};
use crate::common::error::Damage;
use crate::common::ids::SegmentId;
use crate::metadata::tables::PartitionRecord;
use crate::storage::fast_index::{FastIndex, NamedSegment, RepeatKind, Repeats, UpTo};
use crate::storage::segment::format::{Footer, HEADER_BYTES, SegmentHeader};
use crate::{Error, ErrorKind, Result};
use headwater_io::File;
use headwater_types::ByteRange;
use headwater_types::byte_range::joined;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

/// [`HEADER_BYTES`] as a `usize`.
const HEADER_LEN: usize = 64;
/// Bytes of the trailer of a footer, and the offset of the checksum in it.
const TRAILER_BYTES: u64 = 16;
const TRAILER_LEN: usize = 16;
const TRAILER_CRC: std::ops::Range<usize> = 4..8;

/// Maximum bytes of a segment that the job that wrote them repeats; more, where only the newest
/// segments need them, are repeated in the background.
const AT_ONCE_BYTES: u64 = 4 << 20;

/// The segment of a partition in a commit.
pub(crate) fn named(record: &PartitionRecord) -> NamedSegment {
    NamedSegment {
        shard: record.shard,
        up_to: up_to(record),
        last: record.span().last,
    }
}

fn up_to(record: &PartitionRecord) -> UpTo {
    UpTo {
        footer_offset: record.footer_offset,
        footer_bytes: record.footer_bytes,
        chain: record.chain,
    }
}

/// The ranges of a segment that the fast tier does not have.
struct Missing {
    /// Stretches of the segment, sorted.
    ranges: Vec<ByteRange>,
    footer_crc: u32,
}

impl Store {
    /// The fast indexes of the database.
    pub(crate) fn repeats(&self) -> &Arc<Repeats> {
        &self.repeats
    }

    /// Reads bytes of a segment in the fast tier; false unless all of them are there.
    pub(super) fn read_fast_tier(&self, id: SegmentId, offset: u64, out: &mut [u8]) -> bool {
        self.repeats.all().any(|index| index.read(id, offset, out))
    }

    /// As [`Store::read_fast_tier`], for rows, which the index does not have.
    pub(super) fn read_newest(&self, id: SegmentId, offset: u64, out: &mut [u8]) -> bool {
        let newest = self.repeats.get(RepeatKind::Newest);
        newest.is_some_and(|index| index.read(id, offset, out))
    }

    /// Drops the fast tier's file of a segment whose bytes turned out to be damaged, once per
    /// segment. True when the segment should be read again.
    pub(super) fn drop_doubted_index(&self, id: SegmentId, error: &Error) -> bool {
        if error.kind() != ErrorKind::Corrupt {
            return false;
        }
        let reason = error.to_string();
        let dropped = self.repeats.all().map(|index| index.drop_once(id, &reason));
        // `count` drops all of them, not only the first.
        dropped.filter(|was| *was).count() > 0
    }

    /// Looks something up in a segment's index, and again in bulk if the fast tier is not valid.
    pub(super) fn without_doubt<T>(
        &self,
        id: SegmentId,
        look: impl Fn() -> Result<T>,
    ) -> Result<T> {
        match look() {
            Err(error) if self.drop_doubted_index(id, &error) => look(),
            other => other,
        }
    }

    /// Checks, before a group is written to a segment, that the fast tier repeats this segment.
    pub(crate) fn compare_file(&self, id: SegmentId) -> Result<()> {
        match self.repeats.all().next() {
            Some(_) => self.open_file(id).map(drop),
            None => Ok(()),
        }
    }

    /// Compares a segment's file with its copy in the fast tier when the file is opened: the
    /// opening may have read only the tier.
    pub(super) fn compare_with_fast_tier(&self, id: SegmentId, file: &dyn File) -> Result<()> {
        let mut all = self.repeats.all();
        all.try_for_each(|index| self.compare_with(&index, id, file))
    }

    fn compare_with(&self, index: &FastIndex, id: SegmentId, file: &dyn File) -> Result<()> {
        let Some((up_to, footer_crc)) = index.up_to(id) else {
            return Ok(());
        };
        let (mut header, mut repeated) = ([0; HEADER_LEN], [0; HEADER_LEN]);
        if self.read_front(id, file, 0, &mut header)?
            && index.read(id, 0, &mut repeated)
            && header != repeated
        {
            let path = self.path(id);
            let found = SegmentHeader::decode(&header).map_err(|e| Error::decode(&path, 0, e))?;
            if found.id != id {
                return Err(Error::damage(Damage {
                    file: path,
                    offset: 0,
                    expected: format!("the header of segment {}", id.0),
                    found: format!("the header of segment {}", found.id.0),
                }));
            }
            index.drop_once(id, "the segment has another header");
        }
        let end = up_to.footer_offset + u64::from(up_to.footer_bytes);
        let mut trailer = [0; TRAILER_LEN];
        if self.read_front(id, file, end - TRAILER_BYTES, &mut trailer)?
            && trailer.get(TRAILER_CRC) != Some(&footer_crc.to_le_bytes())
        {
            index.drop_once(id, "the segment has another footer there");
        }
        Ok(())
    }

    /// False where the file is shorter: its reader reports that.
    fn read_front(
        &self,
        id: SegmentId,
        file: &dyn File,
        offset: u64,
        out: &mut [u8],
    ) -> Result<bool> {
        match file.read_exact_at(offset, out) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Error::io("read", &self.path(id), error)),
        }
    }

    /// Repeats the new bytes of a committed partition in the fast tier.
    pub(crate) fn keep_committed(&self, partition: &Partition) {
        for index in self.repeats.all() {
            index.named(partition.id(), &named(&partition.record));
            self.keep_in(&index, partition, AT_ONCE_BYTES);
        }
    }

    /// Repeats the missing bytes of a partition in the fast tier.
    pub(crate) fn keep_missing(&self, index: &FastIndex, partition: &Partition) {
        self.keep_in(index, partition, u64::MAX);
    }

    fn keep_in(&self, index: &FastIndex, partition: &Partition, rows_max: u64) {
        if partition.unreadable.is_none()
            && let Err(error) = self.try_keep(index, partition, rows_max)
        {
            index.leave(partition.id());
            // Reads use bulk, and report damage of the segment there.
            tracing::warn!(
                segment = partition.id().0,
                %error,
                "cannot copy a segment to the fast tier"
            );
        }
    }

    fn try_keep(&self, index: &FastIndex, partition: &Partition, rows_max: u64) -> Result<()> {
        let (id, record) = (partition.id(), &partition.record);
        let Some(writing) = index.writing(id, up_to(record)) else {
            return Ok(());
        };
        if writing.is_complete() {
            return Ok(());
        }
        let newest = (record.footer_offset, record.footer_bytes);
        let mut from = writing.from();
        let mut missing = self.missing(id, newest, from)?;
        if missing.is_none() {
            writing.doubt("the segment's footers do not reach its end");
            from = None;
            missing = self.missing(id, newest, from)?;
        }
        let Some(Missing {
            mut ranges,
            footer_crc,
        }) = missing
        else {
            return Err(Error::internal("footers that end before the first"));
        };
        if index.kind() == RepeatKind::Newest {
            let begin = from.map_or(0, |up_to| up_to.end());
            let bytes = up_to(record).end().saturating_sub(begin);
            if bytes > rows_max {
                return Ok(());
            }
            ranges = vec![ByteRange::at(begin, bytes)];
        }
        writing.append(from, &ranges, footer_crc, &mut |offset, out| {
            self.read_bulk(id, offset, out)
        })
    }

    /// The index ranges of the groups after `from`; `None` when the footers do not lead there.
    fn missing(
        &self,
        id: SegmentId,
        newest: (u64, u32),
        from: Option<UpTo>,
    ) -> Result<Option<Missing>> {
        let until = from.map(|up_to| (up_to.footer_offset, up_to.footer_bytes));
        let mut ranges = Vec::new();
        let mut gone: HashSet<u64> = HashSet::new();
        let mut footer_crc = None;
        let mut next = Some(newest);
        while let Some((offset, bytes)) = next.filter(|_| next != until) {
            if until.is_some_and(|(end, _)| offset <= end) {
                return Ok(None);
            }
            let raw = self.read(id, offset, bytes)?;
            let mut left = Vec::new();
            let footer = Footer::decode_each(&raw, |delta| {
                let blocks = delta.added_blocks.iter();
                let blocks = blocks.filter(|block| !gone.contains(&block.offset));
                ranges.extend(blocks.map(|b| ByteRange::at(b.offset, u64::from(b.bytes))));
                left.extend(delta.removed_blocks);
            })
            .map_err(|e| Error::decode(&self.path(id), offset, e))?;
            gone.extend(left);
            footer_crc.get_or_insert(crc_of(&raw));
            let checkpoint = footer.checkpoint.bytes();
            let start = offset.saturating_sub(checkpoint);
            ranges.push(ByteRange::at(start, checkpoint + u64::from(bytes)));
            next = self.before(id, offset, &footer)?;
        }
        if next != until {
            return Ok(None);
        }
        if until.is_none() {
            ranges.push(ByteRange::new(0, HEADER_BYTES));
        }
        // A block that a group lists twice is repeated once.
        Ok(Some(Missing {
            ranges: joined(ranges),
            footer_crc: footer_crc.unwrap_or_default(),
        }))
    }
}

/// The checksum in the trailer of a footer that was checked.
fn crc_of(footer: &[u8]) -> u32 {
    let crc = footer
        .last_chunk::<TRAILER_LEN>()
        .and_then(|trailer| trailer.get(TRAILER_CRC)?.try_into().ok());
    crc.map_or(0, u32::from_le_bytes)
}
