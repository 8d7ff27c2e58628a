//! Finds the complete parts of a segment file: footers, from the end of the file, without the
//! metadata.

use crate::common::ids::{SegmentId, Sequence, StreamId};
use crate::metadata::catalog::StreamIndex;
use crate::metadata::tables::{Meta, PartitionRecord};
use crate::storage::segment::{
    CheckpointNote, Cover, FOOTER_MAGIC, FinishedGroup, Fold, Footer, GROUP_STREAMS, HEADER_BYTES,
    Partition, SegmentHeader, Store, StreamDelta, Sums,
};
use crate::{Error, ErrorKind, Result};
use headwater_io::{File, Files, OpenMode};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const WINDOW_BYTES: u64 = 1 << 20;

/// The readable part of a segment file.
pub(super) struct ScannedSegment {
    pub(super) id: SegmentId,
    pub(super) path: PathBuf,
    pub(super) header: Option<SegmentHeader>,
    /// The file is of another segment: none of its contents belong to this one.
    pub(super) is_other: bool,
    /// The newest footer before which all footers can be read.
    pub(super) readable: Option<ReadablePrefix>,
    /// Complete footers above that one, newest first: one before them is damaged.
    pub(super) cut_off: Vec<Footer>,
}

/// Contents of a segment up to a footer.
pub(super) struct ReadablePrefix {
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) footers: Vec<Footer>,
    pub(super) state: Fold,
    /// Set where a footer before the newest checkpoint is damaged.
    pub(super) rescue: Option<Rescue>,
}

/// Parts of a footer that will replace all previous ones, in addition to the contents of the
/// segment.
pub(super) struct Rescue {
    pub(super) keys: BTreeMap<StreamId, Box<[u8]>>,
    /// Covers that replay may need.
    pub(super) covers: Vec<(StreamId, Cover)>,
}

/// Reads a segment through its newest checkpoint, as a reader does, although a footer before that
/// is damaged; `None` when there is no such checkpoint. Replay does not need covers up to `after`.
pub(super) fn through_checkpoint(
    store: &Store,
    id: SegmentId,
    record: &PartitionRecord,
    after: Sequence,
    meta: &Meta,
) -> Result<Option<ReadablePrefix>> {
    let read = || -> Result<(Fold, Vec<(StreamId, Cover)>)> {
        let covers = store.covers(id, record, after)?;
        let partition = Partition::new(record.clone(), store.segment_file(id));
        let state = store.state(&partition)?;
        let mut fold = Fold::default();
        for number in state.pages() {
            for (stream, held) in store.page(&state, number)?.iter() {
                fold.sums.replace(Sums::default(), Sums::of(&held));
                fold.streams.insert(stream, Arc::unwrap_or_clone(held));
            }
        }
        fold.table = state.table.as_deref().cloned();
        Ok((fold, covers))
    };
    let (state, covers) = match read() {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
        found => found?,
    };
    // With more streams one group would not be a complete rewriting.
    if state.streams.len() >= GROUP_STREAMS {
        return Ok(None);
    }
    let ids: Vec<StreamId> = state.streams.keys().copied().collect();
    let known = meta.streams(&ids)?.into_iter();
    Ok(Some(ReadablePrefix {
        offset: record.footer_offset,
        bytes: record.footer_bytes,
        footers: vec![Footer {
            previous: None,
            group_offset: record.footer_offset,
            sequence: record.sequence,
            table: state.table.clone(),
            checkpoint: CheckpointNote::Nothing,
            streams: Vec::new(),
        }],
        state,
        rescue: Some(Rescue {
            keys: known.map(|stream| (stream.id, stream.key)).collect(),
            covers,
        }),
    }))
}

impl Rescue {
    /// Changes that add the whole contents of a segment.
    pub(super) fn all_of(&self, state: &Fold) -> Vec<StreamDelta> {
        let streams = state.streams.iter().map(|(stream, held)| StreamDelta {
            stream: *stream,
            key: self.keys.get(stream).cloned(),
            added: held.main.clone(),
            late_runs: held.late.clone(),
            base: held.base,
            added_blocks: held.blocks.clone(),
            stale: (!held.stale.is_empty()).then(|| held.stale.clone()),
            covers: {
                let own = self.covers.iter().filter(|(s, _)| s == stream);
                own.map(|(_, cover)| *cover).collect()
            },
            last_row: held.last_row.clone(),
            ..StreamDelta::default()
        });
        streams.collect()
    }
}

impl ReadablePrefix {
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }

    /// For a segment that was written by a rewriting: true if it is complete, and true if later
    /// jobs added to it. Each group of a rewriting but the last has [`GROUP_STREAMS`] streams or
    /// more.
    pub(super) fn rewriting(&self) -> (bool, bool) {
        let last = self
            .footers
            .iter()
            .position(|f| f.streams.len() < GROUP_STREAMS);
        let is_whole = last.is_some();
        (is_whole, last.is_some_and(|l| self.footers.len() > l + 1))
    }

    pub(super) fn newest(&self) -> Option<&Footer> {
        self.footers.last()
    }

    /// The record that the metadata should have.
    pub(super) fn record(&self, header: &SegmentHeader) -> PartitionRecord {
        let sequence = self.footers.iter().map(|f| f.sequence).max();
        let finished = FinishedGroup {
            footer_offset: self.offset,
            footer_bytes: self.bytes,
            end: self.end(),
            chain: None,
        };
        PartitionRecord {
            groups: u32::try_from(self.footers.len()).unwrap_or(u32::MAX),
            ..crate::maintenance::jobs::record(
                header,
                sequence.unwrap_or_default(),
                &self.state.sums,
                finished,
                // Footers do not have the count; it only decides when a rewriting pays.
                (None, None),
            )
        }
    }
}

