//! Indexes in the interface of embedders.
//!
//! Invariants: an index that was created exists at every later opening and in every later backup,
//! until it or its table is dropped; a database rebuilt from its segments has no indexes. Indexes
//! never change an answer. Concurrency: one change of indexes at a time; readers and writers do not
//! wait for it. Failure: a failed change may be on the medium nevertheless, so the database refuses
//! writes then.

use crate::core::Core;
use crate::maintenance::indexing::{
    Missing, Outcome, create, drop_indexes, index_space, is_alive, is_automatic, missing,
    next_increment, partitions, put,
};
use crate::storage::index::{IndexDefinition, IndexPolicy, IndexUse, PolicyRecord, types_in};
use crate::{Database, Error, Reader, Result};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Definition of an index to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Its name, unique in the database.
    pub name: String,
    /// The table.
    pub table: String,
    /// One to four fields. An index is used by filters that compare the first one, or the first
    /// few, all but the last for equality.
    pub fields: Vec<String>,
}

/// Progress of building an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexProgress {
    /// Partitions of the table, except unreadable ones.
    pub partitions: u64,
    /// Number of these partitions that the index covers completely. In the others filters read the
    /// missing leaves.
    pub partitions_complete: u64,
}

/// An index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexInfo {
    /// Its name.
    pub name: String,
    /// Its table.
    pub table: String,
    /// Its fields.
    pub fields: Vec<String>,
    /// Indexed values, including those of removed rows.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Number of its files; at most eight for each partition, except for moments.
    pub runs: u64,
    /// Its progress.
    pub progress: IndexProgress,
    /// True when its table made it automatically ([`IndexPolicy`]), and will drop it automatically.
    pub automatic: bool,
    /// The indexes of the table are at their limit: no more rows are indexed.
    pub over_budget: bool,
}

impl Database {
    /// Creates an index over fields of a table, for filters whose matching values may be anywhere
    /// in the table. The background builds it, partition by partition, and each part is usable once
    /// it is built; [`Database::build_index`] waits for it. Answers are the same with and without
    /// an index.
    ///
    /// ```
    /// use headwater_types::{Batch, StreamName};
    /// use headwater_engine::{Comparison, Database, Filter, IndexSpec, Options, ScanSpec};
    /// use std::ops::ControlFlow;
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// let till = StreamName::new("orders", [("till", "7")]);
    /// let mut batch = Batch::new();
    /// for second in 0..1000i64 {
    ///     let number = (second * 7919) % 1000;
    ///     batch.stream(&till).row(second * 1_000_000_000, [("number", number.into())]).unwrap();
    /// }
    /// db.commit(batch)?;
    /// db.flush()?;
    /// db.create_index(&IndexSpec {
    ///     name: "by_number".into(),
    ///     table: "orders".into(),
    ///     fields: vec!["number".into()],
    /// })?;
    /// assert!(db.build_index("by_number", &mut |_| ControlFlow::Continue(()))?);
    /// let value = 42i64.into();
    /// let one = Filter { field: "number".into(), comparison: Comparison::Equal, value };
    /// let spec = ScanSpec { filters: vec![one], ..ScanSpec::default() };
    /// let found = db.snapshot()?.scan(&till, &spec)?;
    /// assert_eq!(found.map(|chunk| chunk.unwrap().times.len()).sum::<usize>(), 1);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid` when there is an index of that name, for a bad name, no or too many fields, or a
    /// field twice; `not_found` for a missing table or field; `io`, `full`, `closed`, `forked`.
    pub fn create_index(&self, spec: &IndexSpec) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        create(core, &spec.name, &spec.table, &spec.fields)?;
        core.signals.wake_workers();
        Ok(())
    }

    /// Drops an index.
    ///
    /// # Errors
    /// `not_found` when there is no index of that name; `io`, `full`, `closed`, `forked`.
    pub fn drop_index(&self, name: &str) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        let _changing = core.indexes.begin_change();
        let index = find(core, name)?;
        drop_indexes(core, &[index.id])
    }

    /// Builds the missing part of an index now, on the caller, in increments of about a quarter of
    /// a million rows; `go_on` is called before each one. True when the index is complete, false
    /// when `go_on` ended it: a later call, and the background, continue from there.
    ///
    /// # Errors
    /// `not_found` when there is no such index, or it was dropped; `io`, `full`, `closed`,
    /// `forked`.
    pub fn build_index(
        &self,
        name: &str,
        go_on: &mut dyn FnMut(&IndexProgress) -> ControlFlow<()>,
    ) -> Result<bool> {
        let core = self.own_core()?;
        loop {
            core.log.check()?;
            core.check_space()?;
            let index = find(core, name)?;
            let progress = progress(core, &index);
            if go_on(&progress).is_break() {
                return Ok(false);
            }
            if next_increment(core, Some(index.id))? == Outcome::Nothing {
                if let Some(info) = info(core, &index).filter(|info| info.over_budget)
                    && progress.partitions_complete < progress.partitions
                {
                    return Err(Error::invalid(format!(
                        "index `{name}` is not complete: the indexes of table `{}` have used up its index_budget: drop an index, or raise index_budget",
                        info.table
                    )));
                }
                return Ok(true);
            }
        }
    }

    /// Sets the index policy of a table: whether indexes are made and dropped by the number of rows
    /// that filters read in vain, and how much space all of them may use. An index that would
    /// exceed the limit is not built any further, and automatic indexes are dropped while all
    /// together exceed it.
    ///
    /// ```
    /// use headwater_engine::{Database, IndexBudget, IndexPolicy, Options, TableSpec};
    /// let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(Options::new(dir.path().join("db")))?;
    /// db.create_table(&TableSpec::new("orders"))?;
    /// let policy = IndexPolicy { auto: true, budget: Some(IndexBudget::Percent(20)) };
    /// db.set_index_policy("orders", &policy)?;
    /// assert_eq!(db.index_policy("orders")?, policy);
    /// # Ok::<(), headwater_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `not_found` for a missing table; `io`, `full`, `closed`, `forked`.
    pub fn set_index_policy(&self, table: &str, policy: &IndexPolicy) -> Result<()> {
        let core = self.own_core()?;
        core.log.check()?;
        let _changing = core.indexes.begin_change();
        let found = core.catalog.table_named(table);
        let found = found.ok_or_else(|| Error::not_found(format!("no table `{table}`")))?;
        let known = core
            .indexes
            .policy(found.id)
            .unwrap_or_else(PolicyRecord::default);
        if known.policy == *policy {
            return Ok(());
        }
        core.check_space()?;
        core.log.sync_up_to(core.log.newest())?;
        let record = PolicyRecord {
            policy: *policy,
            ..known
        };
        put(core, found.id, record)?;
        core.signals.wake_workers();
        Ok(())
    }

    /// Returns the index policy of a table.
    ///
    /// # Errors
    /// `not_found` for a missing table.
    pub fn index_policy(&self, table: &str) -> Result<IndexPolicy> {
        let core = self.core();
        let found = core.catalog.table_named(table);
        let found = found.ok_or_else(|| Error::not_found(format!("no table `{table}`")))?;
        let known = core.indexes.policy(found.id);
        Ok(known.map_or_else(IndexPolicy::default, |record| record.policy))
    }

    /// The indexes, by name.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexInfo> {
        list(self.core())
    }

    /// Sets when filters use indexes, until the database is closed: to measure their benefit.
    pub fn use_indexes(&self, usage: IndexUse) {
        self.core().indexes.set_usage(usage);
    }
}

