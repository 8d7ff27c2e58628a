//! Streams and definitions in the metadata.

use super::{Backing, DROPPED, Meta, STREAM_COUNTS, STREAM_IDS, STREAMS, TAG_KEYS};
use crate::common::ids::{Sequence, StreamId, TableId};
use crate::metadata::catalog::{SavedDefinitions, StreamIndex, StreamRecord, Walk};
use crate::{Error, Result};
use headwater_codec::{Cursor, DecodeError};
use redb::{ReadableDatabase, ReadableTable};
use std::ops::Bound;
use std::sync::Arc;

/// Number of keys within which advancing key by key is quicker than a search from the root.
const NEAR: usize = 4;

impl StreamIndex for Meta {
    fn find_stream(&self, key: &[u8]) -> Result<Option<StreamId>> {
        if let Backing::Fixed(fixed) = &self.backing {
            return Ok(fixed.find_stream(key));
        }
        let table = self.required(STREAM_IDS)?;
        Ok(table
            .get(key)
            .map_err(Error::meta)?
            .map(|v| StreamId(v.value())))
    }

    fn streams(&self, ids: &[StreamId]) -> Result<Vec<StreamRecord>> {
        if let Backing::Fixed(fixed) = &self.backing {
            let records = ids.iter().filter_map(|id| fixed.stream(*id));
            return Ok(records.cloned().collect());
        }
        let table = self.required(STREAMS)?;
        let mut out = Vec::new();
        for id in ids {
            if let Some(value) = table.get(id.0).map_err(Error::meta)? {
                out.push(self.stream_record(value.value())?);
            }
        }
        Ok(out)
    }

    fn streams_of(&self, table_id: TableId) -> Result<Vec<StreamRecord>> {
        let db = match &self.backing {
            Backing::Stored(db) => db,
            Backing::Fixed(fixed) => return Ok(fixed.streams_of(table_id)),
        };
        let transaction = db.begin_read().map_err(Error::meta)?;
        let ids = transaction.open_table(STREAM_IDS).map_err(Error::meta)?;
        let records = transaction.open_table(STREAMS).map_err(Error::meta)?;
        let first = table_id.0.to_be_bytes();
        let mut out = Vec::new();
        for entry in ids.range(&first[..]..).map_err(Error::meta)? {
            let (key, id) = entry.map_err(Error::meta)?;
            if !key.value().starts_with(&first) {
                break;
            }
            if let Some(value) = records.get(id.value()).map_err(Error::meta)? {
                out.push(self.stream_record(value.value())?);
            }
        }
        Ok(out)
    }

    fn walk_keys(
        &self,
        table: TableId,
        after: &[u8],
        each: &mut dyn FnMut(&[u8], StreamId) -> Walk,
    ) -> Result<()> {
        if let Backing::Fixed(fixed) = &self.backing {
            fixed.walk_keys(table, after, each);
            return Ok(());
        }
        let ids = self.required(STREAM_IDS)?;
        let first = table.0.to_be_bytes();
        let from = if after.is_empty() {
            Bound::Included(&first[..])
        } else {
            Bound::Excluded(after)
        };
        let from_on = |from: Bound<&[u8]>| {
            ids.range::<&[u8]>((from, Bound::Unbounded))
                .map_err(Error::meta)
        };
        let mut entries = from_on(from)?;
        // The position to continue from, and the number of keys passed before it.
        let mut wanted: Option<(Vec<u8>, usize)> = None;
        while let Some(entry) = entries.next() {
            let (key, id) = entry.map_err(Error::meta)?;
            let key = key.value();
            if !key.starts_with(&first) {
                break;
            }
            if let Some((next, met)) = &mut wanted
                && key < next.as_slice()
            {
                *met += 1;
                if *met == NEAR {
                    entries = from_on(Bound::Included(next))?;
                }
                continue;
            }
            wanted = match each(key, StreamId(id.value())) {
                Walk::Next => None,
                Walk::From(next) => Some((next, 0)),
                Walk::End => break,
            };
        }
        Ok(())
    }

    fn streams_from(
        &self,
        first: StreamId,
        each: &mut dyn FnMut(StreamRecord) -> bool,
    ) -> Result<()> {
        if let Backing::Fixed(fixed) = &self.backing {
            let streams = fixed.streams_from(first);
            streams.iter().cloned().all(each);
            return Ok(());
        }
        let table = self.required(STREAMS)?;
        for entry in table.range(first.0..).map_err(Error::meta)? {
            let (_, value) = entry.map_err(Error::meta)?;
            if !each(self.stream_record(value.value())?) {
                break;
            }
        }
        Ok(())
    }

    fn unreadable_key(&self, error: DecodeError) -> Error {
        Error::decode(&self.path, 0, error)
    }

    fn dropped(&self) -> Result<Vec<(Sequence, StreamRecord)>> {
        let Some(table) = self.table(DROPPED)? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (_, value) = entry.map_err(Error::meta)?;
            out.push(self.dropped_record(value.value())?);
        }
        Ok(out)
    }
}

impl Meta {
    /// Definitions for the catalog at an opening.
    pub(crate) fn definitions(&self) -> Result<SavedDefinitions> {
        if let Backing::Fixed(fixed) = &self.backing {
            return Ok(fixed.definitions());
        }
        Ok(SavedDefinitions {
            tables: self.tables()?.into_iter().map(Arc::new).collect(),
            next_stream: self.next_stream()?,
            dropped: self.dropped()?,
            stream_counts: self.stream_counts()?,
            tag_keys: self.tag_keys()?,
        })
    }

    fn stream_counts(&self) -> Result<Vec<(TableId, u64)>> {
        let table = self.required(STREAM_COUNTS)?;
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (key, value) = entry.map_err(Error::meta)?;
            out.push((TableId(key.value()), value.value()));
        }
        Ok(out)
    }

    fn tag_keys(&self) -> Result<Vec<(TableId, String)>> {
        let table = self.required(TAG_KEYS)?;
        let mut out = Vec::new();
        for entry in table.iter().map_err(Error::meta)? {
            let (key, _) = entry.map_err(Error::meta)?;
            let mut cursor = Cursor::new(key.value());
            let read = |e: DecodeError| self.damaged(e.expected, "a tag key record");
            let id = cursor.u32("table id").map_err(read)?;
            out.push((
                TableId(id),
                cursor.text("tag key").map_err(read)?.to_owned(),
            ));
        }
        Ok(out)
    }

    fn stream_record(&self, bytes: &[u8]) -> Result<StreamRecord> {
        StreamRecord::decode(&mut Cursor::new(bytes))
            .map_err(|e| self.damaged(e.expected, "a stream record"))
    }

    fn dropped_record(&self, bytes: &[u8]) -> Result<(Sequence, StreamRecord)> {
        let mut cursor = Cursor::new(bytes);
        let read = |e: DecodeError| self.damaged(e.expected, "a dropped stream");
        let sequence = cursor.varint("sequence").map_err(read)?;
        let record = StreamRecord::decode(&mut cursor).map_err(read)?;
        Ok((Sequence(sequence), record))
    }
}
