//! Partitions of which nothing can be read, and the events that belong into them.
//!
//! A partition is unreadable when its file is missing or shorter than committed, or its header or a
//! footer is damaged. It keeps its span: reads that meet it fail with the place of the damage, all
//! others go on.
//!
//! Invariants: an unreadable partition takes no groups, and is not rewritten, aged, swept or
//! removed; its file stays as it is until a repair. What of the log belongs into its span may be in
//! it or not, since its covers cannot be read: the log keeps every such record, and so every write
//! into the span that was accepted since. Of these events memory holds what fits into
//! [`held_max`]; the others are *parked*: they stand in the log only, and come back when the
//! database is opened after a repair. So nothing is lost, and nothing can be counted twice, since
//! nothing is stored until the covers are known.
//! Concurrency: a partition becomes unreadable while the database is opened, or under its shard's
//! step lock.
//! Failure: writes into the span are refused row by row ([`crate::REFUSED_UNREADABLE`]) when more
//! is parked than the memory budget, which an opening after the repair has to take in; other spans
//! do not notice.

use crate::core::Core;
use crate::ids::{Sequence, ShardIndex, TableId};
use crate::ranges::holds;
use crate::refused::{REFUSED_UNREADABLE, Refused};
use crate::segment::Partition;
use crate::shard::{Shard, ShardState};
use crate::{Database, Error, ErrorKind, Options, Result};
use headwater_types::{ClosedRange, Rows, Timestamp};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a shard keeps of the spans of its unreadable partitions.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    /// Bytes of events that memory holds, about.
    held_bytes: usize,
    /// Bytes of events accepted since opening that stand in the log only, about.
    bytes: usize,
    /// These events.
    pub(crate) events: u64,
    /// The first record of which events stand in the log only.
    pub(crate) first: Option<Sequence>,
}

impl Parked {
    fn from(&mut self, sequence: Sequence) {
        self.first = Some(self.first.map_or(sequence, |first| first.min(sequence)));
    }
}

/// What became of rows that stand in the log.
pub(crate) struct Admitted {
    /// Those that go into memory.
    pub(crate) rows: Rows,
    /// How many do not.
    pub(crate) parked: usize,
    parked_bytes: usize,
}

/// The most of these events that a shard holds in memory: it has to be small beside what makes
/// workers flush.
pub(crate) fn held_max(options: &Options, shards: usize) -> usize {
    options.memory_budget_bytes / 4 / shards.max(1)
}

impl ShardState {
    /// Says which rows of a record go into memory. The others stay in the log, which is kept from
    /// that record on.
    pub(crate) fn admit(
        &mut self,
        table: TableId,
        rows: Rows,
        sequence: Sequence,
        held_max: usize,
    ) -> Admitted {
        let spans = self.partitions.unreadable_spans(table);
        let inside = match &*spans {
            [] => 0,
            spans => rows.times.iter().filter(|t| holds(spans, **t)).count(),
        };
        if inside == 0 {
            return Admitted {
                rows,
                parked: 0,
                parked_bytes: 0,
            };
        }
        let bytes = rows.heap_bytes() / rows.len().max(1) * inside;
        if self.parked.held_bytes + bytes <= held_max {
            self.parked.held_bytes += bytes;
            return Admitted {
                rows,
                parked: 0,
                parked_bytes: 0,
            };
        }
        self.parked.from(sequence);
        let outside: Vec<u32> = (0u32..)
            .zip(&rows.times)
            .filter(|(_, t)| !holds(&spans, **t))
            .map(|(row, _)| row)
            .collect();
        Admitted {
            rows: rows.gather(&outside),
            parked: inside,
            parked_bytes: bytes,
        }
    }

    /// Counts events that were accepted just now and stand in the log only.
    pub(crate) fn count_parked(&mut self, admitted: &Admitted) {
        self.parked.events += admitted.parked as u64;
        self.parked.bytes += admitted.parked_bytes;
    }

    /// From now on nothing of the partition can be read.
    pub(crate) fn set_unreadable(&mut self, partition: &Partition, error: Error) {
        let unreadable = Partition {
            record: partition.record.clone(),
            file: Arc::clone(&partition.file),
            unreadable: Some(error),
        };
        Arc::make_mut(&mut self.partitions).put(Arc::new(unreadable));
    }

    /// Leaves the events of a span to the log if they are too many to be held. Gives the change of
    /// memory in bytes.
    fn park(&mut self, table: TableId, span: &ClosedRange, held_max: usize) -> isize {
        let inside = |time: i64| span.contains(Timestamp::from_nanos(time));
        let mut found = Vec::new();
        let mut bytes = 0;
        for (stream, slot) in self.active().filter(|(_, slot)| slot.table == table) {
            let mut rows = 0;
            for chunk in slot.memory.flank.iter().chain(&slot.memory.late) {
                let here = chunk.rows.times.iter().filter(|t| inside(**t)).count();
                rows += here;
                bytes += chunk.bytes / chunk.len().max(1) * here;
            }
            if rows > 0 {
                found.push((stream, rows, slot.memory.first_sequence()));
            }
        }
        if self.parked.held_bytes + bytes <= held_max {
            self.parked.held_bytes += bytes;
            return 0;
        }
        let (version, open) = (self.version, self.snapshots.clone());
        self.parked.bytes += bytes;
        let mut change = 0;
        for (stream, rows, first) in found {
            if let Some(first) = first {
                self.parked.from(first);
            }
            self.parked.events += rows as u64;
            let (_, less) = self.with_stream(stream, table, |memory| {
                memory.remove_deleted(&|time, _| !inside(time), version, &open)
            });
            change += less;
        }
        change
    }
}

