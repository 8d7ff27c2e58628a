//! The open database, as embedders use it.

use crate::common::ids::Sequence;
use crate::common::refused::Refused;
use crate::core::policy_choice::{self, LateReport};
use crate::core::{Core, Turn};
use crate::maintenance::deletes::{self, DeleteSpec};
use crate::maintenance::flush;
use crate::maintenance::relocate;
use crate::maintenance::retention;
use crate::maintenance::schedule::{self, maintain_after_write};
use crate::maintenance::workers::spawn_workers;
use crate::metadata::catalog::{
    Defined, Field, Table, TableInfo, TableLifetime, TableLimits, TableRecord, TableSpec,
    check_name,
};
use crate::open::reader::Reader;
use crate::open::recover::{self, Recovery};
use crate::read::Snapshot;
use crate::read::stats::Stats;
use crate::storage::queues::with_backend;
use crate::write::table_change::{TableChange, leaf_events, life_span};
use crate::write::widening::check_widening;
use crate::write::{self};
use crate::{Error, Options, Result};
use headwater_io::{Env, Joiner};
use headwater_late::PolicyChoice;
use headwater_types::{Batch, ClosedRange, Instants, StreamName};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// A database. Cheap to clone; all clones are the same database, which is closed with the last of
/// them or by [`Database::close`].
#[derive(Clone, Debug)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    recovery: Recovery,
    threads: Mutex<Vec<Box<dyn Joiner>>>,
    closed: AtomicBool,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

/// Result of a write, once it is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Rows stored.
    pub accepted: u64,
    /// Accepted rows that replaced a value of an earlier row of the same batch, in the same field
    /// at the same time: the batch named the same stream and time more than once.
    pub replaced: u64,
    /// Rows not stored, and the reasons.
    pub refused: Vec<Refused>,
    /// The batch was numbered by its producer, and had been stored before: it was not stored again.
    pub repeated: bool,
}

/// A write in progress. The write goes on whether or not it is waited for; it is acknowledged when
/// [`Ticket::wait`] returns successfully.
///
/// Tickets are futures too, for callers that have an async runtime: awaiting one costs no thread,
/// and returns the result of [`Ticket::wait`]. In an environment without threads, polling it does
/// the waiting.
///
/// ```
/// use headwater_types::Batch;
/// use headwater_engine::Database;
/// async fn store(db: &Database, batch: Batch) -> headwater_engine::Result<u64> {
///     let ticket = db.write(batch)?; // may wait for memory: away from the runtime's threads
///     Ok(ticket.await?.accepted)
/// }
/// ```
#[derive(Debug)]
pub struct Ticket {
    core: Arc<Core>,
    sequence: Option<Sequence>,
    accepted: u64,
    values: u64,
    replaced: u64,
    refused: Vec<Refused>,
    repeated: bool,
}

impl Ticket {
    /// Rows that are not stored, and the reasons. Known at once.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Values in the rows that are stored.
    #[must_use]
    pub fn values(&self) -> u64 {
        self.values
    }

    /// As [`Written::replaced`]. Known at once.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// True when the batch was numbered by its producer and had been accepted before: it is not
    /// stored again.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// Waits for the acknowledgement: the accepted rows are as durable as the database promises,
    /// and visible to every later snapshot.
    ///
    /// # Errors
    /// When the log could not be written; the rows may or may not survive then.
    pub fn wait(self) -> Result<Written> {
        if let Some(sequence) = self.sequence {
            self.core.guard.check()?;
            self.core.log.wait_published(sequence)?;
            maintain_after_write(&self.core);
        }
        Ok(Written {
            accepted: self.accepted,
            replaced: self.replaced,
            refused: self.refused,
            repeated: self.repeated,
        })
    }
}

impl Future for Ticket {
    type Output = Result<Written>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Written>> {
        let ticket = self.get_mut();
        if let Some(sequence) = ticket.sequence {
            if let Err(error) = ticket.core.guard.check() {
                return Poll::Ready(Err(error));
            }
            let log = &ticket.core.log;
            let done = if ticket.core.signals.has_threads() {
                log.poll_published(sequence, context.waker())
            } else {
                Some(log.wait_published(sequence))
            };
            match done {
                None => return Poll::Pending,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                Some(Ok(())) => maintain_after_write(&ticket.core),
            }
        }
        Poll::Ready(Ok(Written {
            accepted: ticket.accepted,
            replaced: ticket.replaced,
            refused: std::mem::take(&mut ticket.refused),
            repeated: ticket.repeated,
        }))
    }
}