fn read(file: &dyn File, path: &Path, offset: u64, bytes: u64) -> Result<Option<Vec<u8>>> {
    let len = file.len().map_err(|e| Error::io("read", path, e))?;
    if offset.checked_add(bytes).is_none_or(|end| end > len) {
        return Ok(None);
    }
    let mut out = vec![0u8; usize::try_from(bytes).unwrap_or(0)];
    file.read_exact_at(offset, &mut out)
        .map_err(|e| Error::io("read", path, e))?;
    Ok(Some(out))
}

/// The footer at this offset and all previous ones, oldest first; `None` when one of them is
/// damaged.
pub(super) fn chain(
    file: &dyn File,
    path: &Path,
    offset: u64,
    bytes: u32,
) -> Result<Option<ReadablePrefix>> {
    let mut footers = Vec::new();
    let mut next = Some((offset, bytes));
    while let Some((at, len)) = next {
        let Some(raw) = read(file, path, at, u64::from(len))? else {
            return Ok(None);
        };
        let Ok(footer) = Footer::decode(&raw) else {
            return Ok(None);
        };
        next = footer.previous;
        if next.is_some_and(|(previous, len)| previous + u64::from(len) > at) {
            return Ok(None);
        }
        footers.push((footer, len));
    }
    let mut state = Fold::default();
    for (footer, len) in footers.iter().rev() {
        state.apply(footer, u64::from(*len));
    }
    Ok(Some(ReadablePrefix {
        offset,
        bytes,
        footers: footers.into_iter().rev().map(|(f, _)| f).collect(),
        state,
        rescue: None,
    }))
}

/// Passes every complete footer that ends at or below `limit` to `each`, from the last on, until it
/// stops.
fn footers_backwards(
    file: &dyn File,
    path: &Path,
    limit: u64,
    mut each: impl FnMut(u64, u32, Footer) -> Result<bool>,
) -> Result<()> {
    let len = file.len().map_err(|e| Error::io("read", path, e))?;
    let mut end = len.min(limit);
    let magic = FOOTER_MAGIC.len() as u64;
    while end > HEADER_BYTES {
        // Windows overlap by the length of a magic less one, so that none is split.
        let start = end.saturating_sub(WINDOW_BYTES).max(HEADER_BYTES);
        let window = read(file, path, start, end - start)?.unwrap_or_default();
        for at in (0..window.len().saturating_sub(FOOTER_MAGIC.len() - 1)).rev() {
            if window.get(at..at + FOOTER_MAGIC.len()) != Some(&FOOTER_MAGIC[..]) {
                continue;
            }
            let footer_end = start + at as u64 + magic;
            let Some(trailer) = read(file, path, footer_end - 16, 4)? else {
                continue;
            };
            let bytes = u32::from_le_bytes(trailer.try_into().unwrap_or([0; 4]));
            let Some(offset) = footer_end.checked_sub(u64::from(bytes)) else {
                continue;
            };
            if offset < HEADER_BYTES || bytes < 16 {
                continue;
            }
            let raw = read(file, path, offset, u64::from(bytes))?.unwrap_or_default();
            if let Ok(footer) = Footer::decode(&raw)
                && !each(offset, bytes, footer)?
            {
                return Ok(());
            }
        }
        if start == HEADER_BYTES {
            return Ok(());
        }
        end = start + magic - 1;
    }
    Ok(())
}

impl ScannedSegment {
    /// Reads the file of a segment up to `limit`; `None` = there is no file.
    pub(super) fn open(
        files: &dyn Files,
        dir: &Path,
        id: SegmentId,
        limit: u64,
    ) -> Result<Option<ScannedSegment>> {
        let path = dir.join("segment").join(format!("{}.seg", id.0));
        let file = match files.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| Error::io("open", &path, e))?,
        };
        let found = read(&*file, &path, 0, HEADER_BYTES)?
            .and_then(|bytes| SegmentHeader::decode(&bytes).ok());
        let is_other = found.is_some_and(|header| header.id != id);
        let header = found.filter(|_| !is_other);
        let mut readable = None;
        let mut cut_off = Vec::new();
        let limit = if is_other { 0 } else { limit };
        footers_backwards(&*file, &path, limit, |offset, bytes, footer| {
            readable = chain(&*file, &path, offset, bytes)?;
            if readable.is_none() {
                cut_off.push(footer);
            }
            Ok(readable.is_none())
        })?;
        Ok(Some(ScannedSegment {
            id,
            path,
            header,
            is_other,
            readable,
            cut_off,
        }))
    }
}
