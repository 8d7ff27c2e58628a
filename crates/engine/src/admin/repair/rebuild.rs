//! Rebuilds the metadata from segments and log alone.
//!
//! A rewritten segment and its replacement may both exist: a rewrite that was interrupted before
//! its commit, or a segment that was not removed in time after it. Each segment's header names the
//! segment it replaces ([`Replaces`]), and its sister segments; this determines the segments in
//! force.

use super::log::LogScan;
use super::scan::ScannedSegment;
use crate::common::ids::{SegmentId, Sequence, StreamId, TableId};
use crate::core::shard_number;
use crate::metadata::catalog::{Definition, Duplicates, StreamRecord, Table, TableLifetime};
use crate::metadata::clock::{EventSpan, borne_out_by};
use crate::metadata::tables::{Meta, MetaChange};
use crate::storage::segment::{Replaces, SegmentHeader};
use crate::{Error, Result};
use headwater_io::{Env, File, Files, MemoryFiles, OpenMode};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

const SHARDS_MAX: u16 = 64;

/// The new metadata, and the consequences of rebuilding them.
pub(super) struct Rebuilt {
    pub(super) file: Arc<dyn File>,
    /// Log records up to here are not needed for the rows in segments.
    pub(super) floor: Sequence,
    pub(super) step_sequence: Sequence,
    /// Segments that are not in force, with the reasons.
    pub(super) superseded: Vec<(SegmentId, String)>,
    pub(super) in_force: Vec<SegmentId>,
}

/// The readable contents of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadableSegment {
    pub(super) header: SegmentHeader,
    pub(super) footer_offset: u64,
    /// The rewriting that made the segment was finished.
    pub(super) is_finished: bool,
    /// Later jobs added to it.
    pub(super) went_on: bool,
}

/// The segments that are not in force, with the reasons.
pub(super) fn in_force(segments: &[ReadableSegment]) -> BTreeMap<SegmentId, String> {
    let mut superseded: BTreeMap<SegmentId, String> = BTreeMap::new();
    let known: HashMap<SegmentId, &ReadableSegment> =
        segments.iter().map(|f| (f.header.id, f)).collect();
    // Segments written together, by the first of their ids.
    let mut together: BTreeMap<SegmentId, (Replaces, Vec<SegmentId>)> = BTreeMap::new();
    for ReadableSegment { header, .. } in segments {
        if let Some(replaces) = header.replaces {
            let first = SegmentId(header.id.0.saturating_sub(u64::from(replaces.part)));
            let slot = together.entry(first).or_insert((replaces, Vec::new()));
            slot.1.push(header.id);
        }
    }
    // The newest first: the replacement of one of several proves that all of these were committed.
    let mut replaced: BTreeSet<SegmentId> = BTreeSet::new();
    for (first, (replaces, members)) in together.into_iter().rev() {
        let ids = first.0..first.0 + u64::from(replaces.parts);
        let old = known.get(&replaces.id);
        let went_on = members
            .iter()
            .any(|id| known.get(id).is_some_and(|f| f.went_on));
        let one_replaced = ids.clone().any(|id| replaced.contains(&SegmentId(id)));
        // Without proof that the rewriting was committed, the old segment is used while it has all
        // of the rewritten data: the new ones may be incomplete on the medium.
        let whole = members.len() == usize::from(replaces.parts)
            && members
                .iter()
                .all(|id| known.get(id).is_some_and(|f| f.is_finished))
            && old.is_some_and(|f| f.footer_offset < replaces.footer_offset);
        if old.is_none() || went_on || one_replaced || whole {
            replaced.insert(replaces.id);
            if old.is_some() {
                superseded.insert(replaces.id, format!("rewritten as segment {}", first.0));
            }
        } else {
            for id in members {
                superseded.insert(
                    id,
                    format!("an unfinished rewrite of segment {}", replaces.id.0),
                );
            }
        }
    }
    superseded
}