impl Database {
    /// Opens the database in a directory of this machine, or creates it; recovers it if it was not
    /// closed.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// use headwater_types::{Batch, StreamName};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let mut batch = Batch::new();
    /// let engine = StreamName::new("engine", [("id", "7")]);
    /// batch.stream(&engine).row(1_700_000_000_000_000_000, [("rpm", 2150.0.into())]).unwrap();
    /// db.commit(batch)?;
    /// assert_eq!(db.snapshot()?.last(&engine)?.len(), 1);
    /// db.close()?;
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `locked` when another process owns it, `corrupt` when files are damaged, `invalid` for bad
    /// settings, `io`, `full`.
    pub fn open(options: Options) -> Result<Database> {
        Database::open_in(Env::system(), options)
    }

    /// Opens like [`Database::open`], in another environment: in memory, or with faults.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_in(env: Env, options: Options) -> Result<Database> {
        let env = with_backend(env, &options);
        relocate::settle(&env, &options)?;
        let (core, recovery) = recover::open(env, options)?;
        let inner = Inner {
            core: Arc::new(core),
            recovery,
            threads: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
        };
        // When a thread cannot be started, dropping `inner` ends the others.
        spawn_workers(&inner.core, &mut inner.threads.lock())?;
        retention::begin_to_believe(&inner.core)?;
        retention::review_all_cutoffs(&inner.core);
        Ok(Database {
            inner: Arc::new(inner),
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// The core like [`Database::core`], for operations that write or wait; fails in a forked child
    /// of the process that opened the database.
    pub(crate) fn own_core(&self) -> Result<&Arc<Core>> {
        let core = self.core();
        core.guard.check()?;
        Ok(core)
    }

    /// Counts of the repairs of recovery at the opening.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// Submits a batch: its accepted part is one atomic write. The ticket lists the refused rows
    /// and can be waited on; a writer may have several in flight.
    ///
    /// # Errors
    /// `busy` when memory stays used up, `full`, `closed`, `invalid` when the batch is malformed or
    /// too large. No row of the batch is stored then.
    pub fn write(&self, batch: Batch) -> Result<Ticket> {
        let ticket = self.submit(batch)?;
        if self.core().log.is_busy() {
            self.core().log.nudge();
        }
        Ok(ticket)
    }

    /// Writes a batch and waits for the acknowledgement: the shortest way for one write at a time.
    ///
    /// # Errors
    /// As [`Database::write`] and [`Ticket::wait`].
    pub fn commit(&self, batch: Batch) -> Result<Written> {
        self.submit(batch)?.wait()
    }

    fn submit(&self, batch: Batch) -> Result<Ticket> {
        let core = self.own_core()?;
        let entered = core.placing.enter();
        let submitted = write::submit(core, batch)?;
        drop(entered);
        Ok(Ticket {
            core: Arc::clone(self.core()),
            sequence: submitted.sequence,
            accepted: submitted.accepted,
            values: submitted.values,
            replaced: submitted.replaced,
            refused: submitted.refused,
            repeated: submitted.repeated,
        })
    }

    /// A consistent view of all data acknowledged so far.
    ///
    /// # Errors
    /// `closed` after [`Database::close`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.own_core()?;
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(Error::new(
                crate::ErrorKind::Closed,
                "the database is closed",
            ));
        }
        Ok(Snapshot::open(Arc::clone(self.core())))
    }

    /// The version of a range of a stream, as [`Snapshot::version`] would return it in a snapshot
    /// taken now, determined without any wait for I/O. `None` when that is not possible, which is
    /// no statement about the stream.
    #[must_use]
    pub fn quick_version(
        &self,
        stream: &StreamName,
        range: &ClosedRange,
    ) -> Option<crate::DataVersion> {
        if self.inner.closed.load(Ordering::Acquire) {
            return None;
        }
        crate::read::version::quick(self.core(), stream, range)
    }

