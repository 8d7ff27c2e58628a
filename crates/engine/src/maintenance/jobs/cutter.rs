//! Cuts sorted rows into leaves, and packs the rows of small streams into shared ones.

use crate::Result;
use crate::common::ids::StreamId;
use crate::storage::segment::{GroupWriter, LeafEntry};
use headwater_codec::leaf::EncodingCache;
use headwater_types::{Rows, Timestamp};

/// Gathers rows of one stream and writes a leaf whenever enough are there.
pub(crate) struct LeafCutter {
    size: usize,
    rows: Rows,
    pub(crate) leaves: Vec<LeafEntry>,
}

impl LeafCutter {
    /// Leaves of `size` rows, the remainder last.
    pub(crate) fn new(size: usize) -> LeafCutter {
        LeafCutter {
            size: size.max(1),
            rows: Rows::default(),
            leaves: Vec::new(),
        }
    }

    /// Leaves for `total` rows, about even when they would not all be full, each at most
    /// `leaf_events` rows.
    pub(crate) fn balanced(total: usize, leaf_events: usize) -> LeafCutter {
        let leaves = total.div_ceil(leaf_events.max(1)).max(1);
        LeafCutter::new(total.div_ceil(leaves))
    }

    pub(crate) fn push(
        &mut self,
        rows: &Rows,
        group: &mut GroupWriter,
        encodings: &mut EncodingCache,
    ) -> Result<()> {
        // Rows are copied one leaf at a time, so that a leaf stays in the processor's cache.
        let mut start = 0;
        while start < rows.len() {
            let end = (start + self.size - self.rows.len()).min(rows.len());
            if end - start == self.size && end == rows.len() && start == 0 {
                self.leaves.push(group.put_leaf(rows, encodings)?);
            } else {
                self.rows.extend_from(rows, start..end);
                if self.rows.len() == self.size {
                    self.leaves.push(group.put_leaf(&self.rows, encodings)?);
                    self.rows = Rows::default();
                }
            }
            start = end;
        }
        Ok(())
    }

    /// Writes the remaining rows and returns the leaves.
    pub(crate) fn finish(
        mut self,
        group: &mut GroupWriter,
        encodings: &mut EncodingCache,
    ) -> Result<Vec<LeafEntry>> {
        if !self.rows.is_empty() {
            self.leaves.push(group.put_leaf(&self.rows, encodings)?);
        }
        Ok(self.leaves)
    }
}

/// Destination of the entry of a part of a shared leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The stream's main run.
    Main,
    /// A new late run of the stream.
    LateRun,
}

struct SharedPart {
    stream: StreamId,
    destination: Destination,
    first: Timestamp,
    last: Timestamp,
    row_start: u32,
    count: u32,
}

/// Packs a few rows each of many streams into leaves of up to `size` rows.
pub(crate) struct SharedLeaves {
    size: usize,
    rows: Rows,
    parts: Vec<SharedPart>,
    pub(crate) entries: Vec<(StreamId, Destination, LeafEntry)>,
}

impl SharedLeaves {
    pub(crate) fn new(size: usize) -> SharedLeaves {
        SharedLeaves {
            size: size.max(1),
            rows: Rows::default(),
            parts: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Maximum rows of a stream in shared leaves; larger streams get their own leaves.
    pub(crate) fn rows_max(&self) -> usize {
        self.size / 8
    }

    /// Accepts sorted rows of one stream.
    pub(crate) fn push(
        &mut self,
        stream: StreamId,
        destination: Destination,
        rows: &Rows,
        group: &mut GroupWriter,
        encodings: &mut EncodingCache,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (rows.times.first(), rows.times.last()) else {
            return Ok(());
        };
        if self.rows.len() + rows.len() > self.size {
            self.write(group, encodings)?;
        }
        self.parts.push(SharedPart {
            stream,
            destination,
            first: Timestamp::from_nanos(*first),
            last: Timestamp::from_nanos(*last),
            row_start: self.rows.len() as u32,
            count: rows.len() as u32,
        });
        self.rows.extend_from(rows, 0..rows.len());
        Ok(())
    }

    fn write(&mut self, group: &mut GroupWriter, encodings: &mut EncodingCache) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let whole = group.put_leaf(&self.rows, encodings)?;
        for part in self.parts.drain(..) {
            let entry = LeafEntry {
                first: part.first,
                last: part.last,
                count: part.count,
                row_start: part.row_start,
                ..whole
            };
            self.entries.push((part.stream, part.destination, entry));
        }
        self.rows = Rows::default();
        Ok(())
    }

    /// Writes the remaining rows and returns every entry since the last call.
    pub(crate) fn finish(
        &mut self,
        group: &mut GroupWriter,
        encodings: &mut EncodingCache,
    ) -> Result<Vec<(StreamId, Destination, LeafEntry)>> {
        self.write(group, encodings)?;
        Ok(std::mem::take(&mut self.entries))
    }
}