/// The number of shards for which every stream belongs to the shard of its segment.
fn shards(streams: &BTreeMap<StreamId, StreamRecord>, segments: &[&ScannedSegment]) -> Result<u16> {
    let least = segments
        .iter()
        .filter_map(|s| Some(s.header?.shard.0))
        .chain(streams.values().map(|s| s.shard.0))
        .max()
        .unwrap_or(0)
        + 1;
    (least..=SHARDS_MAX)
        .find(|count| {
            streams
                .values()
                .all(|s| shard_number(&s.key, usize::from(*count)) == s.shard)
        })
        .ok_or_else(|| {
            Error::internal("repair: no number of shards fits the streams in the segments")
        })
}

/// Picks the parts of segments that determine the segments in force.
fn readable(all: &[ScannedSegment]) -> Vec<ReadableSegment> {
    all.iter()
        .filter_map(|s| {
            let whole = s.readable.as_ref()?;
            let (is_finished, went_on) = whole.rewriting();
            Some(ReadableSegment {
                header: s.header?,
                footer_offset: whole.offset,
                is_finished,
                went_on,
            })
        })
        .collect()
}

/// Chooses the segments in force, by number. Spans never overlap: if they do, the one with the
/// newest write wins, and the other one is superseded too.
fn chosen<'a>(
    all: &'a [ScannedSegment],
    superseded: &mut BTreeMap<SegmentId, String>,
) -> Vec<&'a ScannedSegment> {
    let mut chosen: Vec<&ScannedSegment> = Vec::new();
    let mut candidates: Vec<&ScannedSegment> = all
        .iter()
        .filter(|s| s.header.is_some() && s.readable.is_some() && !superseded.contains_key(&s.id))
        .collect();
    candidates.sort_by_key(|s| {
        let newest = s.readable.as_ref().and_then(|w| w.newest());
        std::cmp::Reverse((newest.map(|f| f.sequence), s.id))
    });
    for segment in candidates {
        let Some(header) = segment.header else {
            continue;
        };
        let span = header.level.bucket_span(header.bucket);
        let rival = chosen.iter().find(|c| {
            c.header.is_some_and(|h| {
                h.table == header.table
                    && h.shard == header.shard
                    && h.level.bucket_span(h.bucket).overlaps(&span)
            })
        });
        match rival {
            Some(rival) => drop(superseded.insert(
                segment.id,
                format!(
                    "segment {} covers the same span and was written later",
                    rival.id.0
                ),
            )),
            None => chosen.push(segment),
        }
    }
    chosen.sort_by_key(|s| s.id);
    chosen
}

/// Assigns to all definitions the sequence at which they are stored: tables before streams.
fn stored_at(
    sequence: Sequence,
    tables: BTreeMap<TableId, Table>,
    streams: BTreeMap<StreamId, StreamRecord>,
) -> Vec<(Sequence, Definition)> {
    let tables = tables.into_values().map(|t| Definition::Table(Arc::new(t)));
    let streams = streams.into_values();
    let streams = streams.map(|s| Definition::Stream(Arc::new(s)));
    tables.chain(streams).map(|d| (sequence, d)).collect()
}