    /// Clock that provides instants for rows without one: unique within an opening.
    pub fn instants(&self) -> &Arc<Instants> {
        &self.core().instants
    }

    /// The tables.
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        let core = self.core();
        core.catalog
            .tables()
            .iter()
            .map(|t| core.catalog.table_info(t))
            .collect()
    }

    /// Declares a table.
    ///
    /// # Errors
    /// `invalid` when there is a table of that name, or for a bad name, a field twice, a leaf size
    /// out of range.
    pub fn create_table(&self, spec: &TableSpec) -> Result<TableInfo> {
        let core = self.own_core()?;
        core.log.check()?;
        let leaf_events = leaf_events(spec.leaf_events, core.options.leaf_events)?;
        let mut fields: Vec<Field> = Vec::new();
        for field in &spec.fields {
            check_name("field", &field.name)?;
            if fields.iter().any(|f| f.name == field.name) {
                return Err(Error::invalid(format!(
                    "field `{}` is specified more than once",
                    field.name
                )));
            }
            fields.push(Field {
                name: field.name.clone(),
                field_type: field.field_type,
            });
        }
        if fields.len() > core.options.fields_max {
            return Err(Error::invalid(format!(
                "at most {} fields are allowed",
                core.options.fields_max
            )));
        }
        let change = |id, old: Option<&Table>| match old {
            Some(_) => Err(Error::invalid(format!(
                "table `{}` already exists",
                spec.name
            ))),
            None => {
                let mut table = Table {
                    id,
                    name: spec.name.clone(),
                    duplicates: spec.duplicates,
                    leaf_events,
                    fields,
                    tags: Vec::new(),
                    lifetime: TableLifetime {
                        retention: life_span("retention", spec.retention)?,
                        raw_for: life_span("raw_for", spec.raw_for)?,
                        ..TableLifetime::FOREVER
                    },
                };
                table.add_tags(&spec.tags)?;
                Ok(table)
            }
        };
        let turn = core.defining.begin(core.options.busy_timeout)?;
        self.define(&turn, &spec.name, change)
    }

    /// Changes a table: adds fields, changes the leaf size. Stored rows do not change.
    ///
    /// # Errors
    /// `not_found` without such a table; `invalid` for an existing field with another type (i64 may
    /// become f64 where no stored value loses digits by it), or for another setting of `duplicates`
    /// once the table has streams.
    pub fn alter_table(&self, name: &str, change: &TableChange) -> Result<TableInfo> {
        let core = self.own_core()?;
        core.log.check()?;
        let streams = core
            .catalog
            .table_named(name)
            .map_or(0, |t| core.catalog.stream_count(t.id));
        let turn = core.defining.begin(core.options.busy_timeout)?;
        check_widening(core, &turn, name, &change.add_fields)?;
        let alter = |_, old: Option<&Table>| {
            let mut table = old
                .cloned()
                .ok_or_else(|| Error::not_found(format!("no table `{name}`")))?;
            if change.leaf_events.is_some() {
                table.leaf_events = leaf_events(change.leaf_events, core.options.leaf_events)?;
            }
            if let Some(duplicates) = change.duplicates
                && duplicates != table.duplicates
            {
                if streams > 0 {
                    return Err(Error::invalid(format!(
                        "table `{name}` has {streams} streams: its duplicates setting ({}) can change only before the first write",
                        table.duplicates.name()
                    )));
                }
                table.duplicates = duplicates;
            }
            if let Some(retention) = change.retention {
                table.lifetime.retention = life_span("retention", retention)?;
            }
            if let Some(raw_for) = change.raw_for {
                table.lifetime.raw_for = life_span("raw_for", raw_for)?;
            }
            for field in &change.add_fields {
                check_name("field", &field.name)?;
                table.add_field(field)?;
            }
            table.add_tags(&change.add_tags)?;
            if table.fields.len() > core.options.fields_max {
                return Err(Error::invalid(format!(
                    "at most {} fields are allowed",
                    core.options.fields_max
                )));
            }
            Ok(table)
        };
        let info = self.define(&turn, name, alter)?;
        drop(turn);
        if change.retention.is_none() && change.raw_for.is_none() {
            return Ok(info);
        }
        let Some(table) = core.catalog.table_named(name) else {
            return Ok(info);
        };
        retention::apply_life(core, &table)?;
        Ok(core
            .catalog
            .table_named(name)
            .map_or(info, |table| core.catalog.table_info(&table)))
    }

    /// Deletes the events of a range that were written before this call. Later writes to the range
    /// stay. The delete is in force for every later snapshot when this returns; space is freed a
    /// little later. Returns the number of streams concerned.
    ///
    /// In a stretch with only aggregates, a bucket at the edge of the range does not change.
    ///
    /// # Errors
    /// `not_found` without such a table, `invalid` for an empty range, `full`, `io`, `closed`.
    pub fn delete(&self, spec: &DeleteSpec) -> Result<u64> {
        deletes::delete(self.own_core()?, spec)
    }

    /// Deletes like [`Database::delete`], of exactly these streams. Returns the number of existing
    /// streams.
    ///
    /// # Errors
    /// As [`Database::delete`]; `invalid` for a stream of another table.
    pub fn delete_streams(
        &self,
        table: &str,
        streams: &[StreamName],
        range: ClosedRange,
    ) -> Result<u64> {
        deletes::delete_streams(self.own_core()?, table, streams, range)
    }

    /// Drops the streams of a table that have these tags, and all their events. A later write with
    /// the same tags makes a new stream. Returns the number of dropped streams.
    ///
    /// # Errors
    /// `not_found` without such a table, `invalid` without tags, `full`, `io`, `closed`.
    pub fn drop_streams(&self, table: &str, tags: &[(String, String)]) -> Result<u64> {
        deletes::drop_streams(self.own_core()?, table, tags)
    }

    /// Drops like [`Database::drop_streams`], exactly these streams, also one without tags. Returns
    /// the number of existing streams.
    ///
    /// # Errors
    /// As [`Database::drop_streams`]; `invalid` for a stream of another table.
    pub fn drop_named_streams(&self, table: &str, streams: &[StreamName]) -> Result<u64> {
        deletes::drop_named_streams(self.own_core()?, table, streams)
    }

    /// Drops a table with all its streams and events. Its name can be reused then.
    ///
    /// # Errors
    /// `not_found` without such a table, `full`, `io`, `closed`.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        deletes::drop_table(self.own_core()?, name)
    }

    fn define(
        &self,
        _turn: &Turn<'_>,
        name: &str,
        change: impl FnOnce(crate::common::ids::TableId, Option<&Table>) -> Result<Table>,
    ) -> Result<TableInfo> {
        let core = self.core();
        let limits = TableLimits::of(&core.options);
        let log = |record: &TableRecord| core.log_table(record);
        match core
            .catalog
            .define_table_within(name, limits, change, log)?
        {
            Defined::As(table, sequence) => {
                sequence.map_or(Ok(()), |s| core.log.wait_published(s))?;
                Ok(core.catalog.table_info(&table))
            }
            Defined::Not(beyond) => Err(Error::invalid(format!("table `{name}`: {beyond}"))),
        }
    }

    /// Stores every event in memory in segments.
    ///
    /// # Errors
    /// `full`, `io`, `closed`.
    pub fn flush(&self) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        flush::flush_all(core)?;
        schedule::mirror_flushed(core)
    }

    /// Stores every event in memory, then rewrites every partition that would become smaller or
    /// tidier.
    ///
    /// # Errors
    /// As [`Database::flush`].
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        schedule::compact_all(self.core())
    }

    /// The partitions, by table and time; those of different shards may have the same span.
    #[must_use]
    pub fn partitions(&self) -> Vec<crate::PartitionInfo> {
        crate::read::describe::partitions(self.core())
    }

    /// Bytes of memory the database may use, as set at its opening.
    #[must_use]
    pub fn memory_budget_bytes(&self) -> usize {
        self.core().options.memory_budget_bytes
    }

    /// The fast tier, if the database has one.
    #[must_use]
    pub fn fast_tier(&self) -> Option<crate::FastTier> {
        let placed = self.core().placing.now();
        placed.tier.as_ref().map(|owned| owned.tier.clone())
    }

    /// Counters and sizes.
    ///
    /// # Errors
    /// When the metadata of a file cannot be read.
    pub fn stats(&self) -> Result<Stats> {
        Stats::collect(self.own_core()?)
    }

    /// Statistics of late events: the policy in force in each shard, every candidate with its
    /// prediction, the newest decisions.
    ///
    /// ```
    /// use headwater_engine::{Database, Options};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path()))?;
    /// let late = db.late();
    /// assert_eq!(late.choice.to_string(), "adaptive");
    /// assert!(late.shards.iter().all(|shard| shard.decisions.is_empty()));
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    #[must_use]
    pub fn late(&self) -> LateReport {
        policy_choice::late_report(self.core())
    }

    /// Changes the origin of the policy for late data, until the database is closed. This causes no
    /// writes and no waits: events in memory are divided again at the next write or flush of their
    /// stream.
    ///
    /// # Errors
    /// `invalid` when the policy is out of range.
    pub fn set_late_policy(&self, choice: PolicyChoice) -> Result<()> {
        policy_choice::set_late_policy(self.own_core()?, choice)
    }

    /// Stores every event in memory and closes the database; further writes fail with `closed`.
    /// Snapshots stay readable.
    ///
    /// # Errors
    /// When the last flush failed, or an earlier failure had stopped all writing. Acknowledged
    /// events are in the log then, and are restored at the next opening.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// Does the due work, on the caller: stores, merges, rewrites, and ends data that retention,
    /// aging and expiry have reached. Workers do so by themselves; a database without threads
    /// ([`headwater_io::NoThreads`]) does it with writes, and a program may call this when there
    /// are no writes.
    ///
    /// # Errors
    /// `full`, `io`, `closed`.
    pub fn maintain(&self) -> Result<()> {
        self.core().log.check()?;
        schedule::maintain(self.core())
    }

    /// Number of known partitions that are too damaged to be read at all: [`Database::partitions`]
    /// names them.
    #[must_use]
    pub fn partitions_unreadable(&self) -> usize {
        let shards = self.core().shards.iter();
        shards.map(|s| s.state.lock().partitions.unreadable()).sum()
    }
}