impl Reader {
    /// The indexes, by name, as of the owner's last job.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexInfo> {
        list(&self.core())
    }
}

/// The indexes, by name.
fn list(core: &Core) -> Vec<IndexInfo> {
    let definitions = core.indexes.definitions();
    let alive = definitions.iter().filter(|index| is_alive(core, index));
    let mut all: Vec<IndexInfo> = alive.filter_map(|index| info(core, index)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn find(core: &Core, name: &str) -> Result<Arc<IndexDefinition>> {
    let definitions = core.indexes.definitions();
    let mut alive = definitions.iter().filter(|index| is_alive(core, index));
    let found = alive.find(|index| index.name == name).cloned();
    found.ok_or_else(|| Error::not_found(format!("no index `{name}`")))
}

fn progress(core: &Core, index: &IndexDefinition) -> IndexProgress {
    let mut progress = IndexProgress::default();
    let Some(table) = core.catalog.table(index.table) else {
        return progress;
    };
    for partition in partitions(core, &table) {
        let runs = core.indexes.runs(partition.id(), index.id);
        let is_missing = missing(&partition, &runs, types_in(&table, index));
        progress.partitions += 1;
        progress.partitions_complete += u64::from(!matches!(is_missing, Missing::Leaves));
    }
    progress
}

fn info(core: &Core, index: &IndexDefinition) -> Option<IndexInfo> {
    let table = core.catalog.table(index.table)?;
    let fields = index.fields.iter().filter_map(|id| table.field(*id));
    let mut info = IndexInfo {
        name: index.name.clone(),
        table: table.name.clone(),
        fields: fields.map(|field| field.name.clone()).collect(),
        entries: 0,
        bytes: 0,
        runs: 0,
        progress: progress(core, index),
        automatic: is_automatic(core, index),
        over_budget: index_space(core, &table).is_some_and(|space| space.is_full()),
    };
    let all = core.indexes.all_runs().into_iter();
    for (_, runs) in all.filter(|((_, of), _)| *of == index.id) {
        for run in &runs.runs {
            info.entries += run.record.entries;
            info.bytes += run.record.file_bytes();
            info.runs += 1;
        }
    }
    Some(info)
}
