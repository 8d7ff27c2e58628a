//! Repair of the segments that the metadata name: each is read, and continues without its
//! unreadable parts.

use super::overlay::Patch;
use super::plan::{Planning, damage, header_of};
use super::scan::{ReadablePrefix, ScannedSegment};
use crate::common::ids::SegmentId;
use crate::metadata::catalog::Table;
use crate::metadata::tables::{MetaChange, PartitionRecord};
use crate::storage::segment::{Footer, SegmentHeader, Store};
use crate::{Error, ErrorKind, Result};
use std::path::PathBuf;

/// A segment with its record in the metadata.
struct NamedSegment<'a> {
    store: &'a Store,
    id: SegmentId,
    record: &'a PartitionRecord,
    table: &'a Table,
    path: PathBuf,
    /// The contents according to the metadata, in words.
    contents: String,
}

impl Planning<'_> {
    /// Reads every segment that the metadata name.
    pub(super) fn segments_named(&mut self) -> Result<()> {
        let (partitions, tables, next) = {
            let meta = self.open_meta()?;
            self.freed = meta.freed()?.into_iter().map(|(id, _)| id).collect();
            (meta.partitions()?, meta.tables()?, meta.next_segment()?)
        };
        let ids = self.segment_ids()?;
        self.next_segment = ids.last().map_or(next, |id| next.max(id.0 + 1));
        let store = self.store();
        let mut change = MetaChange::default();
        for (id, record) in partitions {
            let Some(table) = tables.get(record.table.0 as usize) else {
                continue;
            };
            let named = NamedSegment {
                store: &store,
                id,
                record: &record,
                table,
                path: store.path(id),
                contents: format!("{} events of table `{}`", record.events, table.name),
            };
            self.segment_named(&named, &mut change)?;
        }
        change.next_segment = self.next_segment;
        self.commit(change)
    }

    /// Reads one segment, and plans its repair.
    fn segment_named(&mut self, named: &NamedSegment<'_>, change: &mut MetaChange) -> Result<()> {
        let Some(segment) = self.scanned(named, change)? else {
            return Ok(());
        };
        let Some(whole) = &segment.readable else {
            self.lose_unreadable(named, segment.is_other, change);
            return Ok(());
        };
        if whole.end() != named.record.committed_bytes {
            self.go_back(named, whole, &segment.cut_off, change)?;
        }
        let Some(header) = self.good_header(named, segment.header, whole, change)? else {
            return Ok(());
        };
        let (id, table) = (named.id, named.table);
        let mended = self.mended(named.store, (id, &header), whole, table, false)?;
        self.apply(&named.path, header.id, whole.end(), mended, table, change)
    }

    /// Reads the file of a segment, through its newest checkpoint where necessary; `None` = it is
    /// lost.
    fn scanned(
        &mut self,
        named: &NamedSegment<'_>,
        change: &mut MetaChange,
    ) -> Result<Option<ScannedSegment>> {
        let (id, record, held) = (named.id, named.record, &named.contents);
        let segment =
            ScannedSegment::open(&self.segment_files(), self.dir, id, record.committed_bytes);
        let segment = match segment {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.lose_stub(id, &error, held.clone(), change);
                return Ok(None);
            }
            other => other?,
        };
        let Some(mut segment) = segment else {
            self.find(
                damage(&named.path, 0, format!("a segment with {held}"), "no file"),
                "its entry is removed",
            );
            self.lost.push(format!("{held} (segment {})", id.0));
            change.removed.push(id);
            return Ok(None);
        };
        let is_cut = |whole: &ReadablePrefix| whole.end() != record.committed_bytes;
        if segment.header.is_some() && segment.readable.as_ref().is_none_or(is_cut) {
            segment.readable = self.rescued(named.store, id, record)?.or(segment.readable);
        }
        Ok(Some(segment))
    }

    /// Drops a segment without a readable footer.
    fn lose_unreadable(
        &mut self,
        named: &NamedSegment<'_>,
        is_other: bool,
        change: &mut MetaChange,
    ) {
        let (id, held) = (named.id, &named.contents);
        self.find(
            damage(
                &named.path,
                0,
                format!("a segment with {held}"),
                if is_other {
                    "the file of another segment"
                } else {
                    "no readable footer"
                },
            ),
            "the file is moved to quarantine",
        );
        self.lost.push(format!("{held} (segment {})", id.0));
        self.quarantined.insert(named.path.clone());
        change.removed.push(id);
    }

    /// Resets a segment to the newest footer from which all data can be read.
    fn go_back(
        &mut self,
        named: &NamedSegment<'_>,
        whole: &ReadablePrefix,
        cut_off: &[Footer],
        change: &mut MetaChange,
    ) -> Result<()> {
        let (id, record, table) = (named.id, named.record, named.table);
        self.find(
            damage(
                &named.path,
                record.footer_offset,
                format!("a footer that ends at {}", record.committed_bytes),
                format!(
                    "the newest footer with readable predecessors ends at {}",
                    whole.end()
                ),
            ),
            "the segment is rolled back to that footer; the present file is moved to quarantine",
        );
        self.lost.push(format!(
            "up to {} of the newest events of table `{}` in segment {}, unless the log contains them",
            record.events.saturating_sub(whole.state.sums.events),
            table.name,
            id.0
        ));
        self.quarantined.insert(named.path.clone());
        for footer in cut_off {
            for delta in &footer.streams {
                let entries = delta.added.iter().chain(delta.late_runs.iter().flatten());
                for entry in entries {
                    self.lose(delta.stream, table, entry)?;
                }
            }
        }
        // With the sequence of that footer: later deletes are carried out again.
        change
            .partitions
            .push((id, whole.record(&header_of(id, record))));
        Ok(())
    }

    /// Returns the header for a segment, of a copy where the present header is bad; `None` = the
    /// segment is lost.
    fn good_header(
        &mut self,
        named: &NamedSegment<'_>,
        found: Option<SegmentHeader>,
        whole: &ReadablePrefix,
        change: &mut MetaChange,
    ) -> Result<Option<SegmentHeader>> {
        let id = named.id;
        let header = header_of(id, named.record);
        let is_bad = found.is_none_or(|h| {
            (SegmentHeader {
                replaces: None,
                ..h
            }) != header
        });
        if self.freed.contains(&id) && (is_bad || self.offset_in_file(id, whole.end())?.is_none()) {
            // Neither another header nor an earlier end is possible for it.
            let error = Error::damage(damage(
                &named.path,
                0,
                "the header and the newest footer of a stub",
                "other bytes",
            ));
            change.partitions.retain(|(other, _)| *other != id);
            self.lose_stub(id, &error, named.contents.clone(), change);
            return Ok(None);
        }
        Ok(Some(match is_bad {
            true => self.copy_with_header(named, header, whole, change),
            false => header,
        }))
    }

    /// Plans a copy of a segment under a new number, and returns its header. The header is among
    /// the bytes that never change while a file exists, so only a copy can get a correct one.
    fn copy_with_header(
        &mut self,
        named: &NamedSegment<'_>,
        mut header: SegmentHeader,
        whole: &ReadablePrefix,
        change: &mut MetaChange,
    ) -> SegmentHeader {
        let (id, copy) = (named.id, SegmentId(self.next_segment));
        self.next_segment += 1;
        header.id = copy;
        self.find(
            damage(&named.path, 0, "the header of this segment", "other bytes"),
            format!(
                "a copy with a new header becomes segment {}; the file is moved to quarantine",
                copy.0
            ),
        );
        self.quarantined.insert(named.path.clone());
        change.partitions.retain(|(other, _)| *other != id);
        change.partitions.push((copy, whole.record(&header)));
        change.removed.push(id);
        let patch = Patch {
            copy_of: Some(id),
            header: Some(header.encode()),
            tail: Some((whole.end(), Vec::new())),
            is_of_stub: false,
        };
        self.patches.insert(copy, patch);
        header
    }
}