impl Reader {
    /// The last refreshed state, as a database for interfaces that require one: it continues to
    /// show this state, and every change fails with `read_only`. Closing it has no effect on the
    /// reader.
    ///
    /// ```
    /// use headwater_engine::{Database, ErrorKind, Options, Reader};
    /// let dir = tempfile::tempdir().unwrap();
    /// let owner = Database::open(Options::new(dir.path()))?;
    /// let seen = Reader::open(Options::new(dir.path()))?.database();
    /// assert!(seen.tables().is_empty());
    /// assert_eq!(seen.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    #[must_use]
    pub fn database(&self) -> Database {
        Database {
            inner: Arc::new(Inner {
                core: self.core(),
                recovery: Recovery::default(),
                threads: Mutex::new(Vec::new()),
                closed: AtomicBool::new(false),
            }),
        }
    }
}

impl Inner {
    fn close(&self) -> Result<()> {
        self.core.guard.check()?;
        // A reader's view has no data to store, and other readers may share it.
        if self.closed.swap(true, Ordering::AcqRel) || self.core.is_reader() {
            return Ok(());
        }
        let core = &self.core;
        // A change of the layout finishes first.
        let _no_change = core.placing.begin_change();
        let stored = core
            .log
            .check_failure()
            .and_then(|()| flush::store_all(core));
        core.signals.stop();
        core.log.close();
        core.signals.wake_all();
        for thread in self.threads.lock().drain(..) {
            if !thread.join() {
                tracing::error!("a worker thread panicked");
            }
        }
        core.store.abandon_queues();
        // Records added meanwhile, for which only a task waits, have no other thread to write them
        // now.
        let written = core.log.wait_published(core.log.newest());
        stored.and(written).and_then(|()| flush::leave_log(core))?;
        // Files that are not needed any more are not copied.
        if let Some(mirror) = &core.placing.now().mirror {
            schedule::mirror_log(core, mirror);
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.core.guard.is_forked() {
            // The core is the parent's: nothing may be written, no thread can be waited for, and a
            // lock may belong to a thread that does not exist here.
            std::mem::forget(Arc::clone(&self.core));
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the database failed; the log is replayed when it is next opened");
        }
    }
}