/// Builds metadata that name the segments in force.
pub(super) fn rebuild(
    path: &Path,
    all: &[ScannedSegment],
    log: &LogScan,
    env: &Env,
) -> Result<Rebuilt> {
    let mut superseded = in_force(&readable(all));
    let chosen = chosen(all, &mut superseded);
    let (tables, streams) = definitions(all, log);
    let shards = shards(&streams, &chosen)?;
    let newest = |sequence: Option<Sequence>| sequence.unwrap_or_default();
    let step_sequence = newest(
        chosen
            .iter()
            .filter_map(|s| {
                s.readable
                    .as_ref()?
                    .footers
                    .iter()
                    .map(|f| f.sequence)
                    .max()
            })
            .max(),
    );
    let floor = newest(
        chosen
            .iter()
            .filter_map(|s| Some(s.header?.replaces?.covers_after))
            .max(),
    );
    let memory = MemoryFiles::new();
    let file = memory
        .open(Path::new("/meta.redb"), OpenMode::CreateNew)
        .map_err(|e| Error::io("create", path, e))?;
    let meta = Meta::create(path, Arc::clone(&file), shards, env.chance.next_u64())?;
    let mut change = MetaChange {
        step_sequence,
        next_stream: streams.keys().last().map_or(0, |s| s.0.saturating_add(1)),
        definitions: stored_at(step_sequence, tables, streams),
        next_segment: all.iter().map(|s| s.id.0 + 1).max().unwrap_or(1),
        ..MetaChange::default()
    };
    for segment in &chosen {
        if let (Some(header), Some(whole)) = (&segment.header, &segment.readable) {
            change.partitions.push((segment.id, whole.record(header)));
        }
    }
    let events: u64 = change.partitions.iter().map(|(_, r)| r.events).sum();
    change.counters.push(("events_accepted".to_owned(), events));
    change
        .counters
        .extend(borne_out_by(spans(&chosen, log), env.clock.now()));
    meta.commit(&change)?;
    drop(meta);
    Ok(Rebuilt {
        file,
        floor,
        step_sequence,
        superseded: superseded.into_iter().collect(),
        in_force: chosen.iter().map(|s| s.id).collect(),
    })
}

/// Time spans of the events in segments in force and the log.
fn spans(segments: &[&ScannedSegment], log: &LogScan) -> Vec<EventSpan> {
    let states = segments.iter().filter_map(|s| s.readable.as_ref());
    let streams = states.flat_map(|whole| whole.state.streams.values());
    let leaves = streams.flat_map(|s| s.main.iter().chain(s.late.iter().flatten()));
    let stored = leaves.map(|leaf| EventSpan {
        range: leaf.range(),
        events: u64::from(leaf.count),
    });
    stored.chain(log.spans()).collect()
}

/// Tables and streams from segments and log. Table ids are dense: a table without any trace gets a
/// name that says so.
fn definitions(
    all: &[ScannedSegment],
    log: &LogScan,
) -> (BTreeMap<TableId, Table>, BTreeMap<StreamId, StreamRecord>) {
    let logged = log.definitions();
    let mut versions: Vec<(Sequence, Table)> = logged.tables;
    let mut streams: BTreeMap<StreamId, StreamRecord> = BTreeMap::new();
    for segment in all {
        let (Some(header), Some(whole)) = (&segment.header, &segment.readable) else {
            continue;
        };
        for footer in &whole.footers {
            versions.extend(footer.table.clone().map(|t| (footer.sequence, t)));
            for delta in &footer.streams {
                if let Some(key) = &delta.key {
                    let record = StreamRecord {
                        id: delta.stream,
                        table: header.table,
                        shard: header.shard,
                        key: key.clone(),
                    };
                    streams.insert(delta.stream, record);
                }
            }
        }
    }
    for record in logged.streams {
        streams.entry(record.id).or_insert(record);
    }
    // Fields are only added: of two versions the one with more fields is newer.
    versions.sort_by_key(|(sequence, table)| (table.fields.len(), *sequence));
    let mut tables: BTreeMap<TableId, Table> =
        versions.into_iter().map(|(_, t)| (t.id, t)).collect();
    for (_, added) in logged.added {
        // Where fields between are lost, the number of the following ones is unknown.
        if let Some(table) = tables.get_mut(&added.table)
            && added.first as usize <= table.fields.len()
            && added.add_to(table).is_err()
        {
            tracing::warn!(table = table.name, "added fields do not match their table");
        }
    }
    let count = tables
        .keys()
        .map(|t| t.0 + 1)
        .chain(streams.values().map(|s| s.table.0 + 1))
        .max()
        .unwrap_or(0);
    for id in 0..count {
        tables.entry(TableId(id)).or_insert_with(|| Table {
            id: TableId(id),
            name: format!("lost table {id}"),
            duplicates: Duplicates::Last,
            leaf_events: 2048,
            fields: Vec::new(),
            tags: Vec::new(),
            lifetime: TableLifetime::FOREVER,
        });
    }
    (tables, streams)
}