impl Core {
    /// Sets the partition aside in whose file an error found damage. True if it was counted as
    /// readable up to now.
    ///
    /// The shard's step lock must be held: no step is at work on the partition then.
    pub(crate) fn set_aside(&self, shard: &Shard, error: &Error) -> bool {
        let Some(damage) = error
            .damaged()
            .filter(|_| error.kind() == ErrorKind::Corrupt)
        else {
            return false;
        };
        let kept_after = self.log.sequence_before(self.commit.lock().log_generation);
        let held_max = held_max(&self.options, self.shards.len());
        let change = {
            let mut state = shard.state.lock();
            let found = state
                .partitions
                .all()
                .find(|p| p.unreadable.is_none() && p.file.path() == damage.file)
                .cloned();
            let Some(partition) = found else {
                return false;
            };
            state.version += 1;
            state.set_unreadable(&partition, error.clone());
            // What the log still has of it may be all that is left.
            if partition.record.sequence > kept_after {
                state.parked.from(Sequence(kept_after.0 + 1));
            }
            let span = partition.record.span();
            let change = state.park(partition.record.table, &span, held_max);
            tell(self, &partition, error);
            change
        };
        self.any_unreadable.store(true, Ordering::Release);
        if change != 0 {
            self.memory_changed(change);
        }
        true
    }

    /// Takes rows out of a checked entry that lie where nothing can be stored, when the log may not
    /// keep more of them.
    pub(crate) fn refuse_unreadable(
        &self,
        (shard, table): (ShardIndex, TableId),
        entry: usize,
        rows: &mut Rows,
        kept: &mut Option<Vec<usize>>,
        refused: &mut Vec<Refused>,
    ) -> Result<()> {
        if !self.any_unreadable.load(Ordering::Acquire) {
            return Ok(());
        }
        let partitions = {
            let state = self.shard(shard)?.state.lock();
            if state.parked.bytes < self.options.memory_budget_bytes / self.shards.len().max(1) {
                return Ok(());
            }
            Arc::clone(&state.partitions)
        };
        let spans = partitions.unreadable_spans(table);
        let mut good = Vec::new();
        for (row, time) in (0u32..).zip(&rows.times) {
            if !holds(&spans, *time) {
                good.push(row);
                continue;
            }
            let place = match kept {
                Some(kept) => kept.get(row as usize).copied().unwrap_or_default(),
                None => row as usize,
            };
            let damaged = partitions.owner(table, *time);
            let file = damaged.map(|p| p.file.path().display().to_string());
            refused.push(Refused {
                entry,
                row: place,
                code: REFUSED_UNREADABLE,
                message: format!(
                    "the partition of this time is damaged ({}), and the log keeps as many rows for it as it may: run `headwater repair`, then write the row again",
                    file.unwrap_or_default()
                ),
            });
        }
        if good.len() < rows.len() {
            let all = (0..rows.len()).collect();
            let before = kept.take().unwrap_or(all);
            let places = good.iter().filter_map(|r| before.get(*r as usize).copied());
            *kept = Some(places.collect());
            *rows = rows.gather(&good);
        }
        Ok(())
    }
}

impl Database {
    /// How many partitions are damaged so that nothing of them can be read, as far as is known:
    /// [`Database::partitions`] names them.
    #[must_use]
    pub fn partitions_unreadable(&self) -> usize {
        let shards = self.core().shards.iter();
        shards.map(|s| s.state.lock().partitions.unreadable()).sum()
    }
}

/// Says in the log what cannot be read from now on.
fn tell(core: &Core, partition: &Partition, error: &Error) {
    let table = core.catalog.table(partition.record.table);
    let span = partition.record.span();
    tracing::error!(
        table = table.map(|t| t.name.clone()).unwrap_or_default(),
        from = span.first.as_nanos(),
        to = span.last.as_nanos(),
        events = partition.record.events,
        %error,
        "a partition cannot be read: reads of its span fail, everything else goes on; run `headwater check`, then `headwater repair`"
    );
}

impl Core {
    /// Says in the log what cannot be read, right after opening.
    pub(crate) fn tell_unreadable(&self) {
        for shard in &self.shards {
            let partitions = Arc::clone(&shard.state.lock().partitions);
            for partition in partitions.all() {
                if let Some(error) = &partition.unreadable {
                    tell(self, partition, error);
                }
            }
        }
    }
}
