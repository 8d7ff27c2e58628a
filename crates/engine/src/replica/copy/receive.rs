//! Receives states and ranges, and applies them to the partitions shown.
//!
//! Invariants: a range counts from the transaction that names it on, and its bytes were synced
//! before. A state replaces the previous one only if it continues it. Concurrency: one at a time,
//! under the copy's lock; readers go on. Failure: after a failed write, sync or transaction the
//! copy refuses further input until it is opened again; everything confirmed before stays.

use super::index::{Index, Packs, RawIndex};
use super::missing::{MissingRanges, SegmentMissing};
use super::pack::{Pack, PackFiles, Present, pack_dir, pack_path};
use super::retained::{Deleted, RetainedPartition};
use super::shown::{Known, NextShown, ShardSpan, next_shown};
use crate::common::ids::{SegmentId, Sequence};
use crate::device::layout::segment_dir;
use crate::replication::needed::{Needed, needed};
use crate::replication::state::{State, StatePartition};
use crate::replication::subscriptions::{Pin, ReplicationRules, Subscription};
use crate::replication::tail::ReceivedTail;
use crate::storage::segment::{ReadCache, Store};
use crate::{Error, ErrorKind, Result};
use headwater_io::{Env, File, OpenMode};
use headwater_types::invariant::wide;
use headwater_types::{ByteRange, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Virtual folder of the segments of a copy.
pub(super) const ROOT: &str = "/";
/// Cache bytes for footers and late rows, which are read once.
const CACHE_BYTES: usize = 1 << 20;
const OPEN_FILES_MAX: usize = 16;
/// Maximum pins of a copy.
const PINS_MAX: usize = 1024;

/// A pack that is being written.
#[derive(Debug)]
struct Writing {
    file: Arc<dyn File>,
    /// Ranges after the ones that the index names.
    new: Vec<Present>,
    end: u64,
}

#[derive(Debug)]
pub(super) struct Receiving {
    env: Env,
    dir: PathBuf,
    index: Index,
    pub(super) rules: ReplicationRules,
    pub(super) pins: BTreeMap<u64, Pin>,
    /// The rules and pins, applied to the state.
    pub(super) subscription: Subscription,
    pub(super) state: Arc<State>,
    pub(super) shown: Vec<StatePartition>,
    /// Spans of the state in which nothing is shown yet: the newest events go on there.
    pub(super) left_out: Vec<ShardSpan>,
    /// The deletes in partitions shown in an earlier version.
    pub(super) deleted: BTreeMap<SegmentId, Vec<Deleted>>,
    /// Retained data that the source has removed.
    pub(super) retained: BTreeMap<SegmentId, RetainedPartition>,
    pub(super) packs: BTreeMap<SegmentId, Arc<Pack>>,
    ends: BTreeMap<SegmentId, u64>,
    writing: BTreeMap<SegmentId, Writing>,
    /// The name of a new pack may not be on the disk.
    has_new_name: bool,
    pub(super) missing: MissingRanges,
    /// Copies of this copy: the delete up to which each has confirmed.
    pub(super) further: BTreeMap<String, Sequence>,
    /// Ranges of segments that cannot be fetched, disjoint.
    pub(super) without: BTreeMap<SegmentId, Vec<ByteRange>>,
    /// The known part of the source's log after the state.
    pub(super) tail: ReceivedTail,
    /// Increases with every change of the reported progress.
    pub(super) changes: u64,
    /// The ranges of segments that were forgotten since the last export.
    pub(super) forgotten: Vec<(u64, ByteRange)>,
    failed: Option<Error>,
}

impl Receiving {
    pub(super) fn open(
        env: Env,
        dir: &Path,
        index: Index,
        rules: ReplicationRules,
    ) -> Result<Receiving> {
        let loaded = index.load()?;
        let mut packs = BTreeMap::new();
        let mut ends = BTreeMap::new();
        for (id, (ranges, end)) in loaded.packs {
            packs.insert(id, Arc::new(Pack::new(&env.files, dir, id, ranges)));
            ends.insert(id, end);
        }
        let subscription = Subscription::of(&rules, &loaded.pins, &loaded.state);
        let mut receiving = Receiving {
            env,
            dir: dir.to_owned(),
            index,
            rules,
            pins: loaded.pins,
            subscription,
            state: Arc::new(loaded.state),
            shown: loaded.shown,
            left_out: Vec::new(),
            deleted: loaded.deleted,
            retained: loaded.retained,
            packs,
            ends,
            writing: BTreeMap::new(),
            has_new_name: false,
            missing: MissingRanges::default(),
            further: BTreeMap::new(),
            without: BTreeMap::new(),
            tail: ReceivedTail::default(),
            changes: 0,
            forgotten: Vec::new(),
            failed: None,
        };
        receiving.remove_unnamed()?;
        receiving.look_at_all()?;
        Ok(receiving)
    }

    fn look_at_all(&mut self) -> Result<()> {
        let all = self.state.partitions.iter().map(|p| p.id).collect();
        self.look(&all)?;
        self.show(None)
    }

    /// Applies a changed subscription.
    fn want(&mut self) -> Result<()> {
        self.subscription = Subscription::of(&self.rules, &self.pins, &self.state);
        let looked = self.look_at_all();
        self.believed(looked)
    }

    pub(super) fn set_rules(&mut self, rules: ReplicationRules) -> Result<()> {
        self.check()?;
        if rules == self.rules {
            return Ok(());
        }
        self.rules = rules;
        self.want()
    }

    pub(super) fn pin(&mut self, pin: Pin) -> Result<u64> {
        self.check()?;
        pin.check()?;
        if self.pins.len() >= PINS_MAX {
            return Err(Error::invalid(format!(
                "this copy already has {PINS_MAX} pins, the maximum: remove those that are not needed"
            )));
        }
        let newest = self.pins.last_key_value().map_or(0, |(number, _)| *number);
        let number = newest.saturating_add(1);
        let put = self.index.put_pin(number, Some(&pin));
        self.believed(put)?;
        self.pins.insert(number, pin);
        self.want()?;
        Ok(number)
    }

    /// Removes pins.
    pub(super) fn unpin(&mut self, numbers: &[u64]) -> Result<()> {
        self.check()?;
        for number in numbers {
            let put = self.index.put_pin(*number, None);
            self.believed(put)?;
            self.pins.remove(number);
        }
        self.want()
    }

    /// Removes expired pins; returns their number.
    pub(super) fn end_pins(&mut self, now: Timestamp) -> Result<usize> {
        let has_ended = |pin: &Pin| pin.until.is_some_and(|until| until <= now);
        let ended = self.pins.iter().filter(|(_, pin)| has_ended(pin));
        let ended: Vec<u64> = ended.map(|(number, _)| *number).collect();
        if !ended.is_empty() {
            self.unpin(&ended)?;
        }
        Ok(ended.len())
    }

    /// Removes leftover packs of a crash, and packs that could not be removed before.
    fn remove_unnamed(&self) -> Result<()> {
        let folder = pack_dir(&self.dir);
        let names = self.env.files.list(&folder);
        for name in names.map_err(|e| Error::io("list", &folder, e))? {
            let id = name.strip_suffix(".pack").and_then(|id| id.parse().ok());
            if id.is_some_and(|id| !self.packs.contains_key(&SegmentId(id))) {
                let path = folder.join(&name);
                let removed = self.env.files.remove(&path);
                removed.map_err(|e| Error::io("remove", &path, e))?;
            }
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Records a failure after which later writes are not trusted.
    pub(super) fn believed<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Accepts a state that replaces the previous one.
    pub(super) fn take_state(&mut self, state: State) -> Result<()> {
        self.check()?;
        let (before, name) = (self.state.name, state.name);
        if name == before {
            return Ok(());
        }
        if !state.descends_from(&before) {
            return Err(Error::invalid(format!(
                "the history of the source does not continue the one of this copy: the source was restored, repaired or rolled back, or runs twice; set this copy aside and start a new one (received state {} of incarnation {:016x}, the copy has state {} of incarnation {:016x})",
                name.number, name.incarnation, before.number, before.incarnation
            )));
        }
        let state = self.remembering(state);
        let has_changed = |now: &&StatePartition| {
            let before = self.state.partition(now.id);
            !before.is_some_and(|before| before.is_same(now))
                || self.state.deletes != state.deletes
                || self.state.table(now.record.table) != state.table(now.record.table)
        };
        let changed = state.partitions.iter().filter(has_changed);
        let changed: BTreeSet<SegmentId> = changed.map(|p| p.id).collect();
        let put = self.put_state(Arc::new(state), &changed);
        self.believed(put)?;
        self.keep_tail();
        Ok(())
    }

    /// True when all partitions are shown in the version that the state names.
    fn shows_all(&self) -> bool {
        let is_newest = |p: &StatePartition| {
            let now = self.state.partition(p.id);
            now.is_some_and(|now| now.is_same(p))
        };
        self.shown.iter().all(is_newest) && self.left_out.is_empty()
    }

    /// Trims the tail: the partitions shown may cover more of it than before.
    fn keep_tail(&mut self) {
        let shows_all = self.shows_all();
        self.tail.keep(&self.state, shows_all);
    }

    /// Applies a change of the tail: partitions that were left out are shown where it does not go
    /// on from what is shown.
    pub(super) fn tail_changed(&mut self) {
        self.changes += 1;
        if !self.left_out.is_empty() && !self.tail.goes_on(&self.state) {
            let shown = self.show(None);
            if let Err(error) = self.believed(shown) {
                tracing::warn!(%error, "what a copy shows cannot be stored; it takes no further input");
            }
        }
        self.keep_tail();
    }

    /// Drops the tail: its sender is not trusted any more, or it cannot be read.
    pub(super) fn drop_tail(&mut self) {
        self.tail.drop_all();
        self.tail_changed();
    }

    fn put_state(&mut self, state: Arc<State>, changed: &BTreeSet<SegmentId>) -> Result<()> {
        self.missing
            .keep(&|id| state.partition(id).is_some(), changed);
        self.without.retain(|id, _| state.partition(*id).is_some());
        self.subscription = Subscription::of(&self.rules, &self.pins, &state);
        let before = std::mem::replace(&mut self.state, state);
        self.look(changed)?;
        self.show(Some(before))
    }

    /// Accepts bytes of a segment, which count from the next commit on. Bytes that are already
    /// present are left out.
    pub(super) fn put(&mut self, id: SegmentId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check()?;
        let named = self.state.partition(id).into_iter();
        let shown = self.shown.iter().filter(|p| p.id == id);
        let committed = named.chain(shown).map(|p| p.record.committed_bytes).max();
        let end = offset.checked_add(wide(bytes.len()));
        let is_named = match (end, committed) {
            (Some(end), Some(committed)) => end <= committed,
            _ => false,
        };
        if !is_named {
            return Err(Error::invalid(format!(
                "received {} bytes at offset {offset} of segment {}, of which the state lists {}",
                bytes.len(),
                id.0,
                committed.map_or("nothing".to_owned(), |c| format!("{c} bytes"))
            )));
        }
        let range = ByteRange::at(offset, wide(bytes.len()));
        let mut missing = match self.packs.get(&id) {
            Some(pack) => pack.missing(range),
            None => vec![range],
        };
        if let Some(writing) = self.writing.get(&id) {
            let mut on_the_way = writing.new.clone();
            on_the_way.sort_unstable_by_key(|r| r.offset);
            let left = missing
                .iter()
                .flat_map(|range| super::pack::missing(&on_the_way, *range));
            missing = left.collect();
        }
        for range in missing {
            let from = usize::try_from(range.start() - offset).unwrap_or(usize::MAX);
            let len = usize::try_from(range.len()).unwrap_or(usize::MAX);
            let part = bytes.get(from..).and_then(|rest| rest.get(..len));
            let part = part.ok_or_else(|| Error::internal("a part that is missing of bytes"))?;
            let written = self.append(id, range.start(), part);
            self.believed(written)?;
        }
        Ok(())
    }

    fn append(&mut self, id: SegmentId, offset: u64, bytes: &[u8]) -> Result<()> {
        let path = pack_path(&self.dir, id);
        let writing = match self.writing.entry(id) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(slot) => {
                let end = self.ends.get(&id).copied();
                let mode = match end {
                    Some(_) => OpenMode::Write,
                    None => OpenMode::CreateNew,
                };
                let opened = self.env.files.open(&path, mode);
                let file = opened.map_err(|e| Error::io("open", &path, e))?;
                self.has_new_name |= end.is_none();
                slot.insert(Writing {
                    file,
                    new: Vec::new(),
                    end: end.unwrap_or(0),
                })
            }
        };
        writing
            .file
            .write_all_at(writing.end, bytes)
            .map_err(|e| Error::io("write", &path, e))?;
        let bytes = wide(bytes.len());
        match writing.new.last_mut() {
            Some(last) if last.offset + last.bytes == offset => last.bytes += bytes,
            _ => writing.new.push(Present {
                offset,
                bytes,
                pack_offset: writing.end,
            }),
        }
        writing.end += bytes;
        Ok(())
    }

    /// Commits all bytes that were put.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.check()?;
        let committed = self.commit_ranges().and_then(|changed| {
            self.look(&changed)?;
            self.show(None)
        });
        self.believed(committed)?;
        self.keep_tail();
        Ok(())
    }

    fn commit_ranges(&mut self) -> Result<BTreeSet<SegmentId>> {
        self.changes += 1;
        if self.writing.is_empty() {
            return Ok(BTreeSet::new());
        }
        for (id, writing) in &self.writing {
            let path = pack_path(&self.dir, *id);
            let synced = writing.file.sync_data();
            synced.map_err(|e| Error::io("sync", &path, e))?;
        }
        if self.has_new_name {
            let folder = pack_dir(&self.dir);
            let synced = self.env.files.sync_dir(&folder);
            synced.map_err(|e| Error::io("sync", &folder, e))?;
        }
        let new: Packs = std::mem::take(&mut self.writing)
            .into_iter()
            .map(|(id, writing)| (id, (writing.new, writing.end)))
            .collect();
        self.index.put_ranges(&new)?;
        self.has_new_name = false;
        for (id, (ranges, end)) in &new {
            let pack = self.packs.entry(*id).or_insert_with(|| {
                Arc::new(Pack::new(&self.env.files, &self.dir, *id, Vec::new()))
            });
            pack.add(ranges);
            self.ends.insert(*id, *end);
        }
        Ok(new.into_keys().collect())
    }

    /// Forgets the present bytes of a range, since they are wrong: the range is missing again.
    pub(super) fn forget(&mut self, id: SegmentId, range: ByteRange) -> Result<()> {
        self.check()?;
        let Some(pack) = self.packs.get(&id) else {
            return Ok(());
        };
        let before = pack.present();
        let offsets = pack.forget(range);
        let gone = before.iter().filter(|r| offsets.contains(&r.start()));
        self.forgotten.extend(gone.map(|range| (id.0, *range)));
        let forgotten = self.index.forget_ranges(id, &offsets);
        let forgotten = forgotten.and_then(|()| self.look(&BTreeSet::from([id])));
        self.believed(forgotten)
    }

    /// The rows of the index, without the rows of ranges.
    pub(super) fn described(&self) -> Result<RawIndex> {
        self.index.raw()
    }

    /// The pack of a segment, or an empty one.
    pub(super) fn pack(&self, id: SegmentId) -> Arc<Pack> {
        let known = self.packs.get(&id).map(Arc::clone);
        known.unwrap_or_else(|| Arc::new(Pack::new(&self.env.files, &self.dir, id, Vec::new())))
    }

    /// Determines the missing ranges of segments of the state.
    fn look(&mut self, ids: &BTreeSet<SegmentId>) -> Result<()> {
        let state = Arc::clone(&self.state);
        let partitions = ids.iter().filter_map(|id| state.partition(*id));
        let partitions: Vec<&StatePartition> = partitions.collect();
        self.changes += 1;
        if partitions.is_empty() {
            return Ok(());
        }
        let store = self.store(&partitions);
        for partition in partitions {
            let missing = self.missing_in(&store, &state, partition)?;
            self.missing.put(partition.id, missing);
        }
        self.missing.forget_served(&self.packs);
        Ok(())
    }

    /// A store that reads partitions of the state through their packs.
    pub(super) fn store(&self, partitions: &[&StatePartition]) -> Store {
        let segments = partitions
            .iter()
            .map(|p| (p.id, self.pack(p.id), p.record.committed_bytes));
        let root = Path::new(ROOT);
        let shards = usize::from(self.state.shards);
        Store::new(
            Arc::new(PackFiles::new(root, segments)),
            segment_dir(root),
            ReadCache::alone(CACHE_BYTES, OPEN_FILES_MAX, shards),
            OPEN_FILES_MAX,
            shards,
        )
    }

    /// The subscribed ranges of a partition of the state, present or missing.
    pub(super) fn needed(&self, store: &Store, partition: &StatePartition) -> Result<Needed> {
        let file = store.segment_file(partition.id);
        needed(store, &self.state, partition, &file, &self.subscription)
    }

    fn missing_in(
        &self,
        store: &Store,
        state: &State,
        partition: &StatePartition,
    ) -> Result<SegmentMissing> {
        let file = store.segment_file(partition.id);
        let pack = self.pack(partition.id);
        let found = match needed(store, state, partition, &file, &self.subscription) {
            // The damage is here, or at the source: fetching the bytes repeatedly would not help.
            // Readers report it, and so does a comparison of the two.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(%error, "a segment of a copy is damaged; its previous contents stay visible");
                return Ok(SegmentMissing::DAMAGED);
            }
            other => other?,
        };
        let missing = SegmentMissing::of(&found, &pack);
        if missing.is_complete() && !found.is_complete {
            return Err(Error::internal(
                "a complete segment of a copy with missing ranges",
            ));
        }
        Ok(missing)
    }

    /// Segments of the state whose subscribed ranges are all present.
    pub(super) fn complete(&self) -> Vec<u64> {
        let partitions = self.state.partitions.iter();
        let complete = partitions
            .filter(|p| self.missing.is_complete(p.id) && self.missing.is_subscribed(p.id));
        complete.map(|p| p.id.0).collect()
    }

    /// Shows the partitions that can be shown now; `before` is the previous state, if it was
    /// replaced since.
    pub(super) fn show(&mut self, before: Option<Arc<State>>) -> Result<()> {
        let complete = self.shown_without()?;
        let missing = &self.missing;
        let is_complete =
            |p: &StatePartition| missing.is_complete(p.id) || complete.contains(&p.id);
        let is_other = before.is_some();
        let before = before.unwrap_or_else(|| Arc::clone(&self.state));
        let goes_on = self.tail.goes_on(&self.state);
        let known = Known {
            is_complete: &is_complete,
            deletes_known: &|p| self.deletes_known(p, &before),
            may_wait: &|p| goes_on && !missing.is_damaged(p.id),
        };
        let NextShown {
            partitions: shown,
            left_out,
        } = next_shown(&self.shown, &self.state, &known);
        let deleted = self.deleted_of(&shown, &before)?;
        let change = self.retained_change(&shown, &before)?;
        let is_named = |id: &SegmentId| {
            self.state.partition(*id).is_some()
                || change.retains(*id, self.retained.contains_key(id))
                || shown.iter().any(|p| p.id == *id)
        };
        let packs = self.packs.keys().filter(|id| !is_named(id)).copied();
        let gone: Vec<SegmentId> = packs.collect();
        let is_same = shown.len() == self.shown.len()
            && shown.iter().zip(&self.shown).all(|(a, b)| a.is_same(b));
        let is_same = is_same && deleted == self.deleted;
        if !is_other && is_same && change.is_empty() && gone.is_empty() {
            self.left_out = left_out;
            return Ok(());
        }
        let state = is_other.then_some(&*self.state);
        self.index
            .put_shown(state, (&shown, &deleted, &change), &gone)?;
        (self.shown, self.left_out, self.deleted) = (shown, left_out, deleted);
        change.apply(&mut self.retained);
        for id in gone {
            self.ends.remove(&id);
            self.writing.remove(&id);
            if let Some(pack) = self.packs.remove(&id) {
                pack.set_dropped();
            }
        }
        Ok(())
    }
}
